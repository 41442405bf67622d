// The Hopper kernel of mla_decode for 8-bit caches whose groups have roles: scores of a tile, S^T = K Q^T. They are computed in two
// parts, the first under the exponentials of the tile before.
//
// Bytes of keys and queries are operands as they lie, and nothing waits for a thread. Hopper's sums of 8-bit products lose bits
// as they grow, so parts are added in fp32.
#pragma once

#include "mla_decode/rsplit_softmax.cuh"
#include "lib/ptx/wgmma_e4m3.cuh"

namespace {

// Sums of products are in `s`; the RoPE columns' are in units of another scale.
template <int n> __device__ __forceinline__ void scale_sums(float (&s)[n], float factor)
{
#pragma unroll
    for (int i = 0; i < n; i++)
        s[i] *= factor;
}

template <int n> __device__ __forceinline__ void add_sums(float (&s)[n], const float (&t)[n])
{
#pragma unroll
    for (int i = 0; i < n; i++)
        s[i] += t[i];
}

// Latent columns 32 `first` to 32 `last`, one group of products.
template <class S, int first, int last>
__device__ __forceinline__ void start_latent_bytes(unsigned stage, unsigned queries, float (&s)[S::q_rows / 2],
                                                   bool more)
{
    const wgmma_matrix<128> k(uniform(stage)), q(uniform(queries));
    wgmma_fence();
#pragma unroll
    for (int step = first; step < last; step++)
        wgmma_e4m3_n64(s, k.at(step / 4 * S::cell + step % 4 * 32), q.at(step / 4 * S::q_cell + step % 4 * 32),
                       more || step > first);
    wgmma_commit_group();
}

template <class S>
__device__ __forceinline__ void start_rope_bytes(unsigned stage, unsigned queries, float (&s)[S::q_rows / 2])
{
    const wgmma_matrix<64> k(uniform(stage) + S::rope_at);
    const wgmma_matrix<128> q(uniform(queries) + 4 * S::q_cell);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < 2; step++)
        wgmma_e4m3_n64(s, k.at(step * 32), q.at(step * 32), step > 0);
    wgmma_commit_group();
}

// Three sums over six of 18 steps each (docs/numerics.md); the first two are computed beside the softmax of the
// tile before.
template <class S, class Beside>
__device__ __forceinline__ void multiply_bytes(unsigned stage, unsigned queries, float kpe_factor,
                                               float (&s)[S::q_rows / 2], Beside &beside)
{
    constexpr int first = S::rope ? 4 : 6,
                  second = S::rope ? 10 : 11; // steps of 32 latent columns before which a sum ends
    float t[S::q_rows / 2], u[S::q_rows / 2];
    if constexpr (S::rope)
        start_rope_bytes<S>(stage, queries, t);
    start_latent_bytes<S, first, second>(stage, queries, u, false);
    beside.template run<0>();
    beside.template run<1>();
    if constexpr (S::rope) {
        wgmma_wait_group<1>();
        wgmma_fence_registers(t);
        if (kpe_factor != 1.f) // of most models it is
            scale_sums(t, kpe_factor);
    }
    start_latent_bytes<S, 0, first>(stage, queries, t, S::rope);
    beside.template run<2>();
    beside.template run<3>();
    beside.template run<4>();
    start_latent_bytes<S, second, 16>(stage, queries, s, false);
    wgmma_wait_group<1>();
    wgmma_fence_registers(t);
    wgmma_fence_registers(u);
    add_sums(t, u);
    wgmma_wait_group<0>();
    wgmma_fence_registers(s);
    add_sums(s, t);
}

// S^T of a tile: keys are rows, packed rows are columns. `beside` has the scores of the tile before, which lie in `s`, and what
// it runs, in five parts, is over before `s` is written. `empty` hears of it when the tile's keys are read.
template <class S, class Beside>
__device__ __forceinline__ void compute_scores_beside(unsigned stage, unsigned queries, float kpe_factor,
                                                      unsigned empty, float (&s)[S::q_rows / 2], Beside &beside)
{
    multiply_bytes<S>(stage, queries, kpe_factor, s, beside);
    if (threadIdx.x % 32 == 0)
        mbarrier_arrive(empty);
}

} // namespace
