// The Hopper kernel of mla_decode: what the two consumer groups do with a tile.
#pragma once

#include "mla_decode/wgmma_block.cuh"
#include "mla_decode/wgmma_softmax.cuh"
#include "lib/half.cuh"
#include "lib/opaque.cuh"
#include "lib/ptx/ldst.cuh"
#include "lib/ptx/math.cuh"
#include "lib/ptx/mbarrier.cuh"
#include "lib/ptx/sync.cuh"
#include "lib/ptx/wgmma.cuh"
#include "lib/uniform.cuh"

namespace {

// Where products find their operands: the tiles' address as a descriptor has it.
template <class S> struct group_operands {
    unsigned low;
    unsigned long long at_keys; // of queries and keys

    __device__ __forceinline__ explicit group_operands(const block_state<S> &b) : low(b.base >> 4 & 0x3fff) {}

    // Called before a round, so that the address is uniform to the compiler, which then computes descriptors once a
    // warp, by one addition each. The first descriptor is made ahead of the wait for keys; behind it, every product up
    // to the next wait would compute its own.
    __device__ __forceinline__ void renew()
    {
        low = uniform(low);
        at_keys = wgmma_descriptor(0, 0, 1024) | low;
        opaque(at_keys);
    }

    __device__ __forceinline__ unsigned long long keys(unsigned offset) const { return at_keys + (offset >> 4); }
    __device__ __forceinline__ unsigned long long values(unsigned offset) const
    {
        return (wgmma_descriptor(0, cell, 1024) | low) + (offset >> 4);
    }
};

// One lane arrives for all of the warp.
__device__ __forceinline__ void arrive_warp(unsigned barrier)
{
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        mbarrier_arrive(barrier);
}

// Waits for runs of a stage. A fence makes what threads copied, rather than TMA, visible to the tensor cores.
template <int count, class S>
__device__ __forceinline__ void wait_runs(const block_state<S> &b, int stage, int first, unsigned parity)
{
#pragma unroll
    for (int n = first; n < first + count; n++)
        mbarrier_wait(b.full(stage, n), parity);
    if (S::gathers)
        fence_proxy_async();
}

// Scores of the group's stage: issued run by run as keys arrive, or by halves where a fence comes with it.
template <int group, class S>
__device__ __forceinline__ void start_scores(const block_state<S> &b, const group_operands<S> &at, unsigned parity,
                                             float (&s)[32])
{
#pragma unroll
    for (int position = 0; position < S::runs; position++) {
        const int n = run_at(group, position);
        if (!S::gathers || position == latent_runs)
            wait_runs<1>(b, group, n, parity);
        else if (position % (latent_runs / 2) == 0)
            wait_runs<latent_runs / 2>(b, group, n, parity);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < (position == latent_runs ? 4 : 4 * run); step++) {
            const unsigned offset = (n * run + step / 4) * cell + step % 4 * 32;
            wgmma_n64<typename S::element>(s, at.keys(offset), at.keys(S::stage_at(group) + offset),
                                           position + step > 0);
        }
    }
    wgmma_commit_group();
}

// Rows of the cache beyond the length must not even be multiplied by zero.
template <int group, class S> __device__ __forceinline__ void clear_rows(const block_state<S> &b, int stage, int valid)
{
    const int thread = threadIdx.x % 128;
    for (int i = thread; i < (rows - valid) * 32; i += 128) {
        const int row = valid + i / 32, chunk = i % 32;
        st_shared_v4_f32(b.stage(stage) + (4 * group + chunk / 8) * cell + row * 128 + chunk % 8 * 16,
                         make_float4(0.f, 0.f, 0.f, 0.f));
    }
    fence_proxy_async();
    barrier_sync(group_barrier + group, 128);
}

// The place of a tile's probabilities, from one group to the thread of the same number of the other: 16 bytes four times,
// and -M of the thread's two rows. Four lanes have the same -M and all write it, which is shorter than a test.
struct handover {
    unsigned fragments, neg_max, given; // of stage 0

