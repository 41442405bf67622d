// Sums over rows within a block of 16, for gates without a bound (kda_bwd_intra.cu.in).
#pragma once

#include "kda/elements.cuh"
#include "kda_bwd_intra/layout.cuh"
#include "lib/ptx/ldst.cuh"
#include "lib/ptx/math.cuh"

namespace kda_stage {

// Sums within a block on the diagonal, element by element: an exponent is that of a row and an earlier one.
template <class L, class T> struct diagonal_sums {
    float d_q[2][4], a[2][4], d_column[2][4];

    __device__ __forceinline__ diagonal_sums(const block_work &b, const place &at, const chunk_rows<T> &t, int r)
        : d_q{}, a{}, d_column{}
    {
        const int first = at.row(r, 0) - at.lane / 4, count = min(t.valid - first, 16);
        float g[2][4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float2 x = t.gate(at.row(r, i / 2), at.column(i % 2));
            g[i % 2][i / 2 * 2] = x.x, g[i % 2][i / 2 * 2 + 1] = x.y;
        }
#pragma unroll 1
        for (int j = 0; j < count; j++) {
            const float beta = ld_shared_f32(b.base + L::betas + (first + j) * 4);
#pragma unroll
            for (int n = 0; n < 2; n++) {
                const int column = at.column(n);
                const float2 g_j = t.gate(first + j, column), k = t.load(t.k, first + j, column),
                             q = t.load(t.q, first + j, column);
                add(b, at.lane / 4, first, j, n, g, g_j, q, k, beta);
            }
        }
    }

    // What row j of the block adds to columns of number n of the lane's two rows.
    __device__ __forceinline__ void add(const block_work &b, int own_row, int first, int j, int n,
                                        const float (&g)[2][4], float2 g_j, float2 q, float2 k, float beta)
    {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int i = own_row + 8 * h;
            const int from = j < i ? (first + i) * L::block_row + j : (first + j) * L::block_row + i;
            const float x = ld_shared_f32(b.base + L::diagonals + from * 4);
            const float l = ld_shared_f32(b.base + L::l_diagonals + from * 4);
#pragma unroll
            for (int c = 0; c < 2; c++) {
                const float difference = g[n][2 * h + c] - (c ? g_j.y : g_j.x), q_j = c ? q.y : q.x,
                            k_j = c ? k.y : k.x;
                const float e = exp2_fast(j < i ? difference : j > i ? -difference : 0.f);
                if (j < i) {
                    d_q[n][2 * h + c] = fmaf(x, k_j * e, d_q[n][2 * h + c]);
                    a[n][2 * h + c] = fmaf(l, k_j * e, a[n][2 * h + c]);
                } else if (j > i) {
                    d_column[n][2 * h + c] = fmaf(fmaf(x, q_j, l * (beta * k_j)), e, d_column[n][2 * h + c]);
                }
            }
        }
    }
};

} // namespace kda_stage
