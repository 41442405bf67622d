/*
 * The arguments of kda_step and gdn_step: the parameters that come of them, and which are refused.
 */
#include "kda_step.h"

#include <math.h>

static const struct gen__family *const family = &gen__family_kda_step;

/* Never read: params() looks at addresses alone. */
static _Alignas(16) unsigned char memory[256];

static gen_kda_step_args good_args(const gen_kda_step_problem *p)
{
    gen_kda_step_args a;
    memset(&a, 0xa5, sizeof a);
    step_family(p->base.family)->default_args(&p->base, &a.base);
    a.x = memory;
    a.conv_w = (const float *)(const void *)(memory + 16);
    a.conv_bias = (const float *)(const void *)(memory + 32);
    a.conv_state = memory + 48;
    a.gate = memory + 64;
    a.beta = memory + 2;
    a.A_log = (const float *)(const void *)(memory + 4);
    a.dt_bias = (const float *)(const void *)(memory + 80);
    a.z = memory + 96;
    a.norm_w = (const float *)(const void *)(memory + 112);
    a.state = memory + 128;
    a.slots = (const int32_t *)(const void *)(memory + 8);
    a.out = memory + 144;
    return a;
}

static void parameters(void **state)
{
    (void)state;
    gen_kda_step_problem p = step_problem(5, 7, 21);
    p.gate_dtype = GEN_DTYPE_FP32;
    p.state_dtype = GEN_STATE_FP16;
    const struct gen__facts facts = step_variant(2);
    const gen_plan plan = step_plan(p, &h200, &facts);
    gen_kda_step_args a = good_args(&p);
    struct gen_kda_step_params k;
    memset(&k, 0xa5, sizeof k);
    assert_int_equal(family->params(&plan, 0, &a.base, NULL, &k), GEN_OK);
    assert_ptr_equal(k.gate, a.gate);
    assert_ptr_equal(k.conv_w, a.conv_w);
    assert_ptr_equal(k.out, a.out);
    assert_int_equal(k.x_stride, 35 * 128);
    assert_int_equal(k.gate_stride, 21 * 128);
    assert_int_equal(k.beta_stride, 21);
    assert_int_equal(k.z_stride, 21 * 128);
    assert_int_equal(k.out_stride, 21 * 128);
    assert_int_equal(k.conv_w_tap, 35 * 128);
    assert_int_equal(k.conv_w_part, 7 * 128);
    assert_int_equal(k.conv_stride, 3 * 35 * 128);
    assert_int_equal(k.state_stride, 21 * 128 * 128);
    assert_int_equal(k.channels, 35 * 128);
    assert_int_equal(k.num_qk_heads, 7);
    assert_int_equal(k.group, 3);
    assert_int_equal(k.num_slots, 5 + 3);
    assert_int_equal(k.null_slot, -1);
    assert_int_equal(k.conv_width, 4);
    assert_int_equal(k.conv_layout, GEN_KDA_CONV_SD);
    assert_int_equal(k.conv_update, 1);
    assert_int_equal(k.gate_form, GEN_KDA_GATE_LOWER_BOUND);
    assert_int_equal(k.beta_form, GEN_KDA_BETA_SIGMOID);
    assert_int_equal(k.z_form, GEN_KDA_Z_SIGMOID);
    assert_int_equal(k.dtype, GEN_DTYPE_BF16);
    assert_int_equal(k.gate_dtype, GEN_DTYPE_FP32);
    assert_int_equal(k.beta_dtype, GEN_DTYPE_BF16);
    assert_int_equal(k.state_fp16, 1);
    assert_true(fabs((double)k.scale - 1 / sqrt(128)) < 1e-7);
    for (unsigned x = 0; x < 5 * 7; x++)
        assert_int_equal(
            k.heads_mul ? (unsigned)((uint64_t)x * k.heads_mul >> 32) >> k.heads_shift : x, x / 7);
}

