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

/*
 * States as engines keep them, of a problem whose state_pool is 1: initial_state and final_state are
 * pools of slots, each [num_v_heads, V, K] or [num_v_heads, K, V] in one piece, of state_dtype. A
 * slot below 0, from num_slots on, or the null slot is null: no byte of it is read or written, a
 * state that would come from there begins at 0, and one that would go there is dropped.
 *
 * Checkpoints are states behind tokens 64 c of a sequence, 0 <= 64 c <= its length: what
 * final_state of a call with the sequence cut there would be, to the last bit where no segments are
 * cut. A list has its entries of sequence n in ckpt_begin[n] to ckpt_begin[n + 1] - 1, with ascending
 * tokens; an entry whose token is no such number is not written. Or, without a list, with ckpt_every
 * > 0 column j of ckpt_slot[n] is for token 64 ckpt_every (j + 1). All of it is read on the device
 * when the kernel runs, so a captured graph may be replayed with others.
 *
 * No two states may be written to one slot, and none that another sequence is read from. The slot
 * that a sequence begins in may be the one that its final state goes to. Where pools are one memory,
 * the same holds of all their slots.
 */
struct gen_kda_pools {
    const int *slots_in;              /* [batch]: slot of each sequence's initial state; NULL: n */
    const int *slots_out;             /* [batch]: of its final state; NULL: n */
    const unsigned char *has_initial; /* [batch]: 0: it begins at 0 whatever the slot holds; NULL: 1 */
    long long stride_in, stride_out;  /* from slot to slot in elements of state_dtype, a multiple of
                                         16 bytes; 0: packed */
    int num_slots;                    /* of initial_state and of final_state; 0: batch */
    int null_slot;                    /* 0: none; n > 0: slot n - 1 is null, too */
    void *ckpt_pool;                  /* NULL: no checkpoints */
    const int *ckpt_begin;            /* [batch + 1]; NULL: not a list */
    const int *ckpt_token;            /* [num_ckpts] */
    const int *ckpt_slot;             /* [num_ckpts], or [batch, ckpt_stride] */
    long long ckpt_state_stride;      /* as stride_in */
    int num_ckpt_slots;               /* of ckpt_pool */
    int num_ckpts;                    /* entries of the list */
    int ckpt_every;                   /* chunks of 64 tokens; 0: not in regular distances */
    int ckpt_stride;                  /* columns of ckpt_slot */
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
