/*
 * attn_paged: what it allows and what it says where it does not, how a batch is partitioned, the
 * parameters of a launch, and the reference against the definition.
 */
#include "families/attn_paged/attn_paged.h"
#include "family/occupancy.h"
#include "fixture.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

extern const struct gen__family gen__family_attn_paged;
static const struct gen__family *const family = &gen__family_attn_paged;

/* Never read: params() looks at addresses alone. */
static _Alignas(64) unsigned char paged_memory[512];

static gen_attn_paged_problem paged_problem(int32_t batch, int32_t heads, int32_t kv_heads,
                                            int32_t kv_len)
{
    return (gen_attn_paged_problem){.base = {sizeof(gen_attn_paged_problem), GEN_ATTN_PAGED, 0, 0},
                                    .batch = batch,
                                    .num_q_heads = heads,
                                    .num_kv_heads = kv_heads,
                                    .q_len = 1,
                                    .kv_len = kv_len,
                                    .max_kv_len = kv_len > 0 ? kv_len : 1,
                                    .page_size = 16,
                                    .head_dim = 128,
                                    .dtype = GEN_DTYPE_BF16,
                                    .causal = 1};
}

static struct gen__facts stream(int32_t rows, int32_t teams)
{
    struct gen__facts v = {.index = 4,
                           .threads = (uint32_t)(32 * teams),
                           .shared_dynamic = teams == 8 ? 228352 : 115712,
                           .registers = teams == 8 ? 255 : 200,
                           .cluster = 1,
                           .fact = {rows, 16, 3, teams, 1, 0}};
    v.occupancy = gen__occupancy(&v);
    return v;
}

static gen_plan planned(gen_attn_paged_problem p, const struct gen__facts *variant)
{
    gen_plan plan = {0};
    family->plan(&p.base, &h200, variant, &plan);
    return plan;
}

/* ---- the problem -------------------------------------------------------- */

static void key_of_a_problem(void **state)
{
    (void)state;
    gen_attn_paged_problem p = paged_problem(5, 24, 8, 1000);
    struct gen__key key;
    p.dtype = GEN_DTYPE_FP16;
    p.cache = GEN_ATTN_PAGED_CACHE_E4M3;
    p.head_dim = 256;
    assert_int_equal(family->check(&p.base, &key), GEN_OK);
    assert_string_equal(family->required[0].values[key.codes[0]], "fp16");
    assert_string_equal(family->required[1].values[key.codes[1]], "e4m3");
    assert_string_equal(family->required[2].values[key.codes[2]], "256");
    assert_true(key.counts[0] == 40000 && key.counts[1] == 40 && key.counts[2] == 8);
    p.q_len = 3; /* 9 rows */
    p.left_window = 100;
    assert_int_equal(family->check(&p.base, &key), GEN_OK);
    assert_true(key.counts[0] == 40 * 102 && key.counts[2] == 16);
    p.q_len = 22; /* 66 rows */
    assert_int_equal(family->check(&p.base, &key), GEN_OK);
    assert_true(key.counts[2] == 128);
    p.batch = 0;
    assert_int_equal(family->check(&p.base, &key), GEN_OK);
    assert_true(key.empty);
    assert_int_equal(planned(p, NULL).num_launches, 0);
}