static void parameters_of_other_strides(void **state)
{
    (void)state;
    gen_kda_step_problem p = step_problem(5, 7, 21);
    p.gate_dtype = GEN_DTYPE_FP32;
    p.state_dtype = GEN_STATE_FP16;
    const struct gen__facts facts = step_variant(2);
    const gen_plan plan = step_plan(p, &h200, &facts);
    gen_kda_step_args a = good_args(&p);
    struct gen_kda_step_params k;
    memset(&k, 0xa5, sizeof k);
    a.conv_width = 3;
    a.conv_layout = GEN_KDA_CONV_DS;
    a.conv_state_update = 0;
    a.null_slot = 4;
    a.x_stride = 40 * 128;
    a.beta_stride = 22;
    a.conv_w_tap_stride = 21 * 128;
    a.conv_w_part_stride = 3 * 21 * 128;
    a.state_stride = 21 * 128 * 128 + 8;
    assert_int_equal(family->params(&plan, 0, &a.base, NULL, &k), GEN_OK);
    assert_int_equal(k.conv_stride, 2 * 35 * 128);
    assert_int_equal(k.conv_width, 3);
    assert_int_equal(k.conv_layout, GEN_KDA_CONV_DS);
    assert_int_equal(k.conv_update, 0);
    assert_int_equal(k.null_slot, 3);
    assert_int_equal(k.x_stride, 40 * 128);
    assert_int_equal(k.beta_stride, 22);
    assert_int_equal(k.conv_w_tap, 21 * 128);
    assert_int_equal(k.conv_w_part, 3 * 21 * 128);
    assert_int_equal(k.state_stride, 21 * 128 * 128 + 8);
}

static void a_plan_that_was_kept_badly(void **state)
{
    (void)state;
    static const int damages[][2] = {
        {KDA_STEP_BATCH, -1},
        {KDA_STEP_QK_HEADS, 0},
        {KDA_STEP_V_HEADS, 6}, /* less than num_qk_heads: a group of none */
    };
    const gen_kda_step_problem p = step_problem(5, 7, 21);
    const gen_kda_step_args a = good_args(&p);
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        gen_plan damaged = step_plan(p, &h200, NULL);
        damaged.dims[damages[i][0]] = damages[i][1];
        assert_int_equal(family->params(&damaged, 0, &a.base, NULL, NULL), GEN_STATUS_MISMATCH);
        assert_non_null(strstr(gen_last_error(), "not what gen_select() writes"));
    }
}

#define AT(field) offsetof(gen_kda_step_args, field), sizeof((gen_kda_step_args *)0)->field
#define NO_POINTER(name)                     \
    {                                        \
        AT(name), 0, false, #name " is NULL" \
    }
#define MISALIGNED(name, by, what, unit)                                                \
    {                                                                                   \
        AT(name), by, true, #name " = %p; allowed: " what "multiple of " #unit " bytes" \
    }
#define STRIDE(name, bad, granule, width, most)                                           \
    {                                                                                     \
        AT(name), bad, false,                                                             \
            #name " = " #bad " elements; allowed: 0 (packed), or a multiple of " #granule \
                  " from " #width " to " #most                                            \
    }
#define ROW(name, bad, granule, width) STRIDE(name, bad, granule, width, 144115188075855872)
#define SLOT(name, bad, granule, width) STRIDE(name, bad, granule, width, 72057594037927936)

