// pack: operands of any strides -> packed panels (emulated/panels.cuh), in two kernels.
//
// mm32_scale samples every row and chooses its exponent. In clusters (from sm_90 on) all blocks of a cluster have the same
// rows: all of them sample, each reads its part of K of the rows that are read whole, and the first writes what was found.
//   Launch: any number of blocks of 256 or 512 threads (grid-stride loop over groups of 32 rows, all of A and then all of B).
//   256 of a block's threads sample; all of them read rows whole, if there are such rows. 11 KB of shared memory. Bound by
//   the latency of the samples, which are loaded together; where rows are read whole, by memory. 64 registers: two blocks of
//   mm32_pack then fit beside one of 512 threads.
//
// mm32_pack reads each element once, scales it, splits it, and writes whole 128-byte lines. It collects the stats of each row,
// and the block that finishes last runs the accept test on them.
//   Launch: any number of blocks of 256 threads (grid-stride loop over units; a unit is CHUNK K-blocks of 64 rows for loads 0 and
//   1, of 16 rows for others). Launched with one block a multiprocessor, it packs while the multiply runs, in the order in which
//   the multiply's first tiles need the panels, and counts finished units in `ready`. 16 KB of shared memory if it transposes hi
//   and lo, 15.4 KB with shifted lines, otherwise none. 64 registers, so that a block fits on a multiprocessor beside one of the
//   multiply; loads 0 and 1 spill up to 23. Bound by memory: it reads 4 bytes and writes 4 for each element (2 with one product).
//   MM32_A_LOAD, MM32_B_LOAD   0  contiguous along rows, aligned: 8-byte loads, transposed through shared memory
//                              1  anything else, neighbouring threads along rows
//                              2  contiguous along K, aligned: 16-byte loads, a half-warp has a row, written without transposing
//                              4  contiguous along rows, at any multiple of 4 bytes: emulated/shifted_lines.cuh
//                              5  the same, contiguous along K
//                              6  none: prepacked, by an earlier call of these kernels in which the other operand had no rows
//   MM32_PRODUCTS              see emulated/panels.cuh
//   MM32_GUARDED               1: this is the lower tier's packing, which does something only if the decision asks for it
//   MM32_DECIDES               1: the block that finishes last decides which tier computes the product (emulated/decide.cuh)
#include "emulated/cancel.cuh"
#include "emulated/decide.cuh"
#include "emulated/early.cuh"
#include "emulated/hi_lo.cuh"
#include "emulated/shifted_lines.cuh"
#include "ptx/cluster.cuh"
#include "ptx/dependent_launch.cuh"

constexpr int THREADS = 256, WARPS = THREADS / 32, WIDTH = 2, ROWS = 32 * WIDTH;
constexpr bool A_PREPACKED = MM32_A_LOAD == PREPACKED, B_PREPACKED = MM32_B_LOAD == PREPACKED;
constexpr int SHIFTED = 4;  // stands for loads 4 and 5, which have one piece of code
constexpr int A_LOAD = MM32_A_LOAD == 5 ? SHIFTED : MM32_A_LOAD, B_LOAD = MM32_B_LOAD == 5 ? SHIFTED : MM32_B_LOAD;
template <int LOAD>
constexpr bool IS_ALONG_K = LOAD >= 2 && LOAD != 4;  // PREPACKED counts as along K, but no row of it is read

// Where run `i` of the sample begins. Along a contiguous K, a run is two 32-byte sectors. The first run is at K = 0 and the
// last at the end: operands that grow or decay along K are largest there.
__device__ __forceinline__ int run_begin(int i, int depth) {
    return depth <= SAMPLES ? i * RUN : i * ((depth - RUN) / 7) / RUN * RUN;
}

// What each of 8 warps looks at besides the sample of a group of 32 rows: this many places along K, different ones for each
// warp of all groups. So some warp sees an element of a column that is large in many rows. Where K is contiguous, a warp
// looks at ALONG_K places of one row, otherwise at ALONG_ROWS places of all rows, so that neighbouring lanes read neighbours
// in memory.
constexpr int ALONG_ROWS = 8, ALONG_K = 128;
template <int LOAD>
constexpr int FURTHER = IS_ALONG_K<LOAD> ? ALONG_K / 32 : ALONG_ROWS;  // elements of a thread
// The row that a lane looks at, in a group of `rows` rows. `part`: the number of the warp among those of all groups.
template <int LOAD>
__device__ __forceinline__ int further_row(int part, int rows) {
    return min(IS_ALONG_K<LOAD> ? part % 32 : (int)threadIdx.x % 32, rows - 1);
}

template <int LOAD>
__device__ __forceinline__ void load_further(const Operand& x, int row0, int part, int depth, float (&to)[ALONG_ROWS]) {
    constexpr int PLACES = IS_ALONG_K<LOAD> ? ALONG_K : ALONG_ROWS;
    const int lane = threadIdx.x % 32, begin = (int)((unsigned)part % (unsigned)((depth + PLACES - 1) / PLACES)) * PLACES;
    const float* const from = x.data + (row0 + further_row<LOAD>(part, (int)x.rows - row0)) * x.row_stride;
    if (LOAD == 2 && begin + PLACES <= depth) {
        const float4 v = *reinterpret_cast<const float4*>(from + begin + 4 * lane);
        to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
    } else {
#pragma unroll
        for (int i = 0; i < FURTHER<LOAD>; i++)
            to[i] = from[min(begin + (IS_ALONG_K<LOAD> ? lane + 32 * i : i), depth - 1) * x.k_stride];
    }
}

