// fallback: recomputes by IEEE fp32 FMAs what the tensor cores cannot keep (emulated/panels.cuh). The last launch of an emulated
// product; it returns at once if all groups of rows were accepted.
//
// - For rows of A and columns of B with NaN, Inf, an element out of range or too few elements that are not small, for those
//   that are steep, and for outliers if they are few: these rows and columns of C alone, if the decision lists all of them. If
//   there are more, the same is done tile by tile, as long as a tile has few of them.
// - For pairs of a row and a column that are not accepted for another reason: these elements of C alone, if a tile has few of
//   them, otherwise the whole tile.
// - Everything, if the decision's tier is FMA; each tile only until all of its sums are NaN.
//
// Launch: any number of blocks (grid-stride loop over slices of tiles); in clusters, whose blocks share K of the listed rows and
// columns, from sm_90 on. Threads, dynamic shared memory, registers, constants and what bounds it are those of fma/simt.cuh; the
// stats of a tile's rows of A use the memory of its ring. PRODUCTS as in emulated/panels.cuh.
#include "emulated/cancel.cuh"
#include "fma/simt.cuh"
#include "ptx/cluster.cuh"
#include "ptx/dependent_launch.cuh"

// Neighbouring columns of a tile that are tested as one, before they are tested one by one.
constexpr int AS_ONE = 8, ALL_AS_ONE = TILE_N / AS_ONE;
constexpr int AT_ONCE_IN_DOUBT = 2048;  // pairs in doubt that are tested before those that the samples reject are looked up
// What find_repair keeps in the memory of the ring: rows and columns, columns as one, pairs that are in doubt, and those that
// the samples reject.
static_assert(sizeof(TestedRow) * (TILE_M + TILE_N + ALL_AS_ONE) + 2 * (TILE_M * TILE_N + AT_ONCE_IN_DOUBT) <=
              4 * STAGES * TILE_K * (TILE_M + TILE_N + 2 * PAD));

// How many calls had their result from fp16x3 [0], fp16x3 with a scaled lo [1], bf16x6 [2], FMAs [3]; of all but the calls by
// FMAs, how many had tiles recomputed [4], and how many rows, columns or single elements [5]; and how many had their result
// from fp16 [6].
extern "C" {
__device__ unsigned long long mm32_tier_calls[7];
}

__device__ __forceinline__ void count_call(const Params& s, unsigned tier) {
    const unsigned first = PLANES == 3 ? 2 : PLANES == 2 ? s.decision->scaled_lo : 6;
    atomicAdd(&mm32_tier_calls[tier == FIRST_TIER ? first : tier + 1], 1ull);
}
__device__ __forceinline__ void count_recomputed(const Params& s, unsigned bit) {
    if ((atomicOr(&s.decision->recomputed, 1u << bit) >> bit & 1) == 0) atomicAdd(&mm32_tier_calls[4 + bit], 1ull);
}

// The most rows, and columns, of a tile that are recomputed alone if they are not listed; with more, the whole tile is.
constexpr int MOST_ALONE = 8;
constexpr int MOST_PAIRS = 128;  // the same for pairs
constexpr int MOST_SHARES = 16;  // the most blocks that share the pairs of a tile

// What a tile needs. All threads of a block find the same.
struct Repair {
    unsigned rows_alone, columns_alone;  // how many
    long long row[MOST_ALONE], column[MOST_ALONE];
    unsigned char row_alone[TILE_M], column_alone[TILE_N];
    unsigned rows_small, columns_small;  // how many are not alone and have small elements
    unsigned char row_small[TILE_M], column_small[TILE_N];
    // How many pairs are neither accepted together with others nor large; how many of these the samples reject.
    unsigned in_doubt, rejected;
    unsigned pairs, own;  // how many have to be recomputed; and how many of them are the block's share, which are listed
    short pair[MOST_PAIRS][2];
    GroupStats worst[2];  // of the rows and of the columns that are not alone
};
enum { NOTHING, SOME, WHOLE };  // SOME: rows, columns and pairs; WHOLE: all of the tile

// Looks at one row of A, or column of B, of a tile: number i.
template <int SIZE>
__device__ __forceinline__ void look_at(int i, const RowStats* stats, const unsigned* largest_at, const AcceptTest& test,
                                        TestedRow* tested, unsigned char (&alone)[SIZE], unsigned& count,
                                        long long (&listed)[MOST_ALONE], long long first, unsigned& small_count,
                                        unsigned char (&small)[SIZE], GroupStats& worst) {
    const RowStats x = stats[i];
    const TestedRow row = test.see(x, PLANES == 2 ? largest_at[i] : NOWHERE);
    tested[i] = row;
    if ((alone[i] = test.alone(row, Scale{x.scale}.flags()))) {
        const unsigned place = atomicAdd(&count, 1u);
        if (place < MOST_ALONE) listed[place] = first + i;
    } else {
        worst.worsen(as_group(row, test.k));
        if (row.small > 0.f) small[atomicAdd(&small_count, 1u)] = (unsigned char)i;
    }
}

