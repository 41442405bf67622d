/*
 * The host side of la_decode: what it allows and what it says where it does
 * not, the geometry and the parameters of a launch.
 */
#include "fixture.h"
#include "la_decode.h"
#include "common/problem_text.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const struct gen__family *const family = &gen__family_la_decode;

/* ---- the problem ------------------------------------------------------- */

static void key_of_a_problem(void **state)
{
    (void)state;
    gen_la_decode_problem p = la_problem(64, 16, 64, 256);
    struct gen__key key;
    p.dtype = GEN_DTYPE_FP16;
    p.state_layout = GEN_LA_STATE_KV;
    memset(&key, 0xff, sizeof key);
    assert_int_equal(family->check(&p.base, &key), GEN_OK);
    assert_string_equal(family->required[0].values[key.codes[0]], "fp16");
    assert_string_equal(family->required[1].values[key.codes[1]], "256");
    assert_string_equal(family->required[2].values[key.codes[2]], "kv");
    assert_true(key.counts[0] == 4096);
    assert_false(key.empty);

    p = la_problem(1, 1, 1, 64);
    assert_int_equal(family->check(&p.base, &key), GEN_OK);
    assert_true(key.counts[0] == 1);
    assert_string_equal(family->required[1].values[key.codes[1]], "64");
    p.head_dim = 128;
    assert_int_equal(family->check(&p.base, &key), GEN_OK);
    assert_string_equal(family->required[1].values[key.codes[1]], "128");
    assert_string_equal(family->required[3].values[key.codes[3]], "none");

    p.pool = 1;
    assert_int_equal(family->check(&p.base, &key), GEN_OK);
    assert_string_equal(family->required[3].values[key.codes[3]], "pool");
    for (p.pool = 0; p.pool < 2; p.pool++)
        for (p.state_dtype = GEN_STATE_BF16; p.state_dtype <= GEN_STATE_FP16; p.state_dtype++) {
            assert_int_equal(family->check(&p.base, &key), GEN_OK);
            assert_string_equal(family->required[3].values[key.codes[3]], "pool16");
        }
}

static void empty_problem(void **state)
{
    (void)state;
    const gen_la_decode_problem p = la_problem(0, 8, 8, 128);
    struct gen__key key;
    assert_int_equal(family->check(&p.base, &key), GEN_OK);
    assert_true(key.empty);
    assert_true(gen__key_log2(&key, 0) == 0);
}

static void batch_invariance_forgets_the_batch(void **state)
{
    (void)state;
    const struct gen__facts facts = variant_of(2, 0, 16384);
    gen_la_decode_problem p = la_problem(64, 8, 16, 128);
    struct gen__key key;
    assert_int_equal(family->check(&p.base, &key), GEN_OK);
    const float count = key.counts[0];
    check_invariant(family, &p.base, &p.batch, &facts);
    p.base.flags = GEN_DETERMINISTIC;
    assert_int_equal(family->check(&p.base, &key), GEN_OK);
    assert_true(key.counts[0] != count);
}