// A finite magnitude and where along K it is, as one number. The largest such number has the largest magnitude and, of equal
// magnitudes, the first place.
__device__ __forceinline__ unsigned long long at_place(float size, int k) {
    return (unsigned long long)__float_as_uint(size) << 32 | ~(unsigned)k;
}
__device__ __forceinline__ float size_of(unsigned long long at) { return __uint_as_float((unsigned)(at >> 32)); }
__device__ __forceinline__ unsigned place_of(unsigned long long at) { return ~(unsigned)at; }

// Finds the largest finite magnitude of each of 32 rows, over all of K, with all warps. `largest` is in shared memory, and is
// visible to the block afterwards.
template <int LOAD>
__device__ __forceinline__ void read_whole_rows(Operand x, int row0, int depth, unsigned long long (&largest)[32]) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const int parts = (int)cluster_size(), part = (int)cluster_rank();
    const auto edge = [&](int i) { return i == parts ? depth : (int)((long long)depth * i / parts) / 4 * 4; };
    const int begin = edge(part), end = edge(part + 1);
    x.data += begin * x.k_stride, depth = end - begin;
    const auto finite = [](float v) { return fabsf(v) < __int_as_float(0x7f800000) ? fabsf(v) : 0.f; };
    // The largest of the elements from `at` on, of every `step`-th place along K, `stride` apart in memory; `left` places are
    // left.
    const auto strided = [&](const float* at, long long stride, int left, int step) {
        constexpr int AHEAD = 12;
        float most = 0.f;
        int place = 0;
#pragma unroll 1
        for (int passed = 0; passed < left; passed += AHEAD * step) {
            float v[AHEAD], together = 0.f;
#pragma unroll
            for (int j = 0; j < AHEAD; j++) v[j] = passed + j * step < left ? *at : 0.f, at += stride;
#pragma unroll
            for (int j = 0; j < AHEAD; j++) v[j] = finite(v[j]), together = fmaxf(together, v[j]);
            if (together > most) {
                most = together;
#pragma unroll
                for (int j = AHEAD - 1; j >= 0; j--)
                    if (v[j] == together) place = passed + j * step;
            }
        }
        return at_place(most, begin + depth - left + place);
    };
    if (IS_ALONG_K<LOAD>) {  // a warp has a row
        for (int r = warp; r < 32; r += warps) {
            const float* const row = x.data + min((long long)row0 + r, x.rows - 1) * x.row_stride;
            unsigned long long found;
            if (LOAD == 2 && depth % 4 == 0) {
                constexpr int AHEAD = 4;
                float most = 0.f;
                int place = 0;
#pragma unroll 1
                for (int k = 4 * lane; k < depth; k += 128 * AHEAD) {
                    float4 v[AHEAD];
                    float together = 0.f;
#pragma unroll
                    for (int j = 0; j < AHEAD; j++)
                        v[j] = k + 128 * j < depth ? *reinterpret_cast<const float4*>(row + k + 128 * j)
                                                   : make_float4(0.f, 0.f, 0.f, 0.f);
#pragma unroll
                    for (int j = 0; j < AHEAD; j++) {
                        v[j] = make_float4(finite(v[j].x), finite(v[j].y), finite(v[j].z), finite(v[j].w));
                        together = fmaxf(together, fmaxf(fmaxf(v[j].x, v[j].y), fmaxf(v[j].z, v[j].w)));
                    }
                    if (together > most) {
                        most = together;
#pragma unroll
                        for (int j = AHEAD - 1; j >= 0; j--) {
                            const auto at = [&](float of, int i) { place = of == together ? k + 128 * j + i : place; };
                            at(v[j].w, 3), at(v[j].z, 2), at(v[j].y, 1), at(v[j].x, 0);
                        }
                    }
                }
                found = at_place(most, begin + place);
            } else {
                found = strided(row + lane * x.k_stride, 32 * x.k_stride, depth - lane, 32);
            }
            const unsigned size = __reduce_max_sync(~0u, (unsigned)(found >> 32));
            const unsigned place = __reduce_max_sync(~0u, (unsigned)(found >> 32) == size ? (unsigned)found : 0u);
            if (lane == 0) largest[r] = (unsigned long long)size << 32 | place;
        }
    } else {  // a lane has a row, and the warps share K
        const float* const row = x.data + min((long long)row0 + lane, x.rows - 1) * x.row_stride;
        atomicMax(largest + lane, strided(row + warp * x.k_stride, warps * x.k_stride, depth - warp, warps));
    }
    if (parts == 1) {
        __syncthreads();
        return;
    }
    __syncwarp();  // all threads of a warp come to a cluster's barrier together
    cluster_sync();
    unsigned long long all = 0;
    for (int i = 0; i < parts; i++) {
        float low[1], high[1];
        load_cluster<true>(shared_address(largest + lane), i, low),
            load_cluster<true>(shared_address(largest + lane) + 4, i, high);
        const unsigned long long of_part = (unsigned long long)__float_as_uint(high[0]) << 32 | __float_as_uint(low[0]);
        all = of_part > all ? of_part : all;
    }
    cluster_sync();
    if (warp == 0) largest[lane] = all;
    __syncthreads();
}

