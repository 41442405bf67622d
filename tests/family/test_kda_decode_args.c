/*
 * The arguments of kda_decode: the parameters that come of them, and which are refused.
 */
#include "fixture.h"
#include "kda_decode.h"

static const struct gen__family *const family = &gen__family_kda_decode;

/* Never read: params() looks at addresses alone. */
static _Alignas(16) unsigned char memory[64];

static gen_kda_decode_args good_args(const gen_kda_decode_problem *p)
{
    gen_kda_decode_args a;
    memset(&a, 0xa5, sizeof a);
    family->default_args(&p->base, &a.base);
    a.q = memory;
    a.k = memory + 16;
    a.v = memory + 32;
    a.g = memory + 48;
    a.beta = memory + 2;
    a.o = memory;
    a.A_log = (const float *)(const void *)(memory + 4);
    a.dt_bias = (const float *)(const void *)(memory + 16);
    a.state = (float *)(void *)(memory + 32);
    a.slots = (const int32_t *)(const void *)(memory + 8);
    a.accepted = (const int32_t *)(const void *)(memory + 12);
    return a;
}

static void parameters(void **state)
{
    (void)state;
    gen_kda_decode_problem p = kda_problem(5, 3, 7, 21, 128);
    p.gate_dtype = GEN_DTYPE_FP32;
    const struct gen__facts facts = variant_of(8, 1664);
    const gen_plan plan = kda_plan(p, &h200, &facts);
    gen_kda_decode_args a = good_args(&p);
    struct gen_kda_decode_replay_params out; /* the most that a kernel takes */
    const struct gen_kda_decode_params *const k = &out.pool.decode;
    memset(&out, 0xa5, sizeof out);
    assert_int_equal(family->params(&plan, 0, &a.base, NULL, &out), GEN_OK);
    assert_ptr_equal(k->gate, a.g);
    assert_ptr_equal(k->accepted, a.accepted);
    assert_null(k->cu_seqlens);
    assert_int_equal(k->q_stride, 7 * 128);
    assert_int_equal(k->gate_stride, 21 * 128);
    assert_int_equal(k->beta_stride, 21);
    assert_int_equal(k->o_stride, 21 * 128);
    assert_int_equal(k->num_tokens, 3);
    assert_int_equal(k->slots_stride, 3);
    assert_int_equal(k->num_slots, 5 * 3 + 3);
    assert_int_equal(k->write, GEN_KDA_DECODE_WRITE_EACH);
    assert_int_equal(k->gate_form, GEN_KDA_GATE_SOFTPLUS);
    assert_int_equal(k->beta_form, GEN_KDA_BETA_SIGMOID);
    assert_int_equal(k->qk_l2norm, 1);
    assert_int_equal(k->dtype, GEN_DTYPE_BF16);
    assert_int_equal(k->gate_dtype, GEN_DTYPE_FP32);
    assert_int_equal(k->beta_dtype, GEN_DTYPE_BF16);
    assert_true(fabs(k->scale - 1 / sqrt(128)) < 1e-7);
    for (unsigned x = 0; x < 5 * 21; x++) {
#define QUOTIENT(mul, shift) (mul ? (unsigned)((uint64_t)x * mul >> 32) >> shift : x)
        assert_int_equal(QUOTIENT(k->heads_mul, k->heads_shift), x / 21);
        assert_int_equal(QUOTIENT(k->group_mul, k->group_shift), x / 3);
#undef QUOTIENT
    }
    a.q_stride = 40 * 128;
    a.beta_stride = 22;
    a.slots_stride = 9;
    a.cu_seqlens = (const int32_t *)(const void *)memory;
    a.total_tokens = 11;
    assert_int_equal(family->params(&plan, 0, &a.base, NULL, &out), GEN_OK);
    assert_int_equal(k->q_stride, 40 * 128);
    assert_int_equal(k->beta_stride, 22);
    assert_int_equal(k->slots_stride, 9);
    assert_int_equal(k->total_tokens, 11);
    a.slots_stride = 3; /* as many as tokens, the least */
    assert_int_equal(family->params(&plan, 0, &a.base, NULL, &out), GEN_OK);

    static const int damages[][2] = {
        {KDA_DECODE_BATCH, -1},  {KDA_DECODE_TOKENS, 0},  {KDA_DECODE_QK_HEADS, 0},
        {KDA_DECODE_V_HEADS, 0}, {KDA_DECODE_V_HEADS, 6}, /* less than num_qk_heads: a group of none
                                                           */
    };
    for (size_t i = 0; i < sizeof(damages) / sizeof(*damages); i++) { /* a plan kept badly */
        gen_plan damaged = plan;
        damaged.dims[damages[i][0]] = damages[i][1];
        assert_int_equal(family->params(&damaged, 0, &a.base, NULL, &out), GEN_STATUS_MISMATCH);
        assert_non_null(strstr(gen_last_error(), "not what gen_select() writes"));
    }
}

