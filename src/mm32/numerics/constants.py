"""What the model of the emulated kernels' decisions shares: its constants, and the types of its arrays."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
Double = NDArray[np.float64]
Integer = NDArray[np.int64]
Mask = NDArray[np.bool_]

# As in emulated/panels.cuh, stats.cuh, pack.cu, decide.cuh, early.cuh and fallback.cu, by the same names; tests/test_numerics.py
# compares them.

# The sample of a row, and the scale that follows from it.
SAMPLES = 128  # elements of a row that are sampled
RUN = SAMPLES // 8  # neighbours of which a sample has eight runs
BLOCK_K = 64  # of K in a K-block
TARGET = 10  # the largest sampled element is scaled to 2^this
TARGET_EXACT = 14  # the same of a row that is read whole
ROOM = 5  # so many powers of two lower with a scaled lo, where a row is not read whole
LARGEST_FP16 = 65504.0
LARGEST_BF16X6 = 2.0**45
SMALLEST_BF16X6 = 2.0**-50
SCALE_ROWS = 32  # rows that mm32_scale looks at together
ALONG_ROWS = 8  # places that a warp looks at besides the sample, of an operand that lies along its rows
ALONG_K = 128  # the same of one that lies along K

# Which rows are read whole, and which span much, for which a call takes a scaled lo.
VERY_WIDE = 8  # powers of two that a row's sampled elements are below the largest one, on average, from which on it is read whole
FEWEST_SAMPLES = 4  # sampled elements that are not 0, below which it is read whole too
WIDE = 6  # powers of two, as above, from which on it spans much
SPARSE = 32  # sampled elements that are not 0, of SAMPLES, below which it may
MISSED = 2  # powers of two by which one of the other places exceeds the sample, above which it does
LONG_K = 65536  # K from which lo is scaled whatever the data are
# What is less than 2^this of the largest element is small with a scaled lo, where rows are read whole.
SMALL_OF_LARGEST = -28
SMALL_LEVELS = 4  # steps in which elements are told small
SMALLER = 4  # powers of two of a step
EXCEEDS = 4  # powers of two by which elements beside the sample exceed it, from which on small ones count
# Powers of two by which most elements of an outlier's row are below the largest one: fp32 loses them beside it.
LOST = 24
FEW_BIG = 4  # sampled elements, at most, that come near an outlier

# The accept test: places of K where elements of a row of A and of a column of B are large.
LEVEL = 5  # 2^-this of the largest sampled element
LEVELS = 4  # powers of two from the first level to the second
LOWEST_LEVEL = -100  # its exponent, at least
ALLOWED = {3: 8.0, 1: 65536.0, 6: 65536.0}  # by number of products: 4 u, or 4 * 2^-11, in units of 2^-25
READY_ROWS = 128  # rows that are tested by what all of them have in common
ROW_GROUPS = 256  # such groups, at most: more rows are grouped then
PARTNERS = 8  # rows of the other operand by which a row is told to be steep
JUDGES = 96  # threads of tensorcore.cu that decide; 256 where it packs inline

# Pieces of C that are tested before the tier is decided.
TRIED_TILES = 6  # pieces
TRIED = 32  # rows and columns of a piece
TRIED_PAIRS = 8  # pairs of one that may fail
TILE_GROUP = 8  # rows of pieces that follow each other (common/tile_order.cuh)
FEW_PIECES = 1024  # of C, below which fewer pairs may fail: few blocks would recompute them
FEWEST_PIECES = 256  # below which none may
FEW_PAIRS = 2  # between the two

# What is recomputed alone.
MOST_ALONE = 8  # rows of a tile, or columns
MOST_PAIRS = 128  # pairs of a tile
LISTED = 64  # rows of an operand, up to which they are listed
ALONE_IN = 256  # more rows alone than one of so many,
ALONE_AT_LEAST = 8  # and than so many: everything is for the tier below

# Whether everything is left to the tier below early.
SHORT_K = 256  # K below which nothing is (plan/emulated.py)
DRAWN_PAIRS = 256  # pairs that are looked at for common places
DRAWS = 2  # times as many are looked at for the accept test
FEW_ROWS = 4  # rows, or columns, that all rejected pairs may be of, to be recomputed alone
MOST_APART = DRAWN_PAIRS // 16  # pairs without a common place
MOST_REJECTED = DRAWS * DRAWN_PAIRS // 128
MOST_MEAGER = DRAWS * DRAWN_PAIRS // 64  # pairs of rows that hold hardly an element that is not small

ZEROS = 2**32 - 1  # `regular` of a row of zeros
NOWHERE = -1
# Tiers, as keys of mm32.stats().tiers.
FP16X3 = "fp16x3"
SCALED_LO = "fp16x3 with a scaled lo"
BF16X6 = "bf16x6"
FMA = "FMA"
FP16 = "fp16"  # precision "tf32"