static void check_errors(void **state)
{
    (void)state;
    static const struct {
        size_t offset;
        int32_t value;
        const char *message;
    } cases[] = {
#define AT(field) offsetof(gen_la_decode_problem, field)
        {AT(batch), -1, "la_decode: batch = -1; allowed: >= 0"},
        {AT(num_qk_heads), 0, "la_decode: head count num_qk_heads = 0; allowed: 1 to 65536"},
        {AT(num_qk_heads), -8, "la_decode: head count num_qk_heads = -8; allowed: 1 to 65536"},
        {AT(num_qk_heads), 65537,
         "la_decode: head count num_qk_heads = 65537; allowed: 1 to 65536"},
        {AT(num_v_heads), 0, "la_decode: head count num_v_heads = 0; allowed: 1 to 65536"},
        {AT(num_v_heads), 65544, "la_decode: head count num_v_heads = 65544; allowed: 1 to 65536"},
        {AT(num_v_heads), 12,
         "la_decode: head count num_v_heads = 12; allowed: a multiple of num_qk_heads = 8"},
        {AT(num_v_heads), 4,
         "la_decode: head count num_v_heads = 4; allowed: a multiple of num_qk_heads = 8"},
        {AT(head_dim), 0, "la_decode: head_dim = 0; allowed: 64, 128, 256"},
        {AT(head_dim), 96, "la_decode: head_dim = 96; allowed: 64, 128, 256"},
        {AT(head_dim), -128, "la_decode: head_dim = -128; allowed: 64, 128, 256"},
        {AT(dtype), 2, "la_decode: dtype = 2; allowed: GEN_DTYPE_BF16 (0), GEN_DTYPE_FP16 (1)"},
        {AT(dtype), -1, "la_decode: dtype = -1; allowed: GEN_DTYPE_BF16 (0), GEN_DTYPE_FP16 (1)"},
        {AT(state_layout), 2,
         "la_decode: state_layout = 2; allowed: GEN_LA_STATE_VK (0), GEN_LA_STATE_KV (1)"},
        {AT(state_dtype), 3,
         "la_decode: state_dtype = 3; allowed: GEN_STATE_FP32 (0), GEN_STATE_BF16 (1), "
         "GEN_STATE_FP16 (2)"},
        {AT(state_dtype), -1,
         "la_decode: state_dtype = -1; allowed: GEN_STATE_FP32 (0), GEN_STATE_BF16 (1), "
         "GEN_STATE_FP16 (2)"},
        {AT(pool), 2, "la_decode: pool = 2; allowed: 0, 1"},
        {AT(pool), -1, "la_decode: pool = -1; allowed: 0, 1"},
        {AT(batch), INT32_MAX,
         "la_decode: batch * num_v_heads = 2147483647 * 16 = 34359738352; allowed: <= 134217727"},
        {AT(batch), 8388608,
         "la_decode: batch * num_v_heads = 8388608 * 16 = 134217728; allowed: <= 134217727"},
#undef AT
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gen_la_decode_problem p = la_problem(4, 8, 16, 128);
        struct gen__key key, before;
        memset(&key, 0xa5, sizeof key);
        before = key;
        memcpy((char *)&p + cases[i].offset, &cases[i].value, sizeof cases[i].value);
        assert_failed(family->check(&p.base, &key), INVALID_ARGUMENT, cases[i].message);
        assert_memory_equal(&key, &before, sizeof key);
    }
}

/* The greatest problem that check() lets pass fills no grid beyond its limit,
 * and fits() stops a variant that would. */
static void the_largest_grid(void **state)
{
    (void)state;
    struct gen__key key;
    gen_plan plan = {0};
    gen_la_decode_problem p = la_problem(8388607, 8, 16, 128);
    assert_int_equal(family->check(&p.base, &key), GEN_OK);
    struct gen__facts facts = variant_of(16, 0, 8192);
    assert_null(family->fits(&p.base, &h200, &facts));
    family->plan(&p.base, &h200, &facts, &plan);
    assert_int_equal(plan.launch[0].grid[0], 8388607u * 16 * 16);
    facts = variant_of(17, 0, 8192);
    assert_string_equal(family->fits(&p.base, &h200, &facts),
                        "batch * num_v_heads * blocks is more than a grid holds (2147483647)");
}

/* ---- the launch -------------------------------------------------------- */

static void one_block_for_each_slice(void **state)
{
    (void)state;
    for (int32_t blocks = 1; blocks <= 8; blocks *= 2) {
        struct gen__facts facts = variant_of(blocks, 0, 8192);
        facts.shared_dynamic = 3072;
        const gen_plan plan = planned(la_problem(3, 5, 10, 128), &h200, &facts);
        assert_int_equal(plan.num_launches, 1);
        assert_int_equal(plan.launch[0].variant, 17);
        assert_int_equal(plan.launch[0].grid[0], 3 * 10 * blocks);
        assert_int_equal(plan.launch[0].grid[1], 1);
        assert_int_equal(plan.launch[0].grid[2], 1);
        assert_int_equal(plan.launch[0].threads, 128);
        assert_int_equal(plan.launch[0].shared, 3072);
    }
}

