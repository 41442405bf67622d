/*
 * attn_merge: what it allows and what it says where it does not, geometry and parameters of a
 * launch, and the reference against values computed by hand and against the streaming form of the
 * definition.
 */
#include "families/attn_merge/attn_merge.h"
#include "fixture.h"
#include "h200.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

extern const struct gen__family gen__family_attn_merge;
static const struct gen__family *const family = &gen__family_attn_merge;

/* Never read: params() looks at addresses alone. */
static _Alignas(64) unsigned char merge_memory[256];

static gen_attn_merge_problem merge_problem(int32_t rows, int32_t heads, int32_t states,
                                            int32_t head_dim)
{
    return (gen_attn_merge_problem){.base = {sizeof(gen_attn_merge_problem), GEN_ATTN_MERGE, 0, 0},
                                    .num_rows = rows,
                                    .num_heads = heads,
                                    .num_states = states,
                                    .head_dim = head_dim,
                                    .dtype = GEN_DTYPE_BF16,
                                    .o_dtype = GEN_DTYPE_BF16};
}

static struct gen__facts merge_variant(uint32_t threads, int32_t split, int32_t flight)
{
    return (struct gen__facts){
        .index = 9, .threads = threads, .registers = 96, .cluster = 1, .fact = {split, flight, 1}};
}

static gen_plan planned(gen_attn_merge_problem p, const struct gen__facts *variant)
{
    gen_plan plan = {0};
    family->plan(&p.base, &h200, variant, &plan);
    assert_int_equal(plan.workspace_bytes, 0);
    return plan;
}

/* ---- the problem -------------------------------------------------------- */

static void key_of_a_problem(void **state)
{
    (void)state;
    gen_attn_merge_problem p = merge_problem(5, 7, 33, 128);
    struct gen__key key;
    p.o_dtype = GEN_DTYPE_FP32;
    assert_int_equal(family->check(&p.base, &key), GEN_OK);
    assert_string_equal(family->required[0].values[key.codes[0]], "bf16");
    assert_string_equal(family->required[1].values[key.codes[1]], "fp32");
    assert_true(key.counts[0] == 35 && key.counts[1] == 33 && !key.empty);
    p.base.flags = GEN_BATCH_INVARIANT;
    assert_int_equal(family->check(&p.base, &key), GEN_OK);
    assert_true(key.counts[0] == 1024 * 7);
    p.num_rows = 0;
    assert_int_equal(family->check(&p.base, &key), GEN_OK);
    assert_true(key.empty);
    assert_int_equal(planned(p, NULL).num_launches, 0);
}

static void check_errors(void **state)
{
    (void)state;
    static const char dtypes[] = "GEN_DTYPE_BF16 (0), GEN_DTYPE_FP16 (1), GEN_DTYPE_FP32 (2)";
    static const struct {
        size_t offset;
        int32_t value;
        const char *message;
    } cases[] = {
#define AT(field) offsetof(gen_attn_merge_problem, field)
        {AT(num_rows), -1, "num_rows = -1; allowed: >= 0, num_rows * num_heads < 2^31"},
        {AT(num_rows), 268435456,
         "num_rows = 268435456; allowed: >= 0, num_rows * num_heads < 2^31"},
        {AT(num_heads), 0, "num_heads = 0; allowed: 1 to 1024"},
        {AT(num_heads), 1025, "num_heads = 1025; allowed: 1 to 1024"},
        {AT(num_states), 0, "num_states = 0; allowed: 1 to 65536"},
        {AT(num_states), 65537, "num_states = 65537; allowed: 1 to 65536"},
        {AT(head_dim), 0, "head_dim = 0; allowed: multiples of 8 from 8 to 512"},
        {AT(head_dim), 60, "head_dim = 60; allowed: multiples of 8 from 8 to 512"},
        {AT(head_dim), 520, "head_dim = 520; allowed: multiples of 8 from 8 to 512"},
        {AT(dtype), 3, NULL},
        {AT(o_dtype), -1, NULL},
#undef AT
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gen_attn_merge_problem p = merge_problem(4, 8, 3, 64);
        struct gen__key key;
        char message[160];
        memcpy((char *)&p + cases[i].offset, &cases[i].value, sizeof cases[i].value);
        if (cases[i].message)
            snprintf(message, sizeof message, "attn_merge: %s", cases[i].message);
        else
            snprintf(message, sizeof message, "attn_merge: %s = %d; allowed: %s",
                     cases[i].value < 0 ? "o_dtype" : "dtype", cases[i].value, dtypes);
        assert_failed(family->check(&p.base, &key), INVALID_ARGUMENT, message);
    }
    gen_attn_merge_problem p = merge_problem(268435455, 8, 1, 512);
    struct gen__key key;
    assert_int_equal(family->check(&p.base, &key), GEN_OK);
}