static const struct wrong wrongs[] = {
    NO_POINTER(x),
    NO_POINTER(conv_w),
    NO_POINTER(conv_state),
    NO_POINTER(gate),
    NO_POINTER(beta),
    NO_POINTER(state),
    NO_POINTER(out),
    MISALIGNED(x, 8, "a ", 16),
    MISALIGNED(conv_w, 4, "a ", 16),
    MISALIGNED(conv_bias, 8, "NULL, or a ", 16),
    MISALIGNED(conv_state, 8, "a ", 16),
    MISALIGNED(gate, 2, "a ", 16),
    MISALIGNED(beta, 1, "a ", 2),
    MISALIGNED(A_log, 2, "NULL, or a ", 4),
    MISALIGNED(dt_bias, 8, "NULL, or a ", 16),
    MISALIGNED(z, 8, "NULL, or a ", 16),
    MISALIGNED(norm_w, 8, "NULL, or a ", 16),
    MISALIGNED(state, 24, "a ", 16),
    MISALIGNED(slots, 1, "NULL, or a ", 4),
    MISALIGNED(out, 8, "a ", 16),
    {AT(z), 0, false, "z is NULL and norm_w is not; allowed: both (no norm), or none"},
    {AT(norm_w), 0, false, "norm_w is NULL and z is not; allowed: both (no norm), or none"},
    ROW(x_stride, -4480, 8, 4480),
    ROW(x_stride, 4472, 8, 4480),
    ROW(x_stride, 4484, 8, 4480),
    ROW(x_stride, 144115188075855880, 8, 4480),
    ROW(gate_stride, 2680, 8, 2688),
    ROW(gate_stride, 2692, 8, 2688),
    ROW(beta_stride, 20, 1, 21),
    ROW(z_stride, 8, 8, 2688),
    ROW(out_stride, 2692, 8, 2688),
    ROW(conv_w_tap_stride, 2684, 4, 2688),
    ROW(conv_w_tap_stride, 2690, 4, 2688),
    ROW(conv_w_part_stride, 892, 4, 896),
    ROW(conv_w_part_stride, -896, 4, 896),
    SLOT(state_stride, 344060, 4, 344064),
    SLOT(state_stride, 344066, 4, 344064),
    SLOT(state_stride, -8, 4, 344064),
    SLOT(conv_state_stride, 13432, 8, 13440),
    SLOT(conv_state_stride, 13444, 8, 13440),
    {AT(num_slots), 0, false, "num_slots = 0; allowed: 1 to 2147483647"},
    {AT(num_slots), -5, false, "num_slots = -5; allowed: 1 to 2147483647"},
    {AT(null_slot), -1, false, "null_slot = -1; allowed: 0 (none), or 1 + a slot"},
    {AT(conv_width), 1, false, "conv_width = 1; allowed: 2, 3, 4"},
    {AT(conv_width), 5, false, "conv_width = 5; allowed: 2, 3, 4"},
    {AT(conv_layout), 2, false,
     "conv_layout = 2; allowed: GEN_KDA_CONV_SD (0), GEN_KDA_CONV_DS (1)"},
    {AT(conv_layout), -1, false,
     "conv_layout = -1; allowed: GEN_KDA_CONV_SD (0), GEN_KDA_CONV_DS (1)"},
    {AT(conv_state_update), 2, false, "conv_state_update = 2; allowed: 0, 1"},
    {AT(gate_form), 3, false,
     "gate_form = 3; allowed: GEN_KDA_GATE_GIVEN (0), GEN_KDA_GATE_SOFTPLUS (1), "
     "GEN_KDA_GATE_LOWER_BOUND (2)"},
    {AT(beta_form), -1, false,
     "beta_form = -1; allowed: GEN_KDA_BETA_GIVEN (0), GEN_KDA_BETA_SIGMOID (1), "
     "GEN_KDA_BETA_TWO_SIGMOID (2)"},
    {AT(z_form), 2, false, "z_form = 2; allowed: GEN_KDA_Z_SIGMOID (0), GEN_KDA_Z_SILU (1)"},
    {AT(z_form), -1, false, "z_form = -1; allowed: GEN_KDA_Z_SIGMOID (0), GEN_KDA_Z_SILU (1)"},
    {AT(zero_padding), 2, false, "zero_padding = 2; allowed: 0, 1"},
    {AT(scale), 0x7f800000, false, "scale = inf; allowed: a finite number"},
    {AT(scale), 0x7fc00000, false, "scale = nan; allowed: a finite number"},
    {AT(eps), (int64_t)0xb727c5ac, false, "eps = -1e-05; allowed: a finite number >= 0"},
    {AT(eps), 0x7f800000, false, "eps = inf; allowed: a finite number >= 0"},
    {AT(lower_bound), 0, false, "lower_bound = 0; allowed: -5 to below 0"},
    {AT(lower_bound), (int64_t)0xc0b00000, false, "lower_bound = -5.5; allowed: -5 to below 0"},
};

