// A tile's rows on their way from accumulators to memory.
#pragma once

#include "attn_fwd/tiles.cuh"
#include "lib/mma.cuh"
#include "lib/store.cuh"

// The thread's two rows, `row` and `row` + 8 of the tile: four neighbouring lanes exchange pairs of columns, so that each has
// 16 bytes of every 32 columns and together they write whole sectors. `column`: the first of the thread's; who has column 0
// writes the log-sum-exp.
template <class T, int n>
__device__ __forceinline__ void attn_write_rows(const gen_attn_fwd_params &p, const attn_tile &t, int row, const float (&o)[n],
                                                const float (&factor)[2], const float (&lse)[2], int column = 0)
{
    const int q = threadIdx.x % 4;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const bool mine = row + 8 * h < t.num_rows;
        unsigned short *const to = attn_o_at(p, t, t.first_row + (mine ? row + 8 * h : 0)) + column + q * 8;
#pragma unroll
        for (int i = 0; i < n; i += 16) {
            unsigned x[4];
#pragma unroll
            for (int k = 0; k < 4; k++)
                x[k] = pack2<T>(o[i + 4 * k + 2 * h] * factor[h], o[i + 4 * k + 2 * h + 1] * factor[h]);
            transpose_quad(x);
            if (mine)
                store_global_16(to + i * 2, x);
        }
        if (mine && q == 0 && column == 0 && p.lse)
            *attn_lse_at(p, t, t.first_row + row + 8 * h) = lse[h];
    }
}

// The same of rows that see no key.
template <class T, int n> __device__ __forceinline__ void attn_write_nothing(const gen_attn_fwd_params &p, const attn_tile &t, int row, int column = 0)
{
    float o[n];
#pragma unroll
    for (int i = 0; i < n; i++)
        o[i] = 0.f;
    attn_write_rows<T>(p, t, row, o, {0.f, 0.f}, {minus_infinity(), minus_infinity()}, column);
}
