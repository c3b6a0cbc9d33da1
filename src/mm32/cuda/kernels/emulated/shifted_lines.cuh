// Shifted lines: how mm32_pack reads an operand whose lines are contiguous, along its rows or along K, but lie at any
// multiple of 4 bytes. A block of 256 threads reads 16 rows x 64 of K at a time. Each line is copied in 16-byte pieces
// (cp.async) from the 16-byte boundary at or before its first element, which then lies as far behind a 16-byte boundary in
// shared memory (its shift, 0 .. 3 floats). A thread then reads its own elements, 4 neighbours along K of one row, each where
// the shift has put it.
// Of a piece, only bytes up to the last element that is wanted are read; what stands before the first element is in the same
// 16 bytes, and so in the same allocation.
//
// One piece of code serves both directions: where a small product is packed, operands along rows and along K then share the
// instructions that have to be fetched (150 instructions of a launch are 2 us). STAGES stages of a K-block are under way
// while one is used; they take 15.4 KB, so that a block of mm32_pack fits on a multiprocessor beside one of the multiply,
// which leaves 17.2.
#pragma once
#include "ptx/shared_memory.cuh"

struct ShiftedLines {
    static constexpr int ROWS = 16, DEPTH = 64, STAGES = 3;  // DEPTH: BLOCK_K
    // Bytes from line to line. Along rows, where a line is a place of K, GAP more bytes come before every eighth line: the 16
    // threads that read 4 places each then meet in each bank twice, and not eight times. Along K they meet twice anyway.
    static constexpr int LINE_OF_ROWS = 80, LINE_OF_K = 272, GAP = 16;
    static constexpr int STAGE = DEPTH * LINE_OF_ROWS + DEPTH / 8 * GAP, BYTES = STAGES * STAGE;
    static_assert(STAGE >= ROWS * LINE_OF_K && STAGE % 16 == 0);

    // What a thread copies of a K-block: one of the first 16 pieces (along rows 4) of a line, and the last piece of another
    // line, which only some threads have.
    const char* from[2];
    unsigned to[2];    // in stage 0
    int floats[2];     // how many exist from the piece on; along K, less the places of K that do
    unsigned read[4];  // where the thread's elements lie in stage 0
    long long step;    // bytes from a K-block to the next
    int left;          // places of K that are not copied yet
    bool along_rows, has_last;

    // `first` is the element at row 0 and place 0 of K. There are `rows` rows and `depth` places of K, of which 16 rows and
    // any number of places are read. `memory`: BYTES bytes of shared memory, aligned to 16.
    __device__ __forceinline__ ShiftedLines(const float* first, long long row_stride, long long k_stride, bool along_rows,
                                            int rows, int depth, unsigned memory)
        : step(4 * DEPTH * k_stride),
          left(depth),
          along_rows(along_rows),
          has_last((int)threadIdx.x < (along_rows ? DEPTH : ROWS)) {
        int t = threadIdx.x;
        asm volatile("" : "+r"(t));  // what follows from t is then not kept in registers from unit to unit, where it spilled
        const long long stride = along_rows ? k_stride : row_stride;
        const unsigned phase = (unsigned)(reinterpret_cast<unsigned long long>(first) / 4 % 4);
        const auto shift_of = [&](int line) { return (int)((phase + (unsigned)line * (unsigned)stride) % 4); };
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int line = line_of(i), shift = shift_of(line);
            const int piece = i ? (along_rows ? 4 : 16) : (along_rows ? t % 4 : t % 16);
            from[i] = reinterpret_cast<const char*>(first + line * stride - shift + 4 * piece);
            to[i] = memory + (along_rows ? line * LINE_OF_ROWS + line / 8 * GAP : line * LINE_OF_K) + 16 * piece;
            floats[i] = (along_rows ? min(rows, ROWS) : line < rows ? 0 : -2 * DEPTH) + shift - 4 * piece;
        }
        const int row = t / 16, k = t % 16 * 4;
#pragma unroll
        for (int j = 0; j < 4; j++)
            read[j] = memory + (along_rows ? (k + j) * LINE_OF_ROWS + k / 8 * GAP + (row + shift_of(j)) * 4
                                           : row * LINE_OF_K + (k + j + shift_of(row)) * 4);
    }

    // Along rows, 8 threads that store together have lines four apart, whose 64 bytes are in different banks.
    __device__ __forceinline__ int line_of(int i) const {
        const int t = threadIdx.x;
        return i ? t : along_rows ? t / 32 * 8 + t % 32 / 8 + t / 4 % 2 * 4 : t / 16;
    }

    // Starts to copy the next K-block to a stage, as one group. Past the last K-block, the group is empty.
    __device__ __forceinline__ void copy(unsigned stage) {
        if (left > 0) {
            // Except at the end of K, K-blocks are whole, and their pieces are the same in each.
            int existing[2] = {floats[0] + (along_rows ? 0 : DEPTH), floats[1] + (along_rows ? 0 : DEPTH)};
            if (left < DEPTH)
#pragma unroll
                for (int i = 0; i < 2; i++) existing[i] = along_rows ? (line_of(i) < left ? floats[i] : 0) : floats[i] + left;
            copy_async_part(to[0] + stage, from[0], 4 * max(0, min(existing[0], 4)));
            if (has_last) copy_async_part(to[1] + stage, from[1], 4 * max(0, min(existing[1], 4)));
            from[0] += step, from[1] += step, left -= DEPTH;
        }
        copy_commit();
    }

    // Calls use(v) for each of `blocks` K-blocks, in order: v are places 4 * (t % 16) .. + 3 of row t / 16, for thread t. What
    // does not exist is 0. For all 256 threads of a block.
    template <typename Use>
    __device__ __forceinline__ void each_block(int blocks, Use use) {
        unsigned stage = 0;
#pragma unroll 1
        for (int block = -STAGES; block < blocks; block++) {
            float v[4];
            if (block >= 0) {
                copy_wait<STAGES - 1>();
                __syncthreads();
#pragma unroll
                for (int j = 0; j < 4; j++) v[j] = load_shared1(read[j] + stage);
                __syncthreads();  // the stage is free
            }
            copy(stage);
            stage = stage == (STAGES - 1) * STAGE ? 0 : stage + STAGE;
            if (block >= 0) use(v);
        }
    }
};

// Loads COUNT neighbours of a line, at any multiple of 4 bytes, by 16-byte loads from the boundary at or before the first.
// For lanes that each have a line of their own, so that every load touches 32 lines of L1. Nothing past the last is read.
template <int COUNT>
__device__ __forceinline__ void load_shifted(const float* from, float (&x)[COUNT]) {
    const unsigned shift = (unsigned)(reinterpret_cast<unsigned long long>(from) / 4 % 4);
    const float* const at = from - shift;
    float raw[COUNT + 4];
#pragma unroll
    for (int i = 0; i < COUNT; i += 4) {
        const float4 v = *reinterpret_cast<const float4*>(at + i);
        raw[i] = v.x, raw[i + 1] = v.y, raw[i + 2] = v.z, raw[i + 3] = v.w;
    }
#pragma unroll
    for (int i = 0; i < 4; i++) raw[COUNT + i] = i < 3 && i < (int)shift ? at[COUNT + i] : 0.f;
#pragma unroll
    for (int i = 0; i < COUNT + 2; i++) raw[i] = shift & 2 ? raw[i + 2] : raw[i];
#pragma unroll
    for (int i = 0; i < COUNT; i++) x[i] = shift & 1 ? raw[i + 1] : raw[i];
}
