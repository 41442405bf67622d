/*
 * A stage of Kimi Delta Attention prefill as an operator of its own: what is inside
 * a chunk, from cumulated gates. In layouts of public libraries: tokens first.
 *
 * The five stages, each with the outputs of those before it:
 *
 *     kda_gate          gates activated and cumulated, q and k normalized
 *     kda_chunk_intra   A_qk, the inverse, w, u, kg (qg)
 *     kda_recompute_wu  w, u, kg (qg) again, from the inverse
 *     kda_chunk_h       the state in front of each chunk, corrected values, final state
 *     kda_chunk_o       outputs
 *
 * A sequence is cut into chunks of 64 tokens from its own start. With q, k of head
 * hv / (num_v_heads / num_qk_heads), rows i, j of the chunk, and gk_i the sum of the
 * chunk's gates up to and with row i, in base 2 (kda_gate), per channel:
 *
 *     A_qk[i,j] = scale * sum_d q_i k_j 2^(gk_i - gk_j)       j <= i, else 0
 *     A[i,j]    = beta_i * sum_d k_i k_j 2^(gk_i - gk_j)      j < i, else 0
 *     A_kk      = (I + A)^-1
 *     w = A_kk (beta k 2^gk),  u = A_kk (beta v)
 *     qg = q 2^gk,  kg = k 2^(gk_last - gk)
 *
 * (arXiv 2510.26692). The name A_kk for the inverse is the libraries'.
 */
#ifndef GEN_KDA_CHUNK_INTRA_H
#define GEN_KDA_CHUNK_INTRA_H

#include "gen.h"

enum gen_kda_chunk_intra_tag { GEN_KDA_CHUNK_INTRA = 0x4b444349 /* "KDCI" */ };

/* The problem of all five stages: base.family says which. A stage reads the fields that its
 * tensors depend on; the others have to be right all the same. With as many chunks as batch *
 * ceil(seq_len / 64), or num_tokens / 64 + batch, chunks * (num_v_heads + 2 * num_qk_heads) is
 * at most 2^31 - 1. */
typedef struct gen_kda_stage_problem {
    gen_problem base;     /* size, GEN_KDA_<stage>, flags */
    int32_t batch;        /* sequences; 0 is legal and launches nothing */
    int32_t seq_len;      /* tokens of each sequence; with num_tokens the most of any */
    int32_t num_tokens;   /* 0: every sequence has seq_len tokens, one behind the other;
                             else cu_seqlens says, and this is their sum */
    int32_t num_qk_heads; /* 1 to 65536 */
    int32_t num_v_heads;  /* a multiple of num_qk_heads, up to 65536 */
    int32_t head_dim;     /* K = V: 64 or 128 */
    int32_t dtype;       /* of q, k, v and all that is not fp32: GEN_DTYPE_BF16 or GEN_DTYPE_FP16 */
    int32_t gate_dtype;  /* of kda_gate's g: dtype or GEN_DTYPE_FP32 */
    int32_t beta_dtype;  /* of beta: dtype or GEN_DTYPE_FP32 */
    int32_t safe_gate;   /* 1: no gate is below -5; 0: any gates, kda_chunk_intra is slower */
    int32_t index_dtype; /* enum gen_index_dtype: of cu_seqlens */
} gen_kda_stage_problem;

typedef gen_kda_stage_problem gen_kda_chunk_intra_problem;

/* Device pointers (host pointers for the CPU backend), 16-byte aligned, but where
 * said otherwise. Rows of tokens that no sequence has are neither read nor written. */
typedef struct gen_kda_chunk_intra_args {
    gen_args base;             /* size, GEN_KDA_CHUNK_INTRA */
    const void *q;             /* [tokens, num_qk_heads, head_dim] */
    const void *k;             /* [tokens, num_qk_heads, head_dim] */
    const void *v;             /* [tokens, num_v_heads, head_dim]; NULL where u is */
    const float *gk;           /* [tokens, num_v_heads, head_dim] */
    const void *beta;          /* [tokens, num_v_heads], aligned to its type */
    const int32_t *cu_seqlens; /* [batch + 1], 4-byte aligned: sequence n has tokens
                                  cu_seqlens[n] to cu_seqlens[n + 1] - 1; NULL where num_tokens is
                                  0 */
    void *a_qk;                /* [tokens, num_v_heads, 64] */
    void *a_kk;                /* [tokens, num_v_heads, 64] */
    void *w;                   /* [tokens, num_v_heads, head_dim]; NULL: A_qk and A_kk alone */
    void *u;                   /* [tokens, num_v_heads, head_dim]; NULL where w is */
    void *kg;                  /* [tokens, num_v_heads, head_dim]; NULL where w is */
    void *qg;                  /* [tokens, num_v_heads, head_dim]; NULL: not wanted */
    /* Distance between tokens in elements, a multiple of 8 (beta: any); 0: packed. */
    int64_t q_stride, k_stride, v_stride, beta_stride;
    float scale; /* of the output; head_dim^-0.5 is usual */
    int32_t pad;
    const int64_t *cu_seqlens_64; /* cu_seqlens of 64 bits, in place of it; 8-byte aligned */
} gen_kda_chunk_intra_args;

#endif /* GEN_KDA_CHUNK_INTRA_H */
