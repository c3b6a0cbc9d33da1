// Single words: kept in a register, and stored to shared memory (PTX ISA, "st").
#pragma once

// The same number, which the compiler then keeps instead of computing it again where it is used.
__device__ __forceinline__ unsigned in_register(unsigned x) {
    asm volatile("" : "+r"(x));
    return x;
}

__device__ __forceinline__ void store_shared1(unsigned to, float x) {
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(to), "f"(x) : "memory");
}