static void persistent_blocks_fill_the_gpu(void **state)
{
    (void)state;
    struct gen__facts facts = variant_of(2, 1, 8192);
    const gen_la_decode_problem large = la_problem(256, 64, 64, 128);
    const gen_la_decode_problem small = la_problem(1, 64, 64, 128);
    gen_device device = h200;

    assert_int_equal(planned(large, &device, &facts).launch[0].grid[0], 132 * 16);
    assert_int_equal(planned(small, &device, &facts).launch[0].grid[0], 64 * 2);
    device.num_sms = 78;
    assert_int_equal(planned(large, &device, &facts).launch[0].grid[0], 78 * 16);
    facts.shared_dynamic = 48 * 1024; /* 4 to an SM */
    facts.occupancy = gen__occupancy(&facts);
    assert_int_equal(planned(large, &device, &facts).launch[0].grid[0], 78 * 4);
    facts.shared_static = 16 * 1024; /* 3 */
    facts.occupancy = gen__occupancy(&facts);
    assert_int_equal(planned(large, &device, &facts).launch[0].grid[0], 78 * 3);
    facts.registers = 255; /* 2 */
    facts.occupancy = gen__occupancy(&facts);
    assert_int_equal(planned(large, &device, &facts).launch[0].grid[0], 78 * 2);
    device.num_sms = 0; /* unknown: a block for each slice is right too */
    assert_int_equal(planned(large, &device, &facts).launch[0].grid[0], 256 * 64 * 2);
}

static void nothing_to_launch(void **state)
{
    (void)state;
    const struct gen__facts facts = variant_of(2, 1, 8192);
    assert_int_equal(planned(la_problem(0, 64, 64, 128), &h200, &facts).num_launches, 0);
    assert_int_equal(planned(la_problem(0, 64, 64, 128), &h200, NULL).num_launches, 0);
}

static void plan_of_the_reference(void **state)
{
    (void)state;
    const gen_plan plan = planned(la_problem(2, 3, 6, 64), &h200, NULL);
    assert_int_equal(plan.num_launches, 1);
    assert_int_equal(plan.launch[0].variant, 0);
    assert_int_equal(plan.launch[0].grid[0], 0);
    assert_int_equal(plan.dims[LA_DECODE_BATCH], 2);
    assert_int_equal(plan.dims[LA_DECODE_QK_HEADS], 3);
    assert_int_equal(plan.dims[LA_DECODE_V_HEADS], 6);
    assert_int_equal(plan.dims[LA_DECODE_HEAD_DIM], 64);
}

/* A plan that was kept badly is refused before anything is divided by it. */
static void damaged_plan(void **state)
{
    (void)state;
    const struct gen__facts facts = variant_of(2, 0, 8192);
    const gen_la_decode_problem p = la_problem(5, 7, 21, 128);
    const gen_la_decode_args a = good_args(&p);
    static const struct {
        enum la_decode_dim dim;
        int32_t value;
    } damages[] = {
        {LA_DECODE_BATCH, -1},
        {LA_DECODE_QK_HEADS, 0},
        {LA_DECODE_V_HEADS, 0},
        {LA_DECODE_V_HEADS, 6}, /* less than num_qk_heads: a group of none */
    };
    for (size_t i = 0; i < sizeof(damages) / sizeof(*damages); i++) {
        gen_plan plan = planned(p, &h200, &facts);
        struct gen_la_decode_pool_params k;
        plan.dims[damages[i].dim] = damages[i].value;
        assert_int_equal(family->params(&plan, 0, &a.base, NULL, &k), GEN_STATUS_MISMATCH);
        assert_non_null(strstr(gen_last_error(), "not what gen_select() writes"));
    }
}