#define AT(field) offsetof(gen_kda_decode_args, field), sizeof((gen_kda_decode_args *)0)->field
#define NO_POINTER(name)                     \
    {                                        \
        AT(name), 0, false, #name " is NULL" \
    }
#define MISALIGNED(name, by, what, unit)                                                \
    {                                                                                   \
        AT(name), by, true, #name " = %p; allowed: " what "multiple of " #unit " bytes" \
    }
#define STRIDE(name, bad, width)                                                               \
    {                                                                                          \
        AT(name), bad, false,                                                                  \
            #name " = " #bad " elements; allowed: 0 (packed), or a multiple of 8 from " #width \
                  " (one token) to 144115188075855872"                                         \
    }

static const struct wrong wrongs[] = {
    NO_POINTER(q),
    NO_POINTER(k),
    NO_POINTER(v),
    NO_POINTER(g),
    NO_POINTER(beta),
    NO_POINTER(o),
    NO_POINTER(state),
    {AT(A_log), 0, false, "A_log is NULL with gate_form = GEN_KDA_GATE_SOFTPLUS (1)"},
    MISALIGNED(q, 8, "a ", 16),
    MISALIGNED(k, 4, "a ", 16),
    MISALIGNED(v, 2, "a ", 16),
    MISALIGNED(g, 8, "a ", 16),
    MISALIGNED(beta, 1, "a ", 2),
    MISALIGNED(o, 1, "a ", 16),
    MISALIGNED(A_log, 2, "NULL, or a ", 4),
    MISALIGNED(dt_bias, 8, "NULL, or a ", 16),
    MISALIGNED(state, 24, "a ", 16),
    MISALIGNED(slots, 1, "NULL, or a ", 4),
    MISALIGNED(accepted, 2, "NULL, or a ", 4),
    MISALIGNED(cu_seqlens, 3, "NULL, or a ", 4),
    STRIDE(q_stride, -896, 896),
    STRIDE(q_stride, 888, 896),
    STRIDE(k_stride, 900, 896),
    STRIDE(v_stride, 2680, 2688),
    STRIDE(g_stride, 8, 2688),
    STRIDE(o_stride, 2692, 2688),
    STRIDE(o_stride, 144115188075855880, 2688),
    {AT(beta_stride), 20, false,
     "beta_stride = 20 elements; allowed: 0 (packed), or 21 (one token) to "
     "144115188075855872"},
    {AT(beta_stride), -1, false,
     "beta_stride = -1 elements; allowed: 0 (packed), or 21 (one token) to "
     "144115188075855872"},
    {AT(total_tokens), 14, false,
     "total_tokens = 14 without cu_seqlens; allowed: 0, or batch * num_tokens = 15"},
    {AT(num_slots), 0, false, "num_slots = 0; allowed: 1 to 2147483647"},
    {AT(num_slots), -5, false, "num_slots = -5; allowed: 1 to 2147483647"},
    {AT(slots_stride), 2, false, "slots_stride = 2; allowed: 0 (packed), or 3 to 65536"},
    {AT(slots_stride), 65537, false, "slots_stride = 65537; allowed: 0 (packed), or 3 to 65536"},
    {AT(write), 3, false,
     "write = 3; allowed: GEN_KDA_DECODE_WRITE_LAST (0), GEN_KDA_DECODE_WRITE_EACH "
     "(1), GEN_KDA_DECODE_WRITE_NONE (2)"},
    {AT(write), -1, false,
     "write = -1; allowed: GEN_KDA_DECODE_WRITE_LAST (0), GEN_KDA_DECODE_WRITE_EACH "
     "(1), GEN_KDA_DECODE_WRITE_NONE (2)"},
    {AT(gate_form), 3, false,
     "gate_form = 3; allowed: GEN_KDA_GATE_GIVEN (0), GEN_KDA_GATE_SOFTPLUS (1), "
     "GEN_KDA_GATE_LOWER_BOUND (2)"},
    {AT(beta_form), -1, false,
     "beta_form = -1; allowed: GEN_KDA_BETA_GIVEN (0), GEN_KDA_BETA_SIGMOID (1), "
     "GEN_KDA_BETA_TWO_SIGMOID (2)"},
    {AT(qk_l2norm), 2, false, "qk_l2norm = 2; allowed: 0, 1"},
    {AT(zero_padding), -1, false, "zero_padding = -1; allowed: 0, 1"},
    {AT(scale), 0x7f800000, false, "scale = inf; allowed: a finite number"},
    {AT(scale), 0x7fc00000, false, "scale = nan; allowed: a finite number"},
};

