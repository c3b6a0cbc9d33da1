"""The constants that the model of the emulated kernels' decisions shares, and the types of its arrays."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
Double = NDArray[np.float64]
Integer = NDArray[np.int64]
Mask = NDArray[np.bool_]

# The constants have the same names and values as in emulated/panels.cuh, stats.cuh, pack.cu, decide.cuh, early.cuh and
# fallback.cu; tests/test_numerics.py compares them.

# The sample of a row, and the scale that follows from it.
SAMPLES = 128  # sampled elements of a row
RUN = SAMPLES // 8  # neighbouring elements in each of the eight runs of a sample
BLOCK_K = 64  # places of K in a K-block
TARGET = 10  # the largest sampled element of a row is scaled to 2^TARGET
TARGET_EXACT = 14  # the largest element of a row that is read whole is scaled to 2^TARGET_EXACT
ROOM = 5  # with a scaled lo, the scale of a row that is not read whole is this many powers of two lower
LARGEST_FP16 = 65504.0
LARGEST_BF16X6 = 2.0**45
SMALLEST_BF16X6 = 2.0**-50
SCALE_ROWS = 32  # rows of a group that mm32_scale looks at together
ALONG_ROWS = 8  # places of K that a warp looks at besides the sample, if K is not contiguous
ALONG_K = 128  # the same if K is contiguous

# Which rows are read whole, and which rows span so much that the call takes a scaled lo. The spread of a row is how many powers
# of two its sampled elements are below the largest of them, on average.
VERY_WIDE = 8  # a row of at least this spread is read whole
FEWEST_SAMPLES = 4  # a row with fewer sampled elements that are not 0 is read whole too
WIDE = 6  # a row of at least this spread spans much
SPARSE = 32  # a row with fewer sampled elements that are not 0, of SAMPLES, may span much
MISSED = 2  # a row spans much if an element at another place is more than this many powers of two above the sample
LONG_K = 65536  # from this K on lo is scaled whatever the data are
# With a scaled lo, an element of a row that is read whole is small if it is less than 2^SMALL_OF_LARGEST times the largest one.
SMALL_OF_LARGEST = -28
SMALL_LEVELS = 4  # how many thresholds there are below which sampled elements are counted as small
SMALLER = 4  # powers of two from one threshold to the next
EXCEEDS = 4  # small elements may matter if the row's largest is at least this many powers of two above the sample
# Most elements of an outlier's row are this many powers of two below its largest one: fp32 loses them beside it.
LOST = 24
FEW_BIG = 4  # the most sampled elements that may come near an outlier

# The accept test: it looks for places of K where elements of a row of A and of a column of B are both big.
LEVEL = 5  # an element is big from 2^-LEVEL of the largest sampled element on
LEVELS = 4  # powers of two from this first level down to the second
LOWEST_LEVEL = -100  # the lowest exponent of a level
ALLOWED = {3: 8.0, 1: 65536.0, 6: 65536.0}  # loss, by number of products: 4 u, or 4 * 2^-11, in units of 2^-25
READY_ROWS = 128  # rows of a group, which are tested by what all of them have in common
ROW_GROUPS = 256  # the most groups of an operand; if it has more rows, groups get larger
PARTNERS = 8  # rows of the other operand with which a row is tested to find whether it is steep
JUDGES = 96  # threads of tensorcore.cu that decide; 256 if it packs inline

# Pieces of C that are tested before the tier is decided.
TRIED_TILES = 6  # how many pieces are tested
TRIED = 32  # rows, and columns, of a piece
TRIED_PAIRS = 8  # the most pairs of a piece that may fail
TILE_GROUP = 8  # rows of pieces in a group of the tile order (common/tile_order.cuh)
FEW_PIECES = 1024  # if C has fewer pieces, fewer pairs may fail, because few blocks would recompute them
FEWEST_PIECES = 256  # if C has fewer pieces than this, no pair may fail
FEW_PAIRS = 2  # the most pairs that may fail if the number of pieces is between these two

# What is recomputed alone.
MOST_ALONE = 8  # the most rows, or columns, of a tile that are recomputed alone
MOST_PAIRS = 128  # the most pairs of a tile that are recomputed singly
LISTED = 64  # the most rows of an operand that are listed
# The tier below computes everything if the rows alone are more than one in ALONE_IN and more than ALONE_AT_LEAST.
ALONE_IN = 256
ALONE_AT_LEAST = 8

# The early decision: whether everything is left to the tier below before anything is packed.
SHORT_K = 256  # below this K there is no early decision (plan/emulated.py)
DRAWN_PAIRS = 256  # pairs in which a common place is looked for
DRAWS = 2  # the accept test is tried on this many times as many pairs
FEW_ROWS = 4  # if all rejected pairs are of at most this many rows, or columns, these are recomputed alone
MOST_APART = DRAWN_PAIRS // 16  # the most pairs without a common place
MOST_REJECTED = DRAWS * DRAWN_PAIRS // 128  # the most pairs that the accept test may reject
MOST_MEAGER = DRAWS * DRAWN_PAIRS // 64  # the most drawn rows with hardly an element that is not small

ZEROS = 2**32 - 1  # `regular` of a row of zeros
NOWHERE = -1  # `largest_at` of a row that was not read whole
# Tiers, as keys of mm32.stats().tiers.
FP16X3 = "fp16x3"
SCALED_LO = "fp16x3 with a scaled lo"
BF16X6 = "bf16x6"
FMA = "FMA"
FP16 = "fp16"  # of precision "tf32"
