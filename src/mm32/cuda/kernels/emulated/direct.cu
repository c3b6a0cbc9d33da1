// direct: C by wgmma in one launch, for products that are too small for the other kernels to be worth it. Each block splits
// what it reads into bf16 hi, mid and lo (bf16x6), which hold all 24 bits at fp32's own exponents: so there are no scales,
// nothing is decided, and no operand is read before it is multiplied.
//
// Two consumer warpgroups multiply. With TILE_M = 128 each has 64 rows of the tile; with 64 they take turns at K-blocks, or
// with ALTERNATE at tiles: one stores while the other multiplies. Each warp copies its own 16 rows of A to shared memory
// (emulated/raw_tile.cuh), splits them in registers, and multiplies from there. A third warpgroup copies, splits and stores B
// in a ring of STAGES, where wgmma reads it. Sums are promoted every 32 of K, whose six products are added smallest first.
// With CLUSTER > 1 the blocks of a cluster share K. Their sums meet in shared memory: each block adds up some rows of the
// tile in a fixed order, and stores them.
// What bf16x6 cannot represent is noticed at the end. Whether elements are so small that fp32 does not hold all bits of a
// product is known from the least element that a warp has met. Where a sum is so small that this matters, the tile is
// computed again by multiply-adds, after all others are done (emulated/again.cuh). NaN and Inf make the sum NaN or Inf; such
// sums are computed from the few terms that decide them (emulated/nonfinite.cuh).
// Launch: min(multiprocessors / CLUSTER, tiles) clusters of CLUSTER blocks of 384 threads (grid-stride loop over tiles).
// Dynamic shared memory: STAGES * STAGE + A_RAW + B_RAW + 1024 bytes (plan/direct.py). Registers: 168 at launch; after that
// 96 for the producers and 200 for the consumers. Small products fetch every instruction from memory, because caches are
// cold: so loops are not unrolled where that costs little, and the code that runs once for a tile exists once.
// Bound by the tensor cores (six products) with 128 x 128 tiles, with smaller ones by shared memory.
//   MM32_TILE_M      128 or 64
//   MM32_TILE_N      128, 64 or 32
//   MM32_BLOCK_K     64, or 32 if K is no more than that
//   MM32_STAGES      K-blocks of 64 of B in the ring
//   MM32_CLUSTER     blocks that share K: 1, 2, 4 or 8
//   MM32_KEPT        1: B stays in the ring for all tiles of the same columns (ALTERNATE 1, and all of K fits in the ring)
//   MM32_SWAPPED     1: rows of tiles are columns of C, and what is A here is the operand B
//   MM32_ALTERNATE   1: consumer warpgroups take turns at tiles (TILE_M 64, CLUSTER 1)
//   MM32_A_LOAD, MM32_B_LOAD   see emulated/raw_tile.cuh
//   MM32_C_VECTOR    1: C is contiguous along N and aligned: 16-byte stores
//   MM32_PRODUCTS    6
#include "common/epilogue.cuh"
#include "common/operand.cuh"
#include "common/tile_order.cuh"
#include "emulated/again.cuh"
#include "emulated/nonfinite.cuh"
#include "emulated/raw_tile.cuh"
#include "ptx/bulk_copy.cuh"
#include "ptx/cluster.cuh"
#include "ptx/named_barriers.cuh"
#include "ptx/pairs.cuh"
#include "ptx/warpgroups.cuh"
#include "ptx/wgmma_registers.cuh"
#include "ptx/words.cuh"

// The size of the kernel's clusters, as an attribute of the kernel.
#if MM32_CLUSTER > 1
#define CLUSTER_DIMENSIONS __cluster_dims__(MM32_CLUSTER, 1, 1)
#else
#define CLUSTER_DIMENSIONS
#endif

constexpr int TILE_M = MM32_TILE_M, TILE_N = MM32_TILE_N, STAGES = MM32_STAGES, CLUSTER = MM32_CLUSTER;
constexpr int BLOCK_K = MM32_BLOCK_K, HALVES = BLOCK_K / 32, PLANES = 3, PLANE = TILE_N * 128, STAGE = PLANES * PLANE;
constexpr int CONSUMERS = 256, WARPS = CONSUMERS / 32, PRODUCERS = 4;  // threads; warps; warps
constexpr bool ALTERNATE = MM32_ALTERNATE;
static_assert(!ALTERNATE || (TILE_M == 64 && CLUSTER == 1));
constexpr bool KEPT = MM32_KEPT;
static_assert(!KEPT || ALTERNATE);
constexpr bool APART = ALTERNATE && !KEPT;  // each K-block of B is for one group
// Whether a K-block's least element of A is combined with that of the K-blocks before only when its products are there. This
// shortens the chain of dependent instructions of a tile where K is one K-block of 32 (32768 x 32 x 32768: 6 %).
constexpr bool LEAST_APART = KEPT && HALVES == 1;
constexpr int GROUPS = 128 / TILE_M;            // consumer warpgroups that have the same rows of a tile, or alternate
constexpr int TURNS = ALTERNATE ? 1 : GROUPS;   // those that take turns at K-blocks
constexpr int SHARERS = TURNS * CLUSTER;        // warps whose sums make up an element of C
// PRODUCER_TILES: raw tiles of a K-block of B that a producer warp has. TEAM: warps that have a K-block together. TEAMS: how
// many such teams take turns.
constexpr int PRODUCER_TILES = TILE_N / 16 > PRODUCERS ? TILE_N / 16 / PRODUCERS : 1;
constexpr int TEAM = TILE_N / 16 / PRODUCER_TILES, TEAMS = PRODUCERS / TEAM;
static_assert(STAGES % TEAMS == 0);  // a stage belongs to one team: a barrier tells a turn only from the next one
constexpr int PRODUCER_SLOTS = PRODUCER_TILES + 1;  // a K-block is under way while one is split: three more were no faster
using RawA = RawTile<MM32_A_LOAD, BLOCK_K>;
using RawB = RawTile<MM32_B_LOAD, BLOCK_K>;
constexpr int B_ROWS = TILE_N >= 64 && RawB::ALONG_ROWS;  // wgmma's operands along rows are 64 wide
constexpr bool SWAPPED = MM32_SWAPPED;

