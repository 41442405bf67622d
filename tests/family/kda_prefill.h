/* Problems and variants for the tests of kda_prefill and its launches. */
#ifndef TEST_FAMILY_KDA_PREFILL_H
#define TEST_FAMILY_KDA_PREFILL_H

#include "families/kda_chunk.h"
#include "kda_prefill/args.h"

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

#endif /* TEST_FAMILY_KDA_PREFILL_H */