static void check_errors(void **state)
{
    (void)state;
    static const struct {
        size_t offset;
        int32_t value;
        const char *message;
    } cases[] = {
#define AT(field) offsetof(gen_attn_paged_problem, field)
        {AT(batch), -1, "batch = -1; allowed: 0 to 1048576"},
        {AT(batch), 1048577, "batch = 1048577; allowed: 0 to 1048576"},
        {AT(num_kv_heads), 0, "num_kv_heads = 0; allowed: 1 to 1024"},
        {AT(num_q_heads), 1025, "num_q_heads = 1025; allowed: 1 to 1024"},
        {AT(num_q_heads), 9, "num_q_heads = 9; allowed: multiples of num_kv_heads = 2"},
        {AT(q_len), 0, "q_len = 0; allowed: 1 to 131072"},
        {AT(q_len), 131073, "q_len = 131073; allowed: 1 to 131072"},
        {AT(kv_len), -1, "kv_len = -1; allowed: 0 to max_kv_len = 100"},
        {AT(kv_len), 101, "kv_len = 101; allowed: 0 to max_kv_len = 100"},
        {AT(max_kv_len), 0, "max_kv_len = 0; allowed: 1 to 16777216"},
        {AT(max_kv_len), 16777217, "max_kv_len = 16777217; allowed: 1 to 16777216"},
        {AT(page_size), -1, "page_size = -1; allowed: 0 to 65536"},
        {AT(page_size), 65537, "page_size = 65537; allowed: 0 to 65536"},
        {AT(head_dim), 96, "head_dim = 96; allowed: 64, 128, 192, 256"},
        {AT(dtype), 2, "dtype = 2; allowed: 0 to 1"},
        {AT(cache), 2, "cache = 2; allowed: 0 to 1"},
        {AT(causal), -1, "causal = -1; allowed: 0 to 1"},
        {AT(left_window), -1, "left_window = -1; allowed: 0 to 16777217"},
        {AT(left_window), 16777218, "left_window = 16777218; allowed: 0 to 16777217"},
        {AT(softcap), 2, "softcap = 2; allowed: 0 to 1"},
        {AT(sink), 2, "sink = 2; allowed: 0 to 1"},
        {AT(total_tokens), -1, "total_tokens = -1; allowed: 0 to 2147483647"},
#undef AT
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gen_attn_paged_problem p = paged_problem(4, 8, 2, 100);
        struct gen__key key;
        char message[160];
        memcpy((char *)&p + cases[i].offset, &cases[i].value, sizeof cases[i].value);
        snprintf(message, sizeof message, "attn_paged: %s", cases[i].message);
        assert_failed(family->check(&p.base, &key), INVALID_ARGUMENT, message);
    }
}

/* What the device counts in 31 bits. */
static void lines_that_are_too_long(void **state)
{
    (void)state;
    gen_attn_paged_problem p = paged_problem(1 << 20, 8, 8, 1);
    struct gen__key key;
    assert_int_equal(family->check(&p.base, &key), GEN_OK);
    p.max_kv_len = 4096;
    assert_failed(family->check(&p.base, &key), INVALID_ARGUMENT,
                  "attn_paged: batch = 1048576, q_len = 1, max_kv_len = 4096, num_q_heads = 8 make "
                  "9437184 row tiles of up to 274 blocks of keys; allowed: a product below 2^31 "
                  "(total_tokens bounds tokens)");
    p = paged_problem(1024, 64, 8, 131072);
    p.q_len = 8192;
    assert_int_equal(family->check(&p.base, &key), GEN_STATUS_INVALID_ARGUMENT);
    p.total_tokens = 16384;
    assert_int_equal(family->check(&p.base, &key), GEN_OK);
    p = paged_problem(1 << 20, 1, 1, 1);
    p.q_len = 2048;
    p.total_tokens = 8;
    assert_failed(family->check(&p.base, &key), INVALID_ARGUMENT,
                  "attn_paged: batch * q_len = 1048576 * 2048 = 2147483648; allowed: <= "
                  "2147483647");
}

/* ---- shares ------------------------------------------------------------- */

static void whole_or_cut(void **state)
{
    (void)state;
    static const struct {
        int32_t batch, heads, kv_heads, kv_len, max_kv_len;
        int32_t parts, whole, visits; /* whether visits cost something */
    } cases[] = {
        {1, 32, 8, 8192, 8192, 128, 0, 0},    /* evenly, 16 pieces each */
        {1, 8, 1, 131072, 131072, 132, 0, 0}, /* one in 132 */
        {1, 32, 4, 1024, 1024, 32, 0, 0},     /* a tile for each team */
        {16, 32, 8, 8192, 8192, 128, 1, 0},   /* nearly as many as SMs */
        {128, 8, 1, 6144, 32768, 132, 0, 1},  /* ragged */
        {1, 32, 32, 16, 16, 32, 1, 0},        /* short */
    };
    const struct gen__facts v = stream(8, 8);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gen_attn_paged_problem p =
            paged_problem(cases[i].batch, cases[i].heads, cases[i].kv_heads, cases[i].kv_len);
        p.max_kv_len = cases[i].max_kv_len;
        const gen_plan plan = planned(p, &v);
        assert_int_equal(plan.num_launches, 1);
        assert_int_equal(plan.launch[0].grid[0], cases[i].parts);
        assert_int_equal(plan.dims[ATTN_PAGED_NUM_PARTS], cases[i].parts);
        assert_int_equal(plan.dims[ATTN_PAGED_WHOLE], cases[i].whole);
        assert_int_equal(plan.dims[ATTN_PAGED_VISIT] > 0, cases[i].visits);
        const uint64_t partials = (uint64_t)cases[i].parts * 2 * 8 * (128 * 4 + 4);
        if (cases[i].whole)
            assert_int_equal(plan.workspace_bytes, 0);
        else
            assert_true(plan.workspace_bytes >= partials + (uint64_t)cases[i].parts * 24 &&
                        plan.workspace_bytes < partials + (uint64_t)cases[i].parts * 24 + 512);
        assert_true(family->predict(&p.base, &h200, &v) > 2);
    }
    gen_attn_paged_problem p = paged_problem(1, 8, 1, 131072);
    p.base.max_workspace_mib = 1; /* 1.09 MB are wanted */
    assert_int_equal(planned(p, &v).dims[ATTN_PAGED_WHOLE], 1);
    p.base.max_workspace_mib = 2;
    assert_int_equal(planned(p, &v).dims[ATTN_PAGED_WHOLE], 0);
    p.base.flags = GEN_BATCH_INVARIANT | GEN_SERIAL_LAUNCH;
    assert_int_equal(planned(p, &v).dims[ATTN_PAGED_WHOLE], 1);
    assert_int_equal(planned(p, &v).launch[0].dependent, 0);
}

