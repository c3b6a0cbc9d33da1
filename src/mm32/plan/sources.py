"""Numbers that the emulated kernels' sources fix, for those who plan their launches and those who estimate their times."""

from __future__ import annotations

TILE_M = 128  # rows of a tile
SAMPLES = 128  # of a row, by mm32_scale (emulated/panels.cuh)
SAMPLED_BYTES = 4 * SAMPLES
STATS_BYTES = 48  # of a row, struct RowStats
PACKERS = 4  # blocks of mm32_pack that a multiprocessor holds
