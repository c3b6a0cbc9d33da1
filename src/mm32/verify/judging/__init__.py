"""Same or different: what an output should be, and how far honest rounding may lead from it.

truth, exact         float64 results and bounds, as the tool asks for them and as the reference's process makes them
rounding, few_terms  how far rounding may move an output; the same where sums have few terms
composites           operators with sums inside, as sequences of simpler ones
widened              wider bounds by further perturbed runs
ties                 numbers so near a half, say, that rounding takes them to either side
steps, ranked        the operators that have ties; what is picked as the largest, and what is next
draws                random numbers, recorded and given again to the run in float64
places               what would end a GPU's context: places and probabilities that are none
operator_mode        a model's operators, as they are seen
flow                 in what precision each output was computed, and whether it is a place among entries
zeros, straight_through  models that skip zeros in products, or straight-through estimators
contractions         the product that a model is, and its gauge
bounds, sizes        the bounds of errors; those of entries of each size, and of columns
judge, pieces        the rule, as pure functions of tensors; large tensors in pieces
odd_values           NaN and Inf beside the reference's
formats, likeness    errors that are those of a number format in the candidate's products
state                buffers that calls change
selftest             whether the check could have failed
diagnosis, picture   what is wrong with an output: in words, and small enough to keep
"""