// Each consumer warp has two raw tiles. Its sums leave through the same memory: all at once where they are added to those of
// others; otherwise 64 columns at a time through the second, while the first is filled for the next tile.
constexpr int AT_ONCE = SHARERS > 1 || TILE_N < 64 ? TILE_N : 64;
constexpr int A_WARP = 2 * RawA::BYTES, A_RAW = WARPS * A_WARP, B_WARP = PRODUCER_SLOTS * RawB::BYTES, B_RAW = PRODUCERS * B_WARP;
constexpr int SUMS = SHARERS > 1 ? 0 : RawA::BYTES;  // where a warp's sums begin
static_assert(A_WARP - SUMS >= 16 * AT_ONCE * 4);

// Magnitudes that decide whether bf16x6 holds all bits of a sum. least: twice the bits of the least element that is not zero,
// less one; NONE where there are only zeros. most: the largest hi number, as bits.
constexpr unsigned NONE = ~0u, INFINITE = 0x7f80;
// `two` is 2, which the compiler does not know: it then uses multiply-adds, which leave free the pipe that limits conversions
// and minima.
__device__ __forceinline__ unsigned smaller(unsigned least, float x, float y, unsigned two) {
    return min(least, min(__float_as_uint(x) * two - 1, __float_as_uint(y) * two - 1));
}
// The largest magnitudes in pairs of bf16, of numbers above zero and below. As unsigned numbers those below zero are the
// largest.
struct Most {
    unsigned above, below;

    __device__ __forceinline__ void meet(unsigned one, unsigned other) {
        above = larger_signed_pair(above, larger_signed_pair(one, other)), below = larger_pair(below, larger_pair(one, other));
    }
    // The largest magnitude in the whole warp.
    __device__ __forceinline__ unsigned of_warp() const {
        const unsigned either = larger_pair(above, below & 0x7fff7fffu);
        return __reduce_max_sync(~0u, max(either & 0xffff, either >> 16));
    }
};
struct Range {
    unsigned least, most;

    __device__ __forceinline__ void add(const Range& other) { least = min(least, other.least), most = max(most, other.most); }
};
constexpr Range NOTHING{NONE, 0};

// What a warp has met of a tile: the least element of each of its rows of A, the largest of A, and both of B.
struct __align__(16) Met {
    unsigned rows[16];
    unsigned most_a, least_b, most_b, unused;
};

// The element that `least` stands for.
__device__ __forceinline__ float element_of(unsigned least) {
    return least == NONE ? __int_as_float(0x7f800000) : __uint_as_float((least + 1) / 2);
}

// A set of tiles, in 64 bits. Tiles that share a bit are in it together.
struct Marks {
    unsigned words[2];

    static __device__ __forceinline__ unsigned bit_of(const int3& tile) {
        return (tile.x * 21 + tile.y / TILE_M * 5 + tile.z / TILE_N) % 64u;
    }
    __device__ __forceinline__ void add(const int3& tile) { atomicOr(&words[bit_of(tile) / 32], 1u << bit_of(tile) % 32); }
    __device__ __forceinline__ bool has(const int3& tile) const { return words[bit_of(tile) / 32] >> bit_of(tile) % 32 & 1; }
    __device__ __forceinline__ bool any() const { return (words[0] | words[1]) != 0; }
};

struct Shared {
    unsigned long long empty[STAGES];
    unsigned long long full[APART ? 2 : 1][STAGES];  // of each group's K-blocks, if those are apart
    Range b[STAGES][TEAM];                           // of the K-block in a stage, from each warp that has split it
    Met met[WARPS];
    // `spoiled`: tiles with sums that are NaN or Inf as they are stored. `again`: tiles that are to be computed again.
    // `spoiled_rows`, `spoiled_columns`: whether the rows, and the columns, of such sums have NaN or Inf.
    Marks spoiled, again;
    unsigned spoiled_rows, spoiled_columns;
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

// The tiles of C that this cluster computes. Without KEPT they are a grid size of clusters apart, in the order of
// common/tile_order.cuh, and each has a panel of its own. With KEPT, a panel is a column of tiles, which all multiply the
// same columns of B, and a block computes neighbouring tiles of one panel, then of another. Whole panels are a grid size of
// blocks apart, so that blocks are at panels of few matrices at a time, which L2 holds; the panels that are left are dealt
// out in runs of tiles. Tiles and panels are then counted from the block's first. Tiles are counted in 32 bits.
struct Tiles {
    unsigned rows, columns, begin, end, step;
    unsigned whole, rest_panel, rest_row;  // KEPT: whole panels, and where what is left begins: the panel, and the row in it

