/*
 * A stage of the backward pass of Kimi Delta Attention as an operator of its own: gradients of raw
 * q, k and beta from those of what kda_chunk_intra takes. For q, and k likewise, per token and
 * query head, in fp32, rounded once:
 *
 *     dy  = sum of d_q_heads over the group's value heads, from the first to the last
 *     d_q = dy, or with qk_l2norm  rstd (dy - y (y . dy))
 *     rstd = 1 / sqrt(sum of squares of q + 1e-6),  y = q rstd, rounded as kda_gate rounds it
 *
 * and per token and value head, with s = 1 / (1 + exp(-beta)):
 *
 *     d_beta = d_beta_heads times 1 (given), s (1 - s) (sigmoid), 2 s (1 - s) (twice the sigmoid)
 */
#ifndef GEN_KDA_QK_BWD_H
#define GEN_KDA_QK_BWD_H

#include "gen.h"
#include "families/kda_chunk_intra/api.h" /* the stages' problem */
#include "kda/public.h"

enum gen_kda_qk_bwd_tag { GEN_KDA_QK_BWD = 0x4b445142 /* "KDQB" */ };

typedef gen_kda_stage_problem gen_kda_qk_bwd_problem;

/* Device pointers (host pointers for the CPU backend), 16-byte aligned, but where
 * said otherwise. Rows of tokens that no sequence has are neither read nor written. */
typedef struct gen_kda_qk_bwd_args {
    gen_args base;             /* size, GEN_KDA_QK_BWD */
    const void *q;             /* [tokens, num_qk_heads, head_dim], raw, or normalized where q_rstd
                                  is there; NULL without qk_l2norm, and where d_q is */
    const void *k;             /* the same */
    const float *q_rstd;       /* [tokens, num_qk_heads], 4-byte aligned, of kda_gate; NULL: of
                                  raw q */
    const float *k_rstd;       /* the same of k */
    const void *beta;          /* [tokens, num_v_heads], raw, aligned to its type; NULL where it is
                                  given, and where d_beta is */
    const float *d_q_heads;    /* [tokens, num_v_heads, head_dim]: d_q of kda_bwd_intra; NULL where
                                  d_q is */
    const float *d_k_heads;    /* the same of k */
    const float *d_beta_heads; /* [tokens, num_v_heads], 4-byte aligned; NULL where d_beta is */
    const int32_t *cu_seqlens; /* [batch + 1], 4-byte aligned; NULL where num_tokens is 0 */
    void *d_q;                 /* [tokens, num_qk_heads, head_dim], of q's type; NULL: not wanted */
    void *d_k;                 /* the same */
    void *d_beta;              /* [tokens, num_v_heads], of beta's type; NULL: not wanted */
    /* Distance between tokens in elements, a multiple of 8 (beta: any); 0: packed. */
    int64_t q_stride, k_stride, beta_stride, d_q_stride, d_k_stride, d_beta_stride;
    int32_t qk_l2norm;            /* 1: q and k were divided by their L2 norms */
    int32_t beta_form;            /* enum gen_kda_beta_form */
    const int64_t *cu_seqlens_64; /* cu_seqlens of 64 bits, in place of it; 8-byte aligned */
} gen_kda_qk_bwd_args;

#endif /* GEN_KDA_QK_BWD_H */
