// The packed form of an operand, which emulated/pack.cu writes and tensorcore.cu and mma.cu multiply, and the accept test, which
// decides whether the emulation is good enough for the data. docs/numerics.md has the argument.
//
// A row (of A; a column of B) is multiplied by a power of two, and each element x is split into two fp16 numbers, hi = fp16(x)
// and lo = fp16(x - hi). The products hi*hi + hi*lo + lo*hi are then as good as those of fp32.
//
// Panels: for each matrix and each K-block of 64 there is a plane of hi and, with PRODUCTS = 3, a plane of lo. A plane has a line
// of 64 fp16 numbers (128 bytes) for each row; the number of rows is rounded up to a multiple of 8. The eight 16-byte pieces of a
// line lie in the order that wgmma's 128-byte swizzle and ldmatrix want: piece j of row r at place j ^ (r % 8). Rows and places
// of K past the operand's edges are zeros.
//   MM32_PRODUCTS    3: hi and lo, fp32 accuracy (fp16x3); 1: hi alone, TF32-class accuracy (fp16)
//
// RowStats hold a row's exponent e (the row was multiplied by 2^e) and what the accept test needs of it. The exponent comes from
// a sample of the row. If the sample misses the row's large elements, they pass fp16's range, and the accept test notices.
#pragma once
#include "common/workspace.cuh"
#include "emulated/stats.cuh"

constexpr int BLOCK_K = 64;
constexpr int PLANE_ROW = 128;  // bytes

// The largest sampled element of a row is scaled to between 2^TARGET and 2^(TARGET + 1). Elements up to 2^16 can then be held,
// and those of 2^-3 and more keep 22 bits.
constexpr int SAMPLES = 128;
constexpr int TARGET = 10, TARGET_EXACT = 14;  // EXACT: K <= SAMPLES, and the sample is the whole row
constexpr int PLANES = MM32_PRODUCTS == 3 ? 2 : 1;
// A scaled element is small below this. The last place of lo (of hi, with one product) is then more than 2^-22 (2^-11) of it.
constexpr float SMALL = MM32_PRODUCTS == 3 ? 0.125f : 0x1p-14f;
constexpr float LIMIT = 65504.f;  // fp16's largest number

// Whether the multiply may start on some rows before mm32_pack has finished: it then waits for `ready` counters of units.
__device__ __forceinline__ bool counts_units(const Params& s) { return s.first_rows[0] + s.first_rows[1] > 0; }

constexpr int CHUNK = 8;         // K-blocks of a unit of mm32_pack
constexpr int READY_ROWS = 128;  // rows whose units have one counter for each chunk
constexpr int PREPACKED = 4;     // the load (emulated/pack.cu) of an operand that an earlier call has packed
// Rows of a unit, by mm32_pack's load.
template <int LOAD>
constexpr int UNIT_ROWS = LOAD >= 2 ? 16 : 64;

__device__ __forceinline__ long long padded_rows(long long rows) { return (rows + 7) / 8 * 8; }

// The accept test compares what small elements may lose with a lower bound of |A||B|.
//   A small element loses up to 2^-25 of absolute precision. So a row a and a column b lose up to
//   2^-25 * (small elements of a * largest element of b + small elements of b * largest element of a).
//   Each sampled place at which both are big adds at least big^2 to |A||B|.
//   The loss may be up to 4 u |A||B|, with u = 2^-24 (2^-11 with one product).
// Zeros are neither small nor big: they lose nothing and add nothing.
constexpr float ALLOWED = PLANES == 2 ? 8.f : 65536.f;
__device__ __forceinline__ float big_from(long long k) {
    return (float)(1 << (k <= SAMPLES ? TARGET_EXACT : TARGET)) * 0.125f;
}
// How many sampled places must be big in both. The rounding of the split, 2^-22, does not average out over few products, and fp32
// would round less. So 64 products that count are required, or one in 64 of K if K < 4096; of the samples, the same share.
__device__ __forceinline__ float required_places(long long k) {
    if (PLANES == 1) return 0.f;
    const float deep = (float)k;
    return fminf(64.f, deep / 64) * fminf(1.f, SAMPLES / deep);
}
// The test for a row of A and a column of B with largest elements `a` and `b`, a loss of at most `lost`, and `places` big places
// in common; `big` is big_from(K), `required` is required_places(K).
__device__ __forceinline__ bool accept(float a, float b, float lost, int places, float big, float required) {
    return a <= LIMIT && b <= LIMIT && lost <= ALLOWED * big * big * places && places >= required;
}
// The test for all pairs of a group of A and a group of B: as if one pair had the worst of both groups.
__device__ __forceinline__ bool accept_groups(const GroupStats& x, const GroupStats& y, long long k, float big, float required) {
    const float a = __uint_as_float(x.largest), b = __uint_as_float(y.largest);
    const int places = (int)min(k, (long long)SAMPLES) - (int)x.gaps - (int)y.gaps;  // big in both, at least
    return accept(a, b, x.small * b + y.small * a, max(places, 0), big, required);
}
__device__ __forceinline__ bool accept_rows(const RowStats& a, const RowStats& b, float big, float required) {
    const float a_largest = __uint_as_float(a.largest), b_largest = __uint_as_float(b.largest);
    const bool zeros = (a.largest | a.small) == 0 || (b.largest | b.small) == 0;  // zeros lose nothing, but 0 * Inf is NaN
    if (zeros) return a_largest <= LIMIT && b_largest <= LIMIT;
    const int places = __popcll(a.big[0] & b.big[0]) + __popcll(a.big[1] & b.big[1]);
    return accept(a_largest, b_largest, a.small * b_largest + b.small * a_largest, places, big, required);
}

// The number of rows of a group, as a power of two: 128, or more where ROW_GROUPS groups would not hold all rows. Rows are
// counted through all matrices, so that groups are whole tiles if M (or N) is a multiple of the tile.
__device__ __forceinline__ int group_shift(long long rows) {
    int shift = 7;
    while ((rows - 1) >> shift >= ROW_GROUPS) shift++;
    return shift;
}
