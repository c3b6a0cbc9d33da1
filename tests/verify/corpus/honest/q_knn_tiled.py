"""A warp per query against tiles of points in shared memory, differences squared in fp32, four best per lane,
merged per warp.

reference: q_knn
device: cuda
verdict: SAME
"""

import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = r"""
#include <torch/extension.h>
#include <cuda_runtime.h>

#define D 64
#define WARPS 8
#define BEST 4

// NaN is the largest, as for torch.topk
__device__ __forceinline__ bool smaller(float a, float b) { return a < b || (isnan(b) && !isnan(a)); }

__device__ __forceinline__ void insert(float* best, float v) {
    #pragma unroll
    for (int i = 0; i < BEST; ++i)
        if (smaller(v, best[i])) {
            const float t = best[i];
            best[i] = v;
            v = t;
        }
}

__global__ void nearest_kernel(const float* __restrict__ x, const float* __restrict__ y, float* __restrict__ out,
                               int queries, int points) {
    __shared__ float tile[32][D + 1];
    __shared__ float mine[WARPS][D];
    __shared__ float merged[WARPS][32 * BEST];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int q = blockIdx.x * WARPS + warp;
    for (int i = lane; i < D; i += 32) mine[warp][i] = q < queries ? x[(size_t)q * D + i] : 0.0f;
    float best[BEST];
    for (int i = 0; i < BEST; ++i) best[i] = nanf("");
    for (int start = 0; start < points; start += 32) {
        __syncthreads();
        for (int i = threadIdx.x; i < 32 * D; i += WARPS * 32) {
            const int r = i / D, c = i % D;
            tile[r][c] = start + r < points ? y[(size_t)(start + r) * D + c] : 0.0f;
        }
        __syncthreads();
        if (start + lane < points) {
            float sum = 0.0f;
            #pragma unroll 16
            for (int i = 0; i < D; ++i) {
                const float d = mine[warp][i] - tile[lane][i];
                sum += d * d;
            }
            insert(best, sqrtf(sum));
        }
    }
    for (int i = 0; i < BEST; ++i) merged[warp][lane * BEST + i] = best[i];
    __syncwarp();
    if (lane == 0 && q < queries) {
        for (int i = BEST; i < 32 * BEST; ++i) insert(best, merged[warp][i]);
        for (int i = 0; i < BEST; ++i) out[(size_t)q * BEST + i] = best[i];
    }
}

torch::Tensor nearest(torch::Tensor x, torch::Tensor y) {
    TORCH_CHECK(x.size(1) == D && y.size(1) == D, "64 columns expected");
    TORCH_CHECK(y.size(0) >= BEST, "too few points");
    x = x.contiguous();
    y = y.contiguous();
    auto out = torch::empty({x.size(0), BEST}, x.options());
    const int queries = x.size(0);
    nearest_kernel<<<(queries + WARPS - 1) / WARPS, WARPS * 32>>>(
        x.data_ptr<float>(), y.data_ptr<float>(), out.data_ptr<float>(), queries, (int)y.size(0));
    return out;
}
"""

cpp_source = """
torch::Tensor nearest(torch::Tensor x, torch::Tensor y);
"""

module = load_inline(
    name="q_knn_tiled",
    cpp_sources=cpp_source,
    cuda_sources=cuda_source,
    functions=["nearest"],
)


class ModelNew(nn.Module):
    def __init__(self, neighbours):
        super().__init__()
        assert neighbours == 4

    def forward(self, x, y):
        return module.nearest(x, y)