    __device__ __forceinline__ explicit Tiles(const Problem& p)
        : rows((unsigned)ceil_div(SWAPPED ? p.n : p.m, TILE_M)), columns((unsigned)ceil_div(SWAPPED ? p.m : p.n, TILE_N)) {
        const unsigned panels = (unsigned)p.batches * columns;
        if (KEPT) {
            whole = panels / gridDim.x;
            const unsigned rest = panels % gridDim.x * rows, each = rest / gridDim.x, more = rest % gridDim.x;
            const unsigned first = blockIdx.x * each + min(blockIdx.x, more);
            rest_panel = whole * gridDim.x + first / rows, rest_row = first % rows;
            begin = 0, end = whole * rows + each + (blockIdx.x < more), step = 1;
        } else {
            begin = blockIdx.x / CLUSTER, end = panels * rows, step = gridDim.x / CLUSTER;
        }
    }
    // The matrix, first row and first column of tile t, which is in panel `panel`.
    __device__ __forceinline__ int3 at(unsigned t, unsigned panel) const {
        if (KEPT) {
            int3 tile = panel_at(panel);
            tile.y = (t + (panel < whole ? 0 : rest_row) - panel * rows) * TILE_M;
            return tile;
        }
        const unsigned all = rows * columns, matrix = end == all ? 0 : t / all, in_matrix = t - matrix * all;
        const unsigned group = in_matrix / (TILE_GROUP * columns), in_group = in_matrix - group * TILE_GROUP * columns;
        const unsigned height = min(rows - group * TILE_GROUP, TILE_GROUP), column = in_group / height;
        return make_int3(matrix, (group * TILE_GROUP + in_group - column * height) * TILE_M, column * TILE_N);
    }
    __device__ __forceinline__ unsigned panel_of(unsigned t) const {
        return !KEPT ? t : t < whole * rows ? t / rows : (t + rest_row) / rows;
    }
    __device__ __forceinline__ unsigned panels_end() const { return KEPT ? (end == 0 ? 0 : panel_of(end - 1) + 1) : end; }
    __device__ __forceinline__ int3 panel_at(unsigned panel) const {
        if (!KEPT) return at(panel, panel);
        const unsigned global = panel < whole ? panel * gridDim.x + blockIdx.x : rest_panel + panel - whole,
                       matrix = global / columns;
        return make_int3(matrix, 0, (global - matrix * columns) * TILE_N);
    }
};

// How far matrix i of an operand lies from its first.
__device__ __forceinline__ long long offset_of(const Problem& p, const long long (&strides)[MM32_MAX_BATCH_RANK], unsigned i) {
    long long offset = 0;
#pragma unroll 1
    for (int d = (int)p.batch_rank - 1; d >= 0 && i > 0; d--) {
        const unsigned size = (unsigned)p.batch_size[d], rest = d == 0 ? 0 : i / size;
        offset += (i - rest * size) * strides[d];
        i = rest;
    }
    return offset;
}

// The rows of tiles are of A, and their columns of B; with SWAPPED it is the other way round.
__device__ __forceinline__ long long rows_of(const Problem& p) { return SWAPPED ? p.n : p.m; }
__device__ __forceinline__ long long columns_of(const Problem& p) { return SWAPPED ? p.m : p.n; }
__device__ __forceinline__ Operand operand_of(const Problem& p, bool b, unsigned matrix) {
    if (b != SWAPPED) return {p.b.data + offset_of(p, p.b.batch, matrix), p.b.col, p.b.row, p.n};
    return {p.a.data + offset_of(p, p.a.batch, matrix), p.a.row, p.a.col, p.m};
}

// What a warp of the third warpgroup does: it copies its rows of B of every tile, splits them, and stores them for wgmma.
// Copies run ahead of what is split, into the next tile too.
__device__ __forceinline__ void produce(const Problem& p, unsigned ring, unsigned raw, Shared& shared) {
    const int producer = threadIdx.x / 32 % PRODUCERS, warp = producer % TEAM, team = producer / TEAM, lane = threadIdx.x % 32;
    const unsigned empty = shared_address(shared.empty), two = in_register(2);
    unsigned full = shared_address(shared.full), other_full = full + 8 * STAGES;
    const KBlocks blocks(p.k);
    const Tiles tiles(p);
    raw += producer * B_WARP;
    RawB b;
    const unsigned end = tiles.panels_end();
    unsigned next = tiles.panel_of(tiles.begin);  // panel of the next copy
    int copied = blocks.begin, slot = 0;          // K-block and slot of the next copy
    bool begins = true;
    unsigned phases = 0;  // RawB::phase of each slot, in two bits
    const auto move_on = [&](int k_blocks) {
#pragma unroll
        for (int i = 0; i < k_blocks; i++)
            if (++copied == blocks.end) copied = blocks.begin, next += tiles.step, begins = true;
    };
    if (team) move_on(1);
    const auto copy = [&](int i) {
        if (next < end) {
            if (i == 0 && begins) {
                begins = false;
                const int3 at = tiles.panel_at(next);
                b.begin(operand_of(p, true, at.x), at.z + warp * PRODUCER_TILES * 16);
            }
            const long long k0 = (long long)copied * BLOCK_K;
            b.copy(raw + slot * RawB::BYTES, k0, (int)min(p.k - k0, (long long)BLOCK_K), 16 * i);
            if (RawB::SHIFTED) phases = (phases & ~(3u << 2 * slot)) | b.phase << 2 * slot;
            if (i == PRODUCER_TILES - 1) move_on(TEAMS);
        } else {
            copy_commit();
        }
        slot = slot + 1 == PRODUCER_SLOTS ? 0 : slot + 1;
    };
    unsigned count = team;  // number of the K-block that is split, over all tiles
    int from = 0;           // the slot that it is split from
    // Its panel and its number in the tile. The first round only copies.
    unsigned panel = tiles.panel_of(tiles.begin);
    int kb = blocks.begin;
    const auto advance = [&] {
        if (++kb < blocks.end) return;
        kb = blocks.begin, panel += tiles.step;
        if (APART) {
            const unsigned last = full;
            full = other_full, other_full = last;
        }
        if (CLUSTER > 1) cluster_sync(), cluster_sync();  // to match the consumers' two
    };
    if (team && panel < end) advance();
#pragma unroll 1
    for (bool splits = false; panel < end; splits = true) {
        const unsigned stage = count % STAGES;
        if (splits) barrier_wait(empty + 8 * stage, count / STAGES % 2 ^ 1);
        unsigned least = NONE;
        Most most{};
#pragma unroll
        for (int i = 0; i < PRODUCER_TILES; i++) {
            copy(i);
            if (!splits) continue;
            copy_wait<PRODUCER_SLOTS - 1>();
            __syncwarp();
            const int row0 = (warp * PRODUCER_TILES + i) * 16;
#pragma unroll
            for (int j = 0; j < 2 * HALVES; j++) {
                // Neighbouring lanes read and write different banks (raw_tile.cuh, ptx/wgmma.cuh).
                int line, piece, on = 0, more = 0;
                unsigned to = ring + stage * STAGE;
                float x[8];
                if (B_ROWS) {
                    // Lanes 0 .. 7 have places k .. k + 3 and those 32 further on; lanes 8 .. 15 the next four of each; lanes
                    // 16 .. 31 the same of the other 8 rows. Every j is 16 places further on.
                    const int place = lane % 16;
                    line = k_of_place(place), on = 8 * j, piece = lane / 16;
                    const int column = (row0 % 64) / 8 + piece;
                    to += row0 / 64 * 8192 + place * 128 + ((column ^ place % 8) * 16) + j * 16 * 128;
                } else {
                    if (RawB::ALONG_ROWS) line = lane % 16, piece = lane / 16 + 2 * j;
                    else line = lane % 8, on = j % 2 * 8, piece = lane / 8, more = j / 2 * 4;
                    to += (row0 + line + on) * 128 + ((piece ^ line % 8) * 16 ^ more * 16);
                }
                const unsigned tile = raw + from * RawB::BYTES, phase = phases >> 2 * from;
                if (B_ROWS || !RawB::ALONG_ROWS) b.piece(tile, phase, line, piece, x, on, more);
                else b.piece_of_row(tile, phase, line, piece, x);
                unsigned plane[PLANES][4];
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    least = smaller(least, x[2 * e], x[2 * e + 1], two);
                    split(x[2 * e], x[2 * e + 1], plane[0][e], plane[1][e], plane[2][e]);
                }
                most.meet(plane[0][0], plane[0][1]), most.meet(plane[0][2], plane[0][3]);
#pragma unroll
                for (int q = 0; q < PLANES; q++) store_shared4(to + q * PLANE, plane[q]);
            }
            __syncwarp();  // the slot may be copied to again
            from = from + 1 == PRODUCER_SLOTS ? 0 : from + 1;
        }
        if (!splits) continue;
        const Range range{__reduce_min_sync(~0u, least), most.of_warp()};
        if (lane == 0) shared.b[stage][warp] = range;
        __syncwarp();
        if (lane == 0) barrier_arrive(full + 8 * stage);
        __syncwarp();
        count += TEAMS;
#pragma unroll 1
        for (int i = 0; i < TEAMS && panel < end; i++) advance();
    }
    copy_wait<0>();
}

