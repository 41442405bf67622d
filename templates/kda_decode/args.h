/* What the kernels of kda_decode take; runtime/families/kda_decode/api.h has the operator. The host
 * (C11) and the device compiler read it: plain C types, and nothing of the host is included. */
#ifndef GEN_KDA_DECODE_ARGS_H
#define GEN_KDA_DECODE_ARGS_H

#include "kda/public.h" /* forms of the gate and of beta, which states are written */

/* Of a row, and of one with fp32 states in a packed pool. */
#define GEN_KDA_DECODE_MAX_TOKENS 16
#define GEN_KDA_DECODE_PLAIN_TOKENS 8

/* Of a kernel that was taken out. The catalog and the tables know the sources of the others by a digest that these lines are
 * part of; a change of all of them may take these away, and the four ints behind ring_fp16. */
#define GEN_KDA_DECODE_BULK_SHARED (227 * 1024)
#define GEN_KDA_DECODE_BULK_FIXED 1664
#define GEN_KDA_DECODE_BULK_WARP 2304
#define GEN_KDA_DECODE_BULK_BUFFERS 16
#define GEN_KDA_DECODE_BULK_GROUP 4
#define GEN_KDA_DECODE_BULK_PLACES 32
#define GEN_KDA_DECODE_BULK_LEAST (64 * 1024)
#define GEN_KDA_DECODE_BULK_ENOUGH (104 * 1024)
#define GEN_KDA_DECODE_BULK_PIECES 4

/* What the kernels take whose states are fp32 in a packed pool. Quotients are by multiplication: x / d is
 * umulhi(x, mul) >> shift for every x below 2^31, and mul = 0 means d = 1.
 * Types are enum gen_dtype, forms the enums above. */
struct gen_kda_decode_params {
    const void *q, *k, *v, *gate, *beta;
    void *o;
    const float *a_log, *dt_bias;
    void *state;
    const int *slots, *accepted, *cu_seqlens;
    long long q_stride, k_stride, v_stride, gate_stride, beta_stride, o_stride; /* elements */
    unsigned num_v_heads;
    unsigned heads_mul, heads_shift; /* / num_v_heads: state -> row */
    unsigned group_mul, group_shift; /* / group: value head -> query head */
    int num_tokens, total_tokens;
    unsigned num_slots, slots_stride;
    int write, gate_form, beta_form, qk_l2norm, zero_padding;
    int dtype, gate_dtype, beta_dtype;
    float scale, lower_bound;
    float pad;
};

/* What the others take: the same, and where and how states are kept. */
#ifdef __cplusplus
struct gen_kda_decode_pool_params : gen_kda_decode_params {
#else
struct gen_kda_decode_pool_params {
    struct gen_kda_decode_params decode;
#endif
    const int *slots_out;   /* NULL: the slot that was read */
    long long state_stride; /* elements, slot to slot */
    unsigned slots_out_stride;
    int null_slot;  /* < 0: none beside those that the pool does not have */
    int state_fp16; /* states of 16 bits are fp16, not bf16 */
    int num_states; /* rows * value heads */
};

/* What the kernels of tokens = replay take: the same, and the ring of records. */
#ifdef __cplusplus
struct gen_kda_decode_replay_params : gen_kda_decode_pool_params {
#else
struct gen_kda_decode_replay_params {
    struct gen_kda_decode_pool_params pool;
#endif
    void *ring_k, *ring_g, *ring_u;
    const int *ring_fill, *ring_base;                      /* [num_slots] */
    const unsigned char *flush;                            /* [rows], or NULL */
    long long ring_k_stride, ring_g_stride, ring_u_stride; /* elements, slot to slot */
    int ring_size, ring_len;
    int ring_fp16; /* u is fp16, not fp32 */
    /* Of that kernel: always 0. */
    int buffers, places;
    int active;
    int ahead;
    int pad_of_ring;
};

#ifdef __cplusplus
static_assert(sizeof(struct gen_kda_decode_params) == 224, "same on both sides");
static_assert(sizeof(struct gen_kda_decode_pool_params) == 256, "same on both sides");
static_assert(sizeof(struct gen_kda_decode_replay_params) == 360, "same on both sides");
#elif !defined(__CUDACC_RTC__)
_Static_assert(sizeof(struct gen_kda_decode_params) == 224, "same on both sides");
_Static_assert(sizeof(struct gen_kda_decode_pool_params) == 256, "same on both sides");
_Static_assert(sizeof(struct gen_kda_decode_replay_params) == 360, "same on both sides");
#endif

#endif /* GEN_KDA_DECODE_ARGS_H */
