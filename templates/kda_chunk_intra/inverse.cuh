// (I + A)^-1 of a 64 x 64 matrix A, strictly lower triangular: its diagonal blocks of 16 by elimination in fp32, a warp each;
// the others column of blocks by column, in registers, transposed, so that each product's result is the next one's operand:
// X_rc' = -(sum over c <= m < r of X_mc' A_rm') X_rr'.
#pragma once

#include "kda_chunk_intra/tile.cuh"

namespace kda_stage {

// The r-th diagonal block of A stands at `from`, transposed, fp32. Its inverse goes to `lower`, transposed, fp16, and to
// `inverse`. A lane has a column, and the warp's halves have the same.
template <class T> __device__ __forceinline__ void invert_diagonal(unsigned from, unsigned lower, unsigned inverse, int r)
{
    const int lane = threadIdx.x % 32, column = lane % 16;
    float x[16];
#pragma unroll
    for (int i = 0; i < 16; i++)
        x[i] = i == column ? 1.f : 0.f;
#pragma unroll
    for (int l = 0; l < 15; l++)
#pragma unroll
        for (int i = (l + 1) / 4 * 4; i < 16; i += 4) {
            const float4 below = load_shared(from + l * 64 + i * 4);
            x[i] = i > l ? fmaf(-below.x, x[l], x[i]) : x[i];
            x[i + 1] = i + 1 > l ? fmaf(-below.y, x[l], x[i + 1]) : x[i + 1];
            x[i + 2] = i + 2 > l ? fmaf(-below.z, x[l], x[i + 2]) : x[i + 2];
            x[i + 3] = i + 3 > l ? fmaf(-below.w, x[l], x[i + 3]) : x[i + 3];
        }
    if (lane < 16) {
        unsigned word[8];
#pragma unroll
        for (int i = 0; i < 8; i++)
            word[i] = pack2<fp16>(x[2 * i], x[2 * i + 1]);
        store_shared_16(chunk_at(lower, 16 * r + column, 2 * r), word[0], word[1], word[2], word[3]);
        store_shared_16(chunk_at(lower, 16 * r + column, 2 * r + 1), word[4], word[5], word[6], word[7]);
    } else {
#pragma unroll
        for (int i = 0; i < 16; i++)
            store_shared_half(chunk_at(inverse, 16 * r + i, 2 * r + column / 8) + column % 8 * 2, from_float<T>(x[i]));
    }
}

// Blocks below the diagonal of the inverse's c-th column of blocks; `lower` has A's, fp16, and what invert_diagonal() left.
template <class T, int c> __device__ __forceinline__ void invert_column(unsigned lower, unsigned inverse)
{
    const int lane = threadIdx.x % 32;
    unsigned x[4][4]; // X_mc', as the left operand
    load_rows_first(x[c], lower, 16 * c, 2 * c);
#pragma unroll
    for (int r = c + 1; r < 4; r++) {
        float sum[2][4] = {}, y[2][4] = {};
#pragma unroll
        for (int m = c; m < r; m++) {
            unsigned l[4];
            load_chunks_first(l, lower, 16 * r, 2 * m);
            mma_m16n8k16<fp16>(sum[0], x[m], l[0], l[1]);
            mma_m16n8k16<fp16>(sum[1], x[m], l[2], l[3]);
        }
        const unsigned left[4] = {pack2<fp16>(sum[0][0], sum[0][1]), pack2<fp16>(sum[0][2], sum[0][3]),
                                  pack2<fp16>(sum[1][0], sum[1][1]), pack2<fp16>(sum[1][2], sum[1][3])};
        unsigned right[4];
        load_rows_first_trans(right, lower, 16 * r, 2 * r);
        mma_m16n8k16<fp16>(y[0], left, right[0], right[1]);
        mma_m16n8k16<fp16>(y[1], left, right[2], right[3]);
#pragma unroll
        for (int n = 0; n < 2; n++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                x[r][2 * n + h] = pack2<fp16>(-y[n][2 * h], -y[n][2 * h + 1]);
                const int i = 16 * r + 8 * n + lane % 4 * 2, j = 16 * c + lane / 4 + 8 * h;
                store_shared_half(chunk_at(inverse, i, j / 8) + j % 8 * 2, from_float<T>(-y[n][2 * h]));
                store_shared_half(chunk_at(inverse, i + 1, j / 8) + j % 8 * 2, from_float<T>(-y[n][2 * h + 1]));
            }
    }
}

} // namespace kda_stage
