/* What the kernels of la_decode take; runtime/families/la_decode/api.h has the operator. The host
 * (C11) and the device compiler read it: plain C types, and nothing of the host is included. */
#ifndef GEN_LA_DECODE_ARGS_H
#define GEN_LA_DECODE_ARGS_H

/* What the kernels take whose states are fp32 in a packed pool. Quotients are by multiplication: x / d is
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

/* What the others take: the same, and where and how states are kept. */
#ifdef __cplusplus
struct gen_la_decode_pool_params : gen_la_decode_params {
#else
struct gen_la_decode_pool_params {
    struct gen_la_decode_params decode;
#endif
    const int *slots_out;   /* NULL: the slot that was read */
    long long state_stride; /* elements, slot to slot */
    int null_slot;          /* < 0: none beside those that the pool does not have */
    int state_fp16;         /* states of 16 bits are fp16, not bf16 */
};

#ifdef __cplusplus
static_assert(sizeof(struct gen_la_decode_params) == 136, "same on both sides");
static_assert(sizeof(struct gen_la_decode_pool_params) == 160, "same on both sides");
#elif !defined(__CUDACC_RTC__)
_Static_assert(sizeof(struct gen_la_decode_params) == 136, "same on both sides");
_Static_assert(sizeof(struct gen_la_decode_pool_params) == 160, "same on both sides");
#endif

#endif /* GEN_LA_DECODE_ARGS_H */
