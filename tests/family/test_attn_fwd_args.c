/*
 * attn_fwd on the host: arguments that are refused and what it says of them, and
 * the parameters of a launch.
 */
#include "attn_fwd.h"

static const struct gen__family *const family = &gen__family_attn_fwd;

static void expect(const gen_plan *plan, const gen_attn_fwd_args *a, const char *message)
{
    unsigned char out[GEN__MAX_PARAMS], before[GEN__MAX_PARAMS];
    char full[400];
    snprintf(full, sizeof full, "attn_fwd: %s", message);
    memset(out, 0xa5, sizeof out);
    memcpy(before, out, sizeof out);
    assert_failed(family->params(plan, 0, &a->base, NULL, out), INVALID_ARGUMENT, full);
    assert_memory_equal(out, before, sizeof out);
    assert_failed(family->params(plan, 0, &a->base, NULL, NULL), INVALID_ARGUMENT, full);
}

static void wrong_pointers(void **state)
{
    (void)state;
    gen_attn_fwd_problem p = attn_problem();
    const struct gen__facts v = attn_portable();
    char message[128];
    p.varlen = 1;
    const gen_plan plan = attn_planned(&p, &v);
    gen_attn_fwd_args a = attn_args(&p);
    assert_int_equal(family->params(&plan, 0, &a.base, NULL, NULL), GEN_OK);
    const struct {
        const char *name;
        size_t offset;
        unsigned alignment;
        bool optional;
    } list[] = {
#define AT(field) #field, offsetof(gen_attn_fwd_args, field)
        {AT(q), 16, false},           {AT(k), 16, false}, {AT(v), 16, false},
        {AT(o), 16, false},           {AT(lse), 4, true}, {AT(cu_seqlens_q), 4, false},
        {AT(cu_seqlens_k), 4, false},
#undef AT
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        const void *null = NULL, *odd = attn_memory + list[i].alignment / 2;
        a = attn_args(&p);
        memcpy((char *)&a + list[i].offset, &null, sizeof null);
        snprintf(message, sizeof message, "%s is NULL", list[i].name);
        if (list[i].optional)
            assert_int_equal(family->params(&plan, 0, &a.base, NULL, NULL), GEN_OK);
        else
            expect(&plan, &a, message);
        memcpy((char *)&a + list[i].offset, &odd, sizeof odd);
        snprintf(message, sizeof message, "%s = %p; allowed: %sa multiple of %u bytes",
                 list[i].name, odd, list[i].optional ? "NULL, or " : "", list[i].alignment);
        expect(&plan, &a, message);
    }
}

static void wrong_strides(void **state)
{
    (void)state;
    gen_attn_fwd_problem p = attn_problem();
    const struct gen__facts v = attn_portable();
    gen_plan plan = attn_planned(&p, &v);
    gen_attn_fwd_args a = attn_args(&p);
    const struct {
        const char *name;
        size_t offset;
    } strides[] = {
#define AT(field) #field, offsetof(gen_attn_fwd_args, field)
        {AT(q_batch_stride)}, {AT(q_row_stride)},   {AT(q_head_stride)},  {AT(k_batch_stride)},
        {AT(k_row_stride)},   {AT(k_head_stride)},  {AT(v_batch_stride)}, {AT(v_row_stride)},
        {AT(v_head_stride)},  {AT(o_batch_stride)}, {AT(o_row_stride)},   {AT(o_head_stride)},
#undef AT
    };
    const int64_t bad[] = {-128, 120, 132, INT64_C(1) << 39};
    for (size_t i = 0; i < sizeof strides / sizeof *strides; i++)
        for (size_t n = 0; n < sizeof bad / sizeof *bad; n++) {
            char message[200];
            a = attn_args(&p);
            memcpy((char *)&a + strides[i].offset, &bad[n], sizeof bad[n]);
            snprintf(message, sizeof message,
                     "%s = %lld elements; allowed: 0 (packed), or a multiple of 8 from 128 to "
                     "549755813880",
                     strides[i].name, (long long)bad[n]);
            expect(&plan, &a, message);
        }
    a = attn_args(&p);
    a.lse_batch_stride = -(INT64_C(1) << 39);
    expect(&plan, &a,
           "lse_batch_stride = -549755813888 elements; allowed: 0 (packed), or -549755813880 to "
           "549755813880");
}

