/*
 * kda_bwd: the problems that it allows and what it says where it does not, its launches and what
 * they are left to.
 */
#include "kda_bwd_problem.h"

#include <string.h>

static const struct gen__facts variant = {.index = 7,
                                          .threads = 256,
                                          .shared_dynamic = 24 << 10,
                                          .registers = 80,
                                          .cluster = 1,
                                          .fact = {1}};

/* ---- the problem -------------------------------------------------------- */

static void key_of_a_problem(void **state)
{
    (void)state;
    gen_kda_bwd_problem p = problem(3, 100, 4, 8);
    struct gen__key key;
    assert_int_equal(family->check(&p.base, &key), GEN_OK);
    assert_string_equal(family->required[0].values[key.codes[0]], "fp16");
    assert_string_equal(family->required[1].values[key.codes[1]], "64");
    assert_true(key.counts[0] == 48); /* 3 sequences, 2 chunks, 8 heads */
    p.seq_len = 0;                    /* sums are written all the same */
    assert_int_equal(family->check(&p.base, &key), GEN_OK);
    assert_true(!key.empty && key.counts[0] > 0);
    p.batch = 0;
    assert_int_equal(family->check(&p.base, &key), GEN_OK);
    assert_true(!key.empty && key.counts[0] > 0);
}

static void check_errors(void **state)
{
    (void)state;
    static const struct {
        size_t offset;
        int32_t value;
        const char *message;
    } cases[] = {
#define AT(field) offsetof(gen_kda_bwd_problem, field)
        {AT(batch), -1, "kda_bwd: batch = -1; allowed: 0 to 65535"},
        {AT(seq_len), -1, "kda_bwd: seq_len = -1; allowed: 0 to 1073741824"},
        {AT(num_tokens), 401,
         "kda_bwd: num_tokens = 401; allowed: 0 to 1073741824, and at most batch * seq_len = 400"},
        {AT(num_qk_heads), 0, "kda_bwd: head count num_qk_heads = 0; allowed: 1 to 65536"},
        {AT(num_v_heads), 5,
         "kda_bwd: head count num_v_heads = 5; allowed: a multiple of num_qk_heads = 3"},
        {AT(head_dim), 96, "kda_bwd: head_dim = 96; allowed: 64, 128"},
        {AT(dtype), 2, "kda_bwd: dtype = 2; allowed: GEN_DTYPE_BF16 (0), GEN_DTYPE_FP16 (1)"},
        {AT(gate_dtype), GEN_DTYPE_BF16, /* beside fp16 */
         "kda_bwd: gate_dtype = 0; allowed: that of q, k, v, or GEN_DTYPE_FP32 (2)"},
        {AT(beta_dtype), -1,
         "kda_bwd: beta_dtype = -1; allowed: that of q, k, v, or GEN_DTYPE_FP32 (2)"},
        {AT(safe_gate), 2, "kda_bwd: safe_gate = 2; allowed: 0, 1"},
        {AT(keep), 2, "kda_bwd: keep = 2; allowed: 0, 1"},
        {AT(keep), -1, "kda_bwd: keep = -1; allowed: 0, 1"},
#undef AT
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gen_kda_bwd_problem p = problem(4, 100, 3, 3);
        struct gen__key key;
        memcpy((char *)&p + cases[i].offset, &cases[i].value, sizeof cases[i].value);
        assert_failed(family->check(&p.base, &key), INVALID_ARGUMENT, cases[i].message);
    }
}

/* ---- launches ------------------------------------------------------------ */

static const struct gen__part *part_at(const struct gen__part *parts, uint32_t count,
                                       uint32_t launch)
{
    for (uint32_t i = 0; i < count; i++)
        if (parts[i].launch == launch)
            return &parts[i];
    return NULL;
}

/* The families of a plan's launches, 0 for our own. */
static const uint32_t staged[] = {
    0,
    GEN_KDA_CHUNK_H,
    GEN_KDA_BWD_DAV,
    GEN_KDA_BWD_DHU,
    GEN_KDA_BWD_WY,
    GEN_KDA_BWD_INTRA,
    GEN_KDA_GATE_BWD,
    GEN_KDA_QK_BWD,
};
static const uint32_t fused[] = {
    0, GEN_KDA_CHUNK_H, GEN_KDA_BWD_DHU, GEN_KDA_BWD_GRAD, 0, GEN_KDA_QK_BWD /* of groups */
};

