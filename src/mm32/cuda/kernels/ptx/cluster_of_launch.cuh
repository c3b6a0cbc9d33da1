// Thread block clusters whose size is the launch's (PTX ISA, "barrier.cluster", "mapa" and "ld.shared::cluster"; sm_90 and later).
// Before sm_90 each block is alone. ptx/cluster.cuh has those whose size is a constant.
#pragma once
#include "ptx/shared_memory.cuh"

__device__ __forceinline__ unsigned blocks_of_cluster() {
    unsigned blocks = 1;
#if __CUDA_ARCH__ >= 900
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(blocks));
#endif
    return blocks;
}

__device__ __forceinline__ unsigned block_of_cluster() {
    unsigned block = 0;
#if __CUDA_ARCH__ >= 900
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(block));
#endif
    return block;
}

// Waits for all threads of the cluster. What they wrote to shared memory before is then visible to all of them.
__device__ __forceinline__ void sync_cluster() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

// What lies in block `block` of the cluster where `at` lies in this block's shared memory.
__device__ __forceinline__ float load_of_cluster(const float* at, unsigned block) {
    float x = 0.f;
#if __CUDA_ARCH__ >= 900
    unsigned address;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared_address(at)), "r"(block));
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(x) : "r"(address) : "memory");
#endif
    return x;
}
