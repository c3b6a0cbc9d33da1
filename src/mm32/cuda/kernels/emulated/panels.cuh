// The split form of an operand: what pack.cu writes and tensorcore.cu and mma.cu multiply. docs/numerics.md has the argument.
//
// A row (of A, or a column of B) is scaled by a power of two and every element x is kept as two fp16 numbers,
// hi = fp16(x), lo = fp16(x - hi). Products hi*hi + hi*lo + lo*hi are then as good as fp32's.
//
// Panels, for matrix i of the batch and K-block kb of 64: a plane of hi, then (PRODUCTS = 3) one of lo; a plane is `rows` rows
// (R rounded up to 8) of 64 fp16 = 128 bytes, the eight 16-byte pieces of row r in the order that wgmma's 128-byte swizzle
// and ldmatrix want: piece j lies at place j ^ (r % 8). Rows and K past the operand's edges are zeros.
//   MM32_PRODUCTS    3: hi and lo, fp32 accuracy; 1: hi alone, TF32-class accuracy
//
// For each row there are its exponent e (the row was multiplied by 2^e) and what detects a row that fp16's range does not suit
// (RowStats). The scale is chosen from a sample of the row; a sample that misled is detected like any other misfit.
#pragma once
#include "common/problem.cuh"

constexpr int BLOCK_K = 64;
constexpr int PLANE_ROW = 128;  // bytes

// Largest sampled element of a row goes to 2^TARGET: elements up to 2^16 can be held, those of 2^-3 and more keep 22 bits.
constexpr int SAMPLES = 128;
constexpr int TARGET = 10, TARGET_EXACT = 14;  // EXACT: K <= SAMPLES, the sample is the row
constexpr int PLANES = MM32_PRODUCTS == 3 ? 2 : 1;
// Below it fp16's last place, of lo or of hi, is more than 2^-22 (2^-11) of the element: 2^-3 (2^-14).
constexpr float SMALL = MM32_PRODUCTS == 3 ? 0.125f : 0x1p-14f;
constexpr float LIMIT = 65504.f;

struct RowStats {
    unsigned long long big[2];  // bit i: sampled element i is at least big_from(K), scaled
    int exponent;
    unsigned small;    // elements that are not zero and, scaled, below SMALL
    unsigned largest;  // bits of the largest scaled magnitude
};

// The worst that a group of rows holds: most small elements, largest element's bits, most sampled places not big.
struct Worst {
    unsigned small, largest, gaps;
};
constexpr int GROUPS = 512;  // of an operand's rows, at most

// The verdict on the whole call.
struct Verdict {
    unsigned careful;  // 1: a tile of C has been computed anew by mm32_careful
    unsigned unsure;   // 1: mm32_careful must look where `worst` would not do
    unsigned packers;  // blocks of mm32_pack that are done
    unsigned packed;   // 1: all of them are, and no counter needs to be read any more
    Worst worst[2][GROUPS];  // of A and B, if unsure
};

struct Split {
    Problem p;
    char* panels[2];
    RowStats* stats[2];
    unsigned* ready[2];     // [matrix][ceil(rows/128)][ceil(K-blocks/CHUNK)]: units packed of 128 rows x CHUNK K-blocks
    Verdict* verdict;
    float* partial;         // [split][matrix][M][N] where K is split among blocks
    long long matrices[2];  // 1 where the operand is the same for the whole batch
    long long splits;
    long long first[2];     // rows of A and of B to pack first: those of the tiles that the multiply starts with. None:
                            // it waits for all of them, and units are not counted
};

// Whether anyone waits for less than all of mm32_pack.
__device__ __forceinline__ bool counted(const Split& s) { return s.first[0] + s.first[1] > 0; }

constexpr int CHUNK = 8;  // K-blocks that are packed, and waited for, together
constexpr int READY_ROWS = 128;
constexpr int BEFORE = 4;  // how an operand comes in (pack.cu) whose panels, stats and counters are there from an earlier call
// Rows of a unit of mm32_pack, by how it loads (pack.cu).
template <int LOAD>
constexpr int UNIT_ROWS = LOAD >= 2 ? 16 : 64;

__device__ __forceinline__ long long padded_rows(long long rows) { return (rows + 7) / 8 * 8; }

// A small element loses up to 2^-25 of absolute precision, so that a row of A and a column of B lose at most 2^-25 * (small of
// one * largest of the other, both ways). |A||B| is at least BIG^2 for every sampled place where both are big. What is lost may
// be 4 u |A||B|, u = 2^-24 (PRODUCTS = 1: 4 * 2^-11). Zeros are neither small nor big: they outweigh nothing.
constexpr float ALLOWED = PLANES == 2 ? 8.f : 65536.f;
__device__ __forceinline__ float big_from(long long k) { return (float)(1 << (k <= SAMPLES ? TARGET_EXACT : TARGET)) * 0.125f; }
// A sum of few products does not average out the split's own 2^-22, and fp32's rounding would be less: 64 products that count are
// asked for, or one in 64 of K below 4096. Of them `fewest` should be among the samples.
__device__ __forceinline__ float fewest(long long k) {
    if (PLANES == 1) return 0.f;
    const float deep = (float)k;
    return fminf(64.f, deep / 64) * fminf(1.f, SAMPLES / deep);
}
// Whether the split is good enough for a row of A and a column of B that have `places` big elements in common, have lost at most
// `lost`, and hold no more than `a` and `b`, scaled; `big`, `fewest` as above.
__device__ __forceinline__ bool good(float a, float b, float lost, int places, float big, float fewest) {
    return a <= LIMIT && b <= LIMIT && lost <= ALLOWED * big * big * places && places >= fewest;
}
__device__ __forceinline__ bool good(const Worst& x, const Worst& y, long long k, float big, float fewest) {
    const float a = __uint_as_float(x.largest), b = __uint_as_float(y.largest);
    const int places = (int)min(k, (long long)SAMPLES) - (int)x.gaps - (int)y.gaps;  // big in both, at least
    return good(a, b, x.small * b + y.small * a, max(places, 0), big, fewest);
}
__device__ __forceinline__ bool fits(const RowStats& a, const RowStats& b, float big, float fewest) {
    const float a_largest = __uint_as_float(a.largest), b_largest = __uint_as_float(b.largest);
    const bool zeros = (a.largest | a.small) == 0 || (b.largest | b.small) == 0;  // they lose nothing, but 0 * Inf is NaN
    if (zeros) return a_largest <= LIMIT && b_largest <= LIMIT;
    const int places = __popcll(a.big[0] & b.big[0]) + __popcll(a.big[1] & b.big[1]);
    return good(a_largest, b_largest, a.small * b_largest + b.small * a_largest, places, big, fewest);
}

// Rows of a group, as a power of two: a group is of whole tiles where M (or N) is, rows of one matrix after the other.
__device__ __forceinline__ int group_shift(long long rows) {
    int shift = 7;
    while ((rows - 1) >> shift >= GROUPS) shift++;
    return shift;
}

// Programmatic dependent launch (sm_90): the next kernel of the chain may be put on the card while this one runs. It waits for
// what it reads, by wait_for_previous (the whole kernel) or by the `ready` counters. Without the attribute: no-ops.
__device__ __forceinline__ void let_next_start() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
__device__ __forceinline__ void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
