/* What the kernels of la_decode take; runtime/families/la_decode/api.h has the operator. The host
 * (C11) and the device compiler read it: plain C types, and nothing of the host is included. */
#ifndef GEN_LA_DECODE_ARGS_H
#define GEN_LA_DECODE_ARGS_H

/* What the kernels take. Quotients are by multiplication: x / d is
 * umulhi(x, mul) >> shift for every x below 2^31, and mul = 0 means d = 1. */
struct gen_la_decode_params {
    const void *q, *k, *v;
    void *o;
    const float *decay;
    float *state;
    const int *slots;
    long long q_stride, k_stride, v_stride, o_stride; /* elements */
    unsigned num_states;                              /* batch * num_v_heads */
    unsigned num_v_heads;
    unsigned heads_mul, heads_shift; /* / num_v_heads: state -> row */
    unsigned group_mul, group_shift; /* / group: value head -> query head */
    unsigned decay_mul, decay_shift; /* / (num_v_heads / num_decays) */
    unsigned num_slots;
    int zero_padding;
    float scale;
    float pad;
};

#ifdef __cplusplus
static_assert(sizeof(struct gen_la_decode_params) == 136, "same on both sides");
#elif !defined(__CUDACC_RTC__)
_Static_assert(sizeof(struct gen_la_decode_params) == 136, "same on both sides");
#endif

#endif /* GEN_LA_DECODE_ARGS_H */
