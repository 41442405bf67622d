/*
 * A stage of Kimi Delta Attention prefill as an operator of its own: w, u and kg again
 * (and qg), from the inverse that kda_chunk_intra left. With kda_chunk_intra.h's
 * names, for each chunk and value head:
 *
 *     w = A_kk (beta k 2^gk),  u = A_kk (beta v)
 *     qg = q 2^gk,  kg = k 2^(gk_last - gk)
 */
#ifndef GEN_KDA_RECOMPUTE_WU_H
#define GEN_KDA_RECOMPUTE_WU_H

#include "gen.h"
#include "families/kda_chunk_intra/api.h" /* the stages' problem */

enum gen_kda_recompute_wu_tag { GEN_KDA_RECOMPUTE_WU = 0x4b445257 /* "KDRW" */ };

typedef gen_kda_stage_problem gen_kda_recompute_wu_problem;

/* Device pointers (host pointers for the CPU backend), 16-byte aligned, but where
 * said otherwise. Rows of tokens that no sequence has are neither read nor written. */
typedef struct gen_kda_recompute_wu_args {
    gen_args base;             /* size, GEN_KDA_RECOMPUTE_WU */
    const void *q;             /* [tokens, num_qk_heads, head_dim]; NULL where qg is */
    const void *k;             /* [tokens, num_qk_heads, head_dim] */
    const void *v;             /* [tokens, num_v_heads, head_dim] */
    const float *gk;           /* [tokens, num_v_heads, head_dim], cumulated gates in base 2 */
    const void *beta;          /* [tokens, num_v_heads], aligned to its type */
    const void *a_kk;          /* [tokens, num_v_heads, 64], the inverse: zero above the diagonal */
    const int32_t *cu_seqlens; /* [batch + 1], 4-byte aligned; NULL where num_tokens is 0 */
    void *w;                   /* [tokens, num_v_heads, head_dim] */
    void *u;                   /* [tokens, num_v_heads, head_dim] */
    void *kg;                  /* [tokens, num_v_heads, head_dim]; NULL: not wanted */
    void *qg;                  /* [tokens, num_v_heads, head_dim]; NULL: not wanted */
    /* Distance between tokens in elements, a multiple of 8 (beta: any); 0: packed. */
    int64_t q_stride, k_stride, v_stride, beta_stride;
    const int64_t *cu_seqlens_64; /* cu_seqlens of 64 bits, in place of it; 8-byte aligned */
} gen_kda_recompute_wu_args;

#endif /* GEN_KDA_RECOMPUTE_WU_H */
