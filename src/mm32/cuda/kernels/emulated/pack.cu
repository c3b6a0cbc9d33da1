// pack: operands of any strides -> packed panels (emulated/panels.cuh), in two kernels.
//
// mm32_scale samples every row and chooses its exponent.
//   Launch: any number of blocks of 256 threads (grid-stride loop over groups of 32 rows, all of A and then all of B).
//   1.5 KB of shared memory. Bound by the latency of the samples, which are loaded together.
//
// mm32_pack reads each element once, scales it, splits it, and writes whole 128-byte lines. It collects the stats of each row,
// and the block that finishes last runs the accept test on them.
//   Launch: any number of blocks of 256 threads (grid-stride loop over units; a unit is CHUNK K-blocks of 64 rows, or of 16 rows
//   for loads along K). Launched with one block a multiprocessor, it packs while the multiply runs, in the order in which the
//   multiply's first tiles need the panels, and counts finished units in `ready`.
//   16 KB of shared memory if it transposes hi and lo, otherwise 12 KB. 64 registers, so that a block fits on a multiprocessor
//   beside one of the multiply; loads along rows spill up to 23.
//   Bound by memory: it reads 4 bytes and writes 4 for each element (2 with one product).
//   MM32_A_LOAD, MM32_B_LOAD   0  contiguous along rows, aligned: 8-byte loads, transposed through shared memory
//                              1  anything else, neighbouring threads along rows
//                              2  contiguous along K, aligned: 16-byte loads, a half-warp has a row, written without transposing
//                              3  anything else, neighbouring threads along K
//                              4  none: prepacked, by an earlier call of these kernels in which the other operand had no rows
//   MM32_PRODUCTS              see emulated/panels.cuh
#include "emulated/hi_lo.cuh"
#include "ptx/dependent_launch.cuh"

constexpr int THREADS = 256, WIDTH = 2, ROWS = 32 * WIDTH;
constexpr bool A_PREPACKED = MM32_A_LOAD == PREPACKED, B_PREPACKED = MM32_B_LOAD == PREPACKED;

extern "C" __global__ void __launch_bounds__(THREADS) mm32_scale(const __grid_constant__ Params s) {
    __shared__ float part[8][32];
    __shared__ unsigned short bits[8][32];
    launch_dependents();
    if (blockIdx.x == 0) {
        if (threadIdx.x == 0)
            s.decision->fallback_ran = s.decision->unsure = s.decision->finished_blocks = s.decision->packed = 0;
        const long long chunks = ceil_div(ceil_div(s.p.k, BLOCK_K), CHUNK);
        for (int side = A_PREPACKED; side < (B_PREPACKED ? 1 : 2); side++) {
            const long long counters = s.matrices[side] * ceil_div(side ? s.p.n : s.p.m, READY_ROWS) * chunks;
            for (long long i = threadIdx.x; i < counters; i += THREADS) s.ready[side][i] = 0;
        }
    }
    // A plan launches no problem here with 2^31 groups.
    const int per_a = A_PREPACKED ? 0 : (int)ceil_div(s.p.m, 32), per_b = B_PREPACKED ? 0 : (int)ceil_div(s.p.n, 32);
    const int groups_a = (int)s.matrices[0] * per_a, groups = groups_a + (int)s.matrices[1] * per_b;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int g = blockIdx.x; g < groups; g += gridDim.x) {
        const int side = g >= groups_a, group = side ? g - groups_a : g, per = side ? per_b : per_a, matrix = group / per;
        const int rows = (int)(side ? s.p.n : s.p.m), row = (group - matrix * per) * 32 + lane;
        const Operand x = operand_of(s, side, matrix);
        // 8 runs of 16 neighbours, spread along K. Along a contiguous K, a run is two 32-byte sectors.
        constexpr int RUN = SAMPLES / 8;
        const int depth = (int)s.p.k, begin = depth <= SAMPLES ? warp * RUN : (2 * warp + 1) * (depth / 16) / RUN * RUN;
        const float* const from = x.data + min(row, rows - 1) * x.row_stride;
        float largest = 0.f, sample[RUN];
#pragma unroll
        for (int i = 0; i < RUN; i += 4) {  // all loads are issued before the first is used
            if ((side ? MM32_B_LOAD : MM32_A_LOAD) == 2 && begin + RUN <= depth) {
                const float4 v = *reinterpret_cast<const float4*>(from + begin + i);
                sample[i] = v.x, sample[i + 1] = v.y, sample[i + 2] = v.z, sample[i + 3] = v.w;
            } else {
#pragma unroll
                for (int j = i; j < i + 4; j++) sample[j] = from[min(begin + j, depth - 1) * x.k_stride];
            }
        }
#pragma unroll
        for (int i = 0; i < RUN; i++) {
            const float v = fabsf(sample[i]);
            sample[i] = row < rows && begin + i < depth && v < __int_as_float(0x7f800000) ? v : 0.f;
            largest = fmaxf(largest, sample[i]);
        }
        part[warp][lane] = largest;
        __syncthreads();
        for (int i = 0; i < 8; i++) largest = fmaxf(largest, part[i][lane]);
        const int target = s.p.k <= SAMPLES ? TARGET_EXACT : TARGET;
        const int wanted = largest > 0.f ? target + 127 - (int)(__float_as_uint(largest) >> 23) : 0;
        const int exponent = min(max(wanted, -126), 127);
        unsigned mine = 0;
#pragma unroll
        for (int i = 0; i < RUN; i++) mine |= (sample[i] * power_of_two(exponent) >= big_from(s.p.k)) << i;
        bits[warp][lane] = (unsigned short)mine;
        __syncthreads();
        if (warp == 0 && row < rows) {
            unsigned long long big[2] = {0, 0};
            for (int i = 0; i < 8; i++) big[i / 4] |= (unsigned long long)bits[i][lane] << (16 * (i % 4));
            s.stats[side][(long long)matrix * rows + row] = RowStats{{big[0], big[1]}, exponent, 0u, 0u};
        }
        __syncthreads();
    }
}