    template <class S>
    __device__ __forceinline__ explicit handover(const block_state<S> &b)
        : fragments(b.stage(0) + 8 * cell + threadIdx.x % 128 * 16), neg_max(b.neg_max() + threadIdx.x % 128 / 4 * 8),
          given(b.given(0))
    {
    }

    // Gives the probabilities of the group's stage, and what they are relative to, to the other group.
    template <int group, class T>
    __device__ __forceinline__ void publish(const group_state<T> &g, const unsigned (&packed)[16]) const
    {
#pragma unroll
        for (int i = 0; i < 4; i++)
            st_shared_v4_u32(fragments + group * stage_bytes + i * 2048, packed[4 * i], packed[4 * i + 1],
                             packed[4 * i + 2], packed[4 * i + 3]);
        st_shared_v2_u32(neg_max + group * (rows * 4), __float_as_uint(g.neg_max[0]), __float_as_uint(g.neg_max[1]));
        mbarrier_arrive(given + group * 8);
    }

    // Takes those of the other group's stage. Where they and the output are relative to different maxima, both are
    // rescaled to the greater one. No output may be in flight. `parity` is the tile's among those of the stage.
    template <int other, class T>
    __device__ __forceinline__ void take(group_state<T> &g, unsigned parity, unsigned (&packed)[16]) const
    {
        mbarrier_wait(given + other * 8, parity);
        unsigned x[2];
        ld_shared_v2_u32(neg_max + other * (rows * 4), x[0], x[1]);
#pragma unroll
        for (int i = 0; i < 4; i++)
            ld_shared_v4_u32(fragments + other * stage_bytes + i * 2048, packed[4 * i], packed[4 * i + 1],
                             packed[4 * i + 2], packed[4 * i + 3]);
        if (__any_sync(0xffffffffu, x[0] != __float_as_uint(g.neg_max[0]) || x[1] != __float_as_uint(g.neg_max[1]))) {
            const float theirs[2] = {__uint_as_float(x[0]), __uint_as_float(x[1])};
            const float to[2] = {fminf(theirs[0], g.neg_max[0]), fminf(theirs[1], g.neg_max[1])};
            const float factor[2] = {theirs[0] == to[0] ? 1.f : exp2_fast(to[0] - theirs[0]),
                                     theirs[1] == to[1] ? 1.f : exp2_fast(to[1] - theirs[1])};
#pragma unroll
            for (int i = 0; i < 16; i++) {
                const float2 two = to_float2<T>(packed[i]);
                packed[i] = pack2<T>(two.x * factor[i % 2], two.y * factor[i % 2]);
            }
            g.rescale_to(to);
        }
    }
};

// Issues the product of probabilities and the group's half of a stage's columns, added to the output.
template <int group, int stage, class S, class T>
__device__ __forceinline__ void start_values(group_state<T> &g, const group_operands<S> &at,
                                             const unsigned (&packed)[16])
{
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < 4; step++) {
        const unsigned a[4] = {packed[4 * step], packed[4 * step + 1], packed[4 * step + 2], packed[4 * step + 3]};
        wgmma_n256_mn<T>(g.o, a, at.values(S::stage_at(stage) + group * 4 * cell + step * 2048), g.started || step > 0);
    }
    wgmma_commit_group();
    g.started = true;
}

// Waits for them. The stage's half is free afterwards, but for the piece's last one: the output goes through it.
template <int group, int stage, class S>
__device__ __forceinline__ void finish_values(const block_state<S> &b, bool last)
{
    if (!S::gathers && stage != group)
        fence_proxy_async(); // the probabilities were read as threads do; what overwrites them is TMA
    wgmma_wait_group<0>();
    if (!last)
        mbarrier_arrive(b.empty(stage, group));
}

} // namespace
