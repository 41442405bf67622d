// The Hopper kernel of mla_decode for pairs of blocks: results of a piece, on their way from registers through shared memory.
#pragma once

#include "mla_decode/pair_group.cuh"

namespace {

// What 64 columns each of a partial result are to be multiplied by, which divides by the sums, too; their exponents come back.
__device__ __forceinline__ void scale_partial(const group_state &g, const float (&factor)[2], float (&up)[4][2], unsigned (&exponents)[2])
{
    exponents[0] = exponents[1] = 0;
#pragma unroll
    for (int n = 0; n < 4; n++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            up[n][h] = 0.f;
#pragma unroll
            for (int i = 0; i < 16; i++)
                up[n][h] = fmaxf(up[n][h], fabsf(g.o[32 * n + i / 2 * 4 + 2 * h + i % 2]));
        }
#pragma unroll
    for (int n = 0; n < 4; n++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const unsigned exponent = mla_exponent(mla_most_of_quad(up[n][h]) * factor[h]);
            exponents[h] |= exponent << 8 * n;
            up[n][h] = factor[h] * mla_scale_up(exponent);
        }
}

// The block's columns of the group's rows, and their log-sum-exp, or the piece's part of them: through the buffer that the partner's
// messages come to, of which none is on its way, 128 columns at a time. Of a piece without tiles the output is zeros. `w` is in shared
// memory, and read again where it is wanted.
__device__ __forceinline__ void write_rows(const gen_mla_decode_params &p, const pair_state &b, const block_piece &w,
                                           const group_state &g, const float (&sum)[2])
{
    const int lane = threadIdx.x % 32, warp = mla_uniform(threadIdx.x / 32), first = warp * 16;
    const int rank = b.rank(), count = min(w.num_rows - first, 16);
    if (count <= 0)
        return;
    float factor[2], lse[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const bool any = sum[h] > 0.f;
        factor[h] = any ? rcp_fast(sum[h]) : 0.f;
        lse[h] = any ? log2_fast(sum[h]) - g.minus[h] : minus_infinity();
    }
    // Lane l knows where row l goes, and its log-sum-exp from the first of the four lanes that have it.
    const float low = __shfl_sync(0xffffffffu, lse[0], lane % 8 * 4), high = __shfl_sync(0xffffffffu, lse[1], lane % 8 * 4);
    const float row_lse = lane & 8 ? high : low;
    const int packed = w.first_row + first + min(lane % 16, count - 1);
    const bool mine = lane < count;
    unsigned short *to;
    float up[4][2] = {{factor[0], factor[1]}, {factor[0], factor[1]}, {factor[0], factor[1]}, {factor[0], factor[1]}};
    if (w.piece.slot >= 0) {
        const long long index = static_cast<long long>(w.piece.slot) * (p.q_len * p.num_heads) + packed;
        to = p.partial + index * latent;
        if (w.tiles > 0) {
            unsigned exponents[2];
            scale_partial(g, factor, up, exponents);
            gen_mla_partial_row *const at = p.partial_rows + (index - packed + w.first_row + first + lane / 4);
            if (lane % 4 == 0 && lane / 4 < count)
                at[0].exponents[rank] = static_cast<int>(exponents[0]);
            if (lane % 4 == 0 && lane / 4 + 8 < count)
                at[8].exponents[rank] = static_cast<int>(exponents[1]);
        }
        if (mine && rank == 0)
            p.partial_rows[index].lse = row_lse;
    } else {
        const mla_row at(p, w.tokens, packed);
        to = at.o(p);
        if (mine && rank == 0 && p.lse)
            *at.lse(p) = p.lse_base_2 ? row_lse : row_lse * 0.693147180559945309f;
    }
    const unsigned staging = b.base + exchange_at + warp * exchange_warp; // two cells of 16 rows
    const int column = rank * (latent / 2) + lane % 16 * 8;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        unsigned x[8][4];
        __syncwarp(); // all have read what was there
#pragma unroll
        for (int n = 2 * half; n < 2 * half + 2; n++) {
            const unsigned at = staging + n % 2 * 2048 - n * cell; // which stage_cell() adds
            if (w.tiles > 0 && w.piece.slot >= 0)
                stage_cell<fp16>(g, at, n, up[n]);
            else if (w.tiles > 0)
                stage_cell<element>(g, at, n, up[n]);
        }
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const int row = 2 * i + lane / 16;
            if (w.tiles > 0)
                load_shared_16(staging + lane % 16 / 8 * 2048 + row * 128 + ((lane % 8 ^ row % 8) << 4), x[i][0], x[i][1], x[i][2], x[i][3]);
            else
                x[i][0] = x[i][1] = x[i][2] = x[i][3] = 0;
        }
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const int row = 2 * i + lane / 16;
            unsigned short *const row_to = reinterpret_cast<unsigned short *>(__shfl_sync(0xffffffffu, reinterpret_cast<long long>(to), row));
            if (row < count)
                store_global_16(row_to + column + half * 128, x[i]);
        }
    }
}

} // namespace