// A row spans much if its largest sampled element has an exponent this much above the mean exponent of those that are not
// zero. For normal data the difference is 3.5 at most, for products of normal and log-normal data 5.
constexpr int WIDE = 6;
// From this difference on, rows are read whole: their exponent then comes from the true largest element, which leaves more
// room below it. For log-normal data with sigma = 1 a sample has 7.5 at most, with sigma = 2 more.
constexpr int VERY_WIDE = 8;
// With fewer of 128 samples that are not zero, little of |A||B| is seen, and a scaled lo needs less of it.
constexpr int SPARSE = 32;
constexpr int FEWEST_SAMPLES = 4;  // with fewer that are not zero, the sample says little of a row
// Scale has no room for levels that are much lower: in a row with a level below this, no place counts as big.
constexpr int LOWEST_LEVEL = -100;
// With a scaled lo, an element of a row that was read whole is small if it is less than 2^SMALL_OF_LARGEST times the row's
// largest, rounded down to a power of two: the largest goes to 2^TARGET_EXACT, and what is then less than 2^-14 is small
// (emulated/hi_lo.cuh).
constexpr int SMALL_OF_LARGEST = -28;
static_assert(TARGET_EXACT == 14);
// Small elements matter if the largest element of a row exceeds the largest sampled one by this many powers of two or more.
constexpr int EXCEEDS = 4;
// A row is an outlier (stats.cuh), that is, hangs on one or two of its elements, if the mean exponent of its samples is LOST
// or more below that of its largest element, and at most FEW_BIG sampled elements come near the largest. fp32 then loses most
// elements beside the largest, and is as good as exact.
constexpr int LOST = 24, FEW_BIG = 4;
// From this K on lo is scaled whatever the data are. Small elements are counted over all of K, but the bound of |A||B| comes from
// as many samples as ever: of normal data with K = 524288 single sums were rejected (256 x 524288 x 256 took 16 times as long),
// of (U - 1/2) exp(N/2) and ReLU outputs some from 131072 on.
constexpr int LONG_K = 65536;
// A row spans much, too, if a further element's exponent is more than this above that of the largest sampled element.
constexpr int MISSED = 2;

// Counts of a thread's sampled elements, in one word, COUNT_BITS each. SMALL_LEVELS counts of elements that are not zero:
// those below 2^SMALL_OF_LARGEST times the largest sampled element of their row, those below 2^SMALLER times that, and so on;
// then one count of all that are not zero. `field`: the biased exponent of the largest sampled element.
constexpr int SMALL_LEVELS = 4, SMALLER = 4, COUNT_BITS = 5;
static_assert(RUN < 1 << COUNT_BITS && (SMALL_LEVELS + 1) * COUNT_BITS <= 32);
__device__ __forceinline__ unsigned count_small(const float (&sample)[RUN], int field) {
    unsigned counts = 0;
#pragma unroll
    for (int i = 0; i < RUN; i++) counts += (unsigned)(sample[i] > 0.f) << SMALL_LEVELS * COUNT_BITS;
#pragma unroll
    for (int level = 0; level < SMALL_LEVELS; level++) {
        const float least = power_of_two(max(field - 127 + SMALL_OF_LARGEST + SMALLER * level, -126));
#pragma unroll
        for (int i = 0; i < RUN; i++) counts += (unsigned)(sample[i] > 0.f && sample[i] < least) << level * COUNT_BITS;
    }
    return counts;
}

