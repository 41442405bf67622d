/*
 * A stage of the backward pass of Kimi Delta Attention as an operator of its own: what the states'
 * gradients, the outputs' and the corrected values' make of a chunk's inputs, but for the scores.
 * With the forward stages' names, h the state in front of the chunk, d_h the gradient of the one
 * behind it (kda_bwd_dhu), and e = 2^gk,
 *
 *     d_r    = A_kk' d_v_new                       d_v  = beta d_r
 *     d_a_kk = -d_r v_new' below the diagonal      d_q  = scale (d_o h') e
 *     d_w    = -beta (d_r h') e                    d_kg = (v_new d_h') 2^(gk_last - gk)
 *     d_k    = d_w + d_kg
 *     d_beta = rowsum(d_r v) - rowsum((d_r h') k e)
 *     d_g    = q d_q + k (d_w - d_kg), and in the chunk's last row besides
 *              2^gk_last rowsum_V(h d_h) + the sum of k d_kg over the chunk's rows
 *
 * d_a_kk is the gradient of A, of which A_kk is the inverse of I + A; d_g of gk in natural units,
 * not summed over rows yet.
 */
#ifndef GEN_KDA_BWD_WY_H
#define GEN_KDA_BWD_WY_H

#include "gen.h"
#include "families/kda_chunk_intra/api.h" /* the stages' problem */
#include "kda/public.h"

enum gen_kda_bwd_wy_tag { GEN_KDA_BWD_WY = 0x4b444257 /* "KDBW" */ };

typedef gen_kda_stage_problem gen_kda_bwd_wy_problem;

/* Device pointers (host pointers for the CPU backend), 16-byte aligned, but where
 * said otherwise. Rows of tokens that no sequence has are neither read nor written. */
typedef struct gen_kda_bwd_wy_args {
    gen_args base;             /* size, GEN_KDA_BWD_WY */
    const void *q;             /* [tokens, num_qk_heads, head_dim], normalized */
    const void *k;             /* [tokens, num_qk_heads, head_dim], normalized */
    const void *v;             /* [tokens, num_v_heads, head_dim] */
    const void *v_new;         /* [tokens, num_v_heads, head_dim] */
    const float *gk;           /* [tokens, num_v_heads, head_dim] */
    const void *beta;          /* [tokens, num_v_heads], aligned to its type, activated */
    const void *a_kk;          /* [tokens, num_v_heads, 64]; never read above the diagonal */
    const void *h;             /* [num_chunks, num_v_heads, K, V] */
    const void *d_o;           /* [tokens, num_v_heads, head_dim] */
    const void *d_h;           /* [num_chunks, num_v_heads, K, V] */
    const void *d_v_new;       /* [tokens, num_v_heads, head_dim] */
    const int32_t *cu_seqlens; /* [batch + 1], 4-byte aligned; NULL where num_tokens is 0 */
    float *d_q;                /* [tokens, num_v_heads, head_dim], of each value head by itself */
    float *d_k;                /* the same */
    void *d_v;                 /* [tokens, num_v_heads, head_dim]; may be v */
    float *d_beta;             /* [tokens, num_v_heads], 4-byte aligned */
    float *d_g;                /* [tokens, num_v_heads, head_dim] */
    float *d_a_kk;             /* [tokens, num_v_heads, 64] */
    float scale;               /* of the forward pass; head_dim^-0.5 is usual */
    int32_t num_chunks;        /* chunks that h and d_h have: further ones count as zeros. 0: as in
                                  kda_chunk_o */
    int32_t state_layout;      /* enum gen_kda_state_layout, of h and d_h */
    int32_t pad;
    const int64_t *cu_seqlens_64; /* cu_seqlens of 64 bits, in place of it; 8-byte aligned */
} gen_kda_bwd_wy_args;

#endif /* GEN_KDA_BWD_WY_H */
