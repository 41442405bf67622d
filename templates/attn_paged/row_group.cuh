// attn_paged by groups of four warps with 64 rows, accumulators as of wgmma: which keys count, and the end of a piece. The template gives S,
// block_state and consumers_barrier.
#pragma once

#include "attn_fwd/tiles.cuh"
#include "attn_paged/arrive.cuh"
#include "attn_paged/rows.cuh"
#include "lib/half.cuh"
#include "lib/ptx/ldst_cg.cuh"
#include "lib/ptx/sync.cuh"
#include "lib/transpose.cuh"

namespace {

// Of the unit's rows: the first of the group's. With causality later ones see more keys, so of a CTA pair the first block has
// the first and the last ones: each has one group that is done early.
__device__ __forceinline__ int first_row_of(int group)
{
    static_assert(S::blocks == 1 || (S::blocks == 2 && S::groups == 2), "four groups of rows");
    return 64 * (S::blocks == 1 ? group : blockIdx.x % 2 ? group + 1 : 3 * group);
}

// Where the arrivals are counted of the blocks that have these rows of units.
__device__ __forceinline__ unsigned long long *tickets_of(const gen_attn_paged_params &p)
{
    if constexpr (S::blocks == 1)
        return p.tickets;
    return p.tickets + static_cast<long long>(blockIdx.x % S::blocks) * (GEN_ATTN_PAGED_LEVELS * p.line.num_parts);
}

struct group_state {
    float s[S::keys / 2]; // scores of the block at work
    float o[S::v_dim / 2];
    unsigned packed[S::keys / 4]; // probabilities
    attn_rows_state r;
};

// What decides which keys count for the thread's two rows and for all of the group's.
struct group_masks {
    int from[2], end[2], whole_from, whole_end;

    __device__ __forceinline__ group_masks(const gen_attn_paged_params &p, const paged_piece &piece, int group)
    {
        const int begin = first_row_of(group), row = begin + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
        const int first = own_key(p, piece, begin), last = own_key(p, piece, begin + 63);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int key = own_key(p, piece, row + 8 * h);
            end[h] = p.causal ? min(piece.kv_len, key + 1) : piece.kv_len;
            from[h] = p.left_window ? key - p.left_window + 1 : 0;
        }
        whole_end = p.causal ? min(piece.kv_len, first + 1) : piece.kv_len;
        whole_from = p.left_window ? last - p.left_window + 1 : 0;
    }

    __device__ __forceinline__ static int own_key(const gen_attn_paged_params &p, const paged_piece &piece, int row)
    {
        return piece.kv_len - piece.tokens + static_cast<int>(quotient(piece.row + row, p.group_mul, p.group_shift));
    }
};

// What scores are multiplied by, above 0 as the softmax wants it; a factor below 0 changes their signs before.
struct group_scale {
    float scale;
    bool negative;

    __device__ __forceinline__ group_scale(const gen_attn_paged_params &p, const paged_piece &piece)
    {
        const float x = paged_scale_of(p, piece);
        negative = x < 0.f;
        scale = fmaxf(fabsf(x), 1e-30f);
    }
};

// Scores of block `j` as they count.
__device__ __forceinline__ void mask_scores(const gen_attn_paged_params &p, const group_masks &m,
                                            const group_scale &scale, float (&s)[S::keys / 2], int j)
{
    if (scale.negative)
#pragma unroll
        for (int i = 0; i < S::keys / 2; i++)
            s[i] = -s[i];
    if (p.cap_log2 != 0.f)
#pragma unroll
        for (int i = 0; i < S::keys / 2; i++)
            s[i] = fmaf(-2.f, rcp_fast(1.f + exp2_fast(s[i] * scale.scale)), 1.f);
    const int key = j * S::keys;
    if (key < m.whole_from || key + S::keys > m.whole_end)
        attn_mask_outside<mask_any>(s, key, m.from, m.end);
}

// ---- the end of a piece ----

// Gives what rows have, times a factor, to the outputs or, where slot >= 0, to a slot. `lse`: to base 2.
__device__ __forceinline__ void give(const gen_attn_paged_params &p, const paged_piece &piece, int group, int slot,
                                     const float (&o)[S::v_dim / 2], float (&factor)[2], const float (&lse)[2])
{
    const int begin = first_row_of(group);
    const int quarter = threadIdx.x % 4, first = begin + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
    if (slot >= 0) {
        float *const to = p.partial +
                          (static_cast<long long>(slot) * (S::tile_rows / 64) + begin / 64) * (64 * S::v_dim) +
                          threadIdx.x % 128 * 4;
#pragma unroll
        for (int i = 0; i < S::v_dim / 8; i++)
            st_global_v4_f32<false>(to + i * 512, make_float4(o[4 * i] * factor[0], o[4 * i + 1] * factor[0],
                                                              o[4 * i + 2] * factor[1], o[4 * i + 3] * factor[1]));
#pragma unroll
        for (int h = 0; h < 2; h++)
            if (quarter == 0)
                p.partial_lse[static_cast<long long>(slot) * S::tile_rows + first + 8 * h] = lse[h];
        return;
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int row = first + 8 * h;
        const bool mine = row < piece.rows;
        if (mine)
            factor[h] *= paged_finish_row(p, piece, row, lse[h], quarter == 0);
        const paged_row at(p, piece, mine ? row : 0);
        unsigned short *const to =
            static_cast<unsigned short *>(p.o) + at.token * p.o_token + at.head * p.o_head + quarter * 8;
#pragma unroll
        for (int i = 0; i < S::v_dim / 2; i += 16) {
            unsigned x[4];
#pragma unroll
            for (int k = 0; k < 4; k++)
                x[k] = pack2<element>(o[i + 4 * k + 2 * h] * factor[h], o[i + 4 * k + 2 * h + 1] * factor[h]);
            transpose_quad(x);
            if (mine)
                st_global_v4_u32(to + i * 2, x);
        }
    }
}

