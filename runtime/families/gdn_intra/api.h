/*
 * Gated DeltaNet, the part inside a chunk: what the chunks of a sequence need of each other's
 * absence. An operator of its own, and the first launch of gdn_prefill.
 *
 * A sequence is cut into chunks of 64 tokens from its own start. For each chunk and value head,
 * with q, k of head hv / (num_v_heads / num_qk_heads), rows i, j of the chunk, g the activated gate
 * (natural logarithm, a number a token) and beta activated, rq and rk what q and k are divided by:
 *
 *     G_i       = sum of g_l over l <= i
 *     A_qk[i,j] = scale * exp(G_i - G_j) * (q_i . k_j) / (rq_i rk_j)       j <= i, else 0
 *     A_kk[i,j] = beta_i * exp(G_i - G_j) * (k_i . k_j) / (rk_i rk_j)      j < i, else 0
 *     X         = (I + A_kk)^-1 diag(beta)
 *     k_in = exp(G) / rk,  q_out = scale exp(G) / rq,  k_out = exp(G_last - G) / rk,
 *     decay = exp(G_last)
 *
 * The state S (K x V) before a chunk and its rows q, k, v as they came make
 *
 *     vn = X (v - diag(k_in) k S),  o = diag(q_out) q S + A_qk vn,
 *     S  = decay S + k' diag(k_out) vn
 *
 * Chunks have slots as in kda_intra. X', transposed, and A_qk are cells of 64 rows x 128 bytes, of
 * whose row i the 16 bytes of number c stand at c ^ i % 8; rows beyond the sequence's end are
 * zeros.
 */
#ifndef GEN_GDN_INTRA_H
#define GEN_GDN_INTRA_H

#include "families/kda_intra/api.h"

enum gen_gdn_intra_tag { GEN_GDN_INTRA = 0x47444e49 /* "GDNI" */ };

/* As kda_intra's; safe_gate is 0 or 1, and not looked at: gates need no bound. */
typedef gen_kda_intra_problem gen_gdn_intra_problem;

enum gen_gdn_intra_factors { GEN_GDN_FACTORS = 196 /* floats of a chunk and head */ };

/* Device pointers (host pointers for the CPU backend), 16-byte aligned, but where said otherwise.
 */
typedef struct gen_gdn_intra_args {
    gen_args base;             /* size, GEN_GDN_INTRA */
    const void *q;             /* [tokens, num_qk_heads, head_dim] */
    const void *k;             /* [tokens, num_qk_heads, head_dim] */
    const void *g;             /* [tokens, num_v_heads], aligned to its type */
    const void *beta;          /* [tokens, num_v_heads], aligned to its type */
    const float *A_log;        /* [num_v_heads], 4-byte aligned; NULL: 0 (not with SOFTPLUS) */
    const float *dt_bias;      /* [num_v_heads], 4-byte aligned; NULL: 0 */
    const int32_t *cu_seqlens; /* [batch + 1], 4-byte aligned; NULL where num_tokens is 0 */
    void *x;                   /* [num_slots, num_v_heads, 64 x 64], X' */
    void *a_qk;                /* [num_slots, num_v_heads, 64 x 64] */
    float *factors; /* [num_slots, num_v_heads, GEN_GDN_FACTORS]: k_in, q_out and k_out of
                       64 rows each, decay, three zeros */
    /* Distance between tokens in elements, of q and k a multiple of 8; 0: packed. */
    int64_t q_stride, k_stride, g_stride, beta_stride;
    float scale;       /* of the output; head_dim^-0.5 is usual */
    float lower_bound; /* of the gate, -5 <= lower_bound < 0, where gate_form is LOWER_BOUND */
    int32_t gate_form; /* enum gen_kda_gate_form; x = g + dt_bias */
    int32_t beta_form; /* enum gen_kda_beta_form */
    int32_t qk_l2norm; /* 1: rows of q and k are divided by sqrt(sum of squares + 1e-6), rq and rk;
                          0: those are 1 */
    int32_t pad;
} gen_gdn_intra_args;

#endif /* GEN_GDN_INTRA_H */
