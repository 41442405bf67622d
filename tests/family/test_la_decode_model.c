/*
 * What la_decode says about itself: the estimate of its time, and what the
 * tuner and the verifier get.
 */
#include "la_decode.h"

#include <math.h>
#include <string.h>

static const struct gen__family *const family = &gen__family_la_decode;

/* ---- time -------------------------------------------------------------- */

static float predicted(int32_t batch, int32_t blocks, int32_t persistent, int32_t inflight_bytes,
                       const gen_device *device)
{
    const struct gen__facts facts = variant_of(blocks, persistent, inflight_bytes);
    const gen_la_decode_problem p = la_problem(batch, 64, 64, 128);
    return family->predict(&p.base, device, &facts);
}

static void more_states_take_longer(void **state)
{
    (void)state;
    for (int32_t blocks = 1; blocks <= 8; blocks *= 2)
        for (int32_t persistent = 0; persistent < 2; persistent++) {
            float last = 0;
            for (int32_t batch = 1; batch <= 512; batch++) {
                const float us = predicted(batch, blocks, persistent, 16384, &h200);
                /* The cache policy that suits changes on the way. */
                assert_true(us > 0.99f * last);
                last = us;
            }
        }
}

/* The state alone, read and written at the peak bandwidth, and no more than
 * twice that where there are many states and enough in flight. */
static void never_faster_than_memory(void **state)
{
    (void)state;
    for (int32_t batch = 1; batch <= 512; batch *= 2)
        for (int32_t blocks = 1; blocks <= 8; blocks *= 2) {
            const double floor_us = batch * 64 * 131072.0 / 4.8e6;
            const float us = predicted(batch, blocks, 0, 32768, &h200);
            assert_true(us > floor_us);
            if (batch >= 64)
                assert_true(us < 2 * floor_us);
        }
}

static void few_states_want_many_blocks(void **state)
{
    (void)state;
    for (int32_t blocks = 1; blocks < 8; blocks *= 2)
        assert_true(predicted(1, blocks, 0, 4096, &h200) >
                    predicted(1, 2 * blocks, 0, 4096, &h200));
}

/* Few states wait for latency, which more bytes in flight hide; many wait for
 * bandwidth, which wide tiles spoil. */
static void bytes_in_flight(void **state)
{
    (void)state;
    for (int32_t bytes = 2048; bytes < 65536; bytes *= 2)
        assert_true(predicted(1, 1, 0, bytes, &h200) > predicted(1, 1, 0, 2 * bytes, &h200));
    assert_true(predicted(256, 8, 0, 8192, &h200) < predicted(256, 8, 0, 16384, &h200));
}

/* Streaming hints suit what L2 can help with. */
static void cache_policy(void **state)
{
    (void)state;
    struct gen__facts facts = variant_of(8, 0, 8192);
    const gen_la_decode_problem few = la_problem(4, 64, 64, 128),
                                many = la_problem(256, 64, 64, 128);
    const float few_plain = family->predict(&few.base, &h200, &facts);
    const float many_plain = family->predict(&many.base, &h200, &facts);
    facts.fact[LA_DECODE_STREAMING] = 1;
    assert_true(family->predict(&few.base, &h200, &facts) < few_plain);
    assert_true(family->predict(&many.base, &h200, &facts) > many_plain);
}

static void smaller_gpus_are_slower(void **state)
{
    (void)state;
    gen_device slow = h200, few = h200;
    slow.memory_gbps = 2000;
    few.num_sms = 20;
    assert_true(predicted(64, 1, 0, 16384, &slow) > predicted(64, 1, 0, 16384, &h200));
    assert_true(predicted(64, 1, 0, 16384, &few) > predicted(64, 1, 0, 16384, &h200));
    /* Fixed shares of the work cost more than the scheduler's. */
    assert_true(predicted(64, 1, 1, 16384, &h200) > predicted(64, 1, 0, 16384, &h200));
}

/* A device of which little is known still gets an order. */
static void finite_for_unknown_devices(void **state)
{
    (void)state;
    const gen_device unknown = {.size = sizeof unknown, .compute_capability = 80};
    const float many = predicted(1, 8, 0, 4096, &unknown);
    assert_true(isfinite(many) && many > 0);
    assert_true(many < predicted(2, 8, 0, 4096, &unknown));
}

/* ---- for the tuner and the tests --------------------------------------- */

