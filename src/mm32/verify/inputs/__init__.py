"""What the scripts are run on.

pools        fresh inputs for every timed call, from a few results of get_inputs()
integers     fresh indices, lengths and masks for the same
catalogue    the probes of any model: names, what they ask, how they are judged
variations   their data, made from the model's own
rows         other rows in place of one tensor's
rare_rows    a few rows of another kind among the others
matrices     other symmetric, definite and triangular matrices
regrouped    the same of integers, booleans and symmetric matrices
chains       long ways: paths through graphs, and rows each near the one before
redrawn      integers that get_inputs draws, at other places of the ranges that it draws from
contents     what a tensor of inputs holds
seen         what the inputs of all comparisons had in common
states       other parameters and buffers for the same
isolating    data on which a model's sums have few terms, or are exact
probes       data for a model that is one product with an epilogue
"""