/* Every parameter, and the quotients by their multipliers. */
static void parameters(void **state)
{
    (void)state;
    const struct gen__facts facts = variant_of(2, 0, 8192);
    const gen_la_decode_problem p = la_problem(5, 7, 21, 128);
    const gen_plan plan = planned(p, &h200, &facts);
    gen_la_decode_args a = good_args(&p);
    struct gen_la_decode_pool_params all; /* what is behind the first part is for pools */
    memset(&all, 0xa5, sizeof all);
    const struct gen_la_decode_params *const k = &all.decode;
    a.zero_padding = 1;
    assert_int_equal(family->params(&plan, 0, &a.base, NULL, &all), GEN_OK);
    assert_ptr_equal(k->q, a.q);
    assert_ptr_equal(k->k, a.k);
    assert_ptr_equal(k->v, a.v);
    assert_ptr_equal(k->o, a.o);
    assert_ptr_equal(k->decay, a.decay);
    assert_ptr_equal(k->state, a.state);
    assert_ptr_equal(k->slots, a.slots);
    assert_int_equal(k->q_stride, 7 * 128);
    assert_int_equal(k->k_stride, 7 * 128);
    assert_int_equal(k->v_stride, 21 * 128);
    assert_int_equal(k->o_stride, 21 * 128);
    assert_int_equal(k->num_states, 5 * 21);
    assert_int_equal(k->num_v_heads, 21);
    assert_int_equal(k->num_slots, 8);
    assert_int_equal(k->zero_padding, 1);
    assert_true(k->scale == a.scale && fabs(k->scale - 1 / sqrt(128)) < 1e-7);
    assert_true(k->pad == 0);

    for (int forms = 0; forms < 2; forms++) { /* decay for q heads, for v heads */
        a.num_decays = forms ? 21 : 7;
        assert_int_equal(family->params(&plan, 0, &a.base, NULL, &all), GEN_OK);
        for (unsigned x = 0; x < 5 * 21; x++) {
#define QUOTIENT(mul, shift) (mul ? (unsigned)((uint64_t)x * mul >> 32) >> shift : x)
            assert_int_equal(QUOTIENT(k->heads_mul, k->heads_shift), x / 21);
            assert_int_equal(QUOTIENT(k->group_mul, k->group_shift), x / 3);
            assert_int_equal(QUOTIENT(k->decay_mul, k->decay_shift), forms ? x : x / 3);
#undef QUOTIENT
        }
    }

    a.q_stride = a.k_stride = a.v_stride = 35 * 128;
    a.o_stride = 21 * 128 + 8;
    assert_int_equal(family->params(&plan, 0, &a.base, NULL, &all), GEN_OK);
    assert_int_equal(k->q_stride, 35 * 128);
    assert_int_equal(k->k_stride, 35 * 128);
    assert_int_equal(k->v_stride, 35 * 128);
    assert_int_equal(k->o_stride, 21 * 128 + 8);

    a.q_stride = 7 * 128; /* the packed width, spelled out */
    a.o_stride = 21 * 128;
    a.slots = NULL;
    assert_int_equal(family->params(&plan, 0, &a.base, NULL, &all), GEN_OK);
    assert_int_equal(k->q_stride, 7 * 128);
    assert_int_equal(k->o_stride, 21 * 128);
    assert_null(k->slots);
}

#define AT(field) offsetof(gen_la_decode_args, field), sizeof((gen_la_decode_args *)0)->field
#define NO_POINTER(name)                     \
    {                                        \
        AT(name), 0, false, #name " is NULL" \
    }
#define MISALIGNED(name, by, unit)                                                \
    {                                                                             \
        AT(name), by, true, #name " = %p; allowed: a multiple of " #unit " bytes" \
    }
#define STRIDE(name, bad, width)                                                               \
    {                                                                                          \
        AT(name), bad, false,                                                                  \
            #name " = " #bad " elements; allowed: 0 (packed), or a multiple of 8 from " #width \
                  " (one row) to 576460752303423488"                                           \
    }

static const struct wrong wrongs[] = {
    NO_POINTER(q),
    NO_POINTER(k),
    NO_POINTER(v),
    NO_POINTER(o),
    NO_POINTER(decay),
    NO_POINTER(state),
    MISALIGNED(q, 8, 16),
    MISALIGNED(k, 4, 16),
    MISALIGNED(v, 2, 16),
    MISALIGNED(o, 1, 16),
    MISALIGNED(state, 24, 16),
    MISALIGNED(decay, 2, 4),
    {AT(slots), 1, true, "slots = %p; allowed: NULL, or a multiple of 4 bytes"},
    STRIDE(q_stride, -896, 896),
    STRIDE(q_stride, 888, 896),
    STRIDE(q_stride, 900, 896),
    STRIDE(k_stride, 1, 896),
    STRIDE(v_stride, 2680, 2688),
    STRIDE(o_stride, 2692, 2688),
    STRIDE(o_stride, 9223372036854775800, 2688),
    STRIDE(q_stride, 576460752303423496, 896),
    {AT(num_slots), 0, false, "num_slots = 0; allowed: 1 to 2147483647"},
    {AT(num_slots), -5, false, "num_slots = -5; allowed: 1 to 2147483647"},
    {AT(num_decays), 0, false,
     "num_decays = 0; allowed: one of the head counts num_qk_heads = 7, num_v_heads = "
     "21"},
    {AT(num_decays), 3, false,
     "num_decays = 3; allowed: one of the head counts num_qk_heads = 7, num_v_heads = "
     "21"},
    {AT(scale), 0x7f800000, false, "scale = inf; allowed: a finite number"},
    {AT(scale), 0x7fc00000, false, "scale = nan; allowed: a finite number"},
    {AT(zero_padding), 2, false, "zero_padding = 2; allowed: 0, 1"},
    {AT(zero_padding), -1, false, "zero_padding = -1; allowed: 0, 1"},
};