// Starts the six products of 32 of K, smallest first, which add up in `part`. plane[q][j]: plane q of the j-th 16 of K; `b`:
// the descriptor of hi of B.
__device__ __forceinline__ void multiply(float (&part)[TILE_N / 2], const unsigned (&plane)[PLANES][2][4], unsigned long long b) {
    constexpr int A[6] = {2, 1, 0, 1, 0, 0}, B[6] = {0, 1, 2, 0, 1, 0};
    wgmma_pin(part);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < 6; i++)
#pragma unroll
        for (int j = 0; j < 2; j++)
            wgmma<B_ROWS>(part, plane[A[i]][j], b + B[i] * (PLANE / 16) + j * WGMMA_STEP<B_ROWS>, i + j > 0);
    wgmma_commit();
}

// Where the element (row, column) of a warp's sums lies. 16-byte pieces are permuted so that a warp's stores and loads meet no
// bank conflict.
__device__ __forceinline__ unsigned sum_at(unsigned row, unsigned column) {
    return row * AT_ONCE * 4 + ((column / 4 ^ row % 4 * 2) * 16) + column % 4 * 4;
}

__device__ __forceinline__ bool is_finite(float x) { return fabsf(x) < __int_as_float(0x7f800000); }

// Whether bf16x6 holds all bits of products of elements of these magnitudes and larger ones.
__device__ __forceinline__ bool all_bits(float of_a, float of_b) {
    return of_a * of_b >= 0x1p-100f && min(of_a, of_b) >= 0x1p-110f;
}

// The magnitude from which on a sum is kept, if magnitudes in A are from `least_a` to `most_a`, and in B from `b.least` to
// `b.most`. bf16x6 holds all bits of a product of at least 2^-100, if both elements are at least 2^-110. Each other product
// loses less than 2^-123; and an element of which bf16 does not hold all bits loses less than 2^-133 times what it is
// multiplied with. A row or a tile of zeros loses nothing.
__device__ __forceinline__ float least_kept(const Problem& p, unsigned least_a, unsigned most_a, const Range& b) {
    if (least_a == NONE || b.least == NONE || all_bits(element_of(least_a), element_of(b.least))) return 0.f;
    return (float)p.k * (0x1p-99f + 0x1p-109f * (__uint_as_float(most_a << 16) + __uint_as_float(b.most << 16)));
}

// The rows of a tile that a warp stores: how many, and the first; and the row of C (with SWAPPED, the column) of row
// `in_tile` of a tile.
constexpr int ROWS = SHARERS == 1 ? 16 : TILE_M / CLUSTER / WARPS;
__device__ __forceinline__ int first_row() {
    const int warp = threadIdx.x / 32;
    return SHARERS == 1 ? warp % (TILE_M / 16) * 16 : (CLUSTER > 1 ? cluster_rank() : 0) * (TILE_M / CLUSTER) + warp * ROWS;
}
__device__ __forceinline__ int row_at(const int3& tile, int in_tile) {
    return tile.y + in_tile / 16 * 16 + RawA::row_of(in_tile % 16);
}

