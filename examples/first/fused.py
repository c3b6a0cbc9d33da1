"""A candidate for distances.py in C++: the differences are never stored, and each is squared and added where it is made."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>

torch::Tensor distances(torch::Tensor x, torch::Tensor y) {
    const int64_t n = x.size(0), m = y.size(0), k = x.size(1);
    auto result = torch::zeros({n, m}, x.options());
    auto turned = y.t().contiguous();  // (K, M): the inner loop reads and writes neighbours, so it is vectorised
    const float *a = x.const_data_ptr<float>(), *b = turned.const_data_ptr<float>();
    float* d = result.data_ptr<float>();
    for (int64_t i = 0; i < n; ++i)
        for (int64_t c = 0; c < k; ++c)
            for (int64_t j = 0; j < m; ++j) {
                const float step = a[i * k + c] - b[c * m + j];
                d[i * m + j] += step * step;
            }
    return result;
}
"""

extension = load_inline("distances", SOURCE, functions="distances", extra_cflags=["-O3"])


class ModelNew(nn.Module):
    """x (N, K), y (M, K) -> (N, M)."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return extension.distances(x.contiguous(), y.contiguous())
