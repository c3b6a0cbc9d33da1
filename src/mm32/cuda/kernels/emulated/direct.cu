// direct: C by wgmma in one launch, for products that are too small for others to be worth it. Each block splits what it reads into
// bf16 hi, mid and lo (bf16x6), which hold all 24 bits at fp32's own exponents: so there are no scales, nothing is decided, and
// no operand is read before it is multiplied.
//
// Two consumer warpgroups multiply. With TILE_M = 128 each has 64 rows of the tile; with 64 they take turns at K-blocks, or with
// ALTERNATE at tiles: one stores while the other multiplies. Each warp copies its own 16 rows of A to shared memory (emulated/raw_tile.cuh), splits them in registers, and
// multiplies from there. A third warpgroup copies, splits and stores B in a ring of STAGES, where wgmma reads it; the fence that
// this takes is a warp's that has no copies under way, because a fence waits for those. Sums are promoted
// every 32 of K, the six products of 32 smallest first. With CLUSTER > 1 the blocks of a cluster share K. Sums meet in shared
// memory, each block adds up some rows of the tile in a fixed order, and stores them.
//
// What bf16x6 cannot carry is noticed at the end: NaN and Inf make the sum NaN or Inf; elements so small that fp32 does not hold all
// bits of a product are known from the least element that a warp has met. Such sums are computed again, one by one.
//
// Launch: min(multiprocessors / CLUSTER, tiles) clusters of CLUSTER blocks of 512 threads (grid-stride loop over tiles).
// Dynamic shared memory: STAGES * STAGE + A_RAW + B_RAW + 1024 bytes (plan/direct.py). Registers: 128 at launch; after that
// 88 for the producers, 200 for the consumers and 24 for the warpgroup of the fence.
// Bound by the tensor cores (six products) with 128 x 128 tiles, with smaller ones by shared memory.
//   MM32_TILE_M      128 or 64
//   MM32_TILE_N      128 or 64
//   MM32_STAGES      K-blocks of 64 of B in the ring
//   MM32_CLUSTER     blocks that share K: 1, 2, 4 or 8
//   MM32_ALTERNATE   1: consumer warpgroups take turns at tiles (TILE_M 64, CLUSTER 1)
//   MM32_A_LOAD, MM32_B_LOAD   see emulated/raw_tile.cuh
//   MM32_C_VECTOR    1: C is contiguous along N and aligned: 16-byte stores
//   MM32_PRODUCTS    6
#include "common/epilogue.cuh"
#include "common/tile_order.cuh"
#include "emulated/raw_tile.cuh"
#include "ptx/bulk_copy.cuh"
#include "ptx/cluster.cuh"
#include "ptx/pairs.cuh"
#include "ptx/warpgroups.cuh"
#include "ptx/wgmma_registers.cuh"

constexpr int TILE_M = MM32_TILE_M, TILE_N = MM32_TILE_N, STAGES = MM32_STAGES, CLUSTER = MM32_CLUSTER;
constexpr int BLOCK_K = RAW_K, PLANES = 3, PLANE = TILE_N * 128, STAGE = PLANES * PLANE;
constexpr int CONSUMERS = 256, WARPS = CONSUMERS / 32, PRODUCERS = 4;  // threads; warps; warps
constexpr bool ALTERNATE = MM32_ALTERNATE;
static_assert(!ALTERNATE || (TILE_M == 64 && CLUSTER == 1));
constexpr int GROUPS = 128 / TILE_M;            // consumer warpgroups that have the same rows of a tile, or alternate
constexpr int TURNS = ALTERNATE ? 1 : GROUPS;   // those that take turns at K-blocks
constexpr int SHARERS = TURNS * CLUSTER;        // warps whose sums make an element of C
// Halves of K-blocks that consumers hold split: with two, one is split while the other is multiplied. There are no registers for two
// of them beside 128 columns of sums.
constexpr int HALVES = TILE_N == 64 ? 2 : 1;
constexpr int PRODUCER_TILES = TILE_N / 16 / PRODUCERS;  // raw tiles of a K-block of B that a producer warp has
constexpr int AHEAD = TILE_N == 64 ? 3 : 1;     // K-blocks of B whose copies are under way while one is split
constexpr int PRODUCER_SLOTS = PRODUCER_TILES * AHEAD + 1;
using RawA = RawTile<MM32_A_LOAD>;
using RawB = RawTile<MM32_B_LOAD>;
using Scheduler = TileScheduler<TILE_M, TILE_N, false>;
constexpr int B_ROWS = RawB::ALONG_ROWS;