static void tensors_of_a_problem(void **state)
{
    (void)state;
    gen_la_decode_problem p = la_problem(5, 2, 6, 64);
    struct gen__tensor t[GEN__MAX_TENSORS];
    static const struct {
        const char *name;
        size_t offset;
        enum gen__role role;
        enum gen__fill fill;
        uint64_t count;
    } expected[] = {
        {"q", offsetof(gen_la_decode_args, q), GEN__IN, GEN__FILL_NORMAL, 5 * 2 * 64},
        {"k", offsetof(gen_la_decode_args, k), GEN__IN, GEN__FILL_NORMAL, 5 * 2 * 64},
        {"v", offsetof(gen_la_decode_args, v), GEN__IN, GEN__FILL_NORMAL, 5 * 6 * 64},
        {"o", offsetof(gen_la_decode_args, o), GEN__OUT, GEN__FILL_POISON, 5 * 6 * 64},
        {"decay", offsetof(gen_la_decode_args, decay), GEN__IN, GEN__FILL_UNIFORM, 2},
        {"state", offsetof(gen_la_decode_args, state), GEN__INOUT, GEN__FILL_NORMAL,
         8 * 6 * 64 * 64},
        {"slots", offsetof(gen_la_decode_args, slots), GEN__IN, GEN__FILL_SLOTS, 5},
        {"slots_out", offsetof(gen_la_decode_args, slots_out), GEN__IN, GEN__FILL_FAMILY, 0},
    };
    assert_int_equal(family->tensors(&p.base, t), 8);
    for (int i = 0; i < 8; i++) {
        assert_string_equal(t[i].name, expected[i].name);
        assert_int_equal(t[i].pointer_offset, expected[i].offset);
        assert_int_equal(t[i].role, expected[i].role);
        assert_int_equal(t[i].fill, expected[i].fill);
        assert_int_equal(t[i].count, expected[i].count);
        assert_int_equal(t[i].cold, t[i].role != GEN__OUT);
        assert_int_equal(t[i].tolerance > 0, t[i].role != GEN__IN);
    }
    assert_true(t[6].amount == 8); /* slots below the pool's size */
    assert_true(t[3].tolerance == 1.0 / 256 && t[3].dtype == GEN_DTYPE_BF16);
    p.dtype = GEN_DTYPE_FP16;
    family->tensors(&p.base, t);
    assert_true(t[3].tolerance == 1.0 / 2048 && t[3].dtype == GEN_DTYPE_FP16);
    assert_true(t[0].dtype == GEN_DTYPE_FP16 && t[5].dtype == GEN_DTYPE_FP32);
}

static const char *const form_names[] = {"v_decays",  "strides",      "no_slots",
                                         "padding",   "zero_padding", "pool_stride",
                                         "slots_out", "null_slot",    "pool"};

/* Each form passes params(), and its tensors hold what the strides reach. */
static void forms(void **state)
{
    (void)state;
    const gen_la_decode_problem p = la_problem(5, 2, 6, 64), ungrouped = la_problem(5, 6, 6, 64);
    const gen_plan plan = planned(p, &h200, NULL);
    assert_int_equal(family->num_forms, 9);
    for (uint32_t i = 0; i < 5; i++) {
        struct gen__tensor t[GEN__MAX_TENSORS];
        gen_la_decode_args a = good_args(&p);
        family->tensors(&p.base, t);
        assert_string_equal(family->forms[i], form_names[i]);
        assert_true(family->form(&p.base, i, &a.base, t));
        if (t[6].count == 0)
            a.slots = NULL;
        assert_int_equal(family->params(&plan, 0, &a.base, NULL, NULL), GEN_OK);
        assert_int_equal(t[0].count, i == 1 ? 4 * (2 * 2 + 6) * 64 + 2 * 64 : 5 * 2 * 64);
        assert_int_equal(t[1].count, t[0].count);
        assert_int_equal(t[2].count, i == 1 ? 4 * (2 * 2 + 6) * 64 + 6 * 64 : 5 * 6 * 64);
        assert_int_equal(t[3].count, i == 1 ? 4 * (6 * 64 + 8) + 6 * 64 : 5 * 6 * 64);
        assert_int_equal(t[4].count, i == 0 ? 6 : 2);
        assert_int_equal(a.num_decays, t[4].count);
        assert_int_equal(t[6].count, i == 2 ? 0 : 5);
        assert_true(t[6].amount == (i >= 3 ? 16 : 8));
        assert_int_equal(a.num_slots, 8);
        assert_int_equal(a.zero_padding, i == 4);
        a = good_args(&ungrouped);
        assert_int_equal(family->form(&ungrouped.base, i, &a.base, t), i != 0);
    }
    struct gen__tensor t[GEN__MAX_TENSORS];
    gen_la_decode_args a = good_args(&p);
    assert_false(family->form(&p.base, 9, &a.base, t));
}

