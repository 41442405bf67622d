// kda_intra: scores of rows and columns, 16 x 16 at a time.
#pragma once

#include "kda_intra/block.cuh"
#include "lib/half.cuh"
#include "lib/ptx/ldst.cuh"
#include "lib/ptx/mma.cuh"

namespace {

// A word of B, of channels d and d + 1, times their middle factors.
__device__ __forceinline__ unsigned times(unsigned word, float2 factor)
{
    const float2 x = to_float2<bf16>(word);
    return pack2<bf16>(x.x * factor.x, x.y * factor.y);
}

// What is beyond 2^58 of factors comes off them.
__device__ __forceinline__ float2 beyond(float2 &factor)
{
    const float2 rest =
        make_float2(factor.x > 0x1p58f ? factor.x * 0x1p-58f : 1.f, factor.y > 0x1p58f ? factor.y * 0x1p-58f : 1.f);
    factor = make_float2(fminf(factor.x, 0x1p58f), fminf(factor.y, 0x1p58f));
    return rest;
}

// `wide`: keys may be as great as bf16 is, so what is greater than 2^58 of a middle factor multiplies the rows instead.
template <bool scaled, bool wide>
__device__ __forceinline__ void multiply_scores(const block_work &b, int r, int s, unsigned factors, float (&aq)[2][4],
                                                float (&ak)[2][4])
{
#pragma unroll
    for (int step = 0; step < head_dim / 16; step++) {
        unsigned q[4], k[4], columns[4];
        load_chunks_first(columns, b.base + k_columns, 16 * s, 2 * step);
        load_rows_first(q, b.base + q_rows, 16 * r, 2 * step);
        load_rows_first(k, b.base + k_rows, 16 * r, 2 * step);
        if constexpr (scaled) {
            float2 low = ld_shared_v2_f32(factors + step * 64), high = ld_shared_v2_f32(factors + step * 64 + 32);
            if (wide && __any_sync(0xffffffffu, fmaxf(fmaxf(low.x, low.y), fmaxf(high.x, high.y)) > 0x1p58f)) {
                const float2 low_rows = beyond(low), high_rows = beyond(high);
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    q[i] = times(q[i], i < 2 ? low_rows : high_rows);
                    k[i] = times(k[i], i < 2 ? low_rows : high_rows);
                }
            }
            columns[0] = times(columns[0], low);
            columns[1] = times(columns[1], high);
            columns[2] = times(columns[2], low);
            columns[3] = times(columns[3], high);
        }
#pragma unroll
        for (int n = 0; n < 2; n++) {
            mma_m16n8k16<bf16>(aq[n], q, columns[2 * n], columns[2 * n + 1]);
            mma_m16n8k16<bf16>(ak[n], k, columns[2 * n], columns[2 * n + 1]);
        }
    }
}

// 16 x 16 of both score matrices: rows of block r, columns of block s. `wide`: kda_intra.cu.in.
template <bool wide>
__device__ __forceinline__ void score_block(const gen_kda_intra_params &p, const block_work &b, int r, int s)
{
    const int lane = threadIdx.x % 32, row = 16 * r + lane / 4, column = 16 * s + lane % 4 * 2;
    const int vector = middle_vector(r, s);
    const unsigned factors = b.base + middle + (vector * head_dim + lane % 4 * 2) * 4;
    float aq[2][4] = {}, ak[2][4] = {};
    if (vector >= 0)
        multiply_scores<true, wide>(b, r, s, factors, aq, ak);
    else
        multiply_scores<false, wide>(b, r, s, factors, aq, ak);
    const unsigned diagonal = b.base + sums + r * 1024; // transposed, fp32
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int i = row + 8 * h;
        const float beta = ld_shared_f32(b.base + betas + i * 4);
#pragma unroll
        for (int n = 0; n < 2; n++) {
            const int j = column + 8 * n;
            const float x = j <= i ? aq[n][2 * h] * p.scale : 0.f, y = j + 1 <= i ? aq[n][2 * h + 1] * p.scale : 0.f;
            st_shared_u32(chunk_at(b.base + scores, i, j / 8) + j % 8 * 2, pack2<element>(x, y));
            if (r == s) {
                st_shared_f32(diagonal + ((j % 16) * 16 + i % 16) * 4, j < i ? ak[n][2 * h] * beta : 0.f);
                st_shared_f32(diagonal + ((j % 16 + 1) * 16 + i % 16) * 4, j + 1 < i ? ak[n][2 * h + 1] * beta : 0.f);
            } else {
                const float l = ak[n][2 * h] * (beta * factor_scale<wide>),
                            m = ak[n][2 * h + 1] * (beta * factor_scale<wide>);
                const unsigned word = pack2<factor<wide>>(l, m);
                st_shared_u32(chunk_at(b.base + lower, i, j / 8) + j % 8 * 2, word);
                if constexpr (wide) // in the place of block (s, r)
                    st_shared_u32(chunk_at(b.base + lower, i - 16 * (r - s), j / 8 + 2 * (r - s)) + j % 8 * 2,
                                  rest2(word, l, m));
            }
        }
    }
}

} // namespace