static void wrong_scales(void **state)
{
    (void)state;
    gen_attn_fwd_problem p = attn_problem();
    const struct gen__facts v = attn_portable();
    gen_plan plan = attn_planned(&p, &v);
    gen_attn_fwd_args a = attn_args(&p);
    a.scale = 0;
    expect(&plan, &a, "scale = 0; allowed: a finite number > 0");
    a.scale = -1;
    expect(&plan, &a, "scale = -1; allowed: a finite number > 0");
    a.scale = INFINITY;
    expect(&plan, &a, "scale = inf; allowed: a finite number > 0");
    a.scale = 3e38f;
    expect(&plan, &a,
           "scale, softcap = 3e+38, 0; allowed: scale * log2(e) and, with a softcap, 2 * log2(e) * "
           "scale / softcap that fp32 holds");
    a = attn_args(&p);
    a.softcap = 30;
    expect(&plan, &a, "softcap = 30; allowed: 0, as the problem has no softcap");
    p.softcap = 1;
    plan = attn_planned(&p, &v);
    a = attn_args(&p);
    a.softcap = 0;
    expect(&plan, &a, "softcap = 0; allowed: > 0 and <= 1024, as the problem has a softcap");
    a.softcap = NAN;
    expect(&plan, &a, "softcap = nan; allowed: > 0 and <= 1024, as the problem has a softcap");
    a.softcap = 1025;
    expect(&plan, &a, "softcap = 1025; allowed: > 0 and <= 1024, as the problem has a softcap");
    a.softcap = 1e-30f;
    a.scale = 1e10f;
    expect(&plan, &a,
           "scale, softcap = 1e+10, 1e-30; allowed: scale * log2(e) and, with a softcap, 2 * "
           "log2(e) * scale / softcap that fp32 holds");
}

static void packed_sequences_have_no_batch_strides(void **state)
{
    (void)state;
    gen_attn_fwd_problem p = attn_problem();
    const struct gen__facts v = attn_portable();
    p.softcap = p.varlen = 1;
    const gen_plan plan = attn_planned(&p, &v);
    gen_attn_fwd_args a = attn_args(&p);
    a.softcap = 1;
    a.q_batch_stride = INT64_C(1) << 50; /* ignored */
    a.o_batch_stride = -3;
    a.lse_batch_stride = INT64_MIN;
    assert_int_equal(family->params(&plan, 0, &a.base, NULL, NULL), GEN_OK);
    a = attn_args(&p);
    a.softcap = 1;
    a.total_k = -1;
    char message[128];
    snprintf(message, sizeof message, "total_q, total_k = %d, -1; allowed: >= 0", a.total_q);
    expect(&plan, &a, message);
}

