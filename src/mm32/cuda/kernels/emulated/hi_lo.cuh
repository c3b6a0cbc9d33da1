// Converts fp32 to the packed form of emulated/panels.cuh, element by element, and collects the statistics of rows on the
// way. Used by mm32_pack, and by mm32_tensorcore where it packs inline.
#pragma once
#include "emulated/panels.cuh"
#include "ptx/half_pairs.cuh"

// What x - hi is multiplied by before it is rounded to lo, at place k: 2^LO_SHIFT for a scaled lo, otherwise 1, and a little
// more or less than that, by which a tie is rounded up or down in magnitude. Nothing else changes where hi is normal: x - hi is
// at most 2^12 times x's last place, so the difference is at most half of that place. Below that, with a scaled lo, an element
// is off by up to 1.25 * 2^-36 instead of 2^-36. Nearly all that lo loses are ties. If all of them went to even, an operand of
// few values would have the same errors again and again, and their sum would grow as K does.
__device__ __forceinline__ constexpr float lo_factor(bool scaled_lo, int k) {
    return (scaled_lo ? (float)(1 << LO_SHIFT) : 1.f) * ((k + 1) & 2 ? 1.f - 0x1p-13f : 1.f + 0x1p-13f);
}

// Splits two scaled elements into their planes, each a pair of 16-bit numbers. `of_x` and `of_y` are their lo_factor. `zero` is
// a 0 that the compiler does not know: it then takes the two hi numbers from the one register that holds their pair. Otherwise
// it may keep each in a register of its own, which spilled where registers are short.
__device__ __forceinline__ void split(float x, float y, unsigned (&plane)[PLANES], float of_x, float of_y, unsigned zero = 0) {
    if constexpr (PLANES == 3) {
#pragma unroll
        for (int i = 0; i < 3; i++) {
            plane[i] = bf16_pair(x, y);
            x -= __uint_as_float(plane[i] << 16), y -= __uint_as_float(plane[i] & 0xffff0000u);
        }
    } else {
        plane[0] = fp16_pair(x, y);
        if constexpr (PLANES == 2) {
            float xh, yh;
            fp16_values(plane[0] ^= zero, xh, yh);
            plane[1] = fp16_pair((x - xh) * of_x, (y - yh) * of_y);
        }
    }
}

// A row is observed through its hi numbers, two at a time in one register: the magnitudes of 16-bit numbers order as their
// bits do, with NaN above all.
constexpr unsigned INFINITE_HI = PLANES == 3 ? 0x7f80 : 0x7c00;
__device__ __forceinline__ unsigned magnitudes(unsigned pair) { return pair & 0x7fff7fffu; }
__device__ __forceinline__ unsigned larger(unsigned a, unsigned b) {  // NaN if either is NaN
    return larger_numbers<PLANES == 3>(a, b);
}
__device__ __forceinline__ unsigned smaller(unsigned a, unsigned b) {
    return smaller_numbers<PLANES == 3>(a, b);
}
// A hi number below small_hi is small: the last place of lo (of hi, with one product) is then more than 2^-22 (2^-11) of the
// element. For bf16x6, it is an element that is too small for it, SMALLEST_BF16X6.
constexpr int SMALLEST_EXPONENT = -50;
static_assert(SMALLEST_BF16X6 == 1.f / (1ll << -SMALLEST_EXPONENT));
__device__ __forceinline__ constexpr unsigned small_hi(bool scaled_lo) {
    return PLANES == 3 ? (127 + SMALLEST_EXPONENT) << 7 : PLANES == 2 && !scaled_lo ? (15 - 3) << 10 : (15 - 14) << 10;
}

// What a thread has observed of a row: the largest hi numbers, and in one word two counts, of small elements in the low half and
// of elements that are not small in the high half. Zeros are neither. bf16x6 counts only elements that are too small for it.
struct Observed {
    unsigned largest, counts;
};
constexpr unsigned REGULAR = PLANES == 3 ? 0 : 0x10000;

// Whether a number of `most` is infinite or NaN, or one of `least` is small or zero.
__device__ __forceinline__ bool needs_a_look(unsigned most, unsigned least, bool scaled_lo) {
    return any_beyond<PLANES == 3>(most, least, small_hi(scaled_lo) * 0x10001u, INFINITE_HI * 0x10001u);
}

