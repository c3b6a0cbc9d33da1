"""SHARES: the part of each of a card's rates that a kernel reaches, and what no rate explains, in launches.

A share is a part of a rate of `Card`. A time that no rate explains is counted in launches (`Card.launch`). This is the only table
of them, and cost.py reads it. The values reproduce times of an H200. They were fitted at different times, by hand or by
`benchmarks/fit.py`, unless a comment says that one is a guess; only their first three digits mean anything.
"""

from __future__ import annotations

SHARES: dict[str, float] = {
    # naive: shares of fp32, where neighbouring threads read neighbouring elements and where not; of memory, for reads and stores.
    "naive.fp32": 0.05979,
    "naive.fp32.scattered": 0.01046,
    "naive.read": 0.5,
    "naive.store": 0.1458,
    "naive.launches": 1.6,
    # dot: share of memory; a wave of blocks and a call, in launches.
    "dot.read": 1.042,
    "dot.wave.launches": 0.5,
    "dot.launches": 1.8,
    # tiled: share of fp32; a wave, in launches.
    "tiled.fp32": 0.1046,
    "tiled.wave.launches": 1.667,
    # simt: shares of fp32, by tile and by the number of blocks on a multiprocessor; "p": sums are promoted.
    "simt.256x128.1": 0.81,
    "simt.128x64.1": 0.71,
    "simt.128x64.2": 0.775,
    "simt.128x64.3": 0.79,
    "simt.64x64.1": 0.37,
    "simt.64x64.2": 0.69,
    "simt.64x64.3": 0.71,
    "simt.64x64.4": 0.72,
    "simt.64x64.5": 0.73,
    "simt.128x64p.1": 0.50,
    "simt.128x64p.2": 0.66,
    "simt.unaligned": 0.9091,  # of that share, with copies of 4 bytes
    "simt.memory": 0.5,
    "simt.store": 0.42,  # share of memory, for stores of 16 bytes
    "simt.store.unaligned": 0.11,  # stores of 4 bytes
    "simt.exposed": 0.45,  # the part of the memory's time that is not hidden behind the multiply-adds
    "simt.store.exposed": 0.9,
    "simt.launches": 1.333,
    "simt.tile.launches": 0.6667,  # beginning and ending a tile, with no other block beside it
    "fixup.launches": 0.8333,
    "reduce.launches": 0.8333,
    "reduce.part.launches": 0.01333,
    # narrow: the rate of one block, which its loads under way allow, as a share of a multiprocessor's part of the memory, by rows
    # of the tile x width, how the wide operand lies, and loads under way; "apart": of that, if elements are loaded one by one.
    "narrow.16x1.k.4": 1.966,
    "narrow.32x2.k.2": 1.381,
    "narrow.32x4.k.2": 1.232,
    "narrow.32x8.k.1": 1.007,
    "narrow.64x16.k.1": 0.726,
    "narrow.128x1.rows.4": 1.667,
    "narrow.32x1.rows.4": 1.078,
    "narrow.128x2.rows.4": 1.557,
    "narrow.32x2.rows.4": 1.166,
    "narrow.128x4.rows.4": 1.224,
    "narrow.32x4.rows.4": 0.7673,
    "narrow.64x8.rows.4": 0.8773,
    "narrow.64x8.rows.8": 1.081,
    "narrow.128x16.rows.8": 0.7948,
    "narrow.64x16.rows.8": 0.6353,
    "narrow.k.apart": 0.707,
    "narrow.rows.apart": 0.895,
    "narrow.memory": 1.113,  # then what all blocks share: above 1, since a part of it is hidden
    "narrow.tail": 1.35,  # how much of a last turn that is not full counts
    "narrow.k.launches": 0.64,  # beginning and ending a block
    "narrow.rows.launches": 0.693,
    "narrow.cluster.launches": 0.387,
    "narrow.launches": 1.54,
    "narrow.host.launches": 0.33,  # what a second launch has to be better by, since the host makes it and its workspace
    # tensorcore: shares of fp16, by columns of a tile x products; "inline": operands packed while multiplied; "short": for
    # short K. Beginning and ending a tile, in launches.
    "tensorcore.128x3": 0.8747,
    "tensorcore.128x3.launches": 0.8333,
    "tensorcore.64x3": 0.6174,
    "tensorcore.64x3.launches": 1.167,
    "tensorcore.128x6": 0.81,
    "tensorcore.128x6.launches": 0.8333,
    "tensorcore.64x6": 0.6,
    "tensorcore.64x6.launches": 1.167,
    "tensorcore.256x1": 0.8355,
    "tensorcore.256x1.launches": 1.667,
    "tensorcore.128x1": 0.622,
    "tensorcore.128x1.launches": 0.8333,
    "tensorcore.64x1": 0.4665,
    "tensorcore.64x1.launches": 0.8333,
    "tensorcore.128x3.inline": 0.4614,
    "tensorcore.128x3.inline.launches": 5.0,
    "tensorcore.64x3.inline": 0.311,
    "tensorcore.64x3.inline.launches": 4.333,
    "tensorcore.128x1.inline": 0.2666,
    "tensorcore.128x1.inline.launches": 4.667,
    "tensorcore.64x1.inline": 0.1749,
    "tensorcore.64x1.inline.launches": 4.0,
    "tensorcore.128x3.short": 0.6718,
    "tensorcore.128x3.short.launches": 0.65,
    # direct: shares of fp16, by tile; beginning and ending a tile, a call, and what a cluster adds, in launches; "shifted",
    # "scattered": what remains where lines are not aligned, and where elements lie apart (a guess); shares of memory, for reads
    # and stores ("kept": where B is kept), and for what its tiles read from L2.
    "direct.128x128": 0.693,
    "direct.128x128.launches": 0.817,
    "direct.128x64": 0.545,
    "direct.128x64.launches": 0.484,
    "direct.64x64": 0.38,
    "direct.64x64.launches": 0.211,
    "direct.128x32": 0.356,
    "direct.128x32.launches": 0.404,
    "direct.64x128": 0.645,
    "direct.64x128.launches": 0.222,
    "direct.64x32": 0.257,
    "direct.64x32.launches": 0.154,
    "direct.launches": 1.87,
    "direct.cluster.launches": 0.49,  # of two blocks or four
    "direct.cluster.8.launches": 0.66,  # of eight
    "direct.64x64.cluster.8.launches": 1.03,  # of eight with these tiles (measured, not understood)
    "direct.shifted": 0.749,
    "direct.scattered": 0.5,
    "direct.memory": 0.7,
    "direct.memory.kept": 0.78,
    "direct.store.unaligned": 0.35,
    "direct.store.exposed": 0.226,  # the part of the time of unaligned stores that is not hidden
    "direct.l2": 1.1,
    # mma: shares of fp16 by mma.sync. Measured on an H200, 2048 x 8192 x 4096: 1.34 ms.
    "mma.128x3": 0.4837,
    "mma.128x3.launches": 2.667,
    "mma.64x3": 0.4515,
    "mma.64x3.launches": 2.667,
    "mma.128x1": 0.4752,
    "mma.128x1.launches": 2.667,
    "mma.64x1": 0.4515,
    "mma.64x1.launches": 2.667,
    # What both emulated kernels do besides their products: shares of memory ...
    "pack": 0.7292,  # all blocks of mm32_pack
    "pack.beside": 0.4167,  # one on each multiprocessor, beside the multiply
    "pack.ahead": 0.2396,  # the same, while the multiply waits for it
    "pack.exposed": 0.4,  # the part of the time of packing beside by which the multiply gets longer
    "pack.worth": 0.1,  # packing of less than this share of the multiply goes before it: blocks that start together share L2
    "scale": 0.3556,  # mm32_scale, which reads SAMPLED_BYTES of a row
    "accept": 0.6769,  # one block reads the stats of all rows: share of a multiprocessor's part of memory
    "inline": 0.5417,  # tiles that pack inline, where memory bounds them
    "inline.slow": 0.4,  # of such tiles' share of fp16, with batches (measured, not understood) or with loads of 4 bytes
    "emulated.store": 0.62,  # share of memory, for stores of 16 bytes
    "emulated.store.unaligned": 0.25,
    # ... and in launches.
    "pack.unit.launches": 2.0,  # the least that a block of mm32_pack takes for a unit
    "pack.unit.shifted.launches": 2.0,  # the same, for lines that are not aligned
    "pack.unit.scattered.launches": 5.0,  # the same, with loads of 4 bytes
    "pack.beside.launches": 5.0,
    "emulated.launches": 7.5,
    "lower.launches": 22.8,  # products that take less have no lower tier
    # Share of memory: stores of a result, passes over it.
    "store": 0.7292,
    # torch (cuBLAS): shares of fp32 and of TF32, by a tile of 128; of that share, by a tile of 64; share of memory.
    "torch.fp32": 0.786,
    "torch.tf32": 0.728,
    "torch.64": 0.816,
    "torch.alone": 0.63,  # of its share of fp32, where no multiprocessor has two tiles
    "torch.32": 0.85,  # of that time, for M or N of 17 to 32
    "torch.memory": 0.588,
    "torch.exposed": 1.07,  # the part of the time to store the result that is not hidden
    "torch.split_k.memory": 0.329,  # where K is split, its fp32 kernels are slower than the memory; TF32's are not
    "torch.split_k.launches": 1.63,
    "torch.thin": 0.4914,  # M or N of 2 to 16
    "torch.thin.launches": 7.5,
    "torch.vector": 0.814,  # M or N of 1
    "torch.vector.launches": 1.63,
    "torch.vector.k.launches": 0.85,  # for long K, where the matrix lies along K; where it lies along rows
    "torch.vector.rows.launches": 1.2,
    "torch.vector.slow.launches": 2.8,  # longer for some numbers of rows (cost.SLOW_VECTORS), where the matrix lies along rows
    "torch.vector.ramp.launches": 2.659,  # until memory is busy, where the matrix lies along K
    "torch.vector.busy.launches": 3.472,  # how long memory must be busy for all of that to count
    "torch.launches": 2.45,
    "torch.tile.launches": 1.82,  # the same, of a product by fp32 tiles
}
