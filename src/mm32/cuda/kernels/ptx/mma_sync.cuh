// mma.sync m16n8k16 with fp16 operands and fp32 accumulators in registers, and ldmatrix, which loads the operands (PTX ISA, "Warp
// Level Matrix Multiply-Accumulate Instructions"; sm_80 and later).
//
// What lane l holds, as (row, column) with g = l / 4 and t = l % 4:
//   A, 16 x 16, pairs along K:  (g, 2t), (g + 8, 2t), (g, 2t + 8), (g + 8, 2t + 8)
//   B, 16 x 8, pairs along K:   (2t, g), (2t + 8, g)
//   the sums, 16 x 8:           (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1)
#pragma once

// Loads four 8 x 8 matrices of 16-bit elements. Lanes 8i .. 8i + 7 give the addresses of the eight 16-byte rows of matrix i; lane
// l receives elements 2t and 2t + 1 of row g of each matrix: the registers above, for operands that are contiguous along K.
__device__ __forceinline__ void ldmatrix(unsigned& r0, unsigned& r1, unsigned& r2, unsigned& r3, unsigned shared_address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3)
                 : "r"(shared_address)
                 : "memory");
}

// d += a * b
__device__ __forceinline__ void mma_sync(float* d, const unsigned (&a)[4], const unsigned (&b)[2]) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
