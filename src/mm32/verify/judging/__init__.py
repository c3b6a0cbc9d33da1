"""Same or different: what an output should be, and how far honest rounding may move it.

truth, exact         float64 results and bounds: truth asks for them in the tool, exact makes them in the reference's process
rounding, few_terms  how far rounding may move an output; the same where sums have few terms
composites           operators with sums inside, as sequences of simpler ones
in_order             what plain sums in order make of a model's data
widened              bounds made wider by further perturbed runs, or by sums in order
ties                 numbers so near a tie, such as a half, that rounding takes them to either side
steps, ranked        the operators that have ties; what is picked as the largest, and what comes next
draws                random numbers, recorded and replayed in the float64 run
places               what would end a GPU's context: indices out of bounds, and invalid probabilities
operator_mode        the base of the modes that see a model's operators
flow                 in what precision each output was computed, and whether it is a place among entries
zeros, straight_through  a model run so that its products skip zeros, or without its straight-through estimators
contractions         models that are one product, and their gauge
bounds, sizes        the bounds of errors; errors of the entries of each size, and of columns
judge, pieces        the rule, as pure functions of tensors; large tensors in pieces
odd_values           NaN and Inf beside the reference's
formats, likeness    candidates' errors that are those of a number format in their products
state                buffers that calls change
selftest             whether the check could have failed
diagnosis, picture   what is wrong with an output: in words, and as a picture small enough to keep
"""
