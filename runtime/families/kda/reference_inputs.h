/*
 * Inputs of Kimi Delta Attention as the references of its families read them:
 * loaded from any type, activated, in double.
 */
#ifndef GEN_REFERENCE_KDA_INPUTS_H
#define GEN_REFERENCE_KDA_INPUTS_H

#include "families/kda/chunk.h"
#include "reference/half.h"

#include <math.h>

#define KDA_MAX_HEAD_DIM 128

static inline double gen__kda_load(bool fp32, bool fp16, const void *tensor, int64_t at)
{
    if (fp32)
        return (double)((const float *)tensor)[at];
    const uint16_t code = ((const uint16_t *)tensor)[at];
    return fp16 ? gen__fp16_to_double(code) : gen__bf16_to_double(code);
}

static inline void gen__kda_store(bool fp16, void *tensor, int64_t at, double x)
{
    ((uint16_t *)tensor)[at] = fp16 ? gen__fp16_from_double(x) : gen__bf16_from_double(x);
}

/* One token of a value head. */
struct gen__kda_token {
    double q[KDA_MAX_HEAD_DIM], k[KDA_MAX_HEAD_DIM], v[KDA_MAX_HEAD_DIM];
    double g[KDA_MAX_HEAD_DIM]; /* natural logarithm of the decay */
    double beta;
};

static inline double gen__kda_sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

static inline double gen__kda_gate(const gen_kda_intra_args *a, double x, double rate)
{
    if (a->gate_form == GEN_KDA_GATE_LOWER_BOUND)
        return (double)a->lower_bound * gen__kda_sigmoid(rate * x);
    if (a->gate_form == GEN_KDA_GATE_SOFTPLUS)
        return -rate * (x > 20.0 ? x : log1p(exp(x)));
    return x;
}

static inline void gen__kda_normalize(double *x, int64_t d)
{
    double sum = 1e-6;
    for (int64_t i = 0; i < d; i++)
        sum += x[i] * x[i];
    for (int64_t i = 0; i < d; i++)
        x[i] /= sqrt(sum);
}

/* `scalar`: g and dt_bias have a number a head, which is that of all channels. */
static inline void gen__kda_token_of(const int32_t *dims, const gen_kda_intra_args *a,
                                     int64_t token, int64_t head, bool scalar,
                                     struct gen__kda_token *t)
{
    const bool fp16 = dims[KDA_DTYPE] == GEN_DTYPE_FP16;
    const bool g32 = dims[KDA_GATE_DTYPE] == GEN_DTYPE_FP32;
    const int64_t d = dims[KDA_HEAD_DIM], heads = dims[KDA_V_HEADS];
    const int64_t qk_heads = dims[KDA_QK_HEADS], qk_head = head / (heads / qk_heads);
    const int64_t q_at = token * (a->q_stride ? a->q_stride : qk_heads * d) + qk_head * d;
    const int64_t k_at = token * (a->k_stride ? a->k_stride : qk_heads * d) + qk_head * d;
    const int64_t v_at = token * (a->v_stride ? a->v_stride : heads * d) + head * d;
    const int64_t gates = scalar ? 1 : d;
    const int64_t g_at = token * (a->g_stride ? a->g_stride : heads * gates) + head * gates;
    const int64_t beta_at = token * (a->beta_stride ? a->beta_stride : heads) + head;
    const double rate = a->A_log ? exp((double)a->A_log[head]) : 1.0;
    for (int64_t i = 0; i < d; i++) {
        const int64_t gate = scalar ? 0 : i;
        const double bias = a->dt_bias ? (double)a->dt_bias[head * gates + gate] : 0.0;
        t->q[i] = gen__kda_load(false, fp16, a->q, q_at + i);
        t->k[i] = gen__kda_load(false, fp16, a->k, k_at + i);
        t->v[i] = a->v ? gen__kda_load(false, fp16, a->v, v_at + i) : 0.0;
        t->g[i] = gen__kda_gate(a, gen__kda_load(g32, fp16, a->g, g_at + gate) + bias, rate);
    }
    if (a->qk_l2norm) {
        gen__kda_normalize(t->q, d);
        gen__kda_normalize(t->k, d);
    }
    t->beta = gen__kda_load(dims[KDA_BETA_DTYPE] == GEN_DTYPE_FP32, fp16, a->beta, beta_at);
    if (a->beta_form != GEN_KDA_BETA_GIVEN)
        t->beta = gen__kda_sigmoid(t->beta);
    if (a->beta_form == GEN_KDA_BETA_TWO_SIGMOID)
        t->beta *= 2.0;
}

static inline void gen__kda_token(const int32_t *dims, const gen_kda_intra_args *a, int64_t token,
                                  int64_t head, struct gen__kda_token *t)
{
    gen__kda_token_of(dims, a, token, head, false, t);
}

#endif /* GEN_REFERENCE_KDA_INPUTS_H */
