// tensorcore: C from split panels (split.cuh) by wgmma, three fp16 products for each fp32 one: lo*hi + hi*lo + hi*hi.
//
// A block computes 128 x TILE_N tiles, one after another (persistent grid). A producer thread brings panels by bulk copies
// through a STAGES-deep ring, 64 of K at a time, each as soon as mm32_pack has counted it ready, or all of them is; two consumer warpgroups have
// 64 rows each. Tensor cores truncate, so their sums are promoted: added to fp32 registers, round-to-nearest, every 64 of K.
// The two consumers take turns at the tensor cores (named barriers 1 and 2), so that one promotes while the other multiplies.
// With PRODUCTS = 1 there is one product of the hi parts, and no promotion: TF32-class accuracy.
//
// Launch: min(multiprocessors, tiles) blocks of 384 threads (MM32_DIRECT: 512). Dynamic shared memory: STAGES * STAGE + 1024 bytes,
// and the queues of direct.cuh. Registers: 128 a thread at launch (bounds of 512 threads), so that a block of mm32_pack fits beside
// it; then 40 for the producer and 168 for the consumers. With 256 columns 168 at launch: wgmma asks for them, and packing comes first.
// Bounded by the card's power: ~690 TFLOP/s of fp16 products sustained on random data, 750 in short bursts.
//   MM32_TILE_N, MM32_SPLIT, MM32_C_VECTOR   see tiles.cuh
//   MM32_STAGES, MM32_PRODUCTS (3 or 1)
//   MM32_A_UNIT, MM32_B_UNIT  rows that mm32_pack counts as one in `ready`, or more: of an operand packed beforehand all are there
#include "ptx/bulk_copy.cuh"
#include "emulated/inline_pack.cuh"
#include "emulated/tiles.cuh"
#include "ptx/wgmma.cuh"

constexpr int STAGES = MM32_STAGES;
constexpr int A_PLANE = TILE_M * PLANE_ROW, B_PLANE = TILE_N * PLANE_ROW, STAGE = PLANES * (A_PLANE + B_PLANE);
constexpr int PROMOTE = MM32_PROMOTE;  // times 16 of K
constexpr int B_AT = PLANES * A_PLANE;  // where B's planes begin in a stage
constexpr bool TURN = PROMOTE == 1;  // the consumers take turns at whole K-blocks: one stores while the other multiplies
constexpr int CONSUMERS = 256;  // threads: two warpgroups, before those that fill the ring
// How the operands lie in a stage (wgmma.cuh): packed panels and tiles split along K have K contiguous.
#if MM32_DIRECT
constexpr int A_ROWS = MM32_A_LOAD < 2, B_ROWS = MM32_B_LOAD < 2;
#else
constexpr int A_ROWS = 0, B_ROWS = 0;
#endif

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

#if !MM32_DIRECT
constexpr int B_GROUPS = TILE_N <= READY_ROWS ? 1 : TILE_N / READY_ROWS;  // of columns that mm32_pack counts together

