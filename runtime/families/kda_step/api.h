/*
 * One decode step of a Kimi Delta Attention layer in one launch: problem and arguments.
 *
 * One new token for each of `batch` rows, between the projections in front of the layer's mixer and
 * the one behind it. Of a row's inputs x = q | k | v (num_qk_heads * 128, as many, num_v_heads *
 * 128 channels), for each channel c
 *
 *     y[c] = conv_bias[c] + sum over taps i of conv_w[i,c] * window[i,c]
 *
 * where the window is the last conv_width - 1 inputs, oldest first, which conv_state holds, and x;
 * conv_state then holds the last conv_width - 1 of these, as they came. With y = y / (1 + exp(-y)),
 * by head of 128 channels and with qh = hv / (num_v_heads / num_qk_heads):
 *
 *     q = scale * y_q / sqrt(sum of y_q^2 + 1e-6),  k = y_k / sqrt(sum of y_k^2 + 1e-6),  v = y_v
 *     S[k,v] = exp(g[hv,k]) * S[k,v]                      g from gate, A_log, dt_bias
 *     e[v]   = v[hv,v] - sum over k of k[qh,k] * S[k,v]
 *     S[k,v] = S[k,v] + beta[hv] * k[qh,k] * e[v]
 *     o[hv,v] = sum over k of q[qh,k] * S[k,v]
 *     out    = o / sqrt(mean over v of o^2 + eps) * norm_w * sigmoid(z)
 *
 * All of it in fp32; nothing but `out` and states of 16 bits is rounded. Without norm_w and z,
 * out = o.
 */
#ifndef GEN_KDA_STEP_H
#define GEN_KDA_STEP_H

#include "gen.h"
#include "kda/public.h"

enum gen_kda_step_tag { GEN_KDA_STEP = 0x4b445354 /* "KDST" */ };

typedef struct gen_kda_step_problem {
    gen_problem base;     /* size, GEN_KDA_STEP, flags */
    int32_t batch;        /* rows; 0 is legal and launches nothing */
    int32_t num_qk_heads; /* 1 to 65536 */
    int32_t num_v_heads;  /* a multiple of num_qk_heads, up to 65536;
                             batch * num_v_heads below 2^27 */
    int32_t head_dim;     /* K = V: 128 */
    int32_t dtype;        /* of x, conv_state, z, out: GEN_DTYPE_BF16 or GEN_DTYPE_FP16 */
    int32_t gate_dtype;   /* of gate: dtype or GEN_DTYPE_FP32 */
    int32_t beta_dtype;   /* of beta: dtype or GEN_DTYPE_FP32 */
    int32_t state_layout; /* enum gen_kda_state_layout: GEN_KDA_STATE_VK */
    int32_t state_dtype;  /* enum gen_state_dtype */
} gen_kda_step_problem;

/* Device pointers (host pointers for the CPU backend), 16-byte aligned where nothing else is said.
 * conv_w, conv_bias, norm_w, A_log and dt_bias may be read before the kernel in front on the stream
 * has ended: it must not write them, but with GEN_SERIAL_LAUNCH. `channels` is (2 num_qk_heads +
 * num_v_heads) * 128. */
typedef struct gen_kda_step_args {
    gen_args base;          /* size, GEN_KDA_STEP */
    const void *x;          /* [batch, channels]: q | k | v, before the convolution */
    const float *conv_w;    /* [conv_width, channels], the oldest input's first */
    const float *conv_bias; /* [channels]; NULL: 0 */
    void *conv_state;       /* the pool of windows, conv_layout */
    const void *gate;       /* [batch, num_v_heads, 128], gate_dtype */
    const void *beta;       /* [batch, num_v_heads], beta_dtype, aligned as one */
    const float *A_log;     /* [num_v_heads], 4-byte aligned; NULL: 0 (LOWER_BOUND alone) */
    const float *dt_bias;   /* [num_v_heads, 128]; NULL: 0 */
    const void *z;          /* [batch, num_v_heads, 128]; NULL together with norm_w: no norm */
    const float *norm_w;    /* [128] */
    void *state;            /* the pool of states [num_slots, num_v_heads, 128, 128], state_dtype */
    const int32_t *slots;   /* [batch], 4-byte aligned: where a row's state is, and its window. A
                               slot < 0, >= num_slots or the null slot below marks a padding row,
                               for which neither pool is touched. No two rows of one launch may
                               share a slot. NULL: slot b */
    void *out;              /* [batch, num_v_heads, 128] */
    /* From row to row in elements; 0: packed. Multiples of 8, but any for beta. */
    int64_t x_stride, gate_stride, beta_stride, z_stride, out_stride;
    /* Of conv_w in elements, multiples of 4: from tap to tap (0: channels), and from q's channels
     * to k's and on to v's (0: num_qk_heads * 128). Weights that come as [3, conv_width, channels
     * of a part] have the channels of a part for the one and conv_width times that for the other.
     */
    int64_t conv_w_tap_stride, conv_w_part_stride;
    /* From slot to slot in elements, multiples of 16 bytes; 0: packed. What is in a slot is
     * contiguous. */
    int64_t conv_state_stride, state_stride;
    int32_t num_slots;   /* slots in both pools, >= 1 */
    int32_t null_slot;   /* 0: none; n > 0: slot n - 1 is null, as the slots outside of the pool
                            are (an engine whose padding rows have block 0 passes 1) */
    int32_t conv_width;  /* taps: 2, 3, 4 */
    int32_t conv_layout; /* enum gen_kda_conv_layout */
    int32_t conv_state_update; /* 1: the windows move on; 0: they are read alone */
    int32_t gate_form;         /* enum gen_kda_gate_form */
    int32_t beta_form;         /* enum gen_kda_beta_form */
    int32_t z_form;            /* enum gen_kda_z_form */
    int32_t zero_padding;      /* 0: the outputs of a padding row are left as they were;
                                  1: they are set to zero */
    float scale;               /* 128^-0.5 is usual */
    float lower_bound;         /* -5 to below 0; read with GEN_KDA_GATE_LOWER_BOUND alone */
    float eps;                 /* >= 0; read with norm_w alone */
} gen_kda_step_args;

#endif /* GEN_KDA_STEP_H */
