// The stream kernel of attn_paged: one tile of keys and values in a warp. Scores are queries times keys (rows, keys),
// outputs values times probabilities (columns, rows): the accumulators of the scores are the second product's operands as
// they are. Row r of the warp is element i = 2 (r / 8 % 2) + ... of score tile r / 16 in lanes 4 (r % 8) to 4 (r % 8) + 3.
#pragma once

#include "attn_paged/copy.cuh"
#include "lib/e4m3.cuh"
#include "lib/ptx/ldst.cuh"
#include "lib/ptx/math.cuh"
#include "lib/ptx/mma.cuh"
#include "lib/swizzle.cuh"

// What a warp has of a piece.
template <class S> struct paged_state {
    float o[S::dim_tiles][S::halves][4];
    float reference[S::halves];                 // of the exponents, of row lane / 4 of each half, to base 2
    float rounded[S::halves], exact[S::halves]; // sums of probabilities, of the lane's keys: as multiplied, and in fp32
    float factor[S::halves];                    // of raw scores
    int whole_from, whole_end;                  // keys that count for all rows of the tile
    unsigned q[S::keeps_queries ? S::dim / 16 : 1][S::query_registers];
};

template <class S>
__device__ __forceinline__ void paged_load_queries(unsigned queries, int step, unsigned (&q)[S::query_registers])
{
    const unsigned lane = threadIdx.x % 32, row = threadIdx.x / 32 % S::team * S::rows;
    if constexpr (S::rows == 8)
        ldmatrix_x2(q, swizzled<S::dim * 2>(queries, row + lane % 8, 2 * step + lane / 8 % 2));
    else
        ldmatrix_x4(q, swizzled<S::dim * 2>(queries, row + lane % 16, 2 * step + lane / 16));
}

// `scale`: of all scores of the piece; `factors`: in shared memory, of queries that were scaled to fit.
template <class S>
__device__ __forceinline__ void paged_begin_state(const gen_attn_paged_params &p, const paged_piece &piece,
                                                  unsigned queries, const float *factors, float scale,
                                                  paged_state<S> &s)
{
#pragma unroll
    for (int i = 0; i < S::dim_tiles * S::halves * 4; i++)
        (&s.o[0][0][0])[i] = 0.f;
    const int before = piece.kv_len - piece.tokens, base = threadIdx.x / 32 % S::team * S::rows;
#pragma unroll
    for (int h = 0; h < S::halves; h++) {
        const int row = base + 8 * h + static_cast<int>(threadIdx.x % 32 / 4);
        s.reference[h] = minus_infinity();
        s.rounded[h] = s.exact[h] = 0.f;
        s.factor[h] = S::e4m3 ? scale * factors[row] : scale;
    }
    const int first = before + static_cast<int>(quotient(piece.row, p.group_mul, p.group_shift));
    const int last = before + static_cast<int>(quotient(piece.row + piece.rows - 1, p.group_mul, p.group_shift));
    s.whole_end = p.causal ? min(piece.kv_len, first + 1) : piece.kv_len;
    s.whole_from = p.left_window ? last - p.left_window + 1 : 0;
    if constexpr (S::keeps_queries)
#pragma unroll
        for (int step = 0; step < S::dim / 16; step++)
            paged_load_queries<S>(queries, step, s.q[step]);
}

// Raw scores of the warp's rows and a tile of keys.
template <class S> struct paged_scores {
    float x[S::row_tiles][2 * S::steps][4];
    float odd[S::row_tiles][2 * S::steps][4]; // of every other step: two chains of products are done sooner than one
};

template <class S>
__device__ __forceinline__ void paged_multiply_keys(float (&x)[S::row_tiles][2 * S::steps][4], int tile, unsigned b0,
                                                    unsigned b1, const unsigned (&q)[S::row_tiles][4])
{
#pragma unroll
    for (int m = 0; m < S::row_tiles; m++)
        mma_m16n8k16<typename S::operand>(x[m][tile], q[m], b0, b1);
}

template <class S>
__device__ __forceinline__ void paged_queries_of(const paged_state<S> &s, unsigned queries, int step,
                                                 unsigned (&q)[S::row_tiles][4])
{
    if constexpr (S::rows == 8) {
        unsigned own[2];
        if constexpr (S::keeps_queries)
            own[0] = s.q[step][0], own[1] = s.q[step][1];
        else
            paged_load_queries<S>(queries, step, own);
        q[0][0] = own[0];
        q[0][1] = 0; // rows that there are not
        q[0][2] = own[1];
        q[0][3] = 0;
    } else if constexpr (S::keeps_queries) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            q[0][i] = s.q[step][i];
    } else {
#pragma unroll
        for (int m = 0; m < S::row_tiles; m++)
            paged_load_queries<S>(queries + m * 16 * S::dim * 2, step, q[m]);
    }
}

