/*
 * A stage of the backward pass of Kimi Delta Attention as an operator of its own: gradients of raw
 * gates, and of what all tokens share. With x = g + dt_bias, a = exp(A_log) (1 where it is NULL),
 * s = 1 / (1 + exp(-a x)), and dy the gradient of the activated gate, which is the sum of d_gk over
 * the row and the chunk's later ones where suffix_sum is 1, else d_gk itself:
 *
 *     GEN_KDA_GATE_GIVEN        d_g = dy
 *     GEN_KDA_GATE_SOFTPLUS     d_g = -a / (1 + exp(-x)) dy         y = -a log(1 + exp(x))
 *     GEN_KDA_GATE_LOWER_BOUND  d_g = lower_bound a s (1 - s) dy    y = lower_bound s
 *
 *     d_dt_bias = sum of d_g over all tokens
 *     d_A_log   = sum over all tokens and channels of dy y (softplus), of d_g x (lower bound)
 *
 * Sums take d_g before it is rounded, in an order that depends on the problem alone.
 */
#ifndef GEN_KDA_GATE_BWD_H
#define GEN_KDA_GATE_BWD_H

#include "gen.h"
#include "families/kda_chunk_intra/api.h" /* the stages' problem */
#include "kda/public.h"

enum gen_kda_gate_bwd_tag { GEN_KDA_GATE_BWD = 0x4b444742 /* "KDGB" */ };

/* Without tokens the sums are written all the same, as zeros. */
typedef gen_kda_stage_problem gen_kda_gate_bwd_problem;

/* Bytes of `partials`. Slots of chunks: batch * ceil(seq_len / 64), or num_tokens / 64 + batch. */
#define GEN_KDA_GATE_BWD_PARTIALS(slots, num_v_heads, head_dim) \
    ((int64_t)(num_v_heads) * (16 + 4 * (int64_t)(slots) * ((head_dim) + 4)))

/* Device pointers (host pointers for the CPU backend), 16-byte aligned, but where
 * said otherwise. Rows of tokens that no sequence has are neither read nor written. */
typedef struct gen_kda_gate_bwd_args {
    gen_args base;             /* size, GEN_KDA_GATE_BWD */
    const void *g;             /* [tokens, num_v_heads, head_dim], raw; NULL with a given gate */
    const float *A_log;        /* [num_v_heads], 4-byte aligned. NULL: exp(A_log) = 1; not with
                                  the softplus gate */
    const float *dt_bias;      /* [num_v_heads, head_dim]; NULL: 0 */
    const float *d_gk;         /* [tokens, num_v_heads, head_dim]: d_g of kda_bwd_intra, or its
                                  sums over rows */
    const int32_t *cu_seqlens; /* [batch + 1], 4-byte aligned; NULL where num_tokens is 0 */
    void *d_g;                 /* [tokens, num_v_heads, head_dim], of gate_dtype */
    float *d_A_log;            /* [num_v_heads], 4-byte aligned; NULL: not wanted, and where A_log
                                  is */
    float *d_dt_bias;          /* [num_v_heads, head_dim]; NULL: not wanted, and where dt_bias is */
    float *partials;           /* memory of GEN_KDA_GATE_BWD_PARTIALS bytes, which may hold
                                  anything before and is used by no other launch at the time:
                                  [slots, num_v_heads, head_dim + 4] shares of d_dt_bias and, behind
                                  them, of d_A_log; then 16 bytes a head that launches count in.
                                  NULL where both sums are */
    /* Distance between tokens in elements, a multiple of 8; 0: packed. */
    int64_t g_stride, d_g_stride;
    float lower_bound;  /* of the gate, -5 <= lower_bound < 0; -5 is usual */
    int32_t gate_form;  /* enum gen_kda_gate_form */
    int32_t suffix_sum; /* 1: d_gk is to be summed over a chunk's rows; 0: it was */
    int32_t pad;
    const int64_t *cu_seqlens_64; /* cu_seqlens of 64 bits, in place of it; 8-byte aligned */
} gen_kda_gate_bwd_args;

#endif /* GEN_KDA_GATE_BWD_H */
