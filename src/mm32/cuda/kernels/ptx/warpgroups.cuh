// Registers that warpgroups give to one another, and fences between threads' accesses to shared memory and those of wgmma and
// mbarriers (PTX ISA, "setmaxnreg", "fence"; sm_90a).
#pragma once

template <int COUNT>
__device__ __forceinline__ void give_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT>
__device__ __forceinline__ void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}
// Orders wgmma's reads of shared memory after the stores that this thread has made or observed.
__device__ __forceinline__ void fence_stores_for_wgmma() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
// Makes initialised barriers visible to the whole cluster.
__device__ __forceinline__ void fence_barrier_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
