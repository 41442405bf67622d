/*
 * mla_sparse: what it allows and what it says where it does not, how lists are partitioned, the
 * parameters of a launch, and the reference against sums computed here.
 */
#include "families/mla_sparse/mla_sparse.h"
#include "fixture.h"
#include "h200.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

extern const struct gen__family gen__family_mla_sparse;
static const struct gen__family *const family = &gen__family_mla_sparse;

/* Never read: params() looks at addresses alone. */
static _Alignas(64) unsigned char sparse_memory[256];

static gen_mla_sparse_problem sparse_problem(int32_t batch, int32_t heads, int32_t q_len,
                                             int32_t topk)
{
    return (gen_mla_sparse_problem){.base = {sizeof(gen_mla_sparse_problem), GEN_MLA_SPARSE, 0, 0},
                                    .batch = batch,
                                    .num_heads = heads,
                                    .q_len = q_len,
                                    .topk = topk,
                                    .page_size = 64,
                                    .rope_dim = 64,
                                    .dtype = GEN_DTYPE_BF16};
}

static struct gen__facts sparse_variant(void)
{
    return (struct gen__facts){.index = 3,
                               .threads = 384,
                               .shared_dynamic = 225344,
                               .registers = 168,
                               .cluster = 1,
                               .fact = {64, 64, 2, 1, 1, 1}};
}

static gen_plan planned(gen_mla_sparse_problem p)
{
    struct gen__facts v = sparse_variant();
    v.occupancy.shared = v.shared_dynamic + 1024;
    memset(v.occupancy.blocks, 1, sizeof v.occupancy.blocks);
    gen_plan plan = {0};
    family->plan(&p.base, &h200, &v, &plan);
    return plan;
}

/* ---- the problem -------------------------------------------------------- */

static void key_of_a_problem(void **state)
{
    (void)state;
    gen_mla_sparse_problem p = sparse_problem(5, 8, 2, 2048);
    struct gen__key key;
    p.cache = GEN_MLA_SPARSE_DS;
    assert_int_equal(family->check(&p.base, &key), GEN_OK);
    assert_string_equal(family->required[0].values[key.codes[0]], "bf16");
    assert_string_equal(family->required[1].values[key.codes[1]], "ds");
    assert_string_equal(family->required[2].values[key.codes[2]], "64");
    assert_true(key.counts[0] == 20480 && key.counts[1] == 10 && key.counts[2] == 16);
    p.rope_dim = 0;
    p.num_heads = 65;
    p.base.flags = GEN_BATCH_INVARIANT;
    assert_int_equal(family->check(&p.base, &key), GEN_OK);
    assert_string_equal(family->required[2].values[key.codes[2]], "0");
    assert_true(key.counts[1] == 64 && key.counts[2] == 128 && !key.empty);
    p.batch = 0;
    assert_int_equal(family->check(&p.base, &key), GEN_OK);
    assert_true(key.empty);
}

/* Heads as the rows of a tile count them, and the largest and smallest sizes. */
static void limits_of_a_problem(void **state)
{
    (void)state;
    static const int32_t heads[][2] = {{1, 16},  {16, 16},  {17, 32},   {32, 32},  {33, 64},
                                       {64, 64}, {65, 128}, {127, 128}, {128, 128}};
    struct gen__key key;
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        const gen_mla_sparse_problem p = sparse_problem(1, heads[i][0], 1, 64);
        assert_int_equal(family->check(&p.base, &key), GEN_OK);
        assert_true(key.counts[2] == (float)heads[i][1]);
    }
    gen_mla_sparse_problem p =
        sparse_problem(1 << 14, 1, 1024, 2048); /* 2^24 tokens, 2^35 entries */
    assert_int_equal(family->check(&p.base, &key), GEN_OK);
    p.topk++;
    assert_int_equal(family->check(&p.base, &key), GEN_STATUS_INVALID_ARGUMENT);
    p = sparse_problem((1 << 14) + 1, 1, 1024, 1);
    assert_int_equal(family->check(&p.base, &key), GEN_STATUS_INVALID_ARGUMENT);
    p = sparse_problem(1 << 24, 1, 1, 1);
    assert_int_equal(family->check(&p.base, &key), GEN_OK);
    p.batch++;
    assert_int_equal(family->check(&p.base, &key), GEN_STATUS_INVALID_ARGUMENT);
    p = sparse_problem(1, 1, 1, 1 << 20);
    p.page_size = 1 << 16;
    assert_int_equal(family->check(&p.base, &key), GEN_OK);
    p.page_size = 1;
    assert_int_equal(family->check(&p.base, &key), GEN_OK);
}