__device__ __forceinline__ void produce(const Split& s, unsigned ring, unsigned full, unsigned empty) {
    const Problem& p = s.p;
    const int blocks = (int)ceil_div(p.k, BLOCK_K), chunks = (blocks + CHUNK - 1) / CHUNK;
    const long long a_plane = padded_rows(p.m) * PLANE_ROW, b_plane = padded_rows(p.n) * PLANE_ROW;
    int stage = 0;
    unsigned phase = 0;
    bool packed = false;  // a counter's way here takes as long as multiplying 64 of K
    for (Walk walk(p, blockIdx.x); walk.inside(s); walk.advance(p, gridDim.x)) {
        const Tile tile = walk.tile(p);
        const int begin = split_begin(blocks, tile.split, (int)s.splits), end = split_begin(blocks, tile.split + 1, (int)s.splits);
        if (!packed && load_acquire(&s.verdict->packed)) {
            packed = true;
            asm volatile("fence.proxy.async;" ::: "memory");  // the copies below come after it
        }
        const int a_matrix = s.matrices[0] == 1 ? 0 : tile.matrix, b_matrix = s.matrices[1] == 1 ? 0 : tile.matrix;
        const unsigned a_bytes = (unsigned)min((int)padded_rows(p.m) - tile.m0, TILE_M) * PLANE_ROW;
        const unsigned b_bytes = (unsigned)min((int)padded_rows(p.n) - tile.n0, TILE_N) * PLANE_ROW;
        const char* a = s.panels[0] + ((long long)a_matrix * blocks + begin) * PLANES * a_plane + (long long)tile.m0 * PLANE_ROW;
        const char* b = s.panels[1] + ((long long)b_matrix * blocks + begin) * PLANES * b_plane + (long long)tile.n0 * PLANE_ROW;
        const unsigned* a_ready = s.ready[0] + (a_matrix * ceil_div(p.m, READY_ROWS) + tile.m0 / READY_ROWS) * chunks;
        const unsigned* b_ready = s.ready[1] + (b_matrix * ceil_div(p.n, READY_ROWS) + tile.n0 / READY_ROWS) * chunks;
        const unsigned a_units = units_of<MM32_A_UNIT>(tile.m0, p.m);
        unsigned b_units[B_GROUPS];
#pragma unroll
        for (int g = 0; g < B_GROUPS; g++) b_units[g] = units_of<MM32_B_UNIT>(tile.n0 + g * READY_ROWS, p.n);
#pragma unroll 1
        for (int kb = begin; kb < end; kb++) {
            if ((kb % CHUNK == 0 || kb == begin) && !packed) {
                bool there;
                do {
                    if (!counted(s)) {
                        packed = there = load_acquire(&s.verdict->packed);
                        continue;
                    }
                    there = load_acquire(a_ready + kb / CHUNK) >= a_units;
#pragma unroll
                    for (int g = 0; g < B_GROUPS; g++)
                        if (tile.n0 + g * READY_ROWS < p.n) there &= load_acquire(b_ready + g * chunks + kb / CHUNK) >= b_units[g];
                } while (!there);
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
#endif

// Whether all 128 threads that meet at `barrier` say yes.
__device__ __forceinline__ bool all_of(bool yes, int barrier) {
    unsigned all;
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %2, 0; bar.red.and.pred p, %1, 128, p; selp.u32 %0, 1, 0, p; }"
                 : "=r"(all)
                 : "r"(barrier), "r"((unsigned)yes)
                 : "memory");
    return all;
}

// d += a * b for 16 of K, number k of a K-block.
__device__ __forceinline__ void multiply(float (&d)[TILE_N / 2], unsigned long long a, unsigned long long b, int k, int accumulate) {
    wgmma<A_ROWS, B_ROWS>(d, a + WGMMA_STEP<A_ROWS> * k, b + WGMMA_STEP<B_ROWS> * k, accumulate);
}

__device__ __forceinline__ void consume(const Split& s, unsigned ring, unsigned full, unsigned empty, PlainColumns& columns, float* staging) {
    const Problem& p = s.p;
    const int blocks = (int)ceil_div(p.k, BLOCK_K);
    const int consumer = threadIdx.x / 128, lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    const int first_row = consumer * 64 + warp * 16;
    int stage = 0;
    unsigned phase = 0;
    if (consumer == 1) asm volatile("bar.arrive 1, 256;" ::: "memory");  // consumer 0 goes first
    // The scales of a tile's rows and columns are asked for before the tile that comes first is stored, and looked at afterwards.
    constexpr int OWN = TILE_N <= 128 ? 1 : TILE_N / 128;  // columns of which a thread looks up the scale
    const int column = threadIdx.x % min(TILE_N, 128);
    Walk walk(p, blockIdx.x);
    Tile tile = walk.tile(p);
    Column mine[OWN];
    int exponents[2];
    const auto look_up = [&] {
#pragma unroll
        for (int i = 0; i < OWN; i++) mine[i] = column_at(s, tile, column + 128 * i);
#pragma unroll
        for (int h = 0; h < 2; h++) exponents[h] = exponent_at(s, tile, tile.m0 + first_row + lane / 4 + 8 * h);
    };
    look_up();
    while (walk.inside(s)) {
        const int begin = split_begin(blocks, tile.split, (int)s.splits), end = split_begin(blocks, tile.split + 1, (int)s.splits);
        bool plain = is_plain(exponents[0]) && is_plain(exponents[1]);
#pragma unroll
        for (int i = 0; i < OWN; i++) {
            if (threadIdx.x % 128 < TILE_N) columns.set(column + 128 * i, mine[i]);
            plain = plain && is_plain(mine[i].exponent);
        }
        plain = all_of(plain, 3 + consumer);  // and the columns are there for the whole warpgroup
        float sum[TILE_N / 2];
#pragma unroll
        for (int i = 0; i < TILE_N / 2; i++) sum[i] = 0.f;
#pragma unroll 1
        for (int kb = begin; kb < end; kb++) {
            const unsigned at = ring + stage * STAGE;
            const unsigned long long a_hi = wgmma_operand<A_ROWS>(at + consumer * 64 * PLANE_ROW), b_hi = wgmma_operand<B_ROWS>(at + B_AT);
            barrier_wait(full + 8 * stage, phase);
            // Stored by threads, read by wgmma. The fence stands here and not with the stores: it would wait for their loads.
            if (MM32_DIRECT) asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#if MM32_PRODUCTS == 3
            const unsigned long long a_lo = wgmma_operand<A_ROWS>(at + A_PLANE + consumer * 64 * PLANE_ROW);
            const unsigned long long b_lo = wgmma_operand<B_ROWS>(at + B_AT + B_PLANE);
#pragma unroll
            for (int first = 0; first < 4; first += PROMOTE) {
                float part[TILE_N / 2];
                wgmma_pin(part);
                if (!TURN || first == 0) asm volatile("bar.sync %0, 256;" ::"r"(1 + consumer) : "memory");
                wgmma_fence();
#pragma unroll
                for (int k = first; k < first + PROMOTE; k++) multiply(part, a_lo, b_hi, k, k > first);
#pragma unroll
                for (int k = first; k < first + PROMOTE; k++) multiply(part, a_hi, b_lo, k, 1);
#pragma unroll
                for (int k = first; k < first + PROMOTE; k++) multiply(part, a_hi, b_hi, k, 1);
                wgmma_commit();
                if (!TURN || first + PROMOTE == 4) asm volatile("bar.arrive %0, 256;" ::"r"(2 - consumer) : "memory");
                wgmma_wait<0>();
                wgmma_pin(part);
                if (first + PROMOTE == 4 && lane == 0) barrier_arrive(empty + 8 * stage);
#pragma unroll
                for (int i = 0; i < TILE_N / 2; i++) sum[i] += part[i];
            }
#else
            wgmma_pin(sum);
            wgmma_fence();
#pragma unroll
            for (int k = 0; k < 4; k++) multiply(sum, a_hi, b_hi, k, 1);
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
        const Tile done = tile;
        const int undo[2] = {exponents[0], exponents[1]};
        walk.advance(p, gridDim.x);
        if (walk.inside(s)) {
            tile = walk.tile(p);
            look_up();
        }
        const Target target = target_of(s, done);
        if (MM32_C_VECTOR && plain && done.m0 + TILE_M <= p.m && done.n0 + TILE_N <= p.n) {
            const float rows[2] = {plain_undoing(undo[0]), plain_undoing(undo[1])};
            float* const to = target.matrix + (done.m0 + first_row) * target.row + done.n0;
            store_plain(to, target.row, rows, columns, sum, staging + warp * STAGING);
        } else {
            const float2 rows[2] = {undoing(undo[0]), undoing(undo[1])};
            store(p, done, target, done.m0 + first_row, 0, rows, columns, sum, staging + warp * STAGING);
        }
        asm volatile("bar.sync %0, 128;" ::"r"(3 + consumer) : "memory");  // all have read the columns
    }
}

extern "C" __global__ void __launch_bounds__(TILE_N > 128 ? 384 : 512, 1) mm32_tensorcore(const __grid_constant__ Split s) {
    extern __shared__ char dynamic[];
    __shared__ __align__(8) unsigned long long barriers[2 * STAGES];
    __shared__ __align__(16) PlainColumns columns[2];  // each consumer keeps its own copy
    __shared__ __align__(16) float staging[2][4 * STAGING];
    const unsigned ring = (shared_address(dynamic) + 1023) & ~1023u;
    const unsigned full = shared_address(barriers), empty = full + 8 * STAGES;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            barrier_init(full + 8 * i, MM32_DIRECT ? 8 : 1);  // one arrival a splitting warp, or the producer
            barrier_init(empty + 8 * i, 8);  // one arrival a consumer warp
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (threadIdx.x >= CONSUMERS) {
#if MM32_DIRECT
        asm volatile("setmaxnreg.dec.sync.aligned.u32 96;");
        wait_for_previous();
        if (threadIdx.x < CONSUMERS + 128) {
            split_tiles<0, STAGES, STAGE, 0>(s, ring, ring + STAGES * STAGE, full, empty);
        } else {
            split_tiles<1, STAGES, STAGE, B_AT>(s, ring, ring + STAGES * STAGE, full, empty);
        }
        finish(s, reinterpret_cast<Worst*>(dynamic + 1024 + STAGES * STAGE));  // in the queues, wherever the ring begins
#else
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == CONSUMERS) produce(s, ring, full, empty);
#endif
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(MM32_DIRECT ? 160 : TILE_N > 128 ? 216 : 168));
#if MM32_DIRECT
        wait_for_previous();  // else `ready` says when what mm32_scale and mm32_pack write is there
#endif
        const int consumer = threadIdx.x / 128;
        consume(s, ring, full, empty, columns[consumer], staging[consumer]);
        // For mm32_pack's verdict too: the launch that reads it waits for this one alone. Here and not in warps that have nothing
        // to do: waiting beside mm32_pack cost a tenth of the time.
        if (!MM32_DIRECT) wait_for_previous();
    }
}