// Whether `c`, a sum by bf16x6, is so large that what its small elements may have lost is nothing beside it, because |A||B|
// is at least |C|. Only where C is the sum and has no epilogue.
__device__ __forceinline__ bool is_large(const AcceptTest& test, float c, const TestedRow& x, const TestedRow& y) {
    return (x.small * y.largest + y.small * x.largest) * test.loss <= ALLOWED / 2 * (fabsf(c) * x.scale * y.scale);
}

// One column with the worst of `count` neighbours: a row that is accepted with it is accepted with each of them. Columns of
// zeros and those that are alone do not count.
__device__ __forceinline__ TestedRow worst_of(const TestedRow* columns, const unsigned char* alone, int count) {
    TestedRow worst{{{~0ull, ~0ull}, {~0ull, ~0ull}}, 0.f, 0.f, 0, ~0u, NOWHERE, 1.f};
    for (int j = 0; j < count; j++) {
        const TestedRow& x = columns[j];
        if (alone[j] || x.regular == ~0u) continue;
        worst.level = worst.regular == ~0u ? x.level : min(worst.level, x.level);  // the first one has none before it
        worst.largest = fmaxf(worst.largest, x.largest), worst.small = fmaxf(worst.small, x.small);
        worst.regular = min(worst.regular, x.regular);
#pragma unroll
        for (int i = 0; i < 4; i++) worst.big[i / 2][i % 2] &= x.big[i / 2][i % 2];
    }
    return worst;
}

