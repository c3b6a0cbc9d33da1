// Raw tiles: fp32 elements of an operand, 16 rows x 64 of K, in shared memory, as a warp copies them from global memory for
// itself and reads them again to split them (emulated/direct.cu). The copies coalesce along the operand's contiguous axis, so
// the order in shared memory differs: along K or along rows. 16-byte pieces are permuted (XOR) so that neither the copies nor
// the two ways of reading meet a bank conflict. Tiles that lie along K begin at multiples of 128 bytes.
//
// Places of K: place p of the 64 is at k = p / 8 * 4 + p % 4 + (p % 8 < 4 ? 0 : 32) of a raw tile, for both operands. Eight
// neighbouring places are then two 16-byte pieces. A raw tile with 32 of K has the first 16 at k = 0 and the others at k = 32, so
// that the first 32 places hold them; the rest of it is not written and must not be read.
#pragma once
#include "common/operand.cuh"
#include "ptx/shared_memory.cuh"

constexpr int RAW_ROWS = 16, RAW_K = 64;

__device__ __forceinline__ constexpr int k_of_place(int p) { return p / 8 * 4 + p % 4 + (p % 8 < 4 ? 0 : 32); }

// LOAD is one of mm32_pack's (emulated/pack.cu): 0 and 2 are 16 bytes at a time, along rows or along K; 1 and 3 are 4 bytes.
// 4 and 5 are 16 bytes too, along rows or along K, where lines are contiguous but not aligned: a line is copied from the
// 16-byte boundary at or before its first element, and its first element lies as far behind a 16-byte boundary in shared
// memory (`shift`, 0 .. 3 floats). DEPTH: how much of K, 64 or 32.
template <int LOAD, int DEPTH>
struct RawTile {
    static constexpr int RUN = DEPTH / 2;  // how much of K lies together. A multiple of 4: lines of both have the same shifts
    static_assert(DEPTH == 64 || DEPTH == 32);
    // Whether place k of a raw tile is written, and which place of K it holds.
    static __device__ __forceinline__ constexpr bool is_used(int k) { return k % 32 < RUN; }
    static __device__ __forceinline__ constexpr int source(int k) { return k - k / 32 * (32 - RUN); }
    static constexpr bool ALONG_ROWS = LOAD < 2 || LOAD == 4, VECTOR = LOAD % 2 == 0, SHIFTED = LOAD >= 4;
    static constexpr int LINE = ALONG_ROWS ? 80 : 272;  // bytes of a line, if SHIFTED
    static constexpr int BYTES = SHIFTED      ? (ALONG_ROWS ? RAW_K * LINE + 64 : RAW_ROWS * LINE)
                                 : ALONG_ROWS ? RAW_K * 64 + 64
                                              : RAW_ROWS * 256;

    // Where an element lies, in bytes; if SHIFTED, in a line without a shift. Along rows, two elements of the same half of K
    // lie K_STEP bytes apart for each place of K between them, if that is a multiple of 4 places, or if they are in the same
    // pair.
    static constexpr int K_STEP = SHIFTED ? LINE : 64;
    static __device__ __forceinline__ unsigned at(unsigned row, unsigned k) {
        if constexpr (SHIFTED) return ALONG_ROWS ? k * LINE + k / 32 * 64 + row * 4 : row * LINE + k * 4;
        if constexpr (ALONG_ROWS) return k * 64 + k / 32 * 64 + ((row / 4 ^ k / 2 % 2 * 2 ^ k / 32) * 16) + row % 4 * 4;
        return row * 256 + k / 32 * 128 + ((k / 4 % 8 ^ row % 8 ^ k / 32 * 4) * 16) + k % 4 * 4;
    }

    // The first row and place along K that a lane copies. Functions, not members: the compiler then knows how large they can be,
    // and addresses in shared memory differ by constants.
    static __device__ __forceinline__ int first_row() {
        return ALONG_ROWS ? (VECTOR || SHIFTED ? lane_of(4) * 4 : lane_of(16)) : VECTOR || SHIFTED ? lane_of(32) / 8 : 0;
    }
    static __device__ __forceinline__ int first_k() {
        return ALONG_ROWS ? lane_of(32) / (VECTOR || SHIFTED ? 4 : 16) : VECTOR || SHIFTED ? lane_of(8) * 4 : lane_of(32);
    }

    const char* from;             // where that element is in global memory
    unsigned row_bytes, k_bytes;  // strides. Plans come here only where a tile spans less than 2^32 bytes
    int rows;                     // how many of the tile exist, counted from the lane's first
    unsigned phase;               // if SHIFTED, the shift of line 0; each line adds the stride between lines, modulo 4

