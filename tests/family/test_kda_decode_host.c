/*
 * The host side of kda_decode: what it allows and what it says where it does
 * not, the geometry of a launch, the estimate of its time.
 */
#include "fixture.h"
#include "kda_decode.h"

#include <math.h>

static const struct gen__family *const family = &gen__family_kda_decode;

/* ---- the problem ------------------------------------------------------- */

static void key_of_a_problem(void **state)
{
    (void)state;
    struct gen__key key;
    gen_kda_decode_problem p = kda_problem(64, 5, 16, 64, 128);
    p.state_layout = GEN_KDA_STATE_KV;
    p.dtype = GEN_DTYPE_FP16;
    p.gate_dtype = GEN_DTYPE_FP32;
    p.beta_dtype = GEN_DTYPE_FP16;
    memset(&key, 0xff, sizeof key);
    assert_int_equal(family->check(&p.base, &key), GEN_OK);
    assert_string_equal(family->required[0].values[key.codes[0]], "128");
    assert_string_equal(family->required[1].values[key.codes[1]], "kv");
    assert_string_equal(family->required[2].values[key.codes[2]], "many");
    assert_true(key.counts[0] == 4096 && key.counts[1] == 5);
    assert_false(key.empty);

    p = kda_problem(1, 1, 1, 1, 64);
    assert_int_equal(family->check(&p.base, &key), GEN_OK);
    assert_string_equal(family->required[0].values[key.codes[0]], "64");
    assert_string_equal(family->required[1].values[key.codes[1]], "vk");
    assert_string_equal(family->required[2].values[key.codes[2]], "one");
    assert_true(key.counts[0] == 1 && key.counts[1] == 1);

    p.batch = 0;
    assert_int_equal(family->check(&p.base, &key), GEN_OK);
    assert_true(key.empty);
    assert_int_equal(kda_plan(p, &h200, NULL).num_launches, 0);
}

static void batch_invariance_forgets_the_batch(void **state)
{
    (void)state;
    const struct gen__facts facts = variant_of(8, 1664);
    gen_kda_decode_problem p = kda_problem(64, 2, 8, 16, 128);
    check_invariant(family, &p.base, &p.batch, &facts);
}

static void check_errors(void **state)
{
    (void)state;
    static const char side[] = "; allowed: that of q, k, v, or GEN_DTYPE_FP32 (2)";
    static const struct {
        size_t offset;
        int32_t value;
        const char *message, *more;
    } cases[] = {
#define AT(field) offsetof(gen_kda_decode_problem, field)
        {AT(batch), -1, "kda_decode: batch = -1; allowed: >= 0", ""},
        {AT(num_tokens), 0, "kda_decode: num_tokens = 0; allowed: 1 to 16", ""},
        {AT(num_tokens), 17, "kda_decode: num_tokens = 17; allowed: 1 to 16", ""},
        {AT(num_tokens), -2147483647, "kda_decode: num_tokens = -2147483647; allowed: 1 to 16", ""},
        {AT(num_qk_heads), 0, "kda_decode: head count num_qk_heads = 0; allowed: 1 to 65536", ""},
        {AT(num_qk_heads), 65537,
         "kda_decode: head count num_qk_heads = 65537; allowed: 1 to 65536", ""},
        {AT(num_v_heads), -4, "kda_decode: head count num_v_heads = -4; allowed: 1 to 65536", ""},
        {AT(num_v_heads), 65544, "kda_decode: head count num_v_heads = 65544; allowed: 1 to 65536",
         ""},
        {AT(num_v_heads), 12,
         "kda_decode: head count num_v_heads = 12; allowed: a multiple of num_qk_heads = 8", ""},
        {AT(num_v_heads), 4,
         "kda_decode: head count num_v_heads = 4; allowed: a multiple of num_qk_heads = 8", ""},
        {AT(head_dim), 256, "kda_decode: head_dim = 256; allowed: 64, 128", ""},
        {AT(head_dim), 0, "kda_decode: head_dim = 0; allowed: 64, 128", ""},
        {AT(dtype), 2, "kda_decode: dtype = 2; allowed: GEN_DTYPE_BF16 (0), GEN_DTYPE_FP16 (1)",
         ""},
        {AT(gate_dtype), 1, "kda_decode: gate_dtype = 1", side},
        {AT(gate_dtype), -1, "kda_decode: gate_dtype = -1", side},
        {AT(beta_dtype), 3, "kda_decode: beta_dtype = 3", side},
        {AT(pool), 2, "kda_decode: pool = 2; allowed: 0, 1", ""},
        {AT(state_layout), 2,
         "kda_decode: state_layout = 2; allowed: GEN_KDA_STATE_VK (0), GEN_KDA_STATE_KV (1)", ""},
        {AT(state_layout), -1,
         "kda_decode: state_layout = -1; allowed: GEN_KDA_STATE_VK (0), GEN_KDA_STATE_KV (1)", ""},
        {AT(batch), 8388608,
         "kda_decode: batch * num_v_heads = 8388608 * 16 = 134217728; allowed: <= 134217727", ""},
#undef AT
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gen_kda_decode_problem p = kda_problem(4, 3, 8, 16, 128);
        struct gen__key key, before;
        char message[256];
        memset(&key, 0xa5, sizeof key);
        before = key;
        memcpy((char *)&p + cases[i].offset, &cases[i].value, sizeof cases[i].value);
        snprintf(message, sizeof message, "%s%s", cases[i].message, cases[i].more);
        assert_failed(family->check(&p.base, &key), INVALID_ARGUMENT, message);
        assert_memory_equal(&key, &before, sizeof key);
    }
}