/* ---- arguments ---------------------------------------------------------- */

static gen_attn_paged_args good_args(const gen_attn_paged_problem *p)
{
    gen_attn_paged_args a;
    family->default_args(&p->base, &a.base);
    a.q = paged_memory;
    a.k = paged_memory + 16;
    a.v = paged_memory + 32;
    a.o = paged_memory + 48;
    a.lse = (float *)(void *)(paged_memory + 4);
    a.kv_len = (const int32_t *)(const void *)(paged_memory + 8);
    a.page_indices = (const int32_t *)(const void *)(paged_memory + 12);
    a.sink = (const float *)(const void *)(paged_memory + 20);
    return a;
}

#define AT(field) offsetof(gen_attn_paged_args, field), sizeof((gen_attn_paged_args *)0)->field
static const struct wrong wrongs[] = {
    {AT(q), 0, false, "q is NULL"},
    {AT(k), 0, false, "k is NULL"},
    {AT(v), 0, false, "v is NULL"},
    {AT(o), 0, false, "o is NULL"},
    {AT(kv_len), 0, false, "kv_len is NULL"},
    {AT(page_indices), 0, false, "page_indices is NULL"},
    {AT(sink), 0, false, "sink is NULL"},
    {AT(q), 8, true, "q = %p; allowed: a multiple of 16 bytes"},
    {AT(k), 8, true, "k = %p; allowed: a multiple of 16 bytes"},
    {AT(v), 2, true, "v = %p; allowed: a multiple of 16 bytes"},
    {AT(o), 4, true, "o = %p; allowed: a multiple of 16 bytes"},
    {AT(lse), 1, true, "lse = %p; allowed: NULL, or a multiple of 4 bytes"},
    {AT(page_indptr), 2, true, "page_indptr = %p; allowed: NULL, or a multiple of 4 bytes"},
    {AT(q_indptr), 3, true, "q_indptr = %p; allowed: NULL, or a multiple of 4 bytes"},
    {AT(k_descale), 2, true, "k_descale = %p; allowed: NULL, or a multiple of 4 bytes"},
    {AT(num_pages), 0, false, "num_pages = 0; allowed: >= 1"},
    {AT(lse_base_2), 2, false, "lse_base_2 = 2; allowed: 0, 1"},
    {AT(lse_sink), -1, false, "lse_sink = -1; allowed: 0, 1"},
    {AT(scale), 0x7f800000, false, "scale = inf; allowed: a finite number"},
    {AT(softcap), 0, false,
     "softcap = 0; allowed: a finite number > 0, for the problem's softcap is 1"},
    {AT(q_token_stride), 120, false,
     "q_token_stride = 120 elements; allowed: 0 (packed), or a multiple of 8 from 128 to "
     "144115188075855872"},
    {AT(k_row_stride), 132, false,
     "k_row_stride = 132 elements; allowed: 0 (packed), or a multiple of 8 from 128 to "
     "36028797018963968"},
    {AT(v_head_stride), 64, false,
     "v_head_stride = 64 elements; allowed: 0 (packed), or a multiple of 8 from 128 to "
     "288230376151711744"},
    {AT(page_table_stride), 6, false,
     "page_table_stride = 6 elements; allowed: 0 (packed), or a multiple of 1 from 7 to "
     "144115188075855872"},
    {AT(v_descale_head_stride), INT64_C(1) << 59, false,
     "v_descale_head_stride = 576460752303423488 elements; allowed: 0 (packed), or "
     "-288230376151711744 to 288230376151711744"},
};
#undef AT

