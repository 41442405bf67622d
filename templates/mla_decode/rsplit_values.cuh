// The Hopper kernel of mla_decode for 8-bit caches whose groups have roles: what a group of the values does with a tile.
#pragma once

#include "mla_decode/rgmma_fragments.cuh"
#include "mla_decode/rgmma_softmax.cuh"
#include "mla_decode/rsplit_block.cuh"
#include "lib/ptx/wgmma_e4m3.cuh"
#include "lib/ptx/wgmma_narrow.cuh"

namespace {

template <class S> __device__ __forceinline__ void reset_output(group_state<S> &g)
{
#pragma unroll
    for (int m = 0; m < S::output_tiles; m++)
#pragma unroll
        for (int i = 0; i < S::q_rows / 2; i++)
            g.o[m][i] = 0.f;
}

// By the factors of packed rows, those of the thread's first at `factors`. No product may be in flight.
template <class S> __device__ __forceinline__ void rescale_output(group_state<S> &g, unsigned factors)
{
#pragma unroll
    for (int i = 0; i < S::q_rows / 8; i++) {
        const float2 factor = ld_shared_v2_f32(factors + 32 * i);
#pragma unroll
        for (int m = 0; m < S::output_tiles; m++) {
            g.o[m][4 * i] *= factor.x;
            g.o[m][4 * i + 1] *= factor.y;
            g.o[m][4 * i + 2] *= factor.x;
            g.o[m][4 * i + 3] *= factor.y;
        }
    }
}

// Adds V^T P^T of a tile to the output. The first operands are made before ready(), behind which the probabilities are there and
// the output is relative to their M. `empty` hears of it when the tile's bytes are in registers.
template <class S, class Ready>
__device__ __forceinline__ void add_values_when(const tile_addresses<S> &at, unsigned stage, int across,
                                                unsigned probabilities, unsigned empty, group_state<S> &g,
                                                const Ready &ready)
{
    constexpr int steps = S::output_tiles * 4, alive = S::operands_alive, ahead = S::operands_ahead,
                  group = S::operands_group;
    static_assert(steps % group == 0 && alive % group == 0 && ahead % group == 0, "whole groups of products");
    const wgmma_matrix<128> p(uniform(probabilities));
    raw_pair raw[2];
    fragment a[alive];
    at.load_values(stage, 0, across, raw[0]);
    const auto make = [&](int step) {
        if (step % 2 == 0 && step + 2 < steps)
            at.load_values(stage, step / 2 + 1, across, raw[(step / 2 + 1) % 2]);
        convert_values(raw[step / 2 % 2], step % 2, a[step % alive]);
        if (step + 1 == steps && threadIdx.x % 32 == 0)
            mbarrier_arrive(empty);
    };
#pragma unroll
    for (int step = 0; step < ahead; step++)
        make(step);
    ready();
#pragma unroll
    for (int step = 0; step < steps; step += group) {
        wgmma_fence();
#pragma unroll
        for (int k = step; k < step + group; k++)
            wgmma_fp16_narrow(g.o[k / 4], a[k % alive], p.at(k % 4 * 32), true);
        wgmma_commit_group();
        if (step + ahead < steps) {
            wgmma_wait_group<(alive - ahead) / group>();
#pragma unroll
            for (int k = step; k < step + group; k++)
                make(k + ahead);
        }
    }
    wgmma_wait_group<0>();
#pragma unroll
    for (int m = 0; m < S::output_tiles; m++)
        wgmma_fence_registers(g.o[m]);
}

// Rows of the cache beyond the length must not even be multiplied by zero: those of the group's half of the columns.
template <class S> __device__ __forceinline__ void clear_half(unsigned stage, int valid, int group)
{
    const unsigned to = stage + group * 2 * S::cell;
    for (int i = threadIdx.x % 128; i < (tile_rows - valid) * 16; i += 128)
        st_shared_v4_f32(to + i / 8 % 2 * S::cell + (valid + i / 16) * 128 + i % 8 * 16,
                         make_float4(0.f, 0.f, 0.f, 0.f));
    fence_proxy_async(); // TMA writes there next
    barrier_sync(group_barrier + group, 128);
}

} // namespace
