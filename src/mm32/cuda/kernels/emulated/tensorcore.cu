// tensorcore: C from packed panels (emulated/panels.cuh) by wgmma. Each fp32 product is three of fp16: lo*hi + hi*lo + hi*hi.
//
// A block computes 128 x TILE_N tiles, one after another (persistent grid). A producer thread fills a ring of STAGES in
// shared memory by bulk copies, one K-block of 64 at a time, each as soon as mm32_pack has packed it. Two consumer warpgroups
// multiply, each 64 rows of the tile. Tensor cores truncate their sums, so after every 64 of K (with short K more often) the
// sums are promoted, that is, added to fp32 registers and rounded to nearest. The consumers alternate (named barriers 1 and 2):
// one promotes while the other multiplies. With PRODUCTS = 1 there is one product, of the hi parts, and no promotion: TF32-class
// accuracy. With INLINE_PACK = 1 nothing is packed before: two more warpgroups fill the ring (emulated/inline_pack.cuh).
//
// Launch: min(multiprocessors, tiles) blocks of 384 threads, with INLINE_PACK 512 (grid-stride loop over tiles).
// Dynamic shared memory: STAGES * STAGE + 1024 bytes, and QUEUE bytes more with INLINE_PACK. Static: 12 to 18 KB.
// Registers: 128 a thread at launch, so that a block of mm32_pack fits beside it; after that 48 for the producer (96 with
// INLINE_PACK) and 168 for the consumers (160). With 256 columns 168 at launch, because wgmma needs 216, and packing runs first.
// Bound by the card's power: 690 TFLOP/s of fp16 products sustained on random data, 750 in short bursts (H200, 700 W).
//   MM32_TILE_N, MM32_SPLIT_K, MM32_C_VECTOR   see emulated/tiles.cuh
//   MM32_STAGES, MM32_PRODUCTS (3, 1 or 6), MM32_INLINE_PACK
//   MM32_PROMOTE   sums are promoted every 16 * PROMOTE of K: 4, or 1 for short K, where the error must be smaller
//   MM32_A_UNIT_ROWS, MM32_B_UNIT_ROWS   the rows of a unit of mm32_pack (UNIT_ROWS); 0: an earlier call has packed the operand
//   MM32_GUARDED      1: this is the lower tier, which does something only if the decision asks for it
//   MM32_LOWER_TIER   1: launches of a lower tier follow, which the decision may ask for
#include "emulated/cancel.cuh"
#include "emulated/decide.cuh"
#include "emulated/early.cuh"
#include "emulated/inline_pack.cuh"
#include "emulated/tiles.cuh"
#include "ptx/bulk_copy.cuh"
#include "ptx/dependent_launch.cuh"
#include "ptx/wgmma.cuh"

constexpr int STAGES = MM32_STAGES;
constexpr int A_PLANE = TILE_M * PLANE_ROW, B_PLANE = TILE_N * PLANE_ROW, STAGE = PLANES * (A_PLANE + B_PLANE);
constexpr int PROMOTE = MM32_PROMOTE;
// For K below LONG_K hi * hi is promoted more often, by bf16x6 every 16 of K, by fp16x3 with a scaled lo every 32, or every 16
// below SCALED_BY_16: one large product in each 64 of K cuts all that are added to it afterwards. Over a longer K, an fp32 sum
// of data of one sign loses as much.
constexpr int SCALED_BY_16 = 512, LONG_K = 2048;
constexpr int B_AT = PLANES * A_PLANE;  // where B's planes begin in a stage
// Whether the consumers alternate by K-blocks and not by promotions. With short K one then stores while the other multiplies.
constexpr bool ALTERNATE_BLOCKS = PROMOTE == 1;
// Whether the multiply stops if another tier will compute the result. Not with short K, where little would be saved.
constexpr bool STOPS = !MM32_INLINE_PACK && !ALTERNATE_BLOCKS;
// Whether the call may be left to bf16x6 before anything is packed, while this launch waits for packing.
constexpr bool MAY_BE_EARLY = STOPS && MM32_LOWER_TIER;
// Blocks that multiply at about the same places of K read much the same of the panels, and L2 holds it. Over a long K they
// drift apart, and memory is the bound instead of the tensor cores: 16384 x 32768 x 16384 with B packed before took 127 ms on
// an H100 instead of 85. So from a K of IN_STEP on, a producer that is more than LEAD steps of STEP K-blocks ahead of the
// average of all waits for the others. It does not wait for ever: blocks that have not started need not start before this one
// ends. While packing runs beside the multiply, blocks begin one after another, and waiting would only delay them.
constexpr int IN_STEP = 12288, STEP = 4, LEAD = 2, MOST_WAITS = 256;
constexpr unsigned HAS_ENDED = 1 << 23;  // in steps: once the first block has no tiles left and adds it, nobody waits any more
constexpr int CONSUMERS = 256;  // threads of the two consumer warpgroups, which come before the threads that fill the ring
// How the operands lie in a stage (ptx/wgmma.cuh): contiguous along rows if they are packed inline from loads along rows.
#if MM32_INLINE_PACK
constexpr int A_ROWS = MM32_A_LOAD < 2, B_ROWS = MM32_B_LOAD < 2;
#else
constexpr int A_ROWS = 0, B_ROWS = 0;
#endif

