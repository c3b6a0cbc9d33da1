// Computes a tile of C by multiply-adds, where a kernel finds at its end that it must: from operands of any strides, with
// little code.
#pragma once
#include "common/operand.cuh"
#include "ptx/shared_memory.cuh"
#include "ptx/words.cuh"
#include "ptx/named_barriers.cuh"

// Computes ROWS x COLUMNS sums with THREADS threads, the first ones of the block. Slices of K are copied through registers to
// shared memory, where a slice lies as [k][row]; the next slice is loaded while one is multiplied. Sums are promoted after
// every slice.
template <int ROWS, int COLUMNS, int THREADS>
struct Again {
    static constexpr int OWN = ROWS * COLUMNS / THREADS;  // sums of a thread: OWN_ROWS x OWN_COLUMNS
    static constexpr int OWN_COLUMNS = OWN >= 16 ? 4 : OWN >= 4 ? 2 : 1, OWN_ROWS = OWN / OWN_COLUMNS;
    static constexpr int ACROSS = COLUMNS / OWN_COLUMNS;  // threads along a row
    static constexpr int SLICE = 32;
    static constexpr int BYTES = SLICE * (ROWS + 4 + COLUMNS + 4) * 4;  // of shared memory
    static_assert(OWN >= 1 && OWN * THREADS == ROWS * COLUMNS && THREADS % ACROSS == 0);

    // A slice of one operand. LINES: its rows.
    template <int LINES>
    struct Slice {
        static constexpr int STEP = LINES + 4;  // floats from one k to the next
        static constexpr int EACH = LINES * SLICE / THREADS;
        // A thread's elements are ROW_STEP apart along rows; after TURNS of them it goes on K_STEP further along K.
        static constexpr int ROW_STEP = LINES < 32 ? LINES : 32, K_STEP = THREADS / ROW_STEP, TURNS = LINES / ROW_STEP;
        static_assert(EACH * THREADS == LINES * SLICE && EACH % TURNS == 0);
        float x[EACH];

        // The row and the place along K of a thread's first element. If K is contiguous, eight threads read 32 neighbouring
        // bytes; either way, neighbouring threads write to different banks.
        static __device__ __forceinline__ int2 first(const Operand& from) {
            const int t = threadIdx.x;
            return from.k_stride == 1 ? make_int2(t / 8 % ROW_STEP, t % 8 + t / (8 * ROW_STEP) * 8)
                                      : make_int2(t % ROW_STEP, t / ROW_STEP);
        }
        __device__ __forceinline__ void load(const Operand& from, long long k0, long long k) {
            const int2 at = first(from);
            const float* place = from.data + at.x * from.row_stride + (k0 + at.y) * from.k_stride;
#pragma unroll
            for (int e = 0; e < EACH; e += TURNS) {
                const bool exists = k0 + at.y + e / TURNS * K_STEP < k;
#pragma unroll
                for (int i = 0; i < TURNS; i++)
                    x[e + i] = exists && at.x + i * ROW_STEP < from.rows ? place[i * ROW_STEP * from.row_stride] : 0.f;
                place += K_STEP * from.k_stride;
            }
        }
        __device__ __forceinline__ void store(const Operand& from, unsigned to) const {
            const int2 at = first(from);
            to += (at.y * STEP + at.x) * 4;
#pragma unroll
            for (int e = 0; e < EACH; e++) store_shared1(to + (e / TURNS * K_STEP * STEP + e % TURNS * ROW_STEP) * 4, x[e]);
        }
    };

    // a, b: the operands from the tile's first row and column on; their `rows` are those that exist. `shared`: the address of
    // BYTES bytes, a multiple of 16. `stored(row, column, sum)` is called for each element that exists.
    template <typename Stored>
    static __device__ __forceinline__ void multiply(const Operand& a, const Operand& b, long long k, unsigned shared,
                                                    Stored stored) {
        const int row0 = threadIdx.x / ACROSS * OWN_ROWS, column0 = threadIdx.x % ACROSS * OWN_COLUMNS;
        const unsigned of_b = shared + SLICE * Slice<ROWS>::STEP * 4;
        Slice<ROWS> next_a;
        Slice<COLUMNS> next_b;
        float sum[OWN_ROWS][OWN_COLUMNS] = {};
#pragma unroll 1
        for (long long k0 = 0;; k0 += SLICE) {
            const bool more = k0 < k;
            if (more) next_a.load(a, k0, k), next_b.load(b, k0, k);
            if (k0 > 0) add_slice(shared + row0 * 4, of_b + column0 * 4, sum);
            if (!more) break;
            sync_at<1, THREADS>();  // the last slice has been read
            next_a.store(a, shared), next_b.store(b, of_b);
            sync_at<1, THREADS>();
        }
#pragma unroll
        for (int r = 0; r < OWN_ROWS; r++)
#pragma unroll
            for (int c = 0; c < OWN_COLUMNS; c++)
                if (row0 + r < a.rows && column0 + c < b.rows) stored(row0 + r, column0 + c, sum[r][c]);
    }

    // Adds a slice's products to the sums of the thread's own rows and columns.
    static __device__ __forceinline__ void add_slice(unsigned a, unsigned b, float (&sum)[OWN_ROWS][OWN_COLUMNS]) {
        float part[OWN_ROWS][OWN_COLUMNS] = {};
#pragma unroll(OWN > 8 ? 4 : 8)
        for (int i = 0; i < SLICE; i++) {
            float x[OWN_ROWS], y[OWN_COLUMNS];
            read(a + i * Slice<ROWS>::STEP * 4, x);
            read(b + i * Slice<COLUMNS>::STEP * 4, y);
#pragma unroll
            for (int r = 0; r < OWN_ROWS; r++)
#pragma unroll
                for (int c = 0; c < OWN_COLUMNS; c++) part[r][c] = fmaf(x[r], y[c], part[r][c]);
        }
#pragma unroll
        for (int r = 0; r < OWN_ROWS; r++)
#pragma unroll
            for (int c = 0; c < OWN_COLUMNS; c++) sum[r][c] += part[r][c];
    }

    template <int COUNT>
    static __device__ __forceinline__ void read(unsigned from, float (&x)[COUNT]) {
        if constexpr (COUNT % 4 == 0) {
#pragma unroll
            for (int i = 0; i < COUNT; i += 4) load_shared(from + 4 * i, x[i], x[i + 1], x[i + 2], x[i + 3]);
        } else if constexpr (COUNT == 2) {
            const float2 both = load_shared2(from);
            x[0] = both.x, x[1] = both.y;
        } else {
            static_assert(COUNT == 1);
            x[0] = load_shared1(from);
        }
    }
};
