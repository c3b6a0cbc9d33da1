"""Probes: the candidate on data that the script does not make, which show errors that its own data hide.

run          all of them, and what the verdict's line says was left out
product      of a product with an epilogue, data made for its operands
varied       of any other model, its own data and parameters, changed
odd_answers  what is right of an answer to NaN and Inf
far_data     what rounding makes of data far from the usual
prober       what these share
calls_in_a_row, first_calls, rare_draws, strides  probes with modules of their own
later_parameters  whether it looks at its parameters again, for the verdict's line
passed       data of probes that were passed, for timed windows
"""

from .passed import PassedProbe as PassedProbe
from .run import Probing as Probing