// Each consumer warp has two raw tiles. Its sums leave through the same memory: all at once where they meet others'; otherwise 64 columns
// at a time through the second, while the first is filled for the next tile.
constexpr int AT_ONCE = SHARERS > 1 ? TILE_N : 64;
constexpr int A_WARP = 2 * RawA::BYTES, A_RAW = WARPS * A_WARP, B_WARP = PRODUCER_SLOTS * RawB::BYTES, B_RAW = PRODUCERS * B_WARP;
constexpr int SUMS = SHARERS > 1 ? 0 : RawA::BYTES;  // where a warp's sums begin
static_assert(A_WARP - SUMS >= 16 * AT_ONCE * 4);

// The least and the largest magnitude of hi numbers, two at a time, as their bits; zeros do not count for the least. bf16x6 keeps
// all bits of products of elements of at least SMALLEST.
constexpr unsigned SMALLEST_HI = (127 - 50) << 7;
struct Range {
    unsigned least, most;

    __device__ __forceinline__ void meet(unsigned hi) {
        hi &= 0x7fff7fffu;
        most = larger_pair(most, hi);
        least = smaller_less_one(least, hi);
    }
    // Of the whole warp, in one number each: the least less one, and the largest.
    __device__ __forceinline__ Range of_warp() const {
        return {__reduce_min_sync(~0u, min(least & 0xffff, least >> 16)), __reduce_max_sync(~0u, max(most & 0xffff, most >> 16))};
    }
    __device__ __forceinline__ void add(const Range& other) { least = min(least, other.least), most = max(most, other.most); }
};
constexpr Range NOTHING{~0u, 0};

// Of both operands, what a warp has met of a tile.
struct __align__(16) Met {
    Range a, b;
};

struct Shared {
    unsigned long long stored[STAGES], empty[STAGES];
    unsigned long long full[ALTERNATE ? 2 : 1][STAGES];  // of each group's K-blocks, if they alternate
    Range b[STAGES][PRODUCERS];  // of the K-block in a stage, by the warps that have split it
    Met met[WARPS];
};
static_assert(STAGES * STAGE + A_RAW + B_RAW + 1024 + sizeof(Shared) <= 227 * 1024);

// Splits two elements into hi, mid and lo, each a pair of bf16.
__device__ __forceinline__ void split(float x, float y, unsigned& hi, unsigned& mid, unsigned& lo) {
    hi = bf16_pair(x, y);
    x -= __uint_as_float(hi << 16), y -= __uint_as_float(hi & 0xffff0000u);
    mid = bf16_pair(x, y);
    x -= __uint_as_float(mid << 16), y -= __uint_as_float(mid & 0xffff0000u);
    lo = bf16_pair(x, y);
}

// The K-blocks that this block has of each tile.
struct KBlocks {
    int begin, end;

    __device__ __forceinline__ explicit KBlocks(long long k) {
        const unsigned blocks = (unsigned)ceil_div(k, BLOCK_K), rank = CLUSTER > 1 ? cluster_rank() : 0;
        begin = (int)(blocks * rank / CLUSTER), end = (int)(blocks * (rank + 1) / CLUSTER);
    }
};

