// How mm32_tensorcore fills its ring where nothing was packed before (MM32_DIRECT): a warpgroup for each operand reads fp32 tiles,
// scales and splits them in registers and stores hi and lo where wgmma reads them. Each element is split once for every tile
// that needs it, so this is for problems of few tiles, or of so little K that packing would cost more than it saves.
//
//   MM32_A_LOAD, MM32_B_LOAD   as for mm32_pack (pack.cu). 0, 1: the operand's rows lie along a line of shared memory, a thread has
//                              4 neighbouring rows at one of K; 2, 3: K does, a thread has 8 of K of a row
// Both orders of K in a K-block are the same, and not K's own: place p of 64 holds k = p / 8 * 4 + p % 4 + (p % 8 < 4 ? 0 : 32), so
// that a thread's 8 of K are two 16-byte loads, each beside its neighbours'.
#pragma once
#include "ptx/bulk_copy.cuh"
#include "emulated/hi_lo.cuh"
#include "emulated/tiles.cuh"
#if MM32_DIRECT

// A value that the compiler cannot derive again from what it was made of, and so keeps in a register.
template <typename T>
__device__ __forceinline__ T kept(T x) {
    asm volatile("" : "+r"(x));
    return x;
}

// What a warpgroup does for its operand's tiles, ROWS rows each. A pass is 8 elements a thread, two halves of 4. They come by
// asynchronous copies to a queue in shared memory of AHEAD passes that is the thread's own: nobody else waits for it.
constexpr int AHEAD = 8, QUEUE = AHEAD * 256 * 32;  // bytes, of both warpgroups

template <int ROWS, int LOAD>
struct Splitter {
    static constexpr bool ALONG_ROWS = LOAD < 2, VECTOR = LOAD % 2 == 0;
    static constexpr int PASSES = ROWS / 16;  // in a K-block
    static constexpr int BLOCKS_AHEAD = AHEAD / PASSES;
    static constexpr int OWN = ALONG_ROWS ? 4 : PASSES;  // rows of which a thread has something
    static constexpr int GROUPS = ROWS / 4, STEP = 128 / GROUPS;  // ALONG_ROWS: threads along rows; places of K that a warpgroup has at once
    static_assert(AHEAD % PASSES == 0);

    const char* from;  // row 0 of the tile (VECTOR, ALONG_ROWS: this thread's first), at this thread's first of K in K-block 0
    unsigned row_bytes, k_bytes;  // strides; a plan sends none here with which a tile passes 2^32 bytes
    int row, k, last_row, depth;  // this thread's first row and first of K; the tile's last row; K
    unsigned to;  // where this thread's first element goes in a plane
    float scale[OWN];
    float largest[OWN];
    unsigned small[OWN / 2];  // two counts of 16 bits
    float next[8];  // the pass to come
    unsigned queue;  // slot 0: 16 bytes for each half, 4096 apart; the next slot 8192 further on

    __device__ __forceinline__ Splitter(unsigned queues) : queue(queues + threadIdx.x % 256 * 16) {
        const int t = threadIdx.x % 128;
        if (ALONG_ROWS) {
            const int place = t / GROUPS;
            row = t % GROUPS * 4;
            k = place % 4 + place / 4 * 32;
            to = row / 64 * 8192 + place * PLANE_ROW + ((row % 64 / 8) ^ place) * 16 + row % 8 / 4 * 8;
        } else {
            row = t / 8;
            k = t % 8 * 4;
            to = row * PLANE_ROW + ((t % 8) ^ (row % 8)) * 16;
        }
        row = kept(row), k = kept(k), to = kept(to);
    }

    // What a pass and its half add to k and to row. The order of K within a K-block is that of the opening comment.
    static __device__ constexpr int k_step(int pass, int half) {
        return !ALONG_ROWS ? 32 * half : STEP == 4 ? 4 * pass + 32 * half : 8 * pass + 4 * half;
    }
    static __device__ constexpr int row_step(int i) { return ALONG_ROWS ? i : 16 * i; }

    __device__ __forceinline__ void begin(const Split& s, int side, int matrix, int row0) {
        const Source x = source_of(s, side, matrix);
        row_bytes = ALONG_ROWS && VECTOR ? 4 : 4 * (unsigned)x.row_stride;
        k_bytes = !ALONG_ROWS && VECTOR ? 4 : 4 * (unsigned)x.k_stride;
        last_row = (int)min(x.rows - row0, (long long)ROWS) - 1;
        // Copies of the same 16 bytes by many threads are made one after another: past the edge, along rows, there are none.
        depth = ALONG_ROWS && row > last_row ? 0 : (int)s.p.k;
        // Past the last row that is read again, if anything: what comes of it is not stored. VECTOR, ALONG_ROWS: M or N is a multiple of 4.
        const int first = VECTOR && ALONG_ROWS ? min(row, last_row - 3) : 0;
        from = reinterpret_cast<const char*>(x.data + (row0 + first) * x.row_stride + k * x.k_stride);
    }

