// tensorcore: C from split panels (split.cuh) by wgmma, three fp16 products for each fp32 one: lo*hi + hi*lo + hi*hi.
//
// A block computes 128 x TILE_N tiles, one after another (persistent grid). A producer thread brings panels by bulk copies
// through a STAGES-deep ring, 64 of K at a time, each as soon as mm32_pack has counted it ready; two consumer warpgroups have
// 64 rows each. Tensor cores truncate, so their sums are promoted: added to fp32 registers, round-to-nearest, every 64 of K.
// The two consumers take turns at the tensor cores (named barriers 1 and 2), so that one promotes while the other multiplies.
// With PRODUCTS = 1 there is one product of the hi parts, and no promotion: TF32-class accuracy.
//
// Launch: min(multiprocessors, tiles) blocks of 384 threads. Dynamic shared memory: STAGES * STAGE + 1024 bytes.
// Registers: 128 a thread at launch (bounds of 512 threads), so that a block of mm32_pack fits beside it; then 40 for the
// producer and 168 for the consumers.
// Bounded by the card's power: ~690 TFLOP/s of fp16 products sustained on random data, 750 in short bursts.
//   MM32_TILE_N, MM32_SPLIT, MM32_C_VECTOR   see tiles.cuh
//   MM32_STAGES, MM32_PRODUCTS (3 or 1)
//   MM32_A_UNIT, MM32_B_UNIT  rows that mm32_pack counts as one in `ready`
#include "bulk_copy.cuh"
#include "tiles.cuh"
#include "wgmma.cuh"

constexpr int STAGES = MM32_STAGES;
constexpr int A_PLANE = TILE_M * PLANE_ROW, B_PLANE = TILE_N * PLANE_ROW, STAGE = PLANES * (A_PLANE + B_PLANE);
constexpr int B_AT = PLANES * A_PLANE;  // where B's planes begin in a stage

__device__ __forceinline__ unsigned load_acquire(const unsigned* counter) {
    unsigned value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(counter) : "memory");
    return value;
}

// Units that mm32_pack counts for the READY_ROWS rows from `row` on, of which `rows` exist in all.
template <int UNIT>
__device__ __forceinline__ unsigned units_of(int row, long long rows) {
    const int here = (int)min(rows - row / READY_ROWS * READY_ROWS, (long long)READY_ROWS);
    return (here + UNIT - 1) / UNIT;
}

__device__ __forceinline__ void produce(const Split& s, unsigned ring, unsigned full, unsigned empty, int tiles) {
    const Problem& p = s.p;
    const int blocks = (int)ceil_div(p.k, BLOCK_K), chunks = (blocks + CHUNK - 1) / CHUNK;
    const long long a_plane = padded_rows(p.m) * PLANE_ROW, b_plane = padded_rows(p.n) * PLANE_ROW;
    int stage = 0;
    unsigned phase = 0;
    for (int t = blockIdx.x; t < tiles; t += gridDim.x) {
        const Tile tile = tile_at(p, t);
        const int begin = split_begin(blocks, tile.split, (int)s.splits), end = split_begin(blocks, tile.split + 1, (int)s.splits);
        const int a_matrix = s.matrices[0] == 1 ? 0 : tile.matrix, b_matrix = s.matrices[1] == 1 ? 0 : tile.matrix;
        const unsigned a_bytes = (unsigned)min((int)padded_rows(p.m) - tile.m0, TILE_M) * PLANE_ROW;
        const unsigned b_bytes = (unsigned)min((int)padded_rows(p.n) - tile.n0, TILE_N) * PLANE_ROW;
        const char* a = s.panels[0] + ((long long)a_matrix * blocks + begin) * PLANES * a_plane + (long long)tile.m0 * PLANE_ROW;
        const char* b = s.panels[1] + ((long long)b_matrix * blocks + begin) * PLANES * b_plane + (long long)tile.n0 * PLANE_ROW;
        const unsigned* a_ready = s.ready[0] + (a_matrix * ceil_div(p.m, READY_ROWS) + tile.m0 / READY_ROWS) * chunks;
        const unsigned* b_ready = s.ready[1] + (b_matrix * ceil_div(p.n, READY_ROWS) + tile.n0 / READY_ROWS) * chunks;
        const unsigned a_units = units_of<MM32_A_UNIT>(tile.m0, p.m), b_units = units_of<MM32_B_UNIT>(tile.n0, p.n);
#pragma unroll 1
        for (int kb = begin; kb < end; kb++) {
            if (kb % CHUNK == 0) {
                while (load_acquire(a_ready + kb / CHUNK) < a_units || load_acquire(b_ready + kb / CHUNK) < b_units) {
                }
                asm volatile("fence.proxy.async;" ::: "memory");  // the copies below come after the counters just read
            }
            const unsigned at = ring + stage * STAGE, ready = full + 8 * stage;
            barrier_wait(empty + 8 * stage, phase ^ 1);
            barrier_expect(ready, PLANES * (a_bytes + b_bytes));
#pragma unroll
            for (int plane = 0; plane < PLANES; plane++) {
                bulk_copy(at + plane * A_PLANE, a + plane * a_plane, a_bytes, ready);
                bulk_copy(at + B_AT + plane * B_PLANE, b + plane * b_plane, b_bytes, ready);
            }
            a += PLANES * a_plane;
            b += PLANES * b_plane;
            if (++stage == STAGES) stage = 0, phase ^= 1;
        }
    }
}

