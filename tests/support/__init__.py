"""What tests share, and programs that are no tests.

gpu, ops, nn, packed, prepared  operands, references, bounds; layers and operators on a card and without one
plan, bench, dropin, export, distributed, records, ranks, example_scripts  of the tests of that name
driver_stub         a driver without a card
simulated, simulated_decision, simulator/  kernels on the host, compiled by its C++ compiler
sanitizer_case      one kernel's products, run under compute-sanitizer
cubins              what a cubin says of registers, spills and shared memory
static_check        the rules that KernelBench's own check has for a candidate's text
browser, pages      a headless Chromium, and what is wrong on pages that it shows
verify/             the same of the tests of mm32.verify
shares              what each area of the tests costs
"""
