/* What the kernels of kda_intra take; runtime/families/kda_intra/api.h has the operator. The host
 * (C11) and the device compiler read it: plain C types, and nothing of the host is included. */
#ifndef GEN_KDA_INTRA_ARGS_H
#define GEN_KDA_INTRA_ARGS_H

#include "kda_decode/args.h" /* forms of the gate and of beta, layouts of the state */

#define KDA_CHUNK 64

/* Where sequences lie. Quotients are by multiplication, as in la_decode/args.h. */
struct gen_kda_sequences {
    const int *cu_seqlens; /* or null: all of seq_len tokens */
    int batch, seq_len, num_tokens;
    unsigned chunks_mul, chunks_shift; /* / chunks of seq_len tokens */
    int pad;
};

struct gen_kda_intra_params {
    const void *q, *k, *v, *g, *beta;
    const float *A_log, *dt_bias;
    void *w, *u, *qg, *kg, *a_qk;
    float *decay;
    long long q_stride, k_stride, v_stride, g_stride, beta_stride; /* elements */
    struct gen_kda_sequences sequences;
    int num_v_heads;
    unsigned heads_mul, heads_shift; /* / num_v_heads: block -> slot */
    unsigned group_mul, group_shift; /* / group: value head -> query head */
    float scale, lower_bound;
    int gate; /* 0: with a lower bound; 1: softplus; 2: given */
    int gate_fp32, beta_activation, beta_fp32, l2_norm;
    /* For kda_prefill, else 0. In a chunk whose keys are alike A_qk and kg are times `fold`, w and u times `unfold`, which is
     * 1 / fold, so their products stay as they are; [1] where most cosines of keys and queries are at most 0.8. */
    float fold[2], unfold[2];
};

#ifdef __cplusplus
static_assert(sizeof(struct gen_kda_intra_params) == 240, "same on both sides");
#elif !defined(__CUDACC_RTC__)
_Static_assert(sizeof(struct gen_kda_intra_params) == 240, "same on both sides");
#endif

#endif /* GEN_KDA_INTRA_ARGS_H */
