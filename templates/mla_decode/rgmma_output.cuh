// The Hopper kernel of mla_decode for 8-bit caches: results of a piece from registers to global memory.
#pragma once

#include "mla_decode/rgmma_softmax.cuh"
#include "lib/transpose_lanes.cuh"

namespace {

// What both groups have of a packed row: the sum, and -M that it is relative to.
struct row_total {
    float sum, neg_max;
};

// Of a group that has tiles of its own: 2^(M - M of both).
__device__ __forceinline__ float group_factor(float neg_max, float of_both)
{
    return neg_max == of_both ? 1.f : exp2_fast(of_both - neg_max);
}

template <class S> __device__ __forceinline__ row_total total_of(const control<S> &c, int row)
{
    float sum[2] = {0.f, 0.f};
#pragma unroll
    for (int group = 0; group < 2; group++)
#pragma unroll
        for (int w = 0; w < 4; w++)
            sum[group] += c.of_group[group].sums[w][row];
    if (S::shared_tiles)
        return {sum[0] + sum[1], c.of_group[0].neg_max[row]};
    const float neg_max = fminf(c.of_group[0].neg_max[row], c.of_group[1].neg_max[row]);
    return {sum[0] * group_factor(c.of_group[0].neg_max[row], neg_max) +
                sum[1] * group_factor(c.of_group[1].neg_max[row], neg_max),
            neg_max};
}

// The thread's sums to those of the warp's keys.
template <class S>
__device__ __forceinline__ void publish_sums(control<S> &c, const group_state<S> &g, unsigned sums, int group)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
#pragma unroll
    for (int j = 0; j < S::q_rows / 16; j++) {
        const float4 four = g.load_sums(sums, j);
        float x[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
#pragma unroll
            for (int distance = 4; distance < 32; distance *= 2)
                x[i] += __shfl_xor_sync(0xffffffffu, x[i], distance);
            if (lane < 4)
                c.of_group[group].sums[warp][16 * j + 8 * (i / 2) + 2 * lane + i % 2] = x[i];
        }
    }
}

// Groups that have tiles of their own add up their outputs: each gives the other the columns of the other's half, two tiles at
// a time, in the place of the queries and the probabilities. Afterwards a group has its own half, as where tiles are shared.
template <class S>
__device__ __forceinline__ void exchange_halves(const block_state<S> &b, group_state<S> &g, int group)
{
    constexpr int words = S::q_rows / 8; // 16 bytes each, of a tile
    static_assert(2 * 2 * words * 2048 <= S::stages_at, "two tiles of two groups");
    const unsigned own = b.base + threadIdx.x % 128 * 16 + group * (2 * words * 2048),
                   others = b.base + threadIdx.x % 128 * 16 + (group ^ 1) * (2 * words * 2048);
    const int lane = threadIdx.x % 4;
#pragma unroll
    for (int round = 0; round < 2; round++) {
#pragma unroll
        for (int i = 0; i < 2 * words; i++) {
            const float *const x = &g.o[4 + 2 * round + i / words][i % words * 4];
            st_shared_v4_f32(own + i * 2048, make_float4(x[0], x[1], x[2], x[3]));
        }
        barrier_sync(consumer_barrier, consumers);
#pragma unroll
        for (int i = 0; i < 2 * words; i++) {
            float *const x = &g.o[2 * round + i / words][i % words * 4];
            const float4 y = ld_shared_v4_f32(others + i * 2048);
            float factor[2][2]; // by packed row; own, other's
#pragma unroll
            for (int n = 0; n < 2; n++) {
                const int row = 8 * (i % words) + 2 * lane + n;
                const float mine = b.c->of_group[group].neg_max[row], theirs = b.c->of_group[group ^ 1].neg_max[row];
                factor[n][0] = group_factor(mine, fminf(mine, theirs));
                factor[n][1] = group_factor(theirs, fminf(mine, theirs));
            }
            x[0] = x[0] * factor[0][0] + y.x * factor[0][1];
            x[1] = x[1] * factor[1][0] + y.y * factor[1][1];
            x[2] = x[2] * factor[0][0] + y.z * factor[0][1];
            x[3] = x[3] * factor[1][0] + y.w * factor[1][1];
        }
        barrier_sync(consumer_barrier, consumers);
    }
}

