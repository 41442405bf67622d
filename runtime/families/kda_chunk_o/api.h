/*
 * A stage of Kimi Delta Attention prefill as an operator of its own, the last: outputs.
 * With kda_chunk_intra.h's names, and h the state in front of the chunk:
 *
 *     o = scale * (q 2^gk) h + A_qk v_new
 */
#ifndef GEN_KDA_CHUNK_O_H
#define GEN_KDA_CHUNK_O_H

#include "gen.h"
#include "families/kda_chunk_intra/api.h" /* the stages' problem */
#include "kda/public.h"

enum gen_kda_chunk_o_tag { GEN_KDA_CHUNK_O = 0x4b44434f /* "KDCO" */ };

typedef gen_kda_stage_problem gen_kda_chunk_o_problem;

/* Device pointers (host pointers for the CPU backend), 16-byte aligned, but where
 * said otherwise. Rows of tokens that no sequence has are neither read nor written. */
typedef struct gen_kda_chunk_o_args {
    gen_args base;             /* size, GEN_KDA_CHUNK_O */
    const void *q;             /* [tokens, num_qk_heads, head_dim] */
    const void *v_new;         /* [tokens, num_v_heads, head_dim] */
    const float *gk;           /* [tokens, num_v_heads, head_dim], cumulated gates in base 2 */
    const void *a_qk;          /* [tokens, num_v_heads, 64]; never read above the diagonal */
    const void *h;             /* [num_chunks, num_v_heads, K, V], as kda_chunk_h has it */
    const int32_t *cu_seqlens; /* [batch + 1], 4-byte aligned; NULL where num_tokens is 0 */
    void *o;                   /* [tokens, num_v_heads, head_dim] */
    /* Distance between tokens in elements, a multiple of 8; 0: packed. */
    int64_t q_stride, o_stride;
    float scale;          /* of the output; head_dim^-0.5 is usual */
    int32_t num_chunks;   /* chunks that h has: further ones count as zeros. 0: num_tokens / 64 +
                             batch, or, without num_tokens, all */
    int32_t state_layout; /* enum gen_kda_state_layout, of h: [K, V], or [V, K] */
    int32_t pad;
    const int64_t *cu_seqlens_64; /* cu_seqlens of 64 bits, in place of it; 8-byte aligned */
} gen_kda_chunk_o_args;

#endif /* GEN_KDA_CHUNK_O_H */