extern "C" __global__ void __launch_bounds__(512, 2) mm32_scale(const __grid_constant__ Params s) {
    launch_dependents();
    __shared__ float part[8][32];
    __shared__ unsigned long long whole[32];
    // A warp's sum of biased exponents in the low half; then how many elements these are of; in the high byte, how many are
    // not finite.
    __shared__ unsigned exponents[8][32];
    __shared__ __align__(16) unsigned short bits[2][32][8];
    const int parts = (int)cluster_size();
    const bool writes = cluster_rank() == 0;
    if (blockIdx.x == 0 && threadIdx.x < THREADS) {
        static_assert(THREADS == ROW_GROUPS);
        unsigned* const decision = reinterpret_cast<unsigned*>(s.decision);
        if (threadIdx.x <
            (sizeof(Decision) - sizeof(s.decision->groups) - sizeof(s.decision->power) - sizeof(s.decision->listed)) / 4)
            decision[threadIdx.x] = 0;
        s.decision->groups[0][threadIdx.x] = s.decision->groups[1][threadIdx.x] = NOTHING_SEEN;
        static_assert(MOST_BLOCKS == THREADS);
        s.decision->power[threadIdx.x] = 0.f;
        const long long chunks = ceil_div(ceil_div(s.p.k, BLOCK_K), CHUNK);
        for (int side = A_PREPACKED; side < (B_PREPACKED ? 1 : 2); side++) {
            const long long counters = row_tiles(s, side) * chunks;
            for (long long i = threadIdx.x; i < counters; i += THREADS) s.ready[side][i] = 0;
        }
    }
    const int blocks_a = A_PREPACKED ? 0 : scale_blocks(s, 0), blocks_b = B_PREPACKED ? 0 : scale_blocks(s, 1);
    const int index = (int)blockIdx.x / parts;
    if (index >= blocks_a + blocks_b) return;
    const int side = index >= blocks_a, block = side ? index - blocks_a : index, blocks = side ? blocks_b : blocks_a;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, depth = (int)s.p.k;
    const bool samples = warp < 8, looks_further = blockDim.x == THREADS || !samples;
    const int rows = (int)(side ? s.p.n : s.p.m), per = (int)ceil_div(rows, 32);
    bool wide_block = depth >= LONG_K, some_finite = false, some_small = false;  // some_small: in the first warp
    unsigned missing = 0;  // the most in one of this thread's rows, in the first warp
    __shared__ __align__(16) float watched[PLANES == 2 ? 16 : 1][SAMPLES + 4];  // samples of the watched rows (cancel.cuh)
    float power = 0.f;  // sum of the squares of these at sampled place threadIdx.x
    // A plan launches no problem here with 2^31 groups of rows.
    for (int g = block; g < (int)s.matrices[side] * per; g += blocks) {
        const int matrix = g / per, row0 = (g - matrix * per) * 32, row = row0 + lane;
        const Operand x = operand_of(s, side, matrix);
        const int begin = run_begin(warp % 8, depth);
        const float* const from = x.data + min(row, rows - 1) * x.row_stride;
        float largest = 0.f, sample[RUN];
        unsigned sum = 0;
        float further[ALONG_ROWS] = {};
        // All loads are issued before the first is used.
        if (!samples) {
#pragma unroll
            for (int i = 0; i < RUN; i++) sample[i] = 0.f;
        } else if ((side ? MM32_B_LOAD : MM32_A_LOAD) == 5 && begin + RUN <= depth) {
            load_shifted(from + begin, sample);
        } else {
#pragma unroll
            for (int i = 0; i < RUN; i += 4) {
                if ((side ? MM32_B_LOAD : MM32_A_LOAD) == 2 && begin + RUN <= depth) {
                    const float4 v = *reinterpret_cast<const float4*>(from + begin + i);
                    sample[i] = v.x, sample[i + 1] = v.y, sample[i + 2] = v.z, sample[i + 3] = v.w;
                } else {
#pragma unroll
                    for (int j = i; j < i + 4; j++) sample[j] = from[min(begin + j, depth - 1) * x.k_stride];
                }
            }
        }
        if (looks_further) {
            if (side) load_further<MM32_B_LOAD>(x, row0, g * 8 + warp % 8, depth, further);
            else load_further<MM32_A_LOAD>(x, row0, g * 8 + warp % 8, depth, further);
        }
#pragma unroll
        for (int i = 0; i < RUN; i++) {
            const float v = row < rows && begin + i < depth ? fabsf(sample[i]) : 0.f;
            const bool finite = v < __int_as_float(0x7f800000);
            sample[i] = finite ? v : 0.f;
            largest = fmaxf(largest, sample[i]);
            if (!finite) sum += 0x1000000u;
            else if (v > 0.f) sum += 0x10000u + (__float_as_uint(v) >> 23);
        }
        if (PLANES == 2 && samples && is_watched(lane))
#pragma unroll
            for (int i = 0; i < RUN; i += 4)
                *reinterpret_cast<float4*>(&watched[lane % 8 + lane / 16 * 8][warp * RUN + i]) =
                    make_float4(sample[i], sample[i + 1], sample[i + 2], sample[i + 3]);
        float most = 0.f;
#pragma unroll
        for (int i = 0; i < ALONG_ROWS; i++)
            most = fmaxf(most, fabsf(further[i]) < __int_as_float(0x7f800000) ? fabsf(further[i]) : 0.f);
        if (samples) part[warp][lane] = largest, exponents[warp][lane] = sum;
        if (warp == 0) whole[lane] = 0;
        __syncthreads();
        if (PLANES == 2 && threadIdx.x < SAMPLES)
#pragma unroll 4
            for (int i = 0; i < 16; i++) power = fmaf(watched[i][threadIdx.x], watched[i][threadIdx.x], power);
        sum = 0;
#pragma unroll
        for (int i = 0; i < 8; i++) largest = fmaxf(largest, part[i][lane]), sum += exponents[i][lane];
        const bool finite = sum < 0x1000000u;
        const int count = (int)(sum >> 16 & 0xff), field = (int)(__float_as_uint(largest) >> 23);
        const int spread = field * count - (int)(sum & 0xffff);  // multiplied by count
        const bool wide = count > 0 && spread >= WIDE * count, very_wide = count > 0 && spread >= VERY_WIDE * count;
        bool exact = depth <= SAMPLES;
        const int of = side ? further_row<MM32_B_LOAD>(g * 8 + warp % 8, rows - row0)
                            : further_row<MM32_A_LOAD>(g * 8 + warp % 8, rows - row0);
        const float beside = __shfl_sync(~0u, largest, of);
        wide_block |=
            !exact && beside > 0.f && (int)(__float_as_uint(most) >> 23) - (int)(__float_as_uint(beside) >> 23) > MISSED;
        const bool read_whole = !exact && __syncthreads_or(row < rows && (very_wide || (count < FEWEST_SAMPLES && finite)));
        // All that needs the sample comes before rows are read whole, because that takes the sample's registers.
        if (PLANES == 2 && read_whole && samples) exponents[warp][lane] = count_small(sample, field);
        // The magnitudes from which on elements are big: 2^-LEVEL of the largest sampled element, and 2^-LEVELS of that.
        // Scaled, these are 2^level and 2^(level - LEVELS).
        const float high = power_of_two(max(field - 127 - LEVEL, -126)),
                    low = power_of_two(max(field - 127 - LEVEL - LEVELS, -126));
        unsigned mine = 0;
#pragma unroll
        for (int i = 0; i < RUN; i++) mine |= (sample[i] >= high ? 0x10001u : sample[i] >= low ? 0x10000u : 0u) << i;
        float all = largest;
        if (read_whole) {
            if (side) read_whole_rows<MM32_B_LOAD>(x, row0, depth, whole);
            else read_whole_rows<MM32_A_LOAD>(x, row0, depth, whole);
            exact = true, all = size_of(whole[lane]);
        }
        const int all_field = (int)(__float_as_uint(all) >> 23);
        some_finite |= row < rows && finite;
        // Large elements that a row's sample has missed show in rows around it, whose samples have not missed them.
        const bool sparse = count > 0 && count < SPARSE * min(depth, SAMPLES) / SAMPLES;
        wide_block |= row < rows && (wide || sparse || (count > 0 && all_field - field > TARGET_EXACT - TARGET));
        const int wanted = all > 0.f ? (exact ? TARGET_EXACT : TARGET) + 127 - all_field : 0;
        const int exponent = min(max(wanted, -126), 127);
        const int level = largest > 0.f ? field - 127 + exponent - LEVEL : 0;
        if (level < LOWEST_LEVEL) mine = 0;
        if (samples) bits[0][lane][warp] = (unsigned short)mine, bits[1][lane][warp] = (unsigned short)(mine >> 16);
        __syncthreads();
        if (writes && warp == 0 && row < rows) {
            uint4* const to = reinterpret_cast<uint4*>(s.stats[side] + (long long)matrix * rows + row);
            const uint4 big = *reinterpret_cast<const uint4*>(bits[1][lane]);
            const bool seen = finite && all > 0.f;
            bool meager = false;
            unsigned small = 0;  // of the sampled elements of a row that was read whole
            if (PLANES == 2 && seen && whole[lane] >> 32) {
                const int exceeds = all_field - field, level = min((exceeds + SMALLER / 2) / SMALLER, SMALL_LEVELS - 1);
                constexpr unsigned COUNT = (1 << COUNT_BITS) - 1;
                unsigned others = 0;  // neither small nor zero
#pragma unroll 1
                for (int i = 7; i >= 0; i--) {
                    const unsigned counts = exponents[i][lane], here = counts >> level * COUNT_BITS & COUNT;
                    const unsigned not_small = (counts >> SMALL_LEVELS * COUNT_BITS) - here;
                    // For `meager` there may be few in the first run, and none in the other runs.
                    small += here, others += i > 0 ? not_small * SAMPLES : not_small;
                }
                meager = small > 0 && others < (unsigned)required_products(depth);
                some_small |= small > 0 && (exceeds >= EXCEEDS || meager);
            }
            const uint4 biggest = *reinterpret_cast<const uint4*>(bits[0][lane]);
            to[0] = biggest, to[1] = big;
            unsigned flags = (exact ? EXACT : 0) | (seen ? 0 : UNSEEN) | (meager ? MEAGER : 0);
            if (PLANES == 2 && exact && seen && count > 0 && !sparse && (all_field - field) * count + spread >= LOST * count) {
                const uint4 near = all_field - field > TARGET_EXACT - TARGET ? biggest : big;
                if (__popc(near.x) + __popc(near.y) + __popc(near.z) + __popc(near.w) <= FEW_BIG) flags |= OUTLIER;
            }
            to[2] = make_uint4(Scale::pack(exponent, small, max(level, LOWEST_LEVEL), flags), 0, 0, 0);
            if (PLANES == 2)
                places_of_largest(s, side)[(long long)matrix * rows + row] = whole[lane] >> 32 ? place_of(whole[lane]) : NOWHERE;
            if (seen) missing = max(missing, SAMPLES - __popc(big.x) - __popc(big.y) - __popc(big.z) - __popc(big.w));
        }
        __syncthreads();
    }
    // A prepacked operand has been packed with or without a scaled lo, and the other operand must be packed alike.
    if (A_PREPACKED ? s.p.m > 0 : B_PREPACKED && s.p.n > 0)
        wide_block = Flags::of_side(s, A_PREPACKED ? 0 : 1, THREADS) & WIDE_ROWS;
    wide_block = __syncthreads_or(wide_block), some_finite = __syncthreads_or(some_finite);
    if (writes && warp == 0) {
        missing = __reduce_max_sync(~0u, missing);
        some_small = __any_sync(~0u, some_small);
        if (lane == 0)
            scale_flags(s, side)[block] =
                (wide_block ? WIDE_ROWS : 0) | (some_finite ? SOME_FINITE : 0) | (some_small ? SMALL : 0) | missing << MISSING;
    }
    if (writes && PLANES == 2 && threadIdx.x < SAMPLES) sampled_power(s, side, block)[threadIdx.x] = power;
}

