// Products by mma.sync that stages of the backward pass of Kimi Delta Attention share: gradients of scores. A left operand whose
// rows lie as columns is loaded by load_chunks_first_trans() of kda/tile.cuh: chunks chunk and chunk + 1 of 16 rows from `row` on.
#pragma once

#include "kda/tile.cuh"
#include "lib/ptx/ldst.cuh"
#include "lib/ptx/mma.cuh"

namespace kda_stage {

// Elements below the diagonal of a block of the left operand become zero, whatever they are.
__device__ __forceinline__ void upper_half(unsigned (&x)[4])
{
    const int row = threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
    const unsigned mask = row <= column ? 0xffffffffu : row == column + 1 ? 0xffff0000u : 0;
    x[0] &= mask;
    x[1] = 0;
    x[3] &= mask;
}

// The lower triangle of `factor` times left right', both tiles of 64 rows of head_dim elements, to rows of 64 numbers
// in global memory, by eight warps: each has every other block of 16 columns of 16 rows. What is above the diagonal,
// or on it where `strict`, is zero; rows from `valid` on are not stored.
template <class T, int head_dim, bool strict>
__device__ __forceinline__ void store_lower_product(float *to, long long stride, unsigned left, unsigned right,
                                                    int valid, float factor)
{
    const int lane = threadIdx.x % 32, r = threadIdx.x / 64;
#pragma unroll
    for (int block = 0; block < 2; block++) {
        const int s = 2 * block + threadIdx.x / 32 % 2;
        float d[2][4] = {};
        if (s <= r)
#pragma unroll
            for (int step = 0; step < head_dim / 16; step++) {
                unsigned x[4], y[4];
                load_rows_first(x, left, 16 * r, 2 * step);
                load_chunks_first(y, right, 16 * s, 2 * step);
                mma_m16n8k16<T>(d[0], x, y[0], y[1]);
                mma_m16n8k16<T>(d[1], x, y[2], y[3]);
            }
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int n = 0; n < 2; n++) {
                const int i = 16 * r + lane / 4 + 8 * h, j = 16 * s + 8 * n + lane % 4 * 2, last = i - strict;
                if (i < valid)
                    st_global_v2_f32(to + i * stride + j, j <= last ? d[n][2 * h] * factor : 0.f,
                                     j + 1 <= last ? d[n][2 * h + 1] * factor : 0.f);
            }
    }
}

} // namespace kda_stage