// Finds what a tile needs. `listed`: rows and columns that are alone have been recomputed already. `by_size`: see is_large.
// `share` of `shares`: this block's part of the pairs. `tested`: memory for the rows of A, then the columns of B. `tile` and
// `test` are copies, because what is behind a reference is read from memory again after each store.
__device__ __noinline__ int find_repair(const Params& s, const Tile tile, const AcceptTest test, bool all_pairs, bool listed,
                                           bool by_size, int share, int shares, TestedRow* tested, Repair& repair) {
    static_assert(TILE_M <= 256 && TILE_N <= 256);
    const Problem& p = s.p;
    const int rows = (int)min(p.m - tile.m0, (long long)TILE_M), columns = (int)min(p.n - tile.n0, (long long)TILE_N);
    const long long first_row = packed_matrix(s, 0, tile.matrix) * p.m + tile.m0,
                    first_column = packed_matrix(s, 1, tile.matrix) * p.n + tile.n0;
    TestedRow *const a = tested, *const b = tested + TILE_M;
    if (threadIdx.x == 0) {
        repair.rows_alone = repair.columns_alone = repair.rows_small = repair.columns_small = 0;
        repair.in_doubt = repair.rejected = repair.pairs = repair.own = 0;
    }
    if (threadIdx.x < 2) repair.worst[threadIdx.x] = NOTHING_SEEN;
    __syncthreads();
    GroupStats worst[2] = {NOTHING_SEEN, NOTHING_SEEN};
    for (int i = threadIdx.x; i < rows; i += THREADS)
        look_at(i, s.stats[0] + first_row, places_of_largest(s, 0) + first_row, test, a, repair.row_alone, repair.rows_alone,
                repair.row, tile.m0, repair.rows_small, repair.row_small, worst[0]);
    for (int i = threadIdx.x; i < columns; i += THREADS)
        look_at(i, s.stats[1] + first_column, places_of_largest(s, 1) + first_column, test, b, repair.column_alone,
                repair.columns_alone, repair.column, tile.n0, repair.columns_small, repair.column_small, worst[1]);
    for (int side = 0; side < 2; side++) {
        worst[side].worsen_by_warp();
        if (threadIdx.x % 32 == 0) repair.worst[side].join(worst[side]);
    }
    __syncthreads();
    if (!listed && (repair.rows_alone > MOST_ALONE || repair.columns_alone > MOST_ALONE)) return WHOLE;
    if (all_pairs && !test.accept(repair.worst[0], repair.worst[1])) {
        const Pointers at = pointers_of(p, tile.matrix);
        const Operand of_a = operand_of(p, at, 0), of_b = operand_of(p, at, 1);
        const auto rejected = [&](int row, int column) {  // by the samples
            return !repair.row_alone[row] && !repair.column_alone[column] && !test.accept(a[row], b[column]);
        };
        const auto term = [&](int row, int column) {
            return PLANES == 2 ? largest_term(of_a, tile.m0 + row, a[row], of_b, tile.n0 + column, b[column]) : 0.f;
        };
        const long long c_row = p.c.row, c_col = p.c.col;
        const float* const c_tile = at.c + tile.m0 * c_row + tile.n0 * c_col;
        const auto sum_at = [=](int row, int column) { return c_tile[row * c_row + column * c_col]; };
        const auto keep = [&](int row, int column) {
            if (atomicAdd(&repair.pairs, 1u) >= MOST_PAIRS || (row + column) % shares != share) return;
            const unsigned place = atomicAdd(&repair.own, 1u);
            repair.pair[place][0] = (short)row, repair.pair[place][1] = (short)column;
        };
        const int of_rows = (int)repair.rows_small * columns, small = of_rows + (int)repair.columns_small * rows;
        // Without small elements nothing is lost; then only the number of products could be too small.
        const bool enough =
            test.required == 0 || (long long)repair.worst[0].regular + repair.worst[1].regular - p.k >= test.required;
        if (enough && small < rows * columns / 4) {
            for (int i = threadIdx.x; i < small; i += THREADS) {
                const bool of_row = i < of_rows;
                const int row = of_row ? repair.row_small[i / columns] : (i - of_rows) % rows;
                const int column = of_row ? i % columns : repair.column_small[(i - of_rows) / rows];
                // A pair whose row and column both have small elements is tried once, with those of its row.
                if (!(of_row || a[row].small == 0.f) || !rejected(row, column)) continue;
                if (by_size && is_large(test, sum_at(row, column), a[row], b[column])) continue;
                if (PLANES != 2 || !test.accept(a[row], b[column], term(row, column))) keep(row, column);
            }
        } else {
            // Most pairs are accepted together with others, or large. What is left is shared out evenly among the threads.
            TestedRow* const as_one = b + TILE_N;
            unsigned short* const in_doubt = reinterpret_cast<unsigned short*>(as_one + ALL_AS_ONE);
            static_assert(TILE_M <= 256 && TILE_N <= 256);
            if (by_size) {
                constexpr int AHEAD = 16;  // sums whose loads are waited for together
                const bool along_rows = c_col != 1;
                for (int first = threadIdx.x; first < TILE_M * TILE_N; first += AHEAD * THREADS) {
                    const auto row_of = [&](int j) {
                        return along_rows ? (first + j * THREADS) % TILE_M : (first + j * THREADS) / TILE_N;
                    };
                    const auto column_of = [&](int j) {
                        return along_rows ? (first + j * THREADS) / TILE_M : (first + j * THREADS) % TILE_N;
                    };
                    float c[AHEAD];
#pragma unroll
                    for (int j = 0; j < AHEAD; j++)
                        c[j] = row_of(j) < rows && column_of(j) < columns ? sum_at(row_of(j), column_of(j)) : 0.f;
#pragma unroll
                    for (int j = 0; j < AHEAD; j++) {
                        const int row = row_of(j), column = column_of(j);
                        if (row < rows && column < columns && !repair.row_alone[row] && !repair.column_alone[column] &&
                            !is_large(test, c[j], a[row], b[column]))
                            in_doubt[atomicAdd(&repair.in_doubt, 1u)] = (unsigned short)(row | column << 8);
                    }
                }
            } else {
                const int groups = (columns + AS_ONE - 1) / AS_ONE;
                for (int i = threadIdx.x; i < groups; i += THREADS)
                    as_one[i] = worst_of(b + i * AS_ONE, repair.column_alone + i * AS_ONE, min(columns - i * AS_ONE, AS_ONE));
                __syncthreads();
                constexpr int OF_A_ROW = THREADS > TILE_M ? THREADS / TILE_M : 1;  // threads that share the columns of a row
#pragma unroll 1
                for (int row = threadIdx.x / OF_A_ROW; row < rows; row += THREADS / OF_A_ROW) {
                    if (repair.row_alone[row]) continue;
                    const TestedRow mine = a[row];
#pragma unroll 1
                    for (int i = threadIdx.x % OF_A_ROW; i < groups; i += OF_A_ROW) {
                        if (test.accept(mine, as_one[i])) continue;
                        const int count = min(columns - i * AS_ONE, AS_ONE);
                        const unsigned place = atomicAdd(&repair.in_doubt, (unsigned)count);
                        for (int j = 0; j < count; j++) in_doubt[place + j] = (unsigned short)(row | (i * AS_ONE + j) << 8);
                    }
                }
            }
            __syncthreads();
            unsigned short* const to_look_up = in_doubt + TILE_M * TILE_N;
#pragma unroll 1
            for (int begin = 0; begin < (int)repair.in_doubt; begin += AT_ONCE_IN_DOUBT) {
                const int end = min(begin + AT_ONCE_IN_DOUBT, (int)repair.in_doubt);
#pragma unroll 1
                for (int i = begin + threadIdx.x; i < end; i += THREADS)
                    if (rejected(in_doubt[i] & 255, in_doubt[i] >> 8)) to_look_up[atomicAdd(&repair.rejected, 1u)] = in_doubt[i];
                __syncthreads();
                const int left = (int)repair.rejected;
                constexpr int AHEAD = 4;  // pairs of a thread whose terms are waited for together
#pragma unroll 1
                for (int first = threadIdx.x; first < left; first += AHEAD * THREADS) {
                    int pair[AHEAD];
                    float terms[AHEAD];
#pragma unroll
                    for (int j = 0; j < AHEAD; j++) {
                        pair[j] = to_look_up[min(first + j * THREADS, left - 1)];
                        terms[j] = term(pair[j] & 255, pair[j] >> 8);
                    }
#pragma unroll
                    for (int j = 0; j < AHEAD; j++) {
                        const int row = pair[j] & 255, column = pair[j] >> 8;
                        if (first + j * THREADS < left && (PLANES != 2 || !test.accept(a[row], b[column], terms[j])))
                            keep(row, column);
                    }
                }
                __syncthreads();
                if (threadIdx.x == 0) repair.rejected = 0;
                __syncthreads();
            }
        }
        __syncthreads();
        if (repair.pairs > MOST_PAIRS) return WHOLE;
    }
    return (!listed && repair.rows_alone + repair.columns_alone) || repair.pairs ? SOME : NOTHING;
}