static void wrong_arguments(void **state)
{
    (void)state;
    gen_attn_paged_problem p = paged_problem(4, 8, 2, 100);
    const struct gen__facts v = stream(8, 8);
    p.softcap = p.sink = 1;
    gen_plan plan = planned(p, &v);
    gen_attn_paged_args a = good_args(&p);
    assert_int_equal(family->params(&plan, 0, &a.base, paged_memory, NULL), GEN_OK);
    check_wrong(family, &plan, &a.base, paged_memory, wrongs, sizeof wrongs / sizeof *wrongs);
    a.kv_len = NULL;
    a.page_indptr = a.last_page_len = a.page_indices;
    assert_int_equal(family->params(&plan, 0, &a.base, paged_memory, NULL), GEN_OK);
    p.page_size = 0;
    plan = planned(p, &v);
    a = good_args(&p);
    char message[160];
    snprintf(message, sizeof message,
             "attn_paged: page_indices = %p with page_size = 0, not paged; allowed: NULL",
             (const void *)a.page_indices);
    assert_failed(family->params(&plan, 0, &a.base, paged_memory, NULL), INVALID_ARGUMENT, message);
    a.page_indices = NULL;
    assert_int_equal(family->params(&plan, 0, &a.base, paged_memory, NULL), GEN_OK);
    plan.dims[ATTN_PAGED_NUM_KV_HEADS] = 0;
    assert_failed(family->params(&plan, 0, &a.base, paged_memory, NULL), MISMATCH,
                  "attn_paged: the plan's batch, num_q_heads, num_kv_heads, q_len, page_size, "
                  "max_kv_len are 4, 8, 0, 1, 0, 100; not what gen_select() writes");
}

static void parameters(void **state)
{
    (void)state;
    gen_attn_paged_problem p = paged_problem(1, 24, 8, 5000);
    const struct gen__facts v = stream(16, 8);
    p.page_size = 48;
    p.left_window = 2000;
    const gen_plan plan = planned(p, &v);
    gen_attn_paged_args a = good_args(&p);
    struct gen_attn_paged_params k;
    a.k_head_stride = 48 * 128; /* HND */
    a.k_row_stride = 128;
    a.k_page_stride = 2 * 48 * 8 * 128;
    a.scale = 0.5f;
    assert_int_equal(family->params(&plan, 0, &a.base, paged_memory, &k), GEN_OK);
    assert_true(k.k_head == 6144 && k.k_row == 128 && k.k_page == 98304);
    assert_true(k.v_head == 128 && k.v_row == 1024 && k.v_page == 48 * 1024);
    assert_true(k.q_head == 128 && k.q_token == 24 * 128 && k.lse_token == 24);
    assert_int_equal(k.group, 3);
    assert_int_equal(k.left_window, 2000);
    assert_int_equal(k.line.batch, 1);
    assert_ptr_equal(k.tickets, paged_memory);
    assert_true((const unsigned char *)k.partial_lse >= paged_memory + 16 * k.line.num_parts);
    assert_true(k.partial >= k.partial_lse + 2 * k.line.num_parts * 16);
    assert_true(fabsf(k.scale_log2 - 0.72134752f) < 1e-6f && k.cap_log2 == 0);
    for (unsigned x = 0; x < 200; x++) {
        assert_int_equal((unsigned)((uint64_t)x * k.group_mul >> 32) >> k.group_shift, x / 3);
        assert_int_equal((unsigned)((uint64_t)x * k.page_mul >> 32) >> k.page_shift, x / 48);
    }
    p.softcap = 1;
    a.softcap = 20;
    const gen_plan capped = planned(p, &v);
    assert_int_equal(family->params(&capped, 0, &a.base, paged_memory, &k), GEN_OK);
    assert_true(fabsf(k.scale_log2 - 0.072134752f) < 1e-7f);
    assert_true(fabsf(k.cap_log2 - 28.853901f) < 1e-5f);
}