static void check_errors(void **state)
{
    (void)state;
    static const struct {
        size_t offset;
        int32_t value;
        const char *message;
    } cases[] = {
#define AT(field) offsetof(gen_mla_sparse_problem, field)
        {AT(batch), -1, "batch = -1; allowed: 0 to 16777216"},
        {AT(batch), 16777217, "batch = 16777217; allowed: 0 to 16777216"},
        {AT(batch), 8388609, "batch * q_len = 16777218; allowed: 0 to 16777216"},
        {AT(num_heads), 0, "head count num_heads = 0; allowed: 1 to 128"},
        {AT(num_heads), 129, "head count num_heads = 129; allowed: 1 to 128"},
        {AT(q_len), 0, "q_len = 0; allowed: 1 to 1024"},
        {AT(q_len), 1025, "q_len = 1025; allowed: 1 to 1024"},
        {AT(topk), 0, "topk = 0; allowed: 1 to 1048576"},
        {AT(topk), 1048577, "topk = 1048577; allowed: 1 to 1048576"},
        {AT(page_size), 0, "page_size = 0; allowed: 1 to 65536"},
        {AT(page_size), 65537, "page_size = 65537; allowed: 1 to 65536"},
        {AT(rope_dim), 32, "rope_dim = 32; allowed: 64, 0"},
        {AT(cache), 2, "cache = 2; allowed: GEN_MLA_SPARSE_SAME (0), GEN_MLA_SPARSE_DS (1)"},
        {AT(dtype), 2, "dtype = 2; allowed: GEN_DTYPE_BF16 (0), GEN_DTYPE_FP16 (1)"},
        {AT(sink), 2, "sink = 2; allowed: 0, 1"},
#undef AT
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gen_mla_sparse_problem p = sparse_problem(4, 8, 2, 2048);
        struct gen__key key;
        char message[160];
        memcpy((char *)&p + cases[i].offset, &cases[i].value, sizeof cases[i].value);
        snprintf(message, sizeof message, "mla_sparse: %s", cases[i].message);
        assert_failed(family->check(&p.base, &key), INVALID_ARGUMENT, message);
    }
    gen_mla_sparse_problem p = sparse_problem(8388607, 8, 2, 2048);
    struct gen__key key;
    assert_int_equal(family->check(&p.base, &key), GEN_OK);
    p.topk = 2049;
    assert_failed(family->check(&p.base, &key), INVALID_ARGUMENT,
                  "mla_sparse: batch * q_len * topk = 34376511486; allowed: 0 to 34359738368");
}

/* ---- how lists are partitioned ------------------------------------------ */

static void whole_or_cut(void **state)
{
    (void)state;
    /* As many tokens as SMs: nothing is cut. */
    gen_plan plan = planned(sparse_problem(132, 16, 1, 2048));
    assert_int_equal(plan.num_launches, 1);
    assert_int_equal(plan.launch[0].grid[0], 1);
    assert_int_equal(plan.launch[0].grid[1], 132);
    assert_int_equal(plan.workspace_bytes, 0);
    assert_int_equal(plan.dims[MLA_SPARSE_SNAP], INT32_MAX);

    /* One token: cut, and a record of it alone. Two row tiles of the heads share the SMs. */
    plan = planned(sparse_problem(1, 128, 1, 2048));
    assert_int_equal(plan.num_launches, 2);
    assert_int_equal(plan.launch[0].grid[0], 2);
    assert_true(plan.launch[0].grid[1] > 8 && plan.launch[0].grid[1] <= 66);
    assert_int_equal(plan.dims[MLA_SPARSE_NUM_RECORDS], 1);
    assert_int_equal(plan.dims[MLA_SPARSE_NUM_SLOTS], 2 * plan.launch[0].grid[1]);
    assert_int_equal(plan.workspace_bytes,
                     gen__mla_sparse_workspace(plan.dims).partial +
                         (uint64_t)plan.dims[MLA_SPARSE_NUM_SLOTS] * 128 * 1024);

    /* With a sink never; without the room for partial results neither. */
    gen_mla_sparse_problem p = sparse_problem(1, 128, 1, 2048);
    p.sink = 1;
    plan = planned(p);
    assert_true(plan.num_launches == 1 && plan.launch[0].grid[1] == 1);
    p.sink = 0;
    p.base.max_workspace_mib = 1;
    plan = planned(p);
    assert_true(plan.num_launches == 1 && plan.launch[0].grid[1] == 1);
}