// Adds up AT_ONCE columns, from column `n0` on, of this warp's rows of a tile over all that share it, and stores them. A warp
// whose sums no other shares has its own 16 rows; otherwise the rows of a tile are dealt out to the cluster's blocks and
// their warps.
__device__ __forceinline__ void finish(const Problem& p, const int3& tile, int n0, unsigned raw, Shared& shared) {
    // A lane has WIDTH neighbouring columns of a row. ACROSS lanes have a row, or one of its PARTS, at a time, and a warp
    // STEP rows. Neighbouring lanes have neighbouring elements of a row of C: with SWAPPED, of a column here.
    constexpr int WIDTH = MM32_C_VECTOR ? 4 : 1;
    constexpr int ACROSS = SWAPPED ? 32 / ROWS : AT_ONCE / WIDTH < 32 ? AT_ONCE / WIDTH : 32;
    constexpr int PARTS = AT_ONCE / WIDTH / ACROSS, STEP = 32 / ACROSS;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    // The first row in the tile, and the warp whose raw tiles it lies in.
    const int first = first_row(), owner = SHARERS == 1 ? warp : first / 16;
    // The rest of what the sharers have met.
    unsigned most_a = 0;
    Range b = NOTHING;
#pragma unroll
    for (int i = 0; i < SHARERS; i++) {
        const float4 met = load_cluster4<(CLUSTER > 1)>(shared_address(&shared.met[owner + i % TURNS * 4].most_a), i / TURNS);
        most_a = max(most_a, __float_as_uint(met.x)), b.add({__float_as_uint(met.y), __float_as_uint(met.z)});
    }
    // The magnitude from which on sums of row i are kept.
    const auto least_of = [&](int i) {
        unsigned row = NONE;
#pragma unroll
        for (int share = 0; share < SHARERS; share++) {
            float x[1];
            load_cluster<(CLUSTER > 1)>(shared_address(&shared.met[owner + share % TURNS * 4].rows[(first + i) % 16]),
                                        share / TURNS, x);
            row = min(row, __float_as_uint(x[0]));
        }
        return least_kept(p, row, most_a, b);
    };
    const bool usual = !__any_sync(~0u, !(least_of(lane % ROWS) == 0.f));
    const int lane_row = SWAPPED ? lane % STEP : lane / ACROSS, lane_column = SWAPPED ? lane / STEP : lane % ACROSS;
    const auto column_of = [&](int part) { return (lane_column + part * ACROSS) * WIDTH; };  // from n0 on
    float bias[PARTS][WIDTH] = {};
#pragma unroll
    for (int part = 0; part < PARTS; part++)
#pragma unroll
        for (int e = 0; e < WIDTH; e++)
            if (!SWAPPED && tile.z + n0 + column_of(part) + e < p.n)
                bias[part][e] = bias_at(p, tile.z + n0 + column_of(part) + e);
    const auto summed = [&](int i, int part, float (&sum)[WIDTH]) {
        const unsigned from = raw + owner * A_WARP + SUMS + sum_at((first + i + lane_row) % 16, column_of(part));
#pragma unroll
        for (int share = 0; share < SHARERS; share++) {
            float x[WIDTH];
            load_cluster<(CLUSTER > 1)>(from + share % TURNS * 4 * A_WARP, share / TURNS, x);
#pragma unroll
            for (int e = 0; e < WIDTH; e++) sum[e] = share == 0 ? x[e] : sum[e] + x[e];
        }
    };
    const auto row_of = [&](int i) { return row_at(tile, first + i + lane_row); };
    const auto exists = [&](int i, int part) {
        return (ROWS % STEP == 0 || i + lane_row < ROWS) && row_of(i) < rows_of(p) &&
               tile.z + n0 + column_of(part) < columns_of(p);
    };
    const long long c_row = SWAPPED ? p.c.col : p.c.row, c_column = SWAPPED ? p.c.row : p.c.col;
    float* const c = p.c.data + offset_of(p, p.c.batch, tile.x) + (tile.z + n0) * c_column;
    // The usual case: no product is that small. What NaN and Inf have spoiled is stored again below, without the epilogue.
    if (usual && (WIDTH == 1 || columns_of(p) % WIDTH == 0)) {
        constexpr int AT_A_TIME = SWAPPED ? STEP : 8 * STEP / PARTS,
                      BATCH = ROWS < STEP ? STEP : AT_A_TIME < ROWS ? AT_A_TIME : ROWS;  // rows
        float spoiled = 0.f;
#pragma unroll 1
        for (int first_of_batch = 0; first_of_batch < ROWS; first_of_batch += BATCH) {
            float sum[BATCH][PARTS][WIDTH];
#pragma unroll
            for (int i = 0; i < BATCH; i += STEP)
#pragma unroll
                for (int part = 0; part < PARTS; part++) summed(first_of_batch + i, part, sum[i][part]);
#pragma unroll
            for (int i = 0; i < BATCH; i += STEP)
#pragma unroll
                for (int part = 0; part < PARTS; part++) {
                    float(&x)[WIDTH] = sum[i][part];
                    const bool stored = exists(first_of_batch + i, part);
                    const float of_row = SWAPPED && stored ? bias_at(p, row_of(first_of_batch + i)) : 0.f;
#pragma unroll
                    for (int e = 0; e < WIDTH; e++)
                        spoiled = fmaf(x[e], 0.f, spoiled), x[e] = epilogue(x[e], SWAPPED ? of_row : bias[part][e]);
                    float* const to = c + row_of(first_of_batch + i) * c_row + column_of(part) * c_column;
                    if (!stored) continue;
                    if constexpr (WIDTH == 4) *reinterpret_cast<float4*>(to) = make_float4(x[0], x[1], x[2], x[3]);
                    else *to = x[0];
                }
        }
        if (!__any_sync(~0u, spoiled != spoiled)) return;
    }
    bool small = false, spoiled = false;
#pragma unroll 1
    for (int i = 0; i < ROWS; i += STEP)
#pragma unroll 1
        for (int part = 0; part < PARTS; part++) {
            if (!exists(i, part)) continue;
            const float least = least_of(i + lane_row);
            float sum[WIDTH];
            summed(i, part, sum);
            float* to = c + row_of(i) * c_row + column_of(part) * c_column;
            const int column = tile.z + n0 + column_of(part);
#pragma unroll
            for (int e = 0; e < WIDTH; e++, to += c_column) {
                if (column + e >= columns_of(p)) continue;
                // What is NaN or Inf stands without the epilogue until it is looked at again.
                const bool finite = is_finite(sum[e]);
                spoiled |= !finite, small |= finite && !(fabsf(sum[e]) >= least);
                *to = finite ? epilogue(sum[e], bias_at(p, SWAPPED ? row_of(i) : column + e)) : sum[e];
            }
        }
    if (small) shared.again.add(tile);
    if (spoiled) {
        shared.spoiled.add(tile);
        if (most_a >= INFINITE) shared.spoiled_rows = true;
        if (b.most >= INFINITE) shared.spoiled_columns = true;
    }
}

// Whether a warp can store its 16 rows of a tile by `store_whole`: where no other warp shares its sums.
constexpr bool WHOLE = SHARERS == 1 && AT_ONCE == 64 && MM32_C_VECTOR && !SWAPPED;

// Whether all of a tile exists and all sums of the warp are kept; `least_a`: the least element of A that the warp has met.
__device__ __forceinline__ bool is_whole(const Problem& p, const int3& tile, const float (&sum)[TILE_N / 2], unsigned least_a,
                                         const Range& b) {
    bool kept = tile.y + TILE_M <= p.m && tile.z + TILE_N <= p.n && least_kept(p, least_a, 0, b) == 0.f;
    float spoiled[4] = {};
#pragma unroll
    for (int i = 0; i < TILE_N / 2; i++) spoiled[i % 4] = fmaf(sum[i], 0.f, spoiled[i % 4]);
    kept &= (spoiled[0] + spoiled[1]) + (spoiled[2] + spoiled[3]) == 0.f;
    return !__any_sync(~0u, !kept);
}

