"""Same or different: what an output should be, and how far honest rounding may lead from it.

truth, exact         float64 results and bounds, as the tool asks for them and as the reference's process makes them
rounding, few_terms  how far rounding may move an output; the same where sums have few terms
draws                random numbers, recorded and given again to the run in float64
places               what would end a GPU's context: places and probabilities that are none
operator_mode        a model's operators, as they are seen
oracle               the product that a model is, and its gauge
judge, pieces        the rule, as pure functions of tensors; large tensors in pieces
selftest             whether the check could have failed
diagnosis, picture   what is wrong with an output: in words, and small enough to keep
"""
