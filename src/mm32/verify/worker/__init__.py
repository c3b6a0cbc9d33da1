"""The code that runs beside a candidate, in the candidate's process. No other code of this library's `verify` does.

    main           the process: start, take requests, answer them
    runner         one script's model: build it, give it inputs, call it
    slots          the calls of a timed window, on memory that the tool fills and reads
    script         load a script and find its model
    plain, caches  tensors in plain attributes; what a build left in folders, for fresh processes
    kept_draws     large random tensors of a constructor, kept from one construction to the next
    rewrite        put this library's kernels into a model (`--kernel`)
    build_errors   why a candidate could not be built
    unsupported    what is said of values that cannot be handed over

A candidate can change anything in its process, this package included, so nothing that arrives from there is believed.
The border: of `mm32.verify`, this package imports only `exchange/`, how values pass between the two sides. Only `reference`, the
program of the reference's process, imports this package; the tool's own process just starts it.
"""