/* Of 8 bits strides are multiples of 16 elements, o's of 8 as ever, and there may be descales. */
static void numbers_of_8_bits(void **state)
{
    (void)state;
    gen_attn_fwd_problem p = attn_problem();
    const struct gen__facts v = attn_portable();
    gen_plan plan = attn_planned(&p, &v);
    gen_attn_fwd_args a = attn_args(&p);
    char message[128];
    a.k_descale = (const float *)(const void *)attn_memory;
    snprintf(message, sizeof message, "k_descale = %p; allowed: NULL, as dtype has 16 bits",
             (void *)attn_memory);
    expect(&plan, &a, message);
    p.dtype = GEN_DTYPE_E4M3;
    plan = attn_planned(&p, &v);
    struct gen_attn_fwd_params k;
    assert_int_equal(family->params(&plan, 0, &a.base, NULL, &k), GEN_OK);
    assert_ptr_equal(k.k_descale, attn_memory);
    assert_true(k.q_descale == NULL && k.v_descale == NULL && !k.o_fp16);
    a.v_descale = (const float *)(const void *)(attn_memory + 2);
    snprintf(message, sizeof message, "v_descale = %p; allowed: NULL, or a multiple of 4 bytes",
             (void *)(attn_memory + 2));
    expect(&plan, &a, message);
    a.v_descale = NULL;
    a.q_row_stride = 1032;
    expect(&plan, &a,
           "q_row_stride = 1032 elements; allowed: 0 (packed), or a multiple of 16 from 128 to "
           "549755813880");
    a.q_row_stride = 1040;
    a.o_row_stride = 1032;
    assert_int_equal(family->params(&plan, 0, &a.base, NULL, NULL), GEN_OK);
    p.dtype = GEN_DTYPE_E5M2;
    p.o_dtype = GEN_DTYPE_FP16;
    plan = attn_planned(&p, &v);
    assert_int_equal(family->params(&plan, 0, &a.base, NULL, &k), GEN_OK);
    assert_true(k.o_fp16 && k.q_stride.row == 1040 && k.v_stride.row == 512);
}

/* Of as many steps as a problem may have: no offset overflows 64 bits. */
static void strides_of_many(void **state)
{
    (void)state;
    gen_attn_fwd_problem p = attn_problem();
    const struct gen__facts v = attn_portable();
    p.batch = 1 << 24;
    p.num_q_heads = p.num_kv_heads = 8;
    p.q_len = 1;
    p.kv_len = 1 << 24;
    gen_plan plan = attn_planned(&p, &v);
    gen_attn_fwd_args a = attn_args(&p);
    assert_int_equal(family->params(&plan, 0, &a.base, NULL, NULL), GEN_OK);
    a.o_batch_stride = (INT64_C(1) << 35) + 8;
    expect(&plan, &a,
           "o_batch_stride = 34359738376 elements; allowed: 0 (packed), or a multiple of 8 from "
           "128 to 34359738368");
    a.o_batch_stride = 0;
    a.k_row_stride = (INT64_C(1) << 35) + 8;
    expect(&plan, &a,
           "k_row_stride = 34359738376 elements; allowed: 0 (packed), or a multiple of 8 from 128 "
           "to 34359738368");
    a.k_row_stride = 0;
    a.lse_batch_stride = -(INT64_C(1) << 35) - 1;
    expect(&plan, &a,
           "lse_batch_stride = -34359738369 elements; allowed: 0 (packed), or -34359738368 to "
           "34359738368");
    p.num_q_heads = p.num_kv_heads = 16;
    p.head_dim = 256;
    plan = attn_planned(&p, &v);
    a = attn_args(&p);
    expect(&plan, &a, "the packed k_batch_stride is 68719476736 elements; allowed: <= 34359738368");
    p.batch = 1; /* packed batch strides that are too great are not looked at with varlen */
    p.num_q_heads = p.num_kv_heads = 1024;
    plan = attn_planned(&p, &v);
    expect(&plan, &a,
           "the packed k_batch_stride is 4398046511104 elements; allowed: <= 549755813880");
    p.varlen = 1;
    plan = attn_planned(&p, &v);
    a = attn_args(&p);
    assert_int_equal(family->params(&plan, 0, &a.base, NULL, NULL), GEN_OK);
    a.total_k = INT32_MAX;
    a.v_row_stride = INT64_C(1) << 29;
    expect(&plan, &a,
           "v_row_stride = 536870912 elements; allowed: 0 (packed), or a multiple of 8 from 256 to "
           "268435456");
}

