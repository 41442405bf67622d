/*
 * A stage of Kimi Delta Attention prefill as an operator of its own: the state from
 * chunk to chunk. With kda_chunk_intra.h's names, S the state [K, V] in front of a
 * chunk, per sequence and value head:
 *
 *     h     = S                                    rounded
 *     v_new = u - w S                              S rounded
 *     S     = diag(2^gk_last) S + kg' v_new        v_new rounded
 */
#ifndef GEN_KDA_CHUNK_H_H
#define GEN_KDA_CHUNK_H_H

#include "gen.h"
#include "families/kda_chunk_intra/api.h" /* the stages' problem */
#include "kda/public.h"

enum gen_kda_chunk_h_tag { GEN_KDA_CHUNK_H = 0x4b444348 /* "KDCH" */ };

typedef gen_kda_stage_problem gen_kda_chunk_h_problem;

/* Device pointers (host pointers for the CPU backend), 16-byte aligned, but where
 * said otherwise. Rows of tokens that no sequence has are neither read nor written. */
typedef struct gen_kda_chunk_h_args {
    gen_args base;              /* size, GEN_KDA_CHUNK_H */
    const void *kg;             /* [tokens, num_v_heads, head_dim] */
    const void *w;              /* [tokens, num_v_heads, head_dim] */
    const void *u;              /* [tokens, num_v_heads, head_dim] */
    const float *gk;            /* [tokens, num_v_heads, head_dim]; of each chunk the last row */
    const float *initial_state; /* [batch, num_v_heads, K, V]; NULL: zeros */
    const int32_t *cu_seqlens;  /* [batch + 1], 4-byte aligned; NULL where num_tokens is 0 */
    void *h;                    /* [num_chunks, num_v_heads, K, V], sequence after sequence: each
                                   has as many chunks as its length needs */
    void *v_new;                /* [tokens, num_v_heads, head_dim] */
    float *final_state;         /* [batch, num_v_heads, K, V]; NULL: not wanted. May be
                                   initial_state */
    int32_t num_chunks;         /* chunks that h has room for: none beyond is written. 0: num_tokens
                                   / 64 + batch, or, without num_tokens, all */
    int32_t state_layout;       /* enum gen_kda_state_layout, of h and both states: [K, V], or
                                   [V, K] */
    const int64_t *cu_seqlens_64; /* cu_seqlens of 64 bits, in place of it; 8-byte aligned */
} gen_kda_chunk_h_args;

#endif /* GEN_KDA_CHUNK_H_H */
