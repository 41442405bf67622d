/* What the kernels of kda_step and gdn_step take; runtime/families/kda_step/api.h has the operator.
 * The host (C11) and the device compiler read it: plain C types, and nothing of the host is included. */
#ifndef GEN_KDA_STEP_ARGS_H
#define GEN_KDA_STEP_ARGS_H

#include "kda/public.h" /* forms of the gate, of beta and of z, layouts of windows */

#define GEN_KDA_STEP_MAX_WIDTH 4

/* Quotients are by multiplication: x / d is umulhi(x, mul) >> shift for every x below 2^31, and
 * mul = 0 means d = 1. Types are enum gen_dtype, strides are elements. What is read before the
 * kernel waits for the one in front comes first. */
struct gen_kda_step_params {
    const float *conv_w, *conv_bias, *norm_w, *a_log, *dt_bias;
    long long conv_w_tap, conv_w_part;
    unsigned num_qk_heads, group, channels;
    unsigned heads_mul, heads_shift; /* / num_qk_heads: (row, query head) -> row */
    int conv_width;
    const int *slots;
    const void *x, *gate, *beta, *z;
    void *conv_state, *state, *out;
    long long x_stride, gate_stride, beta_stride, z_stride, out_stride;
    long long conv_stride, state_stride; /* slot to slot */
    unsigned num_slots;
    int null_slot; /* < 0: none beside those that the pools do not have */
    int conv_layout, conv_update, gate_form, beta_form, z_form, zero_padding;
    int dtype, gate_dtype, beta_dtype;
    int state_fp16; /* states of 16 bits are fp16, not bf16 */
    float scale, lower_bound, eps;
    unsigned units; /* rows * query heads */
};

#ifdef __cplusplus
static_assert(sizeof(struct gen_kda_step_params) == 264, "same on both sides");
#elif !defined(__CUDACC_RTC__)
_Static_assert(sizeof(struct gen_kda_step_params) == 264, "same on both sides");
#endif

#endif /* GEN_KDA_STEP_ARGS_H */
