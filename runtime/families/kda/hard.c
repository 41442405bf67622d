/*
 * Inputs that are hard for the inverse of a chunk, for the verifier and the tests of
 * kda_intra, kda_chunk_intra and kda_prefill: chunk.h says which.
 */
#include "families/kda/chunk.h"
#include "reference/scatter.h"
#include "reference/half.h"

#include <math.h>

static void put(enum gen_dtype dtype, void *data, int64_t at, double x)
{
    if (dtype == GEN_DTYPE_FP32)
        ((float *)data)[at] = (float)x;
    else if (dtype == GEN_DTYPE_FP16)
        ((uint16_t *)data)[at] = gen__fp16_from_double(x);
    else
        ((uint16_t *)data)[at] = gen__bf16_from_double(x);
}

void gen__kda_fill_gates(const struct gen__tensor *g, void *data)
{
    for (int64_t i = 0; data && g->fill == GEN__FILL_FAMILY && i < (int64_t)g->count; i++)
        put(g->dtype, data, i, g->amount);
}

enum { GREAT_EVERY = 24 };

/* Nearly normal: a sum of uniform numbers, of variance 1. */
static double nearly_normal(uint64_t seed, int64_t at)
{
    return 2.0 * (gen__scatter(seed, 3 * at) + gen__scatter(seed, 3 * at + 1) +
                  gen__scatter(seed, 3 * at + 2) - 1.5);
}

void gen__kda_fill_hard(const int32_t *d, uint64_t seed, const struct gen__tensor *k, void *k_data,
                        const struct gen__tensor *beta, void *beta_data)
{
    const int64_t width = (int64_t)d[KDA_QK_HEADS] * d[KDA_HEAD_DIM];
    const double unit = 1.0 / sqrt((double)d[KDA_HEAD_DIM]);
    for (int64_t i = 0; k_data && k->fill == GEN__FILL_FAMILY && i < (int64_t)k->count; i++) {
        const bool great = i / width % GREAT_EVERY == GREAT_EVERY - 1;
        const double length = great ? -k->amount : 1.0;
        put(k->dtype, k_data, i,
            k->amount > 0 ? k->amount : unit * length * nearly_normal(seed, i));
    }
    for (int64_t i = 0; beta_data && beta->fill == GEN__FILL_FAMILY && i < (int64_t)beta->count;
         i++) {
        const double other = i / d[KDA_V_HEADS] % 2 ? -beta->amount : 0.5;
        put(beta->dtype, beta_data, i, beta->amount > 0 ? beta->amount : other);
    }
}

static void of_family(struct gen__tensor *t, double amount)
{
    t->fill = GEN__FILL_FAMILY;
    t->amount = amount;
}

void gen__kda_no_gates(const struct gen__kda_hard *t)
{
    t->g->fill = GEN__FILL_UNIFORM;
    t->g->amount = 0;
    t->a_log->count = t->dt_bias->count = 0;
}

void gen__kda_uniform_keys(const struct gen__kda_hard *t)
{
    t->q->fill = t->k->fill = t->v->fill = GEN__FILL_UNIFORM;
    t->q->amount = t->k->amount = t->v->amount = 1;
    of_family(t->beta, 0.7);
    gen__kda_no_gates(t);
}

void gen__kda_constant_keys(const struct gen__kda_hard *t)
{
    t->v->fill = GEN__FILL_UNIFORM;
    t->v->amount = 1;
    of_family(t->k, 1);
    gen__kda_no_gates(t);
}

void gen__kda_constant_beta(const struct gen__kda_hard *t)
{
    gen__kda_uniform_keys(t);
    of_family(t->k, 1);
    of_family(t->beta, 0.99);
}

bool gen__kda_large_keys(const int32_t *d, const struct gen__kda_hard *t)
{
    of_family(t->k, 24);
    of_family(t->beta, 0.9);
    gen__kda_no_gates(t);
    return d[KDA_DTYPE] == GEN_DTYPE_BF16 && d[KDA_SEQ_LEN] <= 5;
}

bool gen__kda_stretching_keys(const int32_t *d, const struct gen__kda_hard *t)
{
    of_family(t->k, sqrt(2.0 / d[KDA_HEAD_DIM]));
    of_family(t->beta, 2);
    gen__kda_no_gates(t);
    return d[KDA_DTYPE] == GEN_DTYPE_BF16 && d[KDA_SEQ_LEN] <= 24;
}

bool gen__kda_mixed_keys(const int32_t *d, const struct gen__kda_hard *t)
{
    of_family(t->k, -256);
    gen__kda_no_gates(t);
    return d[KDA_DTYPE] == GEN_DTYPE_BF16 && d[KDA_SEQ_LEN] <= 192;
}

bool gen__kda_steep_keys(const int32_t *d, const struct gen__kda_hard *t)
{
    of_family(t->k, 10000);
    of_family(t->beta, 1e-8);
    of_family(t->g, -5);
    t->a_log->count = t->dt_bias->count = 0;
    return d[KDA_DTYPE] == GEN_DTYPE_BF16;
}
