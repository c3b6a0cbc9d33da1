// Inline packing: how mm32_tensorcore fills its ring from fp32 operands when nothing was packed before (MM32_INLINE_PACK). One
// warpgroup for each operand copies fp32 tiles, scales and splits them in registers, and stores hi and lo where wgmma reads them.
// Each element is split again for every tile that needs it. So this is for products of few tiles, or of so little K that packing
// would cost more than it saves: 128 x 4096 x 4096 takes 75 us instead of 99, but 2048 x 8192 x 4096 takes 979 instead of 641.
// Bound by shared memory, which each element passes three times (84 % busy).
//
// MM32_A_LOAD and MM32_B_LOAD are mm32_pack's loads (emulated/pack.cu). With 0 and 1, lines of shared memory lie along the
// operand's rows, and a thread has 4 neighbouring rows at one place of K. With 2 and 3 they lie along K, and a thread has 8
// places of K of a row. Both operands permute K within a K-block in the same way:
// place p of 64 holds k = p / 8 * 4 + p % 4 + (p % 8 < 4 ? 0 : 32), so that a thread's 8 places of K are two 16-byte loads that
// coalesce with its neighbours'.
#pragma once
#include "emulated/decide.cuh"
#include "emulated/hi_lo.cuh"
#include "emulated/tiles.cuh"
#include "ptx/bulk_copy.cuh"
#if MM32_INLINE_PACK

// Hides from the compiler how x was computed. It then keeps x in a register and does not compute it again.
template <typename T>
__device__ __forceinline__ T opaque(T x) {
    asm volatile("" : "+r"(x));
    return x;
}

// Each thread copies its elements to a queue of its own in shared memory, AHEAD passes before it splits them, so that it waits
// for no other thread. A pass is 8 elements a thread, in two halves of 4.
constexpr int AHEAD = 8, QUEUE = AHEAD * 256 * 32;  // passes; bytes, for both warpgroups

// What one warpgroup does for its operand, whose tiles have ROWS rows.
template <int ROWS, int LOAD, bool SCALED_LO>
struct InlinePacker {
    static constexpr bool ALONG_ROWS = LOAD < 2, VECTOR = LOAD % 2 == 0;
    static constexpr int PASSES = ROWS / 16;  // in a K-block
    static constexpr int BLOCKS_AHEAD = AHEAD / PASSES;
    static constexpr int OWN = ALONG_ROWS ? 4 : PASSES;  // how many rows a thread has elements of
    static constexpr int GROUPS = ROWS / 4;              // ALONG_ROWS: threads along rows
    static constexpr int STEP = 128 / GROUPS;            // ALONG_ROWS: places of K that the warpgroup has in one half of a pass
    // The least number whose hi is not small: small_hi, less half of hi's last place below it.
    static constexpr float SMALL = PLANES == 2 && !SCALED_LO ? 0x1p-3f - 0x1p-15f : 0x1p-14f - 0x1p-25f;
    static_assert(AHEAD % PASSES == 0);

    const char* from;             // the thread's first place of K, in row 0 of the tile (VECTOR and ALONG_ROWS: in its first row)
    unsigned row_bytes, k_bytes;  // strides. Plans come here only where a tile spans less than 2^32 bytes
    int row, k, last_row, depth;  // the thread's first row and place of K; the tile's last row; K
    unsigned to;                  // where the thread's first element goes in a plane
    unsigned scales[OWN / 4];     // of the thread's rows, powers of two: their biased exponents, a byte each
    float largest[OWN];
    unsigned counts[OWN];  // as in Observed; a plan shares K so that 16 bits suffice
    float next[8];         // the next pass, loaded before this one is split
    unsigned zero;         // see split
    unsigned queue;        // slot 0 of the thread: 16 bytes for each half, 4096 apart. Slots are 8192 apart

    __device__ __forceinline__ InlinePacker(unsigned queues) : queue(queues + threadIdx.x % 256 * 16) {
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
        row = opaque(row), k = opaque(k), to = opaque(to);
    }