// What a block packs at a time: one chunk of K-blocks of some rows of one operand, from row0 and k0 on.
struct Unit {
    const float* from;  // element (row0, k0)
    long long row_stride, k_stride;
    char* plane;  // row0 of the first K-block's plane of hi. The plane of lo follows, then the planes of the next K-block
    RowStats* stats;
    unsigned plane_bytes;
    int rows_left, padded_left, k_left, blocks;  // from row0 and k0 on
};

__device__ __forceinline__ Unit unit_at(const Params& s, int side, int matrix, int row0, int chunk) {
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
            min(blocks - first, CHUNK)};
}

__device__ __forceinline__ float scale_of(const Unit& u, int row) {
    return row < u.rows_left ? power_of_two(u.stats[row].exponent) : 0.f;
}

// Loads along K: a half-warp has 64 elements of a row, and each thread 4 of them. A thread writes 8 bytes of hi and 8 of lo, and
// the half-warp writes whole lines.
template <bool VECTOR>
__device__ __forceinline__ void pack_along_k(const Unit& u) {
    constexpr int TOGETHER = 4;  // K-blocks whose loads are issued together. Eight spill
    const int piece = threadIdx.x % 16, row = threadIdx.x / 16;
    const float scale = scale_of(u, row);
    const bool exists = row < u.rows_left;
    const int k_left = exists ? u.k_left - piece * 4 : 0;
    const float* from = u.from + row * u.row_stride + piece * 4 * u.k_stride;
    char* to = u.plane + row * PLANE_ROW + ((piece / 2) ^ (row % 8)) * 16 + piece % 2 * 8;
    Observed observed{0.f, 0};
    for (int kb = 0; kb < u.blocks; kb += TOGETHER) {
        float v[TOGETHER][4];
#pragma unroll
        for (int i = 0; i < TOGETHER; i++) {
            const float* at = from + (kb + i) * BLOCK_K * u.k_stride;
            const int left = k_left - (kb + i) * BLOCK_K;
            if (VECTOR && left >= 4) {
                const float4 q = __ldcs(reinterpret_cast<const float4*>(at));
                v[i][0] = q.x, v[i][1] = q.y, v[i][2] = q.z, v[i][3] = q.w;
            } else {
#pragma unroll
                for (int j = 0; j < 4; j++) v[i][j] = j < left ? at[j * u.k_stride] : 0.f;
            }
        }
#pragma unroll
        for (int i = 0; i < TOGETHER; i++) {
#pragma unroll
            for (int j = 0; j < 4; j++) scale_and_observe(observed, v[i][j], scale);
            uint2 hi, lo;
            split(v[i][0], v[i][1], hi.x, lo.x);
            split(v[i][2], v[i][3], hi.y, lo.y);
            if (row < u.padded_left && kb + i < u.blocks) {
                char* plane = to + (size_t)((kb + i) * PLANES) * u.plane_bytes;
                *reinterpret_cast<uint2*>(plane) = hi;
                if (PLANES == 2) *reinterpret_cast<uint2*>(plane + u.plane_bytes) = lo;
            }
        }
    }
#pragma unroll
    for (int offset = 8; offset > 0; offset /= 2) {
        observed.largest = larger(observed.largest, __shfl_xor_sync(~0u, observed.largest, offset));
        observed.small += __shfl_xor_sync(~0u, observed.small, offset);
    }
    if (piece == 0 && exists) record(u.stats[row], observed);
}