    __device__ __forceinline__ void load_scales(const Split& s, int side, int matrix, int row0) {
        const RowStats* const stats = s.stats[side] + (s.matrices[side] == 1 ? 0 : matrix) * (side ? s.p.n : s.p.m) + row0;
#pragma unroll
        for (int i = 0; i < OWN; i++) {
            scale[i] = power_of_two(stats[min(row + row_step(i), last_row)].exponent);
            largest[i] = 0.f, small[i / 2] = 0;
        }
    }

    // Past `left` of K, counted from this thread's first, there are zeros.
    __device__ __forceinline__ void load(unsigned slot, const char* block, int left, int pass) const {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const char* const at = block + k_step(pass, h) * k_bytes;
            if constexpr (VECTOR) {
                const unsigned there = ALONG_ROWS ? 0 : min(row + row_step(pass), last_row) * row_bytes;
                copy_async<16>(slot + 4096 * h, reinterpret_cast<const float*>(at + there), k_step(pass, h) < left);
            } else {
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    const unsigned there = min(row + row_step(ALONG_ROWS ? e : pass), last_row) * row_bytes;
                    const int past = ALONG_ROWS ? 0 : e;
                    copy_async<4>(slot + 4096 * h + 4 * e, reinterpret_cast<const float*>(at + past * k_bytes + there),
                                  k_step(pass, h) + past < left);
                }
            }
        }
        copy_commit();
    }

    // What a slot holds, to registers: a pass ahead of its use.
    __device__ __forceinline__ void fetch(unsigned slot) {
#pragma unroll
        for (int h = 0; h < 2; h++)
            asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                         : "=f"(next[4 * h]), "=f"(next[4 * h + 1]), "=f"(next[4 * h + 2]), "=f"(next[4 * h + 3])
                         : "r"(slot + 4096 * h)
                         : "memory");
    }

    template <bool COUNT>
    __device__ __forceinline__ void store(float (&x)[8], int pass, unsigned plane) {
#pragma unroll
        for (int e = 0; e < 8; e++) {
            const int i = ALONG_ROWS ? e % 4 : pass;
            const float scaled = x[e] * scale[i];
            if (COUNT) look(largest[i], small[i / 2], x[e], scaled, 1u << (16 * (i % 2)));
            x[e] = scaled;
        }
        unsigned hi[4], lo[4];
#pragma unroll
        for (int e = 0; e < 4; e++) split(x[2 * e], x[2 * e + 1], hi[e], lo[e]);
        if constexpr (ALONG_ROWS) {
#pragma unroll
            for (int h = 0; h < 2; h++) {
                // Of 8 places of K the swizzle differs: STEP 4 alternates between a thread's first place and the one 4 further on.
                const unsigned at = plane + (STEP == 4 && h ? to ^ 64 : to) + STEP * (2 * pass + h) * PLANE_ROW;
                asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(at), "r"(hi[2 * h]), "r"(hi[2 * h + 1]) : "memory");
                if (PLANES == 2)
                    asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(at + ROWS * PLANE_ROW), "r"(lo[2 * h]), "r"(lo[2 * h + 1])
                                 : "memory");
            }
        } else {
            const unsigned at = plane + to + 16 * pass * PLANE_ROW;
            asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(hi[0]), "r"(hi[1]), "r"(hi[2]), "r"(hi[3]) : "memory");
            if (PLANES == 2)
                asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(at + ROWS * PLANE_ROW), "r"(lo[0]), "r"(lo[1]), "r"(lo[2]),
                             "r"(lo[3])
                             : "memory");
        }
    }

    // Starts the copies of the first K-blocks of begin .. end.
    __device__ __forceinline__ void start(int begin, int end) const {
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            const int kb = begin + i / PASSES;
            load(queue + 8192 * i, from + (long long)kb * BLOCK_K * k_bytes, left_from(kb, end), i % PASSES);
        }
    }

    // Of K from this thread's first in K-block kb on: none in what is not of begin .. end.
    __device__ __forceinline__ int left_from(int kb, int end) const { return kb < end ? depth - k - kb * BLOCK_K : 0; }

    template <bool COUNT>
    __device__ __forceinline__ void split_block(unsigned slots, unsigned next_slots, const char* block, int left, unsigned plane) {
#pragma unroll
        for (int pass = 0; pass < PASSES; pass++) {
            float x[8];
#pragma unroll
            for (int e = 0; e < 8; e++) x[e] = next[e];
            copy_wait<AHEAD - 2>();
            fetch(pass + 1 < PASSES ? slots + 8192 * (pass + 1) : next_slots);
            store<COUNT>(x, pass, plane);
            load(slots + 8192 * pass, block, left, pass);
        }
    }

    // K-blocks begin .. end into the ring's stages; `plane` is where the operand's planes lie in a stage. Of the `sharers` blocks
    // that split these rows, each counts the K-blocks that are its `turn`: counting costs as much as splitting.
    template <int STAGES, int STAGE>
    __device__ __forceinline__ void run(int begin, int end, int sharers, int turn, unsigned plane, unsigned full, unsigned empty, int& stage, unsigned& phase) {
        const char* block = from + (long long)(begin + BLOCKS_AHEAD) * BLOCK_K * k_bytes;
        unsigned slots = queue;
        copy_wait<AHEAD - 1>();
        fetch(slots);
#pragma unroll 1
        for (int kb = begin; kb < end; kb++) {
            const int left = kept(left_from(kb + BLOCKS_AHEAD, end));
            const unsigned next_slots = BLOCKS_AHEAD == 2 && slots == queue ? queue + 8192 * PASSES : queue;
            row_bytes = kept(row_bytes), k_bytes = kept(k_bytes), last_row = kept(last_row);  // or 8 passes' addresses are kept
            barrier_wait(empty + 8 * stage, phase ^ 1);
            if (turn == 0) {
                split_block<true>(slots, next_slots, block, left, plane + stage * STAGE);
                turn = sharers;
            } else {
                split_block<false>(slots, next_slots, block, left, plane + stage * STAGE);
            }
            turn--;
            block += BLOCK_K * k_bytes;
            slots = next_slots;
            __syncwarp();
            if (threadIdx.x % 32 == 0) barrier_arrive(full + 8 * stage);
            if (++stage == STAGES) stage = 0, phase ^= 1;
        }
        copy_wait<0>();
    }

    // What was seen of the tile's rows, to the rows' stats.
    __device__ __forceinline__ void tell(const Split& s, int side, int matrix, int row0) {
        RowStats* const stats = s.stats[side] + (s.matrices[side] == 1 ? 0 : matrix) * (side ? s.p.n : s.p.m) + row0;
#pragma unroll
        for (int i = 0; i < OWN; i++) {
            Seen seen{largest[i], small[i / 2] >> (16 * (i % 2)) & 0xffff};
            if constexpr (!ALONG_ROWS) {
#pragma unroll
                for (int offset = 4; offset > 0; offset /= 2) {
                    seen.largest = larger(seen.largest, __shfl_xor_sync(~0u, seen.largest, offset));
                    seen.small += __shfl_xor_sync(~0u, seen.small, offset);
                }
            }
            const bool any = __float_as_uint(seen.largest) != 0 || seen.small;
            if (any && (ALONG_ROWS || threadIdx.x % 8 == 0) && row + row_step(i) <= last_row) report(stats[row + row_step(i)], seen);
        }
    }
};