static void params_errors(void **state)
{
    (void)state;
    const struct gen__facts facts = variant_of(8, 1664);
    const gen_kda_decode_problem p = kda_problem(5, 3, 7, 21, 128);
    const gen_plan plan = kda_plan(p, &h200, &facts);
    const gen_kda_decode_args good = good_args(&p);
    check_wrong(family, &plan, &good.base, memory, wrongs, sizeof wrongs / sizeof *wrongs);
}

/* Arguments that are wrong beside others. */
static void params_that_do_not_fit_each_other(void **state)
{
    (void)state;
    const gen_kda_decode_problem p = kda_problem(5, 3, 7, 21, 128);
    const gen_plan plan = kda_plan(p, &h200, NULL);
    gen_kda_decode_args a = good_args(&p);
    char message[256];
#define REFUSED(text) \
    assert_failed(family->params(&plan, 0, &a.base, NULL, NULL), INVALID_ARGUMENT, text)
#define ALLOWED() assert_int_equal(family->params(&plan, 0, &a.base, NULL, NULL), GEN_OK)
    a.slots = NULL;
    snprintf(message, sizeof message, "kda_decode: accepted = %p without slots; allowed: NULL",
             (const void *)a.accepted);
    REFUSED(message);
    a.accepted = NULL;
    REFUSED("kda_decode: write = GEN_KDA_DECODE_WRITE_EACH (1) of num_tokens = 3 without slots; "
            "allowed: a table of slots, or another write");
    a.write = GEN_KDA_DECODE_WRITE_LAST;
    ALLOWED();
    a.slots_stride = 3;
    REFUSED("kda_decode: slots_stride = 3 without slots; allowed: 0, 1");
    a.slots_stride = 1;
    a.num_slots = 4;
    REFUSED("kda_decode: num_slots = 4 without slots; allowed: >= batch = 5");
    a.num_slots = 5;
    ALLOWED();

    a = good_args(&p);
    a.write = GEN_KDA_DECODE_WRITE_LAST; /* needs no column for each token */
    a.slots_stride = 2;
    ALLOWED();
    a = good_args(&p);
    a.gate_form = GEN_KDA_GATE_GIVEN;
    snprintf(message, sizeof message,
             "kda_decode: A_log = %p with gate_form = GEN_KDA_GATE_GIVEN (0); allowed: NULL",
             (const void *)a.A_log);
    REFUSED(message);
    a.A_log = NULL;
    snprintf(message, sizeof message,
             "kda_decode: dt_bias = %p with gate_form = GEN_KDA_GATE_GIVEN (0); allowed: NULL",
             (const void *)a.dt_bias);
    REFUSED(message);
    a.dt_bias = NULL;
    ALLOWED();
    a.gate_form = GEN_KDA_GATE_LOWER_BOUND;
    REFUSED("kda_decode: lower_bound = 0; allowed: -5 to below 0");
    a.lower_bound = -5.5f;
    REFUSED("kda_decode: lower_bound = -5.5; allowed: -5 to below 0");
    a.lower_bound = NAN;
    assert_int_equal(family->params(&plan, 0, &a.base, NULL, NULL), GEN_STATUS_INVALID_ARGUMENT);
    a.lower_bound = -5;
    ALLOWED();
    a.cu_seqlens = (const int32_t *)(const void *)memory;
    a.total_tokens = -1;
    REFUSED("kda_decode: total_tokens = -1; allowed: >= 0");
    a.total_tokens = 0;
    ALLOWED();
#undef REFUSED
#undef ALLOWED
}

