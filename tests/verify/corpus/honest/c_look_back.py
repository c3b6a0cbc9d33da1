"""Single-pass scan with decoupled look-back (tiles by ticket, flags, fences), state zeroed in every call.

reference: c_cumsum
device: cuda
verdict: SAME
"""

import torch
from torch import nn

SOURCE = r"""
// flags: 0 nothing, 1 the tile's own sum, 2 the sum up to the tile's end
extern "C" __global__ void scan(const float* x, float* y, float* own, float* upto, int* flags, int* ticket,
                                int length, int tiles) {
    const int ITEMS = 8, THREADS = 256;
    __shared__ float warps[THREADS / 32];
    __shared__ float before_tile;
    __shared__ int mine;
    if (threadIdx.x == 0) mine = atomicAdd(ticket, 1);
    __syncthreads();
    const int row = mine / tiles, tile = mine % tiles;
    const float* in = x + (long long)row * length;
    float* out = y + (long long)row * length;
    const int first = tile * ITEMS * THREADS + threadIdx.x * ITEMS;
    float v[ITEMS], sum = 0.0f;
    for (int i = 0; i < ITEMS; ++i) {
        v[i] = first + i < length ? in[first + i] : 0.0f;
        sum += v[i];
    }
    float run = sum;  // inclusive over the warp
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    for (int o = 1; o < 32; o <<= 1) {
        const float other = __shfl_up_sync(0xffffffffu, run, o);
        if (lane >= o) run += other;
    }
    float exclusive = __shfl_up_sync(0xffffffffu, run, 1);
    if (lane == 0) exclusive = 0.0f;
    if (lane == 31) warps[warp] = run;
    __syncthreads();
    float total = 0.0f, before_warp = 0.0f;
    for (int i = 0; i < THREADS / 32; ++i) {
        if (i == warp) before_warp = total;
        total += warps[i];
    }
    if (threadIdx.x == 0) {
        volatile float* vown = own + (long long)row * tiles;
        volatile float* vupto = upto + (long long)row * tiles;
        volatile int* vflags = flags + (long long)row * tiles;
        float carry = 0.0f;
        if (tile > 0) {
            vown[tile] = total;
            __threadfence();
            vflags[tile] = 1;
            for (int t = tile - 1; t >= 0; --t) {
                int f;
                do { f = vflags[t]; } while (f == 0);
                __threadfence();
                if (f == 2) {
                    carry += vupto[t];
                    break;
                }
                carry += vown[t];
            }
        }
        vupto[tile] = carry + total;
        __threadfence();
        vflags[tile] = 2;
        before_tile = carry;
    }
    __syncthreads();
    float prefix = before_tile + before_warp + exclusive;
    // what lies before an Inf stays finite, what follows is summed in order
    for (int i = 0; i < ITEMS; ++i) {
        prefix += v[i];
        if (first + i < length) out[first + i] = prefix;
    }
}
"""


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.kernel = None

    def forward(self, x):
        if self.kernel is None:
            self.kernel = torch.cuda._compile_kernel(SOURCE, "scan")
        x = x.contiguous()
        rows, length = x.shape
        tiles = (length + 2047) // 2048
        y = torch.empty_like(x)
        own = torch.empty(2, rows, tiles, device=x.device, dtype=torch.float32)
        flags = torch.zeros(rows * tiles + 1, device=x.device, dtype=torch.int32)
        self.kernel(
            grid=(rows * tiles, 1, 1),
            block=(256, 1, 1),
            args=[x, y, own[0], own[1], flags, flags[rows * tiles :], length, tiles],
        )
        return y
