/*
 * Kimi Delta Attention decode: problem and arguments.
 *
 * One to sixteen new tokens for each of `batch` rows. The state of a row and a
 * value head hv is a matrix S[k,v]; with qh = hv / (num_v_heads / num_qk_heads),
 * for each token in turn (exp and the gate by key channel):
 *
 *     S[k,v] = exp(g[hv,k]) * S[k,v]                      decay
 *     e[v]   = v[hv,v] - sum over k of k[qh,k] * S[k,v]   error of the prediction
 *     S[k,v] = S[k,v] + beta[hv] * k[qh,k] * e[v]
 *     o[hv,v] = scale * sum over k of q[qh,k] * S[k,v]    (the new state)
 *
 * With a ring (ring_len) the state in the pool is that of some tokens ago, and each token since
 * then has left a record in its slot's ring: k as it was used (normalised, rounded to dtype), g as
 * it came and u = beta * e. A step replays them on the state, which it does not write, and adds its
 * own. When the ring holds ring_len - 1 records, or the row's `flush` is set, the step folds
 * instead: the state behind its token goes to the pool, and no record is added. ring_fill and
 * ring_base, one number a slot that all layers share, are read alone: a launch of kda_ring_advance
 * behind a step's last layer brings them up to date. With num_tokens = 0 each row's records are
 * folded, and nothing else: before its slot is copied or a prefill goes on from it. q, k, v, g,
 * beta and o are not looked at then.
 *
 * With a ring and several tokens a row (drafts to be verified) the write is WRITE_RECORDS: each
 * token's record goes behind those that are there, and none is part of the state until
 * kda_ring_advance gets how many tokens were accepted; the others' records are overwritten by
 * the next step. Where the ring then has no room for another step (fill + 2 num_tokens > ring_size)
 * or the row's `flush` is set, the step folds what was there before it: the state in front of its
 * tokens goes to the pool.
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

enum gen_kda_decode_limit { GEN_KDA_DECODE_MOST_TOKENS = 16 /* of a row */ };

/* Beside enum gen_kda_decode_write: of a ring alone, the pool is read alone, and each token's
 * record goes to the ring. */
enum gen_kda_decode_write_ring { GEN_KDA_DECODE_WRITE_RECORDS = 3 };

typedef struct gen_kda_decode_problem {
    gen_problem base;     /* size, GEN_KDA_DECODE, flags */
    int32_t batch;        /* rows; 0 is legal and launches nothing */
    int32_t num_tokens;   /* of a row, at most: 1 to 16; with a ring 0 too, and up to half of
                             ring_size */
    int32_t num_qk_heads; /* 1 to 65536 */
    int32_t num_v_heads;  /* a multiple of num_qk_heads, up to 65536;
                             batch * num_v_heads below 2^27 */
    int32_t head_dim;     /* K = V: 64 or 128 */
    int32_t dtype;        /* of q, k, v, o: GEN_DTYPE_BF16 or GEN_DTYPE_FP16 */
    int32_t gate_dtype;   /* of g: dtype or GEN_DTYPE_FP32 */
    int32_t beta_dtype;   /* of beta: dtype or GEN_DTYPE_FP32 */
    int32_t state_layout; /* enum gen_kda_state_layout */
    int32_t index_dtype;  /* enum gen_index_dtype: of cu_seqlens */
    int32_t state_dtype;  /* enum gen_state_dtype */
    int32_t ring_len;   /* 0: states are written by every step; 2 to 32: once in so many steps, and
                           in between a record of each token is, below */
    int32_t ring_size;  /* records that a ring holds, ring_len - 1 to 32; 0: ring_len */
    int32_t ring_dtype; /* of ring_u: GEN_STATE_FP32 or GEN_STATE_FP16 */
    int32_t pool;       /* 1: the arguments may have state_stride, null_slot and slots_out. With
                           states of 16 bits, with a ring and with more than 8 tokens they may anyway */
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
    void *state;               /* the pool, state_dtype */
    const int32_t *slots;      /* [batch, slots_stride], 4-byte aligned. Row b's first state is in
                                  slot slots[b, accepted[b] - 1]. A slot < 0, >= num_slots or the
                                  null slot below marks a padding row, no state of which is
                                  touched; where a state would be written there, it is dropped. No
                                  two rows of one launch may share a slot that is written, nor two
                                  columns up to num_tokens. NULL: slot b */
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
    int32_t slots_stride;         /* columns of `slots`; 0: num_tokens with WRITE_EACH and without
                                     slots_out, else 1 */
    int32_t write;                /* enum gen_kda_decode_write, or WRITE_RECORDS */
    int32_t gate_form;            /* enum gen_kda_gate_form */
    int32_t beta_form;            /* enum gen_kda_beta_form */
    int32_t qk_l2norm;            /* 1: q and k are divided by sqrt(sum over K of x^2 + 1e-6) first;
                                     0: as they are. Not rounded between */
    int32_t zero_padding;         /* 0: the outputs of a padding row are left as they were;
                                     1: they are set to zero */
    float scale;                  /* head_dim^-0.5 is usual */
    float lower_bound;            /* -5 to below 0; read with GEN_KDA_GATE_LOWER_BOUND alone */
    const int64_t *cu_seqlens_64; /* cu_seqlens of 64 bits, in place of it; 8-byte aligned */
    int32_t null_slot; /* 0: none; n > 0: slot n - 1 is null, as the slots outside of the pool
                          are (an engine whose padding rows have block 0 passes 1) */
    /* [batch, slots_out_stride], 4-byte aligned: the state behind the last token goes to slot
     * slots_out[b, 0], with WRITE_EACH that behind token t to slots_out[b, t]. May be the slot that
     * the row itself is read from, but no other row's. NULL: to the slot that was read, with
     * WRITE_EACH to slots[b, t]. */
    const int32_t *slots_out;
    int64_t state_stride; /* from slot to slot in elements, a multiple of 16 bytes; 0: packed. The
                             heads' states are contiguous within a slot */
    int32_t slots_out_stride; /* columns of `slots_out`; 0: num_tokens with WRITE_EACH, else 1 */
    /* With a ring all but flush, without one none; write is WRITE_LAST then, with several tokens
     * WRITE_RECORDS, and slots_out and accepted are NULL. The records of a slot are at (ring_base +
     * j) modulo ring_size, j < ring_fill, of its ring. A row of whose slot the fill is outside of 0
     * to ring_size (of several tokens: ring_size - num_tokens), or the base of 0 to ring_size - 1,
     * is a padding row. */
    void *ring_k;             /* [num_slots, num_qk_heads, ring_size, head_dim], dtype */
    void *ring_g;             /* [num_slots, num_v_heads, ring_size, head_dim], gate_dtype */
    void *ring_u;             /* [num_slots, num_v_heads, ring_size, head_dim], ring_dtype */
    const int32_t *ring_fill; /* [num_slots], 4-byte aligned */
    const int32_t *ring_base; /* [num_slots], 4-byte aligned */
    const uint8_t *flush;     /* [batch]: not 0: the row folds in this step. NULL: 0 */
    /* From slot to slot in elements, multiples of 16 bytes; 0: packed. */
    int64_t ring_k_stride, ring_g_stride, ring_u_stride;
} gen_kda_decode_args;

#endif /* GEN_KDA_DECODE_H */