/* ---- the launch -------------------------------------------------------- */

static void a_block_for_each_slice(void **state)
{
    (void)state;
    for (int32_t blocks = 1; blocks <= 16; blocks *= 2) {
        const struct gen__facts facts = variant_of(blocks, 1664);
        const gen_plan plan = kda_plan(kda_problem(3, 4, 5, 10, 128), &h200, &facts);
        assert_int_equal(plan.num_launches, 1);
        assert_int_equal(plan.launch[0].variant, 17);
        assert_int_equal(plan.launch[0].grid[0], 3 * 10 * blocks);
        assert_int_equal(plan.launch[0].threads, 128);
        assert_int_equal(plan.launch[0].shared, 4 * 1664);
    }
    const gen_kda_decode_problem largest = kda_problem(8388607, 1, 8, 16, 128);
    struct gen__facts facts = variant_of(16, 1664);
    struct gen__key key;
    assert_int_equal(family->check(&largest.base, &key), GEN_OK);
    assert_null(family->fits(&largest.base, &h200, &facts));
    facts = variant_of(17, 1664);
    assert_string_equal(family->fits(&largest.base, &h200, &facts),
                        "batch * num_v_heads * blocks is more than a grid holds (2147483647)");
}

static void dependent_launches(void **state)
{
    (void)state;
    struct gen__facts facts = variant_of(8, 1664);
    gen_kda_decode_problem p = kda_problem(4, 1, 64, 64, 128);
    check_dependent(family, &p.base, &facts, KDA_DECODE_DEPENDENT);
}

/* ---- time, cost, names ------------------------------------------------- */

static void more_work_takes_longer(void **state)
{
    (void)state;
    const struct gen__facts facts = variant_of(8, 1664);
    float last = 0;
    for (int32_t batch = 1; batch <= 512; batch++) {
        const gen_kda_decode_problem p = kda_problem(batch, 1, 64, 64, 128);
        const float us = family->predict(&p.base, &h200, &facts);
        assert_true(us > 0.97f * last); /* the cache policy that suits changes on the way */
        assert_true(us > (float)batch * 64 * 131072.0f / 4.8e6f);
        last = us;
    }
    last = 0;
    for (int32_t tokens = 1; tokens <= 8; tokens++) {
        const gen_kda_decode_problem p = kda_problem(64, tokens, 64, 64, 128);
        const float us = family->predict(&p.base, &h200, &facts);
        assert_true(us > last);
        last = us;
    }
}

static void cost_and_names(void **state)
{
    (void)state;
    double bytes, flops;
    char name[64];
    gen_kda_decode_problem p = kda_problem(16, 1, 32, 128, 128);
    family->cost(&p.base, &bytes, &flops);
    /* States there and back; gate, v, o, beta of 128 heads, q and k of 32; a_log, dt_bias. */
    assert_true(bytes == 16 * 128 * 131072.0 + 16 * 128 * (3 * 256.0 + 2) + 16 * 32 * 512.0 +
                             128 * 129 * 4.0);
    assert_true(flops == 16 * 128 * 7 * 16384.0);
    family->case_name(&p.base, name, sizeof name);
    assert_string_equal(name, "N16-H32-HV128-vk");
    p = kda_problem(64, 4, 8, 8, 64);
    p.state_layout = GEN_KDA_STATE_KV;
    p.dtype = GEN_DTYPE_FP16;
    p.gate_dtype = p.beta_dtype = GEN_DTYPE_FP32;
    family->case_name(&p.base, name, sizeof name);
    assert_string_equal(name, "N64-H8-HV8-kv-T4-D64-fp16-g32-b32");
    family->cost(&p.base, &bytes, &flops);
    assert_true(bytes == 64 * 8 * 5 * 16384.0 + 64 * 8 * 4 * (8 * 64.0 + 4) + 64 * 4 * 8 * 256.0 +
                             8 * 65 * 4.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(key_of_a_problem),   cmocka_unit_test(batch_invariance_forgets_the_batch),
        cmocka_unit_test(check_errors),       cmocka_unit_test(a_block_for_each_slice),
        cmocka_unit_test(dependent_launches), cmocka_unit_test(more_work_takes_longer),
        cmocka_unit_test(cost_and_names),
    };
    return cmocka_run_group_tests_name("kda_decode host", tests, NULL, NULL);
}
