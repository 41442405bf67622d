/*
 * A stage of the backward pass of Kimi Delta Attention as an operator of its own: the gradient of
 * the state from chunk to chunk, from the last chunk of a sequence to the first. With the forward
 * stages' names, gk_last the chunk's last row, and D the gradient of the state behind the chunk,
 * which begins as d_final_state,
 *
 *     d_h   = D                                      of the chunk: before its own update
 *     d_v_new = d_v + kg D
 *     D    <- 2^gk_last D + scale qg' d_o - w' d_v_new
 *
 * and d_initial_state is what comes of the first chunk; of a sequence without tokens it is
 * d_final_state.
 */
#ifndef GEN_KDA_BWD_DHU_H
#define GEN_KDA_BWD_DHU_H

#include "gen.h"
#include "families/kda_chunk_intra/api.h" /* the stages' problem */
#include "kda/public.h"

enum gen_kda_bwd_dhu_tag { GEN_KDA_BWD_DHU = 0x4b444248 /* "KDBH" */ };

typedef gen_kda_stage_problem gen_kda_bwd_dhu_problem;

/* Device pointers (host pointers for the CPU backend), 16-byte aligned, but where
 * said otherwise. Rows of tokens that no sequence has are neither read nor written. */
typedef struct gen_kda_bwd_dhu_args {
    gen_args base;              /* size, GEN_KDA_BWD_DHU */
    const void *qg;             /* [tokens, num_v_heads, head_dim] */
    const void *kg;             /* the same */
    const void *w;              /* the same */
    const void *d_o;            /* the same */
    const void *d_v;            /* the same: kda_bwd_dav's */
    const float *gk;            /* the same; of each chunk only the last row is read */
    const float *d_final_state; /* [batch, num_v_heads, head_dim, head_dim]; NULL: zeros */
    const int32_t *cu_seqlens;  /* [batch + 1], 4-byte aligned; NULL where num_tokens is 0 */
    void *d_h;                  /* [num_chunks, num_v_heads, K, V], sequence after sequence */
    void *d_v_new;              /* [tokens, num_v_heads, head_dim]; not d_v */
    float *d_initial_state;     /* as d_final_state; NULL: not wanted */
    float scale;                /* of the forward pass; head_dim^-0.5 is usual */
    int32_t num_chunks;   /* chunks that d_h has room for: further ones are not written. 0: as in
                       kda_chunk_h */
    int32_t state_layout; /* enum gen_kda_state_layout, of all states */
    int32_t pad;
    const int64_t *cu_seqlens_64; /* cu_seqlens of 64 bits, in place of it; 8-byte aligned */
} gen_kda_bwd_dhu_args;

#endif /* GEN_KDA_BWD_DHU_H */