// What a block packs at a time: one chunk of K-blocks of some rows of one operand, from row0 and k0 on.
struct Unit {
    const float* from;  // element (row0, k0)
    long long row_stride, k_stride;
    char* plane;  // row0 of the first K-block's plane of hi. The plane of lo follows, then the planes of the next K-block
    RowStats* stats;
    unsigned plane_bytes;
    int rows_left, padded_left, k_left, blocks;  // from row0 and k0 on
    Decision* decision;
    unsigned* tiny;  // in shared memory. 1: the block has met an element that is too small for bf16x6
};

__device__ __forceinline__ Unit unit_at(const Params& s, int side, int matrix, int row0, int chunk, unsigned* tiny) {
    const Operand x = operand_of(s, side, matrix);
    const int blocks = (int)ceil_div(s.p.k, BLOCK_K), rows = (int)x.rows, padded = (int)padded_rows(x.rows);
    const int first = chunk * CHUNK;
    const unsigned plane_bytes = padded * PLANE_ROW;
    return {x.data + row0 * x.row_stride + (long long)first * BLOCK_K * x.k_stride,
            x.row_stride,
            x.k_stride,
            s.panels[side] + ((long long)matrix * blocks + first) * PLANES * plane_bytes + (long long)row0 * PLANE_ROW,
            s.stats[side] + (long long)matrix * rows + row0,
            plane_bytes,
            rows - row0,
            padded - row0,
            (int)min(s.p.k - (long long)first * BLOCK_K, (long long)CHUNK * BLOCK_K),
            min(blocks - first, CHUNK),
            s.decision,
            tiny};
}

__device__ __forceinline__ float scale_of(const Unit& u, int row, bool scaled_lo) {
    return row < u.rows_left ? power_of_two(Scale{u.stats[row].scale}.exponent(scaled_lo)) : 1.f;
}

// Where the largest magnitude of a row is recorded, if it is.
__device__ __forceinline__ unsigned* largest_of(const Unit& u, int row) {
    return !MM32_GUARDED && row < u.rows_left ? &u.stats[row].largest : nullptr;
}

// Keeps what was observed of a part of a row. The lower tier's launches leave all stats as they are, unless nothing was packed
// before them: the largest elements are known, those of a prepacked operand must not change, and an element that is too small for
// bf16x6 only makes mm32_fallback test all pairs.
__device__ __forceinline__ void keep(const Unit& u, int row, const Observed& observed) {
    if (!MM32_GUARDED) {
        record_hi(u.stats[row], observed.largest, observed.counts & 0xffff, observed.counts >> 16);
        return;
    }
    if (observed.counts) *u.tiny = 1;
    if (u.decision->early) record_after_early(u.stats[row], observed.largest, observed.counts);
}

