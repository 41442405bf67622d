// The Hopper kernel of mla_decode: results of a piece, on their way from registers through shared memory.
#pragma once

#include "mla_decode/wgmma_group.cuh"
#include "lib/approx.cuh"

namespace {

// Of four matrices of 8 x 8, lanes 8 i onwards tell where the rows of matrix i go: rows + 8 (i % 2), chunk of 16 bytes + i / 2. These are the
// warp's 16 rows and 16 columns, 8 `tile` onwards, 16 bits each.
template <class T> __device__ __forceinline__ void stage_columns(const group_state &g, unsigned to, int tile, const float (&factor)[2])
{
    unsigned x[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float *const o = &g.o[4 * (tile + i / 2) + 2 * (i % 2)];
        x[i] = pack2<T>(o[0] * factor[i % 2], o[1] * factor[i % 2]);
    }
    stmatrix_x4(to, x);
}

// Each cell's exponents of the lane's two rows, a byte each, and what the cells are multiplied by for a partial result.
__device__ __forceinline__ void scale_partial(const group_state &g, const float (&factor)[2], float (&up)[4][2], unsigned (&exponents)[2])
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
    for (int n = 0; n < 4; n++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const unsigned exponent = mla_exponent(most[n][h] * factor[h]);
            exponents[h] |= exponent << 8 * n;
            up[n][h] = factor[h] * mla_scale_up(exponent);
        }
}

// The group's columns of the warp's 16 rows, 32 at a time through the warp's own place: 64 bytes a row, chunks of 16 swizzled for the
// banks. A lane stores 16 bytes of rows lane / 4 and lane / 4 + 8, to `to`, where they are `valid`; zeros of a piece without `tiles`.
template <class T>
__device__ __forceinline__ void store_rows(const group_state &g, unsigned place, const float (&factor)[4][2], bool tiles,
                                           unsigned short *const (&to)[2], const bool (&valid)[2])
{
    const int lane = threadIdx.x % 32, row = lane % 16;
    const unsigned in = place + row * 64, swizzle = row / 2 % 4 ^ lane / 16;
    const unsigned out = place + lane / 4 * 64 + ((lane % 4 ^ lane / 8) << 4);
#pragma unroll
    for (int columns = 0; columns < 8; columns++) {
#pragma unroll
        for (int i = 0; i < 2; i++)
            stage_columns<T>(g, in + ((2 * i ^ swizzle) << 4), 4 * columns + 2 * i, factor[columns / 2]);
        __syncwarp();
        unsigned x[2][4];
#pragma unroll
        for (int h = 0; h < 2; h++)
            load_shared_16(out + h * 512, x[h][0], x[h][1], x[h][2], x[h][3]);
        __syncwarp();
#pragma unroll
        for (int h = 0; h < 2; h++) {
#pragma unroll
            for (int i = 0; i < 4; i++)
                x[h][i] = tiles ? x[h][i] : 0;
            if (valid[h])
                store_global_16(to[h] + columns * 32, x[h]);
        }
    }
}

// A piece whose output is not yet written.
struct pending_piece {
    block_piece w;
    float inverse[2], lse[2]; // of the thread's rows: 1 / sum, to base 2
    bool any;
};

// The rows' output and log-sum-exp, or the piece's part of them.
__device__ __forceinline__ void write_rows(const gen_mla_decode_params &p, const block_state &b, const pending_piece &pending,
                                           const group_state &g, int group)
{
    const block_piece &w = pending.w;
    const int lane = threadIdx.x % 32, first = mla_uniform(threadIdx.x % 128 / 32 * 16); // of the warp's 16 rows
    if (first >= w.num_rows)
        return;
    const unsigned place = b.turning() + threadIdx.x / 32 * turning_bytes;
    const int columns = group * 256 + lane % 4 * 8;
    float factor[4][2];
    const float (&lse)[2] = pending.lse;
    unsigned short *to[2];
    bool valid[2];
    int packed[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        factor[0][h] = pending.inverse[h];
        const int row = first + lane / 4 + 8 * h;
        valid[h] = row < w.num_rows;
        packed[h] = w.first_row + min(row, w.num_rows - 1);
    }
    if (w.piece.slot >= 0) {
        const float once[2] = {factor[0][0], factor[0][1]};
        unsigned exponents[2];
        scale_partial(g, once, factor, exponents);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const long long index = static_cast<long long>(w.piece.slot) * (p.q_len * p.num_heads) + packed[h];
            to[h] = p.partial + index * latent + columns;
            gen_mla_partial_row *const at = p.partial_rows + index;
            if (valid[h] && lane % 4 == 0) {
                at->exponents[group] = static_cast<int>(exponents[h]);
                if (group == 0)
                    at->lse = lse[h];
            }
        }
        store_rows<fp16>(g, place, factor, w.tiles > 0, to, valid);
    } else {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const mla_row at(p, w.tokens, packed[h]);
            to[h] = at.o(p) + columns;
            if (valid[h] && lane % 4 == 0 && group == 0 && p.lse)
                *at.lse(p) = p.lse_base_2 ? lse[h] : lse[h] * 0.693147180559945309f;
#pragma unroll
            for (int n = 1; n < 4; n++)
                factor[n][h] = factor[0][h];
        }
        store_rows<element>(g, place, factor, w.tiles > 0, to, valid);
    }
}

} // namespace
