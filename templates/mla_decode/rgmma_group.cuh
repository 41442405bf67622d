// The Hopper kernel of mla_decode for 8-bit caches: products of a tile. A batch of fragments is converted while the one before
// it is multiplied.
#pragma once

#include "mla_decode/rgmma_fragments.cuh"
#include "mla_decode/rgmma_softmax.cuh"
#include "lib/opaque.cuh"
#include "lib/ptx/wgmma_narrow.cuh"

namespace {

// S^T of a tile: keys are rows, packed rows are columns. The RoPE columns come first, because their sums are in units of
// another scale.
template <class S>
__device__ __forceinline__ void compute_scores(const tile_addresses<S> &at, unsigned stage, unsigned queries,
                                               float kpe_factor, float (&s)[S::q_rows / 2])
{
    constexpr int pairs = S::batch_pairs, all_pairs = S::columns / 32, batches = all_pairs / pairs;
    constexpr int rope_pairs = all_pairs - latent / 32;
    const unsigned long long q = wgmma_descriptor(uniform(queries), 0, 1024);
    raw_pair raw[pairs];
    fragment_pair a[S::batches_alive][pairs];
#pragma unroll
    for (int k = 0; k < pairs; k++)
        at.load_keys(stage, (k + latent / 32) % all_pairs, raw[k]);
#pragma unroll
    for (int n = 0; n < batches; n++) {
        fragment_pair(&operands)[pairs] = a[n % S::batches_alive];
#pragma unroll
        for (int k = 0; k < pairs; k++)
            convert_keys(raw[k], operands[k]);
#pragma unroll
        for (int k = 0; k < pairs; k++)
            if (n + 1 < batches)
                at.load_keys(stage, ((n + 1) * pairs + k + latent / 32) % all_pairs, raw[k]);
        if (rope_pairs > 0 && n * pairs == rope_pairs) {
            wgmma_wait_group<0>();
            wgmma_fence_registers(s);
#pragma unroll
            for (int i = 0; i < S::q_rows / 2; i++)
                s[i] *= kpe_factor;
        }
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < 2 * pairs; step++) {
            const int column = (n * pairs * 32 + step * 16 + latent) % S::columns;
            wgmma_fp16_narrow(s, operands[step / 2][step % 2], q + ((column / 64 * S::q_cell + column % 64 * 2) >> 4),
                              n + step > 0);
        }
        wgmma_commit_group();
        wgmma_wait_group<S::batches_alive - 1>();
    }
    wgmma_wait_group<0>();
    wgmma_fence_registers(s);
}

// The same with queries in e4m3: the keys' bytes are the left operands as they lie.
template <class S>
__device__ __forceinline__ void compute_scores_of_bytes(const tile_addresses<S> &at, unsigned stage, unsigned queries,
                                                        float kpe_factor, float (&s)[S::q_rows / 2])
{
    constexpr int steps = 2 * S::batch_pairs, all = S::columns / 32, rope_steps = all - latent / 32;
    const unsigned long long q = wgmma_descriptor(uniform(queries), 0, 1024);
    raw_pair a[2][steps];
#pragma unroll
    for (int n = 0; n < (all + steps - 1) / steps; n++) {
#pragma unroll
        for (int k = 0; k < steps; k++)
            if (n * steps + k < all)
                at.load_keys(stage, (n * steps + k + latent / 32) % all, a[n % 2][k]);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < steps; k++) {
            if (n * steps + k >= all)
                continue;
            if (rope_steps > 0 && n * steps + k == rope_steps) {
                wgmma_commit_group();
                wgmma_wait_group<0>();
                wgmma_fence_registers(s);
#pragma unroll
                for (int i = 0; i < S::q_rows / 2; i++)
                    s[i] *= kpe_factor;
                wgmma_fence();
            }
            const int column = ((n * steps + k) * 32 + latent) % S::columns;
            wgmma_e4m3_narrow(s, a[n % 2][k], q + ((column / 128 * S::q_cell + column % 128) >> 4), n + k > 0);
        }
        wgmma_commit_group();
        wgmma_wait_group<1>();
    }
    wgmma_wait_group<0>();
    wgmma_fence_registers(s);
}

// Adds V^T P^T to the output, and gives the stage back as soon as its bytes are in registers.
template <class S>
__device__ __forceinline__ void add_values(const tile_addresses<S> &at, unsigned stage, int across,
                                           unsigned probabilities, unsigned empty, group_state<S> &g)
{
    constexpr int pairs = S::batch_pairs, batches = S::output_tiles * 2 / pairs;
    const unsigned long long p = wgmma_descriptor(uniform(probabilities), 0, 1024);
    raw_pair raw[pairs];
    fragment_pair a[S::batches_alive][pairs];
#pragma unroll
    for (int k = 0; k < pairs; k++)
        at.load_values(stage, k, across, raw[k]);
#pragma unroll
    for (int n = 0; n < batches; n++) {
        fragment_pair(&operands)[pairs] = a[n % S::batches_alive];
#pragma unroll
        for (int k = 0; k < pairs; k++)
            convert_values(raw[k], operands[k]);
#pragma unroll
        for (int k = 0; k < pairs; k++)
            if (n + 1 < batches)
                at.load_values(stage, (n + 1) * pairs + k, across, raw[k]);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < 2 * pairs; step++) {
            const int at_step = n * pairs * 2 + step; // of four for each tile
            wgmma_fp16_narrow(g.o[at_step / 4], operands[step / 2][step % 2], p + (at_step % 4 * 32 >> 4), true);
        }
        wgmma_commit_group();
        if (n + 1 < batches)
            wgmma_wait_group<S::batches_alive - 1>();
    }
    mbarrier_arrive(empty);
    wgmma_wait_group<0>();
#pragma unroll
    for (int m = 0; m < S::output_tiles; m++)
        wgmma_fence_registers(g.o[m]);
}

// Rows of the cache beyond the length must not even be multiplied by zero. Of the group's half of a shared tile, or of all of
// its own.
template <class S> __device__ __forceinline__ void clear_rows(unsigned stage, int valid, int group)
{
    constexpr int cells = S::shared_tiles ? 2 : 4;
    const unsigned to = stage + (S::shared_tiles ? group * 2 * S::cell : 0);
    for (int i = threadIdx.x % 128; i < (tile_rows - valid) * cells * 8; i += 128)
        st_shared_v4_f32(to + i / 8 % cells * S::cell + (valid + i / (8 * cells)) * 128 + i % 8 * 16,
                         make_float4(0.f, 0.f, 0.f, 0.f));
    fence_proxy_async(); // TMA writes there next
    barrier_sync(group_barrier + group, 128);
}

} // namespace
