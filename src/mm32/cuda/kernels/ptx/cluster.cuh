// Thread block clusters (PTX ISA, "barrier.cluster", "mapa" and "ld.shared::cluster"; sm_90 and later): blocks that run at once, wait
// for one another and read each other's shared memory. Their size is a constant of the kernel, MM32_CLUSTER, or the launch's, where there is
// no such constant. Before sm_90 each block is alone.
#pragma once
#include "ptx/shared_memory.cuh"

#ifndef MM32_CLUSTER
#define MM32_CLUSTER 0
#endif

// The size of a kernel's clusters, as an attribute of the kernel.
#if MM32_CLUSTER > 1
#define MM32_CLUSTER_DIMENSIONS __cluster_dims__(MM32_CLUSTER, 1, 1)
#else
#define MM32_CLUSTER_DIMENSIONS
#endif

// The number of this block in its cluster.
__device__ __forceinline__ unsigned cluster_rank() {
    unsigned rank = 0;
#if __CUDA_ARCH__ >= 900
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
#endif
    return rank;
}

// How many blocks the cluster has.
__device__ __forceinline__ unsigned cluster_size() {
    unsigned blocks = 1;
#if __CUDA_ARCH__ >= 900
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(blocks));
#endif
    return blocks;
}

// Waits for all threads of the cluster. What they wrote to shared memory before is then visible to all of them.
__device__ __forceinline__ void cluster_sync() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

// Whether another block's shared memory can be meant; otherwise it is the block's own.
#if MM32_CLUSTER != 1 && __CUDA_ARCH__ >= 900
#define MM32_SHARED_OF_CLUSTER ".shared::cluster"
#else
#define MM32_SHARED_OF_CLUSTER ".shared"
#endif

// The address in block `rank` of what lies at `address` in this block's shared memory.
__device__ __forceinline__ unsigned address_in(unsigned address, unsigned rank) {
#if MM32_CLUSTER != 1 && __CUDA_ARCH__ >= 900
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(address), "r"(rank));
#endif
    return address;
}

// 16 bytes of shared memory of block `rank`.
__device__ __forceinline__ float4 load_cluster4(unsigned address, unsigned rank) {
    float4 x;
    asm volatile("ld" MM32_SHARED_OF_CLUSTER ".v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
                 : "r"(address_in(address, rank))
                 : "memory");
    return x;
}

// One or four floats of shared memory of block `rank`.
__device__ __forceinline__ void load_cluster(unsigned address, unsigned rank, float (&x)[1]) {
    asm volatile("ld" MM32_SHARED_OF_CLUSTER ".f32 %0, [%1];" : "=f"(x[0]) : "r"(address_in(address, rank)) : "memory");
}
__device__ __forceinline__ void load_cluster(unsigned address, unsigned rank, float (&x)[4]) {
    const float4 all = load_cluster4(address, rank);
    x[0] = all.x, x[1] = all.y, x[2] = all.z, x[3] = all.w;
}
