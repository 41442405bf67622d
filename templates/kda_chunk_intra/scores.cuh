// kda_chunk_intra: scores of rows and columns, 16 x 16 at a time, of operands as kda/scores.cuh lays them out.
#pragma once

#include "kda/scores.cuh"
#include "lib/half.cuh"
#include "lib/ptx/ldst.cuh"

namespace kda_stage {

// An element of A, of a diagonal block.
__device__ __forceinline__ void store_diagonal(unsigned diagonals, int i, int j, float x)
{
    st_shared_f32(diagonals + i / 16 * 1024 + (j % 16 * 16 + i % 16) * 4, x);
}

// 16 x 16 of A_qk and of A: rows of block r, columns of block s.
template <class T, int head_dim, bool wide>
__device__ __forceinline__ void score_block(unsigned base, float scale, int r, int s)
{
    using layout = scores_layout<head_dim>;
    const int lane = threadIdx.x % 32, row = 16 * r + lane / 4, column = 16 * s + lane % 4 * 2;
    const int vector = middle_vector(r, s);
    const unsigned factors = base + layout::middle + (vector * head_dim + lane % 4 * 2) * 4;
    const unsigned lower = base + layout::lower, diagonals = base + layout::diagonals;
    float aq[2][4] = {}, ak[2][4] = {};
    if (vector >= 0)
        multiply_scores<head_dim, true, wide>(base, r, s, factors, aq, ak);
    else
        multiply_scores<head_dim, false, wide>(base, r, s, factors, aq, ak);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int i = row + 8 * h;
        const float beta = ld_shared_f32(base + layout::betas + i * 4);
#pragma unroll
        for (int n = 0; n < 2; n++) {
            const int j = column + 8 * n;
            const float x = j <= i ? aq[n][2 * h] * scale : 0.f, y = j + 1 <= i ? aq[n][2 * h + 1] * scale : 0.f;
            st_shared_u32(chunk_at(base + layout::scores, i, j / 8) + j % 8 * 2, pack2<T>(x, y));
            if (r == s) {
                store_diagonal(diagonals, i, j, j < i ? ak[n][2 * h] * beta : 0.f);
                store_diagonal(diagonals, i, j + 1, j + 1 < i ? ak[n][2 * h + 1] * beta : 0.f);
            } else {
                const float l = ak[n][2 * h] * (beta * factor_scale<wide>),
                            m = ak[n][2 * h + 1] * (beta * factor_scale<wide>);
                const unsigned word = pack2<factor<wide>>(l, m);
                st_shared_u32(chunk_at(lower, i, j / 8) + j % 8 * 2, word);
                if constexpr (wide) // in the place of block (s, r)
                    st_shared_u32(chunk_at(lower, i - 16 * (r - s), j / 8 + 2 * (r - s)) + j % 8 * 2,
                                  rest2(word, l, m));
            }
        }
    }
}

// The scores of a chunk but for diagonal blocks of unbounded gates. A nibble names a block; the first four warps take
// diagonal blocks, which they invert next.
template <class T, int head_dim, bool wide, bool safe>
__device__ __forceinline__ void score_blocks(unsigned base, float scale, int warp)
{
    if constexpr (safe) {
        unsigned units = warp < 4 ? 0x10 + 5 * warp : warp == 4 ? 0x184 : warp == 5 ? 0x1c9 : warp == 6 ? 0x1e : 0x1d;
#pragma unroll 1
        for (; units > 1; units >>= 4)
            score_block<T, head_dim, wide>(base, scale, units / 4 % 4, units % 4);
    } else if (warp < 6) { // the other blocks' rows and columns, a nibble a warp
        const unsigned unit = 0xde98c4 >> 4 * warp;
        score_block<T, head_dim, wide>(base, scale, unit / 4 % 4, unit % 4);
    }
}

} // namespace kda_stage
