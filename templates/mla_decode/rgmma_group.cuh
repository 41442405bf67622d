// The Hopper kernel of mla_decode for 8-bit caches: products of a tile. A batch of fragments is converted while the one before
// it is multiplied.
#pragma once

#include "mla_decode/rgmma_fragments.cuh"
#include "mla_decode/rgmma_softmax.cuh"
#include "lib/opaque.cuh"
#include "lib/ptx/wgmma_narrow.cuh"

namespace {

// A chain of products, whose left operands are made in registers: load(pair, raw) brings the bytes of two steps,
// convert(step, raw, a) makes one's operand, multiply(step, a) issues the product, converted() is called when all bytes are
// read. Operands are made `ahead` steps before they are multiplied, `alive` of them exist, and `group` products are waited for
// together.
template <class S, int steps, class Load, class Convert, class Multiply, class Converted>
__device__ __forceinline__ void multiply_chain(const Load &load, const Convert &convert, const Multiply &multiply,
                                               const Converted &converted)
{
    constexpr int alive = S::operands_alive, ahead = S::operands_ahead, group = S::operands_group;
    static_assert(steps % group == 0 && alive % group == 0 && ahead % group == 0, "whole groups of products");
    raw_pair raw[2];
    fragment a[alive];
    load(0, raw[0]);
    const auto make = [&](int step) {
        if (step % 2 == 0 && step + 2 < steps)
            load(step / 2 + 1, raw[(step / 2 + 1) % 2]);
        convert(step, raw[step / 2 % 2], a[step % alive]);
        if (step + 1 == steps)
            converted();
    };
#pragma unroll
    for (int step = 0; step < ahead; step++)
        make(step);
#pragma unroll
    for (int step = 0; step < steps; step += group) {
#pragma unroll
        for (int k = 0; k < group; k++)
            multiply(step + k, a[(step + k) % alive]);
        wgmma_commit_group();
        if (step + ahead < steps) {
            wgmma_wait_group<(alive - ahead) / group>();
#pragma unroll
            for (int k = 0; k < group; k++)
                make(step + k + ahead);
        }
    }
    wgmma_wait_group<0>();
}

// The same where bytes are operands.
template <class S, int steps, class Load, class Multiply>
__device__ __forceinline__ void multiply_chain_of_bytes(const Load &load, const Multiply &multiply)
{
    constexpr int alive = 4, ahead = 2;
    fragment a[alive];
#pragma unroll
    for (int step = 0; step < ahead; step++)
        load(step, a[step]);
#pragma unroll
    for (int step = 0; step < steps; step++) {
        multiply(step, a[step % alive]);
        wgmma_commit_group();
        if (step + ahead < steps) {
            wgmma_wait_group<alive - ahead>();
            load(step + ahead, a[(step + ahead) % alive]);
        }
    }
    wgmma_wait_group<0>();
}

// Scores of queries in e4m3 as three sums of 192 columns, 128 the last one without RoPE, added in fp32: Hopper's sums of 8-bit
// products lose bits as they grow. The RoPE columns come first.
template <class S>
__device__ __forceinline__ void compute_summed_scores(const tile_addresses<S> &at, unsigned stage, unsigned queries,
                                                      float kpe_factor, float (&s)[S::q_rows / 2])
{
    constexpr int steps = S::columns / 32, rope_steps = steps - latent / 32, each = 6;
    const unsigned long long q = wgmma_descriptor(uniform(queries), 0, 1024);
    float t[S::q_rows / 2];
    const auto add = [&](bool first) {
        wgmma_wait_group<0>();
        wgmma_fence_registers(t);
#pragma unroll
        for (int i = 0; i < S::q_rows / 2; i++)
            s[i] = first ? t[i] : s[i] + t[i];
    };
    const auto multiply = [&](int step, const fragment &a) {
        if (rope_steps > 0 && step == rope_steps) {
            wgmma_wait_group<0>();
            wgmma_fence_registers(t);
#pragma unroll
            for (int i = 0; i < S::q_rows / 2; i++)
                t[i] *= kpe_factor;
        }
        if (step > 0 && step % each == 0)
            add(step == each);
        wgmma_fence();
        const int column = (step * 32 + latent) % S::columns;
        wgmma_e4m3_narrow(t, a, q + ((column / 128 * S::q_cell + column % 128) >> 4), step % each > 0);
    };
    multiply_chain_of_bytes<S, steps>(
        [&](int pair, raw_pair &raw) { at.load_keys(stage, (pair + latent / 32) % steps, raw); }, multiply);
    add(false);
}

// S^T of a tile: keys are rows, packed rows are columns. The RoPE columns come first, because their sums are in units of
// another scale.
template <class S>
__device__ __forceinline__ void compute_scores(const tile_addresses<S> &at, unsigned stage, unsigned queries,
                                               float kpe_factor, float (&s)[S::q_rows / 2])
{
    // Steps are 16 columns deep, or 32 with queries in e4m3: then the keys' bytes are operands as they lie.
    constexpr int depth = S::byte_queries ? 32 : 16, steps = S::columns / depth, rope_steps = steps - latent / depth;
    const unsigned long long q = wgmma_descriptor(uniform(queries), 0, 1024);
    const auto multiply = [&](int step, const fragment &a) {
        if (rope_steps > 0 && step == rope_steps) {
            wgmma_wait_group<0>();
            wgmma_fence_registers(s);
#pragma unroll
            for (int i = 0; i < S::q_rows / 2; i++)
                s[i] *= kpe_factor;
        }
        if (S::byte_queries || step % S::operands_group == 0)
            wgmma_fence();
        const int column = (step * depth + latent) % S::columns;
        const unsigned offset =
            column / S::q_cell_columns * S::q_cell + column % S::q_cell_columns * (128 / S::q_cell_columns);
        if constexpr (S::byte_queries)
            wgmma_e4m3_narrow(s, a, q + (offset >> 4), step > 0);
        else
            wgmma_fp16_narrow(s, a, q + (offset >> 4), step > 0);
    };
    const auto load = [&](int pair, raw_pair &raw) {
        at.load_keys(stage, (pair + latent / 32) % (S::columns / 32), raw);
    };
    if constexpr (S::byte_queries)
        multiply_chain_of_bytes<S, steps>(load, multiply);
    else
        multiply_chain<S, steps>(
            load, [](int step, const raw_pair &raw, fragment &a) { convert_keys(raw, step % 2, a); }, multiply, [] {});
    wgmma_fence_registers(s);
}

// Adds V^T P^T to the output, and gives the stage back as soon as its bytes are in registers.
template <class S>
__device__ __forceinline__ void add_values(const tile_addresses<S> &at, unsigned stage, int across,
                                           unsigned probabilities, unsigned empty, group_state<S> &g)
{
    const unsigned long long p = wgmma_descriptor(uniform(probabilities), 0, 1024);
    multiply_chain<S, S::output_tiles * 4>(
        [&](int pair, raw_pair &raw) { at.load_values(stage, pair, across, raw); },
        [](int step, const raw_pair &raw, fragment &a) { convert_values(raw, step % 2, a); },
        [&](int step, const fragment &a) {
            if (step % S::operands_group == 0)
                wgmma_fence();
            wgmma_fp16_narrow(g.o[step / 4], a, p + (step % 4 * 32 >> 4), true);
        },
        [&] { mbarrier_arrive(empty); });
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