#if !MM32_INLINE_PACK
constexpr bool A_PREPACKED = MM32_A_UNIT_ROWS == 0, B_PREPACKED = MM32_B_UNIT_ROWS == 0;  // by an earlier call
constexpr int JUDGES = 96;  // threads of the producer's warpgroup that have nothing else to do

// Decides which tier computes the product, as soon as everything is packed.
__device__ __forceinline__ void judge(const Params& s, int thread, bool scaled_lo, Deciding& d) {
    if (WATCHED && blockIdx.x == gridDim.x - 1) find_least_power<JUDGES / 32, 5>(s, thread, d.memory);
    if (thread == 0)  // one thread, and not often: 400 warps that asked without a pause slowed the multiply by 3 %
        while (!load_acquire(&s.decision->packed)) __nanosleep(1000);
    any_of<JUDGES>(false);
    if (!MM32_GUARDED && load_relaxed(&s.decision->early)) return;
    const AcceptTest test(s, scaled_lo);
    load_partners<JUDGES>(s, thread, test, d);
    const int a_units = (int)row_tiles(s, 0) * REDUCERS, units = a_units + (int)row_tiles(s, 1) * REDUCERS;
    for (int i = blockIdx.x * (JUDGES / 32) + thread / 32; i < units; i += gridDim.x * (JUDGES / 32)) {
        const int side = i >= a_units, unit = side ? i - a_units : i;
        // The stats of a prepacked operand stay as they are.
        if (side ? B_PREPACKED : A_PREPACKED) reduce_rows<false>(s, side, unit, test, d);
        else reduce_rows<true>(s, side, unit, test, d);
    }
    __threadfence();
    any_of<JUDGES>(false);
    const bool last = thread == 0 && atomicAdd(&s.decision->judged, 1u) == gridDim.x - 1;
    if (!any_of<JUDGES>(last)) return;
    __threadfence();
    decide<JUDGES, MM32_LOWER_TIER, false, A_PREPACKED && B_PREPACKED>(s, thread, scaled_lo, d);
}

constexpr int B_COUNTERS = TILE_N <= READY_ROWS ? 1 : TILE_N / READY_ROWS;  // counters of a tile's columns