// Loads along K: a half-warp has 64 elements of a row, and each thread 4 of them. A thread writes 8 bytes of hi and 8 of lo, and
// the half-warp writes whole lines.
template <bool SCALED_LO>
__device__ __forceinline__ void pack_along_k(const Unit& u) {
    constexpr int TOGETHER = 4;  // K-blocks whose loads are issued together. Eight spill
    const int piece = threadIdx.x % 16, row = threadIdx.x / 16;
    const float scale = scale_of(u, row, SCALED_LO);
    const bool exists = row < u.rows_left;
    const int k_left = exists ? u.k_left - piece * 4 : 0;
    const float* from = u.from + row * u.row_stride + piece * 4 * u.k_stride;
    char* to = u.plane + row * PLANE_ROW + ((piece / 2) ^ (row % 8)) * 16 + piece % 2 * 8;
    Observed observed{0, 0};
    for (int kb = 0; kb < u.blocks; kb += TOGETHER) {
        float v[TOGETHER][4];
#pragma unroll
        for (int i = 0; i < TOGETHER; i++) {
            const float* at = from + (kb + i) * BLOCK_K * u.k_stride;
            const int left = k_left - (kb + i) * BLOCK_K;
            if (left >= 4) {
                const float4 q = __ldcs(reinterpret_cast<const float4*>(at));
                v[i][0] = q.x, v[i][1] = q.y, v[i][2] = q.z, v[i][3] = q.w;
            } else {
#pragma unroll
                for (int j = 0; j < 4; j++) v[i][j] = j < left ? at[j * u.k_stride] : 0.f;
            }
        }
#pragma unroll
        for (int i = 0; i < TOGETHER; i++) {
            unsigned pair[2][PLANES];
#pragma unroll
            for (int j = 0; j < 2; j++)
                split(v[i][2 * j] * scale, v[i][2 * j + 1] * scale, pair[j], lo_factor(SCALED_LO, 2 * j),
                      lo_factor(SCALED_LO, 2 * j + 1));
            observe(observed, pair, v[i], scale, SCALED_LO, largest_of(u, row));
            if (row < u.padded_left && kb + i < u.blocks) {
                char* const planes = to + (size_t)((kb + i) * PLANES) * u.plane_bytes;
#pragma unroll
                for (int plane = 0; plane < PLANES; plane++)
                    *reinterpret_cast<uint2*>(planes + (size_t)plane * u.plane_bytes) =
                        make_uint2(pair[0][plane], pair[1][plane]);
            }
        }
    }
#pragma unroll
    for (int offset = 8; offset > 0; offset /= 2) {
        observed.largest = larger(observed.largest, __shfl_xor_sync(~0u, observed.largest, offset));
        observed.counts += __shfl_xor_sync(~0u, observed.counts, offset);
    }
    if (piece == 0 && exists) keep(u, row, observed);
}

// Shifted lines, in either direction: a thread has the same elements as with loads along K, one K-block at a time.
template <bool SCALED_LO>
__device__ __forceinline__ void pack_shifted(const Unit& u, bool along_rows, char* staging) {
    static_assert(ShiftedLines::DEPTH == BLOCK_K && ShiftedLines::ROWS == UNIT_ROWS<4> && ShiftedLines::ROWS == UNIT_ROWS<5>);
    ShiftedLines lines(u.from, u.row_stride, u.k_stride, along_rows, u.rows_left, u.k_left, shared_address(staging));
    const int piece = threadIdx.x % 16, row = threadIdx.x / 16;
    const float scale = scale_of(u, row, SCALED_LO);
    char* to = u.plane + row * PLANE_ROW + ((piece / 2) ^ (row % 8)) * 16 + piece % 2 * 8;
    Observed observed{0, 0};
    lines.each_block(u.blocks, [&](const float (&v)[4]) {
        unsigned pair[2][PLANES];
#pragma unroll
        for (int j = 0; j < 2; j++)
            split(v[2 * j] * scale, v[2 * j + 1] * scale, pair[j], lo_factor(SCALED_LO, 2 * j), lo_factor(SCALED_LO, 2 * j + 1));
        observe(observed, pair, v, scale, SCALED_LO, largest_of(u, row));
#pragma unroll
        for (int plane = 0; plane < PLANES; plane++) {
            if (row < u.padded_left) *reinterpret_cast<uint2*>(to) = make_uint2(pair[0][plane], pair[1][plane]);
            to += u.plane_bytes;
        }
    });
#pragma unroll
    for (int offset = 8; offset > 0; offset /= 2) {
        observed.largest = larger(observed.largest, __shfl_xor_sync(~0u, observed.largest, offset));
        observed.counts += __shfl_xor_sync(~0u, observed.counts, offset);
    }
    if (piece == 0 && row < u.rows_left) keep(u, row, observed);
}