// At most TOGETHER rows, or columns, of C are recomputed together, at WIDTH neighbouring places along them at a time: PER for
// each of OTHERS threads. LANES threads share K.
constexpr int TOGETHER = 8, OTHERS = 8, PER = 4, WIDTH = OTHERS * PER, LANES = THREADS / OTHERS;
static_assert(MOST_ALONE <= TOGETHER && LANES == 16);

// Multiplies `count` lines of one matrix of operand `side`, up to COUNT, by WIDTH rows of the other operand from `first` on,
// which is loaded as LOAD says (fma/simt.cuh). Of columns, the elements in rows that are alone are left out, so that each
// element has one order of sums. `memory`: that of the ring. A thread issues the loads of all of its part of a chunk of the
// other operand at once, 16 bytes each if they are aligned: instructions are the bound here, and loads of few bytes took
// three times as long. The lines' part of the chunk goes through shared memory. A sum over K is that of the sums of its
// parts, one for each block of a cluster. `by_cluster`: each block computes its own part, and all of them call this together;
// otherwise a block computes all parts, and adds them in the same order, for the same bits.
template <int COUNT, int LOAD>
__device__ __noinline__ void recompute_lines(const Params& s, int side, long long matrix, const long long* lines, int count,
                                                long long first, const AcceptTest& test, float* memory, bool by_cluster) {
    constexpr bool ALONG_K = LOAD >= 2, VECTOR = LOAD % 2 == 0;
    // A thread loads fours: four neighbours along K, or one place of K of four rows. There are LOADS of them in a chunk.
    constexpr int CHUNK_K = 256, LOADS = CHUNK_K * PER / LANES / 4, OWN = CHUNK_K / THREADS,
                  OUTS = (COUNT * WIDTH + THREADS - 1) / THREADS;
    constexpr int FOURS = CHUNK_K / 4 + 1, LANE_STEP = LANES + 1;  // padded, so that threads meet different banks
    static_assert((COUNT == 2 || COUNT == 8) && COUNT * 4 * FOURS <= STAGES * TILE_K * (TILE_M + TILE_N) &&
                  COUNT * WIDTH * LANE_STEP <= STAGES * TILE_K * (TILE_M + TILE_N));
    const Problem& p = s.p;
    const Pointers at = pointers_of(p, matrix);
    const Operand x = operand_of(p, at, side), y = operand_of(p, at, 1 - side);
    const int other = ALONG_K ? threadIdx.x / LANES : threadIdx.x % OTHERS,
              lane = ALONG_K ? threadIdx.x % LANES : threadIdx.x / OTHERS;
    const auto place_of = [&](int c) { return LOAD == 0 ? other * PER + c : other + c * OTHERS; };
    // A thread has four neighbouring places along K, whatever the loads, and those 4 * LANES further on.
    const auto k_of = [&](int i) { return 4 * lane + i / 4 * 4 * LANES + i % 4; };
    // Where the lines' elements at place k are: both, or four of eight (`four`: the first or the second four).
    const auto in_memory = [](int k, int four) {
        return COUNT == 8 ? 4 * ((k % 4 * 2 + four) * FOURS + k / 4) : 2 * (k % 4 * FOURS + k / 4);
    };
    const int parts = (int)cluster_size(), rank = (int)cluster_rank();
    const long long each = ceil_div(p.k, 4 * LANES * parts) * 4 * LANES;
    float total[OUTS] = {};
#pragma unroll 1
    for (int part = by_cluster ? rank : 0; part < (by_cluster ? rank + 1 : parts); part++) {
        const long long begin = min(part * each, p.k), end = min(begin + each, p.k);
        const float *of_y[PER], *of_x[COUNT];
#pragma unroll
        for (int c = 0; c < PER; c++)  // past the edge: the last row again, or the last four
            of_y[c] =
                y.data + min(first + place_of(c), y.rows - (LOAD == 0 ? PER : 1)) * y.row_stride + (begin + k_of(0)) * y.k_stride;
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            of_x[i] = x.data + lines[min(i, count - 1)] * x.row_stride + (begin + threadIdx.x) * x.k_stride;
        float sum[COUNT][PER] = {};
#pragma unroll 1
        for (long long k0 = begin; k0 < end; k0 += CHUNK_K) {
            const int left = (int)min(end - k0, (long long)CHUNK_K);
            float v[LOADS][4];
#pragma unroll
            for (int j = 0; j < LOADS; j++) {
                // Along K, number j has four k of place j % PER; otherwise it has one k of all PER places.
                const int first_k = k_of(ALONG_K ? j / PER * 4 : j);
                if (VECTOR) {
                    const float* const from = ALONG_K ? of_y[j % PER] + j / PER * 4 * LANES : of_y[0];
                    const float4 q =
                        first_k < left ? __ldg(reinterpret_cast<const float4*>(from)) : make_float4(0.f, 0.f, 0.f, 0.f);
                    v[j][0] = q.x, v[j][1] = q.y, v[j][2] = q.z, v[j][3] = q.w;
                } else {
#pragma unroll
                    for (int e = 0; e < 4; e++)
                        v[j][e] = first_k + (ALONG_K ? e : 0) < left
                                      ? __ldg(ALONG_K ? of_y[j % PER] + j / PER * 4 * LANES + e : of_y[e])
                                      : 0.f;
                }
                if (!ALONG_K)
#pragma unroll
                    for (int c = 0; c < (VECTOR ? 1 : PER); c++) of_y[c] += (j % 4 == 3 ? 4 * LANES - 3 : 1) * y.k_stride;
            }
            if (ALONG_K)
#pragma unroll
                for (int c = 0; c < PER; c++) of_y[c] += CHUNK_K;
            // All of these loads, too, are issued before the first is used: one after another, they took most of a chunk's
            // time.
            float of_k[OWN][COUNT];
#pragma unroll
            for (int j = 0; j < OWN; j++)
#pragma unroll
                for (int i = 0; i < COUNT; i++) {
                    of_k[j][i] = (int)threadIdx.x + j * THREADS < left ? __ldg(of_x[i]) : 0.f;
                    of_x[i] += THREADS * x.k_stride;
                }
            __syncthreads();  // the chunk before is done with
#pragma unroll
            for (int j = 0; j < OWN; j++) {
                const int k = threadIdx.x + j * THREADS;
                if constexpr (COUNT == 8) {
#pragma unroll
                    for (int four = 0; four < 2; four++)
                        *reinterpret_cast<float4*>(memory + in_memory(k, four)) =
                            make_float4(of_k[j][4 * four], of_k[j][4 * four + 1], of_k[j][4 * four + 2], of_k[j][4 * four + 3]);
                } else {
                    *reinterpret_cast<float2*>(memory + in_memory(k, 0)) = make_float2(of_k[j][0], of_k[j][1]);
                }
            }
            __syncthreads();
            // For each of the thread's places of K: the lines' elements times those of PER rows of the other operand.
            constexpr int PLACES = CHUNK_K / LANES;
#pragma unroll
            for (int i_k = 0; i_k < PLACES; i_k++) {
                const int k = k_of(i_k);
                float of_lines[COUNT];
                if constexpr (COUNT == 8) {
#pragma unroll
                    for (int four = 0; four < 2; four++) {
                        const float4 q = *reinterpret_cast<const float4*>(memory + in_memory(k, four));
                        of_lines[4 * four] = q.x, of_lines[4 * four + 1] = q.y, of_lines[4 * four + 2] = q.z,
                                     of_lines[4 * four + 3] = q.w;
                    }
                } else {
                    const float2 q = *reinterpret_cast<const float2*>(memory + in_memory(k, 0));
                    of_lines[0] = q.x, of_lines[1] = q.y;
                }
#pragma unroll
                for (int i = 0; i < COUNT; i++)
#pragma unroll
                    for (int c = 0; c < PER; c++)
                        sum[i][c] = fmaf(of_lines[i], ALONG_K ? v[i_k / 4 * PER + c][i_k % 4] : v[i_k][c], sum[i][c]);
            }
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < COUNT; i++)
#pragma unroll
            for (int c = 0; c < PER; c++) memory[(i * WIDTH + place_of(c)) * LANE_STEP + lane] = sum[i][c];
        __syncthreads();
#pragma unroll
        for (int own = 0; own < OUTS; own++) {
            const int out = threadIdx.x + own * THREADS;
            if (out >= COUNT * WIDTH) break;
            float of_lane[LANES];
#pragma unroll
            for (int j = 0; j < LANES; j++) of_lane[j] = memory[out * LANE_STEP + j];
#pragma unroll
            for (int half = LANES / 2; half > 0; half /= 2)
#pragma unroll
                for (int j = 0; j < LANES / 2; j++)
                    if (j < half) of_lane[j] += of_lane[j + half];
            total[own] += of_lane[0];
        }
    }
    if (by_cluster && parts > 1) {
        __syncthreads();
#pragma unroll
        for (int own = 0; own < OUTS; own++)
            if (threadIdx.x + own * THREADS < COUNT * WIDTH) memory[threadIdx.x + own * THREADS] = total[own];
        cluster_sync();
        if (rank == 0)
#pragma unroll
            for (int own = 0; own < OUTS; own++) {
                const int out = threadIdx.x + own * THREADS;
                total[own] = 0.f;
                if (out >= COUNT * WIDTH) break;
                for (int i = 0; i < parts; i++) {
                    float of_part[1];
                    load_cluster<true>(shared_address(memory + out), i, of_part);
                    total[own] += of_part[0];
                }
            }
        __syncwarp();
        cluster_sync();  // until then nobody writes there
        if (rank != 0) return;
    }
#pragma unroll
    for (int own = 0; own < OUTS; own++) {
        const int out = threadIdx.x + own * THREADS, i = out / WIDTH;
        const long long place = first + out % WIDTH;
        if (out >= COUNT * WIDTH || i >= count || place >= y.rows) continue;
        const long long m = side ? place : lines[i], n = side ? lines[i] : place;
        bool alone = false;
        if (side) {
            const RowStats row = s.stats[0][packed_matrix(s, 0, matrix) * p.m + m];
            alone = test.alone(test.see(row), Scale{row.scale}.flags());
        }
        if (!alone) at.c[m * p.c.row + n * p.c.col] = epilogue(total[own], bias_at(p, n));
    }
    __syncthreads();
}