    // What a half of a pass adds to k, and what row i adds to row. The order of K in a K-block is that of the opening comment.
    static __device__ constexpr int k_step(int pass_index, int half) {
        return !ALONG_ROWS ? 32 * half : STEP == 4 ? 4 * pass_index + 32 * half : 8 * pass_index + 4 * half;
    }
    static __device__ constexpr int row_step(int i) { return ALONG_ROWS ? i : 16 * i; }

    __device__ __forceinline__ float scale(int i) const {
        const unsigned shifted = i % 4 == 3 ? scales[i / 4] >> 1 : scales[i / 4] << (23 - 8 * (i % 4));
        return __uint_as_float(shifted & 0x7f800000u);
    }

    __device__ __forceinline__ void begin(const Params& s, int side, int matrix, int row0) {
        const Operand x = operand_of(s, side, matrix);
        row_bytes = ALONG_ROWS && VECTOR ? 4 : 4 * (unsigned)x.row_stride;
        k_bytes = !ALONG_ROWS && VECTOR ? 4 : 4 * (unsigned)x.k_stride;
        last_row = (int)min(x.rows - row0, (long long)ROWS) - 1;
        // Along rows, threads past the edge copy nothing: copies of the same 16 bytes by many threads are done one after another.
        zero = (unsigned)(s.p.k >> 40);
        depth = ALONG_ROWS && row > last_row ? 0 : (int)s.p.k;
        // Along K, threads past the edge copy the last row again; the sums of such rows are not stored. With VECTOR and
        // ALONG_ROWS, the number of rows is a multiple of 4.
        const int first = VECTOR && ALONG_ROWS ? min(row, last_row - 3) : 0;
        from = reinterpret_cast<const char*>(x.data + (row0 + first) * x.row_stride + k * x.k_stride);
    }

    __device__ __forceinline__ void load_scales(const RowStats* stats) {
#pragma unroll
        for (int i = 0; i < OWN; i++) {
            const int exponent = Scale{stats[min(row + row_step(i), last_row)].scale}.exponent(SCALED_LO);
            scales[i / 4] = (i % 4 ? scales[i / 4] : 0u) | (unsigned)(exponent + 127) << (8 * (i % 4));
            largest[i] = 0.f, counts[i] = 0;
        }
    }

