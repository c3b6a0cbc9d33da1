"""Verification of many candidates side by side, on many cards and machines; each result is kept as soon as it is done.

    jobs         what is to be verified: a reference, a candidate, options; a folder of candidates
    kernelbench  the same from KernelBench's layout, and results in its form
    store        the shared folder: jobs, leases, records
    records      JSON lines, one record for each candidate
    ahead        building a candidate before its turn, without a card
    judged       one verification in a batch: what it takes over from the build, and its limits
    truths       keeps the reference's float64 results for the candidates that follow; spares keeps its processes
    runner       the process that verifies on one card; handle is the worker's end of it
    worker       takes jobs, builds ahead, has them verified, keeps the records
    run          a whole run on this machine, and its progress; command is the command line's part
    table        the results: a table, fast_p, the exit code

Nothing here decides whether a candidate is right or fast: a session does, as for one candidate.
"""
