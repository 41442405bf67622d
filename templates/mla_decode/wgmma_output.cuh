// The Hopper kernel of mla_decode: how results of a piece get from registers through shared memory to global memory.
#pragma once

#include "mla_decode/wgmma_group.cuh"
#include "lib/half.cuh"
#include "lib/ptx/ldst.cuh"
#include "lib/ptx/math.cuh"
#include "lib/ptx/mma.cuh"
#include "lib/uniform.cuh"

namespace {

// Puts the output of the warp's 16 rows, 16 bits a column, into its part of the half of a stage that the group read last,
// which is as large: cells of 64 columns, chunks of 16 bytes swizzled as TMA does it, against bank conflicts.
template <class To, class T>
__device__ __forceinline__ void stage_cell(const group_state<T> &g, unsigned to, int n, const float (&factor)[2])
{
    // Of four matrices of 8 x 8, lanes from 8 i on hold where the rows of matrix i go: rows + 8 (i % 2), chunk + i / 2.
    const int lane = threadIdx.x % 32;
    const unsigned row = to + n * cell + (lane / 8 % 2 * 8 + lane % 8) * 128, swizzle = (lane / 16) ^ (lane % 8);
#pragma unroll
    for (int chunk = 0; chunk < 8; chunk += 2) {
        unsigned x[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float *const o = &g.o[32 * n + 4 * (chunk + i / 2) + 2 * (i % 2)];
            x[i] = pack2<To>(o[0] * factor[i % 2], o[1] * factor[i % 2]);
        }
        stmatrix_x4(row + ((chunk ^ swizzle) << 4), x);
    }
}

template <class T>
__device__ __forceinline__ void stage_output(const group_state<T> &g, unsigned to, const float (&factor)[2])
{
#pragma unroll
    for (int n = 0; n < 4; n++)
        stage_cell<T>(g, to, n, factor);
}

// The same of a partial result; the cells' exponents, a byte each, come back.
template <class T>
__device__ __forceinline__ void stage_partial(const group_state<T> &g, unsigned to, const float (&factor)[2],
                                              unsigned (&exponents)[2])
{
    float most[4][2]; // all of them at once, for it is a chain of latencies
#pragma unroll
    for (int n = 0; n < 4; n++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            most[n][h] = 0.f;
#pragma unroll
            for (int i = 0; i < 16; i++)
                most[n][h] = fmaxf(most[n][h], fabsf(g.o[32 * n + i / 2 * 4 + 2 * h + i % 2]));
        }
#pragma unroll
    for (int n = 0; n < 4; n++)
#pragma unroll
        for (int h = 0; h < 2; h++)
            most[n][h] = mla_most_of_quad(most[n][h]);
    exponents[0] = exponents[1] = 0;
#pragma unroll
    for (int n = 0; n < 4; n++) {
        float up[2];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const unsigned exponent = mla_exponent(most[n][h] * factor[h]);
            exponents[h] |= exponent << 8 * n;
            up[h] = factor[h] * mla_scale_up(exponent);
        }
        stage_cell<fp16>(g, to, n, up);
    }
}

// Writes the rows' output and log-sum-exp, or the piece's part of them. `stage` is the one whose half the group read last
// and still holds. A piece without tiles has none, and its output is zeros.
template <class S, class T>
__device__ __forceinline__ void write_rows(const gen_mla_decode_params &p, const block_state<S> &b,
                                           const block_piece &w, const group_state<T> &g, int group, int stage,
                                           const float (&sum)[2])
{
    const int lane = threadIdx.x % 32, first = uniform(threadIdx.x % 128 / 32 * 16); // of the warp's 16 rows
    const int count = min(w.num_rows - first, 16);
    if (count <= 0)
        return;
    float factor[2], lse[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const bool any = sum[h] > 0.f;
        factor[h] = any ? rcp_fast(sum[h]) : 0.f;
        lse[h] = any ? log2_fast(sum[h]) - g.neg_max[h] : minus_infinity();
    }
    // Lane l has the address of row l, and its log-sum-exp from the first of the four lanes that have it.
    const float low = __shfl_sync(0xffffffffu, lse[0], lane % 8 * 4),
                high = __shfl_sync(0xffffffffu, lse[1], lane % 8 * 4);
    const float row_lse = lane & 8 ? high : low;
    const int packed = w.first_row + first + min(lane % 16, count - 1);
    const bool mine = lane < count;
    const unsigned staging = b.stage(stage) + group * 4 * cell + first * 128;
    unsigned short *to;
    if (w.piece.slot >= 0) {
        const long long index = static_cast<long long>(w.piece.slot) * (p.q_len * p.num_heads) + packed;
        to = p.partial + index * latent;
        if (w.tiles > 0) {
            unsigned exponents[2];
            stage_partial(g, staging, factor, exponents);
            const int row = first + lane / 4;
            gen_mla_partial_row *const at = p.partial_rows + (index - packed + w.first_row + row);
            if (lane % 4 == 0 && row < w.num_rows)
                at[0].exponents[group] = static_cast<int>(exponents[0]);
            if (lane % 4 == 0 && row + 8 < w.num_rows)
                at[8].exponents[group] = static_cast<int>(exponents[1]);
        }
        if (mine && group == 0)
            p.partial_rows[index].lse = row_lse;
    } else {
        const mla_row at(p, w.tokens, packed);
        to = at.o(p);
        if (w.tiles > 0)
            stage_output(g, staging, factor);
        if (mine && group == 0 && p.lse)
            *at.lse(p) = p.lse_base_2 ? row_lse : row_lse * ln_2;
    }
    __syncwarp();
    const unsigned from = staging + lane / 8 * cell;
    unsigned x[16][4]; // the output's registers are free: all rows are loaded at once
#pragma unroll
    for (int row = 0; row < 16; row++)
        if (w.tiles > 0)
            ld_shared_v4_u32(from + row * 128 + ((lane % 8 ^ row % 8) << 4), x[row][0], x[row][1], x[row][2],
                             x[row][3]);
        else
            x[row][0] = x[row][1] = x[row][2] = x[row][3] = 0;
#pragma unroll
    for (int row = 0; row < 16; row++) {
        unsigned short *const row_to =
            reinterpret_cast<unsigned short *>(__shfl_sync(0xffffffffu, reinterpret_cast<long long>(to), row));
        if (row < count)
            st_global_v4_u32(row_to + group * 256 + lane * 8, x[row]);
    }
}

} // namespace
