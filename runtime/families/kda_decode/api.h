/*
 * Kimi Delta Attention decode: problem and arguments.
 *
 * One to eight new tokens for each of `batch` rows. The state of a row and a
 * value head hv is a matrix S[k,v]; with qh = hv / (num_v_heads / num_qk_heads),
 * for each token in turn (exp and the gate by key channel):
 *
 *     S[k,v] = exp(g[hv,k]) * S[k,v]                      decay
 *     e[v]   = v[hv,v] - sum over k of k[qh,k] * S[k,v]   error of the prediction
 *     S[k,v] = S[k,v] + beta[hv] * k[qh,k] * e[v]
 *     o[hv,v] = scale * sum over k of q[qh,k] * S[k,v]    (the new state)
 *
 * All of it in fp32. What stands in `g` and `beta`, and whether q and k are
 * normalised first, follows from gate_form, beta_form and qk_l2norm below. The
 * recurrence is that of Kimi Linear (arXiv 2510.26692).
 */
#ifndef GEN_KDA_DECODE_H
#define GEN_KDA_DECODE_H

#include "gen.h"
#include "kda/public.h"

enum gen_kda_decode_tag { GEN_KDA_DECODE = 0x4b444144 /* "KDAD" */ };

enum gen_kda_decode_limit { GEN_KDA_DECODE_MOST_TOKENS = 8 /* of a row */ };

typedef struct gen_kda_decode_problem {
    gen_problem base;     /* size, GEN_KDA_DECODE, flags */
    int32_t batch;        /* rows; 0 is legal and launches nothing */
    int32_t num_tokens;   /* of a row, at most: 1 to 8 */
    int32_t num_qk_heads; /* 1 to 65536 */
    int32_t num_v_heads;  /* a multiple of num_qk_heads, up to 65536;
                             batch * num_v_heads below 2^27 */
    int32_t head_dim;     /* K = V: 64 or 128 */
    int32_t dtype;        /* of q, k, v, o: GEN_DTYPE_BF16 or GEN_DTYPE_FP16 */
    int32_t gate_dtype;   /* of g: dtype or GEN_DTYPE_FP32 */
    int32_t beta_dtype;   /* of beta: dtype or GEN_DTYPE_FP32 */
    int32_t state_layout; /* enum gen_kda_state_layout */
    int32_t index_dtype;  /* enum gen_index_dtype: of cu_seqlens */
} gen_kda_decode_problem;

/* Device pointers (host pointers for the CPU backend), 16-byte aligned where
 * nothing else is said. "tokens" counts all rows' tokens: row b's are the
 * num_tokens from b * num_tokens on or, with cu_seqlens, those from cu_seqlens[b]
 * up to cu_seqlens[b+1]. */
typedef struct gen_kda_decode_args {
    gen_args base;             /* size, GEN_KDA_DECODE */
    const void *q;             /* [tokens, num_qk_heads, head_dim] */
    const void *k;             /* [tokens, num_qk_heads, head_dim] */
    const void *v;             /* [tokens, num_v_heads, head_dim] */
    const void *g;             /* [tokens, num_v_heads, head_dim], gate_dtype */
    const void *beta;          /* [tokens, num_v_heads], beta_dtype, aligned as one */
    void *o;                   /* [tokens, num_v_heads, head_dim] */
    const float *A_log;        /* [num_v_heads], 4-byte aligned; NULL: 0 (LOWER_BOUND alone) */
    const float *dt_bias;      /* [num_v_heads, head_dim]; NULL: 0 */
    float *state;              /* the pool */
    const int32_t *slots;      /* [batch, slots_stride], 4-byte aligned. Row b's first state is in
                                  slot slots[b, accepted[b] - 1]; a slot < 0 or >= num_slots marks
                                  a padding row, no state of which is touched. With WRITE_EACH
                                  such a slot drops the state that would go there. No two rows of
                                  one launch may share a slot, nor two columns up to num_tokens.
                                  NULL: slot b */
    const int32_t *accepted;   /* [batch], 4-byte aligned: how many of the tokens that were there
                                  last time stay. Outside 1 to slots_stride: a padding row.
                                  NULL: 1 */
    const int32_t *cu_seqlens; /* [batch + 1], 4-byte aligned: where each row's tokens begin. Rows
                                  of 0 to num_tokens tokens; of others, and of ones outside of
                                  total_tokens, nothing is touched. NULL: num_tokens each */
    /* Distance between tokens in elements; 0: packed. A multiple of 8, but any for
     * beta. For views into fused buffers. */
    int64_t q_stride, k_stride, v_stride, g_stride, beta_stride, o_stride;
    int32_t total_tokens;         /* with cu_seqlens: rows that q, k, v, g, beta, o have; else 0 */
    int32_t num_slots;            /* slots in the pool, >= 1 */
    int32_t slots_stride;         /* columns of `slots`; 0: num_tokens with WRITE_EACH, else 1 */
    int32_t write;                /* enum gen_kda_decode_write */
    int32_t gate_form;            /* enum gen_kda_gate_form */
    int32_t beta_form;            /* enum gen_kda_beta_form */
    int32_t qk_l2norm;            /* 1: q and k are divided by sqrt(sum over K of x^2 + 1e-6) first;
                                     0: as they are. Not rounded between */
    int32_t zero_padding;         /* 0: the outputs of a padding row are left as they were;
                                     1: they are set to zero */
    float scale;                  /* head_dim^-0.5 is usual */
    float lower_bound;            /* -5 to below 0; read with GEN_KDA_GATE_LOWER_BOUND alone */
    const int64_t *cu_seqlens_64; /* cu_seqlens of 64 bits, in place of it; 8-byte aligned */
} gen_kda_decode_args;

#endif /* GEN_KDA_DECODE_H */
