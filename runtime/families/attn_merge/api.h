/*
 * Merge of attention states: one operator over disjoint sets of keys, of what it gave on each of
 * them. It serves cascades (a shared prefix once, each one's suffix, merged), context parallelism,
 * chunked prefill and kernels that split the keys.
 *
 * For each row r, head h, over the states i < num_states, with v_i and the log-sum-exp lse_i:
 *
 *     L = max lse_i,  w_i = exp(lse_i - L),  d = sum of w_i      (2^(...) with lse_base_2)
 *     o = sum of w_i v_i / d,  o_lse = L + ln d                  (log2 d)
 *
 * A state whose lse is -infinity or +infinity is empty, and its v is not looked at: some kernels
 * write +infinity for rows without keys. Where all are empty o = 0 and o_lse = -infinity. A NaN
 * among the others makes the row's outputs NaN. Sums are of fp32, by number of state: the same
 * problem gives the same bits. One state that is not empty is copied to the last bit. An attention
 * sink belongs to one merge alone, the last, as a state of its own with v = 0.
 */
#ifndef GEN_ATTN_MERGE_H
#define GEN_ATTN_MERGE_H

#include "gen.h"

enum gen_attn_merge_tag { GEN_ATTN_MERGE = 0x41544d47 /* "ATMG" */ };

typedef struct gen_attn_merge_problem {
    gen_problem base;   /* size, GEN_ATTN_MERGE, flags */
    int32_t num_rows;   /* query tokens of the batch; 0 is legal and launches nothing */
    int32_t num_heads;  /* 1 to 1024; num_rows * num_heads < 2^31 */
    int32_t num_states; /* 1 to 65536 */
    int32_t head_dim;   /* of v and o: a multiple of 8, 8 to 512 */
    int32_t dtype;      /* of v: GEN_DTYPE_BF16, GEN_DTYPE_FP16 or GEN_DTYPE_FP32 */
    int32_t o_dtype;    /* of o: any of the three */
} gen_attn_merge_problem;

/*
 * Device pointers (host pointers for the CPU backend): v and o 16-byte aligned, lse 4. The states
 * are a dimension of v and lse, or with num_states 2 they may be two tensors: v_2 and lse_2.
 * Strides are in elements, 0 is packed, the last dimension is contiguous. o may be the first
 * state's or v_2's memory, and o_lse the first state's lse or lse_2, with the same strides.
 */
typedef struct gen_attn_merge_args {
    gen_args base;      /* size, GEN_ATTN_MERGE */
    const void *v;      /* [num_rows, num_states, num_heads, head_dim]; without states beside v_2 */
    const float *lse;   /* [num_rows, num_states, num_heads]; without states beside lse_2 */
    const void *v_2;    /* [num_rows, num_heads, head_dim], the second of two states, or NULL */
    const float *lse_2; /* [num_rows, num_heads]; NULL where v_2 is */
    void *o;            /* [num_rows, num_heads, head_dim] */
    float *o_lse;       /* [num_rows, num_heads]; may be NULL */
    int64_t v_row_stride, v_state_stride, v_head_stride;       /* multiples of 8 */
    int64_t lse_row_stride, lse_state_stride, lse_head_stride; /* any */
    int64_t v_2_row_stride, v_2_head_stride;                   /* multiples of 8 */
    int64_t lse_2_row_stride, lse_2_head_stride;               /* any */
    int64_t o_row_stride, o_head_stride;                       /* multiples of 8 */
    int64_t o_lse_row_stride, o_lse_head_stride;               /* any */
    int32_t lse_base_2; /* 1: all lse are logarithms of base 2; 0: natural */
} gen_attn_merge_args;

#endif /* GEN_ATTN_MERGE_H */