static void invariant_of_the_batch(void **state)
{
    (void)state;
    gen_mla_sparse_problem p = sparse_problem(3, 16, 2, 2048);
    p.base.flags = GEN_BATCH_INVARIANT;
    gen_plan plan = planned(p);
    assert_int_equal(plan.dims[MLA_SPARSE_CHUNK], 8);
    assert_int_equal(plan.dims[MLA_SPARSE_MAX_CHUNKS], 4);
    assert_int_equal(plan.dims[MLA_SPARSE_NUM_RECORDS], 6);
    assert_int_equal(plan.dims[MLA_SPARSE_NUM_SLOTS], 24);
    p.topk = 512; /* one chunk: whole */
    plan = planned(p);
    assert_int_equal(plan.dims[MLA_SPARSE_CHUNK], 0);
    assert_int_equal(plan.num_launches, 1);

    /* Nor does the estimate know of the batch. */
    const struct gen__facts v = sparse_variant();
    gen_mla_sparse_problem q = p;
    q.batch = 500;
    q.q_len = 1;
    assert_true(family->predict(&p.base, &h200, &v) == family->predict(&q.base, &h200, &v));
    p.base.flags = q.base.flags = 0;
    assert_true(family->predict(&p.base, &h200, &v) < family->predict(&q.base, &h200, &v));
}

/* ---- arguments ---------------------------------------------------------- */

static gen_mla_sparse_args good_args(const gen_mla_sparse_problem *p)
{
    gen_mla_sparse_args a;
    family->default_args(&p->base, &a.base);
    a.q_nope = a.q_pe = a.kv = sparse_memory;
    a.o = sparse_memory;
    a.indices = (const int32_t *)(const void *)sparse_memory;
    return a;
}

/* The least of all: one of each, and one page. */
static void least_arguments(void **state)
{
    (void)state;
    gen_mla_sparse_problem p = sparse_problem(1, 1, 1, 1);
    p.page_size = 1;
    const gen_plan plan = planned(p);
    gen_mla_sparse_args a = good_args(&p);
    a.num_pages = 1;
    assert_int_equal(family->params(&plan, 0, &a.base, NULL, NULL), GEN_OK);
}

static void wrong_arguments(void **state)
{
    (void)state;
#define AT(field) offsetof(gen_mla_sparse_args, field)
    static const struct wrong cases[] = {
        {AT(q_nope), 8, 0, false, "q_nope is NULL"},
        {AT(q_pe), 8, 8, true, "q_pe = %p; allowed: a multiple of 16 bytes"},
        {AT(kv), 8, 0, false, "kv is NULL"},
        {AT(o), 8, 4, true, "o = %p; allowed: a multiple of 16 bytes"},
        {AT(lse), 8, 2, true, "lse = %p; allowed: NULL, or a multiple of 4 bytes"},
        {AT(indices), 8, 0, false, "indices is NULL"},
        {AT(topk_length), 8, 2, true, "topk_length = %p; allowed: NULL, or a multiple of 4 bytes"},
        {AT(sink), 8, 4, true, "sink = %p; allowed: NULL where the problem's sink is 0"},
        {AT(num_pages), 4, 0, false, "num_pages = 0; allowed: >= 1"},
        {AT(length_per_token), 4, 2, false, "length_per_token = 2; allowed: 0, 1"},
        {AT(lse_base_2), 4, -1, false, "lse_base_2 = -1; allowed: 0, 1"},
    };
#undef AT
    const gen_mla_sparse_problem p = sparse_problem(2, 16, 2, 100);
    const gen_plan plan = planned(p);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gen_mla_sparse_args a = good_args(&p);
        char message[200];
        assert_int_equal(family->params(&plan, 0, &a.base, sparse_memory, NULL), GEN_OK);
        write_wrong(&cases[i], "mla_sparse", sparse_memory, &a, message, sizeof message);
        assert_failed(family->params(&plan, 0, &a.base, sparse_memory, NULL), INVALID_ARGUMENT,
                      message);
    }
    gen_mla_sparse_args a = good_args(&p);
    a.kv_row_stride = 568; /* less than a row */
    assert_int_equal(family->params(&plan, 0, &a.base, NULL, NULL), GEN_STATUS_INVALID_ARGUMENT);
    a.kv_row_stride = 580; /* not of 16 bytes */
    assert_int_equal(family->params(&plan, 0, &a.base, NULL, NULL), GEN_STATUS_INVALID_ARGUMENT);
    a = good_args(&p);
    a.indices_token_stride = 99;
    assert_int_equal(family->params(&plan, 0, &a.base, NULL, NULL), GEN_STATUS_INVALID_ARGUMENT);
    a = good_args(&p);
    a.scale = INFINITY;
    assert_int_equal(family->params(&plan, 0, &a.base, NULL, NULL), GEN_STATUS_INVALID_ARGUMENT);
}

