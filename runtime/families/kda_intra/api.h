/*
 * Kimi Delta Attention, the part inside a chunk: what the chunks of a sequence
 * need of each other's absence. An operator of its own, and the first launch of
 * kda_prefill.
 *
 * A sequence is cut into chunks of 64 tokens from its own start. For each chunk
 * and value head, with q, k of head hv / (num_v_heads / num_qk_heads), rows i, j
 * of the chunk, g the activated gate (natural logarithm) and beta activated:
 *
 *     G_i      = sum of g_l over l <= i                      per channel
 *     A_qk[i,j] = scale * sum_d q_i k_j exp(G_i - G_j)        j <= i, else 0
 *     A_kk[i,j] = beta_i * sum_d k_i k_j exp(G_i - G_j)       j < i, else 0
 *     X        = (I + A_kk)^-1
 *     w = X (beta k exp(G)),  u = X (beta v)
 *     qg = scale * q exp(G),  kg = k exp(G_last - G),  decay = exp(G_last)
 *
 * (arXiv 2510.26692). kda_inter takes these from chunk to chunk.
 *
 * Chunks have slots: chunk c of sequence n, whose first token is at cu_seqlens[n],
 * has slot cu_seqlens[n] / 64 + n + c, or n * ceil(seq_len / 64) + c where all are
 * of one length. Slots between them are not written.
 *
 * w (negated), qg and kg are tiles of 64 rows (tokens) x head_dim: head_dim / 64
 * cells of 64 rows x 128 bytes, and of row i the 16 bytes of number c stand at
 * c ^ i % 8. A_qk is one such cell. Rows beyond the sequence's end are zeros.
 * u is transposed, in the fragments of a 16 x 16 matrix that tensor cores take:
 * [head_dim / 16][4][32 lanes][4 words][2], v = 16 a + lane / 4 + 8 (word % 2),
 * token = 16 b + 2 (lane % 4) + 8 (word / 2) + {0, 1}.
 */
#ifndef GEN_KDA_INTRA_H
#define GEN_KDA_INTRA_H

#include "gen.h"
#include "kda/public.h"

enum gen_kda_intra_tag { GEN_KDA_INTRA = 0x4b444149 /* "KDAI" */ };

typedef struct gen_kda_intra_problem {
    gen_problem base;     /* size, GEN_KDA_INTRA, flags */
    int32_t batch;        /* sequences; 0 is legal and launches nothing */
    int32_t seq_len;      /* tokens of each sequence; with num_tokens the most of any */
    int32_t num_tokens;   /* 0: every sequence has seq_len tokens, one behind the other;
                             else cu_seqlens says, and this is their sum. A batch whose
                             sequences are all empty has seq_len 0 and num_tokens 0 */
    int32_t num_qk_heads; /* 1 to 65536 */
    int32_t num_v_heads;  /* a multiple of num_qk_heads, up to 65536 */
    int32_t head_dim;     /* K = V: 64 or 128 */
    int32_t dtype;        /* of q, k, v and the results: GEN_DTYPE_BF16 or GEN_DTYPE_FP16 */
    int32_t gate_dtype;   /* of g: dtype or GEN_DTYPE_FP32 */
    int32_t beta_dtype;   /* of beta: dtype or GEN_DTYPE_FP32 */
    int32_t safe_gate;    /* 1: no activated gate is below -5; 0: any gates, slower */
} gen_kda_intra_problem;

/* Device pointers (host pointers for the CPU backend), 16-byte aligned, but where
 * said otherwise. */
typedef struct gen_kda_intra_args {
    gen_args base;             /* size, GEN_KDA_INTRA */
    const void *q;             /* [tokens, num_qk_heads, head_dim] */
    const void *k;             /* [tokens, num_qk_heads, head_dim] */
    const void *v;             /* [tokens, num_v_heads, head_dim] */
    const void *g;             /* [tokens, num_v_heads, head_dim]; activated gates are finite */
    const void *beta;          /* [tokens, num_v_heads], aligned to its type */
    const float *A_log;        /* [num_v_heads], 4-byte aligned. NULL: exp(A_log) = 1; not with
                                  the softplus gate */
    const float *dt_bias;      /* [num_v_heads, head_dim]; NULL: 0 */
    const int32_t *cu_seqlens; /* [batch + 1], 4-byte aligned: sequence n has tokens
                                  cu_seqlens[n] to cu_seqlens[n + 1] - 1; NULL where num_tokens is
                                  0 */
    void *w;                   /* [num_slots, num_v_heads, 64 x head_dim], -w */
    void *u;                   /* [num_slots, num_v_heads, head_dim x 64] */
    void *qg;                  /* [num_slots, num_v_heads, 64 x head_dim] */
    void *kg;                  /* [num_slots, num_v_heads, 64 x head_dim] */
    void *a_qk;                /* [num_slots, num_v_heads, 64 x 64] */
    float *decay;              /* [num_slots, num_v_heads, head_dim] */
    /* Distance between tokens in elements, a multiple of 8 (beta: any); 0: packed. */
    int64_t q_stride, k_stride, v_stride, g_stride, beta_stride;
    float scale;       /* of the output; head_dim^-0.5 is usual */
    float lower_bound; /* of the gate, -5 <= lower_bound < 0; -5 is usual */
    int32_t gate_form; /* enum gen_kda_gate_form; x = g + dt_bias */
    int32_t beta_form; /* enum gen_kda_beta_form */
    int32_t qk_l2norm; /* 1: q and k are divided by sqrt(sum of squares + 1e-6) first */
    int32_t pad;
} gen_kda_intra_args;

#endif /* GEN_KDA_INTRA_H */