__device__ __forceinline__ void produce(const Params& s, unsigned ring, unsigned full_barriers, unsigned empty_barriers,
                                        unsigned* stopped) {
    const Problem& p = s.p;
    const int blocks = (int)ceil_div(p.k, BLOCK_K), chunks = (blocks + CHUNK - 1) / CHUNK;
    const long long a_plane = padded_rows(p.m) * PLANE_ROW, b_plane = padded_rows(p.n) * PLANE_ROW;
    int stage = 0;
    unsigned phase = 0;
    bool packed = MM32_GUARDED;   // then no counter is read: reading one takes as long as multiplying 64 of K
    bool decided = MM32_GUARDED;  // then the tier is not read any more
    unsigned seen_decided = 0;
    const bool may_be_in_step = p.k >= IN_STEP && (MM32_GUARDED || !counts_units(s));
    bool in_step = may_be_in_step;
    unsigned* const progress = &s.decision->progress[MM32_GUARDED];
    unsigned steps = 0, seen_progress = 0;
    for (Scheduler scheduler(p, blockIdx.x); scheduler.has_tile(p, s.parts); scheduler.advance(p, gridDim.x)) {
        const TileOfPart tile = scheduler.tile(p);
        const int begin = part_begin(blocks, tile.part, (int)s.parts), end = part_begin(blocks, tile.part + 1, (int)s.parts);
        if (!packed && load_acquire(&s.decision->packed)) {
            packed = true;
            asm volatile("fence.proxy.async;" ::: "memory");  // orders the bulk copies below after this load
        }
        const int a_matrix = packed_matrix(s, 0, tile.matrix), b_matrix = packed_matrix(s, 1, tile.matrix);
        const unsigned a_bytes = (unsigned)min((int)padded_rows(p.m) - tile.m0, TILE_M) * PLANE_ROW;
        const unsigned b_bytes = (unsigned)min((int)padded_rows(p.n) - tile.n0, TILE_N) * PLANE_ROW;
        const char* a = s.panels[0] + ((long long)a_matrix * blocks + begin) * PLANES * a_plane + (long long)tile.m0 * PLANE_ROW;
        const char* b = s.panels[1] + ((long long)b_matrix * blocks + begin) * PLANES * b_plane + (long long)tile.n0 * PLANE_ROW;
        const unsigned* a_ready = ready_counters(s, 0, row_tile(s, 0, a_matrix, tile.m0), chunks);
        const unsigned* b_ready = ready_counters(s, 1, row_tile(s, 1, b_matrix, tile.n0), chunks);
        const unsigned a_units = A_PREPACKED ? 0 : units_of<MM32_A_UNIT_ROWS>(tile.m0, p.m);
        unsigned b_units[B_COUNTERS];
#pragma unroll
        for (int g = 0; g < B_COUNTERS; g++)
            b_units[g] = B_PREPACKED ? 0 : units_of<MM32_B_UNIT_ROWS>(tile.n0 + g * READY_ROWS, p.n);
#pragma unroll 1
        for (int kb = begin; kb < end; kb++) {
            if (in_step && kb % STEP == 0) {
                // What was seen one step ago is enough to go on.
                const auto leads = [&] { return (steps - min(steps, (unsigned)LEAD)) * gridDim.x > seen_progress; };
                int waits = 0;
                while (leads() && waits++ < MOST_WAITS) {
                    if (waits > 1) __nanosleep(100);
                    seen_progress = load_relaxed(progress);
                }
                in_step = waits < MOST_WAITS;
                atomicAdd(progress, 1u), steps++;
                seen_progress = load_relaxed(progress);
            }
            // Loaded before the counters and used after them, so that nobody waits for it.
            if (STOPS && (kb % CHUNK == 0 || kb == begin) && !decided) seen_decided = load_relaxed(&s.decision->decided);
            if ((kb % CHUNK == 0 || kb == begin) && !packed) {
                bool ready;
                unsigned asked = 0;
                do {
                    if (!counts_units(s)) {
                        packed = ready = load_acquire(&s.decision->packed);
                        continue;
                    }
                    ready = A_PREPACKED || load_acquire(a_ready + kb / CHUNK) >= a_units;
#pragma unroll
                    for (int g = 0; g < B_COUNTERS; g++)
                        if (!B_PREPACKED && tile.n0 + g * READY_ROWS < p.n)
                            ready &= load_acquire(b_ready + g * chunks + kb / CHUNK) >= b_units[g];
                    // If the call is left to bf16x6, nothing is counted. Not asked each time, because it takes as long again.
                    if (MAY_BE_EARLY && !ready && ++asked % 8 == 0) packed = ready = load_acquire(&s.decision->packed);
                } while (!ready);
                if (MAY_BE_EARLY && packed) seen_decided = load_relaxed(&s.decision->decided);
                asm volatile("fence.proxy.async;" ::: "memory");  // orders the bulk copies below after these loads
            }
            const unsigned at = ring + stage * STAGE, arrived = full_barriers + 8 * stage;
            barrier_wait(empty_barriers + 8 * stage, phase ^ 1);
            // What another tier will compute is not computed to its end.
            if (STOPS && seen_decided && load_acquire(&s.decision->decided)) {
                seen_decided = 0, decided = true;
                if (s.decision->tier != FIRST_TIER) {
                    stopped[stage] = 1;
                    barrier_arrive(arrived);
                    if (may_be_in_step) atomicAdd(progress, HAS_ENDED);
                    return;  // as all others will
                }
            }
            barrier_expect(arrived, PLANES * (a_bytes + b_bytes));
#pragma unroll
            for (int plane = 0; plane < PLANES; plane++) {
                bulk_copy(at + plane * A_PLANE, a + plane * a_plane, a_bytes, arrived);
                bulk_copy(at + B_AT + plane * B_PLANE, b + plane * b_plane, b_bytes, arrived);
            }
            a += PLANES * a_plane;
            b += PLANES * b_plane;
            if (++stage == STAGES) stage = 0, phase ^= 1;
        }
    }
    if (may_be_in_step) atomicAdd(progress, HAS_ENDED);
}
#endif