static void stage_of(const gen_kda_bwd_problem *p, const struct gen__part *part,
                     uint32_t family_tag)
{
    const gen_kda_stage_problem *stage =
        (const gen_kda_stage_problem *)(const void *)&part->problem;
    const bool raw = family_tag == GEN_KDA_QK_BWD || family_tag == GEN_KDA_BWD_GRAD;
    assert_int_equal(stage->base.family, family_tag);
    assert_memory_equal(&stage->batch, &p->batch, KDA_BETA_DTYPE * sizeof(int32_t));
    assert_int_equal(stage->safe_gate, p->safe_gate);
    /* Those that make gradients of raw betas alone read them. */
    assert_int_equal(stage->beta_dtype, raw ? GEN_DTYPE_FP16 : GEN_DTYPE_FP32);
}

/* Those of a problem, which are `count` of the list; bytes of the workspace are returned. */
static uint64_t check_launches(const gen_kda_bwd_problem *p, const gen_device *device,
                               const uint32_t *list, uint32_t count)
{
    struct gen__part parts[GEN_PLAN_MAX_LAUNCHES];
    gen_plan plan = {0};
    uint32_t own = 0;
    family->plan(&p->base, device, &variant, &plan);
    assert_int_equal(plan.num_launches, count);
    const uint32_t num_parts = family->parts(&p->base, device, &variant, &plan, parts);
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t tag = p->keep && list[i] == GEN_KDA_CHUNK_H ? 0 : list[i];
        const struct gen__part *part = part_at(parts, num_parts, i);
        const uint32_t blocks = list == fused && i == 4 ? 6 * 64 / 32 : 54; /* 9 chunks, 6 heads */
        assert_int_equal(tag == 0, part == NULL);
        assert_int_equal(plan.launch[i].grid[0], tag ? 0 : blocks);
        own += !tag;
        if (part)
            stage_of(p, part, tag);
    }
    assert_int_equal(num_parts + own, count);
    return plan.workspace_bytes;
}

static void launches(void **state)
{
    (void)state;
    gen_device older = h200;
    older.compute_capability = 80;
    for (int32_t safe = 0; safe < 2; safe++)
        for (int32_t groups = 1; groups < 3; groups++) {
            gen_kda_bwd_problem p = problem(3, 130, 6 / groups, 6);
            const uint32_t *list = safe ? fused : staged;
            const uint32_t count = safe ? 4 + (uint32_t)groups : 8;
            p.safe_gate = safe;
            p.beta_dtype = GEN_DTYPE_FP16;
            const uint64_t bytes = check_launches(&p, &h200, list, count);
            const uint64_t others = check_launches(&p, &older, staged, 8);
            assert_true(safe ? bytes < others : bytes == others);
            p.keep = 1;
            assert_int_equal(bytes - check_launches(&p, &h200, list, count),
                             9 * 6 * 64 * 64 * 2); /* states */
        }
}

/* Where groups fill the blocks, or the batch may decide nothing, kda_bwd_grad adds their heads, and
 * kda_qk_bwd has nothing to do. */
static void launches_of_groups(void **state)
{
    (void)state;
    const struct {
        int32_t batch, tokens;
        uint32_t flags, launches;
    } cases[] = {
        {10, 1600, 0, 5}, /* 750 groups of 264 blocks at a time */
        {5, 1600, 0, 6},  /* 375 */
        {1, 64, 0, 6},
        {1, 64, GEN_BATCH_INVARIANT, 5},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gen_kda_bwd_problem p = problem(cases[i].batch, cases[i].tokens, 3, 6);
        gen_plan plan = {0};
        p.safe_gate = 1;
        p.base.flags = cases[i].flags;
        family->plan(&p.base, &h200, &variant, &plan);
        assert_int_equal(plan.num_launches, cases[i].launches);
        assert_int_equal(plan.dims[KDA_BWD_SUMMED], cases[i].launches == 5);
    }
}

static void launches_without_tokens(void **state)
{
    (void)state;
    for (int32_t batch = 0; batch < 3; batch += 2) {
        const gen_kda_bwd_problem p = problem(batch, 0, 3, 6);
        struct gen__part parts[GEN_PLAN_MAX_LAUNCHES];
        gen_plan plan = {0};
        family->plan(&p.base, &h200, &variant, &plan);
        assert_int_equal(plan.num_launches, 1);
        assert_int_equal(plan.workspace_bytes, 0);
        assert_int_equal(plan.launch[0].shared, 0);
        assert_int_equal(plan.launch[0].variant, 7);
        assert_int_equal(family->parts(&p.base, &h200, &variant, &plan, parts), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(key_of_a_problem),
                                       cmocka_unit_test(check_errors), cmocka_unit_test(launches),
                                       cmocka_unit_test(launches_of_groups),
                                       cmocka_unit_test(launches_without_tokens)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
