"""Faster or not.

stage         which processes are timed on which data, and the reference's answers for the outputs that are judged
rounds        rounds of timed windows of all processes
window        one worker's timed windows: the tool's clock and its data
settling      waiting until nothing else uses a card's memory
fresh         inputs of timed calls, made between windows
kept_outputs  which outputs of timed calls are judged
faster_half   estimates of one process's time, and of two processes' ratio, from their windows
sequential    when to stop, and what to conclude then
repeated      fresh processes of both sides, where the difference is small
several       what several processes of each side say together
one_call      whether windows of one call bear FASTER out
needed_memory  the memory that a verification needs, and what is said where there is not enough
"""
