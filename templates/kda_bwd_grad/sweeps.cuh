// Sums over a chunk's rows that go from anchor to anchor, and all that comes of them (kda_bwd_grad.cu.in).
#pragma once

#include "kda/backward.cuh"
#include "kda/elements.cuh"
#include "kda_bwd_grad/layout.cuh"
#include "kda_bwd_grad/products.cuh"
#include "lib/half.cuh"
#include "lib/ptx/ldst.cuh"
#include "lib/ptx/math.cuh"
#include "lib/ptx/mma.cuh"

namespace kda_grad {

// A lane's eight numbers of a vector of columns.
struct column_vector {
    float2 x[4];

    __device__ __forceinline__ column_vector(unsigned from, const warp_place &at)
    {
#pragma unroll
        for (int n = 0; n < 4; n++)
            x[n] = ld_shared_v2_f32(from + (at.column() + 8 * n) * 4);
    }
    __device__ __forceinline__ void scale(float (&d)[4][4]) const
    {
#pragma unroll
        for (int n = 0; n < 4; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                d[n][i] *= i % 2 ? x[n].y : x[n].x;
    }
};

// d += left right, 16 x 16 and 16 x 32.
__device__ __forceinline__ void multiply(float (&d)[4][4], const unsigned (&left)[4], const unsigned (&right)[2][4])
{
#pragma unroll
    for (int n = 0; n < 4; n++)
        mma_m16n8k16<bf16>(d[n], left, right[n / 2][n % 2 * 2], right[n / 2][n % 2 * 2 + 1]);
}

__device__ __forceinline__ void load_right(unsigned (&x)[2][4], unsigned from)
{
    ldmatrix_x4_trans(x[0], from);
    ldmatrix_x4_trans(x[1], from ^ 32);
}

// Sums over eight lanes that are four apart, of eight numbers: each lane is left with that of its number of the eight.
template <int distance> __device__ __forceinline__ void add_rows(float (&x)[8], int lane)
{
    if constexpr (distance >= 4) {
        constexpr int half = distance / 4;
        const bool upper = lane & distance;
#pragma unroll
        for (int i = 0; i < half; i++) {
            const float give = upper ? x[i] : x[i + half], keep = upper ? x[i + half] : x[i];
            x[i] = keep + __shfl_xor_sync(0xffffffffu, give, distance);
        }
        add_rows<distance / 2>(x, lane);
    }
}

// d is columns' state share, relative to the gates of the chunk's last row. Of it, relative to the block's anchor, sums
// times k- over the block's rows are left; it itself becomes relative to the last block's anchor.
template <int head_dim>
__device__ __forceinline__ void begin_columns(const block_work &b, const warp_place &at, float (&d)[4][4])
{
    using L = layout<head_dim>;
    const column_vector move(b.base + L::last_move, at),
        own_move(b.base + (at.block == 3 ? L::last_move : L::key_sums + at.block * L::vector), at);
    const unsigned own = at.right(b.base) + at.block * 2048;
    float sum[8];
#pragma unroll
    for (int pair = 0; pair < 2; pair++) {
        unsigned k[4];
        ldmatrix_x4(k, (own ^ pair * 32) + L::k_columns);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int n = 2 * pair + i;
            const float2 upper = to_float2<bf16>(k[2 * i]), lower = to_float2<bf16>(k[2 * i + 1]);
            sum[2 * n] = own_move.x[n].x * fmaf(upper.x, d[n][0], lower.x * d[n][2]);
            sum[2 * n + 1] = own_move.x[n].y * fmaf(upper.y, d[n][1], lower.y * d[n][3]);
        }
    }
    move.scale(d);
    add_rows<16>(sum, at.lane);
    // Halves were given away from the greatest bit of the lane on.
    const int number = at.lane / 4;
    st_shared_f32(b.base + L::key_sums + at.block * L::vector + (at.column() + number / 2 * 8 + number % 2) * 4,
                  sum[0]);
}

// What the sums of columns and of rows take of the s-th block of rows.
template <int head_dim> struct block_sums {
    using L = layout<head_dim>;
    const block_work &b;
    const warp_place &at;
    unsigned transposed, left, right;

    __device__ __forceinline__ block_sums(const block_work &work, const warp_place &place)
        : b(work), at(place), transposed(place.transposed(work.base)), left(place.left(work.base)),
          right(place.right(work.base))
    {
    }

    // Columns: blocks behind and at the warp's own, in descending order.
    __device__ __forceinline__ void add_columns(int s, float (&d)[4][4]) const
    {
        unsigned x[4], y[2][4];
        ldmatrix_x4_trans(x, transposed + s * 2048 + L::d_qk);
        load_right(y, right + s * 2048 + L::q_rows);
        multiply(d, x, y);
        ldmatrix_x4_trans(x, transposed + s * 2048 + L::d_kk);
        load_right(y, right + s * 2048 + L::b_rows);
        multiply(d, x, y);
    }
    // ... to the anchor before the s-th block's.
    __device__ __forceinline__ void move_columns(int s, float (&d)[4][4]) const
    {
        column_vector(b.base + L::moves + (s - 1) * L::vector, at).scale(d);
    }

    // Rows: blocks up to the warp's own, in ascending order.
    __device__ __forceinline__ void add_rows_of(int s, float (&d)[2][4][4]) const
    {
        unsigned x[4], y[2][4];
        load_right(y, right + s * 2048 + L::k_columns);
        ldmatrix_x4(x, (left ^ s * 32) + L::d_kk);
        multiply(d[0], x, y);
        ldmatrix_x4(x, (left ^ s * 32) + L::d_qk);
        multiply(d[1], x, y);
    }
    // ... from the anchor before the s-th block's to that.
    __device__ __forceinline__ void move_rows(int s, float (&d)[2][4][4]) const
    {
        const column_vector move(b.base + L::moves + (s - 1) * L::vector, at);
        move.scale(d[0]);
        move.scale(d[1]);
    }
};

// Rows' sums, [0] of keys' share, [1] of queries', begin with the state's, which is relative to the chunk's begin.
template <int head_dim>
__device__ __forceinline__ void begin_rows(const block_work &b, const warp_place &at, float scale, float (&d)[2][4][4])
{
    using L = layout<head_dim>;
    const column_vector first(b.base + L::first_move, at);
#pragma unroll
    for (int n = 0; n < 4; n++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const float e = i ? first.x[n].y : first.x[n].x;
            d[0][n][i] *= -e, d[0][n][i + 2] *= -e;
            d[1][n][i] *= scale * e, d[1][n][i + 2] *= scale * e;
        }
}

// Both sums get what other rows of the chunk add, and are relative to the block's anchor then. Each step waits for loads, so
// that a step of columns and one of rows go together where there is one of both.
template <int head_dim>
__device__ __forceinline__ void sum_blocks(const block_work &b, const warp_place &at, float (&columns)[4][4],
                                           float (&sums)[2][4][4])
{
    const block_sums<head_dim> of(b, at);
    const int both = min(at.block, 3 - at.block);
    of.add_columns(3, columns);
    of.add_rows_of(0, sums);
    if (both > 0) {
        of.move_columns(3, columns);
        of.move_rows(1, sums);
        of.add_columns(2, columns);
        of.add_rows_of(1, sums);
    }
#pragma unroll 1
    for (int s = 3 - both; s > at.block; s--) {
        of.move_columns(s, columns);
        of.add_columns(s - 1, columns);
    }
#pragma unroll 1
    for (int s = both + 1; s <= at.block; s++) {
        of.move_rows(s, sums);
        of.add_rows_of(s, sums);
    }
}

// Sums become gradients: of q in sums[1], of k in sums[0]; that of the cumulated gates goes to where these were. Shares of
// betas' gradients are added to those there are.
template <int head_dim>
__device__ __forceinline__ void make_gradients(const block_work &b, const warp_place &at, const float (&columns)[4][4],
                                               float (&sums)[2][4][4])
{
    using L = layout<head_dim>;
    const unsigned anchors = b.base + L::anchors + at.block * L::vector + at.column() * 4;
    const float beta[2] = {ld_shared_f32(b.base + L::betas + at.row(0) * 4),
                           ld_shared_f32(b.base + L::betas + at.row(1) * 4)};
    const unsigned own = at.right(b.base) + at.block * 2048, gates_at = at.floats<head_dim>(b.base) + L::gates;
    float beta_sum[2] = {};
#pragma unroll
    for (int pair = 0; pair < 2; pair++) {
        unsigned q[4], bk[4], k[4];
        const float2 anchor[2] = {ld_shared_v2_f32(anchors + pair * 64), ld_shared_v2_f32(anchors + pair * 64 + 32)};
        ldmatrix_x4(q, (own ^ pair * 32) + L::q_rows);
        ldmatrix_x4(bk, (own ^ pair * 32) + L::b_rows);
        ldmatrix_x4(k, (own ^ pair * 32) + L::k_columns);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int n = 2 * pair + i / 2, h = i % 2;
            const unsigned gate_at = (gates_at ^ n * 32) + h * (8 * L::vector);
            const float2 gate = ld_shared_v2_f32(gate_at), q_plus = to_float2<bf16>(q[i]),
                         b_plus = to_float2<bf16>(bk[i]), k_minus = to_float2<bf16>(k[i]);
            float d_g[2];
#pragma unroll
            for (int c = 0; c < 2; c++) {
                const float up = exp2_fast((c ? gate.y : gate.x) - (c ? anchor[i / 2].y : anchor[i / 2].x));
                const float down = exp2_fast((c ? anchor[i / 2].y : anchor[i / 2].x) - (c ? gate.y : gate.x));
                float &key = sums[0][n][2 * h + c], &query = sums[1][n][2 * h + c];
                const float column = columns[n][2 * h + c], kk = c ? k_minus.y : k_minus.x;
                d_g[c] = fmaf(c ? q_plus.y : q_plus.x, query, fmaf(c ? b_plus.y : b_plus.x, key, -kk * column));
                key *= up;
                query *= up;
                beta_sum[h] = fmaf(kk * up, key, beta_sum[h]);
                key = fmaf(beta[h], key, down * column);
            }
            st_shared_v2_f32(gate_at, d_g[0], d_g[1]);
        }
    }
    add_beta_sums<head_dim>(b, at, beta_sum, false);
}

// To rows of fp32 in shared memory.
template <int head_dim>
__device__ __forceinline__ void store_floats(unsigned to, const warp_place &at, const float (&d)[4][4])
{
    to = at.floats<head_dim>(to);
#pragma unroll
    for (int n = 0; n < 4; n++)
#pragma unroll
        for (int h = 0; h < 2; h++)
            st_shared_v2_f32((to ^ n * 32) + h * (8 * layout<head_dim>::vector), d[n][2 * h], d[n][2 * h + 1]);
}

} // namespace kda_grad
