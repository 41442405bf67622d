/* Problems, variants and inputs for the tests of kda_prefill and its launches. */
#ifndef TEST_FAMILY_KDA_PREFILL_H
#define TEST_FAMILY_KDA_PREFILL_H

#include "families/kda/prefill.h"
#include "families/kda_prefill/api.h"
#include "reference/half.h"
#include "test.h"

#include <stdlib.h>

static inline gen_kda_prefill_problem kda_prefill_problem(int32_t batch, int32_t seq_len,
                                                          int32_t heads)
{
    return (gen_kda_prefill_problem){
        .base = {sizeof(gen_kda_prefill_problem), GEN_KDA_PREFILL, 0, 0},
        .batch = batch,
        .seq_len = seq_len,
        .num_qk_heads = heads,
        .num_v_heads = heads,
        .head_dim = 128,
        .dtype = GEN_DTYPE_BF16,
        .gate_dtype = GEN_DTYPE_FP32,
        .beta_dtype = GEN_DTYPE_FP32,
        .safe_gate = 1,
    };
}

static inline struct gen__facts kda_prefill_variant(int32_t groups)
{
    return (struct gen__facts){.index = 7,
                               .threads = (uint32_t)(128 * groups + 128),
                               .shared_dynamic = 200 << 10,
                               .registers = 168,
                               .cluster = 1,
                               .fact = {groups, 1, 1}};
}

/* The caller frees them. */
static inline uint16_t *random_bf16(int64_t count, double size, uint64_t *random)
{
    uint16_t *x = malloc((size_t)count * sizeof *x);
    for (int64_t i = 0; i < count; i++)
        x[i] = gen__bf16_from_double(size * random_unit(random));
    return x;
}

static inline float *random_fp32(int64_t count, double middle, double size, uint64_t *random)
{
    float *x = malloc((size_t)count * sizeof *x);
    for (int64_t i = 0; i < count; i++)
        x[i] = (float)(middle + size * random_unit(random));
    return x;
}

#endif /* TEST_FAMILY_KDA_PREFILL_H */
