/*
 * A stage of Kimi Delta Attention prefill as an operator of its own, the first: gates
 * activated and cumulated over chunks, q and k normalized.
 *
 * A sequence is cut into chunks of 64 tokens from its own start. With x the raw gate
 * and g its activation (enum gen_kda_gate_form), per value head and channel,
 *
 *     gk_i = log2(e) * sum of g_l over the chunk's rows l <= i
 *
 * and with q, per token and query head, in fp32, rounded once:
 *
 *     rstd = 1 / sqrt(sum of squares + 1e-6),  q_norm = q rstd; k likewise
 */
#ifndef GEN_KDA_GATE_H
#define GEN_KDA_GATE_H

#include "gen.h"
#include "families/kda_chunk_intra/api.h" /* the stages' problem */
#include "kda/public.h"

enum gen_kda_gate_tag { GEN_KDA_GATE = 0x4b444741 /* "KDGA" */ };

typedef gen_kda_stage_problem gen_kda_gate_problem;

/* Device pointers (host pointers for the CPU backend), 16-byte aligned, but where
 * said otherwise. Rows of tokens that no sequence has are neither read nor written. */
typedef struct gen_kda_gate_args {
    gen_args base;             /* size, GEN_KDA_GATE */
    const void *g;             /* [tokens, num_v_heads, head_dim]; activated gates are finite */
    const float *A_log;        /* [num_v_heads], 4-byte aligned. NULL: exp(A_log) = 1; not with
                                  the softplus gate */
    const float *dt_bias;      /* [num_v_heads, head_dim]; NULL: 0 */
    const void *q;             /* [tokens, num_qk_heads, head_dim]; NULL: gates alone */
    const void *k;             /* [tokens, num_qk_heads, head_dim]; NULL where q is */
    const int32_t *cu_seqlens; /* [batch + 1], 4-byte aligned; NULL where num_tokens is 0 */
    float *gk;                 /* [tokens, num_v_heads, head_dim] */
    void *q_norm;              /* [tokens, num_qk_heads, head_dim]; NULL where q is */
    void *k_norm;              /* [tokens, num_qk_heads, head_dim]; NULL where q is */
    float *q_rstd;             /* [tokens, num_qk_heads], 4-byte aligned; NULL: not wanted, and
                                  where q is */
    float *k_rstd;             /* the same of k */
    /* Distance between tokens in elements, a multiple of 8; 0: packed. */
    int64_t g_stride, q_stride, k_stride;
    float lower_bound;            /* of the gate, -5 <= lower_bound < 0; -5 is usual */
    int32_t gate_form;            /* enum gen_kda_gate_form; x = g + dt_bias */
    const int64_t *cu_seqlens_64; /* cu_seqlens of 64 bits, in place of it; 8-byte aligned */
} gen_kda_gate_args;

#endif /* GEN_KDA_GATE_H */
