/*
 * Lightning Attention decode: problem and arguments.
 *
 * One new token for each of `batch` rows. For row b and value head hv, with
 * qh = hv / (num_v_heads / num_qk_heads):
 *
 *     lam        = exp(-decay)                       of the head, decay >= 0
 *     h[k,v]     = lam * h[k,v] + k[b,qh,k] * v[b,hv,v]      state, in place
 *     o[b,hv,v]  = sum over k of scale * q[b,qh,k] * h[k,v]  (the new state)
 */
#ifndef GEN_LA_DECODE_H
#define GEN_LA_DECODE_H

#include "gen.h"

enum gen_la_decode_tag { GEN_LA_DECODE = 0x4c414443 /* "LADC" */ };

enum gen_la_state_layout {
    GEN_LA_STATE_VK = 0, /* state pool [num_slots, num_v_heads, V, K] */
    GEN_LA_STATE_KV = 1  /* state pool [num_slots, num_v_heads, K, V] */
};

typedef struct gen_la_decode_problem {
    gen_problem base;     /* size, GEN_LA_DECODE, flags */
    int32_t batch;        /* rows; 0 is legal and launches nothing */
    int32_t num_qk_heads; /* 1 to 65536 */
    int32_t num_v_heads;  /* a multiple of num_qk_heads, up to 65536;
                             batch * num_v_heads below 2^27 */
    int32_t head_dim;     /* K = V: 64, 128 or 256 */
    int32_t dtype;        /* of q, k, v, o: GEN_DTYPE_BF16 or GEN_DTYPE_FP16 */
    int32_t state_layout; /* enum gen_la_state_layout */
    int32_t state_dtype;  /* enum gen_state_dtype: arithmetic is fp32 whatever it is, and a state
                             is rounded once, to nearest, where it is written; of fp16, what lies
                             beyond 65504 stays there */
    int32_t pool; /* 1: the arguments may have state_stride, null_slot and slots_out. With states
                     of 16 bits they may anyway */
} gen_la_decode_problem;

/* Device pointers (host pointers for the CPU backend), 16-byte aligned. */
typedef struct gen_la_decode_args {
    gen_args base;        /* size, GEN_LA_DECODE */
    const void *q;        /* [batch, num_qk_heads, head_dim] */
    const void *k;        /* [batch, num_qk_heads, head_dim] */
    const void *v;        /* [batch, num_v_heads, head_dim] */
    void *o;              /* [batch, num_v_heads, head_dim] */
    const float *decay;   /* [num_decays], 4-byte aligned; decay >= 0 */
    void *state;          /* the pool, state_dtype, updated in place */
    const int32_t *slots; /* [batch], 4-byte aligned; row b lives in slot
                             slots[b]. A slot < 0, >= num_slots or the null
                             slot below marks a padding row: no state is
                             touched. NULL: slot b. Two rows of one launch
                             must not share a slot that is written. */
    /* Distance between batch rows in elements, a multiple of 8; 0: packed. For
     * views into a fused qkv buffer. */
    int64_t q_stride, k_stride, v_stride, o_stride;
    int32_t num_slots;    /* slots in the pool, >= 1 */
    int32_t num_decays;   /* num_qk_heads or num_v_heads */
    float scale;          /* multiplies q; head_dim^-0.5 is usual */
    int32_t zero_padding; /* 0: the output of a padding row is left as it was;
                             1: it is set to zero */
    int32_t null_slot;    /* 0: none; n > 0: slot n - 1 is null, as the slots outside of the pool
                             are (an engine whose padding rows have block 0 passes 1) */
    /* [batch], 4-byte aligned: the new state goes to slot slots_out[b], which may be the slot that
     * the row itself is read from, but no other row's; to a slot that is null it is not written.
     * NULL: where it came from. */
    const int32_t *slots_out;
    int64_t state_stride; /* from slot to slot in elements, a multiple of 16 bytes; 0: packed. The
                             heads' states are contiguous within a slot */
} gen_la_decode_args;

#endif /* GEN_LA_DECODE_H */
