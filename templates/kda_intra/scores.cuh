// kda_intra: scores of rows and columns, 16 x 16 at a time.
#pragma once

#include "kda_intra/block.cuh"

namespace {

// A word of B, of channels d and d + 1, times their middle factors.
__device__ __forceinline__ unsigned times(unsigned word, float2 factor)
{
    const float2 x = to_float2<bf16>(word);
    return pack2<bf16>(x.x * factor.x, x.y * factor.y);
}

__device__ __forceinline__ float2 load_shared_float2(unsigned from)
{
    float2 x;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x.x), "=f"(x.y) : "r"(from) : "memory");
    return x;
}

template <bool scaled>
__device__ __forceinline__ void multiply_scores(const block_work &b, int r, int s, unsigned factors, float (&aq)[2][4], float (&ak)[2][4])
{
#pragma unroll
    for (int step = 0; step < head_dim / 16; step++) {
        unsigned q[4], k[4], columns[4];
        load_chunks_first(columns, b.base + k_columns, 16 * s, 2 * step);
        load_rows_first(q, b.base + q_rows, 16 * r, 2 * step);
        load_rows_first(k, b.base + k_rows, 16 * r, 2 * step);
        if constexpr (scaled) {
            const float2 low = load_shared_float2(factors + step * 64), high = load_shared_float2(factors + step * 64 + 32);
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

// 16 x 16 of both score matrices: rows of block r, columns of block s.
__device__ __forceinline__ void score_block(const gen_kda_intra_params &p, const block_work &b, int r, int s)
{
    const int lane = threadIdx.x % 32, row = 16 * r + lane / 4, column = 16 * s + lane % 4 * 2;
    const int vector = middle_vector(r, s);
    const unsigned factors = b.base + middle + (vector * head_dim + lane % 4 * 2) * 4;
    float aq[2][4] = {}, ak[2][4] = {};
    if (vector >= 0)
        multiply_scores<true>(b, r, s, factors, aq, ak);
    else
        multiply_scores<false>(b, r, s, factors, aq, ak);
    const unsigned diagonal = b.base + sums + r * 1024; // transposed, fp32
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int i = row + 8 * h;
        const float beta = load_shared_float(b.base + betas + i * 4);
#pragma unroll
        for (int n = 0; n < 2; n++) {
            const int j = column + 8 * n;
            const float x = j <= i ? aq[n][2 * h] * p.scale : 0.f, y = j + 1 <= i ? aq[n][2 * h + 1] * p.scale : 0.f;
            store_shared(chunk_at(b.base + scores, i, j / 8) + j % 8 * 2, pack2<element>(x, y));
            const float l = j < i ? ak[n][2 * h] * beta : 0.f, m = j + 1 < i ? ak[n][2 * h + 1] * beta : 0.f;
            if (r == s) {
                store_shared_float(diagonal + ((j % 16) * 16 + i % 16) * 4, l);
                store_shared_float(diagonal + ((j % 16 + 1) * 16 + i % 16) * 4, m);
            } else {
                store_shared(chunk_at(b.base + lower, i, j / 8) + j % 8 * 2, pack2<fp16>(l, m));
            }
        }
    }
}

} // namespace
