// (I + A)^-1 of a 64 x 64 matrix A, strictly lower triangular: its diagonal blocks of 16 by elimination in fp32, a warp each;
// the others column of blocks by column, in registers, transposed, so that each product's result is the next one's operand:
// X_rc' = -(sum over c <= m < r of X_mc' A_rm') X_rr'.
#pragma once

#include "kda_chunk_intra/tile.cuh"
#include "kda_intra/limits.cuh"
#include "lib/half.cuh"
#include "lib/ptx/ldst.cuh"
#include "lib/ptx/mma.cuh"

namespace kda_stage {

// What A and X are multiplied as: fp16 is the more exact; bf16, with the rest in another bf16, has the range of fp32 (wide).
template <bool wide> struct factor_of {
    using type = fp16;
};
template <> struct factor_of<true> {
    using type = bf16;
};
template <bool wide> using factor = typename factor_of<wide>::type;
template <bool wide> constexpr float factor_scale = wide ? 1.f : narrow_scale;

// What two floats' first parts leave of them.
__device__ __forceinline__ unsigned rest2(unsigned first, float lo, float hi)
{
    const float2 both = to_float2<bf16>(first);
    return pack2<bf16>(lo - both.x, hi - both.y);
}

// Where it is wide, rests of a diagonal block's inverse lie where the block was, at `from`: rows of 32 bytes.
__device__ __forceinline__ unsigned rest_at(unsigned from, int row, int chunk)
{
    return from + row * 32 + chunk * 16;
}

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
#pragma unroll
    for (int l = 0; l < 15; l++)
#pragma unroll
        for (int i = (l + 1) / 4 * 4; i < 16; i += 4) {
            const float4 below = ld_shared_v4_f32(from + l * 64 + i * 4);
            x[i] = i > l ? fmaf(-below.x, x[l], x[i]) : x[i];
            x[i + 1] = i + 1 > l ? fmaf(-below.y, x[l], x[i + 1]) : x[i + 1];
            x[i + 2] = i + 2 > l ? fmaf(-below.z, x[l], x[i + 2]) : x[i + 2];
            x[i + 3] = i + 3 > l ? fmaf(-below.w, x[l], x[i + 3]) : x[i + 3];
        }
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

// 16 x 16 of a product's sums as the next one's left operand, with one of their two scales; `rest` where it is wide.
template <bool wide, bool negated>
__device__ __forceinline__ void as_left(const float (&d)[2][4], unsigned (&x)[4], unsigned (&rest)[4])
{
    constexpr float scale = (negated ? -1.f : 1.f) / factor_scale<wide>;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float lo = d[i / 2][i % 2 * 2] * scale, hi = d[i / 2][i % 2 * 2 + 1] * scale;
        x[i] = pack2<factor<wide>>(lo, hi);
        if constexpr (wide)
            rest[i] = rest2(x[i], lo, hi);
    }
}

// d += x y, 16 x 16 each; y's words in the order of the columns' halves. Wide, the product of the rests is left out.
template <bool wide>
__device__ __forceinline__ void multiply_factors(float (&d)[2][4], const unsigned (&x)[4], const unsigned (&x_rest)[4],
                                                 const unsigned (&y)[4], const unsigned (&y_rest)[4])
{
#pragma unroll
    for (int n = 0; n < 2; n++) {
        mma_m16n8k16<factor<wide>>(d[n], x, y[2 * n], y[2 * n + 1]);
        if constexpr (wide) {
            mma_m16n8k16<bf16>(d[n], x_rest, y[2 * n], y[2 * n + 1]);
            mma_m16n8k16<bf16>(d[n], x, y_rest[2 * n], y_rest[2 * n + 1]);
        }
    }
}

// Blocks below the diagonal of the inverse's c-th column of blocks; `lower` has A's, as factors, and what invert_diagonal()
// left. Wide, the rests of A's block (r, m) are in the place of block (m, r), those of diagonal inverses in `diagonals`.
template <class T, bool wide, int c>
__device__ __forceinline__ void invert_column(unsigned lower, unsigned inverse, unsigned diagonals)
{
    const int lane = threadIdx.x % 32;
    constexpr float scale = -1.f / (factor_scale<wide> * factor_scale<wide>);
    unsigned x[4][4], x_rest[4][4]; // X_mc', as the left operand
    load_rows_first(x[c], lower, 16 * c, 2 * c);
    if constexpr (wide)
        ldmatrix_x4(x_rest[c], rest_at(diagonals + c * 1024, lane % 16, lane / 16));
#pragma unroll
    for (int r = c + 1; r < 4; r++) {
        float sum[2][4] = {}, y[2][4] = {};
#pragma unroll
        for (int m = c; m < r; m++) {
            unsigned l[4], l_rest[4];
            load_chunks_first(l, lower, 16 * r, 2 * m);
            if constexpr (wide)
                load_chunks_first(l_rest, lower, 16 * m, 2 * r);
            multiply_factors<wide>(sum, x[m], x_rest[m], l, l_rest);
        }
        unsigned left[4], left_rest[4], right[4], right_rest[4];
        as_left<wide, false>(sum, left, left_rest);
        load_rows_first_trans(right, lower, 16 * r, 2 * r);
        if constexpr (wide)
            ldmatrix_x4_trans(right_rest, rest_at(diagonals + r * 1024, lane % 16, lane / 16));
        multiply_factors<wide>(y, left, left_rest, right, right_rest);
        as_left<wide, true>(y, x[r], x_rest[r]);
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