// Stores a warp's 16 rows of a tile that is_whole, with a third of the instructions of `finish`.
__device__ __forceinline__ void store_whole(const Problem& p, const int3& tile, unsigned own, const float (&sum)[TILE_N / 2]) {
    const int lane = threadIdx.x % 32;
    // A lane has 4 neighbouring columns of every second row.
    const int row = lane / 16, column = lane % 16 * 4;
    const long long c_row = p.c.row;
    float* to = p.c.data + offset_of(p, p.c.batch, tile.x) +
                (tile.y + threadIdx.x / 32 % (TILE_M / 16) * 16 + RawA::row_of(row)) * c_row + (tile.z + column);
#pragma unroll
    for (int n0 = 0; n0 < TILE_N; n0 += AT_ONCE) {
        if (n0 > 0) __syncwarp();  // the columns before these have been read
#pragma unroll
        for (int i = 0; i < AT_ONCE / 8; i++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const int at = n0 / 2 + 4 * i + 2 * h;
                store_shared2(own + SUMS + sum_at(lane / 4 + 8 * h, 8 * i + lane % 4 * 2), sum[at], sum[at + 1]);
            }
        float bias[4];
#pragma unroll
        for (int e = 0; e < 4; e++) bias[e] = bias_at(p, tile.z + n0 + column + e);
        __syncwarp();
#pragma unroll(MM32_ACTIVATION < 3 ? 8 : 1)
        for (int i = 0; i < 8; i++) {
            float x[4];
            load_shared(own + SUMS + sum_at(2 * i + row, column), x[0], x[1], x[2], x[3]);
#pragma unroll
            for (int e = 0; e < 4; e++) x[e] = epilogue(x[e], bias[e]);
            float4* const place = reinterpret_cast<float4*>(to + RawA::row_of(2 * i) * c_row);
            // Where B is kept, C is most of the traffic: stored so, it leaves L2 before A and B do (16384 x 16 x 16384: 7 %).
            if (KEPT) __stcs(place, make_float4(x[0], x[1], x[2], x[3]));
            else *place = make_float4(x[0], x[1], x[2], x[3]);
        }
        to += AT_ONCE;
    }
    __syncwarp();
}

// What a warp of the two warpgroups that multiply does.
__device__ __forceinline__ void consume(const Problem& p, unsigned ring, unsigned raw, Shared& shared) {
    // The shuffle tells the compiler that a warp is in one group, so that descriptors stay uniform.
    const int group = __shfl_sync(~0u, threadIdx.x / 128, 0);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const unsigned full = in_register(shared_address(shared.full) + (APART ? group * 8 * STAGES : 0)),
                   empty = in_register(shared_address(shared.empty));
    const unsigned of_b = in_register(shared_address(&shared.b[0][lane % TEAM])), two = in_register(2);
    const unsigned own = raw + warp * A_WARP;
    const KBlocks blocks(p.k);
    const Tiles tiles(p);
    const int first = blocks.begin + (TURNS == 1 ? 0 : group);
    unsigned count = 0;   // of K-blocks before the tile, over all tiles of the block
    unsigned phases = 0;  // if groups alternate: in bits, which stages this one has used an odd number of times
    unsigned next = tiles.begin;
    const auto advance = [&] { count += blocks.end - blocks.begin, next += tiles.step; };
    if (ALTERNATE && group) advance();
    // `panel`: that of the tile. `panels`, with KEPT: how many this group has waited for. It gives back each before it waits for
    // the next, also those of which it has no tile, because a barrier tells a turn only from the next one.
    unsigned panel = 0, panels = 0;
    const auto wait_for = [&](unsigned panel) {
#pragma unroll 1
        for (; panels <= panel; panels++) {
#pragma unroll 1
            for (unsigned i = panels * blocks.end; i < (panels + 1) * blocks.end; i++) {
                if (panels && lane == 0) barrier_arrive(empty + 8 * ((i - blocks.end) % STAGES));
                __syncwarp();
            }
#pragma unroll 1
            for (unsigned i = panels * blocks.end; i < (panels + 1) * blocks.end; i++)
                barrier_wait(full + 8 * (i % STAGES), i / STAGES % 2);
        }
    };
    RawA a;
    const auto copy = [&](int kb, int slot) {
        if (kb < blocks.end)
            a.copy(own + slot * RawA::BYTES, (long long)kb * BLOCK_K,
                   (int)min(p.k - (long long)kb * BLOCK_K, (long long)BLOCK_K));
        else copy_commit();
    };
    int3 tile;
    float sum[TILE_N / 2];
    unsigned least_a[2];  // of fragment rows lane / 4 and that + 8
    Most most_a;
    Range range_b;
    bool more, stores = false;
    const auto begin = [&] {
        more = next < tiles.end;
        if (!more) return;
        if (KEPT && stores && tile.y + 2 * TILE_M < (int)tiles.rows * TILE_M) {  // the group's next is in the same panel
            tile.y += 2 * TILE_M, a.move(2 * TILE_M);
        } else {
            panel = tiles.panel_of(next), tile = tiles.at(next, panel);
            a.begin(operand_of(p, false, tile.x), tile.y + warp % (TILE_M / 16) * 16);
        }
        copy(first, 0);
    };
    begin();
#pragma unroll 1
    while (more) {
        copy(first + TURNS, 1);
        if (KEPT) {
            wait_for(panel);
            fence_stores_for_wgmma();
            count = (panels - 1) * blocks.end;
        }
        int slot = 0;
#pragma unroll
        for (int i = 0; i < TILE_N / 2; i++) sum[i] = 0.f;
        least_a[0] = least_a[1] = NONE, most_a = {};
        range_b = NOTHING;
#pragma unroll 1
        for (int kb = first; kb < blocks.end; kb += TURNS) {
            const unsigned number = count + (kb - blocks.begin), stage = number % STAGES;
            const unsigned phase = (APART ? phases >> stage : number / STAGES) % 2;
            const unsigned long long b = wgmma_operand<B_ROWS>(ring + stage * STAGE);
            copy_wait<1>();
            __syncwarp();
#pragma unroll
            for (int half = 0; half < HALVES; half++) {
                float part[TILE_N / 2];
                unsigned plane[PLANES][2][4];
                unsigned least[2] = {LEAST_APART ? NONE : least_a[0], LEAST_APART ? NONE : least_a[1]};
#pragma unroll
                for (int j = 0; j < 2; j++) {
                    float2 x[4];
                    a.fragment(own + slot * RawA::BYTES, 2 * half + j, x);
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        least[i % 2] = smaller(least[i % 2], x[i].x, x[i].y, two);
                        split(x[i].x, x[i].y, plane[0][j][i], plane[1][j][i], plane[2][j][i]);
                    }
                    most_a.meet(plane[0][j][0], plane[0][j][1]), most_a.meet(plane[0][j][2], plane[0][j][3]);
                }
                if (!LEAST_APART) least_a[0] = least[0], least_a[1] = least[1];
                if (half == 0) {
                    if (!KEPT) {
                        barrier_wait(full + 8 * stage, phase);
                        fence_stores_for_wgmma();  // the producers have stored what wgmma reads
                    }
                    const float2 range = load_shared2(of_b + stage * TEAM * (unsigned)sizeof(Range));
                    range_b.add({__float_as_uint(range.x), __float_as_uint(range.y)});
                }
                multiply(part, plane, b + half * 2 * WGMMA_STEP<B_ROWS>);
                if (half == HALVES - 1) {
                    __syncwarp();  // every lane has read the raw tile
                    copy(kb + 2 * TURNS, slot);
                }
                wgmma_wait<0>();
                wgmma_pin(part);
                if (LEAST_APART) least_a[0] = min(least_a[0], least[0]), least_a[1] = min(least_a[1], least[1]);
                if (!KEPT && half == HALVES - 1 && lane == 0) barrier_arrive(empty + 8 * stage);
#pragma unroll
                for (int i = 0; i < TILE_N / 2; i++) sum[i] += part[i];
            }
            slot ^= 1;
            phases ^= 1 << stage;
        }
        advance();
        if (ALTERNATE) advance();
        const int3 done = tile;
        stores = true;
        if (SHARERS == 1) begin();  // the sums leave the slot free
        range_b = {__reduce_min_sync(~0u, range_b.least), __reduce_max_sync(~0u, range_b.most)};
        if (WHOLE && is_whole(p, done, sum, __reduce_min_sync(~0u, min(least_a[0], least_a[1])), range_b)) {
            store_whole(p, done, own, sum);
        } else {
            Met& met = shared.met[warp];
#pragma unroll
            for (int h = 0; h < 2; h++) {
#pragma unroll
                for (int other = 1; other < 4; other *= 2) least_a[h] = min(least_a[h], __shfl_xor_sync(~0u, least_a[h], other));
                if (lane % 4 == 0) met.rows[lane / 4 + 8 * h] = least_a[h];
            }
            const unsigned of_a = most_a.of_warp();
            if (lane == 0) met.most_a = of_a, met.least_b = range_b.least, met.most_b = range_b.most;
            const auto together = [] {  // waits for all whose sums meet
                __syncwarp();
                if (CLUSTER > 1) cluster_sync();
                else if (SHARERS > 1) sync_at<1, CONSUMERS>();
            };
#pragma unroll 1
            for (int n0 = 0; n0 < TILE_N; n0 += AT_ONCE) {
#pragma unroll
                for (int i = 0; i < AT_ONCE / 8; i++)
#pragma unroll
                    for (int h = 0; h < 2; h++) {
                        const int at = 4 * i + 2 * h, other = AT_ONCE < TILE_N ? at + AT_ONCE / 2 : at;
                        const float x = n0 == 0 ? sum[at] : sum[other], y = n0 == 0 ? sum[at + 1] : sum[other + 1];
                        store_shared2(own + SUMS + sum_at(lane / 4 + 8 * h, 8 * i + lane % 4 * 2), x, y);
                    }
                together();
                finish(p, done, n0, raw, shared);
                together();
            }
        }
        if (SHARERS > 1) begin();
    }
    if (KEPT && tiles.end > 0) wait_for(tiles.panels_end() - 1);
    copy_wait<0>();
}

