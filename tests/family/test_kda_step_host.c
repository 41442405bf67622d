/*
 * The host side of kda_step and gdn_step: what they allow and what they say where they do not, the
 * geometry of a launch, the estimate of its time.
 */
#include "kda_step.h"

static const struct gen__family *const family = &gen__family_kda_step;

/* ---- the problem ------------------------------------------------------- */

static void key_of_a_problem(void **state)
{
    (void)state;
    struct gen__key key;
    gen_kda_step_problem p = step_problem(64, 16, 48);
    p.dtype = GEN_DTYPE_FP16;
    p.gate_dtype = GEN_DTYPE_FP32;
    p.beta_dtype = GEN_DTYPE_FP16;
    p.state_dtype = GEN_STATE_BF16;
    memset(&key, 0xff, sizeof key);
    assert_int_equal(family->check(&p.base, &key), GEN_OK);
    assert_string_equal(family->required[0].values[key.codes[0]], "vk");
    assert_string_equal(family->required[1].values[key.codes[1]], "16");
    assert_string_equal(family->required[2].values[key.codes[2]], "many");
    assert_true(key.counts[0] == 64 * 48);
    assert_false(key.empty);

    p = step_problem(1, 12, 12);
    assert_int_equal(family->check(&p.base, &key), GEN_OK);
    assert_string_equal(family->required[1].values[key.codes[1]], "32");
    assert_string_equal(family->required[2].values[key.codes[2]], "one");
    assert_true(key.counts[0] == 12);

    p.state_dtype = GEN_STATE_FP16;
    assert_int_equal(family->check(&p.base, &key), GEN_OK);
    assert_string_equal(family->required[1].values[key.codes[1]], "16");

    p.batch = 0;
    assert_int_equal(family->check(&p.base, &key), GEN_OK);
    assert_true(key.empty);
    assert_int_equal(step_plan(p, &h200, NULL).num_launches, 0);
}

static void batch_invariance_forgets_the_batch(void **state)
{
    (void)state;
    const struct gen__facts facts = step_variant(2);
    gen_kda_step_problem p = step_problem(64, 8, 16);
    check_invariant(family, &p.base, &p.batch, &facts);
}

static void check_errors(void **state)
{
    (void)state;
    static const char side[] = "; allowed: that of x, or GEN_DTYPE_FP32 (2)";
    static const struct {
        size_t offset;
        int32_t value;
        const char *message, *more;
    } cases[] = {
#define AT(field) offsetof(gen_kda_step_problem, field)
        {AT(batch), -1, "batch = -1; allowed: >= 0", ""},
        {AT(num_qk_heads), 0, "head count num_qk_heads = 0; allowed: 1 to 65536", ""},
        {AT(num_qk_heads), 65537, "head count num_qk_heads = 65537; allowed: 1 to 65536", ""},
        {AT(num_v_heads), -4, "head count num_v_heads = -4; allowed: 1 to 65536", ""},
        {AT(num_v_heads), 65544, "head count num_v_heads = 65544; allowed: 1 to 65536", ""},
        {AT(num_v_heads), 12,
         "head count num_v_heads = 12; allowed: a multiple of num_qk_heads = 8", ""},
        {AT(num_v_heads), 4, "head count num_v_heads = 4; allowed: a multiple of num_qk_heads = 8",
         ""},
        {AT(head_dim), 64, "head_dim = 64; allowed: 128", ""},
        {AT(head_dim), 0, "head_dim = 0; allowed: 128", ""},
        {AT(dtype), 2, "dtype = 2; allowed: GEN_DTYPE_BF16 (0), GEN_DTYPE_FP16 (1)", ""},
        {AT(dtype), -1, "dtype = -1; allowed: GEN_DTYPE_BF16 (0), GEN_DTYPE_FP16 (1)", ""},
        {AT(gate_dtype), 1, "gate_dtype = 1", side},
        {AT(gate_dtype), -1, "gate_dtype = -1", side},
        {AT(beta_dtype), 3, "beta_dtype = 3", side},
        {AT(state_layout), 1, "state_layout = 1; allowed: GEN_KDA_STATE_VK (0)", ""},
        {AT(state_dtype), 3,
         "state_dtype = 3; allowed: GEN_STATE_FP32 (0), GEN_STATE_BF16 (1), GEN_STATE_FP16 (2)",
         ""},
        {AT(state_dtype), -1,
         "state_dtype = -1; allowed: GEN_STATE_FP32 (0), GEN_STATE_BF16 (1), GEN_STATE_FP16 (2)",
         ""},
        {AT(batch), 8388608,
         "batch * num_v_heads = 8388608 * 16 = 134217728; allowed: <= 134217727", ""},
#undef AT
    };
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        const struct gen__family *of = i % 2 ? &gen__family_gdn_step : family;
        gen_kda_step_problem p = step_problem(4, 8, 16);
        struct gen__key key, before;
        char message[256];
        p.base.family = of->tag;
        memset(&key, 0xa5, sizeof key);
        before = key;
        memcpy((char *)&p + cases[i / 2].offset, &cases[i / 2].value, sizeof cases[i / 2].value);
        snprintf(message, sizeof message, "%s: %s%s", of->name, cases[i / 2].message,
                 cases[i / 2].more);
        assert_failed(of->check(&p.base, &key), INVALID_ARGUMENT, message);
        assert_memory_equal(&key, &before, sizeof key);
    }
    gen_kda_step_problem p = step_problem(8388607, 8, 16);
    struct gen__key key;
    assert_int_equal(family->check(&p.base, &key), GEN_OK);
}

