/* What the kernels of attn_merge take; runtime/families/attn_merge/api.h has the operator. */
#ifndef GEN_ATTN_MERGE_ARGS_H
#define GEN_ATTN_MERGE_ARGS_H

/* Strides in elements. */
struct gen_attn_merge_params {
    const void *v, *v_2; /* v_2: or null */
    const float *lse, *lse_2;
    void *o;
    float *o_lse; /* or null */
    long long v_row, v_state, v_head, lse_row, lse_state, lse_head;
    long long v_2_row, v_2_head, lse_2_row, lse_2_head;
    long long o_row, o_head, o_lse_row, o_lse_head;
    unsigned num_items, num_heads; /* items: rows times heads */
    unsigned num_states, vectors;  /* vectors of 16 bytes in a row of v */
    unsigned heads_mul, heads_shift, vectors_mul, vectors_shift; /* item / heads, thread / vectors */
    unsigned items; /* of a block */
    float to_log2;  /* an lse in base 2, of one in the base that it has */
};

#ifdef __cplusplus
static_assert(sizeof(struct gen_attn_merge_params) == 200, "same on both sides");
#elif !defined(__CUDACC_RTC__)
_Static_assert(sizeof(struct gen_attn_merge_params) == 200, "same on both sides");
#endif

#endif /* GEN_ATTN_MERGE_ARGS_H */