__device__ __forceinline__ void recompute_some_lines(const Params& s, int side, long long matrix, const long long* lines,
                                                     int count, long long first, const AcceptTest& test, float* memory,
                                                     bool by_cluster = false) {
    if (side) {
        if (count <= 2) recompute_lines<2, MM32_A_LOAD>(s, side, matrix, lines, count, first, test, memory, by_cluster);
        else recompute_lines<TOGETHER, MM32_A_LOAD>(s, side, matrix, lines, count, first, test, memory, by_cluster);
    } else {
        if (count <= 2) recompute_lines<2, MM32_B_LOAD>(s, side, matrix, lines, count, first, test, memory, by_cluster);
        else recompute_lines<TOGETHER, MM32_B_LOAD>(s, side, matrix, lines, count, first, test, memory, by_cluster);
    }
}

// The rows, or columns, that the decision lists, as units: up to TOGETHER of them times WIDTH places along them.
struct ListedLines {
    int count, together;
    // Whether the whole batch shares the operand, so that they are lines of all of the batch; otherwise each has its own matrix.
    bool one;
    long long slices, copies, units;

    __device__ __forceinline__ ListedLines(const Params& s, int side) {
        const Problem& p = s.p;
        one = s.matrices[side] == 1;
        count = (int)s.decision->alone[side], together = one ? TOGETHER : 1, copies = one ? p.batches : 1;
        slices = ceil_div(side ? p.m : p.n, WIDTH), units = ceil_div(count, together) * copies * slices;
    }
};

