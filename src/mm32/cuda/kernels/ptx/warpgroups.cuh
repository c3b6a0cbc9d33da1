// What warpgroups do as such (PTX ISA, "setmaxnreg", "fence"; sm_90a): registers that they give to one another, and fences
// between threads' accesses to shared memory and those of wgmma and mbarriers.
#pragma once

template <int COUNT>
__device__ __forceinline__ void give_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT>
__device__ __forceinline__ void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}
// What threads have stored to shared memory, and this one knows of, is what wgmma reads.
__device__ __forceinline__ void fence_stores_for_wgmma() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
// Initialised barriers are seen by all of the cluster.
__device__ __forceinline__ void fence_barrier_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