    __device__ __forceinline__ unsigned shift_of(unsigned phase, unsigned line) const {
        return (phase + line * ((ALONG_ROWS ? k_bytes : row_bytes) / 4)) % 4;
    }

    // The tile of `x` that begins at row `row0`, a multiple of 16, at place 0 along K.
    __device__ __forceinline__ void begin(const Operand& x, int row0) {
        const int row = first_row(), k = first_k();
        row_bytes = 4 * (unsigned)x.row_stride, k_bytes = 4 * (unsigned)x.k_stride;
        rows = (int)min(x.rows - row0 - row, (long long)(1 << 30));
        from = reinterpret_cast<const char*>(x.data + (row0 + row) * x.row_stride + k * x.k_stride);
        if constexpr (SHIFTED) {
            phase = (unsigned)(reinterpret_cast<unsigned long long>(x.data) / 4 % 4);
            from -= 4 * shift_of(phase, ALONG_ROWS ? k : row);
        }
    }

    // Moves on to the tile that begins `on` rows, a multiple of 16, further on.
    __device__ __forceinline__ void move(int on) { rows -= on, from += on * (long long)row_bytes; }

    // How many of 16 bytes exist, if `floats` elements do from their first on.
    static __device__ __forceinline__ int bytes_of(int floats) { return 4 * max(0, min(floats, 4)); }