// Whether `value` is true in all 128 threads of a warpgroup, which synchronises at a named barrier.
__device__ __forceinline__ bool all_of(bool value, int barrier) {
    unsigned all;
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %2, 0; bar.red.and.pred p, %1, 128, p; selp.u32 %0, 1, 0, p; }"
                 : "=r"(all)
                 : "r"(barrier), "r"((unsigned)value)
                 : "memory");
    return all;
}

// d = a * b + (accumulate ? d : 0) for 16 of K: number k of the four of a K-block.
__device__ __forceinline__ void multiply(float (&d)[TILE_N / 2], unsigned long long a, unsigned long long b, int k,
                                         int accumulate) {
    wgmma<A_ROWS, B_ROWS>(d, a + WGMMA_STEP<A_ROWS> * k, b + WGMMA_STEP<B_ROWS> * k, accumulate);
}

// The same for all four.
__device__ __forceinline__ void multiply_block(float (&d)[TILE_N / 2], unsigned long long a, unsigned long long b,
                                               int accumulate) {
#pragma unroll
    for (int k = 0; k < 4; k++) multiply(d, a, b, k, accumulate || k > 0);
}

// The consumers' turns at the tensor cores.
__device__ __forceinline__ void wait_for_turn(int consumer) { asm volatile("bar.sync %0, 256;" ::"r"(1 + consumer) : "memory"); }
__device__ __forceinline__ void begin_turn(float (&part)[TILE_N / 2], int consumer) {
    wgmma_pin(part);
    wait_for_turn(consumer);
    wgmma_fence();
}
__device__ __forceinline__ void end_turn(int consumer) { asm volatile("bar.arrive %0, 256;" ::"r"(2 - consumer) : "memory"); }

// Tells the compiler that a condition is the same in all threads of a warp. After a branch that could diverge it would not
// use uniform registers, and would move both operands of each wgmma there separately (2048 x 4096 x 2048: 5 %).
__device__ __forceinline__ bool uniform(bool condition) { return __any_sync(~0u, condition); }

// A consumer's part of the ring: where it reads, and the barriers.
struct Consumer {
    unsigned ring, full_barriers, empty_barriers;
    int number, stage;
    unsigned phase;
    const volatile unsigned* stopped;
};

// Waits for the K-block in the next stage. Returns false if the producer has stopped, which it may do where a chunk begins.
__device__ __forceinline__ bool wait_for_block(const Consumer& c, bool may_have_stopped) {
    barrier_wait(c.full_barriers + 8 * c.stage, c.phase);
    if (STOPS && may_have_stopped && uniform(c.stopped[c.stage])) return false;
    // Threads have stored what wgmma (the async proxy) reads. The fence is here and not after the stores, because there it would
    // wait for loads that are under way.
    if (MM32_INLINE_PACK) asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    return true;
}

__device__ __forceinline__ void next_stage(Consumer& c) {
    if (++c.stage == STAGES) c.stage = 0, c.phase ^= 1;
}

__device__ __forceinline__ void add(float (&sum)[TILE_N / 2], const float (&part)[TILE_N / 2]) {
#pragma unroll
    for (int i = 0; i < TILE_N / 2; i++) sum[i] += part[i];
}

// Scales the products with lo back.
__device__ __forceinline__ void scale_back(float (&part)[TILE_N / 2]) {
#pragma unroll
    for (int i = 0; i < TILE_N / 2; i++) part[i] *= 1.f / (1 << LO_SHIFT);
}