static void params_errors(void **state)
{
    (void)state;
    const gen_kda_step_problem p = step_problem(5, 7, 21);
    const gen_plan plan = step_plan(p, &h200, NULL);
    const gen_kda_step_args good = good_args(&p);
    check_wrong(family, &plan, &good.base, memory, wrongs, sizeof wrongs / sizeof *wrongs);
}

/* Arguments that are wrong beside others. */
static void params_that_do_not_fit_each_other(void **state)
{
    (void)state;
    gen_kda_step_problem p = step_problem(5, 7, 21);
    const gen_plan plan = step_plan(p, &h200, NULL);
    gen_kda_step_args a = good_args(&p);
    char message[256];
#define REFUSED(text) \
    assert_failed(family->params(&plan, 0, &a.base, NULL, NULL), INVALID_ARGUMENT, text)
#define ALLOWED() assert_int_equal(family->params(&plan, 0, &a.base, NULL, NULL), GEN_OK)
    a.slots = NULL;
    a.num_slots = 4;
    REFUSED("kda_step: num_slots = 4 without slots; allowed: >= batch = 5");
    a.num_slots = 5;
    ALLOWED();
    a.z = NULL, a.norm_w = NULL, a.eps = -1; /* eps is not read */
    ALLOWED();
    a.conv_bias = NULL, a.dt_bias = NULL, a.A_log = NULL;
    ALLOWED();
    a.gate_form = GEN_KDA_GATE_SOFTPLUS;
    a.lower_bound = 3; /* not read */
    REFUSED("kda_step: A_log is NULL with gate_form = GEN_KDA_GATE_SOFTPLUS (1)");
    a.gate_form = GEN_KDA_GATE_GIVEN;
    ALLOWED();
    a.A_log = (const float *)(const void *)(memory + 4);
    snprintf(message, sizeof message,
             "kda_step: A_log = %p with gate_form = GEN_KDA_GATE_GIVEN (0); allowed: NULL",
             (const void *)a.A_log);
    REFUSED(message);
    a = good_args(&p);
    a.conv_width = 2; /* a slot holds one input then */
    a.conv_state_stride = 4480;
    ALLOWED();
    a.conv_width = 3;
    REFUSED("kda_step: conv_state_stride = 4480 elements; allowed: 0 (packed), or a multiple of 8 "
            "from 8960 to 72057594037927936");
#undef REFUSED
#undef ALLOWED
}

/* A gate a head is aligned as one element, and so are its biases; its rows may be of any length. */
static void scalar_gates(void **state)
{
    (void)state;
    const struct gen__family *gdn = &gen__family_gdn_step;
    gen_kda_step_problem p = step_problem(5, 7, 21);
    p.base.family = GEN_GDN_STEP;
    const gen_plan plan = step_plan(p, &h200, NULL);
    gen_kda_step_args a = good_args(&p);
    struct gen_kda_step_params k;
    a.gate = memory + 6;
    a.dt_bias = (const float *)(const void *)(memory + 12);
    a.gate_stride = 23;
    assert_int_equal(gdn->params(&plan, 0, &a.base, NULL, &k), GEN_OK);
    assert_int_equal(k.gate_stride, 23);
    assert_int_equal(k.gate_form, GEN_KDA_GATE_SOFTPLUS);
    assert_int_equal(k.z_form, GEN_KDA_Z_SILU);
    a.gate_stride = 20;
    assert_failed(
        gdn->params(&plan, 0, &a.base, NULL, NULL), INVALID_ARGUMENT,
        "gdn_step: gate_stride = 20 elements; allowed: 0 (packed), or a multiple of 1 from "
        "21 to 144115188075855872");
    a.gate_stride = 0;
    assert_int_equal(gdn->params(&plan, 0, &a.base, NULL, &k), GEN_OK);
    assert_int_equal(k.gate_stride, 21);
}

