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
//   MM32_TILE_N     64 or 128
//   MM32_STAGES, MM32_PRODUCTS (3 or 1)
//   MM32_A_UNIT, MM32_B_UNIT  rows that mm32_pack counts as one in `ready`
//   MM32_SPLIT      1: K is split among blocks, which write sums to Split::partial for mm32_reduce
//   MM32_C_VECTOR   1: C is contiguous along N, 8-byte aligned, its row stride even: 8-byte stores
#include "bulk_copy.cuh"
#include "epilogue.cuh"
#include "split.cuh"
#include "wgmma.cuh"

constexpr int TILE_M = 128, TILE_N = MM32_TILE_N, STAGES = MM32_STAGES;
constexpr int A_PLANE = TILE_M * PLANE_ROW, B_PLANE = TILE_N * PLANE_ROW, STAGE = PLANES * (A_PLANE + B_PLANE);
constexpr int B_AT = PLANES * A_PLANE;  // where B's planes begin in a stage
constexpr int GROUP = 8;  // tile rows walked together, so that their panels stay in L2; also what mm32_pack packs first

struct Tile {
    int split, matrix, m0, n0;
};

// A plan sends no problem here whose M, N, number of K-blocks or of tiles passes 2^31 - 1.
__device__ __forceinline__ Tile tile_at(const Problem& p, int t) {
    const int rows = ((int)p.m + TILE_M - 1) / TILE_M, columns = ((int)p.n + TILE_N - 1) / TILE_N;
    const int in_matrix = t % (rows * columns), group = in_matrix / (GROUP * columns);
    const int height = min(rows - group * GROUP, GROUP), in_group = in_matrix % (GROUP * columns);
    const int matrix = t / (rows * columns);
    return {matrix / (int)p.batches, matrix % (int)p.batches, (group * GROUP + in_group % height) * TILE_M,
            in_group / height * TILE_N};
}

// The K-blocks of a split: whole chunks, as even as they go.
__device__ __forceinline__ int split_begin(int blocks, int split, int splits) {
    const int chunks = (blocks + CHUNK - 1) / CHUNK;
    return min((int)((long long)chunks * split / splits) * CHUNK, blocks);
}

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

// x * 2^e for any e that a sum's scale can need, rounded once.
__device__ __forceinline__ float scaled(float x, int e) {
    const int half = e / 2, rest = e - half;
    return x * __uint_as_float((unsigned)(half + 127) << 23) * __uint_as_float((unsigned)(rest + 127) << 23);
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

// What the last step needs to know of a tile's columns; each consumer keeps its own copy in shared memory.
struct Columns {
    int exponent[TILE_N];
    float bias[TILE_N];
};

__device__ __forceinline__ void load_columns(const Split& s, const Tile& tile, Columns& columns) {
    const Problem& p = s.p;
    const RowStats* const b_rows = s.stats[1] + (s.matrices[1] == 1 ? 0 : tile.matrix) * p.n;
    for (int i = threadIdx.x % 128; i < TILE_N; i += 128) {
        const int n = tile.n0 + i;
        columns.exponent[i] = n < p.n ? b_rows[n].exponent : 0;
        columns.bias[i] = n < p.n ? bias_at(p, n) : 0.f;
    }
}

// The part of C that a thread holds: rows m and m + 8, columns n0 + 8 j + 2 (lane % 4) and the next.
__device__ __forceinline__ void store(const Split& s, const Tile& tile, int m, const int (&e)[2], const Columns& columns,
                                      const float (&sum)[TILE_N / 2]) {
    const Problem& p = s.p;
    const int first = threadIdx.x % 4 * 2;
    float* c_matrix;
    long long c_row, c_col;
    if (MM32_SPLIT) {
        c_matrix = s.partial + (tile.split * p.batches + tile.matrix) * p.m * p.n;
        c_row = p.n, c_col = 1;
    } else {
        c_matrix = locate(p, tile.matrix).c;
        c_row = p.c.row, c_col = p.c.col;
    }
    const int rows = (int)p.m - m, width = (int)p.n - tile.n0;
    float* const at = c_matrix + m * c_row + (tile.n0 + first) * c_col;
#pragma unroll
    for (int j = 0; j < TILE_N / 8; j++) {
        const int2 f = *reinterpret_cast<const int2*>(&columns.exponent[8 * j + first]);
        const float2 bias = *reinterpret_cast<const float2*>(&columns.bias[8 * j + first]);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float* const c = at + 8 * h * c_row + 8 * j * c_col;
            float c0 = scaled(sum[4 * j + 2 * h], -e[h] - f.x), c1 = scaled(sum[4 * j + 2 * h + 1], -e[h] - f.y);
            if (!MM32_SPLIT) c0 = epilogue(c0, bias.x), c1 = epilogue(c1, bias.y);
            if (8 * h >= rows) continue;
            if (MM32_C_VECTOR && 8 * j + first + 1 < width) {
                *reinterpret_cast<float2*>(c) = make_float2(c0, c1);
            } else {
                if (8 * j + first < width) c[0] = c0;
                if (8 * j + first + 1 < width) c[c_col] = c1;
            }
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
        load_columns(s, tile, columns);
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
        store(s, tile, m, exponents, columns, sum);
        asm volatile("bar.sync %0, 128;" ::"r"(3 + consumer) : "memory");  // all have read the columns
    }
}

extern "C" __global__ void __launch_bounds__(512, 1) mm32_tensorcore(const __grid_constant__ Split s) {
    extern __shared__ char dynamic[];
    __shared__ __align__(8) unsigned long long barriers[2 * STAGES];
    __shared__ __align__(8) Columns columns[2];
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
    const int tiles = (int)(s.splits * s.p.batches * ceil_div(s.p.m, TILE_M) * ceil_div(s.p.n, TILE_N));
    if (threadIdx.x < 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 0) produce(s, ring, full, empty, tiles);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 168;");
        consume(s, ring, full, empty, columns[threadIdx.x / 128 - 1], tiles);
    }
    wait_for_previous();  // for mm32_pack's verdict too: the launch that reads it waits for this one alone
}