// A warp of the third warpgroup: the rows of B that it has of every tile, copied, split and stored for wgmma. Copies run ahead of what
// is split, into the next tile too.
__device__ __forceinline__ void produce(const Problem& p, unsigned ring, unsigned raw, Shared& shared) {
    const int warp = threadIdx.x / 32 % PRODUCERS, lane = threadIdx.x % 32;
    const unsigned stored = shared_address(shared.stored), empty = shared_address(shared.empty);
    const KBlocks blocks(p.k);
    raw += warp * B_WARP;
    Scheduler scheduler(p, blockIdx.x / CLUSTER);  // of copies
    RawB tiles[PRODUCER_TILES];
    int copied = blocks.begin, slot = 0;  // K-block and slot of the next copy
    unsigned phases = 0;                  // RawB::phase of each slot, in two bits
    bool more;
    const auto begin = [&] {
        more = scheduler.has_tile(p, 1);
        if (!more) return;
        const TileOfPart tile = scheduler.tile(p);
        const Operand b = operand_of(p, pointers_of(p, tile.matrix), 1);
#pragma unroll
        for (int i = 0; i < PRODUCER_TILES; i++) tiles[i].begin(b, tile.n0 + (warp * PRODUCER_TILES + i) * 16);
    };
    const auto copy = [&](int i) {
        if (more) {
            const long long k0 = (long long)copied * BLOCK_K;
            tiles[i].copy(raw + slot * RawB::BYTES, k0, (int)min(p.k - k0, (long long)BLOCK_K));
            if (RawB::SHIFTED) phases = (phases & ~(3u << 2 * slot)) | tiles[i].phase << 2 * slot;
        } else {
            copy_commit();
        }
        slot = slot + 1 == PRODUCER_SLOTS ? 0 : slot + 1;
    };
    const auto advance = [&] {  // past a K-block
        if (++copied < blocks.end || !more) return;
        copied = blocks.begin;
        scheduler.advance(p, gridDim.x / CLUSTER);
        begin();
    };
    begin();
#pragma unroll 1
    for (int ahead = 0; ahead < AHEAD; ahead++) {
#pragma unroll
        for (int i = 0; i < PRODUCER_TILES; i++) copy(i);
        advance();
    }
    const unsigned tiles_of_all = (unsigned)tiles_of<TILE_M, TILE_N>(p);
    unsigned count = 0;  // of K-blocks, over all tiles
    int from = 0;
#pragma unroll 1
    for (unsigned tile = blockIdx.x / CLUSTER; tile < tiles_of_all; tile += gridDim.x / CLUSTER) {
#pragma unroll 1
        for (int kb = blocks.begin; kb < blocks.end; kb++, count++) {
            const unsigned stage = count % STAGES, phase = count / STAGES % 2;
            Range range = NOTHING;
            barrier_wait(empty + 8 * stage, phase ^ 1);
#pragma unroll
            for (int i = 0; i < PRODUCER_TILES; i++) {
                copy(i);
                copy_wait<PRODUCER_SLOTS - 1>();
                __syncwarp();
                const int row0 = (warp * PRODUCER_TILES + i) * 16;
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    // Neighbouring lanes read and write different banks (raw_tile.cuh, ptx/wgmma.cuh).
                    int line, piece;
                    unsigned to = ring + stage * STAGE;
                    if (B_ROWS) {
                        // Lanes 0 .. 7: places k .. k + 3 and those 32 further on; then the next four; then the other 8 rows.
                        const int place = (lane / 8 % 2 + 2 * j) * 8 + lane % 8;
                        line = k_of_place(place), piece = lane / 16;
                        const int column = (row0 % 64) / 8 + piece;
                        to += row0 / 64 * 8192 + place * 128 + ((column ^ place % 8) * 16);
                    } else {
                        line = lane % 8 + j % 2 * 8, piece = lane / 8 + j / 2 * 4;
                        to += (row0 + line) * 128 + ((piece ^ line % 8) * 16);
                    }
                    float x[8];
                    tiles[i].piece(raw + from * RawB::BYTES, phases >> 2 * from, line, piece, x);
                    unsigned plane[PLANES][4];
#pragma unroll
                    for (int e = 0; e < 4; e++) {
                        split(x[2 * e], x[2 * e + 1], plane[0][e], plane[1][e], plane[2][e]);
                        range.meet(plane[0][e]);
                    }
#pragma unroll
                    for (int q = 0; q < PLANES; q++) store_shared4(to + q * PLANE, plane[q]);
                }
                __syncwarp();  // the slot may be copied to again
                from = from + 1 == PRODUCER_SLOTS ? 0 : from + 1;
            }
            advance();
            range = range.of_warp();
            if (lane == 0) shared.b[stage][warp] = range;
            __syncwarp();
            if (lane == 0) barrier_arrive(stored + 8 * stage);
        }
        if (CLUSTER > 1) cluster_sync(), cluster_sync();  // with the consumers' two
    }
    copy_wait<0>();
}

