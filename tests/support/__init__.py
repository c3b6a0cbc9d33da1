"""What tests share, and programs that are not tests.

gpu, ops, nn, packed, prepared  operands, references, bounds; layers and operators on a card and without one
plan, bench, dropin, export, distributed, records, ranks, example_scripts  what the tests of that name share
driver_stub         a driver without a card
simulated, simulated_decision, simulator/  kernels on the host, compiled by its C++ compiler
sanitizer_case      one kernel's products, run under compute-sanitizer
cubins              what a cubin says about registers, spills and shared memory
static_check        the rules of KernelBench's own check of a candidate's text
browser, pages      a headless Chromium, and what is wrong on the pages that it shows
verify/             the same for the tests of mm32.verify
shares              what each area of the tests costs
"""
