// Packed rows of attn_paged: where they lie, what their scores are multiplied by, and what of a row is left to do in the end.
#pragma once

#include "attn_paged/line.cuh"
#include "lib/divide.cuh"
#include "lib/ptx/ldst.cuh"
#include "lib/ptx/math.cuh"

// Where a packed row lies: token of the batch and head.
struct paged_row {
    long long token, head;

    __device__ __forceinline__ paged_row(const gen_attn_paged_params &p, const paged_piece &piece, int row)
    {
        const unsigned packed = piece.row + row, t = quotient(packed, p.group_mul, p.group_shift);
        token = piece.first_token + static_cast<int>(t);
        head = piece.head * p.group + static_cast<int>(packed - t * p.group);
    }
};

// Of all scores of a piece; to base 2, or with softcap what args.h says.
__device__ __forceinline__ float paged_scale_of(const gen_attn_paged_params &p, const paged_piece &piece)
{
    float scale = p.scale_log2;
    if (p.q_descale)
        scale *= ld_global(p.q_descale + piece.request * p.q_descale_batch + piece.head * p.q_descale_head);
    if (p.k_descale)
        scale *= ld_global(p.k_descale + piece.request * p.k_descale_batch + piece.head * p.k_descale_head);
    return scale;
}

// 2^(x - maximum), 0 for an x of -infinity whatever the maximum.
__device__ __forceinline__ float paged_weight(float x, float maximum)
{
    return x == minus_infinity() ? 0.f : exp2_fast(x - maximum);
}

// A row's output factor, and its log-sum-exp where this lane is the one to write it; `lse` is that of the keys, to base 2.
__device__ __forceinline__ float paged_finish_row(const gen_attn_paged_params &p, const paged_piece &piece, int row,
                                                  float lse, bool writes)
{
    float factor = 1.f;
    const paged_row at(p, piece, row);
    if (p.v_descale)
        factor = ld_global(p.v_descale + piece.request * p.v_descale_batch + piece.head * p.v_descale_head);
    float told = lse;
    if (p.sink) {
        const float sink = ld_global(p.sink + at.head) * log2_e, most = fmaxf(sink, lse);
        const float keys = paged_weight(lse, most), all = keys + paged_weight(sink, most);
        factor *= all == 0.f ? 0.f : keys / all;
        if (p.lse_sink)
            told = all == 0.f ? minus_infinity() : most + log2f(all);
    }
    if (writes && p.lse)
        p.lse[at.token * p.lse_token + at.head * p.lse_head] = p.lse_base_2 ? told : told * ln_2;
    return factor;
}
