/* One la_decode call on host memory, for the tests. */
#ifndef TEST_FAMILY_LA_DECODE_H
#define TEST_FAMILY_LA_DECODE_H

#include "la_decode/args.h"
#include "test.h"

extern const struct gen__family gen__family_la_decode;

static inline gen_la_decode_problem la_problem(int32_t batch, int32_t num_qk_heads,
                                               int32_t num_v_heads, int32_t head_dim)
{
    return (gen_la_decode_problem){
        .base = {.size = sizeof(gen_la_decode_problem), .family = GEN_LA_DECODE},
        .batch = batch,
        .num_qk_heads = num_qk_heads,
        .num_v_heads = num_v_heads,
        .head_dim = head_dim,
        .dtype = GEN_DTYPE_BF16,
        .layout = GEN_LA_DECODE_VK,
    };
}

#endif /* TEST_FAMILY_LA_DECODE_H */
