// The portable kernel with roles: a score warp's products of a tile. It has all columns of its rows and keys, and is the only
// warp of its scheduler that multiplies queries: what counts is how few instructions stand between its products, and that each
// fragment is loaded several products ahead.
#pragma once

#include "mla_decode/mma_scores.cuh"
#include "lib/opaque.cuh"
#include "lib/ptx/mma.cuh"
#include "lib/swizzle.cuh"

// Steps of 16 columns: the rotary ones, then the latent ones.
template <class S> constexpr int mla_role_steps = S::rope_steps + S::latent_steps;

// The place of a warp's fragments of queries or of keys. It is the same for every row tile or pair of key tiles, which are
// 16 rows apart. Within 128 bytes the next step is an XOR.
template <class S> struct mla_role_fragments {
    unsigned latent, rotary; // of the lane's matrix of a first step

    // `from` and `rotary_from` are where the latent columns and the rotary ones are.
    __device__ __forceinline__ mla_role_fragments(unsigned from, unsigned rotary_from, unsigned row, unsigned chunk)
        : latent(swizzled<S::q_pitch>(from, row, chunk)),
          rotary(S::rope ? swizzled<S::q_rope_pitch>(rotary_from, row, chunk) : 0)
    {
        static_assert(S::q_pitch == S::pitch && S::q_rope_pitch == S::rope_pitch, "keys lie as queries do");
    }

    // What follows from the addresses is computed where this stands, and not kept in registers from before.
    __device__ __forceinline__ void hide()
    {
        opaque(latent);
        if constexpr (S::rope)
            opaque(rotary);
    }

    template <int count> __device__ __forceinline__ void load(unsigned stage, int step, unsigned (&x)[count][4]) const
    {
        const bool rope = step < S::rope_steps;
        const int its = rope ? step : step - S::rope_steps;
        const unsigned at = stage + ((rope ? rotary : latent) ^ (its % 4 * 32)) + its / 4 * 128;
#pragma unroll
        for (int i = 0; i < count; i++)
            ldmatrix_x4(x[i], at + i * 16 * (rope ? S::rope_pitch : S::pitch));
    }
};

// Matrices: rows 0-7 and 8-15 of columns 0-7, then of 8-15.
template <class S>
__device__ __forceinline__ mla_role_fragments<S> mla_query_fragments(const mla_warp<S> &w, unsigned memory)
{
    return {memory, memory + S::q_rope_at, w.row + w.lane % 16, w.lane / 16};
}

// In a stage: columns 0-7 and 8-15 for key tile 0, then for tile 1.
template <class S> __device__ __forceinline__ mla_role_fragments<S> mla_key_fragments(const mla_warp<S> &w)
{
    return {0, S::rope_at, w.column + w.lane / 16 * 8 + w.lane % 8, w.lane / 8 % 2};
}

// The queries of a piece's first steps, which stay in registers from tile to tile: as many as leave room for fragments
// loaded early. (With one more, ptxas loads them half as early.)
template <class S> struct mla_kept_queries {
    static constexpr int steps = 5;
    unsigned a[steps][S::row_tiles][4];

    __device__ __forceinline__ void load(const mla_role_fragments<S> &queries)
    {
#pragma unroll
        for (int step = 0; step < steps; step++)
            queries.load(0, step, a[step]);
    }
};

template <class S>
__device__ __forceinline__ void mla_role_products(const unsigned (&a)[S::row_tiles][4],
                                                  const unsigned (&b)[S::loads][4], mla_sums<S> &s)
{
#pragma unroll
    for (int n = 0; n < S::column_tiles; n++)
#pragma unroll
        for (int m = 0; m < S::row_tiles; m++)
            mma_m16n8k16<typename S::element>(s[0][m][n], a[m], b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
}

// The warp's scores of the tile in `stage`.
template <class S>
__device__ __forceinline__ void mla_role_scores(mla_role_fragments<S> queries, const mla_kept_queries<S> &kept,
                                                mla_role_fragments<S> keys, unsigned stage, mla_sums<S> &s)
{
    static_assert(S::roles && S::span == 1 && S::chains == 1, "a step has keys of its own, and sums enough");
    constexpr int steps = mla_role_steps<S>;
    unsigned a[2][S::row_tiles][4], b[2][S::loads][4];
#pragma unroll
    for (int i = 0; i < S::row_tiles * S::column_tiles * 4; i++)
        (&s[0][0][0][0])[i] = 0.f;
    queries.hide();
    keys.hide();
    keys.load(stage, 0, b[0]);
#pragma unroll
    for (int step = 0; step < steps; step++) {
        if (step + 1 < steps) {
            keys.load(stage, step + 1, b[(step + 1) % 2]);
            if (step + 1 >= kept.steps)
                queries.load(0, step + 1, a[(step + 1) % 2]);
        }
        if (step < kept.steps)
            mla_role_products<S>(kept.a[step], b[step % 2], s);
        else
            mla_role_products<S>(a[step % 2], b[step % 2], s);
    }
}
