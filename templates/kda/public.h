/*
 * What callers and kernels of Kimi Delta Attention both name. Kernels include it, and it is
 * installed as kda.h: it includes nothing and uses plain C types.
 */
#ifndef GEN_KDA_H
#define GEN_KDA_H

/* How the K x V matrices of states lie in memory. */
enum gen_kda_state_layout {
    GEN_KDA_STATE_VK = 0, /* [..., num_v_heads, V, K] */
    GEN_KDA_STATE_KV = 1  /* [..., num_v_heads, K, V] */
};

/* g, the natural logarithm of the decay, of what stands in `g` of a problem: x = g + dt_bias. */
enum gen_kda_gate_form {
    GEN_KDA_GATE_GIVEN = 0,      /* as it is; A_log and dt_bias are NULL */
    GEN_KDA_GATE_SOFTPLUS = 1,   /* g = -exp(A_log) * log(1 + exp(x)); x itself for x > 20 */
    GEN_KDA_GATE_LOWER_BOUND = 2 /* g = lower_bound / (1 + exp(-exp(A_log) * x)) */
};

enum gen_kda_beta_form {
    GEN_KDA_BETA_GIVEN = 0,
    GEN_KDA_BETA_SIGMOID = 1,    /* 1 / (1 + exp(-beta)) */
    GEN_KDA_BETA_TWO_SIGMOID = 2 /* twice that: negative eigenvalues are allowed */
};

/* Which states go back to the pool. */
enum gen_kda_decode_write {
    GEN_KDA_DECODE_WRITE_LAST = 0, /* the one behind the last token, where the first came from */
    GEN_KDA_DECODE_WRITE_EACH = 1, /* the one behind token t to slot slots[b, t] */
    GEN_KDA_DECODE_WRITE_NONE = 2  /* none: the pool is read alone */
};

/* How the layout of a pool of convolution windows is: the last inputs of each channel. */
enum gen_kda_conv_layout {
    GEN_KDA_CONV_SD = 0, /* [slots, conv_width - 1, channels] */
    GEN_KDA_CONV_DS = 1  /* [slots, channels, conv_width - 1] */
};

/* What a normalised output is multiplied by, beside the norm's weights. */
enum gen_kda_z_form {
    GEN_KDA_Z_SIGMOID = 0, /* 1 / (1 + exp(-z)) */
    GEN_KDA_Z_SILU = 1     /* z / (1 + exp(-z)) */
};

#endif /* GEN_KDA_H */