    // Starts to copy a pass of the K-block at `block` to a slot of the queue. From the thread's first place on, the K-block has
    // `left` places of K; the others become zeros.
    __device__ __forceinline__ void load(unsigned slot, const char* block, int left, int pass_index) const {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const char* const at = block + k_step(pass_index, h) * k_bytes;
            if constexpr (VECTOR) {
                const unsigned offset = ALONG_ROWS ? 0 : min(row + row_step(pass_index), last_row) * row_bytes;
                copy_async<16>(slot + 4096 * h, reinterpret_cast<const float*>(at + offset), k_step(pass_index, h) < left);
            } else {
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    const unsigned offset = min(row + row_step(ALONG_ROWS ? e : pass_index), last_row) * row_bytes;
                    const int past = ALONG_ROWS ? 0 : e;
                    copy_async<4>(slot + 4096 * h + 4 * e, reinterpret_cast<const float*>(at + past * k_bytes + offset),
                                  k_step(pass_index, h) + past < left);
                }
            }
        }
        copy_commit();
    }

    static __device__ __forceinline__ void load_slot(float (&to)[8], unsigned slot) {
#pragma unroll
        for (int h = 0; h < 2; h++)
            asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                         : "=f"(to[4 * h]), "=f"(to[4 * h + 1]), "=f"(to[4 * h + 2]), "=f"(to[4 * h + 3])
                         : "r"(slot + 4096 * h)
                         : "memory");
    }

    // Scales and splits a pass and stores it in the ring. With OBSERVE it collects the stats of its rows, by five
    // instructions an element and without branches: an operand that is half zeros takes no longer, and nothing has to be kept
    // for later.
    template <bool OBSERVE>
    __device__ __forceinline__ void store(float (&x)[8], int pass_index, unsigned plane) {
#pragma unroll
        for (int e = 0; e < 8; e++) {
            const int i = ALONG_ROWS ? e % 4 : pass_index;
            const float scaled = x[e] * scale(i);
            if constexpr (OBSERVE) {
                asm("max.NaN.f32 %0, %0, %1;" : "+f"(largest[i]) : "f"(fabsf(scaled)));
                // In PTX, because the compiler makes two instructions of a predicated addition.
                asm("{ .reg .pred p, q; setp.ge.f32 p, %2, %3; setp.neu.and.f32 q, %1, 0f00000000, !p;\n"
                    "@p add.u32 %0, %0, 65536; @q add.u32 %0, %0, 1; }"
                    : "+r"(counts[i])
                    : "f"(x[e]), "f"(fabsf(scaled)), "f"(SMALL));
            }
            x[e] = scaled;
        }
        unsigned pair[4][PLANES];
#pragma unroll
        for (int e = 0; e < 4; e++) {
            // ALONG_ROWS: both are at the same place of K, and all the thread's places are k and multiples of 4 further on.
            const float of_x = lo_factor(SCALED_LO, ALONG_ROWS ? k : 2 * e);
            split(x[2 * e], x[2 * e + 1], pair[e], of_x, ALONG_ROWS ? of_x : lo_factor(SCALED_LO, 2 * e + 1), zero);
        }
        if constexpr (ALONG_ROWS) {
#pragma unroll
            for (int h = 0; h < 2; h++) {
                // The swizzle repeats every 8 places of K. With STEP = 4 the second half is 4 places further on.
                const unsigned at = plane + (STEP == 4 && h ? to ^ 64 : to) + STEP * (2 * pass_index + h) * PLANE_ROW;
#pragma unroll
                for (int p = 0; p < PLANES; p++)
                    asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(at + p * ROWS * PLANE_ROW), "r"(pair[2 * h][p]),
                                 "r"(pair[2 * h + 1][p])
                                 : "memory");
            }
        } else {
            const unsigned at = plane + to + 16 * pass_index * PLANE_ROW;
#pragma unroll
            for (int p = 0; p < PLANES; p++)
                asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(at + p * ROWS * PLANE_ROW), "r"(pair[0][p]),
                             "r"(pair[1][p]), "r"(pair[2][p]), "r"(pair[3][p])
                             : "memory");
        }
    }

    // Starts to copy the first AHEAD passes of K-blocks begin .. end.
    __device__ __forceinline__ void start(int begin, int end) const {
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            const int kb = begin + i / PASSES;
            load(queue + 8192 * i, from + (long long)kb * BLOCK_K * k_bytes, left_from(kb, end), i % PASSES);
        }
    }

    // How many places of K there are from the thread's first place of K-block kb on; none past `end`.
    __device__ __forceinline__ int left_from(int kb, int end) const { return kb < end ? depth - k - kb * BLOCK_K : 0; }

    // Splits the K-block whose slots begin at `slots`, and starts to copy the K-block at `block` into them.
    template <bool OBSERVE>
    __device__ __forceinline__ void split_block(unsigned slots, unsigned next_slots, const char* block, int left,
                                                unsigned plane) {
#pragma unroll
        for (int pass_index = 0; pass_index < PASSES; pass_index++) {
            // Without this, the compiler would compute the addresses of 8 passes at once, and have no registers for them.
            row_bytes = opaque(row_bytes), k_bytes = opaque(k_bytes), last_row = opaque(last_row);
            float x[8];
#pragma unroll
            for (int e = 0; e < 8; e++) x[e] = next[e];
            copy_wait<AHEAD - 2>();
            load_slot(next, pass_index + 1 < PASSES ? slots + 8192 * (pass_index + 1) : next_slots);
            store<OBSERVE>(x, pass_index, plane);
            // Never true. Without a branch the compiler mixes the passes, and spills up to 2 KB.
            if (OBSERVE && !VECTOR && opaque(row_bytes) == ~0u) continue;
            load(slots + 8192 * pass_index, block, left, pass_index);
        }
    }

    // Packs K-blocks begin .. end into the stages of the ring; `plane` is where the operand's planes lie in stage 0. Observing
    // costs as much as splitting, so the `sharers` tiles that have these rows share it: each observes every sharers-th K-block,
    // and skips `wait` K-blocks before its first.
    template <int STAGES, int STAGE>
    __device__ __forceinline__ void run(int begin, int end, int sharers, int wait, unsigned plane, unsigned full_barriers,
                                        unsigned empty_barriers, int& stage, unsigned& phase) {
        const char* block = from + (long long)(begin + BLOCKS_AHEAD) * BLOCK_K * k_bytes;
        unsigned slots = queue;
        copy_wait<AHEAD - 1>();
        load_slot(next, slots);
#pragma unroll 1
        for (int kb = begin; kb < end; kb++) {
            const int left = opaque(left_from(kb + BLOCKS_AHEAD, end));
            const unsigned next_slots = BLOCKS_AHEAD == 2 && slots == queue ? queue + 8192 * PASSES : queue;
            barrier_wait(empty_barriers + 8 * stage, phase ^ 1);
            if (wait == 0) {
                split_block<true>(slots, next_slots, block, left, plane + stage * STAGE);
                wait = sharers;
            } else {
                split_block<false>(slots, next_slots, block, left, plane + stage * STAGE);
            }
            wait--;
            block += BLOCK_K * k_bytes;
            slots = next_slots;
            __syncwarp();
            if (threadIdx.x % 32 == 0) barrier_arrive(full_barriers + 8 * stage);
            if (++stage == STAGES) stage = 0, phase ^= 1;
        }
        copy_wait<0>();
    }

    // Adds what was observed of the tile's rows to their stats.
    __device__ __forceinline__ void record_rows(RowStats* stats) {
#pragma unroll
        for (int i = 0; i < OWN; i++) {
            float all = largest[i];
            unsigned small = counts[i] & 0xffff, regular = counts[i] >> 16;
            if constexpr (!ALONG_ROWS) {
#pragma unroll
                for (int offset = 4; offset > 0; offset /= 2) {
                    asm("max.NaN.f32 %0, %0, %1;" : "+f"(all) : "f"(__shfl_xor_sync(~0u, all, offset)));
                    small += __shfl_xor_sync(~0u, small, offset), regular += __shfl_xor_sync(~0u, regular, offset);
                }
            }
            const bool any = __float_as_uint(all) != 0 || small;
            if (any && (ALONG_ROWS || threadIdx.x % 8 == 0) && row + row_step(i) <= last_row)
                record_exact(stats[row + row_step(i)], all, small, regular);
        }
    }
};