#if MM32_PRODUCTS == 3
// multiply_blocks with a scaled lo, promoted every 64 of K. First come the products with lo, by themselves; hi * hi is added,
// in a turn of its own, once they have been scaled back. hi * hi takes 128 cycles, in which the other consumer has to add up
// its sums and begin its next products, or has to scale. So all that can be done beforehand is done while products are under
// way: waiting for the next K-block, finding its descriptors, and waiting for the next turn (5 % of a call).
__device__ __forceinline__ bool multiply_scaled_blocks(float (&sum)[TILE_N / 2], Consumer& c, int begin, int end) {
    unsigned long long a_hi, a_lo, b_hi, b_lo;
    const auto begin_block = [&](int kb) {
        const unsigned at = c.ring + c.stage * STAGE, a_at = at + c.number * 64 * PLANE_ROW, b_at = at + B_AT;
        a_hi = wgmma_operand<A_ROWS>(a_at), b_hi = wgmma_operand<B_ROWS>(b_at);
        a_lo = wgmma_operand<A_ROWS>(a_at + A_PLANE), b_lo = wgmma_operand<B_ROWS>(b_at + B_PLANE);
        if (!wait_for_block(c, kb % CHUNK == 0 || kb == begin)) return false;
        wait_for_turn(c.number);
        return true;
    };
    if (begin < end && !begin_block(begin)) return false;
#pragma unroll 1
    for (int kb = begin; kb < end; kb++) {
        float part[TILE_N / 2];
        wgmma_pin(part), wgmma_fence();
        multiply_block(part, a_lo, b_hi, 0), multiply_block(part, a_hi, b_lo, 1);
        wgmma_commit(), end_turn(c.number);
        wait_for_turn(c.number);
        wgmma_wait<0>(), wgmma_pin(part);
        scale_back(part);
        wgmma_pin(part), wgmma_fence();
        multiply_block(part, a_hi, b_hi, 1);
        wgmma_commit(), end_turn(c.number);
        const unsigned empty = c.empty_barriers + 8 * c.stage;
        next_stage(c);
        const bool goes_on = kb + 1 < end && begin_block(kb + 1);
        wgmma_wait<0>(), wgmma_pin(part);
        if (threadIdx.x % 32 == 0) barrier_arrive(empty);
        add(sum, part);
        if (kb + 1 < end && !goes_on) return false;
    }
    return true;
}
#endif

