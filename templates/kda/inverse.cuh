// (I + A)^-1 of a 64 x 64 matrix A, strictly lower triangular: its diagonal blocks of 16 by elimination in fp32, a warp each;
// the others column of blocks by column, in registers, transposed, so that each product's result is the next one's operand:
// X_rc' = -(sum over c <= m < r of X_mc' A_rm') X_rr'.
#pragma once

#include "kda/tile.cuh"
#include "lib/half.cuh"
#include "lib/ptx/ldst.cuh"
#include "lib/ptx/mma.cuh"

namespace kda_stage {

// ---- for which chunks the inverse may be made of fp16 (docs/numerics.md) ----

// Factors of the inverse stand in fp16 times this, so that the row of a small beta has the bits that others have. The entries of usual
// rows are at most 56.
constexpr float narrow_scale = 256.f;

// Whether a row couples as a normalised key does, by its |k|^2 and its beta: I - beta k k' stretches nothing, and fp16 holds beta. Rows
// of zeros couple none. No number is not usual.
__device__ __forceinline__ bool usual_row(float square, float beta)
{
    const float size = fabsf(beta);
    const bool key = square >= 0.25f && square <= 4.f, held = size == 0.f || size >= 0x1p-20f;
    return square == 0.f || (key & held & (square * size <= 2.03125f)); // 2, and what rounding adds to a key's length
}

// ---- factors ----

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

// A column of the inverse of a diagonal block, by elimination: x holds the lane's column of the identity, of any scale. The block
// stands at `from`, transposed, fp32.
__device__ __forceinline__ void eliminate(unsigned from, float (&x)[16])
{
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

// X_rc', the r-th block of the inverse's c-th column of blocks, as the products' sums y and, for blocks further down, as a left
// operand in x[r], as those above it are. `lower` has A's blocks as factors, and on the diagonal those of the inverse,
// transposed. Wide, the rests of A's block (r, m) are in the place of block (m, r), those of diagonal inverses at `diagonals`
// (rest_at()).
template <bool wide>
__device__ __forceinline__ void invert_block(unsigned lower, unsigned diagonals, int r, int c, unsigned (&x)[4][4],
                                             unsigned (&x_rest)[4][4], float (&y)[2][4])
{
    const int lane = threadIdx.x % 32;
    float sum[2][4] = {};
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
}

} // namespace kda_stage