static void params_errors(void **state)
{
    (void)state;
    const struct gen__facts facts = variant_of(2, 0, 8192);
    const gen_la_decode_problem p = la_problem(5, 7, 21, 128);
    const gen_plan plan = planned(p, &h200, &facts);
    const gen_la_decode_args good = good_args(&p);
    check_wrong(family, &plan, &good.base, la_memory, wrongs, sizeof wrongs / sizeof *wrongs);

    /* The greatest stride whose rows all have an address. */
    gen_la_decode_args a = good_args(&p);
    a.q_stride = 576460752303423488;
    assert_int_equal(family->params(&plan, 0, &a.base, NULL, NULL), GEN_OK);
    assert_true(a.q_stride <= INT64_MAX / 2 / p.batch);
}

static void pool_errors(void **state)
{
    (void)state;
    gen_la_decode_problem p = la_problem(5, 8, 8, 128);
    gen_plan plan = planned(p, &h200, NULL);
    gen_la_decode_args a = good_args(&p);
    a.slots = NULL;
    a.num_slots = 5;
    assert_int_equal(family->params(&plan, 0, &a.base, NULL, NULL), GEN_OK);
    a.num_slots = 4;
    assert_failed(family->params(&plan, 0, &a.base, NULL, NULL), INVALID_ARGUMENT,
                  "la_decode: num_slots = 4 without slots; allowed: >= batch = 5");
    a.slots = (const int32_t *)(const void *)la_memory;
    assert_int_equal(family->params(&plan, 0, &a.base, NULL, NULL), GEN_OK);

    /* A pool that no address space holds. */
    p = la_problem(5, 65536, 65536, 256);
    plan = planned(p, &h200, NULL);
    a = good_args(&p);
    a.num_slots = INT32_MAX;
    assert_failed(family->params(&plan, 0, &a.base, NULL, NULL), INVALID_ARGUMENT,
                  "la_decode: num_slots = 2147483647; allowed: 1 to 268435456");
    a.num_slots = 268435456;
    assert_int_equal(family->params(&plan, 0, &a.base, NULL, NULL), GEN_OK);
}

