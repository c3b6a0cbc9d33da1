"""What the tests of mm32.verify share.

scripts      references and candidates as text
fixtures     the fixtures of tests/verify/conftest.py: runs of the tool, short windows, processes that are left over
in_process   both sides of a verification in this process
shortcuts    candidates that take a shortcut, and the verdict on one
entries      the corpus, by its files
many         forty-odd candidates for one reference
window, handover, contraction, reports, pages  what the tests of that name share
simulated_processes  how often identical code is found to differ; a program
"""