// A warp of the fourth warpgroup. The first makes what has been stored in a stage visible to wgmma.
__device__ __forceinline__ void fence(const Problem& p, Shared& shared) {
    const bool idle = threadIdx.x % 128 >= 32;
    if (CLUSTER == 1 && idle) return;
    const unsigned stored = shared_address(shared.stored);
    unsigned full = shared_address(shared.full), other_full = full + 8 * STAGES;
    const KBlocks blocks(p.k);
    const unsigned tiles_of_all = (unsigned)tiles_of<TILE_M, TILE_N>(p);
    unsigned count = 0;
#pragma unroll 1
    for (unsigned tile = blockIdx.x / CLUSTER; tile < tiles_of_all; tile += gridDim.x / CLUSTER) {
#pragma unroll 1
        for (int kb = blocks.begin; kb < blocks.end && !idle; kb++, count++) {
            const unsigned stage = count % STAGES;
            barrier_wait(stored + 8 * stage, count / STAGES % 2);
            fence_stores_for_wgmma();
            __syncwarp();
            if (threadIdx.x % 32 == 0) barrier_arrive(full + 8 * stage);
        }
        if (ALTERNATE) {
            const unsigned last = full;
            full = other_full, other_full = last;
        }
        if (CLUSTER > 1) cluster_sync(), cluster_sync();  // with the consumers' two
    }
}

// Starts six products of 32 of K, smallest first, added to the sums. plane[q][j]: plane q of 16 of K; `b`: the descriptor of hi of B.
__device__ __forceinline__ void multiply(float (&part)[TILE_N / 2], const unsigned (&plane)[PLANES][2][4], unsigned long long b) {
    constexpr int A[6] = {2, 1, 0, 1, 0, 0}, B[6] = {0, 1, 2, 0, 1, 0};
    wgmma_pin(part);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < 6; i++)
#pragma unroll
        for (int j = 0; j < 2; j++) wgmma<B_ROWS>(part, plane[A[i]][j], b + B[i] * (PLANE / 16) + j * WGMMA_STEP<B_ROWS>, i + j > 0);
    wgmma_commit();
}

// Where the element (row, column) of a warp's sums lies. 16-byte pieces are permuted so that a warp's stores and loads meet no bank
// conflict.
__device__ __forceinline__ unsigned sum_at(unsigned row, unsigned column) {
    return row * AT_ONCE * 4 + ((column / 4 ^ row % 4 * 2) * 16) + column % 4 * 4;
}

// Whether a sum of magnitude `least` or more is right as it is.
__device__ __forceinline__ bool is_kept(float sum, float least) {
    return fabsf(sum) >= least && fabsf(sum) < __int_as_float(0x7f800000);
}

// A sum that is not kept, again by multiply-adds. What is NaN early stays so.
__device__ __noinline__ float compute_again(const Problem& p, int matrix, int row, int column) {
    const Pointers at = pointers_of(p, matrix);
    const float *const a = at.a + row * p.a.row, *const b = at.b + column * p.b.col;
    float sum = 0.f;
    for (long long first = 0; first < p.k && sum == sum; first += 64) {
        float part = 0.f;
        const long long end = min(first + 64, p.k);
#pragma unroll 8
        for (long long k = first; k < end; k++) part = fmaf(a[k * p.a.col], b[k * p.b.row], part);
        sum += part;
    }
    return sum;
}

