"""A loop over tiles that ends one too early: the last 32x8 corner of the last plane (1 of 147456 tiles) stays
zero.

reference: q_depthwise
device: cuda
verdict: not SAME
"""

import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = r"""
#include <torch/extension.h>

#define TX 32
#define TY 8

__global__ void depthwise_kernel(const float* __restrict__ x, const float* __restrict__ weight,
                                 float* __restrict__ y, int C, int H, int W,
                                 int tiles_x, int tiles_y, int tiles) {
    __shared__ float tile[TY + 2][TX + 2];
    for (int t = blockIdx.x; t < tiles - 1; t += gridDim.x) {
    const int plane = t / (tiles_x * tiles_y);
    const float* in = x + (size_t)plane * H * W;
    const float* w = weight + (plane % C) * 9;
    const int x0 = t % tiles_x * TX, y0 = t / tiles_x % tiles_y * TY;
    __syncthreads();
    for (int i = threadIdx.y * TX + threadIdx.x; i < (TY + 2) * (TX + 2); i += TX * TY) {
        const int r = i / (TX + 2), c = i % (TX + 2);
        const int gy = y0 + r - 1, gx = x0 + c - 1;
        tile[r][c] = (gy >= 0 && gy < H && gx >= 0 && gx < W) ? in[gy * W + gx] : 0.0f;
    }
    __syncthreads();
    const int ox = x0 + threadIdx.x, oy = y0 + threadIdx.y;
    if (ox < W && oy < H) {
        float sum = 0.0f;
        #pragma unroll
        for (int r = 0; r < 3; ++r)
            #pragma unroll
            for (int c = 0; c < 3; ++c) {
                // the padding is not multiplied: an infinite weight must not make NaN there
                const int gy = oy + r - 1, gx = ox + c - 1;
                if (gy >= 0 && gy < H && gx >= 0 && gx < W)
                    sum = fmaf(tile[threadIdx.y + r][threadIdx.x + c], __ldg(w + r * 3 + c), sum);
            }
        y[(size_t)plane * H * W + oy * W + ox] = sum;
    }
    }
}

torch::Tensor depthwise3x3(torch::Tensor x, torch::Tensor weight) {
    TORCH_CHECK(x.is_cuda() && weight.is_cuda(), "CUDA tensors expected");
    TORCH_CHECK(weight.size(1) == 1 && weight.size(2) == 3 && weight.size(3) == 3, "a depthwise 3x3 weight expected");
    x = x.contiguous();
    weight = weight.contiguous();
    const int N = x.size(0), C = x.size(1), H = x.size(2), W = x.size(3);
    auto y = torch::zeros_like(x);
    dim3 block(TX, TY);
    const int tiles_x = (W + TX - 1) / TX, tiles_y = (H + TY - 1) / TY;
    const int tiles = tiles_x * tiles_y * N * C;
    const int grid = std::min(tiles, 132 * 8);
    depthwise_kernel<<<grid, block>>>(x.data_ptr<float>(), weight.data_ptr<float>(), y.data_ptr<float>(), C, H, W,
                                      tiles_x, tiles_y, tiles);
    return y;
}
"""

cpp_source = """
torch::Tensor depthwise3x3(torch::Tensor x, torch::Tensor weight);
"""

module = load_inline(
    name="q_depthwise_corner",
    cpp_sources=cpp_source,
    cuda_sources=cuda_source,
    functions=["depthwise3x3"],
)


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, groups=channels, bias=False)

    def forward(self, x):
        return module.depthwise3x3(x, self.conv.weight)
