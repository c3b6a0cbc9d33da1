"""Probes: calls of the candidate on data that the script does not make, which show errors that its own data hide.

run          all of them, and what the verdict's line says was left out
product      probes of a product with an epilogue: data made for its operands
varied       probes of any other model: its own data and parameters, changed
odd_answers  which answers to NaN and Inf are right
far_data     how far rounding may move outputs on data far from the usual
prober       what all probes share
calls_in_a_row, first_calls, rare_draws, strides  probes with modules of their own
later_parameters, eval_mode  whether the candidate looks at its parameters again, and whether eval() changes the reference
passed       the data of probes that were passed, for timed windows
"""

from .passed import PassedProbe as PassedProbe
from .run import Probing as Probing