static void geometry(void **state)
{
    (void)state;
    static const struct {
        int32_t head_dim, dtype;
        uint32_t threads;
        int32_t split;
        uint32_t blocks; /* of 77 items; 0: refused */
    } cases[] = {
        {128, GEN_DTYPE_BF16, 128, 1, 10}, {128, GEN_DTYPE_BF16, 256, 4, 20},
        {512, GEN_DTYPE_FP32, 128, 1, 77}, {512, GEN_DTYPE_FP32, 256, 4, 0},
        {40, GEN_DTYPE_FP16, 128, 1, 4},   {8, GEN_DTYPE_FP16, 256, 4, 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gen_attn_merge_problem p = merge_problem(11, 7, 5, cases[i].head_dim);
        p.dtype = cases[i].dtype;
        const struct gen__facts v = merge_variant(cases[i].threads, cases[i].split, 8);
        const char *const why = family->fits(&p.base, &h200, &v);
        if (!cases[i].blocks) {
            assert_string_equal(why,
                                "a row's threads, times split, are more than those of a block");
            continue;
        }
        assert_null(why);
        const gen_plan plan = planned(p, &v);
        assert_int_equal(plan.num_launches, 1);
        assert_int_equal(plan.launch[0].grid[0], cases[i].blocks);
        assert_int_equal(plan.launch[0].threads, cases[i].threads);
        assert_int_equal(plan.launch[0].dependent, 1);
        assert_true(family->predict(&p.base, &h200, &v) > 0);
    }
    gen_attn_merge_problem p = merge_problem(11, 7, 5, 64);
    const struct gen__facts v = merge_variant(128, 1, 8);
    p.base.flags = GEN_SERIAL_LAUNCH;
    assert_int_equal(planned(p, &v).launch[0].dependent, 0);
}

/* ---- arguments ---------------------------------------------------------- */

static gen_attn_merge_args good_args(const gen_attn_merge_problem *p)
{
    gen_attn_merge_args a;
    family->default_args(&p->base, &a.base);
    a.v = merge_memory;
    a.lse = (const float *)(const void *)(merge_memory + 48);
    a.v_2 = merge_memory + 16;
    a.lse_2 = (const float *)(const void *)(merge_memory + 52);
    a.o = merge_memory + 32;
    a.o_lse = (float *)(void *)(merge_memory + 56);
    return a;
}

#define AT(field) offsetof(gen_attn_merge_args, field), sizeof((gen_attn_merge_args *)0)->field
static const struct wrong wrongs[] = {
    {AT(v), 0, false, "v is NULL"},
    {AT(lse), 0, false, "lse is NULL"},
    {AT(lse_2), 0, false, "lse_2 is NULL"},
    {AT(o), 0, false, "o is NULL"},
    {AT(v), 8, true, "v = %p; allowed: a multiple of 16 bytes"},
    {AT(lse), 2, true, "lse = %p; allowed: a multiple of 4 bytes"},
    {AT(v_2), 8, true, "v_2 = %p; allowed: NULL, or a multiple of 16 bytes"},
    {AT(o), 2, true, "o = %p; allowed: a multiple of 16 bytes"},
    {AT(o_lse), 1, true, "o_lse = %p; allowed: NULL, or a multiple of 4 bytes"},
    {AT(lse_base_2), 2, false, "lse_base_2 = 2; allowed: 0, 1"},
    {AT(v_row_stride), 68, false,
     "v_row_stride = 68 elements; allowed: 0 (packed), or a multiple of 8 from 64 to "
     "192153584101141162"},
    {AT(v_2_head_stride), 56, false,
     "v_2_head_stride = 56 elements; allowed: 0 (packed), or a multiple of 8 from 64 to "
     "44343134792571037"},
    {AT(o_lse_row_stride), INT64_C(1) << 58, false,
     "o_lse_row_stride = 288230376151711744 elements; allowed: 0 (packed), or -192153584101141162 "
     "to 192153584101141162"},
};
#undef AT

static void wrong_arguments(void **state)
{
    (void)state;
    const gen_attn_merge_problem p = merge_problem(3, 13, 2, 64);
    const struct gen__facts v = merge_variant(128, 1, 8);
    gen_plan plan = planned(p, &v);
    gen_attn_merge_args a = good_args(&p);
    char message[200];
    assert_int_equal(family->params(&plan, 0, &a.base, NULL, NULL), GEN_OK);
    check_wrong(family, &plan, &a.base, merge_memory, wrongs, sizeof wrongs / sizeof *wrongs);
    a.v_2 = NULL;
    snprintf(message, sizeof message, "attn_merge: lse_2 = %p without v_2; allowed: NULL",
             (const void *)a.lse_2);
    assert_failed(family->params(&plan, 0, &a.base, NULL, NULL), INVALID_ARGUMENT, message);
    a = good_args(&p);
    plan.dims[ATTN_MERGE_NUM_STATES] = 3;
    snprintf(message, sizeof message,
             "attn_merge: v_2 = %p with num_states = 3; allowed: NULL, or 2 states", a.v_2);
    assert_failed(family->params(&plan, 0, &a.base, NULL, NULL), INVALID_ARGUMENT, message);
}

/* Over a state place for place alone. */
static void in_place(void **state)
{
    (void)state;
    gen_attn_merge_problem p = merge_problem(3, 13, 2, 64);
    const struct gen__facts v = merge_variant(128, 1, 8);
    gen_attn_merge_args a = good_args(&p);
    gen_plan plan = planned(p, &v);
    a.o = merge_memory + 16;
    a.o_lse = (float *)(void *)(merge_memory + 52);
    assert_int_equal(family->params(&plan, 0, &a.base, NULL, NULL), GEN_OK);
    a.o_head_stride = 72;
    assert_failed(family->params(&plan, 0, &a.base, NULL, NULL), INVALID_ARGUMENT,
                  "attn_merge: o is v_2 with strides 936, 72 of rows and heads; allowed: those of "
                  "v_2 and its type");
    a.o_head_stride = 0;
    a.o_lse_head_stride = 2;
    assert_failed(family->params(&plan, 0, &a.base, NULL, NULL), INVALID_ARGUMENT,
                  "attn_merge: o_lse is lse_2 with strides 26, 2 of rows and heads; allowed: those "
                  "of lse_2");
    a.o_lse_head_stride = 0;
    p.o_dtype = GEN_DTYPE_FP16;
    plan = planned(p, &v);
    assert_failed(family->params(&plan, 0, &a.base, NULL, NULL), INVALID_ARGUMENT,
                  "attn_merge: o is v_2 with strides 832, 64 of rows and heads and another type; "
                  "allowed: those of v_2 and its type");
}

static void parameters(void **state)
{
    (void)state;
    const gen_attn_merge_problem p = merge_problem(3, 13, 4, 72);
    const struct gen__facts v = merge_variant(256, 4, 8);
    gen_plan plan = planned(p, &v);
    gen_attn_merge_args a = good_args(&p);
    struct gen_attn_merge_params k;
    a.v_2 = a.lse_2 = NULL;
    a.v_head_stride = 80;
    a.lse_row_stride = 1;
    a.lse_head_stride = -3;
    assert_int_equal(family->params(&plan, 0, &a.base, NULL, &k), GEN_OK);
    assert_ptr_equal(k.v, a.v);
    assert_ptr_equal(k.o_lse, a.o_lse);
    assert_true(k.v_head == 80 && k.v_state == 13 * 80 && k.v_row == 4 * 13 * 80);
    assert_true(k.lse_head == -3 && k.lse_state == -39 && k.lse_row == 1);
    assert_true(k.o_head == 72 && k.o_row == 13 * 72 && k.o_lse_head == 1 && k.o_lse_row == 13);
    assert_int_equal(k.num_items, 39);
    assert_int_equal(k.vectors, 9);
    assert_int_equal(k.items, 256 / 9 / 4);
    for (unsigned x = 0; x < 256; x++)
        assert_int_equal((unsigned)((uint64_t)x * k.vectors_mul >> 32) >> k.vectors_shift, x / 9);
    assert_true(fabsf(k.to_log2 - 1.442695041f) < 1e-7f);
    plan.dims[ATTN_MERGE_HEAD_DIM] = 0;
    assert_failed(family->params(&plan, 0, &a.base, NULL, &k), MISMATCH,
                  "attn_merge: the plan's num_heads, head_dim, threads, split are 13, 0, 256, 4; "
                  "not what gen_select() writes");
}

/* ---- the reference ------------------------------------------------------ */

/* Weights 3 and 1; then empty states of either sign with NaN in their place; then nothing. */
static void by_hand(void **state)
{
    (void)state;
    _Alignas(16) float v[3][8], o[8];
    float lse[3] = {10 + logf(3), 10, -INFINITY}, o_lse = 0;
    gen_attn_merge_problem p = merge_problem(1, 1, 3, 8);
    p.dtype = p.o_dtype = GEN_DTYPE_FP32;
    gen_attn_merge_args a = {
        .base = {sizeof a, GEN_ATTN_MERGE}, .v = v, .lse = lse, .o = o, .o_lse = &o_lse};
    const gen_plan plan = planned(p, NULL);
    for (int i = 0; i < 8; i++) {
        v[0][i] = 1;
        v[1][i] = 5;
        v[2][i] = NAN;
    }
    assert_int_equal(family->reference(&plan, &a.base), GEN_OK);
    assert_true(fabsf(o[0] - 2) < 1e-6f && fabsf(o[7] - 2) < 1e-6f);
    assert_true(fabsf(o_lse - (10 + logf(4))) < 1e-6f);
    lse[0] = 7;
    lse[1] = INFINITY;
    v[1][3] = NAN;
    assert_int_equal(family->reference(&plan, &a.base), GEN_OK);
    assert_true(o[3] == 1 && o_lse == 7);
    a.lse_base_2 = 1;
    lse[1] = 7;
    v[1][0] = 3;
    assert_int_equal(family->reference(&plan, &a.base), GEN_OK);
    assert_true(o[0] == 2 && o_lse == 8 && isnan(o[3]));
    lse[0] = -INFINITY;
    lse[1] = INFINITY;
    assert_int_equal(family->reference(&plan, &a.base), GEN_OK);
    assert_true(o[0] == 0 && o[3] == 0 && o_lse == -INFINITY);
}

/* Merging the first two, then that with the third and so on, is merging all. */
static void one_after_the_other(void **state)
{
    (void)state;
    enum { ROWS = 5, HEADS = 3, STATES = 6, WIDTH = 16, ITEMS = ROWS * HEADS };
    static float v[STATES][ITEMS][WIDTH], o[ITEMS][WIDTH], run[ITEMS][WIDTH];
    static float lse[STATES][ITEMS], o_lse[ITEMS], run_lse[ITEMS];
    uint64_t seed = 5;
    for (int i = 0; i < STATES * ITEMS * WIDTH; i++)
        (&v[0][0][0])[i] = (float)random_unit(&seed);
    for (int i = 0; i < STATES * ITEMS; i++)
        (&lse[0][0])[i] = random_bits(&seed) % 5 ? (float)(4 * random_unit(&seed)) : INFINITY;
    gen_attn_merge_problem p = merge_problem(ROWS, HEADS, STATES, WIDTH);
    p.dtype = p.o_dtype = GEN_DTYPE_FP32;
    gen_attn_merge_args a = {.base = {sizeof a, GEN_ATTN_MERGE},
                             .v = v,
                             .lse = &lse[0][0],
                             .o = o,
                             .o_lse = o_lse,
                             .v_row_stride = HEADS * WIDTH,
                             .v_state_stride = ITEMS * WIDTH,
                             .lse_row_stride = HEADS,
                             .lse_state_stride = ITEMS};
    gen_plan plan = planned(p, NULL);
    assert_int_equal(family->reference(&plan, &a.base), GEN_OK);
    memcpy(run, v[0], sizeof run);
    memcpy(run_lse, lse[0], sizeof run_lse);
    p.num_states = 2;
    plan = planned(p, NULL);
    for (int i = 1; i < STATES; i++) {
        const gen_attn_merge_args two = {.base = a.base,
                                         .v = v[i],
                                         .lse = lse[i],
                                         .v_2 = run,
                                         .lse_2 = run_lse,
                                         .o = run,
                                         .o_lse = run_lse};
        assert_int_equal(family->reference(&plan, &two.base), GEN_OK);
    }
    for (int i = 0; i < ITEMS; i++) {
        assert_true(run_lse[i] == o_lse[i] || fabsf(run_lse[i] - o_lse[i]) < 2e-6f);
        for (int c = 0; c < WIDTH; c++)
            assert_true(fabsf(run[i][c] - o[i][c]) < 2e-6f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(key_of_a_problem), cmocka_unit_test(check_errors),
        cmocka_unit_test(geometry),         cmocka_unit_test(wrong_arguments),
        cmocka_unit_test(in_place),         cmocka_unit_test(parameters),
        cmocka_unit_test(by_hand),          cmocka_unit_test(one_after_the_other),
    };
    return cmocka_run_group_tests_name("attn_merge", tests, NULL, NULL);
}
