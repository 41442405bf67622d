// kda_intra: the inverse, and w and u from it.
#pragma once

#include "kda_intra/block.cuh"
#include "lib/half.cuh"
#include "lib/ptx/ldst.cuh"
#include "lib/ptx/mma.cuh"

namespace kda_intra {

// beta as it multiplies the inverse: rounded first, or X's diagonal, which is 1, would be off in one way all along.
template <class S> __device__ __forceinline__ float rounded_beta(const chunk_work<S> &b, int row)
{
    return to_float<typename S::element>(from_float<typename S::element>(ld_shared_f32(b.base + S::betas + row * 4)));
}

// A column of X, times beta, as an operand. Where keys are alike and nothing decays, the entries of a diagonal of X are equal,
// so rounding moves them all one way and the state drifts. `carried` adds what rounding took from an entry to the entry two
// rows below, so a column's errors cancel. fp16 rounds no more than the factors of X already are.
template <class T, bool carried>
__device__ __forceinline__ void pack_column(const float (&x)[16], float beta, unsigned (&word)[8])
{
    float2 carry = make_float2(0.f, 0.f);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const float lo = carried ? fmaf(x[2 * i], beta, carry.x) : x[2 * i] * beta;
        const float hi = carried ? fmaf(x[2 * i + 1], beta, carry.y) : x[2 * i + 1] * beta;
        word[i] = pack2<T>(lo, hi);
        if constexpr (carried) {
            const float2 rounded = to_float2<T>(word[i]);
            carry = make_float2(lo - rounded.x, hi - rounded.y);
        }
    }
}

// Inverts the r-th diagonal block. A lane has a column, and the warp's halves have the same.
template <bool wide, class S> __device__ __forceinline__ void invert_diagonal(const chunk_work<S> &b, int r)
{
    const int lane = threadIdx.x % 32, column = lane % 16;
    float x[16];
#pragma unroll
    for (int i = 0; i < 16; i++)
        x[i] = i == column ? (lane < 16 ? factor_scale<wide> : 1.f) : 0.f;
    eliminate(b.base + S::sums + r * 1024, x);
    unsigned word[8];
    const float beta = rounded_beta(b, 16 * r + column);
    if (lane < 16)
#pragma unroll
        for (int i = 0; i < 8; i++)
            word[i] = pack2<factor<wide>>(x[2 * i], x[2 * i + 1]);
    else if (wide && b.alike == 0)
        pack_column<typename S::element, false>(x, beta, word);
    else
        pack_column<typename S::element, S::element::is_bf16>(x, beta, word);
    const unsigned to = b.base + (lane < 16 ? S::lower : S::inverse);
    st_shared_v4_u32(chunk_at(to, 16 * r + column, 2 * r), word[0], word[1], word[2], word[3]);
    st_shared_v4_u32(chunk_at(to, 16 * r + column, 2 * r + 1), word[4], word[5], word[6], word[7]);
    if constexpr (wide) {
        __syncwarp(); // no lane writes before all have read
        if (lane < 16) {
#pragma unroll
            for (int i = 0; i < 8; i++)
                word[i] = rest2(word[i], x[2 * i], x[2 * i + 1]);
            st_shared_v4_u32(rest_at(b.base + S::sums + r * 1024, column, 0), word[0], word[1], word[2], word[3]);
            st_shared_v4_u32(rest_at(b.base + S::sums + r * 1024, column, 1), word[4], word[5], word[6], word[7]);
        }
    }
}

// Blocks below the diagonal of X's c-th column of blocks, times beta.
template <bool wide, int c, class S> __device__ __forceinline__ void invert_column(const chunk_work<S> &b)
{
    const int lane = threadIdx.x % 32;
    unsigned x[4][4], x_rest[4][4]; // X_rc', as the left operand
    constexpr float scale = -1.f / (factor_scale<wide> * factor_scale<wide>);
    const float beta[2] = {scale * rounded_beta(b, 16 * c + lane / 4), scale * rounded_beta(b, 16 * c + lane / 4 + 8)};
    load_rows_first(x[c], b.base + S::lower, 16 * c, 2 * c);
    if constexpr (wide)
        ldmatrix_x4(x_rest[c], rest_at(b.base + S::diagonals + c * 1024, lane % 16, lane / 16));
#pragma unroll
    for (int r = c + 1; r < 4; r++) {
        float y[2][4] = {};
        invert_block<wide>(b.base + S::lower, b.base + S::diagonals, r, c, x, x_rest, y);
#pragma unroll
        for (int n = 0; n < 2; n++)
#pragma unroll
            for (int h = 0; h < 2; h++)
                st_shared_u32(chunk_at(b.base + S::inverse, 16 * c + lane / 4 + 8 * h, 2 * r + n) + lane % 4 * 4,
                              pack2<typename S::element>(y[n][2 * h] * beta[h], y[n][2 * h + 1] * beta[h]));
    }
}