// Adds up rows of AT_ONCE columns of a tile, from column `n0` on, of all that share it, and stores them. A warp of a
// block alone has its own 16 rows; otherwise the rows of a tile are dealt out to the cluster's blocks and their warps.
__device__ __forceinline__ void finish(const Problem& p, const TileOfPart& tile, int n0, unsigned raw, const Shared& shared) {
    // A lane has WIDTH neighbouring columns of a row, ACROSS lanes have a row at a time, or a PARTS-th of it, and a warp STEP rows.
    constexpr int WIDTH = MM32_C_VECTOR ? 4 : 1, ACROSS = AT_ONCE / WIDTH < 32 ? AT_ONCE / WIDTH : 32;
    constexpr int PARTS = AT_ONCE / WIDTH / ACROSS, STEP = 32 / ACROSS, ROWS = SHARERS == 1 ? 16 : TILE_M / CLUSTER / WARPS;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, rank = CLUSTER > 1 ? cluster_rank() : 0;
    // The first row in the tile, and the warp whose raw tiles it lies in.
    const int first = SHARERS == 1 ? warp % (TILE_M / 16) * 16 : rank * (TILE_M / CLUSTER) + warp * ROWS;
    const int owner = SHARERS == 1 ? warp : first / 16;
    // What decides whether a sum is kept. Of products of which fp32 does not hold all bits each loses less than 2^-123, and of an
    // element of which bf16 does not, less than 2^-133 times what it is multiplied with.
    Range a = NOTHING, b = NOTHING;
#pragma unroll
    for (int i = 0; i < SHARERS; i++) {
        const float4 met = load_cluster4(shared_address(&shared.met[owner + i % TURNS * 4]), i / TURNS);
        a.add({__float_as_uint(met.x), __float_as_uint(met.y)}), b.add({__float_as_uint(met.z), __float_as_uint(met.w)});
    }
    float least = 0.f;
    if (min(a.least, b.least) < SMALLEST_HI - 1) {
        const float most = __uint_as_float(a.most << 16) + __uint_as_float(b.most << 16);
        least = (float)p.k * (0x1p-99f + 0x1p-109f * most);
    }
    const auto column_of = [&](int part) { return (lane % ACROSS + part * ACROSS) * WIDTH; };  // from n0 on
    float bias[PARTS][WIDTH] = {};
#pragma unroll
    for (int part = 0; part < PARTS; part++)
#pragma unroll
        for (int e = 0; e < WIDTH; e++)
            if (tile.n0 + n0 + column_of(part) + e < p.n) bias[part][e] = bias_at(p, tile.n0 + n0 + column_of(part) + e);
    const auto summed = [&](int i, int part, float (&sum)[WIDTH]) {
        const unsigned from = raw + owner * A_WARP + SUMS + sum_at((first + i + lane / ACROSS) % 16, column_of(part));
#pragma unroll
        for (int share = 0; share < SHARERS; share++) {
            float x[WIDTH];
            load_cluster(from + share % TURNS * 4 * A_WARP, share / TURNS, x);
#pragma unroll
            for (int e = 0; e < WIDTH; e++) sum[e] = share == 0 ? x[e] : sum[e] + x[e];
        }
    };
    const auto row_of = [&](int i) {
        const int in_tile = first + i + lane / ACROSS;
        return tile.m0 + in_tile / 16 * 16 + RawA::row_of(in_tile % 16);
    };
    const auto exists = [&](int i, int part) {
        return (ROWS % STEP == 0 || i + lane / ACROSS < ROWS) && row_of(i) < p.m && tile.n0 + n0 + column_of(part) < p.n;
    };
    float* const c = pointers_of(p, tile.matrix).c + (tile.n0 + n0) * p.c.col;
    // The usual case: no operand has small elements. What NaN and Inf have spoiled is not kept: it is stored again below.
    if (least == 0.f && (WIDTH == 1 || p.n % WIDTH == 0)) {
        float spoiled = 0.f;
#pragma unroll
        for (int i = 0; i < ROWS; i += STEP)
#pragma unroll
            for (int part = 0; part < PARTS; part++) {
                if (!exists(i, part)) continue;
                float sum[WIDTH];
                summed(i, part, sum);
#pragma unroll
                for (int e = 0; e < WIDTH; e++) spoiled = fmaf(sum[e], 0.f, spoiled), sum[e] = epilogue(sum[e], bias[part][e]);
                float* const to = c + row_of(i) * p.c.row + column_of(part) * p.c.col;
                if constexpr (WIDTH == 4) *reinterpret_cast<float4*>(to) = make_float4(sum[0], sum[1], sum[2], sum[3]);
                else *to = sum[0];
            }
        if (!__any_sync(~0u, spoiled != spoiled)) return;
    }
#pragma unroll 1
    for (int i = 0; i < ROWS; i += STEP)
#pragma unroll
        for (int part = 0; part < PARTS; part++) {
            if (!exists(i, part)) continue;
            float sum[WIDTH];
            summed(i, part, sum);
            float* to = c + row_of(i) * p.c.row + column_of(part) * p.c.col;
            const int column = tile.n0 + n0 + column_of(part);
#pragma unroll
            for (int e = 0; e < WIDTH; e++, to += p.c.col) {
                if (column + e >= p.n) continue;
                if (!is_kept(sum[e], least)) sum[e] = compute_again(p, tile.matrix, row_of(i), column + e);
                *to = epilogue(sum[e], bias[part][e]);
            }
        }
}