// Stores again those sums of a warp's rows of a tile that are NaN or Inf as they stand in C.
__device__ __forceinline__ void finish_spoiled(const Problem& p, const int3& tile, Shared& shared) {
    const int lane = threadIdx.x % 32, first = first_row();
    const Operand a = operand_of(p, false, tile.x), b = operand_of(p, true, tile.x);
    const long long c_row = SWAPPED ? p.c.col : p.c.row, c_column = SWAPPED ? p.c.row : p.c.col;
    int of_row = UNKNOWN;  // of row `lane`
    bool undecided = false;
#pragma unroll 1
    for (int n0 = 0; n0 < TILE_N; n0 += 32) {
        const int column = tile.z + n0 + lane;
        const bool exists = column < columns_of(p);
        float* const c = p.c.data + offset_of(p, p.c.batch, tile.x) + column * c_column;
        // A line with a finite sum has no NaN and no Inf; nor has any line of an operand of which none has (spoiled_rows and
        // spoiled_columns).
        unsigned rows = 0, odd_rows = 0;  // in bits: rows with a sum in this column that is not finite; rows with no other
        bool odd = exists && shared.spoiled_columns;
        float sum[ROWS];  // all loads are under way before the first is looked at
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            const int row = row_at(tile, first + i);
            sum[i] = exists && row < rows_of(p) ? c[row * c_row] : 0.f;
        }
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            const int row = row_at(tile, first + i);
            if (row >= rows_of(p)) continue;
            const bool finite = exists && is_finite(sum[i]);
            if (finite) odd = false;
            else if (exists) rows |= 1u << i;
            if (!__any_sync(~0u, finite) && shared.spoiled_rows) odd_rows |= 1u << i;
        }
        if (__popc(odd_rows) > 2 && n0 == 0) {
            // Several such rows: those with a NaN near their beginning are found all at once, each by LANES lanes.
            constexpr int LANES = 32 / ROWS;
            const int row = row_at(tile, first + lane % ROWS);
            bool nan = false;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int k = lane / ROWS + i * LANES;
                const float x = row < rows_of(p) && k < p.k ? a.data[row * a.row_stride + k * a.k_stride] : 0.f;
                nan |= x != x;
            }
            unsigned seen = __ballot_sync(~0u, nan);
#pragma unroll
            for (int other = 16; other >= ROWS; other /= 2) seen |= seen >> other;
            if (lane < ROWS && (seen >> lane & 1)) of_row = HAS_NAN;
        }
#pragma unroll 1
        for (; odd_rows != 0; odd_rows &= odd_rows - 1) {
            const int i = __ffs(odd_rows) - 1;
            if (__shfl_sync(~0u, of_row, i) != UNKNOWN) continue;
            const int found = nonfinite_of(a.data + row_at(tile, first + i) * a.row_stride, a.k_stride, p.k);
            if (lane == i) of_row = found;
        }
        const unsigned nan_rows = __ballot_sync(~0u, of_row == HAS_NAN);
        int of_column = FINITE;
        odd &= (rows & ~nan_rows) != 0;
        if (__popc(__ballot_sync(~0u, odd)) > 2 && odd) {  // likewise for columns
            bool nan = false;
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const float x = k < p.k ? b.data[column * b.row_stride + k * b.k_stride] : 0.f;
                nan |= x != x;
            }
            if (nan) of_column = HAS_NAN, odd = false;
        }
