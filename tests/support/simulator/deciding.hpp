// Adds to cuda.hpp what the kernels that pack, decide and recompute use (emulated/pack.cu, decide.cuh, fallback.cu). fp16 and
// bf16 numbers are rounded as the card rounds them. Blocks of a grid run one after another, those of a cluster at the same time.
#pragma once
#include "cuda.hpp"

struct uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

#define blockDim (Index{simulator::threads_of_block})

template <typename T>
T __ldcg(const T* at) { return *at; }
template <typename T>
T __ldcs(const T* at) { return *at; }
inline void __threadfence() {}
inline void __nanosleep(unsigned) { simulator::yield(); }
using std::isnan;
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
template <typename T>
T atomicAdd(T* at, T x) {
    const T before = *at;
    *at = before + x;
    simulator::events++;
    return before;
}

namespace simulator {

// Memory for the variables that a kernel declares as __shared__. Each block has its own; it begins as NaN.
inline std::map<Block*, unsigned> used;  // bytes in use of a block's memory behind the dynamic shared memory

template <typename T, int NUMBER>
T& shared_variable() {
    static std::map<Block*, unsigned> places;
    static long of_run = -1;
    if (of_run != runs) places.clear(), of_run = runs;
    Block* const block = current->block;
    const auto found = places.find(block);
    if (found != places.end()) return *reinterpret_cast<T*>(block->memory + found->second);
    if (used_in_run != runs) used.clear(), used_in_run = runs;
    unsigned& end = used[block];
    const unsigned at = dynamic_bytes + end;
    end += (sizeof(T) + 15) / 16 * 16;
    if (at + sizeof(T) > BYTES) fail("more shared memory than a block has");
    places[block] = at, declared_bytes = max(declared_bytes, end);
    return *reinterpret_cast<T*>(block->memory + at);
}

// Returns how many of the `count` threads that meet here say yes.
inline unsigned vote(Rendezvous& meeting, unsigned& sum, unsigned yes, int count) {
    sum += yes;
    meet(meeting, count);
    const unsigned found = sum;
    meet(meeting, count);
    sum = 0;
    meet(meeting, count);
    return found;
}
inline unsigned vote_at(int barrier, bool yes, int count) {
    Block* const block = current->block;
    return vote(block->named[barrier], votes[{block, barrier}], yes, count);
}

}  // namespace simulator

inline int __syncthreads_or(bool yes) { return simulator::vote_at(0, yes, (int)simulator::threads_of_block) > 0; }
inline int __syncthreads_count(bool yes) { return (int)simulator::vote_at(0, yes, (int)simulator::threads_of_block); }
inline int __syncthreads_and(bool yes) { return __syncthreads_count(yes) == (int)simulator::threads_of_block; }
inline float __shfl_sync(unsigned all, float x, int from) { return __uint_as_float(__shfl_sync(all, __float_as_uint(x), from)); }

// ptx/dependent_launch.cuh, release.cuh, named_barriers.cuh
inline void launch_dependents() {}
inline void wait_for_previous_grid() {}
inline void store_release(unsigned* flag, unsigned value) { *flag = value, simulator::events++; }
inline unsigned load_acquire(const unsigned* flag) { return *flag; }
inline unsigned load_relaxed(const unsigned* flag) { return *flag; }
template <int BARRIER, int THREADS>
bool any_at(bool yes) { return simulator::vote_at(BARRIER, yes, THREADS) > 0; }
inline void store_shared(unsigned to, float x) { *reinterpret_cast<float*>(simulator::dynamic_at(to, 4)) = x; }
inline void store_shared(unsigned to, float x, float y, float z, float w) {
    float* const f = reinterpret_cast<float*>(simulator::dynamic_at(to, 16));
    f[0] = x, f[1] = y, f[2] = z, f[3] = w;
}

// ptx/half_pairs.cuh
inline float fp16_value(unsigned number) {
    const unsigned sign = (number & 0x8000) << 16, field = number >> 10 & 31, rest = number & 0x3ff;
    if (field == 31) return __uint_as_float(sign | 0x7f800000 | rest << 13);
    const float size = field ? std::ldexp(1024.f + rest, (int)field - 25) : std::ldexp((float)rest, -24);
    return sign ? -size : size;
}
inline unsigned round_fp16(float x) {
    const unsigned bits = __float_as_uint(x), sign = bits >> 16 & 0x8000;
    const double size = std::fabs((double)x);
    if (x != x) return 0x7fff;
    if (size >= 65520.) return sign | 0x7c00;
    if (size < 0x1p-14) return sign | (unsigned)std::nearbyint(std::ldexp(size, 24));  // 1024 is 0x400, the least normal number
    int exponent;
    const double part = std::frexp(size, &exponent);  // in [1/2, 1)
    return sign | (((unsigned)(exponent + 14) << 10) + ((unsigned)std::nearbyint(std::ldexp(part, 11)) - 1024));
}
inline unsigned fp16_pair(float x, float y) { return round_fp16(x) | round_fp16(y) << 16; }
inline void fp16_values(unsigned pair, float& low, float& high) { low = fp16_value(pair & 0xffff), high = fp16_value(pair >> 16); }
inline unsigned fp16_widened(unsigned number) { return __float_as_uint(fp16_value(number & 0xffff)); }
template <bool BF16>
float number_of(unsigned bits) { return BF16 ? __uint_as_float(bits << 16) : fp16_value(bits); }
template <bool BF16, typename Choose>
unsigned by_number(unsigned a, unsigned b, Choose choose) {
    return choose(a & 0xffff, b & 0xffff) | choose(a >> 16, b >> 16) << 16;
}
template <bool BF16>
unsigned larger_numbers(unsigned a, unsigned b) {
    return by_number<BF16>(a, b, [](unsigned x, unsigned y) {
        const float u = number_of<BF16>(x), v = number_of<BF16>(y);
        return u != u || v != v ? 0x7fffu : u < v ? y : x;
    });
}
template <bool BF16>
unsigned smaller_numbers(unsigned a, unsigned b) {
    return by_number<BF16>(a, b, [](unsigned x, unsigned y) {
        const float u = number_of<BF16>(x), v = number_of<BF16>(y);
        return u != u ? y : v != v ? x : v < u ? y : x;
    });
}
template <bool BF16>
bool any_beyond(unsigned most, unsigned least, unsigned small, unsigned limit) {
    bool found = false;
    for (int half = 0; half < 2; half++) {
        const auto of = [&](unsigned pair) { return number_of<BF16>(pair >> 16 * half & 0xffff); };
        found |= of(least) < of(small) || !(of(most) < of(limit));
    }
    return found;
}