// Adds the products of K-blocks begin .. end to the sums, with or without a scaled lo: each has a loop of its own, because one
// loop with both made ptxas wait for every wgmma (2048 x 4096 x 2048: 283 us instead of 188). hi * hi is promoted EVERY 16 of
// K. Returns false if the producer has stopped.
template <bool SCALED_LO, int EVERY>
__device__ __forceinline__ bool multiply_blocks(float (&sum)[TILE_N / 2], Consumer& c, int begin, int end) {
#if MM32_PRODUCTS == 3
    if constexpr (SCALED_LO && EVERY == 4) return multiply_scaled_blocks(sum, c, begin, end);
#endif
    const int lane = threadIdx.x % 32;
#pragma unroll 1
    for (int kb = begin; kb < end; kb++) {
        const unsigned at = c.ring + c.stage * STAGE, a_at = at + c.number * 64 * PLANE_ROW, b_at = at + B_AT;
        const unsigned long long a_hi = wgmma_operand<A_ROWS>(a_at), b_hi = wgmma_operand<B_ROWS>(b_at);
        if (!wait_for_block(c, kb % CHUNK == 0 || kb == begin)) {
            if (PLANES == 1) wgmma_wait<0>(), wgmma_pin(sum);
            return false;
        }
#if MM32_PRODUCTS == 1
        wgmma_pin(sum), wgmma_fence();
        multiply_block(sum, a_hi, b_hi, 1);
        wgmma_commit();
        wgmma_wait<1>();  // the K-block before this one is multiplied
        wgmma_pin(sum);
        if (lane == 0 && kb > begin) barrier_arrive(c.empty_barriers + 8 * (c.stage == 0 ? STAGES - 1 : c.stage - 1));
#else
        float part[TILE_N / 2];
        const auto promote = [&](bool last) {
            wgmma_wait<0>(), wgmma_pin(part);
            if (last && lane == 0) barrier_arrive(c.empty_barriers + 8 * c.stage);
            add(sum, part);
        };
#if MM32_PRODUCTS == 6
        const unsigned long long a_mid = wgmma_operand<A_ROWS>(a_at + A_PLANE), a_lo = wgmma_operand<A_ROWS>(a_at + 2 * A_PLANE);
        const unsigned long long b_mid = wgmma_operand<B_ROWS>(b_at + B_PLANE), b_lo = wgmma_operand<B_ROWS>(b_at + 2 * B_PLANE);
        begin_turn(part, c.number);
        multiply_block(part, a_lo, b_hi, 0), multiply_block(part, a_mid, b_mid, 1), multiply_block(part, a_hi, b_lo, 1);
        multiply_block(part, a_mid, b_hi, 1), multiply_block(part, a_hi, b_mid, 1);
#pragma unroll
        for (int first = 0; first < 4; first += EVERY) {
            if (first > 0) wgmma_pin(part), wgmma_fence();
#pragma unroll
            for (int k = first; k < first + EVERY; k++) multiply(part, a_hi, b_hi, k, first == 0 || k > first);
            wgmma_commit();
            if (first == 0) end_turn(c.number);
            promote(first + EVERY == 4);
        }
#else
        const unsigned long long a_lo = wgmma_operand<A_ROWS>(a_at + A_PLANE), b_lo = wgmma_operand<B_ROWS>(b_at + B_PLANE);
        if constexpr (SCALED_LO) {
            begin_turn(part, c.number);
            multiply_block(part, a_lo, b_hi, 0), multiply_block(part, a_hi, b_lo, 1);
            wgmma_commit();
            if (!ALTERNATE_BLOCKS) end_turn(c.number);
            wgmma_wait<0>(), wgmma_pin(part);
            scale_back(part);
        }
#pragma unroll
        for (int first = 0; first < 4; first += EVERY) {
            if (SCALED_LO || first > 0) wgmma_pin(part), wgmma_fence();
            else begin_turn(part, c.number);
            if constexpr (!SCALED_LO) {
#pragma unroll
                for (int k = first; k < first + EVERY; k++) multiply(part, a_lo, b_hi, k, k > first);
#pragma unroll
                for (int k = first; k < first + EVERY; k++) multiply(part, a_hi, b_lo, k, 1);
            }
#pragma unroll
            for (int k = first; k < first + EVERY; k++) multiply(part, a_hi, b_hi, k, !SCALED_LO || first == 0 || k > first);
            wgmma_commit();
            if (first + EVERY == 4 && (!SCALED_LO || ALTERNATE_BLOCKS)) end_turn(c.number);
            promote(first + EVERY == 4);
        }
#endif
#endif
        next_stage(c);
    }
    if (PLANES == 1) {
        wgmma_wait<0>(), wgmma_pin(sum);
        if (lane == 0 && end > begin) barrier_arrive(c.empty_barriers + 8 * (c.stage == 0 ? STAGES - 1 : c.stage - 1));
    }
    return true;
}

// multiply_blocks, promoted as often as K = `k` asks for.
__device__ __forceinline__ bool multiply_part(float (&sum)[TILE_N / 2], Consumer& c, int begin, int end, long long k,
                                              bool scaled_lo) {
    if constexpr (PLANES == 3)
        return k < LONG_K ? multiply_blocks<false, 1>(sum, c, begin, end) : multiply_blocks<false, 4>(sum, c, begin, end);
    if (PLANES == 1 || !uniform(scaled_lo)) return multiply_blocks<false, PROMOTE>(sum, c, begin, end);
    if (ALTERNATE_BLOCKS || k < SCALED_BY_16) return multiply_blocks<PLANES == 2, 1>(sum, c, begin, end);
    if (k < LONG_K) return multiply_blocks<PLANES == 2, 2>(sum, c, begin, end);
    return multiply_blocks<PLANES == 2, 4>(sum, c, begin, end);
}