/* What a packed pool of fp32 states has not, and how the kernels of other pools get it. */
static void pools(void **state)
{
    (void)state;
    gen_kda_decode_problem p = kda_problem(5, 1, 7, 21, 128);
    const struct gen__facts facts = variant_of(8, 1664);
    gen_plan plan = kda_plan(p, &h200, &facts);
    gen_kda_decode_args a = good_args(&p);
    struct gen_kda_decode_replay_params k;
    const int64_t packed = 21 * 128 * 128;
    a.accepted = NULL;
#define REFUSED(text) \
    assert_failed(family->params(&plan, 0, &a.base, NULL, &k), INVALID_ARGUMENT, text)
#define PLAIN \
    " without a pool; allowed: 0 or NULL, or pool = 1 in the problem, or states of 16 bits"
    a.state_stride = packed;
    REFUSED("kda_decode: state_stride" PLAIN);
    a.state_stride = 0;
    a.null_slot = 1;
    REFUSED("kda_decode: null_slot" PLAIN);
    a.null_slot = 0;
    a.slots_out = (const int32_t *)(const void *)memory;
    REFUSED("kda_decode: slots_out" PLAIN);

    p.pool = 1;
    plan = kda_plan(p, &h200, &facts);
    a.state_stride = packed + 4;
    a.null_slot = 3;
    assert_int_equal(family->params(&plan, 0, &a.base, NULL, &k), GEN_OK);
    assert_int_equal(k.pool.state_stride, packed + 4);
    assert_int_equal(k.pool.null_slot, 2);
    assert_ptr_equal(k.pool.slots_out, memory);
    assert_int_equal(k.pool.slots_out_stride, 1);
    assert_int_equal(k.pool.num_states, 5 * 21);
    a.state_stride = packed + 2;
    REFUSED("kda_decode: state_stride = 344066 elements; allowed: 0 (packed), or a multiple of 4 "
            "from 344064 (one slot) to 144115188075855872");
    /* The limits themselves are allowed, what is beyond them is not. */
    const int64_t widest = (INT64_C(1) << 60) / a.num_slots / 4 * 4;
    const int64_t strides[] = {packed, widest, packed - 4, widest + 4};
    for (int i = 0; i < 4; i++) {
        a.state_stride = strides[i];
        assert_int_equal(family->params(&plan, 0, &a.base, NULL, &k),
                         i < 2 ? GEN_OK : GEN_STATUS_INVALID_ARGUMENT);
    }
    a.state_stride = 0;
    const int32_t columns[] = {1, 65536, -1, 65537};
    for (int i = 0; i < 4; i++) {
        a.slots_out_stride = columns[i];
        assert_int_equal(family->params(&plan, 0, &a.base, NULL, &k),
                         i < 2 ? GEN_OK : GEN_STATUS_INVALID_ARGUMENT);
    }
    a.slots_out_stride = 0;
    a.null_slot = -1;
    REFUSED("kda_decode: null_slot = -1; allowed: 0 (none), or 1 + a slot");
#undef PLAIN
#undef REFUSED
}

/* A pool that no address space holds; beta of fp32 is aligned as one. */
static void far_limits(void **state)
{
    (void)state;
    gen_kda_decode_problem p = kda_problem(5, 1, 65536, 65536, 128);
    p.beta_dtype = GEN_DTYPE_FP32;
    const gen_plan plan = kda_plan(p, &h200, NULL);
    gen_kda_decode_args a = good_args(&p);
    char message[128];
    snprintf(message, sizeof message, "kda_decode: beta = %p; allowed: a multiple of 4 bytes",
             a.beta);
    assert_failed(family->params(&plan, 0, &a.base, NULL, NULL), INVALID_ARGUMENT, message);
    a.beta = memory + 4;
    a.accepted = NULL;
    a.num_slots = INT32_MAX;
    assert_failed(family->params(&plan, 0, &a.base, NULL, NULL), INVALID_ARGUMENT,
                  "kda_decode: num_slots = 2147483647; allowed: 1 to 1073741824");
    a.num_slots = 1073741824;
    assert_int_equal(family->params(&plan, 0, &a.base, NULL, NULL), GEN_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters),
        cmocka_unit_test(params_errors),
        cmocka_unit_test(params_that_do_not_fit_each_other),
        cmocka_unit_test(pools),
        cmocka_unit_test(far_limits),
    };
    return cmocka_run_group_tests_name("kda_decode host", tests, NULL, NULL);
}
