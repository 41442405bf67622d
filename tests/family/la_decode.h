/* Problems, devices, variants and arguments for the tests of la_decode. */
#ifndef TEST_FAMILY_LA_DECODE_H
#define TEST_FAMILY_LA_DECODE_H

#include "family/occupancy.h"
#include "families/la_decode/la_decode.h"
#include "h200.h"
#include "test.h"

#include <string.h>

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
        .state_layout = GEN_LA_STATE_VK,
    };
}

/* A variant of 128 threads, 32 registers and no shared la_memory, 16 to an SM of
 * an H200. */
static inline struct gen__facts variant_of(int32_t blocks, int32_t persistent,
                                           int32_t inflight_bytes)
{
    struct gen__facts facts = {
        .index = 17,
        .threads = 128,
        .registers = 32,
        .cluster = 1,
        .fact = {[LA_DECODE_BLOCKS] = blocks,
                 [LA_DECODE_PERSISTENT] = persistent,
                 [LA_DECODE_INFLIGHT_BYTES] = inflight_bytes,
                 [LA_DECODE_WARP_BYTES] = inflight_bytes / 4}}; /* one stage of four warps */
    facts.occupancy = gen__occupancy(&facts);
    return facts;
}

static inline gen_plan planned(gen_la_decode_problem p, const gen_device *device,
                               const struct gen__facts *facts)
{
    gen_plan plan = {0};
    gen__family_la_decode.plan(&p.base, device, facts, &plan);
    assert_int_equal(plan.workspace_bytes, 0);
    return plan;
}

/* Never read: params() looks at addresses alone. */
static _Alignas(16) unsigned char la_memory[64];

static inline gen_la_decode_args good_args(const gen_la_decode_problem *p)
{
    gen_la_decode_args a;
    memset(&a, 0xa5, sizeof a);
    gen__family_la_decode.default_args(&p->base, &a.base);
    a.q = la_memory;
    a.k = la_memory + 16;
    a.v = la_memory;
    a.o = la_memory + 32;
    a.decay = (const float *)(const void *)(la_memory + 4);
    a.state = (float *)(void *)(la_memory + 48);
    a.slots = (const int32_t *)(const void *)(la_memory + 8);
    return a;
}

#endif /* TEST_FAMILY_LA_DECODE_H */