__device__ __forceinline__ void consume(const Split& s, unsigned ring, unsigned full, unsigned empty, Columns& columns, int tiles) {
    const Problem& p = s.p;
    const int blocks = (int)ceil_div(p.k, BLOCK_K);
    const int consumer = threadIdx.x / 128 - 1, lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    int stage = 0;
    unsigned phase = 0;
    if (consumer == 1) asm volatile("bar.arrive 1, 256;" ::: "memory");  // consumer 0 goes first
    for (int t = blockIdx.x; t < tiles; t += gridDim.x) {
        const Tile tile = tile_at(p, t);
        const int begin = split_begin(blocks, tile.split, (int)s.splits), end = split_begin(blocks, tile.split + 1, (int)s.splits);
        const int m = tile.m0 + consumer * 64 + warp * 16 + lane / 4;
        const RowStats* const a_rows = s.stats[0] + (s.matrices[0] == 1 ? 0 : tile.matrix) * p.m;
        const int exponents[2] = {m < p.m ? a_rows[m].exponent : 0, m + 8 < p.m ? a_rows[m + 8].exponent : 0};
        load_columns(s, tile, columns, threadIdx.x % 128, 128);
        asm volatile("bar.sync %0, 128;" ::"r"(3 + consumer) : "memory");  // the columns are there for the whole warpgroup
        float sum[TILE_N / 2];
#pragma unroll
        for (int i = 0; i < TILE_N / 2; i++) sum[i] = 0.f;
#pragma unroll 1
        for (int kb = begin; kb < end; kb++) {
            const unsigned at = ring + stage * STAGE;
            const unsigned long long a_hi = wgmma_operand(at + consumer * 64 * PLANE_ROW), b_hi = wgmma_operand(at + B_AT);
            barrier_wait(full + 8 * stage, phase);
#if MM32_PRODUCTS == 3
            const unsigned long long a_lo = wgmma_operand(at + A_PLANE + consumer * 64 * PLANE_ROW);
            const unsigned long long b_lo = wgmma_operand(at + B_AT + B_PLANE);
            float part[TILE_N / 2];
            wgmma_pin(part);
            asm volatile("bar.sync %0, 256;" ::"r"(1 + consumer) : "memory");
            wgmma_fence();
#pragma unroll
            for (int k = 0; k < 4; k++) wgmma(part, a_lo + 2 * k, b_hi + 2 * k, k > 0);
#pragma unroll
            for (int k = 0; k < 4; k++) wgmma(part, a_hi + 2 * k, b_lo + 2 * k, 1);
#pragma unroll
            for (int k = 0; k < 4; k++) wgmma(part, a_hi + 2 * k, b_hi + 2 * k, 1);
            wgmma_commit();
            asm volatile("bar.arrive %0, 256;" ::"r"(2 - consumer) : "memory");
            wgmma_wait<0>();
            wgmma_pin(part);
            if (lane == 0) barrier_arrive(empty + 8 * stage);
#pragma unroll
            for (int i = 0; i < TILE_N / 2; i++) sum[i] += part[i];
#else
            wgmma_pin(sum);
            wgmma_fence();
#pragma unroll
            for (int k = 0; k < 4; k++) wgmma(sum, a_hi + 2 * k, b_hi + 2 * k, 1);
            wgmma_commit();
            wgmma_wait<1>();  // the K-block before is done
            wgmma_pin(sum);
            if (lane == 0 && kb > begin) barrier_arrive(empty + 8 * (stage == 0 ? STAGES - 1 : stage - 1));
#endif
            if (++stage == STAGES) stage = 0, phase ^= 1;
        }
#if MM32_PRODUCTS != 3
        wgmma_wait<0>();
        wgmma_pin(sum);
        if (lane == 0 && end > begin) barrier_arrive(empty + 8 * (stage == 0 ? STAGES - 1 : stage - 1));
#endif
        store(s.p, tile, target_of(s, tile), m, 0, exponents, columns, sum);
        asm volatile("bar.sync %0, 128;" ::"r"(3 + consumer) : "memory");  // all have read the columns
    }
}

extern "C" __global__ void __launch_bounds__(512, 1) mm32_tensorcore(const __grid_constant__ Split s) {
    extern __shared__ char dynamic[];
    __shared__ __align__(8) unsigned long long barriers[2 * STAGES];
    __shared__ __align__(8) Columns columns[2];  // each consumer keeps its own copy
    const unsigned ring = (shared_address(dynamic) + 1023) & ~1023u;
    const unsigned full = shared_address(barriers), empty = full + 8 * STAGES;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            barrier_init(full + 8 * i, 1);
            barrier_init(empty + 8 * i, 8);  // one arrival a consumer warp
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    const int tiles = tiles_of(s);
    if (threadIdx.x < 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 0) produce(s, ring, full, empty, tiles);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 168;");
        consume(s, ring, full, empty, columns[threadIdx.x / 128 - 1], tiles);
    }
}
