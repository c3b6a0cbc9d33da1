"""Many candidates: verified side by side, on many cards and machines, each kept when it is done.

    jobs         what is to be verified: a reference, a candidate, options; a folder of candidates
    kernelbench  the same from KernelBench's layout, and results in its form
    store        the shared folder: jobs, leases, records
    records      JSON lines, one record of each candidate
    ahead        building a candidate before its turn, without a card
    judged       one verification in a batch: what it takes over from the building, its limits
    truths       the reference's float64 results, and spares its processes, for the candidates that follow
    runner       the process that verifies on one card; handle is the worker's end of it
    worker       takes jobs, builds ahead, has them verified, keeps the records
    run          a whole run on this machine, and its progress; command is the command line's part
    table        what came of it all: a table, fast_p, the exit code
    reward       a number for reinforcement learning, with its reason

Nothing here decides whether a candidate is right or fast: a session does, as for one candidate.
"""