// Packs one operand of all tiles of the block, by one warpgroup. SIDE 0 is A, 1 is B.
template <int SIDE, int STAGES, int STAGE, int PLANE_AT, bool SCALED_LO>
__device__ __forceinline__ void pack_tiles_as(const Params& s, unsigned ring, unsigned queues, unsigned full_barriers,
                                              unsigned empty_barriers, const Deciding& deciding) {
    InlinePacker<SIDE ? TILE_N : TILE_M, SIDE ? MM32_B_LOAD : MM32_A_LOAD, SCALED_LO> packer(queues);
    const unsigned plane = ring + PLANE_AT;
    const int blocks = (int)ceil_div(s.p.k, BLOCK_K);
    int stage = 0;
    unsigned phase = 0;
    for (Scheduler scheduler(s.p, blockIdx.x); scheduler.has_tile(s.p, s.parts); scheduler.advance(s.p, gridDim.x)) {
        const TileOfPart tile = scheduler.tile(s.p);
        const int begin = part_begin(blocks, tile.part, (int)s.parts), end = part_begin(blocks, tile.part + 1, (int)s.parts);
        const int row0 = SIDE ? tile.n0 : tile.m0;
        packer.begin(s, SIDE, tile.matrix, row0);
        packer.start(begin, end);
        const int packed = packed_matrix(s, SIDE, tile.matrix);
        RowStats* const stats = s.stats[SIDE] + packed * (SIDE ? s.p.n : s.p.m) + row0;
        packer.load_scales(stats);
        // How many tiles have these rows: one for each tile column (B: tile row) of C, in all of a batch that shares the
        // operand.
        const int across = SIDE ? tile.m0 / TILE_M : tile.n0 / TILE_N;
        const int crossing = SIDE ? (int)ceil_div(s.p.m, TILE_M) : (int)ceil_div(s.p.n, TILE_N);
        const bool shared = s.matrices[SIDE] == 1;
        packer.template run<STAGES, STAGE>(begin, end, shared ? crossing * (int)s.p.batches : crossing,
                                           shared ? tile.matrix * crossing + across : across, plane, full_barriers,
                                           empty_barriers, stage, phase);
        packer.record_rows(stats);
        // How often tiles observe the READY_ROWS rows that hold these.
        constexpr int TILE = SIDE ? TILE_N : TILE_M;
        const long long rows = SIDE ? s.p.n : s.p.m;
        const int here = (int)ceil_div(min(rows - row0 / READY_ROWS * READY_ROWS, (long long)READY_ROWS), TILE);
        const unsigned all = (unsigned)(here * crossing * (int)s.parts) * (shared ? (unsigned)s.p.batches : 1u);
        __shared__ unsigned before[2];
        __threadfence();
        asm volatile("bar.sync %0, 128;" ::"n"(6 + SIDE) : "memory");
        const int observed = row_tile(s, SIDE, packed, row0);
        if (threadIdx.x % 128 == 0) before[SIDE] = atomicAdd(s.ready[SIDE] + observed, 1u);
        asm volatile("bar.sync %0, 128;" ::"n"(6 + SIDE) : "memory");
        if (before[SIDE] + 1 != all) continue;
        __threadfence();
        static_assert(REDUCERS == 4);  // a warp each
        reduce_rows<false>(s, SIDE, (long long)observed * REDUCERS + threadIdx.x % 128 / 32, AcceptTest(s, SCALED_LO), deciding);
    }
}

