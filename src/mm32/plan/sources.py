"""Numbers that the emulated kernels' sources fix, for the modules that plan their launches and estimate their times."""

from __future__ import annotations

TILE_M = 128  # rows of a tile
SAMPLES = 128  # elements that mm32_scale samples of a row (emulated/panels.cuh)
SAMPLED_BYTES = 4 * SAMPLES
STATS_BYTES = 48  # of struct RowStats, one for each row
PACKERS = 4  # blocks of mm32_pack that a multiprocessor holds
