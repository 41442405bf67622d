/*
 * The gradients of Kimi Delta Attention, token by token, in double: the definition that every
 * kernel of the backward pass is held to. Defined in backward.c, which has the maths.
 */
#ifndef GEN_FAMILIES_KDA_BACKWARD_H
#define GEN_FAMILIES_KDA_BACKWARD_H

#include "families/kda/chunk.h"

struct gen__kda_backward {
    gen_kda_intra_args in;      /* raw inputs, their forms, scale; its outputs are not looked at */
    const float *initial_state; /* [batch, num_v_heads, head_dim, head_dim]; NULL: zeros */
    const void *d_o;            /* [tokens, num_v_heads, head_dim], of q's type */
    int64_t d_o_stride;         /* between tokens, in elements; 0: packed */
    const float *d_final_state; /* as initial_state; NULL: zeros */
    int32_t state_layout;       /* enum gen_kda_decode_layout, of all three states */
};

/* Gradients of the raw inputs, packed and not rounded; NULL: not wanted. Rows of tokens that no
 * sequence has stay as they are. */
struct gen__kda_gradients {
    double *q, *k;         /* [tokens, num_qk_heads, head_dim], summed over a group's value heads */
    double *v, *g;         /* [tokens, num_v_heads, head_dim] */
    double *beta;          /* [tokens, num_v_heads] */
    double *A_log;         /* [num_v_heads]: sums over all tokens; zeros where A_log is NULL */
    double *dt_bias;       /* [num_v_heads, head_dim], likewise */
    double *initial_state; /* [batch, num_v_heads, head_dim, head_dim] */
};

enum gen_status gen__kda_backward(const int32_t *dims, const struct gen__kda_backward *b,
                                  const struct gen__kda_gradients *out);

#endif /* GEN_FAMILIES_KDA_BACKWARD_H */
