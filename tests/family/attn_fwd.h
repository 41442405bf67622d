/* Problems, variants and arguments for the tests of attn_fwd's host code. */
#ifndef TEST_FAMILY_ATTN_FWD_H
#define TEST_FAMILY_ATTN_FWD_H

#include "families/attn_fwd/attn_fwd.h"
#include "h200.h"
#include "test.h"

#include <math.h>
#include <string.h>

extern const struct gen__family gen__family_attn_fwd;

static inline gen_attn_fwd_problem attn_problem(void)
{
    return (gen_attn_fwd_problem){.base = {sizeof(gen_attn_fwd_problem), GEN_ATTN_FWD, 0, 0},
                                  .batch = 2,
                                  .num_q_heads = 8,
                                  .num_kv_heads = 4,
                                  .q_len = 300,
                                  .kv_len = 500,
                                  .head_dim = 128,
                                  .dtype = GEN_DTYPE_BF16};
}

/* Threads, shared memory, registers of a Hopper variant of 128 rows. */
static inline struct gen__facts attn_hopper(int32_t persistent)
{
    return (struct gen__facts){.index = 3,
                               .threads = 384,
                               .shared_dynamic = 160 * 1024,
                               .registers = 168,
                               .cluster = 1,
                               .fact = {128, 128, 1, persistent, 1}};
}

/* The same whose blocks take tiles as they need them. */
static inline struct gen__facts attn_asking(void)
{
    struct gen__facts facts = attn_hopper(1);
    facts.fact[ATTN_FWD_DYNAMIC] = 1;
    return facts;
}

static inline struct gen__facts attn_portable(void)
{
    return (struct gen__facts){.index = 4,
                               .threads = 128,
                               .shared_dynamic = 64 * 1024,
                               .registers = 168,
                               .cluster = 1,
                               .fact = {64, 64, 0, 0, 1}};
}

static inline gen_plan attn_planned(const gen_attn_fwd_problem *p, const struct gen__facts *variant)
{
    gen_plan plan = {0};
    gen__family_attn_fwd.plan(&p->base, &h200, variant, &plan);
    return plan;
}

/* A Hopper variant whose blocks take tiles as they need them. */
static inline struct gen__facts attn_shape(int32_t rows, int32_t keys)
{
    struct gen__facts facts = attn_asking();
    facts.threads = (uint16_t)((rows / 64 + 1) * 128);
    facts.fact[ATTN_FWD_Q_ROWS] = rows;
    facts.fact[ATTN_FWD_KV_ROWS] = keys;
    return facts;
}

/* Never read: params() looks at addresses alone. */
static _Alignas(64) unsigned char attn_memory[256];

static inline gen_attn_fwd_args attn_args(const gen_attn_fwd_problem *p)
{
    gen_attn_fwd_args a;
    gen__family_attn_fwd.default_args(&p->base, &a.base);
    a.q = attn_memory;
    a.k = attn_memory + 16;
    a.v = attn_memory + 32;
    a.o = attn_memory + 48;
    a.lse = (float *)(void *)(attn_memory + 4);
    a.cu_seqlens_q = a.cu_seqlens_k = (const int32_t *)(const void *)(attn_memory + 12);
    return a;
}

#endif /* TEST_FAMILY_ATTN_FWD_H */