/* Forms of pools: none of packed states, each of what a pool has. */
static void forms_of_pools(void **state)
{
    (void)state;
    const gen_la_decode_problem packed = la_problem(5, 2, 6, 64);
    gen_la_decode_problem p = packed;
    p.pool = 1;
    const gen_plan plan = planned(p, &h200, NULL);
    const int64_t width = 6 * 64 * 64;
    for (uint32_t i = 5; i < family->num_forms; i++) {
        struct gen__tensor t[GEN__MAX_TENSORS];
        gen_la_decode_args a = good_args(&packed);
        family->tensors(&packed.base, t);
        assert_string_equal(family->forms[i], form_names[i]);
        assert_false(family->form(&packed.base, i, &a.base, t));
        a = good_args(&p);
        family->tensors(&p.base, t);
        assert_true(family->form(&p.base, i, &a.base, t));
        const int slots_out = i == 6 || i == 8;
        assert_int_equal(a.num_slots, slots_out ? 13 : 8);
        assert_int_equal(t[7].count, slots_out ? 5 : 0);
        assert_int_equal(a.null_slot, i >= 7);
        assert_true(i == 5 || i == 8 ? a.state_stride > width : a.state_stride == 0);
        assert_int_equal(t[5].count, i == 5   ? 7 * a.state_stride + width
                                     : i == 8 ? 12 * a.state_stride + width
                                              : (i == 6 ? 13 : 8) * width);
        static int32_t some[8];
        if (slots_out)
            a.slots_out = some;
        assert_int_equal(family->params(&plan, 0, &a.base, NULL, NULL), GEN_OK);
    }
}

/* The bytes that the roofline counts: 132,096 a state at head_dim 128. */
static void cost_of_a_problem(void **state)
{
    (void)state;
    double bytes, flops;
    gen_la_decode_problem p = la_problem(64, 64, 64, 128);
    family->cost(&p.base, &bytes, &flops);
    assert_true(bytes == 4096.0 * 132096);
    assert_true(flops == 4096.0 * 81920);
    p.num_qk_heads = 16;
    family->cost(&p.base, &bytes, &flops);
    assert_true(bytes == 4096.0 * (131072 + 512 + 512 / 4));
}

static void case_names(void **state)
{
    (void)state;
    char text[64];
    gen_la_decode_problem p = la_problem(64, 64, 64, 128);
    family->case_name(&p.base, text, sizeof text);
    assert_string_equal(text, "B64-H64-K128-V128-vk");
    p.num_qk_heads = 16;
    family->case_name(&p.base, text, sizeof text);
    assert_string_equal(text, "B64-H16-HV64-K128-V128-vk");
    p.dtype = GEN_DTYPE_FP16;
    p.state_layout = GEN_LA_STATE_KV;
    p.head_dim = 256;
    family->case_name(&p.base, text, sizeof text);
    assert_string_equal(text, "B64-H16-HV64-K256-V256-kv-fp16");
    memset(text, '#', sizeof text);
    family->case_name(&p.base, text, 4);
    assert_string_equal(text, "B64");
    assert_int_equal(text[4], '#');
}

/* The generator writes facts in the order of family.lua; read it there. */
static void facts_as_the_generator_has_them(void **state)
{
    (void)state;
    char text[32768], names[256] = "";
    FILE *file = fopen(SOURCE_DIR "/templates/la_decode/family.lua", "r");
    assert_non_null(file);
    const size_t size = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[size] = '\0';
    const char *at = strstr(text, "\n  facts = {");
    assert_non_null(at);
    const char *end = strchr(at, '}');
    for (at = strchr(at, '"'); at && at < end; at = strchr(at + 1, '"')) {
        const char *close = strchr(at + 1, '"');
        assert_non_null(close);
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s%.*s", *names ? "," : "",
                 (int)(close - at - 1), at + 1);
        at = close;
    }
    assert_string_equal(family->facts, names);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(more_states_take_longer),
        cmocka_unit_test(never_faster_than_memory),
        cmocka_unit_test(few_states_want_many_blocks),
        cmocka_unit_test(bytes_in_flight),
        cmocka_unit_test(cache_policy),
        cmocka_unit_test(smaller_gpus_are_slower),
        cmocka_unit_test(finite_for_unknown_devices),
        cmocka_unit_test(tensors_of_a_problem),
        cmocka_unit_test(forms),
        cmocka_unit_test(forms_of_pools),
        cmocka_unit_test(cost_of_a_problem),
        cmocka_unit_test(case_names),
        cmocka_unit_test(facts_as_the_generator_has_them),
    };
    return cmocka_run_group_tests_name("la_decode model", tests, NULL, NULL);
}