// Adds up `count` partial results (arrive.cuh).
__device__ __forceinline__ void merge(const gen_attn_paged_params &p, const paged_piece &piece,
                                      const paged_pieces &pieces, int group, int first, int step, int count, int slot,
                                      float (&o)[S::v_dim / 2])
{
    const int begin = first_row_of(group), row = begin + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
    float top[2], sum[2] = {0.f, 0.f}, lse[2], factor[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        top[h] = minus_infinity();
        for (int k = 0; k < count; k++)
            top[h] = fmaxf(top[h], ld_global_cg(p.partial_lse +
                                                static_cast<long long>(pieces.slot(first + k * step)) * S::tile_rows +
                                                row + 8 * h));
    }
#pragma unroll
    for (int i = 0; i < S::v_dim / 2; i++)
        o[i] = 0.f;
#pragma unroll 1
    for (int k = 0; k < count; k++) {
        const long long from = pieces.slot(first + k * step);
        float weight[2];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            weight[h] = paged_weight(ld_global_cg(p.partial_lse + from * S::tile_rows + row + 8 * h), top[h]);
            sum[h] += weight[h];
        }
        constexpr int batch = 8; // loads under way
#pragma unroll
        for (int at = 0; at < S::v_dim / 8; at += batch) {
            float4 x[batch];
#pragma unroll
            for (int i = 0; i < batch; i++)
                x[i] = ld_global_cg_v4_f32(p.partial + (from * (S::tile_rows / 64) + begin / 64) * (64 * S::v_dim) +
                                           (at + i) * 512 + threadIdx.x % 128 * 4);
#pragma unroll
            for (int i = 0; i < batch; i++) {
                float *const to = o + 4 * (at + i);
                to[0] = fmaf(weight[0], x[i].x, to[0]);
                to[1] = fmaf(weight[0], x[i].y, to[1]);
                to[2] = fmaf(weight[1], x[i].z, to[2]);
                to[3] = fmaf(weight[1], x[i].w, to[3]);
            }
        }
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        lse[h] = sum[h] == 0.f ? minus_infinity() : top[h] + log2f(sum[h]);
        factor[h] = sum[h] == 0.f ? 0.f : 1.f / sum[h];
    }
    __syncwarp(); // of a group the sum takes the place of its first piece
    give(p, piece, group, slot, o, factor, lse);
}

// The piece's partial results are in its slot.
__device__ __forceinline__ void join(const gen_attn_paged_params &p, const block_state &b, const paged_piece &piece,
                                     int part, int group, float (&o)[S::v_dim / 2])
{
    const paged_pieces pieces = b.c->pieces[piece.slot == 2 * part ? 0 : 1];
    const auto arrives = [&](unsigned long long *tickets, int count) {
        return paged_arrives_last(tickets, count, threadIdx.x == 0, b.c->last,
                                  [] { barrier_sync(consumers_barrier, 128 * S::groups); });
    };
    paged_add_up(tickets_of(p), p.line, part, pieces, arrives, [&](int first, int step, int count, int slot) {
        if (first_row_of(group) < piece.rows)
            merge(p, piece, pieces, group, first, step, count, slot, o);
    });
}

// What the thread's rows have of a piece, `some` of its keys at all: a factor of the outputs, and log-sum-exps to base 2.
__device__ __forceinline__ void finish_rows(group_state &g, bool some, float (&factor)[2], float (&lse)[2])
{
    if (!some)
#pragma unroll
        for (int i = 0; i < S::v_dim / 2; i++)
            g.o[i] = 0.f;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float sum = g.r.sum[h] + __shfl_xor_sync(0xffffffffu, g.r.sum[h], 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        factor[h] = sum != 0.f ? 1.f / sum : 0.f; // NaN, too
        lse[h] = sum != 0.f ? log2f(sum) - g.r.neg_max[h] : minus_infinity();
    }
}

__device__ __forceinline__ void end_rows(const gen_attn_paged_params &p, const paged_piece &piece, int group, bool some,
                                         group_state &g)
{
    float factor[2], lse[2];
    finish_rows(g, some, factor, lse);
    give(p, piece, group, piece.slot, g.o, factor, lse);
}

} // namespace