template <class S>
__device__ __forceinline__ void paged_multiply_queries(const paged_state<S> &s, unsigned queries, unsigned stage,
                                                       paged_scores<S> &scores)
{
    const unsigned lane = threadIdx.x % 32;
    const unsigned k = swizzled<S::pitch>(stage, lane % 8 + lane / 16 * 8, lane / 8 % 2);
#pragma unroll
    for (int i = 0; i < S::row_tiles * 2 * S::steps * 4; i++)
        (&scores.x[0][0][0])[i] = (&scores.odd[0][0][0])[i] = 0.f;
#pragma unroll
    for (int c = 0; c < S::chunks / 2; c++) {
        unsigned keys[S::steps][4];
#pragma unroll
        for (int n = 0; n < S::steps; n++)
            ldmatrix_x4(keys[n], (k ^ (c % 4 * 32)) + c / 4 * 128 + n * 16 * S::pitch);
        unsigned q[S::row_tiles][4];
        if constexpr (S::e4m3) { // 16 columns a chunk, of which a lane has four, as queries are permuted
#pragma unroll
            for (int part = 0; part < 2; part++) {
                paged_queries_of<S>(s, queries, 2 * c + part, q);
#pragma unroll
                for (int n = 0; n < S::steps; n++)
#pragma unroll
                    for (int h = 0; h < 2; h++) {
                        unsigned b0, b1;
                        e4m3_pairs<typename S::operand>(keys[n][2 * h + part], b0, b1);
                        paged_multiply_keys<S>(S::chains > 1 && part ? scores.odd : scores.x, 2 * n + h, b0, b1, q);
                    }
            }
        } else {
            paged_queries_of<S>(s, queries, c, q);
#pragma unroll
            for (int n = 0; n < S::steps; n++)
#pragma unroll
                for (int h = 0; h < 2; h++)
                    paged_multiply_keys<S>(S::chains > 1 && c % 2 ? scores.odd : scores.x, 2 * n + h, keys[n][2 * h],
                                           keys[n][2 * h + 1], q);
        }
    }
}

template <class S> __device__ __forceinline__ void paged_join_chains(paged_scores<S> &scores)
{
    if constexpr (S::chains > 1)
#pragma unroll
        for (int i = 0; i < S::row_tiles * 2 * S::steps * 4; i++)
            (&scores.x[0][0][0])[i] += (&scores.odd[0][0][0])[i];
}

// Element of the scores of half h: keys 8 t + 2 (lane % 4) + i of the tile.
template <class S> __device__ __forceinline__ float &paged_score(paged_scores<S> &scores, int h, int t, int i)
{
    return scores.x[h / 2][t][h % 2 * 2 + i];
}

// To base 2, capped, and -infinity where a key does not count. The lane's greatest of each half comes in `top`.
template <class S>
__device__ __forceinline__ void paged_scale(const gen_attn_paged_params &p, const paged_piece &piece,
                                            const paged_state<S> &s, int first, paged_scores<S> &scores,
                                            float (&top)[S::halves])
{
    const bool masked = first < s.whole_from || first + S::keys > s.whole_end;
#pragma unroll
    for (int h = 0; h < S::halves; h++) {
        top[h] = minus_infinity();
#pragma unroll
        for (int t = 0; t < 2 * S::steps; t++)
#pragma unroll
            for (int i = 0; i < 2; i++)
                paged_score<S>(scores, h, t, i) *= s.factor[h];
    }
    // tanh(x) = 1 - 2 / (1 + e^2x): the instruction for tanh is off by 2^-11, times the cap.
    if (p.cap_log2 != 0.f)
#pragma unroll
        for (int h = 0; h < S::halves; h++)
#pragma unroll
            for (int t = 0; t < 2 * S::steps; t++)
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    float &x = paged_score<S>(scores, h, t, i);
                    x = p.cap_log2 * (1.f - 2.f * rcp_fast(1.f + exp2_fast(x)));
                }
    if (masked)
#pragma unroll
        for (int h = 0; h < S::halves; h++) {
            const int row = piece.row + threadIdx.x / 32 % S::team * S::rows + 8 * h + threadIdx.x % 32 / 4;
            const int key = piece.kv_len - piece.tokens + static_cast<int>(quotient(row, p.group_mul, p.group_shift));
            const int end = p.causal ? min(piece.kv_len, key + 1) : piece.kv_len;
            const int from = p.left_window ? key - p.left_window + 1 : 0;
#pragma unroll
            for (int t = 0; t < 2 * S::steps; t++)
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    const int at = first + 8 * t + static_cast<int>(threadIdx.x % 4) * 2 + i;
                    if (at < from || at >= end)
                        paged_score<S>(scores, h, t, i) = minus_infinity();
                }
        }
#pragma unroll
    for (int h = 0; h < S::halves; h++)
