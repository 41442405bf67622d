// The portable kernel with roles: a score warp's products of a tile. It has all columns of its rows and keys, and is the only
// warp of its scheduler that multiplies queries: what counts is how few instructions stand between its products, and that each
// fragment is asked for several products ahead.
#pragma once

#include "mla_decode/mma_scores.cuh"

// Steps of 16 columns: the rotary ones, then the latent ones.
template <class S> constexpr int mla_role_steps = S::rope_steps + S::latent_steps;

template <class S>
__device__ __forceinline__ void mla_role_queries(const mla_score_fragments<S> &f, int step, unsigned (&a)[S::row_tiles][4])
{
    if (step < S::rope_steps)
        f.load_rotary_queries(step, a);
    else
        f.load_queries(step - S::rope_steps, a);
}

template <class S>
__device__ __forceinline__ void mla_role_keys(const mla_score_fragments<S> &f, int step, unsigned (&b)[S::loads][4])
{
    if (step < S::rope_steps)
        f.load_rotary_keys(step, b);
    else
        f.load_keys(step - S::rope_steps, b);
}

// The queries of a piece's first steps, which stay in registers from tile to tile: as many as leave room
// for fragments asked for early, as the SASS of either width has it.
template <class S> struct mla_kept_queries {
    static constexpr int steps = S::rope ? 6 : 3;
    unsigned a[steps][S::row_tiles][4];

    __device__ __forceinline__ void load(const mla_score_fragments<S> &f)
    {
#pragma unroll
        for (int step = 0; step < steps; step++)
            mla_role_queries<S>(f, step, a[step]);
    }
};

template <class S>
__device__ __forceinline__ void mla_role_products(const unsigned (&a)[S::row_tiles][4], const unsigned (&b)[S::loads][4], mla_sums<S> &s)
{
#pragma unroll
    for (int n = 0; n < S::column_tiles; n++)
#pragma unroll
        for (int m = 0; m < S::row_tiles; m++)
            mma_m16n8k16<typename S::element>(s[0][m][n], a[m], b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
}

// The warp's scores of the tile that `f` is at.
template <class S>
__device__ __forceinline__ void mla_role_scores(const mla_score_fragments<S> &f, const mla_kept_queries<S> &kept, mla_sums<S> &s)
{
    static_assert(S::roles && S::span == 1 && S::chains == 1, "a step has keys of its own, and sums enough");
    constexpr int steps = mla_role_steps<S>;
    unsigned a[2][S::row_tiles][4], b[2][S::loads][4];
#pragma unroll
    for (int i = 0; i < S::row_tiles * S::column_tiles * 4; i++)
        (&s[0][0][0][0])[i] = 0.f;
    mla_role_keys<S>(f, 0, b[0]);
#pragma unroll
    for (int step = 0; step < steps; step++) {
        if (step + 1 < steps) {
            mla_role_keys<S>(f, step + 1, b[(step + 1) % 2]);
            if (step + 1 >= kept.steps)
                mla_role_queries<S>(f, step + 1, a[(step + 1) % 2]);
        }
        if (step < kept.steps)
            mla_role_products<S>(kept.a[step], b[step % 2], s);
        else
            mla_role_products<S>(a[step % 2], b[step % 2], s);
    }
}
