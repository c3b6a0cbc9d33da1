// cp.async: copies from global to shared memory that do not pass through registers (PTX ISA, "Data Movement and Conversion
// Instructions: cp.async"; sm_80 and later), and accesses to shared memory by 32-bit address.
#pragma once

__device__ __forceinline__ unsigned shared_address(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }

// Copies BYTES (4 or 16). If `exists` is false it reads nothing and writes zeros.
template <int BYTES>
__device__ __forceinline__ void copy_async(unsigned to, const float* from, bool exists) {
    if constexpr (BYTES == 16) {
        asm volatile("{ .reg .pred p; setp.eq.s32 p, %2, 0; cp.async.cg.shared.global [%0], [%1], 16, p; }" ::"r"(to), "l"(from),
                     "r"((int)exists)
                     : "memory");
    } else {
        asm volatile("{ .reg .pred p; setp.eq.s32 p, %2, 0; cp.async.ca.shared.global [%0], [%1], 4, p; }" ::"r"(to), "l"(from),
                     "r"((int)exists)
                     : "memory");
    }
}

__device__ __forceinline__ void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most PENDING of this thread's committed groups are still under way.
template <int PENDING>
__device__ __forceinline__ void copy_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

__device__ __forceinline__ void store_shared(unsigned to, float x) {
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(to), "f"(x) : "memory");
}
__device__ __forceinline__ void store_shared(unsigned to, float x, float y, float z, float w) {
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to), "f"(x), "f"(y), "f"(z), "f"(w) : "memory");
}
__device__ __forceinline__ void load_shared(unsigned from, float& x, float& y, float& z, float& w) {
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(x), "=f"(y), "=f"(z), "=f"(w) : "r"(from) : "memory");
}