// Recomputes all of them. `lines` and `of_matrix` are shared memory.
__device__ __forceinline__ void recompute_listed(const Params& s, int list, const AcceptTest& test, long long (&lines)[TOGETHER],
                                                 long long& of_matrix, float* memory) {
    const Problem& p = s.p;
    const ListedLines of_a(s, 0), of_b(s, 1);
    for (long long i = blockIdx.x / cluster_size(); i < of_a.units + of_b.units; i += gridDim.x / cluster_size()) {
        const int side = i >= of_a.units;
        const ListedLines x = side ? of_b : of_a;
        const long long unit = side ? i - of_a.units : i, rest = unit / x.slices, rows = side ? p.n : p.m;
        const int begin = (int)(rest / x.copies) * x.together, here = min(x.count - begin, x.together);
        if (threadIdx.x < here) {
            const long long row = s.decision->listed[list][side][begin + threadIdx.x];
            lines[threadIdx.x] = x.one ? row : row % rows;
            if (threadIdx.x == 0) of_matrix = x.one ? rest % x.copies : row / rows;
        }
        __syncthreads();
        recompute_some_lines(s, side, of_matrix, lines, here, unit % x.slices * WIDTH, test, memory, true);
    }
}

// Recomputes the rows and columns of a tile that are alone: slice `slice` of SLICES.
constexpr int SLICES = TILE_N / WIDTH;
__device__ __forceinline__ void recompute_alone(const Params& s, const Tile& tile, int slice, const Repair& repair,
                                                const AcceptTest& test, float* memory) {
    if (repair.rows_alone && tile.n0 + slice * WIDTH < s.p.n)
        recompute_some_lines(s, 0, tile.matrix, repair.row, (int)repair.rows_alone, tile.n0 + slice * WIDTH, test, memory);
    if (!repair.columns_alone) return;
    constexpr int ROWS = TILE_M / SLICES;
    for (long long m = tile.m0 + slice * ROWS; m < min(tile.m0 + (slice + 1) * ROWS, s.p.m); m += WIDTH)
        recompute_some_lines(s, 1, tile.matrix, repair.column, (int)repair.columns_alone, m, test, memory);
}