// A warp of the two warpgroups that multiply.
__device__ __forceinline__ void consume(const Problem& p, unsigned ring, unsigned raw, Shared& shared) {
    const int group = threadIdx.x / 128, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const unsigned full = shared_address(shared.full) + (ALTERNATE ? group * 8 * STAGES : 0), empty = shared_address(shared.empty);
    const unsigned own = raw + warp * A_WARP;
    const KBlocks blocks(p.k);
    unsigned count = 0;   // of K-blocks before the tile, over all tiles of the block
    unsigned phases = 0;  // if groups alternate: whose stages this one has used an odd number of times, in bits
    const int first = blocks.begin + (TURNS == 1 ? 0 : group);
    RawA a;
    const auto copy = [&](int kb, int slot) {
        if (kb < blocks.end) a.copy(own + slot * RawA::BYTES, (long long)kb * BLOCK_K, (int)min(p.k - (long long)kb * BLOCK_K, (long long)BLOCK_K));
        else copy_commit();
    };
    const auto begin = [&](const TileOfPart& tile) {
        a.begin(operand_of(p, pointers_of(p, tile.matrix), 0), tile.m0 + warp % (TILE_M / 16) * 16);
        copy(first, 0);
    };
    Scheduler scheduler(p, blockIdx.x / CLUSTER);
    const auto advance = [&] {
        count += blocks.end - blocks.begin;
        scheduler.advance(p, gridDim.x / CLUSTER);
    };
    if (ALTERNATE && group) advance();
    if (scheduler.has_tile(p, 1)) begin(scheduler.tile(p));
    while (scheduler.has_tile(p, 1)) {
        copy(first + TURNS, 1);
        int slot = 0;
        float sum[TILE_N / 2], part[TILE_N / 2];
#pragma unroll
        for (int i = 0; i < TILE_N / 2; i++) sum[i] = part[i] = 0.f;
        Range range_a = NOTHING, range_b = NOTHING;
        unsigned plane[HALVES][PLANES][2][4] = {};
        unsigned last = 0;  // the barrier of the stage that is multiplied and then free
        const auto add_up = [&](int half, bool frees) {
            wgmma_wait<0>();
            wgmma_pin(part);
            wgmma_pin(plane[half % HALVES]);
            if (frees && last && lane == 0) barrier_arrive(last);
#pragma unroll
            for (int i = 0; i < TILE_N / 2; i++) sum[i] += part[i];
        };
#pragma unroll 1
        for (int kb = first; kb < blocks.end; kb += TURNS) {
            const unsigned number = count + (kb - blocks.begin), stage = number % STAGES;
            const unsigned phase = (ALTERNATE ? phases >> stage : number / STAGES) % 2;
            const unsigned long long b = wgmma_operand<B_ROWS>(ring + stage * STAGE);
            const auto copy_next = [&] {
                __syncwarp();  // every lane has read the raw tile
                copy(kb + 2 * TURNS, slot);
            };
            copy_wait<1>();
            __syncwarp();
#pragma unroll
            for (int half = 0; half < 2; half++) {
                auto& mine = plane[half % HALVES];
#pragma unroll
                for (int j = 0; j < 2; j++) {
                    float2 x[4];
                    a.fragment(own + slot * RawA::BYTES, 2 * half + j, x);
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        split(x[i].x, x[i].y, mine[0][j][i], mine[1][j][i], mine[2][j][i]);
                        range_a.meet(mine[0][j][i]);
                    }
                }
                if (HALVES == 2) {
                    if (half == 1) copy_next();
                    add_up(half ^ 1, half == 0);
                }
                if (half == 0) {
                    last = empty + 8 * stage;
                    barrier_wait(full + 8 * stage, phase);
                    range_b.add(shared.b[stage][lane % PRODUCERS]);
                }
                multiply(part, mine, b + half * 2 * WGMMA_STEP<B_ROWS>);
                if (HALVES == 1) {
                    if (half == 1) copy_next();
                    add_up(half, half == 1);
                }
            }
            slot ^= 1;
            phases ^= 1 << stage;
        }
        if (HALVES == 2) add_up(1, true);
        const TileOfPart tile = scheduler.tile(p);  // found again: the loop has no registers to spare
        advance();
        if (ALTERNATE) advance();
        const bool more = scheduler.has_tile(p, 1);
        if (SHARERS == 1 && more) begin(scheduler.tile(p));
        const Met met{range_a.of_warp(), {__reduce_min_sync(~0u, range_b.least), __reduce_max_sync(~0u, range_b.most)}};
        if (lane == 0) shared.met[warp] = met;
        const auto together = [] {  // all whose sums meet
            __syncwarp();
            if (CLUSTER > 1) cluster_sync();
            else if (SHARERS > 1) sync_threads<1, CONSUMERS>();
        };
#pragma unroll
        for (int n0 = 0; n0 < TILE_N; n0 += AT_ONCE) {
#pragma unroll
            for (int i = 0; i < AT_ONCE / 8; i++)
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    const float* const from = sum + n0 / 2 + 4 * i + 2 * h;
                    store_shared2(own + SUMS + sum_at(lane / 4 + 8 * h, 8 * i + lane % 4 * 2), from[0], from[1]);
                }
            together();
            finish(p, tile, n0, raw, shared);
            together();
        }
        if (SHARERS > 1 && more) begin(scheduler.tile(p));
    }
    copy_wait<0>();
}

extern "C" __global__ void __launch_bounds__(CONSUMERS + 256, 1) MM32_CLUSTER_DIMENSIONS mm32_direct(const __grid_constant__ Problem p) {
    extern __shared__ __align__(16) char dynamic[];
    __shared__ __align__(16) Shared shared;
    const unsigned ring = (shared_address(dynamic) + 1023) & ~1023u, raw = ring + STAGES * STAGE;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            barrier_init(shared_address(shared.stored) + 8 * i, PRODUCERS);
            for (auto& full : shared.full) barrier_init(shared_address(full) + 8 * i, 1);
            barrier_init(shared_address(shared.empty) + 8 * i, WARPS / GROUPS);
        }
        fence_barrier_init();
    }
    __syncthreads();
    if (threadIdx.x >= CONSUMERS + 128) {
        give_registers<24>();
        fence(p, shared);
    } else if (threadIdx.x >= CONSUMERS) {
        give_registers<88>();
        produce(p, ring, raw + A_RAW, shared);
    } else {
        take_registers<200>();
        consume(p, ring, raw, shared);
    }
}
