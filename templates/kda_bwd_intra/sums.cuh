// Sums over the rows of a chunk that go from anchor to anchor (kda_bwd_intra.cu.in), 16 columns of 16 rows by a warp.
#pragma once

#include "kda/elements.cuh"
#include "kda/gradients.cuh"
#include "kda_bwd_intra/layout.cuh"
#include "lib/half.cuh"
#include "lib/ptx/math.cuh"
#include "lib/ptx/mma.cuh"

namespace kda_stage {

// Of a lane's columns, what takes a sum from an anchor to the one behind it.
template <class L> struct moves {
    float factor[3][2][2];

    __device__ __forceinline__ moves(const block_work &b, const place &at)
    {
#pragma unroll
        for (int s = 0; s < 3; s++)
#pragma unroll
            for (int n = 0; n < 2; n++) {
                const float2 x = L::anchor_at(b, s + !L::safe, at.column(n)),
                             y = L::anchor_at(b, s + !L::safe + 1, at.column(n));
                factor[s][n][0] = exp2_fast(y.x - x.x), factor[s][n][1] = exp2_fast(y.y - x.y);
            }
    }

    __device__ __forceinline__ void apply(int s, float (&d)[2][4]) const
    {
#pragma unroll
        for (int n = 0; n < 2; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                d[n][i] *= factor[s][n][i % 2];
    }
};

__device__ __forceinline__ void multiply(float (&d)[2][4], const unsigned (&left)[4], const unsigned (&right)[4])
{
    mma_m16n8k16<bf16>(d[0], left, right[0], right[1]);
    mma_m16n8k16<bf16>(d[1], left, right[2], right[3]);
}

// Sums of block r, relative to its anchors.
template <class L> struct sums {
    float d_q[2][4], a[2][4], d_column[2][4];

    __device__ __forceinline__ sums(const block_work &b, const place &at, const moves<L> &m, int r)
        : d_q{}, a{}, d_column{}
    {
        unsigned left[4], right[4];
#pragma unroll
        for (int s = 0; s < 4; s++)
            if (s <= r - !L::safe) {
                if (s) {
                    m.apply(s - 1, d_q);
                    m.apply(s - 1, a);
                }
                load_rows_first_trans(right, b.base + L::k_columns, 16 * s, 2 * at.group);
                load_rows_first(left, b.base + L::d_qk, 16 * r, 2 * s);
                multiply(d_q, left, right);
                load_rows_first(left, b.base + L::d_kk, 16 * r, 2 * s);
                multiply(a, left, right);
            }
#pragma unroll
        for (int s = 3; s >= 0; s--)
            if (s >= r + !L::safe) {
                if (s < 3)
                    m.apply(max(s - !L::safe, 0), d_column);
                load_rows_first_trans(right, b.base + L::q_rows, 16 * s, 2 * at.group);
                load_chunks_first_trans(left, b.base + L::d_qk, 16 * s, 2 * r);
                multiply(d_column, left, right);
                load_rows_first_trans(right, b.base + L::b_rows, 16 * s, 2 * at.group);
                load_chunks_first_trans(left, b.base + L::d_kk, 16 * s, 2 * r);
                multiply(d_column, left, right);
            }
    }
};

} // namespace kda_stage