__device__ __forceinline__ void consume(const Params& s, bool scaled_lo, unsigned ring, unsigned full_barriers,
                                        unsigned empty_barriers, ModerateColumns& columns, float* staging,
                                        const volatile unsigned* stopped) {
    const Problem& p = s.p;
    const int blocks = (int)ceil_div(p.k, BLOCK_K);
    // The shuffle tells the compiler that this is the same in a warp, so that it keeps wgmma's descriptors in uniform
    // registers.
    const int consumer = __shfl_sync(~0u, (int)threadIdx.x / 128, 0);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    const int first_row = consumer * 64 + warp * 16;
    Consumer c{ring, full_barriers, empty_barriers, consumer, 0, 0, stopped};
    if (consumer == 1) asm volatile("bar.arrive 1, 256;" ::: "memory");  // consumer 0 goes first
    // The exponents of the next tile's rows and columns are loaded before this tile is stored, and used afterwards. Waiting for
    // them with the sums in registers cost 17 % (32768 x 64 x 32768).
    constexpr int OWN = TILE_N <= 128 ? 1 : TILE_N / 128;  // how many columns' exponents a thread loads
    const int column = threadIdx.x % min(TILE_N, 128);
    Scheduler scheduler(p, blockIdx.x);
    TileOfPart tile = scheduler.tile(p);
    Column mine[OWN];
    Scale scales[2];  // of two rows
    const auto load_scales = [&] {
#pragma unroll
        for (int i = 0; i < OWN; i++) mine[i] = column_at(s, tile, column + 128 * i);
#pragma unroll
        for (int h = 0; h < 2; h++) scales[h] = scale_at(s, tile, tile.m0 + first_row + lane / 4 + 8 * h);
    };
    load_scales();
    if (WATCHED) power_of_thread(staging + warp * STAGING) = 0.f;
    while (scheduler.has_tile(p, s.parts)) {
        const int begin = part_begin(blocks, tile.part, (int)s.parts), end = part_begin(blocks, tile.part + 1, (int)s.parts);
        const int exponents[2] = {scales[0].exponent(scaled_lo), scales[1].exponent(scaled_lo)};
        bool moderate = is_moderate(exponents[0]) && is_moderate(exponents[1]);
#pragma unroll
        for (int i = 0; i < OWN; i++) {
            if (threadIdx.x % 128 < TILE_N) columns.set(column + 128 * i, mine[i], scaled_lo);
            moderate = moderate && is_moderate(mine[i].scale.exponent(scaled_lo));
        }
        moderate = all_of(moderate, 3 + consumer);  // and `columns` is complete for the whole warpgroup
        float sum[TILE_N / 2];
#pragma unroll
        for (int i = 0; i < TILE_N / 2; i++) sum[i] = 0.f;
        if (!multiply_part(sum, c, begin, end, p.k, scaled_lo)) return;
        const TileOfPart done = tile;
        scheduler.advance(p, gridDim.x);
        if (scheduler.has_tile(p, s.parts)) {
            tile = scheduler.tile(p);
            load_scales();
        }
        const Target target = target_of(s, done);
        if ((MM32_C_VECTOR || target.col == 1) && moderate && done.m0 + TILE_M <= p.m && done.n0 + TILE_N <= p.n) {
            const float rows[2] = {one_factor(exponents[0]), one_factor(exponents[1])};
            float* const to = target.matrix + (done.m0 + first_row) * target.row + done.n0;
            store_moderate<WATCHED>(to, target.row, rows, columns, sum, staging + warp * STAGING);
        } else {
            const float2 rows[2] = {two_factors(exponents[0]), two_factors(exponents[1])};
            store<WATCHED>(p, done, target, done.m0 + first_row, 0, rows, columns, sum, staging + warp * STAGING);
        }
        asm volatile("bar.sync %0, 128;" ::"r"(3 + consumer) : "memory");  // no thread reads `columns` any more
    }
    if (WATCHED) {
        float power = power_of_thread(staging + warp * STAGING);
        if (!(power < __int_as_float(0x7f800000))) power = 0.f;  // what is NaN or Inf says nothing of the others
#pragma unroll
        for (int offset = 16; offset > 0; offset /= 2) power += __shfl_xor_sync(~0u, power, offset);
        if (lane == 0) staging[warp] = power;
        asm volatile("bar.sync %0, 128;" ::"r"(3 + consumer) : "memory");
        // The order of a sum of two does not matter.
        if (threadIdx.x % 128 == 0)
            atomicAdd(&s.decision->power[blockIdx.x], (staging[0] + staging[1]) + (staging[2] + staging[3]));
    }
}

