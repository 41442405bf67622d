/*
 * A stage of Kimi Delta Attention prefill as an operator of its own, the last: outputs.
 * With kda_chunk_intra/args.h's names, and h the state in front of the chunk:
 *
 *     o = scale * (q 2^gk) h + A_qk v_new
 */
#ifndef GEN_KDA_CHUNK_O_H
#define GEN_KDA_CHUNK_O_H

#include "kda_chunk_intra/args.h" /* the stages' problem */

#ifndef __CUDACC_RTC__
#include "gen.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GEN_KDA_CHUNK_O 0x4b44434fu /* "KDCO" */

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
    int32_t state_layout; /* enum gen_kda_decode_layout, of h: [K, V], or [V, K] */
    int32_t pad;
} gen_kda_chunk_o_args;

#ifdef __cplusplus
}
#endif
#endif /* __CUDACC_RTC__ */

struct gen_kda_chunk_o_params {
    struct gen_kda_stage_shape shape;
    const void *q, *v_new;
    const float *gk;
    const void *a_qk, *h;
    void *o;
    long long q_stride, o_stride; /* elements */
    float scale;
    int num_chunks, state_vk, pad;
};

#ifdef __cplusplus
static_assert(sizeof(struct gen_kda_chunk_o_params) == 136, "same on both sides");
#elif !defined(__CUDACC_RTC__)
_Static_assert(sizeof(struct gen_kda_chunk_o_params) == 136, "same on both sides");
#endif

#endif /* GEN_KDA_CHUNK_O_H */