static void plans_of_others(void **state)
{
    (void)state;
    const gen_attn_fwd_problem p = attn_problem();
    const struct gen__facts v = attn_portable();
    gen_plan plan = attn_planned(&p, &v);
    const gen_attn_fwd_args a = attn_args(&p);
    unsigned char out[GEN__MAX_PARAMS];
    plan.dims[ATTN_FWD_SECTION] = 0;
    assert_failed(
        family->params(&plan, 0, &a.base, NULL, out), MISMATCH,
        "attn_fwd: the plan's batch, num_q_heads, num_kv_heads, q_len, row tiles, head "
        "units, section, short units are 2, 8, 4, 300, 5, 5, 0, 0; not what gen_select() writes");
    assert_int_equal(family->params(&plan, 0, &a.base, NULL, NULL), GEN_OK);
    plan.dims[ATTN_FWD_NUM_KV_HEADS] = 0;
    assert_int_equal(family->params(&plan, 0, &a.base, NULL, NULL), GEN_STATUS_MISMATCH);
}

static void parameters(void **state)
{
    (void)state;
    gen_attn_fwd_problem p = attn_problem();
    const struct gen__facts v = attn_portable();
    gen_plan plan = attn_planned(&p, &v);
    gen_attn_fwd_args a = attn_args(&p);
    struct gen_attn_fwd_params k;
    a.scale = 0.5f;
    assert_int_equal(family->params(&plan, 0, &a.base, NULL, &k), GEN_OK);
    assert_ptr_equal(k.v, attn_memory + 32);
    assert_null(k.cu_q);
    assert_int_equal(k.q_stride.head, 128);
    assert_int_equal(k.q_stride.row, 1024);
    assert_int_equal(k.q_stride.batch, 300 * 1024);
    assert_int_equal(k.k_stride.row, 512);
    assert_int_equal(k.v_stride.batch, 500 * 512);
    assert_int_equal(k.o_stride.batch, 300 * 1024);
    assert_int_equal(k.lse_stride.row, 1);
    assert_int_equal(k.lse_stride.head, 300);
    assert_int_equal(k.lse_stride.batch, 2400);
    assert_int_equal(k.schedule.num_units, 80);
    assert_int_equal(k.schedule.row_tiles, 5);
    assert_int_equal(k.schedule.all_heads, 16);
    assert_int_equal(k.schedule.descending, 0);
    assert_int_equal(k.group, 2);
    assert_int_equal(k.left, ATTN_NO_BOUND);
    assert_int_equal(k.right, ATTN_NO_BOUND);
    assert_true(fabs((double)k.scale_log2 - 0.7213475204444817) < 1e-7 && k.cap_scale == 0);
    p.causal = p.varlen = p.softcap = 1;
    p.left_window = 10;
    plan = attn_planned(&p, &v);
    a = attn_args(&p);
    a.scale = 0.5f;
    a.softcap = 2;
    a.k_row_stride = 4096;
    assert_int_equal(family->params(&plan, 0, &a.base, NULL, &k), GEN_OK);
    assert_ptr_equal(k.cu_k, attn_memory + 12);
    assert_int_equal(k.k_stride.row, 4096);
    assert_int_equal(k.total_q, a.total_q);
    assert_int_equal(k.lse_stride.head, a.total_q);
    assert_int_equal(k.schedule.descending, 1);
    assert_int_equal(k.left, 9);
    assert_int_equal(k.right, 0);
    assert_true(fabs((double)k.scale_log2 - 2.8853900817779268) < 1e-6);
    assert_true(fabs((double)k.cap_scale - 0.7213475204444817) < 1e-7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_pointers),  cmocka_unit_test(wrong_strides),
        cmocka_unit_test(wrong_scales),    cmocka_unit_test(packed_sequences_have_no_batch_strides),
        cmocka_unit_test(strides_of_many), cmocka_unit_test(plans_of_others),
        cmocka_unit_test(parameters),      cmocka_unit_test(numbers_of_8_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