// Loads along rows: a thread has 8 places of K of WIDTH rows. A K-block is transposed in shared memory and leaves as whole lines.
template <bool VECTOR, bool SCALED_LO>
__device__ __forceinline__ void pack_along_rows(const Unit& u, char* staging) {
    constexpr int TILE = ROWS * PLANE_ROW;
    const int t = threadIdx.x, r = t % 32 * WIDTH, piece = t / 32;
    const bool vector = VECTOR && r + WIDTH <= u.rows_left;
    const float* from = u.from + r * u.row_stride + piece * 8 * u.k_stride;
    Observed observed[WIDTH];
    float scale[WIDTH];
#pragma unroll
    for (int i = 0; i < WIDTH; i++) observed[i] = Observed{0, 0}, scale[i] = scale_of(u, r + i, SCALED_LO);
    for (int kb = 0; kb < u.blocks; kb++) {
        const int left = u.k_left - kb * BLOCK_K - piece * 8;
        float v[8][WIDTH];
#pragma unroll
        for (int j = 0; j < 8; j++) {
            const float* at = from + (kb * BLOCK_K + j) * u.k_stride;
            if (vector && j < left) {
                const float2 q = __ldcs(reinterpret_cast<const float2*>(at));
                v[j][0] = q.x, v[j][1] = q.y;
            } else {
#pragma unroll
                for (int i = 0; i < WIDTH; i++) v[j][i] = r + i < u.rows_left && j < left ? __ldcs(at + i * u.row_stride) : 0.f;
            }
        }
        if (kb > 0) __syncthreads();  // the last K-block has left the staging buffer
#pragma unroll
        for (int i = 0; i < WIDTH; i++) {
            unsigned pair[4][PLANES];
#pragma unroll
            for (int j = 0; j < 4; j++)
                split(v[2 * j][i] * scale[i], v[2 * j + 1][i] * scale[i], pair[j], lo_factor(SCALED_LO, 2 * j),
                      lo_factor(SCALED_LO, 2 * j + 1));
            observe<4, WIDTH>(observed[i], pair, &v[0][i], scale[i], SCALED_LO, largest_of(u, r + i));
            const int at = (r + i) * PLANE_ROW + ((piece ^ ((r + i) % 8)) * 16);
#pragma unroll
            for (int plane = 0; plane < PLANES; plane++)
                *reinterpret_cast<uint4*>(staging + plane * TILE + at) =
                    make_uint4(pair[0][plane], pair[1][plane], pair[2][plane], pair[3][plane]);
        }
        __syncthreads();
        char* const planes = u.plane + (size_t)(kb * PLANES) * u.plane_bytes;
#pragma unroll
        for (int i = 0; i < TILE / (16 * THREADS); i++) {
            const int at = (i * THREADS + t) * 16;
            if (at < u.padded_left * PLANE_ROW) {
#pragma unroll
                for (int plane = 0; plane < PLANES; plane++)
                    *reinterpret_cast<uint4*>(planes + (size_t)plane * u.plane_bytes + at) =
                        *reinterpret_cast<const uint4*>(staging + plane * TILE + at);
            }
        }
    }
    __syncthreads();
    Observed* const table = reinterpret_cast<Observed*>(staging);  // [THREADS / 32][ROWS]
#pragma unroll
    for (int i = 0; i < WIDTH; i++) table[piece * ROWS + r + i] = observed[i];
    __syncthreads();
    if (t < ROWS && t < u.rows_left) {
        Observed all = table[t];
        for (int i = 1; i < THREADS / 32; i++) {
            const Observed other = table[i * ROWS + t];
            all.largest = larger(all.largest, other.largest);
            all.counts += other.counts;
        }
        keep(u, t, all);
    }
    __syncthreads();
}

// The units of one operand in the order in which they are packed: matrix after matrix, and in each matrix first the units of
// first_rows, chunk after chunk, then the units of all other rows.
template <int LOAD>
struct UnitOrder {
    int chunks, first, rest;  // how many chunks; how many groups of UNIT_ROWS rows come first, and how many follow

    __device__ __forceinline__ UnitOrder(const Params& s, int side) {
        const int groups = LOAD == PREPACKED ? 0 : (int)ceil_div(side ? s.p.n : s.p.m, UNIT_ROWS<LOAD>);
        chunks = (int)ceil_div(ceil_div(s.p.k, BLOCK_K), CHUNK);
        first = min(groups, (int)ceil_div(s.first_rows[side], UNIT_ROWS<LOAD>));
        rest = groups - first;
    }

    template <bool SCALED_LO>
    static __device__ __forceinline__ void pack_unit(const Unit& u, int side, char* staging) {
        if constexpr (LOAD == SHIFTED) pack_shifted<SCALED_LO>(u, (side ? MM32_B_LOAD : MM32_A_LOAD) == 4, staging);
        else if constexpr (LOAD == 2) pack_along_k<SCALED_LO>(u);
        else pack_along_rows<LOAD == 0, SCALED_LO>(u, staging);
    }

    __device__ __forceinline__ void pack(const Params& s, int side, int unit, bool scaled_lo, char* staging,
                                         unsigned* tiny) const {
        if constexpr (LOAD == PREPACKED) return;
        const int per_matrix = (first + rest) * chunks, matrix = unit / per_matrix;
        int i = unit - matrix * per_matrix, group, chunk;
        if (i < first * chunks) {
            chunk = i / first, group = i - chunk * first;
        } else {
            i -= first * chunks;
            chunk = i / rest, group = first + i - chunk * rest;
        }
        const int row0 = group * UNIT_ROWS<LOAD>;
        const Unit u = unit_at(s, side, matrix, row0, chunk, tiny);
        if (PLANES == 2 && scaled_lo) pack_unit<PLANES == 2>(u, side, staging);
        else pack_unit<false>(u, side, staging);
        if (!counts_units(s)) return;
        // Other multiprocessors read the panels by bulk copies (the async proxy) as soon as they see the counter.
        __threadfence();
#if __CUDA_ARCH__ >= 900
        asm volatile("fence.proxy.async;" ::: "memory");
#endif
        __syncthreads();
        if (threadIdx.x == 0) atomicAdd(ready_counters(s, side, row_tile(s, side, matrix, row0), chunks) + chunk, 1u);
    }
};

