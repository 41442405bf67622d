/*
 * A launch of the backward pass of Kimi Delta Attention as an operator of its own: gradients of all
 * raw inputs, from what kda_bwd_dhu and the forward stages leave. It is kda_bwd_wy, kda_bwd_intra,
 * kda_gate_bwd and kda_qk_bwd in one, and d_a_qk of kda_bwd_dav besides; their headers have the
 * maths. Nothing of what these hand each other goes through memory.
 *
 * With several value heads to a query head, `sums` is memory for what passes from one of a group's
 * heads to the next, in their order; or d_q_heads and d_k_heads take the gradients of each, as
 * kda_qk_bwd takes them, which spreads few groups over more of a GPU. d_A_log and d_dt_bias are
 * sums over all tokens, of which `partials` gets those of each chunk.
 *
 * Gates within -5 alone (safe_gate is 1), on GPUs of compute capability 9.0.
 */
#ifndef GEN_KDA_BWD_GRAD_H
#define GEN_KDA_BWD_GRAD_H

#include "gen.h"
#include "families/kda_chunk_intra/api.h" /* the stages' problem */
#include "kda/public.h"

enum gen_kda_bwd_grad_tag { GEN_KDA_BWD_GRAD = 0x4b444247 /* "KDBG" */ };

typedef gen_kda_stage_problem gen_kda_bwd_grad_problem;

/* Elements of `partials`. Slots of chunks: batch * ceil(seq_len / 64), or num_tokens / 64 + batch.
 */
#define GEN_KDA_BWD_GRAD_PARTIALS(slots, num_v_heads, head_dim) \
    ((int64_t)(slots) * (num_v_heads) * ((head_dim) + 4))

/* Elements of `sums`: a launch has at most so many blocks. */
enum { GEN_KDA_BWD_GRAD_BLOCKS = 288 };
#define GEN_KDA_BWD_GRAD_SUMS(head_dim) ((int64_t)GEN_KDA_BWD_GRAD_BLOCKS * 2 * 64 * (head_dim))

/* Device pointers (host pointers for the CPU backend), 16-byte aligned, but where
 * said otherwise. Rows of tokens that no sequence has are neither read nor written. */
typedef struct gen_kda_bwd_grad_args {
    gen_args base;             /* size, GEN_KDA_BWD_GRAD */
    const void *q;             /* [tokens, num_qk_heads, head_dim], raw */
    const void *k;             /* [tokens, num_qk_heads, head_dim], raw */
    const void *v;             /* [tokens, num_v_heads, head_dim] */
    const void *v_new;         /* [tokens, num_v_heads, head_dim] */
    const float *gk;           /* [tokens, num_v_heads, head_dim] */
    const void *g;             /* [tokens, num_v_heads, head_dim], raw; NULL with a given gate */
    const float *A_log;        /* [num_v_heads], 4-byte aligned; NULL: as in kda_gate_bwd */
    const float *dt_bias;      /* [num_v_heads, head_dim]; NULL: 0 */
    const void *beta;          /* [tokens, num_v_heads], raw, aligned to its type */
    const void *a_kk;          /* [tokens, num_v_heads, 64]; never read above the diagonal */
    const void *h;             /* [num_chunks, num_v_heads, K, V] */
    const void *d_o;           /* [tokens, num_v_heads, head_dim] */
    const void *d_h;           /* [num_chunks, num_v_heads, K, V] */
    const void *d_v_new;       /* [tokens, num_v_heads, head_dim] */
    const int32_t *cu_seqlens; /* [batch + 1], 4-byte aligned; NULL where num_tokens is 0 */
    void *d_q;                 /* [tokens, num_qk_heads, head_dim]; NULL where d_q_heads is not */
    void *d_k;                 /* the same */
    float *d_q_heads;          /* [tokens, num_v_heads, head_dim], before the norm; NULL: d_q is to
                                  be written */
    float *d_k_heads;          /* the same */
    void *d_v;                 /* [tokens, num_v_heads, head_dim]; may be v */
    void *d_g;                 /* [tokens, num_v_heads, head_dim], of gate_dtype */
    void *d_beta;              /* [tokens, num_v_heads], of beta's type */
    float *partials;           /* [slots, num_v_heads, head_dim + 4] shares of d_dt_bias and, behind
                                  them, of d_A_log, then zeros; zeros alone where no chunk has the
                                  slot. NULL: not wanted, and with a given gate */
    /* Distance between tokens in elements, a multiple of 8 (beta: any); 0: packed. */
    int64_t q_stride, k_stride, g_stride, beta_stride;
    float scale;          /* of the forward pass; head_dim^-0.5 is usual */
    float lower_bound;    /* of the gate, -5 <= lower_bound < 0; -5 is usual */
    int32_t gate_form;    /* enum gen_kda_gate_form */
    int32_t beta_form;    /* enum gen_kda_beta_form */
    int32_t qk_l2norm;    /* 1: q and k are divided by sqrt(sum of squares + 1e-6) first */
    int32_t num_chunks;   /* chunks that h and d_h have: further ones count as zeros. 0: as in
                             kda_chunk_o */
    int32_t state_layout; /* enum gen_kda_state_layout, of h and d_h */
    int32_t pad;
    const int64_t *cu_seqlens_64; /* cu_seqlens of 64 bits, in place of it; 8-byte aligned */
    float *sums; /* [GEN_KDA_BWD_GRAD_SUMS(head_dim)], which d_q takes with several value heads to a
                    query head; else NULL */
} gen_kda_bwd_grad_args;

#endif /* GEN_KDA_BWD_GRAD_H */
