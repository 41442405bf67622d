/* The stages of Kimi Delta Attention prefill, and problems for their tests. */
#ifndef TEST_FAMILY_KDA_STAGES_H
#define TEST_FAMILY_KDA_STAGES_H

#include "families/kda/stage.h"
#include "h200.h"
#include "families/kda_chunk_h/api.h"
#include "families/kda_chunk_o/api.h"
#include "families/kda_gate/api.h"
#include "families/kda_recompute_wu/api.h"
#include "test.h"

extern const struct gen__family gen__family_kda_gate, gen__family_kda_chunk_intra,
    gen__family_kda_recompute_wu, gen__family_kda_chunk_h, gen__family_kda_chunk_o;

enum { GATE, INTRA, WU, STATES, OUTPUT, NUM_STAGES };
static const struct gen__family *const stages[NUM_STAGES] = {
    &gen__family_kda_gate, &gen__family_kda_chunk_intra, &gen__family_kda_recompute_wu,
    &gen__family_kda_chunk_h, &gen__family_kda_chunk_o};

static inline gen_kda_stage_problem problem(int stage, int32_t batch, int32_t seq_len,
                                            int32_t qk_heads, int32_t v_heads)
{
    return (gen_kda_stage_problem){
        .base = {sizeof(gen_kda_stage_problem), stages[stage]->tag, 0, 0},
        .batch = batch,
        .seq_len = seq_len,
        .num_qk_heads = qk_heads,
        .num_v_heads = v_heads,
        .head_dim = 64,
        .dtype = GEN_DTYPE_FP16,
        .gate_dtype = GEN_DTYPE_FP32,
        .beta_dtype = GEN_DTYPE_FP32,
        .safe_gate = 1,
    };
}

#endif /* TEST_FAMILY_KDA_STAGES_H */
