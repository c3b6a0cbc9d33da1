"""The programs of parallel_steps.py.

models        the MLP and the blocks of a GPT-2, whole, tensor parallel and on one card's local shapes
arms          what a program is: ways to run one step, and the step in float64
eager         mlp and blocks, tensor parallel
asynchronous  async: compiled blocks, whose collectives may run beside their products
fsdp          fsdp: blocks under fully_shard
"""