/* Pools that no address space holds. */
static void far_limits(void **state)
{
    (void)state;
    gen_kda_step_problem p = step_problem(5, 65536, 65536);
    const gen_plan plan = step_plan(p, &h200, NULL);
    gen_kda_step_args a = good_args(&p);
    a.num_slots = INT32_MAX;
    assert_failed(family->params(&plan, 0, &a.base, NULL, NULL), INVALID_ARGUMENT,
                  "kda_step: num_slots = 2147483647; allowed: 1 to 536870912");
    a.num_slots = 536870912;
    assert_int_equal(family->params(&plan, 0, &a.base, NULL, NULL), GEN_OK);
}

/* What a launch writes lies apart; slots of both pools may lie side by side in one buffer. */
static void extents_of_one_buffer(void **state)
{
    (void)state;
    enum { SLOTS = 4, HEADS = 2, STATE = HEADS * 128 * 128 * 4, CONV = 3 * 3 * HEADS * 128 * 2 };
    static unsigned char buffer[SLOTS * (STATE + CONV) + 16];
    const gen_kda_step_problem p = step_problem(SLOTS, HEADS, HEADS);
    const gen_plan plan = step_plan(p, &h200, NULL);
    gen_kda_step_args a = good_args(&p);
    static unsigned char others[9][1 << 16];
    struct gen__extent list[GEN__MAX_EXTENTS];
    a.x = others[0], a.conv_w = (const float *)(void *)others[1];
    a.conv_bias = (const float *)(void *)others[2], a.gate = others[3], a.beta = others[4];
    a.A_log = (const float *)(void *)(others[4] + 4096);
    a.dt_bias = (const float *)(void *)(others[4] + 8192);
    a.z = others[5], a.norm_w = (const float *)(void *)(others[5] + 32768), a.out = others[6];
    a.slots = (const int32_t *)(void *)others[7];
    a.num_slots = SLOTS;
    a.state = buffer;
    a.conv_state = buffer + STATE;
    a.state_stride = (STATE + CONV) / 4;
    a.conv_state_stride = (STATE + CONV) / 2;
    assert_int_equal(gen__check_apart("kda_step", list, family->extents(plan.dims, &a.base, list)),
                     GEN_OK);
    a.conv_state = buffer + STATE - 16;
    assert_int_equal(gen__check_apart("kda_step", list, family->extents(plan.dims, &a.base, list)),
                     GEN_STATUS_INVALID_ARGUMENT);
    a.conv_state = buffer + STATE;
    a.out = others[0] + 64; /* over x */
    assert_int_equal(gen__check_apart("kda_step", list, family->extents(plan.dims, &a.base, list)),
                     GEN_STATUS_INVALID_ARGUMENT);
    a.out = others[1] + 64; /* over weights */
    assert_int_equal(gen__check_apart("kda_step", list, family->extents(plan.dims, &a.base, list)),
                     GEN_STATUS_INVALID_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters),
        cmocka_unit_test(parameters_of_other_strides),
        cmocka_unit_test(a_plan_that_was_kept_badly),
        cmocka_unit_test(params_errors),
        cmocka_unit_test(params_that_do_not_fit_each_other),
        cmocka_unit_test(scalar_gates),
        cmocka_unit_test(far_limits),
        cmocka_unit_test(extents_of_one_buffer),
    };
    return cmocka_run_group_tests_name("kda_step arguments", tests, NULL, NULL);
}