#pragma unroll
        for (int t = 0; t < 2 * S::steps; t++)
#pragma unroll
            for (int i = 0; i < 2; i++)
                top[h] = fmaxf(top[h], paged_score<S>(scores, h, t, i));
}

// The references follow what is 2^8 above them: probabilities stay far below fp16's greatest number, and outputs are seldom
// scaled anew.
template <class S> __device__ __forceinline__ void paged_follow(const float (&lane_top)[S::halves], paged_state<S> &s)
{
    bool moves = false;
#pragma unroll
    for (int h = 0; h < S::halves; h++)
        moves |= lane_top[h] > s.reference[h] + 8.f;
    if (!__any_sync(0xffffffffu, moves))
        return;
#pragma unroll
    for (int h = 0; h < S::halves; h++) {
        float top = lane_top[h];
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
        const float now = fmaxf(top, s.reference[h]);
        const float factor = s.reference[h] == minus_infinity() ? 0.f : exp2_fast(s.reference[h] - now);
        s.reference[h] = now;
        s.rounded[h] *= factor;
        s.exact[h] *= factor;
        const int from = threadIdx.x % 4 * 8; // the lanes that have the rows of the lane's outputs
        const float even = __shfl_sync(0xffffffffu, factor, from), odd = __shfl_sync(0xffffffffu, factor, from + 4);
#pragma unroll
        for (int m = 0; m < S::dim_tiles; m++) {
            s.o[m][h][0] *= even;
            s.o[m][h][1] *= odd;
            s.o[m][h][2] *= even;
            s.o[m][h][3] *= odd;
        }
    }
}

// Probabilities as operands of the products with values: b[step][half][0 or 1].
template <class S>
__device__ __forceinline__ void paged_exponentials(paged_scores<S> &scores, paged_state<S> &s,
                                                   unsigned (&b)[S::steps][S::halves][2])
{
    using T = typename S::operand;
#pragma unroll
    for (int h = 0; h < S::halves; h++) {
        const float reference = s.reference[h] == minus_infinity() ? 0.f : s.reference[h];
#pragma unroll
        for (int t = 0; t < 2 * S::steps; t++) {
            const float lo = exp2_fast(paged_score<S>(scores, h, t, 0) - reference);
            const float hi = exp2_fast(paged_score<S>(scores, h, t, 1) - reference);
            const unsigned pair = pack2<T>(lo, hi);
            s.exact[h] += lo + hi;
            if constexpr (S::both_sums) {
                const float2 kept = to_float2<T>(pair);
                s.rounded[h] += kept.x + kept.y;
            }
            b[t / 2][h][t % 2] = pair;
        }
    }
}

template <class S>
__device__ __forceinline__ void paged_multiply_values(unsigned stage, const unsigned (&b)[S::steps][S::halves][2],
                                                      paged_state<S> &s)
{
    const unsigned lane = threadIdx.x % 32;
    const unsigned v = swizzled<S::pitch>(stage + S::keys * S::pitch, lane % 8 + lane / 16 * 8, lane / 8 % 2);
#pragma unroll
    for (int n = 0; n < S::steps; n++)
#pragma unroll
        for (int c = 0; c < S::chunks / 2; c++) {
            unsigned values[4];
            ldmatrix_x4_trans(values, (v ^ (c % 4 * 32)) + c / 4 * 128 + n * 16 * S::pitch);
            if constexpr (S::e4m3) {
#pragma unroll
                for (int part = 0; part < 2; part++) { // row r of a column tile is column 2 (r % 8) + r / 8
                    unsigned a[4];
                    e4m3_pairs<typename S::operand>(values[part], a[0], a[1]);
                    e4m3_pairs<typename S::operand>(values[2 + part], a[2], a[3]);
#pragma unroll
                    for (int h = 0; h < S::halves; h++)
                        mma_m16n8k16<typename S::operand>(s.o[2 * c + part][h], a, b[n][h][0], b[n][h][1]);
                }
            } else {
#pragma unroll
                for (int h = 0; h < S::halves; h++)
                    mma_m16n8k16<typename S::operand>(s.o[c][h], values, b[n][h][0], b[n][h][1]);
            }
        }
}

// Adds a tile of keys, the first of which is `first`.
template <class S>
__device__ __forceinline__ void paged_add_tile(const gen_attn_paged_params &p, const paged_piece &piece,
                                               unsigned queries, unsigned stage, int first, paged_state<S> &s)
{
    paged_scores<S> scores;
    float top[S::halves];
    unsigned b[S::steps][S::halves][2];
    paged_multiply_queries<S>(s, queries, stage, scores);
    paged_join_chains(scores);
    paged_scale<S>(p, piece, s, first, scores, top);
    paged_follow<S>(top, s);
    paged_exponentials<S>(scores, s, b);
    paged_multiply_values<S>(stage, b, s);
}