    // Starts to copy DEPTH of K from `k0` on to `to`, as one group. `left` places of K exist from there. The tile is the one
    // that begins `on` rows, a multiple of 16, further on. What does not exist becomes 0.
    __device__ __forceinline__ void copy(unsigned to, long long k0, int left, int on = 0) const {
        const char* const first = from + k0 * k_bytes + on * (long long)row_bytes;
        const int rows = this->rows - on, row = first_row(), k = first_k();
        left -= k;
        if constexpr (SHIFTED && !ALONG_ROWS) {
            // The copies of a lane have one shift, since their rows are multiples of 4 apart. The last piece of a row is copied
            // by the first four of the eight lanes that share rows.
            const int floats = left + shift_of(phase, row), late = lane_of(8), low = bytes_of(floats),
                      high = bytes_of(floats - RUN);
            if (k < RUN + 4) {  // with runs shorter than 32, this includes the last piece of both
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    copy_async_part(to + at(row + 4 * i, k), first + 4 * i * row_bytes, 4 * i < rows ? low : 0);
                    copy_async_part(to + at(row + 4 * i, k + 32), first + 4 * i * row_bytes + 4 * RUN, 4 * i < rows ? high : 0);
                }
            }
            if (RUN == 32 && late < 4)
                copy_async_part(to + at(row + 4 * late, 64), first + 4 * late * row_bytes - 16 * late + 256,
                                4 * late < rows ? bytes_of(floats + 4 * late - 64) : 0);
        } else if constexpr (SHIFTED) {
            const int floats = rows + shift_of(phase, k), late = lane_of(4), bytes = bytes_of(floats);
#pragma unroll
            for (int i = 0; i < 8; i++)
                if (is_used(8 * i))
                    copy_async_part(to + at(row, k + 8 * i), first + source(8 * i) * k_bytes, source(8 * i) < left ? bytes : 0);
#pragma unroll
            for (int h = 0; h < 2; h++)
                if (is_used(8 * late))
                    copy_async_part(to + at(16, k + 8 * late + 32 * h), first + (8 * late + RUN * h) * k_bytes - 16 * late + 64,
                                    8 * late + RUN * h < left ? bytes_of(floats + 4 * late - 16) : 0);
        } else if constexpr (VECTOR && !ALONG_ROWS) {
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int h = 0; h < 2; h++)
                    if (is_used(k))
                        copy_async<16>(to + at(row + 4 * i, k + 32 * h),
                                       reinterpret_cast<const float*>(first + 4 * i * row_bytes + 4 * RUN * h),
                                       4 * i < rows && RUN * h < left);
        } else if constexpr (VECTOR) {
#pragma unroll
            for (int i = 0; i < 8; i++)
                if (is_used(8 * i))
                    copy_async<16>(to + at(row, k + 8 * i), reinterpret_cast<const float*>(first + source(8 * i) * k_bytes),
                                   0 < rows && source(8 * i) < left);
        } else if constexpr (!ALONG_ROWS) {
#pragma unroll
            for (int i = 0; i < 16; i++)
#pragma unroll
                for (int h = 0; h < 2; h++)
                    if (is_used(k))
                        copy_async<4>(to + at(i, k + 32 * h),
                                      reinterpret_cast<const float*>(first + i * row_bytes + RUN * h * k_bytes),
                                      i < rows && RUN * h < left);
        } else {
#pragma unroll
            for (int i = 0; i < 32; i++)
                if (is_used(2 * i))
                    copy_async<4>(to + at(row, k + 2 * i), reinterpret_cast<const float*>(first + source(2 * i) * k_bytes),
                                  0 < rows && source(2 * i) < left);
        }
        copy_commit();
    }

    // The order of rows in fragments: fragment row f holds row `row_of(f)` of the tile.
    static __device__ __forceinline__ constexpr int row_of(int f) { return ALONG_ROWS ? f % 8 * 2 + f / 8 : f; }

    static __device__ __forceinline__ int lane_of(int lanes) { return threadIdx.x % lanes; }

    // A lane's part of places 16 * step .. + 15, in the order of wgmma's operand A in registers: pairs of neighbouring places.
    __device__ __forceinline__ void fragment(unsigned tile, int step, float2 (&x)[4]) const {
        const unsigned lane = threadIdx.x % 32, g = lane / 4, k = 8 * step + lane % 2 * 2 + lane % 4 / 2 * 32;
        if constexpr (SHIFTED && ALONG_ROWS) {
            const unsigned one = 4 * shift_of(phase, k), other = 4 * shift_of(phase, k + 1);
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const unsigned first = tile + at(2 * g, k + 4 * i) + one, second = tile + at(2 * g, k + 4 * i + 1) + other;
                x[2 * i] = make_float2(load_shared1(first), load_shared1(second));
                x[2 * i + 1] = make_float2(load_shared1(first + 4), load_shared1(second + 4));
            }
        } else if constexpr (SHIFTED) {
            const unsigned from = tile + at(g, k) + 4 * shift_of(phase, g);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const unsigned pair = from + i % 2 * 8 * LINE + i / 2 * 16;
                x[i] = make_float2(load_shared1(pair), load_shared1(pair + 4));
            }
        } else if constexpr (ALONG_ROWS) {
            const unsigned from = tile + at(2 * g, k - 8 * step) + 8 * step * K_STEP;
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const float2 first = load_shared2(from + 4 * i * K_STEP), second = load_shared2(from + (4 * i + 1) * K_STEP);
                x[2 * i] = make_float2(first.x, second.x), x[2 * i + 1] = make_float2(first.y, second.y);
            }
        } else {
            const unsigned first = tile + at(g, k - 8 * step);  // the pieces' addresses differ in bits 4 .. 6 alone
#pragma unroll
            for (int i = 0; i < 4; i++) x[i] = load_shared2((first ^ (2 * step + i / 2) * 16) + i % 2 * 8 * 256);
        }
    }

    // Eight elements that make a 16-byte piece of a plane. Along K: places 8 * piece .. + 7 of row `line`. Along rows: rows
    // 8 * piece .. + 7 at place k = `line`. Offsets that are the same for all lanes are passed by themselves: `on`, a multiple
    // of 8 lines, along rows in the same half of K; `more`, 0 or 4 pieces along K. `phase`: as it was when the tile was
    // copied.
    __device__ __forceinline__ void piece(unsigned tile, unsigned phase, int line, int piece, float (&x)[8], int on,
                                          int more) const {
        unsigned first, second;
        if constexpr (ALONG_ROWS) {
            first = at(8 * piece, line) + on * K_STEP, second = at(8 * piece + 4, line) + on * K_STEP;
        } else if constexpr (SHIFTED) {
            first = at(line, 4 * piece) + on * LINE + more * 16, second = first + 128;
        } else {
            first = (at(line, 4 * piece) ^ more * 16) + on * 256, second = (first ^ 64) + 128;
        }
        if constexpr (SHIFTED) {
            const unsigned shift = 4 * shift_of(phase, line + on);
#pragma unroll
            for (int e = 0; e < 4; e++)
                x[e] = load_shared1(tile + first + shift + 4 * e), x[4 + e] = load_shared1(tile + second + shift + 4 * e);
        } else {
            load_shared(tile + first, x[0], x[1], x[2], x[3]);
            load_shared(tile + second, x[4], x[5], x[6], x[7]);
        }
    }

    // Places 8 * piece .. + 7 of row `line` of a tile that lies along rows.
    __device__ __forceinline__ void piece_of_row(unsigned tile, unsigned phase, int line, int piece, float (&x)[8]) const {
#pragma unroll
        for (int e = 0; e < 8; e++) {
            const int k = 4 * piece + e % 4 + e / 4 * 32;
            x[e] = load_shared1(tile + at(line, k) + (SHIFTED ? 4 * shift_of(phase, k) : 0));
        }
    }
};