template <int SIDE, int STAGES, int STAGE, int PLANE_AT>
__device__ __forceinline__ void pack_tiles(const Params& s, bool scaled_lo, unsigned ring, unsigned queues,
                                           unsigned full_barriers, unsigned empty_barriers, const Deciding& deciding) {
    if (PLANES == 2 && scaled_lo)
        pack_tiles_as<SIDE, STAGES, STAGE, PLANE_AT, PLANES == 2>(s, ring, queues, full_barriers, empty_barriers, deciding);
    else
        pack_tiles_as<SIDE, STAGES, STAGE, PLANE_AT, false>(s, ring, queues, full_barriers, empty_barriers, deciding);
}

// Runs the accept test in the block that finishes last, by its 256 threads that pack, in the memory of the queues.
__device__ __forceinline__ void decide_if_last(const Params& s, bool scaled_lo, Deciding& d) {
    __shared__ unsigned finished;
    __threadfence();
    asm volatile("bar.sync 5, 256;" ::: "memory");
    if (threadIdx.x % 256 == 0) finished = atomicAdd(&s.decision->finished_blocks, 1u);
    asm volatile("bar.sync 5, 256;" ::: "memory");
    if (finished != gridDim.x - 1) return;
    __threadfence();
    // opaque: otherwise it would be computed early, where registers are short
    decide<256, MM32_LOWER_TIER, true, false>(s, opaque((int)threadIdx.x % 256), scaled_lo, d);
}
#endif
