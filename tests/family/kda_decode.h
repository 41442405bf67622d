/* Problems, devices, variants and arguments for the tests of kda_decode. */
#ifndef TEST_FAMILY_KDA_DECODE_H
#define TEST_FAMILY_KDA_DECODE_H

#include "families/kda/decode.h"
#include "test.h"

#include <string.h>

extern const struct gen__family gen__family_kda_decode;

static inline gen_kda_decode_problem kda_problem(int32_t batch, int32_t num_tokens,
                                                 int32_t num_qk_heads, int32_t num_v_heads,
                                                 int32_t head_dim)
{
    return (gen_kda_decode_problem){
        .base = {.size = sizeof(gen_kda_decode_problem), .family = GEN_KDA_DECODE},
        .batch = batch,
        .num_tokens = num_tokens,
        .num_qk_heads = num_qk_heads,
        .num_v_heads = num_v_heads,
        .head_dim = head_dim,
        .dtype = GEN_DTYPE_BF16,
        .gate_dtype = GEN_DTYPE_BF16,
        .beta_dtype = GEN_DTYPE_BF16,
        .state_layout = GEN_KDA_STATE_VK,
    };
}

static inline gen_plan kda_plan(gen_kda_decode_problem p, const gen_device *device,
                                const struct gen__facts *facts)
{
    gen_plan plan = {.size = sizeof plan, .family = GEN_KDA_DECODE};
    gen__family_kda_decode.plan(&p.base, device, facts, &plan);
    assert_int_equal(plan.workspace_bytes, 0);
    return plan;
}

/* 128 threads of 48 registers. */
static inline struct gen__facts variant_of(int32_t blocks, int32_t token_bytes)
{
    return (struct gen__facts){.index = 17,
                               .threads = 128,
                               .registers = 48,
                               .cluster = 1,
                               .shared_dynamic = (uint32_t)token_bytes,
                               .fact = {[KDA_DECODE_BLOCKS] = blocks,
                                        [KDA_DECODE_TOKEN_BYTES] = token_bytes,
                                        [KDA_DECODE_THREAD_BYTES] = 64}};
}

#endif /* TEST_FAMILY_KDA_DECODE_H */