// The same for listed lines, after all of their tile has been recomputed, so that their elements have their own order of sums
// again.
__device__ __forceinline__ void recompute_alone_again(const Params& s, const Tile& tile, Repair& repair, const AcceptTest& test,
                                                      float* memory) {
    for (int side = 0; side < 2; side++) {
        const long long first = side ? tile.n0 : tile.m0, others = side ? tile.m0 : tile.n0;
        const long long end = side ? min(tile.m0 + TILE_M, s.p.m) : min(tile.n0 + TILE_N, s.p.n);
        for (int i = 0; i < (side ? TILE_N : TILE_M) && first + i < (side ? s.p.n : s.p.m); i++) {
            if (!(side ? repair.column_alone[i] : repair.row_alone[i])) continue;
            if (threadIdx.x == 0) repair.row[0] = first + i;
            __syncthreads();
            for (long long other = others; other < end; other += WIDTH)
                recompute_some_lines(s, side, tile.matrix, repair.row, 1, other, test, memory);
        }
    }
}

// A block recomputes AT_ONCE pairs together; its threads share K. `memory`: a float for each thread and pair.
constexpr int AT_ONCE = 8;
__device__ __noinline__ void recompute_pairs(const Params& s, const Tile& tile, const Repair& repair, float* memory) {
    constexpr int WARPS = THREADS / 32;
    static_assert(WARPS == 4);
    const Problem& p = s.p;
    const Pointers at = pointers_of(p, tile.matrix);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, pairs = (int)repair.own;
#pragma unroll 1
    for (int first = 0; first < pairs; first += AT_ONCE) {
        const float *a[AT_ONCE], *b[AT_ONCE];
        float sum[AT_ONCE] = {};
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            const short* const pair = repair.pair[min(first + i, pairs - 1)];
            a[i] = at.a + (tile.m0 + pair[0]) * p.a.row + threadIdx.x * p.a.col,
            b[i] = at.b + (tile.n0 + pair[1]) * p.b.col + threadIdx.x * p.b.row;
        }
#pragma unroll 4
        for (long long k = threadIdx.x; k < p.k; k += THREADS) {
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++) {
                sum[i] = fmaf(*a[i], *b[i], sum[i]);
                a[i] += THREADS * p.a.col, b[i] += THREADS * p.b.row;
            }
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) memory[i * THREADS + threadIdx.x] = sum[i];
        __syncthreads();
        for (int i = warp; i < AT_ONCE && first + i < pairs; i += WARPS) {
            const float* const part = memory + i * THREADS + lane;
            float x = (part[0] + part[64]) + (part[32] + part[96]);
#pragma unroll
            for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(~0u, x, offset);
            const long long m = tile.m0 + repair.pair[first + i][0], n = tile.n0 + repair.pair[first + i][1];
            if (lane == 0) at.c[m * p.c.row + n * p.c.col] = epilogue(x, bias_at(p, n));
        }
        __syncthreads();
    }
}

// Recomputes all of a tile. Not inlined: what is alive around it would cost it registers.
__device__ __noinline__ void recompute_tile(const Params& s, const Tile& tile, float* ring) {
    multiply_tile<true>(s.p, tile, {0, s.p.k, pointers_of(s.p, tile.matrix).c, s.p.c.row, s.p.c.col}, ring);
}

// The group that holds the rows of one operand that a tile needs.
__device__ __forceinline__ const GroupStats& group_of(const Params& s, int side, long long matrix, long long first) {
    static_assert(READY_ROWS % TILE_M == 0 && READY_ROWS % TILE_N == 0);
    const long long tile = row_tile(s, side, packed_matrix(s, side, matrix), first);
    return s.decision->groups[side][tile >> group_shift(row_tiles(s, side))];
}

