"""A kernel of its own in C++, compiled when the file is loaded: rows in parallel, exponentials through a polynomial in
fp32 that is right to one or two units in the last place, division by multiplication with the reciprocal of the sum.

reference: b_softmax
device: cpu
verdict: SAME
"""

from torch import nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <ATen/Parallel.h>
#include <cmath>
#include <cstring>

static inline float power(float x) {
    x = x < -87.0f ? -87.0f : x;
    float n = std::nearbyint(x * 1.44269504f);
    float r = std::fma(n, -0.693145752f, x);
    r = std::fma(n, -1.42860677e-6f, r);
    float p = 1.0f / 720;
    p = std::fma(p, r, 1.0f / 120);
    p = std::fma(p, r, 1.0f / 24);
    p = std::fma(p, r, 1.0f / 6);
    p = std::fma(p, r, 0.5f);
    p = std::fma(p, r, 1.0f);
    p = std::fma(p, r, 1.0f);
    int32_t bits = ((int32_t)n + 127) << 23;
    float scale;
    std::memcpy(&scale, &bits, 4);
    return p * scale;
}

torch::Tensor softmax(torch::Tensor input) {
    auto x = input.contiguous();
    auto result = torch::empty_like(x);
    int64_t cols = x.size(1);
    const float *from = x.data_ptr<float>();
    float *to = result.data_ptr<float>();
    at::parallel_for(0, x.size(0), 16, [&](int64_t first, int64_t last) {
        for (int64_t row = first; row < last; row++) {
            const float *f = from + row * cols;
            float *t = to + row * cols;
            float top = f[0];
            for (int64_t i = 1; i < cols; i++) top = f[i] > top ? f[i] : top;
            float lanes[16] = {};
            int64_t i = 0;
            for (; i + 16 <= cols; i += 16)
                for (int l = 0; l < 16; l++) lanes[l] += t[i + l] = power(f[i + l] - top);
            float sum = 0;
            for (; i < cols; i++) sum += t[i] = power(f[i] - top);
            for (float lane : lanes) sum += lane;
            float share = 1.0f / sum;
            for (i = 0; i < cols; i++) t[i] *= share;
        }
    });
    return result;
}
"""

module = load_inline(
    "b_softmax_cpp", SOURCE, functions=["softmax"], extra_cflags=["-O3", "-march=native", "-fno-math-errno"]
)


class ModelNew(nn.Module):
    def forward(self, x):
        return module.softmax(x)
