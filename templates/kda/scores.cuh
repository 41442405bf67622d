// Scores inside a chunk, A_qk and A, 16 x 16 at a time, of operands in shared memory as kda_intra and kda_chunk_intra lay them out.
#pragma once

#include "kda/inverse.cuh"
#include "kda/tile.cuh"
#include "lib/half.cuh"
#include "lib/ptx/ldst.cuh"
#include "lib/ptx/mma.cuh"

namespace kda_stage {

// Offsets in shared memory of what both kernels have.
template <int head_dim> struct scores_layout {
    static constexpr int tile = head_dim / 64 * cell;
    static constexpr int q_rows = 0, k_rows = q_rows + tile, k_columns = k_rows + tile; // operands, bf16
    static constexpr int values = k_columns + tile;
    static constexpr int scores = values + tile;        // A_qk
    static constexpr int lower = scores + cell;         // A below its diagonal blocks; wide: above them its rests
    static constexpr int inverse = lower + cell;        // of I + A
    static constexpr int diagonals = inverse + cell;    // A' of diagonal blocks, fp32
    static constexpr int middle = diagonals + 4 * 1024; // 7 vectors of middle factors, fp32
    static constexpr int betas = middle + 7 * head_dim * 4;
    static constexpr int bytes = betas + rows * 4;
};

// Vectors of middle factors: block r with itself at r, then (2, 0), (3, 1), (3, 0); -1: 1.
__device__ __forceinline__ int middle_vector(int r, int s)
{
    return r == s ? r : r - s == 1 ? -1 : r == 2 ? 4 : s == 1 ? 5 : 6;
}

// A word of the columns' operand, of channels d and d + 1, times their middle factors.
__device__ __forceinline__ unsigned times(unsigned word, float2 factor)
{
    const float2 x = to_float2<bf16>(word);
    return pack2<bf16>(x.x * factor.x, x.y * factor.y);
}

// What is beyond 2^58 of factors comes off them.
__device__ __forceinline__ float2 beyond(float2 &factor)
{
    const float2 rest =
        make_float2(factor.x > 0x1p58f ? factor.x * 0x1p-58f : 1.f, factor.y > 0x1p58f ? factor.y * 0x1p-58f : 1.f);
    factor = make_float2(fminf(factor.x, 0x1p58f), fminf(factor.y, 0x1p58f));
    return rest;
}

// `wide`: keys may be as great as bf16 is, so what is greater than 2^58 of a middle factor multiplies the rows instead.
template <int head_dim, bool scaled, bool wide>
__device__ __forceinline__ void multiply_scores(unsigned base, int r, int s, unsigned factors, float (&aq)[2][4],
                                                float (&ak)[2][4])

{
    using layout = scores_layout<head_dim>;
#pragma unroll
    for (int step = 0; step < head_dim / 16; step++) {
        unsigned q[4], k[4], columns[4];
        load_chunks_first(columns, base + layout::k_columns, 16 * s, 2 * step);
        load_rows_first(q, base + layout::q_rows, 16 * r, 2 * step);
        load_rows_first(k, base + layout::k_rows, 16 * r, 2 * step);
        if constexpr (scaled) {
            float2 low = ld_shared_v2_f32(factors + step * 64), high = ld_shared_v2_f32(factors + step * 64 + 32);
            if (wide && __any_sync(0xffffffffu, fmaxf(fmaxf(low.x, low.y), fmaxf(high.x, high.y)) > 0x1p58f)) {
                const float2 low_rows = beyond(low), high_rows = beyond(high);
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    q[i] = times(q[i], i < 2 ? low_rows : high_rows);
                    k[i] = times(k[i], i < 2 ? low_rows : high_rows);
                }
            }
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

} // namespace kda_stage