// Raises a row's largest magnitude. It reads the old one first, because many atomic operations on one address are slow (all
// NaN: 200 us).
__device__ __forceinline__ void raise(unsigned* largest, float x) {
    const unsigned magnitude = __float_as_uint(x) & 0x7fffffffu;
    if (__ldcg(largest) < magnitude) atomicMax(largest, magnitude);
}

// Looks at one element: x is unscaled, and the low half of `hi` is its hi number. Small elements and zeros change the counts.
// If hi is out of range, the largest magnitude is recorded at once, if there is anywhere to record it (`largest`).
__device__ __forceinline__ void look_at(unsigned hi, float x, float scale, bool scaled_lo, unsigned& counts, unsigned* largest) {
    hi &= 0x7fff;
    if (hi < small_hi(scaled_lo)) counts += (x != 0.f) - REGULAR;
    if (hi >= INFINITE_HI && largest) raise(largest, x * scale);
}

// Observes 2 * PAIRS elements of a row: their hi numbers are in `pair`, and the unscaled elements are every STEP-th of x. It
// takes an instruction and a half for each, as long as no element has to be looked at.
template <int PAIRS, int STEP = 1>
__device__ __forceinline__ void observe(Observed& observed, const unsigned (&pair)[PAIRS][PLANES], const float* x, float scale,
                                        bool scaled_lo, unsigned* largest) {
    unsigned most = magnitudes(pair[0][0]), least = most;
#pragma unroll
    for (int i = 1; i < PAIRS; i++) {
        const unsigned m = magnitudes(pair[i][0]);
        most = larger(most, m), least = smaller(least, m);
    }
    observed.largest = larger(observed.largest, most);
    observed.counts += 2 * PAIRS * REGULAR;
    if (!needs_a_look(most, least, scaled_lo)) return;
#pragma unroll
    for (int i = 0; i < 2 * PAIRS; i++)
        look_at(pair[i / 2][0] >> (i % 2 ? 16 : 0), x[i * STEP], scale, scaled_lo, observed.counts, largest);
}

// Adds what was observed of a part of a row to the row's stats; `largest` is the bits of a magnitude, 0 if it was recorded
// before.
__device__ __forceinline__ void record(RowStats& stats, unsigned largest, unsigned small, unsigned regular) {
    if (PLANES == 3 && small) largest = 0x7f800000u;  // the row is not for bf16x6
    if (PLANES != 3 && (small | regular)) atomicAdd(&stats.counts, (unsigned long long)regular << 32 | small);
    atomicMax(&stats.largest, largest);
}

// A finite hi number as an fp32 number's bits.
__device__ __forceinline__ unsigned widened(unsigned hi) {
    return PLANES == 3 ? hi << 16 : fp16_widened(hi);
}

// The same, from the largest hi numbers, two in a word. What is out of hi's range was recorded before.
__device__ __forceinline__ void record_hi(RowStats& stats, unsigned largest_pair, unsigned small, unsigned regular) {
    const unsigned hi = max(largest_pair & 0xffff, largest_pair >> 16);
    record(stats, hi < INFINITE_HI ? widened(hi) : 0, small, regular);
}

// The same for bf16x6 as the lower tier of a call that was left to it early. Elements that are too small for it are counted
// as small, and do not make the row one with an Inf.
__device__ __forceinline__ void record_after_early(RowStats& stats, unsigned largest_pair, unsigned small) {
    if (small) atomicAdd(&stats.counts, (unsigned long long)small);
    atomicMax(&stats.largest, max(largest_pair & 0xffff, largest_pair >> 16) << 16);
}

// The same, from the largest element. It is rounded as hi is, if hi is finite.
__device__ __forceinline__ void record_exact(RowStats& stats, float largest, unsigned small, unsigned regular) {
    const unsigned hi = fp16_pair(largest, largest) & 0x7fff;
    record(stats, hi < INFINITE_HI ? widened(hi) : __float_as_uint(largest) & 0x7fffffffu, small, regular);
}