/* Keys of 192 columns have values of 128, and a CTA pair has twice the rows and tickets. */
static void values_narrower_than_keys(void **state)
{
    (void)state;
    gen_attn_paged_problem p = paged_problem(1, 8, 8, 5000);
    struct gen__facts v = stream(16, 1);
    struct gen_attn_paged_params k;
    struct gen__key key;
    p.head_dim = 192;
    assert_int_equal(family->check(&p.base, &key), GEN_OK);
    assert_string_equal(family->required[2].values[key.codes[2]], "192");
    for (uint32_t pair = 0; pair < 2; pair++) {
        v.cluster = 1 + pair;
        gen_plan plan = planned(p, &v);
        plan.dims[ATTN_PAGED_TENSOR_MAPS] = 0;
        gen_attn_paged_args a = good_args(&p);
        assert_int_equal(family->params(&plan, 0, &a.base, paged_memory, &k), GEN_OK);
        assert_true(k.k_head == 192 && k.k_row == 8 * 192 && k.k_page == 16 * 8 * 192);
        assert_true(k.v_head == 128 && k.v_row == 8 * 128 && k.v_page == 16 * 8 * 128);
        assert_true(k.q_head == 192 && k.o_head == 128 && k.o_token == 8 * 128);
        assert_int_equal(plan.dims[ATTN_PAGED_WHOLE], 0);
        assert_int_equal(plan.launch[0].grid[0], k.line.num_parts * (int)v.cluster);
        plan.dims[ATTN_PAGED_TENSOR_MAPS] = (int32_t)v.cluster;
        const uint64_t bytes = gen__attn_paged_workspace(plan.dims).size;
        const uint64_t parts = (uint64_t)k.line.num_parts;
        const uint64_t least = parts * (2 * 16 * (128 * 4 + 4) + 24 * (1 + pair));
        assert_true(bytes >= least && bytes < least + 512);
    }
}

/* ---- the reference ------------------------------------------------------ */

enum { B = 3, T = 3, HQ = 4, HK = 2, D = 64, P = 4, PAGES = 12, WIDTH = 6 };

struct data {
    uint16_t q[B * T * HQ * D], k[PAGES * P * HK * D], v[PAGES * P * HK * D], o[B * T * HQ * D];
    float lse[B * T * HQ], sink[HQ], scales[B * HK];
    int32_t lengths[B], pages[B * WIDTH];
};

static void fill(struct data *x)
{
    uint64_t seed = 3;
    for (int i = 0; i < B * T * HQ * D; i++)
        x->q[i] = gen__fp16_from_double(random_unit(&seed));
    for (int i = 0; i < PAGES * P * HK * D; i++) {
        x->k[i] = gen__fp16_from_double(random_unit(&seed));
        x->v[i] = gen__fp16_from_double(random_unit(&seed));
    }
    for (int i = 0; i < HQ; i++)
        x->sink[i] = (float)random_unit(&seed);
    for (int i = 0; i < B * HK; i++)
        x->scales[i] = (float)(1.5 + random_unit(&seed));
    for (int i = 0; i < B * WIDTH; i++)
        x->pages[i] = (int32_t)(random_bits(&seed) % (PAGES + 2)) - 1; /* some are none */
    x->lengths[0] = 21;
    x->lengths[1] = 2; /* fewer than tokens */
    x->lengths[2] = 0;
}

/* The row's scores and outputs from the definition, in two passes. */
static void expected_row(const struct data *x, const gen_attn_paged_problem *p, int b, int t, int h,
                         double *o, double *lse)
{
    const int g = h / (HQ / HK), own = x->lengths[b] - T + t;
    double s[WIDTH * P], most = -(double)INFINITY, sum = 0;
    int rows[WIDTH * P];
    for (int j = 0; j < x->lengths[b]; j++) {
        const int page = x->pages[b * WIDTH + j / P];
        rows[j] = page < 0 || page >= PAGES ? -1 : (page * P + j % P) * HK * D + g * D;
        s[j] = 0;
        for (int c = 0; c < D && rows[j] >= 0; c++)
            s[j] += gen__fp16_to_double(x->q[((b * T + t) * HQ + h) * D + c]) *
                    gen__fp16_to_double(x->k[rows[j] + c]);
        s[j] *= 0.25 * (double)x->scales[b * HK + g];
        s[j] = 2 * tanh(s[j] / 2);
        if (j > own || (p->left_window && j <= own - p->left_window))
            s[j] = -(double)INFINITY;
        most = fmax(most, s[j]);
    }
    for (int j = 0; j < x->lengths[b]; j++)
        sum += s[j] == -(double)INFINITY ? 0 : exp(s[j]);
    *lse = log(sum + exp((double)x->sink[h]));
    for (int c = 0; c < D; c++) {
        o[c] = 0;
        for (int j = 0; j < x->lengths[b]; j++)
            if (rows[j] >= 0 && s[j] > -(double)INFINITY)
                o[c] += exp(s[j] - *lse) * gen__fp16_to_double(x->v[rows[j] + c]) *
                        (double)x->scales[b * HK + g];
    }
}

