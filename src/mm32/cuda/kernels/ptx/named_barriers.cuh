// Barriers of some of a block's threads, by number (PTX ISA, "bar").
#pragma once

template <int BARRIER, int THREADS>
__device__ __forceinline__ void sync_at() {
    asm volatile("bar.sync %0, %1;" ::"n"(BARRIER), "n"(THREADS) : "memory");
}

// Whether any of the threads that meet says yes.
template <int BARRIER, int THREADS>
__device__ __forceinline__ bool any_at(bool yes) {
    unsigned any;
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %1, 0; bar.red.or.pred p, %2, %3, p; selp.u32 %0, 1, 0, p; }"
                 : "=r"(any)
                 : "r"((unsigned)yes), "n"(BARRIER), "n"(THREADS)
                 : "memory");
    return any;
}