// Loads along rows: a thread has 8 places of K of WIDTH rows. A K-block is transposed in shared memory and leaves as whole lines.
template <bool VECTOR>
__device__ __forceinline__ void pack_along_rows(const Unit& u, char* staging) {
    constexpr int TILE = ROWS * PLANE_ROW;
    const int t = threadIdx.x, r = t % 32 * WIDTH, piece = t / 32;
    const bool vector = VECTOR && r + WIDTH <= u.rows_left;
    const float* from = u.from + r * u.row_stride + piece * 8 * u.k_stride;
    Observed observed[WIDTH];
    float scale[WIDTH];
#pragma unroll
    for (int i = 0; i < WIDTH; i++) {
        observed[i] = Observed{0.f, 0};
        scale[i] = scale_of(u, r + i);
    }
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
            uint4 hi, lo;
#pragma unroll
            for (int j = 0; j < 8; j++) scale_and_observe(observed[i], v[j][i], scale[i]);
            split(v[0][i], v[1][i], hi.x, lo.x);
            split(v[2][i], v[3][i], hi.y, lo.y);
            split(v[4][i], v[5][i], hi.z, lo.z);
            split(v[6][i], v[7][i], hi.w, lo.w);
            const int at = (r + i) * PLANE_ROW + ((piece ^ ((r + i) % 8)) * 16);
            *reinterpret_cast<uint4*>(staging + at) = hi;
            if (PLANES == 2) *reinterpret_cast<uint4*>(staging + TILE + at) = lo;
        }
        __syncthreads();
        char* const plane = u.plane + (size_t)(kb * PLANES) * u.plane_bytes;
#pragma unroll
        for (int i = 0; i < TILE / (16 * THREADS); i++) {
            const int at = (i * THREADS + t) * 16;
            if (at < u.padded_left * PLANE_ROW) {
                *reinterpret_cast<uint4*>(plane + at) = *reinterpret_cast<const uint4*>(staging + at);
                if (PLANES == 2)
                    *reinterpret_cast<uint4*>(plane + u.plane_bytes + at) =
                        *reinterpret_cast<const uint4*>(staging + TILE + at);
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
            all.small += other.small;
        }
        record(u.stats[t], all);
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

    __device__ __forceinline__ void pack(const Params& s, int side, int unit, char* staging) const {
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
        if constexpr (LOAD >= 2) {
            pack_along_k<LOAD == 2>(unit_at(s, side, matrix, row0, chunk));
        } else {
            pack_along_rows<LOAD == 0>(unit_at(s, side, matrix, row0, chunk), staging);
        }
        if (!counts_units(s)) return;
        // Other multiprocessors read the panels by bulk copies (the async proxy) as soon as they see the counter.
        __threadfence();
#if __CUDA_ARCH__ >= 900
        asm volatile("fence.proxy.async;" ::: "memory");
#endif
        __syncthreads();
        if (threadIdx.x == 0) {
            const int tiles = (int)ceil_div(side ? s.p.n : s.p.m, READY_ROWS);
            atomicAdd(s.ready[side] + ((long long)matrix * tiles + row0 / READY_ROWS) * chunks + chunk, 1u);
        }
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, 1024 / THREADS) mm32_pack(const __grid_constant__ Params s) {
    // For transposing units and, at the end, for the accept test.
    constexpr int TRANSPOSE_BYTES = MM32_A_LOAD < 2 || MM32_B_LOAD < 2 ? PLANES * ROWS * PLANE_ROW : 0;
    __shared__ __align__(16) char staging[TRANSPOSE_BYTES > DECIDE_BYTES ? TRANSPOSE_BYTES : DECIDE_BYTES];
    __shared__ unsigned finished;
    wait_for_previous_grid();
    launch_dependents();
    const UnitOrder<MM32_A_LOAD> a(s, 0);
    const UnitOrder<MM32_B_LOAD> b(s, 1);
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
        } else if (MM32_A_LOAD < 2 && MM32_B_LOAD >= 2 && head == 0) {
            of_a = u < all_a;
            unit = of_a ? u : u - all_a;
        } else {
            of_a = u - head >= rest_b;
            unit = of_a ? u - head - rest_b + a.first * a.chunks : u - head + b.first * b.chunks;
        }
        if (of_a) {
            a.pack(s, 0, unit, staging);
        } else {
            b.pack(s, 1, unit, staging);
        }
    }
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) finished = atomicAdd(&s.decision->finished_blocks, 1u);
    __syncthreads();
    if (finished == gridDim.x - 1) {
        __threadfence();
        if (threadIdx.x == 0) asm volatile("st.release.gpu.global.u32 [%0], 1;" ::"l"(&s.decision->packed) : "memory");
        decide<THREADS, 4>(s, threadIdx.x, reinterpret_cast<GroupStats*>(staging));
    }
}