/* ---- the launch -------------------------------------------------------- */

static void a_cluster_for_each_query_head(void **state)
{
    (void)state;
    for (int32_t blocks = 1; blocks <= 8; blocks *= 2) {
        const struct gen__facts facts = step_variant(blocks);
        const gen_plan plan = step_plan(step_problem(3, 5, 10), &h200, &facts);
        assert_int_equal(plan.num_launches, 1);
        assert_int_equal(plan.launch[0].variant, 17);
        assert_int_equal(plan.launch[0].grid[0], 3 * 5 * blocks);
        assert_int_equal(plan.launch[0].grid[1], 1);
        assert_int_equal(plan.launch[0].threads, 256);
        assert_int_equal(plan.launch[0].shared, 0);
    }
    const gen_kda_step_problem largest = step_problem(8388607, 16, 16);
    struct gen__facts facts = step_variant(16);
    assert_null(family->fits(&largest.base, &h200, &facts));
    facts = step_variant(17);
    assert_string_equal(family->fits(&largest.base, &h200, &facts),
                        "batch * num_qk_heads * blocks is more than a grid holds (2147483647)");
}

static void dependent_launches(void **state)
{
    (void)state;
    struct gen__facts facts = step_variant(4);
    gen_kda_step_problem p = step_problem(4, 64, 64);
    check_dependent(family, &p.base, &facts, KDA_STEP_DEPENDENT);
}

/* ---- time, cost, names ------------------------------------------------- */

static void more_work_takes_longer(void **state)
{
    (void)state;
    for (int32_t blocks = 1; blocks <= 8; blocks *= 2) {
        const struct gen__facts facts = step_variant(blocks);
        float last = 0;
        for (int32_t batch = 1; batch <= 512; batch++) {
            const gen_kda_step_problem p = step_problem(batch, 12, 12);
            const float us = family->predict(&p.base, &h200, &facts);
            assert_true(us > 0.97f * last);
            assert_true(us > (float)batch * 12 * 131072.0f / 4.8e6f);
            last = us;
        }
    }
    const struct gen__facts facts = step_variant(4);
    gen_kda_step_problem p = step_problem(64, 32, 32), half = p;
    half.state_dtype = GEN_STATE_BF16;
    assert_true(family->predict(&half.base, &h200, &facts) <
                0.9f * family->predict(&p.base, &h200, &facts));
}

static void cost_and_names(void **state)
{
    (void)state;
    double bytes, flops;
    char name[64];
    gen_kda_step_problem p = step_problem(128, 12, 12);
    family->cost(&p.base, &bytes, &flops);
    /* A (row, head): the state there and back, windows, x, gate, z, out, beta; and weights. */
    assert_true(bytes ==
                1536 * (131072.0 + 4608 + 768 + 768 + 2) + 4.0 * (1536 + 12 + 128 + 5 * 4608));
    assert_true(flops == 1536 * (7 * 16384.0 + 384 * 12));
    family->case_name(&p.base, name, sizeof name);
    assert_string_equal(name, "N128-H12");
    p = step_problem(1, 8, 16);
    p.state_dtype = GEN_STATE_BF16;
    family->case_name(&p.base, name, sizeof name);
    assert_string_equal(name, "N1-H8-HV16-sbf16");
    family->cost(&p.base, &bytes, &flops);
    assert_true(bytes == 16 * (65536.0 + 512 + 256 + 2) + 32 * 128 * 14.0 +
                             4.0 * (2048 + 16 + 128 + 5 * 4096));
    p.base.family = GEN_GDN_STEP;
    p.state_dtype = GEN_STATE_FP16;
    p.dtype = GEN_DTYPE_FP16;
    p.gate_dtype = p.beta_dtype = GEN_DTYPE_FP32;
    gen__family_gdn_step.case_name(&p.base, name, sizeof name);
    assert_string_equal(name, "N1-H8-HV16-sfp16-fp16-g32-b32");
    gen__family_gdn_step.cost(&p.base, &bytes, &flops);
    assert_true(bytes ==
                16 * (65536.0 + 512 + 4 + 4) + 32 * 128 * 14.0 + 4.0 * (16 + 16 + 128 + 5 * 4096));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(key_of_a_problem),   cmocka_unit_test(batch_invariance_forgets_the_batch),
        cmocka_unit_test(check_errors),       cmocka_unit_test(a_cluster_for_each_query_head),
        cmocka_unit_test(dependent_launches), cmocka_unit_test(more_work_takes_longer),
        cmocka_unit_test(cost_and_names),
    };
    return cmocka_run_group_tests_name("kda_step host", tests, NULL, NULL);
}
