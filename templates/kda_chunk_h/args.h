/*
 * A stage of Kimi Delta Attention prefill as an operator of its own: the state from
 * chunk to chunk. With kda_chunk_intra/args.h's names, S the state [K, V] in front of a
 * chunk, per sequence and value head:
 *
 *     h     = S                                    rounded
 *     v_new = u - w S                              S rounded
 *     S     = diag(2^gk_last) S + kg' v_new        v_new rounded
 */
#ifndef GEN_KDA_CHUNK_H_H
#define GEN_KDA_CHUNK_H_H

#include "kda_chunk_intra/args.h" /* the stages' problem */

#ifndef __CUDACC_RTC__
#include "gen.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GEN_KDA_CHUNK_H 0x4b444348u /* "KDCH" */

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
    float *final_state;         /* [batch, num_v_heads, K, V]; NULL: not wanted */
    int32_t num_chunks;         /* chunks that h has room for: none beyond is written. 0: num_tokens
                                   / 64 + batch, or, without num_tokens, all */
    int32_t state_layout;       /* enum gen_kda_decode_layout, of h and both states: [K, V], or
                                   [V, K] */
} gen_kda_chunk_h_args;

#ifdef __cplusplus
}
#endif
#endif /* __CUDACC_RTC__ */

struct gen_kda_chunk_h_params {
    struct gen_kda_stage_shape shape;
    const void *kg, *w, *u;
    const float *gk, *initial_state;
    void *h, *v_new;
    float *final_state;
    int num_chunks, state_vk;
};

#ifdef __cplusplus
static_assert(sizeof(struct gen_kda_chunk_h_params) == 128, "same on both sides");
#elif !defined(__CUDACC_RTC__)
_Static_assert(sizeof(struct gen_kda_chunk_h_params) == 128, "same on both sides");
#endif

#endif /* GEN_KDA_CHUNK_H_H */