static void parameters(void **state)
{
    (void)state;
    static _Alignas(64) struct gen_mla_sparse_params k;
    gen_mla_sparse_problem p = sparse_problem(2, 16, 3, 130);
    const gen_plan plan = planned(p);
    gen_mla_sparse_args a = good_args(&p);
    assert_int_equal(family->params(&plan, 0, &a.base, sparse_memory, &k), GEN_OK);
    assert_int_equal(k.decode.schedule.batch, 6);
    assert_int_equal(k.decode.schedule.max_kv_len, 130);
    assert_int_equal(k.blocks, 3);
    assert_int_equal(k.q_len, 3);
    assert_int_equal(k.decode.q_len, 1);
    /* Rows are evenly spaced, so that an entry is not taken apart. */
    assert_true(k.decode.page_size == 1 && k.decode.page_mul == 0 && k.decode.page_shift == 0);
    assert_int_equal(k.decode.ckv_page_stride, 576);
    assert_int_equal(k.num_rows, a.num_pages * 64);
    assert_true(k.length_mul == k.tokens_mul && k.length_mul != 0);
    a.kv_page_stride = 576 * 65;
    a.length_per_token = 1;
    a.num_pages = INT32_MAX;
    assert_int_equal(family->params(&plan, 0, &a.base, sparse_memory, &k), GEN_OK);
    assert_true(k.decode.page_size == 64 && k.decode.page_mul == 0 && k.decode.page_shift == 6);
    assert_int_equal(k.decode.ckv_page_stride, 576 * 65);
    assert_int_equal(k.num_rows, 1u << 31);
    assert_int_equal(k.length_mul, 0);
}

/* Of 656-byte rows 64 GiB are allowed, and not a page more. */
static void large_caches(void **state)
{
    (void)state;
    gen_mla_sparse_problem p = sparse_problem(1, 16, 1, 64);
    p.cache = GEN_MLA_SPARSE_DS;
    const gen_plan plan = planned(p);
    gen_mla_sparse_args a = good_args(&p);
    a.kv_page_stride = 1 << 16;
    a.num_pages = 1 << 20;
    assert_int_equal(family->params(&plan, 0, &a.base, NULL, NULL), GEN_OK);
    a.num_pages++;
    assert_failed(family->params(&plan, 0, &a.base, NULL, NULL), INVALID_ARGUMENT,
                  "mla_sparse: num_pages * kv_page_stride = 1048577 * 65536; allowed with 656-byte "
                  "rows: <= 68719476736");
}

/* ---- the reference ------------------------------------------------------ */

enum { ROWS = 8, HEADS = 2, TOPK = 7 };

static struct {
    uint16_t q_nope[HEADS][MLA_LATENT], q_pe[HEADS][MLA_ROPE], o[HEADS][MLA_LATENT];
    uint16_t kv[ROWS][MLA_LATENT + MLA_ROPE];
    uint8_t ds[ROWS][MLA_SPARSE_ROW_BYTES];
    float lse[HEADS], sink[HEADS];
    int32_t indices[TOPK], length;
} io;

/* Row `row`'s element, as the operator has it. */
static double value_of(bool ds, int row, int column)
{
    if (!ds)
        return gen__bf16_to_double(io.kv[row][column]);
    uint16_t code;
    if (column >= MLA_LATENT) {
        memcpy(&code, &io.ds[row][MLA_SPARSE_ROPE_AT + 2 * (column - MLA_LATENT)], 2);
        return gen__bf16_to_double(code);
    }
    float scale;
    memcpy(&scale, &io.ds[row][MLA_SPARSE_SCALES_AT + column / 128 * 4], 4);
    const double exact = (double)scale * gen__e4m3_to_double(io.ds[row][column]);
    return gen__bf16_to_double(gen__bf16_from_double(exact)); /* scales are short here */
}

static void fill_io(void)
{
    srand(7);
    for (int h = 0; h < HEADS; h++) {
        for (int i = 0; i < MLA_LATENT; i++)
            io.q_nope[h][i] = gen__bf16_from_double(rand() % 64 / 32.0 - 1);
        for (int i = 0; i < MLA_ROPE; i++)
            io.q_pe[h][i] = gen__bf16_from_double(rand() % 64 / 32.0 - 1);
        io.sink[h] = h == 0 ? 1.5f : -INFINITY;
    }
    for (int r = 0; r < ROWS; r++) {
        for (int i = 0; i < MLA_LATENT + MLA_ROPE; i++)
            io.kv[r][i] = gen__bf16_from_double(rand() % 64 / 16.0 - 2);
        for (int i = 0; i < MLA_LATENT; i++)
            io.ds[r][i] = (uint8_t)(rand() % 0x40 | (rand() % 2 << 7)); /* up to 1.875 */
        for (int g = 0; g < 4; g++) {
            const float scale = (float)(1 + g) * 0.375f;
            memcpy(&io.ds[r][MLA_SPARSE_SCALES_AT + 4 * g], &scale, 4);
        }
        memcpy(&io.ds[r][MLA_SPARSE_ROPE_AT], &io.kv[r][MLA_LATENT], MLA_ROPE * 2);
    }
}

