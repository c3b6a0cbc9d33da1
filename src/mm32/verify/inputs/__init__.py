"""What the scripts are run on.

pools        fresh inputs for every timed call, from a few results of get_inputs()
integers     fresh indices, lengths and masks for the same
variations   other data for any model, made from its own
states       other parameters and buffers for the same
isolating    data on which a model's sums have few terms, or are exact
probes       data for a model that is one product with an epilogue
"""
