// kda_chunk_intra: the inverse by kda/inverse.cuh, stored as A_kk.
#pragma once

#include "kda/inverse.cuh"
#include "lib/half.cuh"
#include "lib/ptx/ldst.cuh"
#include "lib/ptx/mma.cuh"

namespace kda_stage {

// Adds what rounding to T takes from an entry of the inverse's column to the entry two rows below (kda_intra/inverse.cuh,
// pack_column(), says why).
template <class T> __device__ __forceinline__ void carry_rounding(float (&x)[16])
{
#pragma unroll
    for (int i = 0; i < 14; i++)
        x[i + 2] += x[i] - to_float<T>(from_float<T>(x[i]));
}

// The r-th diagonal block of A stands at `from`, transposed, fp32. Its inverse goes to `lower`, transposed, as a factor, and to
// `inverse`. A lane has a column, and the warp's halves have the same.
template <class T, bool wide>
__device__ __forceinline__ void invert_diagonal(unsigned from, unsigned lower, unsigned inverse, int r)
{
    const int lane = threadIdx.x % 32, column = lane % 16;
    float x[16];
#pragma unroll
    for (int i = 0; i < 16; i++)
        x[i] = i == column ? (lane < 16 ? factor_scale<wide> : 1.f) : 0.f;
    eliminate(from, x);
    if constexpr (wide)
        __syncwarp(); // no lane writes rests before all have read
    if (lane < 16) {
        unsigned word[8];
#pragma unroll
        for (int i = 0; i < 8; i++)
            word[i] = pack2<factor<wide>>(x[2 * i], x[2 * i + 1]);
        st_shared_v4_u32(chunk_at(lower, 16 * r + column, 2 * r), word[0], word[1], word[2], word[3]);
        st_shared_v4_u32(chunk_at(lower, 16 * r + column, 2 * r + 1), word[4], word[5], word[6], word[7]);
        if constexpr (wide) {
#pragma unroll
            for (int i = 0; i < 8; i++)
                word[i] = rest2(word[i], x[2 * i], x[2 * i + 1]);
            st_shared_v4_u32(rest_at(from, column, 0), word[0], word[1], word[2], word[3]);
            st_shared_v4_u32(rest_at(from, column, 1), word[4], word[5], word[6], word[7]);
        }
    } else {
        if constexpr (T::is_bf16 && !wide)
            carry_rounding<T>(x);
#pragma unroll
        for (int i = 0; i < 16; i++)
            st_shared_u16(chunk_at(inverse, 16 * r + i, 2 * r + column / 8) + column % 8 * 2, from_float<T>(x[i]));
    }
}

// Blocks below the diagonal of the inverse's c-th column of blocks, to `inverse`.
template <class T, bool wide, int c>
__device__ __forceinline__ void invert_column(unsigned lower, unsigned inverse, unsigned diagonals)
{
    const int lane = threadIdx.x % 32;
    constexpr float scale = -1.f / (factor_scale<wide> * factor_scale<wide>);
    unsigned x[4][4], x_rest[4][4]; // X_rc', as the left operand
    load_rows_first(x[c], lower, 16 * c, 2 * c);
    if constexpr (wide)
        ldmatrix_x4(x_rest[c], rest_at(diagonals + c * 1024, lane % 16, lane / 16));
#pragma unroll
    for (int r = c + 1; r < 4; r++) {
        float y[2][4] = {};
        invert_block<wide>(lower, diagonals, r, c, x, x_rest, y);
#pragma unroll
        for (int n = 0; n < 2; n++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const int i = 16 * r + 8 * n + lane % 4 * 2, j = 16 * c + lane / 4 + 8 * h;
                st_shared_u16(chunk_at(inverse, i, j / 8) + j % 8 * 2, from_float<T>(y[n][2 * h] * scale));
                st_shared_u16(chunk_at(inverse, i + 1, j / 8) + j % 8 * 2, from_float<T>(y[n][2 * h + 1] * scale));
            }
    }
}

} // namespace kda_stage