extern "C" __global__ void __launch_bounds__(THREADS, MM32_BLOCKS_PER_SM) mm32_fallback(const __grid_constant__ Params s) {
    extern __shared__ __align__(16) float ring[];
    __shared__ unsigned to_test[THREADS], count;
    __shared__ Repair repair;
    __shared__ long long lines[TOGETHER], of_matrix;
    wait_for_previous_grid();
    bool cancelled = cancels(*s.decision);
    cancelled = cancelled && s.decision->tier == FIRST_TIER;  // and no lower tier has computed it since
    const unsigned tier = cancelled ? FMA : s.decision->tier;
    if (blockIdx.x == 0 && threadIdx.x == 0) count_call(s, tier);
    if (!s.decision->unsure && !cancelled) return;
    AcceptTest test(s, s.decision->scaled_lo);
    const unsigned has_alone = s.decision->few_outliers ? 3 : 1;  // bits of GroupStats::alone
    if (has_alone == 3) test.flags_alone |= OUTLIER;
    // With bf16x6, pairs are tested only if there were tiny elements, and then for one place at which both are big: beside
    // that, what is lost of a tiny element is nothing.
    const bool all_pairs = tier == FIRST_TIER || s.decision->tiny;
    if (tier == BF16X6) test.limit = LARGEST_BF16X6, test.loss = 0x1p-100f, test.required = 0;
    const long long tiles = tiles_of<TILE_M, TILE_N>(s.p);
    if (tier == FMA) {
        for (long long i = blockIdx.x; i < tiles; i += gridDim.x) recompute_tile(s, tile_at<TILE_M, TILE_N, false>(s.p, i), ring);
        return;
    }
    const unsigned* const alone = s.decision->alone;
    const bool listed = alone[0] <= LISTED && alone[1] <= LISTED;
    const bool by_size = tier == BF16X6 && listed && !(MM32_BIAS || MM32_ACTIVATION);  // is_large looks at sums
    if (listed && (alone[0] || alone[1])) {
        if (blockIdx.x == 0 && threadIdx.x == 0) count_recomputed(s, 1);
        recompute_listed(s, tier == BF16X6, test, lines, of_matrix, ring);
    }
    // Whole tiles and pairs; then, if there are rows or columns to recompute that are not listed, slices of tiles that have them.
    for (int phase = 0; phase < (listed ? 1 : 2); phase++) {
        // Where there are fewer tiles than blocks, blocks share a tile's pairs; but not where sums in C decide which, because
        // another block might have stored its own by then.
        const int shares = phase ? SLICES : by_size ? 1 : (int)max(1LL, min(gridDim.x / tiles, (long long)MOST_SHARES));
        const long long units = tiles * shares;  // share after share of all tiles
        for (long long base = blockIdx.x; base < units; base += (long long)gridDim.x * THREADS) {
            // First each thread tests one unit's tile by its groups of rows; then the block tests the rejected tiles row by row.
            if (threadIdx.x == 0) count = 0;
            __syncthreads();
            const long long mine = base + (long long)threadIdx.x * gridDim.x;
            if (mine < units) {
                const Tile tile = tile_at<TILE_M, TILE_N, false>(s.p, mine % tiles);
                const GroupStats a = group_of(s, 0, tile.matrix, tile.m0), b = group_of(s, 1, tile.matrix, tile.n0);
                const bool in_range = __uint_as_float(a.largest) <= test.limit && __uint_as_float(b.largest) <= test.limit;
                const bool lines_left = !listed && ((a.alone | b.alone) & has_alone || !in_range);
                if (lines_left || (phase == 0 && all_pairs && !test.accept(a, b))) to_test[atomicAdd(&count, 1u)] = threadIdx.x;
            }
            __syncthreads();
            for (unsigned i = 0; i < count; i++) {
                const long long at = base + (long long)to_test[i] * gridDim.x;
                const Tile tile = tile_at<TILE_M, TILE_N, false>(s.p, at % tiles);
                const int share = (int)(at / tiles);
                const int needed = find_repair(s, tile, test, all_pairs, listed, by_size, share, shares,
                                               reinterpret_cast<TestedRow*>(ring), repair);
                __syncthreads();  // the ring is free
                if (needed == SOME) {
                    if (threadIdx.x == 0) count_recomputed(s, 1);
                    if (phase) recompute_alone(s, tile, share, repair, test, ring);
                    else recompute_pairs(s, tile, repair, ring);
                } else if (needed == WHOLE && phase == 0 && share == 0) {
                    if (threadIdx.x == 0) count_recomputed(s, 0);
                    recompute_tile(s, tile, ring);
                    if (listed) recompute_alone_again(s, tile, repair, test, ring);
                }
                __syncthreads();  // `repair` and the ring are free again
            }
            __syncthreads();
        }
    }
}