/* What an engine's pool has more, and that a packed one has none of it. */
static void engine_pool_errors(void **state)
{
    (void)state;
    gen_la_decode_problem p = la_problem(5, 8, 8, 128);
    gen_plan plan = planned(p, &h200, NULL);
    gen_la_decode_args a = good_args(&p);
    static const char rest[] = "without a pool; allowed: 0 or NULL, or pool = 1 in the problem, or "
                               "states of 16 bits";
    char text[256];
    a.state_stride = 8 * 128 * 128;
    snprintf(text, sizeof text, "la_decode: state_stride %s", rest);
    assert_failed(family->params(&plan, 0, &a.base, NULL, NULL), INVALID_ARGUMENT, text);
    a = good_args(&p), a.null_slot = 1;
    snprintf(text, sizeof text, "la_decode: null_slot %s", rest);
    assert_failed(family->params(&plan, 0, &a.base, NULL, NULL), INVALID_ARGUMENT, text);
    a = good_args(&p), a.slots_out = a.slots;
    snprintf(text, sizeof text, "la_decode: slots_out %s", rest);
    assert_failed(family->params(&plan, 0, &a.base, NULL, NULL), INVALID_ARGUMENT, text);

    for (p.state_dtype = GEN_STATE_FP32; p.state_dtype <= GEN_STATE_FP16; p.state_dtype++) {
        const int64_t slot = 8 * 128 * 128, granule = p.state_dtype == GEN_STATE_FP32 ? 4 : 8;
        p.pool = p.state_dtype == GEN_STATE_FP32;
        plan = planned(p, &h200, NULL);
        const int64_t wrong[] = {slot - granule, slot + granule / 2, -slot,
                                 (INT64_C(1) << 60) / 8 + granule};
        const int64_t right[] = {0, slot, slot + granule, (INT64_C(1) << 60) / 8};
        for (int i = 0; i < 4; i++) {
            a = good_args(&p), a.num_slots = 8, a.state_stride = wrong[i];
            snprintf(text, sizeof text,
                     "la_decode: state_stride = %" PRId64 " elements; allowed: 0 (packed), or a "
                     "multiple of %" PRId64 " from 131072 (one slot) to 144115188075855872",
                     wrong[i], granule);
            assert_failed(family->params(&plan, 0, &a.base, NULL, NULL), INVALID_ARGUMENT, text);
            a.state_stride = right[i];
            assert_int_equal(family->params(&plan, 0, &a.base, NULL, NULL), GEN_OK);
        }
        a = good_args(&p), a.null_slot = -1;
        assert_failed(family->params(&plan, 0, &a.base, NULL, NULL), INVALID_ARGUMENT,
                      "la_decode: null_slot = -1; allowed: 0 (none), or 1 + a slot");
        a = good_args(&p), a.slots_out = (const int32_t *)(const void *)(la_memory + 2);
        assert_int_equal(family->params(&plan, 0, &a.base, NULL, NULL),
                         GEN_STATUS_INVALID_ARGUMENT);
        assert_ptr_equal(strstr(gen_last_error(), "la_decode: slots_out"), gen_last_error());
    }
}

/* What the kernels of pools get beside the others' parameters. */
static void engine_pool_parameters(void **state)
{
    (void)state;
    gen_la_decode_problem p = la_problem(5, 8, 8, 64);
    struct gen_la_decode_pool_params k;
    p.pool = 1;
    gen_plan plan = planned(p, &h200, NULL);
    gen_la_decode_args a = good_args(&p);
    assert_int_equal(family->params(&plan, 0, &a.base, NULL, &k), GEN_OK);
    assert_true(k.decode.state == a.state && k.decode.slots == a.slots && !k.slots_out);
    assert_int_equal(k.state_stride, 8 * 64 * 64);
    assert_int_equal(k.null_slot, -1);
    assert_int_equal(k.state_fp16, 0);
    p.state_dtype = GEN_STATE_FP16;
    plan = planned(p, &h200, NULL);
    a.slots_out = a.slots, a.null_slot = 4, a.state_stride = 40000;
    assert_int_equal(family->params(&plan, 0, &a.base, NULL, &k), GEN_OK);
    assert_true(k.slots_out == a.slots_out && k.state_stride == 40000);
    assert_int_equal(k.null_slot, 3);
    assert_int_equal(k.state_fp16, 1);
}

/* Unless asked not to, and only where the kernel waits for the one before it. */
static void dependent_launches(void **state)
{
    (void)state;
    struct gen__facts facts = variant_of(8, 0, 8192);
    gen_la_decode_problem p = la_problem(4, 64, 64, 128);
    check_dependent(family, &p.base, &facts, LA_DECODE_DEPENDENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(key_of_a_problem),
        cmocka_unit_test(empty_problem),
        cmocka_unit_test(batch_invariance_forgets_the_batch),
        cmocka_unit_test(check_errors),
        cmocka_unit_test(the_largest_grid),
        cmocka_unit_test(one_block_for_each_slice),
        cmocka_unit_test(persistent_blocks_fill_the_gpu),
        cmocka_unit_test(nothing_to_launch),
        cmocka_unit_test(plan_of_the_reference),
        cmocka_unit_test(damaged_plan),
        cmocka_unit_test(parameters),
        cmocka_unit_test(params_errors),
        cmocka_unit_test(pool_errors),
        cmocka_unit_test(engine_pool_errors),
        cmocka_unit_test(engine_pool_parameters),
        cmocka_unit_test(dependent_launches),
    };
    return cmocka_run_group_tests_name("la_decode host", tests, NULL, NULL);
}
