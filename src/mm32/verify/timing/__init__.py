"""Faster or not.

stage        which processes are timed on which data, and the judgement of what timed calls gave
rounds       the rounds of timed windows of all processes
window       one worker's timed windows: the tool's clock and its data
settling     waiting until nothing else uses a card's memory
fresh        inputs of timed calls, made between windows
kept_outputs  which outputs of timed calls are judged
faster_half  what windows say of a process, and of two
sequential   when to stop, and what to say then
repeated     fresh processes of both sides, where the difference is small
several      what several processes of each side say together
one_call     whether windows of one call bear FASTER out
"""
