/*
 * Kimi Delta Attention, the backward pass: gradients of all that kda_prefill takes, from those of
 * what it gives. The inputs are the same raw ones, and so are the forms of gates, betas and norms.
 * Per token and value head, with S, g, beta, q, k as kda_prefill's header has them (after
 * activations and norms), Sd = diag(exp(g_t)) S, e_t = v_t - Sd' k_t, and D the gradient of the
 * state, which begins as d_final_state, from the last token of a sequence to the first:
 *
 *     d_q = scale S_t d_o             D = D + scale q_t d_o'
 *     d_v = beta_t D' k_t             d_beta = e_t . D' k_t
 *     d_k = beta_t D e_t - Sd d_v     D = D - k_t d_v'
 *     d_g = rowsum_V(D * Sd)          D = diag(exp(g_t)) D
 *
 * What is left of D is d_initial_state. Gradients of q and k are summed over the value heads of a
 * group in fp32, then go through the norm; those of gates and betas through their activations.
 *
 * A plan launches the stages one after the other, each an operator of its own: forward's kda_gate,
 * kda_chunk_intra and kda_chunk_h, then kda_bwd_dav, kda_bwd_dhu, kda_bwd_wy, kda_bwd_intra,
 * kda_gate_bwd and kda_qk_bwd. Nothing of the forward pass but its inputs is needed; with `keep`
 * the states in front of chunks, which kda_prefill writes as `states`, spare kda_chunk_h.
 *
 * No atomic sums: reruns are equal to the last bit.
 */
#ifndef GEN_KDA_BWD_H
#define GEN_KDA_BWD_H

#include "gen.h"
#include "kda/public.h"

enum gen_kda_bwd_tag { GEN_KDA_BWD = 0x4b444242 /* "KDBB" */ };

typedef struct gen_kda_bwd_problem {
    gen_problem base;     /* size, GEN_KDA_BWD, flags */
    int32_t batch;        /* sequences; without any, or without tokens, sums are zeros and
                             d_initial_state is d_final_state */
    int32_t seq_len;      /* tokens of each sequence; with num_tokens the most of any */
    int32_t num_tokens;   /* 0: every sequence has seq_len tokens, one behind the other;
                             else cu_seqlens says, and this is their sum. A batch whose
                             sequences are all empty has seq_len 0 and num_tokens 0 */
    int32_t num_qk_heads; /* 1 to 65536 */
    int32_t num_v_heads;  /* a multiple of num_qk_heads, up to 65536. With as many chunks as batch *
                             ceil(seq_len / 64), or num_tokens / 64 + batch, chunks * (num_v_heads +
                             2 * num_qk_heads) is at most 2^31 - 1 */
    int32_t head_dim;     /* K = V: 64 or 128 */
    int32_t dtype;        /* of q, k, v, d_o and their gradients: GEN_DTYPE_BF16, GEN_DTYPE_FP16 */
    int32_t gate_dtype;   /* of g and d_g: dtype or GEN_DTYPE_FP32 */
    int32_t beta_dtype;   /* of beta and d_beta: dtype or GEN_DTYPE_FP32 */
    int32_t safe_gate;    /* 1: no activated gate is below -5; 0: any gates, slower */
    int32_t keep;         /* 1: `states` are there; 0: they are computed once more */
    int32_t index_dtype;  /* enum gen_index_dtype: of cu_seqlens */
} gen_kda_bwd_problem;

/* Device pointers (host pointers for the CPU backend), 16-byte aligned, but where
 * said otherwise. No output may be an input. Rows of tokens that no sequence has are not read, and
 * their gradients not written, but where d_o or v have a stride d_g and d_v of them may be. */
typedef struct gen_kda_bwd_args {
    gen_args base;             /* size, GEN_KDA_BWD */
    const void *q;             /* [tokens, num_qk_heads, head_dim] */
    const void *k;             /* [tokens, num_qk_heads, head_dim] */
    const void *v;             /* [tokens, num_v_heads, head_dim] */
    const void *g;             /* [tokens, num_v_heads, head_dim]; activated gates are finite */
    const void *beta;          /* [tokens, num_v_heads], aligned to its type */
    const float *A_log;        /* [num_v_heads], 4-byte aligned; NULL: as in kda_prefill */
    const float *dt_bias;      /* [num_v_heads, head_dim]; NULL: 0 */
    const int32_t *cu_seqlens; /* [batch + 1], 4-byte aligned; NULL where num_tokens is 0
                                  and seq_len is not */
    /* The same on the host, or NULL. It is checked before the launch; without it a wrong
     * cu_seqlens makes wrong results, though no wrong access. */
    const int32_t *cu_seqlens_host;
    const float *initial_state; /* [batch, num_v_heads, head_dim, head_dim]; NULL: zeros */
    const void *states;         /* kda_prefill's; NULL where `keep` is 0, and only there */
    const void *d_o;            /* [tokens, num_v_heads, head_dim] */
    const float *d_final_state; /* as initial_state; NULL: zeros */
    void *d_q;                  /* [tokens, num_qk_heads, head_dim] */
    void *d_k;                  /* [tokens, num_qk_heads, head_dim] */
    void *d_v;                  /* [tokens, num_v_heads, head_dim] */
    void *d_g;                  /* [tokens, num_v_heads, head_dim] */
    void *d_beta;               /* [tokens, num_v_heads], aligned to its type */
    float *d_A_log;             /* [num_v_heads], 4-byte aligned; NULL: not wanted, and where A_log
                                   is */
    float *d_dt_bias;       /* [num_v_heads, head_dim]; NULL: not wanted, and where dt_bias is */
    float *d_initial_state; /* as initial_state, which may be NULL; NULL: not wanted */
    /* Distance between tokens in elements, a multiple of 8 (beta: any); 0: packed. */
    int64_t q_stride, k_stride, v_stride, g_stride, beta_stride, d_o_stride;
    float scale;                  /* of the output; head_dim^-0.5 is usual */
    float lower_bound;            /* of the gate, -5 <= lower_bound < 0; -5 is usual */
    int32_t gate_form;            /* enum gen_kda_gate_form; x = g + dt_bias */
    int32_t beta_form;            /* enum gen_kda_beta_form */
    int32_t qk_l2norm;            /* 1: q and k are divided by sqrt(sum of squares + 1e-6) first */
    int32_t state_layout;         /* enum gen_kda_state_layout, of all states */
    const int64_t *cu_seqlens_64; /* cu_seqlens of 64 bits, in place of it; 8-byte aligned */
} gen_kda_bwd_args;

#endif /* GEN_KDA_BWD_H */
