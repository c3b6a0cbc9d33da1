// Single words: kept in a register, and stored to shared memory (PTX ISA, "st").
#pragma once

// Returns x. The compiler then keeps it in a register instead of computing it again at each use.
__device__ __forceinline__ unsigned in_register(unsigned x) {
    asm volatile("" : "+r"(x));
    return x;
}

__device__ __forceinline__ void store_shared1(unsigned to, float x) {
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(to), "f"(x) : "memory");
}
