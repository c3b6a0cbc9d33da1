"""What the scripts are run on.

pools        fresh inputs for every timed call, from a few results of get_inputs()
integers     fresh indices, lengths and masks for these calls
catalogue    the probes of any model: names, what they ask, how they are judged
variations   the data of these probes, made from the model's own
rows         other rows in place of those of one tensor
rare_rows    a few rows of another kind among the others
matrices     other symmetric, definite and triangular matrices
regrouped    other integers and booleans, and reordered symmetric matrices
chains       long chains: paths through graphs, and rows each near the one before
redrawn      integers that get_inputs draws, moved to rare places of the ranges that it draws from
contents     what a tensor of inputs holds
seen         what the inputs of all comparisons had in common
states       other parameters and buffers for any model
isolating    data on which a model's sums have few terms, or are exact
probes       data for a model that is one product with an epilogue
"""
