// simt: C by IEEE fp32 FMAs, one tile of simt.cuh after another.
//
// Launch: min(batches * ceil(M/TILE_M) * ceil(N/TILE_N), 2^31-1) blocks; a block takes further tiles a grid apart. Threads, shared
// memory, registers, constants and what bounds it: simt.cuh.
#include "simt.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, MM32_BLOCKS) mm32_simt(const __grid_constant__ Problem p) {
    extern __shared__ __align__(16) float ring[];
    const long long tiles = tiles_of(p);
    for (long long t = blockIdx.x; t < tiles; t += gridDim.x) multiply_tile(p, tile_at(p, t), ring);
}
