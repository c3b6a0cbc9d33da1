// Named barriers, at which some of a block's threads meet (PTX ISA, "bar").
#pragma once

template <int BARRIER, int THREADS>
__device__ __forceinline__ void sync_at() {
    asm volatile("bar.sync %0, %1;" ::"n"(BARRIER), "n"(THREADS) : "memory");
}

// Whether `yes` is true in any of the threads that meet.
template <int BARRIER, int THREADS>
__device__ __forceinline__ bool any_at(bool yes) {
    unsigned any;
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %1, 0; bar.red.or.pred p, %2, %3, p; selp.u32 %0, 1, 0, p; }"
                 : "=r"(any)
                 : "r"((unsigned)yes), "n"(BARRIER), "n"(THREADS)
                 : "memory");
    return any;
}