extern "C" __global__ void __launch_bounds__(TILE_N > 128 ? 384 : 512, 1) mm32_tensorcore(const __grid_constant__ Params s) {
    extern __shared__ __align__(16) char dynamic[];
    __shared__ __align__(8) unsigned long long barriers[2 * STAGES];
    __shared__ __align__(16) ModerateColumns columns[2];  // one for each consumer
    __shared__ __align__(16) float staging[2][4 * STAGING];
    const unsigned ring = (shared_address(dynamic) + 1023) & ~1023u;
    const unsigned full_barriers = shared_address(barriers), empty_barriers = full_barriers + 8 * STAGES;
    // 1: the producer has stopped before this stage, because another tier computes the result. Each stage has its own flag: a
    // common flag could be seen by a warp that still has an earlier stage to multiply, and not by others.
    __shared__ unsigned stopped[STAGES];
    constexpr bool MAY_GIVE_UP = MM32_INLINE_PACK && MM32_LOWER_TIER && PLANES == 2;
#if MM32_INLINE_PACK || MM32_GUARDED
    wait_for_previous_grid();  // otherwise the `ready` counters synchronise with mm32_scale and mm32_pack
#endif
    if (MM32_GUARDED && uniform(s.decision->tier != BF16X6)) return;
    const Flags flags(s);
    if (!MM32_GUARDED && uniform(flags.nothing_finite())) {
        if (MM32_INLINE_PACK && blockIdx.x == 0 && threadIdx.x == 0) decide_for_fma(*s.decision);
        if (!MM32_INLINE_PACK) wait_for_previous_grid();
        return;
    }
    if (MAY_GIVE_UP && may_be_hopeless(s, flags) && looks_hopeless(s, flags.some_small() && flags.scaled_lo())) return;
    const bool scaled_lo = flags.scaled_lo();
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            stopped[i] = 0;
            barrier_init(full_barriers + 8 * i, MM32_INLINE_PACK ? 8 : 1);  // arrivals: warps that pack inline, or the producer
            barrier_init(empty_barriers + 8 * i, 8);                        // arrivals: consumer warps
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (threadIdx.x >= CONSUMERS) {
#if MM32_INLINE_PACK
        asm volatile("setmaxnreg.dec.sync.aligned.u32 96;");
        const unsigned queues = ring + STAGES * STAGE;
        // Used when nothing is in the queues any more. The ring begins up to 1023 bytes after `dynamic`.
        Deciding& deciding = *reinterpret_cast<Deciding*>(dynamic + 1024 + STAGES * STAGE);
        if (threadIdx.x < CONSUMERS + 128) {
            pack_tiles<0, STAGES, STAGE, 0>(s, uniform(scaled_lo), ring, queues, full_barriers, empty_barriers, deciding);
        } else {
            pack_tiles<1, STAGES, STAGE, B_AT>(s, uniform(scaled_lo), ring, queues, full_barriers, empty_barriers, deciding);
        }
        decide_if_last(s, scaled_lo, deciding);
#else
        asm volatile("setmaxnreg.dec.sync.aligned.u32 48;");
        __shared__ Deciding deciding;
        if (threadIdx.x == CONSUMERS) produce(s, ring, full_barriers, empty_barriers, stopped);
        else if (threadIdx.x >= CONSUMERS + 32 && (!MM32_GUARDED || s.decision->early))
            judge(s, threadIdx.x - CONSUMERS - 32, scaled_lo, deciding);
#endif
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(MM32_INLINE_PACK ? 160 : TILE_N > 128 ? 216 : 168));
        const int consumer = threadIdx.x / 128;
        if (WATCHED && MM32_INLINE_PACK && blockIdx.x == gridDim.x - 1) {
            find_least_power<CONSUMERS / 32, 8>(s, threadIdx.x, staging[0]);
            asm volatile("bar.sync 8, 256;" ::: "memory");  // `staging` is free again
        }
        consume(s, scaled_lo, ring, full_barriers, empty_barriers, columns[consumer], staging[consumer], stopped);
        // The next launch reads mm32_pack's decision and waits only for this one, so this one must wait for mm32_pack. The
        // consumers wait, at their end, and not the idle warps: waiting while mm32_pack runs cost a tenth of the time.
        if (!MM32_INLINE_PACK) wait_for_previous_grid();
    }
}
