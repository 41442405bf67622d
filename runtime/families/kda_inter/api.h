/*
 * Kimi Delta Attention, the part between chunks: the state goes from chunk to
 * chunk, and the outputs come of it. An operator of its own; kda_prefill runs it
 * behind kda_intra, whose args.h has the layouts of the operands.
 *
 * For each sequence and value head, S the state (K x V) before the chunk:
 *
 *     vn = u - w S
 *     o  = qg S + A_qk vn          (qg and A_qk carry the scale)
 *     S  = decay S + kg' vn
 *
 * All 64 rows of a chunk count; rows beyond the sequence's end are zeros of w, u
 * and kg, and no output.
 */
#ifndef GEN_KDA_INTER_H
#define GEN_KDA_INTER_H

#include "gen.h"
#include "kda/public.h"

enum gen_kda_inter_tag { GEN_KDA_INTER = 0x4b444153 /* "KDAS" */ };

typedef struct gen_kda_inter_problem {
    gen_problem base;    /* size, GEN_KDA_INTER, flags */
    int32_t batch;       /* sequences; 0 is legal and launches nothing */
    int32_t seq_len;     /* tokens of each sequence; with num_tokens the most of any */
    int32_t num_tokens;  /* 0: every sequence has seq_len tokens; else as in kda_intra */
    int32_t num_v_heads; /* 1 to 65536 */
    int32_t head_dim;    /* K = V: 64 or 128 */
    int32_t dtype;       /* of o and the operands: GEN_DTYPE_BF16 or GEN_DTYPE_FP16 */
    int32_t state_pool; /* 1: states are in pools, as the arguments' `pools` says; 0: it is all 0 */
    int32_t state_dtype; /* enum gen_state_dtype; fp32 unless state_pool is 1 */
} gen_kda_inter_problem;

/* Device pointers (host pointers for the CPU backend), 16-byte aligned. */
typedef struct gen_kda_inter_args {
    gen_args base;             /* size, GEN_KDA_INTER */
    const void *w;             /* [num_slots, num_v_heads, 64 x head_dim], -w */
    const void *u;             /* [num_slots, num_v_heads, head_dim x 64] */
    const void *qg;            /* [num_slots, num_v_heads, 64 x head_dim] */
    const void *kg;            /* [num_slots, num_v_heads, 64 x head_dim] */
    const void *a_qk;          /* [num_slots, num_v_heads, 64 x 64] */
    const float *decay;        /* [num_slots, num_v_heads, head_dim] */
    const int32_t *cu_seqlens; /* as in kda_intra */
    const void *initial_state; /* [batch, num_v_heads, head_dim, head_dim], fp32, or a pool; NULL:
                                  zeros */
    void *final_state;         /* the same, of every sequence; NULL: not wanted. May be
                                  initial_state */
    void *o;                   /* [tokens, num_v_heads, head_dim] */
    /* The state before each chunk, rounded: [chunks, num_v_heads, head_dim, head_dim] in
     * state_layout, the sequences' chunks one behind the other (no slots). Room for
     * min(batch * ceil(seq_len / 64), num_tokens / 64 + batch) chunks; without num_tokens
     * batch * ceil(seq_len / 64). NULL: not wanted */
    void *states;
    int64_t o_stride;     /* between tokens in elements, a multiple of 8; 0: packed */
    int32_t state_layout; /* enum gen_kda_state_layout */
    int32_t pad;
    struct gen_kda_pools pools; /* with state_pool = 1; lists of int are 4-byte aligned */
} gen_kda_inter_args;

#endif /* GEN_KDA_INTER_H */
