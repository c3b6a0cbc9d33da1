// Asynchronous copies of what is read once, which leave L2 first (PTX ISA, "createpolicy" and "cp.async" with a cache hint).
#pragma once

__device__ __forceinline__ unsigned long long evict_first_policy() {
    unsigned long long policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

// Copies 16 bytes of which `bytes` exist, and zeros for the others.
__device__ __forceinline__ void copy_async_part(unsigned to, const char* from, int bytes, unsigned long long policy) {
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(to), "l"(from), "r"(bytes), "l"(policy) : "memory");
}