#pragma unroll 1
        for (unsigned lanes = __ballot_sync(~0u, odd); lanes != 0; lanes &= lanes - 1) {
            const int one = __ffs(lanes) - 1;
            const int found = nonfinite_of(b.data + (column + one - lane) * b.row_stride, b.k_stride, p.k);
            if (lane == one) of_column = found;
        }
        // First come the sums of rows with NaN or Inf, by lanes that have the columns; then those of columns, by lanes that
        // have the rows, if few columns have such sums.
        const auto store = [&](int row, int in_row, int column, int in_column, float* to) {
            if (!decided(in_row, in_column)) {
                undecided = true;
                return;
            }
            const float sum = sum_of_nonfinite(a.data + row * a.row_stride, a.k_stride, in_row, b.data + column * b.row_stride,
                                               b.k_stride, in_column);
            *to = epilogue(sum, bias_at(p, SWAPPED ? row : column));
        };
        unsigned by_row = __ballot_sync(~0u, of_row != UNKNOWN && of_row != FINITE);
        unsigned columns = __ballot_sync(~0u, (rows & ~by_row) != 0);
        if (__popc(columns) > ROWS) by_row = (1u << ROWS) - 1, columns = 0;
        const unsigned by_column = ~by_row;
#pragma unroll 1
        for (; by_row != 0; by_row &= by_row - 1) {
            const int i = __ffs(by_row) - 1, row = row_at(tile, first + i), in_row = __shfl_sync(~0u, of_row, i);
            if (rows >> i & 1) store(row, in_row, column, of_column, c + row * c_row);
        }
#pragma unroll 1
        for (; columns != 0; columns &= columns - 1) {
            const int one = __ffs(columns) - 1, row = row_at(tile, first + lane);
            const int in_column = __shfl_sync(~0u, of_column, one);
            if ((__shfl_sync(~0u, rows, one) & by_column) >> lane & 1)
                store(row, FINITE, column + one - lane, in_column, c + row * c_row + (one - lane) * c_column);
        }
    }
    if (undecided) shared.again.add(tile);
}

// What is left to do when all tiles have been stored. All consumers call it together.
__device__ __noinline__ void finish_odd(const Problem& p, Shared& shared, unsigned raw) {
    const Tiles tiles(p);
    const int group = threadIdx.x / 128;
    if (shared.spoiled.any()) {
#pragma unroll 1
        for (unsigned next = tiles.begin + (ALTERNATE ? group * tiles.step : 0); next < tiles.end;
             next += ALTERNATE ? 2 * tiles.step : tiles.step) {
            const int3 tile = tiles.at(next, tiles.panel_of(next));
            if (shared.spoiled.has(tile)) finish_spoiled(p, tile, shared);
        }
        sync_at<1, CONSUMERS>();
    }
    if (!shared.again.any()) return;
    // OWN: the rows of a tile that this block stores. HEIGHT: as many of them at a time as leave registers for the sums.
    constexpr int OWN = TILE_M / CLUSTER, HEIGHT = OWN * TILE_N / CONSUMERS > 32 ? OWN / 2 : OWN;
    // Eight rows of a raw tile of 16 are every second one, if fragments have the rows in that order.
    constexpr int ROW_STEP = OWN % 16 == 0 ? 1 : RawA::row_of(1);
    static_assert(OWN % 16 == 0 || OWN == 8);
    using Tile = Again<HEIGHT, TILE_N, CONSUMERS>;
    static_assert(Tile::BYTES <= A_RAW);
#pragma unroll 1
    for (unsigned next = tiles.begin; next < tiles.end; next += tiles.step) {
        const int3 tile = tiles.at(next, tiles.panel_of(next));
        if (!shared.again.has(tile)) continue;
        const long long c_row = SWAPPED ? p.c.col : p.c.row, c_column = SWAPPED ? p.c.row : p.c.col;
        float* const c = p.c.data + offset_of(p, p.c.batch, tile.x);
#pragma unroll 1
        for (int i = 0; i < OWN; i += HEIGHT) {
            const int row0 = row_at(tile, (CLUSTER > 1 ? cluster_rank() : 0) * OWN + i);
            Operand a = operand_of(p, false, tile.x).from(row0, 0);
            a.rows = (a.rows + ROW_STEP - 1) / ROW_STEP, a.row_stride *= ROW_STEP;
            Tile::multiply(a, operand_of(p, true, tile.x).from(tile.z, 0), p.k, raw,
                           [&](int row, int column, float sum) {
                               row = row * ROW_STEP + row0, column += tile.z;
                               c[row * c_row + column * c_column] = epilogue(sum, bias_at(p, SWAPPED ? row : column));
                           });
        }
    }
}

extern "C" __global__ void __launch_bounds__(CONSUMERS + 32 * PRODUCERS, 1) CLUSTER_DIMENSIONS
    mm32_direct(const __grid_constant__ Problem p) {
    extern __shared__ __align__(16) char dynamic[];
    __shared__ __align__(16) Shared shared;
    const unsigned ring = (shared_address(dynamic) + 1023) & ~1023u, raw = ring + STAGES * STAGE;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            for (auto& full : shared.full) barrier_init(shared_address(full) + 8 * i, TEAM);
            barrier_init(shared_address(shared.empty) + 8 * i, KEPT ? WARPS : WARPS / GROUPS);
        }
        fence_barrier_init();
        shared.spoiled = shared.again = {}, shared.spoiled_rows = shared.spoiled_columns = 0;
    }
    __syncthreads();
    if (threadIdx.x >= CONSUMERS) {
        give_registers<96>();
        produce(p, ring, raw + A_RAW, shared);
    } else {
        take_registers<200>();
        consume(p, ring, raw, shared);
        if (SHARERS == 1) sync_at<1, CONSUMERS>();  // otherwise they have waited for one another
        if (__builtin_expect(shared.spoiled.any() || shared.again.any(), false)) finish_odd(p, shared, raw);
    }
}
