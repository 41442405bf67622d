/* What the tests of kda_bwd's host code begin with. */
#ifndef TEST_FAMILY_KDA_BWD_PROBLEM_H
#define TEST_FAMILY_KDA_BWD_PROBLEM_H

#include "families/kda_bwd/kda_bwd.h"
#include "h200.h"
#include "test.h"

extern const struct gen__family gen__family_kda_bwd;
static const struct gen__family *const family = &gen__family_kda_bwd;

static inline gen_kda_bwd_problem problem(int32_t batch, int32_t seq_len, int32_t qk_heads,
                                          int32_t heads)
{
    return (gen_kda_bwd_problem){
        .base = {sizeof(gen_kda_bwd_problem), GEN_KDA_BWD, 0, 0},
        .batch = batch,
        .seq_len = seq_len,
        .num_qk_heads = qk_heads,
        .num_v_heads = heads,
        .head_dim = 64,
        .dtype = GEN_DTYPE_FP16,
        .gate_dtype = GEN_DTYPE_FP32,
        .beta_dtype = GEN_DTYPE_FP32,
        .safe_gate = 1,
    };
}

#endif /* TEST_FAMILY_KDA_BWD_PROBLEM_H */
