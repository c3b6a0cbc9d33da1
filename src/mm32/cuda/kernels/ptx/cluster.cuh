// Thread block clusters (PTX ISA, "barrier.cluster", "mapa" and "ld.shared::cluster"; sm_90 and later): blocks that run at once,
// wait for one another and read each other's shared memory. Before sm_90 each block is alone.
#pragma once
#include "ptx/shared_memory.cuh"

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

// The address in block `rank`'s shared memory that corresponds to `address` in this block's.
__device__ __forceinline__ unsigned address_in(unsigned address, unsigned rank) {
#if __CUDA_ARCH__ >= 900
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(address), "r"(rank));
#endif
    return address;
}

// Loads 16 bytes of block `rank`'s shared memory. SHARED: the cluster has other blocks; otherwise the memory is this block's
// own.
template <bool SHARED>
__device__ __forceinline__ float4 load_cluster4(unsigned address, unsigned rank) {
    float4 x;
#if __CUDA_ARCH__ >= 900
    if constexpr (SHARED) {
        asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
                     : "r"(address_in(address, rank))
                     : "memory");
        return x;
    }
#endif
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
                 : "r"(address)
                 : "memory");
    return x;
}

// Loads one or four floats in the same way.
template <bool SHARED>
__device__ __forceinline__ void load_cluster(unsigned address, unsigned rank, float (&x)[1]) {
#if __CUDA_ARCH__ >= 900
    if constexpr (SHARED) {
        asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(x[0]) : "r"(address_in(address, rank)) : "memory");
        return;
    }
#endif
    x[0] = load_shared1(address);
}
template <bool SHARED>
__device__ __forceinline__ void load_cluster(unsigned address, unsigned rank, float (&x)[4]) {
    const float4 all = load_cluster4<SHARED>(address, rank);
    x[0] = all.x, x[1] = all.y, x[2] = all.z, x[3] = all.w;
}
