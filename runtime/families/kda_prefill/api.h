/*
 * Kimi Delta Attention, prefill (forward). For each sequence and value head hv,
 * with q, k of head hv / (num_v_heads / num_qk_heads), per token t, S the state
 * (K x V), g the activated gate (natural logarithm, per channel of K), beta
 * activated:
 *
 *     S  = diag(exp(g_t)) S
 *     S  = S + beta_t k_t (v_t - S' k_t)'
 *     o_t = scale * S' q_t
 *
 * (arXiv 2510.26692.) Computed in chunks of 64 tokens: kda_intra for all chunks
 * at once, then kda_inter's recurrence, with the operands between them in the
 * workspace. Gates, beta and the norm of q and k are as in kda_intra.h.
 *
 * Few long sequences of few heads leave a GPU idle in the recurrence, so they are cut
 * into segments that run side by side: kda_scan computes what each does to a state, and
 * the recurrence begins each with the state that those before it make. That costs
 * more products and one more launch. The problem may say how, else the estimate does.
 *
 * With gates of at least -5 (safe_gate) and heads of 128 one launch may do all of it, in
 * chunks of 16 tokens and without a workspace, where the table or the estimate says so.
 */
#ifndef GEN_KDA_PREFILL_H
#define GEN_KDA_PREFILL_H

#include "gen.h"
#include "kda/public.h"

enum gen_kda_prefill_tag { GEN_KDA_PREFILL = 0x4b444150 /* "KDAP" */ };

typedef struct gen_kda_prefill_problem {
    gen_problem base;     /* size, GEN_KDA_PREFILL, flags */
    int32_t batch;        /* sequences; 0 is legal and launches nothing */
    int32_t seq_len;      /* tokens of each sequence; with num_tokens the most of any */
    int32_t num_tokens;   /* 0: every sequence has seq_len tokens, one behind the other;
                             else cu_seqlens says, and this is their sum. A batch whose
                             sequences are all empty has seq_len 0 and num_tokens 0 */
    int32_t num_qk_heads; /* 1 to 65536 */
    int32_t num_v_heads;  /* a multiple of num_qk_heads, up to 65536 */
    int32_t head_dim;     /* K = V: 64 or 128 */
    int32_t dtype;        /* of q, k, v, o: GEN_DTYPE_BF16 or GEN_DTYPE_FP16 */
    int32_t gate_dtype;   /* of g: dtype or GEN_DTYPE_FP32 */
    int32_t beta_dtype;   /* of beta: dtype or GEN_DTYPE_FP32 */
    int32_t safe_gate;    /* 1: no activated gate is below -5; 0: any gates, slower */
    /* Sequences in segments of so many chunks of 64 tokens: up to 16777216, and no more than
     * 65535 segments (num_tokens / 64 + batch) / segment_chunks + batch; -1: whole; 0: as is
     * estimated to take the least time, whole with GEN_BATCH_INVARIANT */
    int32_t segment_chunks;
    int32_t index_dtype; /* enum gen_index_dtype: of cu_seqlens */
    int32_t state_pool;  /* 1: states are in pools and there may be checkpoints, as the arguments'
                            `pools` says; 0: `pools` is all 0 */
    int32_t state_dtype; /* enum gen_state_dtype of states, initial, final and checkpoints; fp32
                            unless state_pool is 1 */
} gen_kda_prefill_problem;

/* Device pointers (host pointers for the CPU backend), 16-byte aligned, but where
 * said otherwise. */
typedef struct gen_kda_prefill_args {
    gen_args base;             /* size, GEN_KDA_PREFILL */
    const void *q;             /* [tokens, num_qk_heads, head_dim] */
    const void *k;             /* [tokens, num_qk_heads, head_dim] */
    const void *v;             /* [tokens, num_v_heads, head_dim] */
    const void *g;             /* [tokens, num_v_heads, head_dim]; activated gates are finite */
    const void *beta;          /* [tokens, num_v_heads], aligned to its type */
    const float *A_log;        /* [num_v_heads], 4-byte aligned; NULL: as in kda_intra */
    const float *dt_bias;      /* [num_v_heads, head_dim]; NULL: 0 */
    const int32_t *cu_seqlens; /* [batch + 1], 4-byte aligned; NULL where num_tokens is 0
                                  and seq_len is not */
    /* The same on the host, or NULL. It is checked before the launch; without it a wrong
     * cu_seqlens makes wrong results, though no wrong access. */
    const int32_t *cu_seqlens_host;
    const void *initial_state; /* [batch, num_v_heads, head_dim, head_dim], fp32, or a pool; NULL:
                                  zeros */
    void *final_state;         /* the same, of every sequence; NULL: not wanted. May be
                                  initial_state */
    void *o;                   /* [tokens, num_v_heads, head_dim] */
    void *states;              /* the state before each chunk, as in kda_inter, which says how
                                  much room it takes; NULL: not wanted */
    /* Distance between tokens in elements, a multiple of 8 (beta: any); 0: packed. */
    int64_t q_stride, k_stride, v_stride, g_stride, beta_stride, o_stride;
    float scale;                  /* of the output; head_dim^-0.5 is usual */
    float lower_bound;            /* of the gate, -5 <= lower_bound < 0; -5 is usual */
    int32_t gate_form;            /* enum gen_kda_gate_form; x = g + dt_bias */
    int32_t beta_form;            /* enum gen_kda_beta_form */
    int32_t qk_l2norm;            /* 1: q and k are divided by sqrt(sum of squares + 1e-6) first */
    int32_t state_layout;         /* enum gen_kda_state_layout */
    const int64_t *cu_seqlens_64; /* cu_seqlens of 64 bits, in place of it; 8-byte aligned */
    struct gen_kda_pools pools;   /* with state_pool = 1; lists of int are 4-byte aligned */
} gen_kda_prefill_args;

#endif /* GEN_KDA_PREFILL_H */
