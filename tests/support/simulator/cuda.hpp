// Runs the threads of a block cluster as fibers of one host thread: enough of CUDA and of the kernels' ptx/ headers to run,
// without a card, a kernel that uses wgmma, mbarriers, asynchronous copies and clusters. It tests indices and the order of
// events, not speed. Asynchronous copies arrive as late as the program allows (when it waits for them). Shared memory begins
// as NaN. A wait that nothing can end is an error, and so is an address outside shared memory. Products of bf16 are exact; sums
// are rounded to fp32 after each wgmma, not truncated as on the card.
#pragma once
#include <ucontext.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <type_traits>
#include <vector>

#define __device__
#define __global__
#define __forceinline__ inline
#define __noinline__
#define __host__
#define __grid_constant__
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
#define __cluster_dims__(...)
#ifndef MM32_CLUSTER
#define MM32_CLUSTER 1
#endif

struct Index {
    unsigned x, y = 1;
};
struct float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
struct int2 {
    int x, y;
};
inline int2 make_int2(int x, int y) { return {x, y}; }
struct int3 {
    int x, y, z;
};
inline int3 make_int3(int x, int y, int z) { return {x, y, z}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
template <typename A, typename B>
std::common_type_t<A, B> min(A a, B b) {
    const std::common_type_t<A, B> x = a, y = b;
    return y < x ? y : x;
}
template <typename A, typename B>
std::common_type_t<A, B> max(A a, B b) {
    const std::common_type_t<A, B> x = a, y = b;
    return x < y ? y : x;
}
inline float __uint_as_float(unsigned x) {
    float y;
    memcpy(&y, &x, 4);
    return y;
}
inline float __int_as_float(int x) { return __uint_as_float((unsigned)x); }
inline unsigned __float_as_uint(float x) {
    unsigned y;
    memcpy(&y, &x, 4);
    return y;
}

inline int __popc(unsigned x) { return __builtin_popcount(x); }
template <typename T>
T __ldg(const T* at) { return *at; }
template <typename T>
void __stcs(T* at, const T& x) {
    *at = x;
}
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
// Atomic without locks: fibers take turns only where they wait.
inline unsigned atomicOr(unsigned* at, unsigned x) {
    const unsigned before = *at;
    *at |= x;
    return before;
}
template <typename T>
T atomicMax(T* at, T x) {
    const T before = *at;
    *at = max(before, x);
    return before;
}
template <typename T>
T atomicMin(T* at, T x) {
    const T before = *at;
    *at = min(before, x);
    return before;
}

namespace simulator {

constexpr unsigned BYTES = 227 * 1024, BASE = 1024;  // the most shared memory of a block; its first address
constexpr int STACK = 128 * 1024;

[[noreturn]] inline void fail(const char* what) {
    fprintf(stderr, "simulator: %s\n", what);
    fflush(stderr);
    abort();
}

struct Copy {
    unsigned to;
    const void* from;
    int bytes, existing;
};
struct Rendezvous {
    int arrived = 0, generation = 0;
};
struct Barrier {
    int expected, pending, phase;
};
struct Warpgroup {
    Rendezvous meeting;
    const unsigned* a[128];
};
struct Warp {
    Rendezvous meeting;
    unsigned values[32];
};

struct Block {
    alignas(1024) unsigned char memory[BYTES];
    std::map<unsigned, Barrier> barriers;
    std::map<int, Rendezvous> named;
    std::vector<Warp> warps;
    std::vector<Warpgroup> warpgroups;
    unsigned index, rank;
};

struct Thread {
    ucontext_t context;
    std::unique_ptr<char[]> stack;
    Block* block;
    unsigned number;
    bool done = false;
    std::vector<Copy> group;                // copies not yet committed
    std::deque<std::vector<Copy>> pending;  // committed groups
};

inline ucontext_t scheduler;
inline Thread* current;
inline std::vector<Block*> cluster;
inline Rendezvous cluster_meeting;
inline unsigned threads_of_block, blocks_of_grid, dynamic_bytes;
inline long events;  // counts whatever may end another thread's wait
inline long runs, used_in_run = -1;  // runs of this program so far; the run that `used` (deciding.hpp) is of
inline std::map<std::pair<Block*, int>, unsigned> votes;
inline unsigned declared_bytes;  // of __shared__ variables, which are behind the dynamic shared memory
inline std::function<void()> kernel;
// The operand that copies may read, if a test has set it: from the 16-byte boundary at or before its beginning up to its end.
inline const char *operand_begin, *operand_end;

inline void yield() { swapcontext(&current->context, &scheduler); }
inline void meet(Rendezvous& meeting, int count) {
    const int generation = meeting.generation;
    events++;
    if (++meeting.arrived == count) {
        meeting.arrived = 0, meeting.generation++;
        return;
    }
    while (meeting.generation == generation) yield();
}
inline void entry() {
    kernel();
    current->done = true;
    events++;
    yield();
}

// Returns the memory at a shared address: this block's, or another block's of the cluster if the address says so.
inline unsigned char* at(unsigned address, unsigned bytes) {
    Block* block = address >> 24 ? cluster[(address >> 24) - 1] : current->block;
    const unsigned offset = (address & 0xffffff) - BASE;
    if (offset + bytes > BYTES) fail("an address outside shared memory");
    if (address % bytes) fail("a shared address that is not aligned");
    return block->memory + offset;
}
// The same, but only in the dynamic shared memory and the __shared__ variables behind it.
inline unsigned char* dynamic_at(unsigned address, unsigned bytes) {
    if (address - BASE + bytes > dynamic_bytes + declared_bytes) fail("an address outside dynamic shared memory");
    return at(address, bytes);
}
// Returns room for a variable that a kernel declares as __shared__, behind the dynamic shared memory.
template <typename T>
T& place() {
    if (dynamic_bytes + sizeof(T) > BYTES) fail("more shared memory than a block has");
    return *reinterpret_cast<T*>(current->block->memory + dynamic_bytes);
}
inline char* dynamic() { return reinterpret_cast<char*>(current->block->memory); }

inline void run(unsigned blocks, unsigned threads, unsigned dynamic, std::function<void()> what) {
    kernel = std::move(what);
    runs++, votes.clear(), declared_bytes = 0;
    threads_of_block = threads, blocks_of_grid = blocks, dynamic_bytes = (dynamic + 15) / 16 * 16;
    if (blocks % MM32_CLUSTER) fail("a grid of parts of clusters");
    for (unsigned first = 0; first < blocks; first += MM32_CLUSTER) {
        std::vector<std::unique_ptr<Block>> made;
        std::vector<std::unique_ptr<Thread>> fibers;
        cluster.clear();
        cluster_meeting = {};
        for (unsigned rank = 0; rank < MM32_CLUSTER; rank++) {
            made.push_back(std::make_unique<Block>());
            Block* block = made.back().get();
            memset(block->memory, 0xff, BYTES);
            block->index = first + rank, block->rank = rank;
            block->warps.resize(threads / 32), block->warpgroups.resize(threads / 128);
            cluster.push_back(block);
            for (unsigned i = 0; i < threads; i++) {
                fibers.push_back(std::make_unique<Thread>());
                Thread& t = *fibers.back();
                t.block = block, t.number = i, t.stack.reset(new char[STACK]);
                getcontext(&t.context);
                t.context.uc_stack.ss_sp = t.stack.get(), t.context.uc_stack.ss_size = STACK, t.context.uc_link = nullptr;
                makecontext(&t.context, entry, 0);
            }
        }
        for (size_t left = fibers.size(); left;) {
            const long before = events;
            for (auto& fiber : fibers) {
                if (fiber->done) continue;
                current = fiber.get();
                swapcontext(&scheduler, &current->context);
                if (fiber->done) {
                    left--;
                    bool copies = !fiber->group.empty();
                    for (const auto& group : fiber->pending) copies |= !group.empty();
                    if (copies) fail("a thread ended with copies under way");
                }
            }
            if (events == before) fail("all threads wait for one another");
        }
    }
}

}  // namespace simulator

#define threadIdx (Index{simulator::current->number})
#define blockIdx (Index{simulator::current->block->index})
#define gridDim (Index{simulator::blocks_of_grid})

inline void __syncthreads() { simulator::meet(simulator::current->block->named[0], (int)simulator::threads_of_block); }
inline void __syncwarp() { simulator::meet(simulator::current->block->warps[simulator::current->number / 32].meeting, 32); }
// Combines the values of a warp: a thread's own value twice, the others' once.
template <typename Combine>
unsigned reduce_warp(unsigned value, Combine combine) {
    simulator::Warp& warp = simulator::current->block->warps[simulator::current->number / 32];
    warp.values[simulator::current->number % 32] = value;
    __syncwarp();
    for (unsigned other : warp.values) value = combine(value, other);
    __syncwarp();
    return value;
}
inline unsigned __shfl_xor_sync(unsigned, unsigned x, int other) {
    const unsigned lane = simulator::current->number % 32;
    simulator::Warp& warp = simulator::current->block->warps[simulator::current->number / 32];
    warp.values[lane] = x;
    __syncwarp();
    x = warp.values[lane ^ other];
    __syncwarp();
    return x;
}
inline unsigned __shfl_sync(unsigned, unsigned x, int from) {
    simulator::Warp& warp = simulator::current->block->warps[simulator::current->number / 32];
    warp.values[simulator::current->number % 32] = x;
    __syncwarp();
    x = warp.values[from];
    __syncwarp();
    return x;
}
inline unsigned __reduce_min_sync(unsigned, unsigned x) { return reduce_warp(x, [](unsigned a, unsigned b) { return min(a, b); }); }
inline int __reduce_min_sync(unsigned, int x) {
    return (int)reduce_warp((unsigned)x, [](unsigned a, unsigned b) { return (unsigned)min((int)a, (int)b); });
}
inline bool __any_sync(unsigned, bool x) { return reduce_warp(x, [](unsigned a, unsigned b) { return a | b; }); }
inline unsigned __reduce_max_sync(unsigned, unsigned x) { return reduce_warp(x, [](unsigned a, unsigned b) { return max(a, b); }); }
inline unsigned __ballot_sync(unsigned, bool yes) {
    return reduce_warp(yes ? 1u << simulator::current->number % 32 : 0u, [](unsigned a, unsigned b) { return a | b; });
}
inline float __shfl_xor_sync(unsigned all, float x, int other) { return __uint_as_float(__shfl_xor_sync(all, __float_as_uint(x), other)); }

// ---------------------------------------------------------------------------------------------------------------------
// ptx/cp_async.cuh, shared_memory.cuh

inline unsigned shared_address(const void* p) {
    const auto offset = static_cast<const unsigned char*>(p) - simulator::current->block->memory;
    if (offset < 0 || offset >= simulator::BYTES) simulator::fail("a pointer outside shared memory");
    return (unsigned)offset + simulator::BASE;
}
template <int BYTES>
void copy_async(unsigned to, const float* from, bool exists) {
    if (to % BYTES || (exists && (size_t)from % BYTES)) simulator::fail("a copy that is not aligned");
    simulator::current->group.push_back({to, from, BYTES, exists ? BYTES : 0});
}
inline void copy_async_part(unsigned to, const char* from, int bytes) {
    if (bytes < 0 || bytes > 16) simulator::fail("a copy of more than 16 bytes");
    if (to % 16 || (bytes && (size_t)from % 16)) simulator::fail("a copy that is not aligned");
    if (bytes && simulator::operand_end && (from + 15 < simulator::operand_begin || from + bytes > simulator::operand_end))
        simulator::fail("a copy from outside the operand");
    simulator::current->group.push_back({to, from, 16, bytes});
}
inline void copy_commit() {
    simulator::current->pending.push_back(std::move(simulator::current->group));
    simulator::current->group.clear();
}
template <int PENDING>
void copy_wait() {
    auto& pending = simulator::current->pending;
    for (; pending.size() > PENDING; pending.pop_front())
        for (const auto& copy : pending.front()) {
            unsigned char* const to = simulator::dynamic_at(copy.to, copy.bytes);
            memcpy(to, copy.from, copy.existing);
            memset(to + copy.existing, 0, copy.bytes - copy.existing);
        }
}
inline void load_shared(unsigned from, float& x, float& y, float& z, float& w) {
    const float* const f = reinterpret_cast<const float*>(simulator::dynamic_at(from, 16));
    x = f[0], y = f[1], z = f[2], w = f[3];
}
inline float load_shared1(unsigned from) { return *reinterpret_cast<const float*>(simulator::dynamic_at(from, 4)); }
inline float2 load_shared2(unsigned from) {
    const float* const f = reinterpret_cast<const float*>(simulator::at(from, 8));
    return {f[0], f[1]};
}
inline void store_shared2(unsigned to, float x, float y) {
    float* const f = reinterpret_cast<float*>(simulator::dynamic_at(to, 8));
    f[0] = x, f[1] = y;
}
inline unsigned in_register(unsigned x) { return x; }
inline void store_shared1(unsigned to, float x) { memcpy(simulator::dynamic_at(to, 4), &x, 4); }
inline void store_shared4(unsigned to, const unsigned (&x)[4]) { memcpy(simulator::dynamic_at(to, 16), x, 16); }

// ---------------------------------------------------------------------------------------------------------------------
// ptx/bulk_copy.cuh (its barriers only), warpgroups.cuh, named_barriers.cuh (the rest is in deciding.hpp), cluster.cuh

inline void barrier_init(unsigned barrier, unsigned arrivals) {
    simulator::current->block->barriers[barrier] = {(int)arrivals, (int)arrivals, 0};
}
inline void barrier_arrive(unsigned barrier) {
    auto& b = simulator::current->block->barriers.at(barrier);
    simulator::events++;
    if (--b.pending == 0) b.pending = b.expected, b.phase ^= 1;
}
inline void barrier_wait(unsigned barrier, unsigned phase) {
    auto& b = simulator::current->block->barriers.at(barrier);
    while (b.phase == (int)phase) simulator::yield();
}
template <int COUNT>
void give_registers() {}
template <int COUNT>
void take_registers() {}
template <int BARRIER, int THREADS>
void sync_at() {
    simulator::meet(simulator::current->block->named[BARRIER], THREADS);
}
inline void fence_stores_for_wgmma() {}
inline void fence_barrier_init() {}

inline unsigned cluster_rank() { return simulator::current->block->rank; }
inline unsigned cluster_size() { return (unsigned)simulator::cluster.size(); }
inline void cluster_sync() { simulator::meet(simulator::cluster_meeting, (int)(simulator::cluster.size() * simulator::threads_of_block)); }
template <bool>
void load_cluster(unsigned address, unsigned rank, float (&x)[1]) { memcpy(x, simulator::at(address | (rank + 1) << 24, 4), 4); }
template <bool>
void load_cluster(unsigned address, unsigned rank, float (&x)[4]) { memcpy(x, simulator::at(address | (rank + 1) << 24, 16), 16); }
template <bool>
float4 load_cluster4(unsigned address, unsigned rank) {
    float4 x;
    memcpy(&x, simulator::at(address | (rank + 1) << 24, 16), 16);
    return x;
}

// ---------------------------------------------------------------------------------------------------------------------
// ptx/pairs.cuh

inline unsigned round_bf16(float x) {
    const unsigned bits = __float_as_uint(x);
    if (x != x) return 0x7fff;
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
inline unsigned bf16_pair(float x, float y) { return round_bf16(x) | round_bf16(y) << 16; }
inline unsigned larger_signed_pair(unsigned a, unsigned b) {
    const auto larger = [](unsigned x, unsigned y) { return (unsigned)(unsigned short)max((short)x, (short)y); };
    return larger(a, b) | larger(a >> 16, b >> 16) << 16;
}
inline unsigned larger_pair(unsigned a, unsigned b) { return max(a & 0xffff, b & 0xffff) | max(a >> 16, b >> 16) << 16; }

// ---------------------------------------------------------------------------------------------------------------------
// ptx/wgmma.cuh, wgmma_registers.cuh: m64nNk16, A in registers, B by a descriptor with the 128-byte swizzle

template <int ALONG_ROWS = 0>
unsigned long long wgmma_operand(unsigned address) {
    return (unsigned long long)((address & 0x3FFFF) >> 4) | ((ALONG_ROWS ? 512ull : 1ull) << 16) | (64ull << 32) | (1ull << 62);
}
template <int ALONG_ROWS = 0>
constexpr int WGMMA_STEP = ALONG_ROWS ? 128 : 2;
inline void wgmma_fence() {}
inline void wgmma_commit() {}
template <int PENDING>
void wgmma_wait() {}
template <int COUNT>
void wgmma_pin(float (&)[COUNT]) {}

template <int ALONG_ROWS, int COUNT>
void wgmma(float (&d)[COUNT], const unsigned (&a)[4], unsigned long long b, int accumulate) {
    const unsigned number = simulator::current->number, lane = number % 32;
    simulator::Warpgroup& group = simulator::current->block->warpgroups[number / 128];
    group.a[number % 128] = a;
    simulator::meet(group.meeting, 128);
    const unsigned base = (unsigned)(b & 0x3FFF) << 4, leading = (unsigned)(b >> 16 & 0x3FFF) << 4, stride = (unsigned)(b >> 32 & 0x3FFF) << 4;
    const auto bf16_at = [&](unsigned n, unsigned k) {
        const unsigned logical = ALONG_ROWS ? base + n / 64 * leading + k / 8 * stride + k % 8 * 128 + n % 64 * 2
                                            : base + n / 8 * stride + n % 8 * 128 + k * 2;
        unsigned short bits;
        memcpy(&bits, simulator::dynamic_at(logical ^ (logical >> 7 & 7) << 4, 2), 2);
        return __uint_as_float((unsigned)bits << 16);
    };
    for (int h = 0; h < 2; h++) {
        float row[16];
        for (int k = 0; k < 16; k++) {
            const unsigned pair = group.a[number % 128 / 32 * 32 + lane / 4 * 4 + k % 8 / 2][h + k / 8 * 2];
            row[k] = __uint_as_float(k % 2 ? pair & 0xffff0000u : pair << 16);
        }
        for (int i = 0; i < COUNT / 4; i++)
            for (int e = 0; e < 2; e++) {
                double sum = accumulate ? d[4 * i + 2 * h + e] : 0.;
                for (int k = 0; k < 16; k++) sum += (double)row[k] * bf16_at(8 * i + lane % 4 * 2 + e, k);
                d[4 * i + 2 * h + e] = (float)sum;
            }
    }
    simulator::meet(group.meeting, 128);
}