// The thread's columns of packed row 8 i + 2 (lane % 4) + n, packed: 16 bytes a lane. Of four lanes that are four apart each
// gives the others one tile's pair of columns.
template <class T, class S>
__device__ __forceinline__ void pack_columns(const group_state<S> &g, int i, int n, float factor, unsigned (&x)[4])
{
#pragma unroll
    for (int m = 0; m < 4; m++)
        x[m] = pack2<T>(g.o[m][4 * i + n] * factor, g.o[m][4 * i + 2 + n] * factor);
}

// The greatest magnitude of a packed row among the warp's 64 columns.
template <class S> __device__ __forceinline__ float greatest_of_row(const group_state<S> &g, int i, int n)
{
    float most = 0.f;
#pragma unroll
    for (int m = 0; m < 4; m++)
        most = fmaxf(most, fmaxf(fabsf(g.o[m][4 * i + n]), fabsf(g.o[m][4 * i + 2 + n])));
#pragma unroll
    for (int distance = 4; distance < 32; distance *= 2)
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, distance));
    return most;
}

// What the block's packed rows are divided by, where they go, and their log-sum-exp, which goes there now. The groups' sums
// are there, and a barrier comes behind.
template <class S>
__device__ __forceinline__ void finish_rows(const gen_mla_decode_params &p, const block_state<S> &b,
                                            const block_piece &w)
{
    const int row = threadIdx.x;
    if (row >= w.num_rows)
        return;
    const row_total total = total_of(*b.c, row);
    const float lse = total.sum != 0.f ? log2_fast(total.sum) - total.neg_max : minus_infinity();
    const float factor = total.sum != 0.f ? rcp_fast(total.sum) : 0.f; // a NaN stays one
    const int packed = w.first_row + row;
    if (w.piece.slot >= 0) {
        const long long index = static_cast<long long>(w.piece.slot) * (p.q_len * p.num_heads) + packed;
        p.partial_rows[index].lse = lse;
        b.c->to[row] = p.partial + index * latent;
        b.c->out_factor[row] = factor;
    } else {
        const mla_row at(p, w.tokens, packed);
        if (p.lse)
            *at.lse(p) = p.lse_base_2 ? lse : lse * ln_2;
        b.c->to[row] = at.o(p);
        b.c->out_factor[row] = factor * p.out_scale;
    }
}

// Writes rows 8 i to 8 i + 7 of the piece's output, or of its part of it, and all behind. By recursion: a loop was not
// unrolled, and the output would be in memory. `exponents`: of the warp's columns, of the thread's first row.
template <int i, class S>
__device__ __forceinline__ void write_rows(const block_state<S> &b, const group_state<S> &g, int num_rows, int column,
                                           gen_mla_partial_row *exponents)
{
    const int lane = threadIdx.x % 32;
    if (8 * i >= num_rows)
        return;
#pragma unroll
    for (int n = 0; n < 2; n++) {
        const int row = 8 * i + 2 * (lane % 4) + n;
        const float factor = b.c->out_factor[row];
        unsigned x[4];
        if (exponents) {
            const unsigned exponent = mla_exponent(greatest_of_row(g, i, n) * factor);
            if (lane < 4 && row < num_rows)
                reinterpret_cast<unsigned char *>(exponents[8 * i + n].exponents)[column / 64] =
                    static_cast<unsigned char>(exponent);
            pack_columns<fp16>(g, i, n, factor * mla_scale_up(exponent), x);
        } else {
            pack_columns<typename S::element>(g, i, n, factor, x);
        }
        transpose_lanes<4>(x);
        if (row < num_rows)
            st_global_v4_u32(b.c->to[row] + column, x);
    }
    if constexpr (8 * i + 8 < S::q_rows)
        write_rows<i + 1>(b, g, num_rows, column, exponents);
}

template <class S>
__device__ __forceinline__ void write_output(const gen_mla_decode_params &p, const block_state<S> &b,
                                             const block_piece &w, const group_state<S> &g, int group)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
    const int column = group * 256 + warp * 64 + lane / 4 % 4 * 16 + lane / 16 * 8;
    gen_mla_partial_row *exponents = nullptr;
    if (w.piece.slot >= 0)
        exponents = p.partial_rows + static_cast<long long>(w.piece.slot) * (p.q_len * p.num_heads) + w.first_row +
                    2 * (lane % 4);
    write_rows<0>(b, g, w.num_rows, column, exponents);
}

} // namespace