// Packs a unit of A or of B: by one piece of code where both have shifted lines.
template <int A, int B>
__device__ __forceinline__ void pack_of(const UnitOrder<A>& a, const UnitOrder<B>& b, bool of_a, const Params& s, int unit,
                                        bool scaled_lo, char* staging, unsigned* tiny) {
    if constexpr (A == SHIFTED && B == SHIFTED) {
        UnitOrder<A> order = a;
        if (!of_a) order.first = b.first, order.rest = b.rest;
        order.pack(s, !of_a, unit, scaled_lo, staging, tiny);
    } else if (of_a) {
        a.pack(s, 0, unit, scaled_lo, staging, tiny);
    } else {
        b.pack(s, 1, unit, scaled_lo, staging, tiny);
    }
}

// Not inlined: that would cost the loop over units registers, and made the packing of randn take 7 % longer.
__device__ __noinline__ bool look_at_pairs(const Params& s, bool small) { return looks_hopeless(s, small); }

extern "C" __global__ void __launch_bounds__(THREADS, 1024 / THREADS) mm32_pack(const __grid_constant__ Params s) {
    // For transposing units, for shifted lines and, at the end, for the decision.
    constexpr int TRANSPOSE_BYTES = MM32_A_LOAD < 2 || MM32_B_LOAD < 2 ? PLANES * ROWS * PLANE_ROW : 0;
    constexpr int DECIDE_BYTES = MM32_DECIDES ? sizeof(Deciding) : 16;
    constexpr int LINES_BYTES = A_LOAD == SHIFTED || B_LOAD == SHIFTED ? ShiftedLines::BYTES : 0;
    constexpr int READ_BYTES = TRANSPOSE_BYTES > LINES_BYTES ? TRANSPOSE_BYTES : LINES_BYTES;
    __shared__ __align__(16) char staging[READ_BYTES > DECIDE_BYTES ? READ_BYTES : DECIDE_BYTES];
    __shared__ unsigned finished, tiny;
    constexpr bool MAY_GIVE_UP = PLANES == 2 && !MM32_GUARDED && !MM32_DECIDES;
    wait_for_previous_grid();
    launch_dependents();
    if (MM32_GUARDED) {
        const bool cancelled = cancels(*s.decision);
        const unsigned tier = s.decision->tier;
        if (tier == FIRST_TIER && cancelled) {
            if (blockIdx.x == 0 && threadIdx.x == 0) s.decision->tier = BF16X6;  // for the launches after this one
        } else if (tier != BF16X6) {
            if (blockIdx.x == 0 && threadIdx.x == 0) s.decision->least_power = 0.f;  // they need not look again
            return;
        }
        if (threadIdx.x == 0) tiny = 0;
        __syncthreads();
    }
    const Flags flags(s);
    if (!MM32_GUARDED && flags.nothing_finite()) {
        if (blockIdx.x == 0 && threadIdx.x == 0) decide_for_fma(*s.decision);
        return;
    }
    if (MAY_GIVE_UP && may_be_hopeless(s, flags) && look_at_pairs(s, flags.some_small() && flags.scaled_lo())) return;
    const bool scaled_lo = flags.scaled_lo();
    const UnitOrder<A_LOAD> a(s, 0);
    const UnitOrder<B_LOAD> b(s, 1);
    // First the first rows of both operands (of the first matrix), chunk by chunk; then the rest of B, because the multiply's
    // tiles go along the columns of C first; then the rest of A. If there are no first rows, the larger units come first.
    const int together = a.first + b.first, head = together * a.chunks;
    const int all_a = (int)s.matrices[0] * (a.first + a.rest) * a.chunks;
    const int all_b = (int)s.matrices[1] * (b.first + b.rest) * b.chunks;
    const int rest_b = all_b - b.first * b.chunks;
    for (int u = blockIdx.x; u < all_a + all_b; u += gridDim.x) {
        bool of_a;
        int unit;
        if (u < head) {
            const int chunk = u / together, i = u - chunk * together;
            of_a = i < a.first;
            unit = of_a ? chunk * a.first + i : chunk * b.first + i - a.first;
        } else if (UNIT_ROWS<A_LOAD> > UNIT_ROWS<B_LOAD> && head == 0) {
            of_a = u < all_a;
            unit = of_a ? u : u - all_a;
        } else {
            of_a = u - head >= rest_b;
            unit = of_a ? u - head - rest_b + a.first * a.chunks : u - head + b.first * b.chunks;
        }
        pack_of(a, b, of_a, s, unit, scaled_lo, staging, &tiny);
    }
    // Stored once a block: in data that underflow, all rows have such elements, and stores to one address take turns.
    if (MM32_GUARDED) {
        __syncthreads();
        if (threadIdx.x == 0 && tiny) s.decision->tiny = 1;
    }
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) finished = atomicAdd(MM32_GUARDED ? &s.decision->finished_lower : &s.decision->finished_blocks, 1u);
    __syncthreads();
    if (finished == gridDim.x - 1) {
        __threadfence();
        if (threadIdx.x == 0) store_release(&s.decision->packed, 1);
#if MM32_DECIDES
        if (MM32_GUARDED && s.decision->early) return;  // the multiply decides, when it has reduced the stats
        Deciding& d = *reinterpret_cast<Deciding*>(staging);
        const AcceptTest test(s, scaled_lo);
        const long long a_units = row_tiles(s, 0) * REDUCERS, units = MM32_GUARDED ? 0 : a_units + row_tiles(s, 1) * REDUCERS;
        for (long long i = threadIdx.x / 32; i < units; i += WARPS)
            reduce_rows<false>(s, i >= a_units, i < a_units ? i : i - a_units, test, d);
        __threadfence();
        __syncthreads();
        decide<THREADS, false, false, A_PREPACKED && B_PREPACKED>(s, threadIdx.x, scaled_lo, d);
#endif
    }
}