static void reference_is_the_definition(void **state)
{
    (void)state;
    static struct data x;
    static double exact[B * T * HQ * D];
    gen_attn_paged_problem p = paged_problem(B, HQ, HK, 10);
    fill(&x);
    p.q_len = T;
    p.max_kv_len = WIDTH * P;
    p.page_size = P;
    p.head_dim = D;
    p.dtype = GEN_DTYPE_FP16;
    p.softcap = p.sink = 1;
    for (int window = 0; window < 8; window += 7) {
        p.left_window = window;
        gen_attn_paged_args a = {.base = {sizeof a, GEN_ATTN_PAGED},
                                 .q = x.q,
                                 .k = x.k,
                                 .v = x.v,
                                 .o = x.o,
                                 .lse = x.lse,
                                 .kv_len = x.lengths,
                                 .page_indices = x.pages,
                                 .k_descale = x.scales,
                                 .v_descale = x.scales,
                                 .sink = x.sink,
                                 .k_descale_batch_stride = HK,
                                 .k_descale_head_stride = 1,
                                 .v_descale_batch_stride = HK,
                                 .v_descale_head_stride = 1,
                                 .num_pages = PAGES,
                                 .lse_sink = 1,
                                 .scale = 0.25f,
                                 .softcap = 2};
        double *const to[ATTN_PAGED_NUM_TENSORS] = {[ATTN_PAGED_O] = exact};
        const gen_plan plan = planned(p, NULL);
        assert_int_equal(family->exact(&plan, &a.base, to), GEN_OK);
        for (int r = 0; r < B * T * HQ; r++) {
            double o[D], lse;
            expected_row(&x, &p, r / HQ / T, r / HQ % T, r % HQ, o, &lse);
            assert_true(fabs(lse - (double)x.lse[r]) < 1e-6);
            for (int c = 0; c < D; c++) {
                assert_true(fabs(exact[r * D + c] - o[c]) < 1e-12);
                assert_int_equal(x.o[r * D + c], gen__fp16_from_double(exact[r * D + c]));
            }
        }
    }
}

static void reference_of_narrower_values(void **state)
{
    (void)state;
    static uint16_t q[192], k[2 * 192], v[2 * 128], o[128];
    const int32_t length = 2;
    double exact[128], *const to[ATTN_PAGED_NUM_TENSORS] = {[ATTN_PAGED_O] = exact};
    gen_attn_paged_problem p = paged_problem(1, 1, 1, 2);
    p.page_size = 0;
    p.head_dim = 192;
    p.dtype = GEN_DTYPE_FP16;
    q[191] = k[192 + 191] = gen__fp16_from_double(1); /* scores 0 and 1 */
    for (int c = 0; c < 128; c++) {
        v[c] = gen__fp16_from_double(c);
        v[128 + c] = gen__fp16_from_double(-2 * c);
    }
    gen_attn_paged_args a = {.base = {sizeof a, GEN_ATTN_PAGED}, .q = q, .k = k, .v = v, .o = o};
    a.kv_len = &length;
    a.scale = 1;
    const gen_plan plan = planned(p, NULL);
    assert_int_equal(family->exact(&plan, &a.base, to), GEN_OK);
    for (int c = 0; c < 128; c++)
        assert_true(fabs(exact[c] - (c - 2 * c * exp(1)) / (1 + exp(1))) < 1e-12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(key_of_a_problem),
        cmocka_unit_test(check_errors),
        cmocka_unit_test(lines_that_are_too_long),
        cmocka_unit_test(whole_or_cut),
        cmocka_unit_test(wrong_arguments),
        cmocka_unit_test(parameters),
        cmocka_unit_test(values_narrower_than_keys),
        cmocka_unit_test(reference_is_the_definition),
        cmocka_unit_test(reference_of_narrower_values),
    };
    return cmocka_run_group_tests_name("attn_paged", tests, NULL, NULL);
}