// Rounds x and gives what that takes from it to the next number, up to a 64th of that one.
template <class T> __device__ __forceinline__ void round_and_carry(float &x, float &carry)
{
    const float most = fabsf(x) * 0x1p-6f, sum = x + fminf(fmaxf(carry, -most), most);
    x = to_float<T>(from_float<T>(sum));
    carry = sum - x;
}

// w and u of a chunk whose keys are alike: their roundings, and later v_new's, enter the state and the scores' product with nearly the
// same weights. So they had better cancel, each with the one eight tokens on. Elsewhere that would only add them to each other.
template <class S>
__device__ __forceinline__ void carry_roundings(const gen_kda_intra_params &p, const chunk_work<S> &b,
                                                float (&w)[4][2][4], float (&u)[4][2][4])
{
    using T = typename S::element;
    float w_carry[4] = {}, u_carry[4] = {}; // of two columns twice; of two rows of u' twice
#pragma unroll
    for (int r = 0; r < 4; r++)
#pragma unroll
        for (int n = 0; n < 2; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                u[r][n][i] *= unfold_of(p, b, 2 * r + n);
                w[r][n][i] *= unfold_of(p, b, 2 * r + i / 2);
                round_and_carry<T>(u[r][n][i], u_carry[i]);
                round_and_carry<T>(w[r][n][i], w_carry[2 * n + i % 2]);
            }
}

// A warp has 16 columns of w and 16 rows of u'.
template <bool wide, class S>
__device__ __forceinline__ void multiply_inverse(const gen_kda_intra_params &p, const chunk_work<S> &b)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float w[4][2][4] = {}, u[4][2][4] = {};
#pragma unroll
    for (int s = 0; s < 4; s++) {
        unsigned k[4], v[4];
        load_rows_first_trans(k, b.base + S::q_rows, 16 * s, 2 * warp);
        load_chunks_first_trans(v, b.base + S::values, 16 * s, 2 * warp);
#pragma unroll
        for (int r = s; r < 4; r++) {
            unsigned x[4]; // X_rs' as the right operand; its words in another order are X_rs as the left one
            load_rows_first_trans(x, b.base + S::inverse, 16 * s, 2 * r);
            mma_m16n8k16<typename S::element>(u[r][0], v, x[0], x[1]);
            mma_m16n8k16<typename S::element>(u[r][1], v, x[2], x[3]);
            const unsigned left[4] = {x[0], x[2], x[1], x[3]};
            mma_m16n8k16<typename S::element>(w[r][0], left, k[0], k[1]);
            mma_m16n8k16<typename S::element>(w[r][1], left, k[2], k[3]);
        }
    }
    if (wide && b.alike)
        carry_roundings(p, b, w, u);
    unsigned short *const to =
        static_cast<unsigned short *>(p.u) + b.record * (rows * S::head_dim) + (warp * 4 * 32 + lane) * 8;
#pragma unroll
    for (int r = 0; r < 4; r++) {
        const unsigned word[4] = {
            pack2<typename S::element>(u[r][0][0], u[r][0][1]), pack2<typename S::element>(u[r][0][2], u[r][0][3]),
            pack2<typename S::element>(u[r][1][0], u[r][1][1]), pack2<typename S::element>(u[r][1][2], u[r][1][3])};
        st_global_v4_u32(to + r * 256, word);
#pragma unroll
        for (int n = 0; n < 2; n++)
#pragma unroll
            for (int h = 0; h < 2; h++)
                st_shared_u32(chunk_at(b.base + S::k_columns, 16 * r + lane / 4 + 8 * h, 2 * warp + n) + lane % 4 * 4,
                              pack2<typename S::element>(w[r][n][2 * h], w[r][n][2 * h + 1]));
    }
}

// A finished matrix to global memory, as it is, by `count` threads.
template <int bytes, int count> __device__ __forceinline__ void copy_out(void *to, unsigned from, int thread)
{
#pragma unroll
    for (int i = thread * 16; i < bytes; i += count * 16) {
        unsigned x[4];
        ld_shared_v4_u32(from + i, x[0], x[1], x[2], x[3]);
        st_global_v4_u32(static_cast<unsigned char *>(to) + i, x);
    }
}

} // namespace kda_intra
