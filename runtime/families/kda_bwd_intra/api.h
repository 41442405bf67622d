/*
 * A stage of the backward pass of Kimi Delta Attention as an operator of its own: what the scores'
 * gradients (kda_bwd_dav, kda_bwd_wy) make of a chunk's inputs, added to what kda_bwd_wy made of
 * them. With rows i, j of a chunk, E[i,j] = 2^(gk_i - gk_j) per channel, and outputs as sums:
 *
 *     a_i     = sum over j < i  of d_a_kk[i,j] k_j E[i,j]
 *     d_row   = beta_i a_i
 *     d_col_i = sum over j >= i of d_a_qk[j,i] q_j E[j,i]
 *             + sum over j > i  of d_a_kk[j,i] beta_j k_j E[j,i]
 *     d_q_i   = sum over j <= i of d_a_qk[i,j] k_j E[i,j]
 *     d_k     = d_row + d_col
 *     d_beta  = rowsum(k a)
 *     d_g     = q d_q + k (d_row - d_col)
 *
 * d_g is of gk in natural units, not summed over rows yet (kda_gate_bwd). Most of it cancels there,
 * so the kernels form it of operands as they were rounded for the products, and keep the diagonal
 * of d_a_qk, which cancels within a row, out of it.
 */
#ifndef GEN_KDA_BWD_INTRA_H
#define GEN_KDA_BWD_INTRA_H

#include "gen.h"
#include "families/kda_chunk_intra/api.h" /* the stages' problem */
#include "kda/public.h"

enum gen_kda_bwd_intra_tag { GEN_KDA_BWD_INTRA = 0x4b444249 /* "KDBI" */ };

/* safe_gate: 1: no gate is below -5; 0: any gates, slower. */
typedef gen_kda_stage_problem gen_kda_bwd_intra_problem;

/* Device pointers (host pointers for the CPU backend), 16-byte aligned, but where
 * said otherwise. Rows of tokens that no sequence has are neither read nor written. */
typedef struct gen_kda_bwd_intra_args {
    gen_args base;              /* size, GEN_KDA_BWD_INTRA */
    const void *q;              /* [tokens, num_qk_heads, head_dim], normalized */
    const void *k;              /* [tokens, num_qk_heads, head_dim], normalized */
    const float *gk;            /* [tokens, num_v_heads, head_dim] */
    const void *beta;           /* [tokens, num_v_heads], aligned to its type, activated */
    const float *d_a_qk;        /* [tokens, num_v_heads, 64]; not used above the diagonal */
    const float *d_a_kk;        /* [tokens, num_v_heads, 64]; not used on and above the diagonal */
    const float *d_q_states;    /* [tokens, num_v_heads, head_dim]: d_q of kda_bwd_wy */
    const float *d_k_states;    /* d_k of kda_bwd_wy */
    const float *d_beta_states; /* [tokens, num_v_heads], 4-byte aligned: d_beta of kda_bwd_wy */
    const float *d_g_states;    /* [tokens, num_v_heads, head_dim]: d_g of kda_bwd_wy */
    const int32_t *cu_seqlens;  /* [batch + 1], 4-byte aligned; NULL where num_tokens is 0 */
    float *d_q;                 /* [tokens, num_v_heads, head_dim], of each value head by itself.
                                   It and the next three may be the inputs of their kind */
    float *d_k;                 /* the same */
    float *d_beta;              /* [tokens, num_v_heads], 4-byte aligned */
    float *d_g;                 /* [tokens, num_v_heads, head_dim] */
    const int64_t *cu_seqlens_64; /* cu_seqlens of 64 bits, in place of it; 8-byte aligned */
} gen_kda_bwd_intra_args;

#endif /* GEN_KDA_BWD_INTRA_H */