/* Attention over `rows`, the definition itself. */
static void expect(bool ds, const int *rows, int count, bool sink)
{
    for (int h = 0; h < HEADS; h++) {
        double s[TOPK], sum = 0;
        for (int i = 0; i < count; i++) {
            s[i] = 0;
            for (int c = 0; c < MLA_LATENT + MLA_ROPE; c++)
                s[i] += value_of(ds, rows[i], c) *
                        gen__bf16_to_double(c < MLA_LATENT ? io.q_nope[h][c]
                                                           : io.q_pe[h][c - MLA_LATENT]);
            sum += exp(0.0625 * s[i]);
        }
        const double whole = sink ? sum + exp((double)io.sink[h]) : sum;
        for (int c = 0; c < MLA_LATENT; c++) {
            double o = 0;
            for (int i = 0; i < count; i++)
                o += exp(0.0625 * s[i]) / whole * value_of(ds, rows[i], c);
            assert_true(fabs(gen__bf16_to_double(io.o[h][c]) - o) <= fabs(o) / 256 + 1e-9);
        }
        if (count)
            assert_true(fabs((double)io.lse[h] - log(sum)) < 1e-5);
        else
            assert_true(isinf(io.lse[h]) && io.lse[h] < 0);
    }
}

static void run_reference(bool ds, const int32_t *list, bool sink)
{
    gen_mla_sparse_problem p = sparse_problem(1, HEADS, 1, TOPK);
    p.page_size = 4;
    p.cache = ds;
    p.sink = sink;
    memcpy(io.indices, list, sizeof io.indices);
    memset(io.o, 0xff, sizeof io.o);
    gen_plan plan = {0};
    family->plan(&p.base, &h200, NULL, &plan);
    const gen_mla_sparse_args a = {.base = {sizeof a, GEN_MLA_SPARSE},
                                   .q_nope = io.q_nope,
                                   .q_pe = io.q_pe,
                                   .kv = ds ? (const void *)io.ds : io.kv,
                                   .o = io.o,
                                   .lse = io.lse,
                                   .indices = io.indices,
                                   .topk_length = &io.length,
                                   .sink = sink ? io.sink : NULL,
                                   .num_pages = ROWS / 4,
                                   .scale = 0.0625f};
    assert_int_equal(family->params(&plan, 0, &a.base, NULL, NULL), GEN_OK);
    assert_int_equal(family->reference(&plan, &a.base), GEN_OK);
}

static void by_definition(void **state)
{
    (void)state;
    static const int32_t lists[][TOPK] = {
        {5, 2, 7, 0, 1, 3, 4},
        {-1, 6, ROWS, 6, INT32_MIN, 2, INT32_MAX}, /* one twice; two that count otherwise */
        {-1, -1, -1, -1, -1, -1, -7},
    };
    static const int rows[][TOPK] = {{5, 2, 7, 0, 1, 3, 4}, {6, 6, 2}, {0}};
    static const int counts[] = {TOPK, 3, 0};
    fill_io();
    for (int i = 0; i < 3; i++)
        for (int ds = 0; ds < 2; ds++)
            for (int sink = 0; sink < 2; sink++) {
                io.length = 1000;
                run_reference(ds, lists[i], sink);
                expect(ds, rows[i], counts[i], sink);
            }
    io.length = 3; /* what is behind does not count */
    run_reference(false, lists[0], false);
    expect(false, rows[0], 3, false);
    io.length = -4;
    run_reference(true, lists[0], true);
    expect(true, rows[0], 0, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(key_of_a_problem), cmocka_unit_test(limits_of_a_problem),
        cmocka_unit_test(least_arguments),  cmocka_unit_test(check_errors),
        cmocka_unit_test(whole_or_cut),     cmocka_unit_test(invariant_of_the_batch),
        cmocka_unit_test(wrong_arguments),  cmocka_unit_test(parameters),
        cmocka_unit_test(large_caches),     cmocka_unit_test(by_definition),
    };
    return cmocka_run_group_tests_name("mla_sparse", tests, NULL, NULL);
}