// One of the two operands, by a warpgroup: SIDE 0 is A, 1 is B.
template <int SIDE, int STAGES, int STAGE, int PLANE_AT>
__device__ __forceinline__ void split_tiles(const Split& s, unsigned ring, unsigned queues, unsigned full, unsigned empty) {
    Splitter<SIDE ? TILE_N : TILE_M, SIDE ? MM32_B_LOAD : MM32_A_LOAD> splitter(queues);
    const unsigned plane = ring + PLANE_AT;
    const int blocks = (int)ceil_div(s.p.k, BLOCK_K);
    int stage = 0;
    unsigned phase = 0;
    for (Walk walk(s.p, blockIdx.x); walk.inside(s); walk.advance(s.p, gridDim.x)) {
        const Tile tile = walk.tile(s.p);
        const int begin = split_begin(blocks, tile.split, (int)s.splits), end = split_begin(blocks, tile.split + 1, (int)s.splits);
        const int row0 = SIDE ? tile.n0 : tile.m0;
        splitter.begin(s, SIDE, tile.matrix, row0);
        splitter.start(begin, end);
        splitter.load_scales(s, SIDE, tile.matrix, row0);
        // The tiles of other columns (or rows) have these rows too, and where the operand is shared, those of the whole batch.
        const int across = SIDE ? tile.m0 / TILE_M : tile.n0 / TILE_N;
        const int crossing = SIDE ? (int)ceil_div(s.p.m, TILE_M) : (int)ceil_div(s.p.n, TILE_N);
        const bool shared = s.matrices[SIDE] == 1;
        splitter.template run<STAGES, STAGE>(begin, end, shared ? crossing * (int)s.p.batches : crossing,
                                             shared ? tile.matrix * crossing + across : across, plane, full, empty, stage, phase);
        splitter.tell(s, SIDE, tile.matrix, row0);
    }
}

// By the 256 threads that split: the block that is done last judges, in the memory of the queues.
__device__ __forceinline__ void finish(const Split& s, Worst* queues) {
    __shared__ unsigned finished;
    __threadfence();
    asm volatile("bar.sync 5, 256;" ::: "memory");
    if (threadIdx.x % 256 == 0) finished = atomicAdd(&s.verdict->packers, 1u);
    asm volatile("bar.sync 5, 256;" ::: "memory");
    if (finished != gridDim.x - 1) return;
    __threadfence();
    judge<256, 2>(s, kept((int)threadIdx.x % 256), queues);  // nothing of it worked out above, where registers are short
}
#endif
