/*
 * mla_merge: what it allows and what it says where it does not, geometry and
 * parameters of a launch, and the reference against values computed by hand and
 * against the streaming form of the definition.
 */
#include "mla.h"

/* Never read: params() looks at addresses alone. */
static _Alignas(64) unsigned char mla_memory[256];

static const struct gen__family *const family = &gen__family_mla_merge;

static gen_mla_merge_problem merge_problem(int32_t records, int32_t heads, int32_t pieces)
{
    return (gen_mla_merge_problem){.base = {sizeof(gen_mla_merge_problem), GEN_MLA_MERGE, 0, 0},
                                   .num_records = records,
                                   .num_heads = heads,
                                   .q_len = 1,
                                   .num_pieces = pieces,
                                   .dtype = GEN_DTYPE_BF16};
}

static struct gen__facts merge_variant(int32_t rows, int32_t split, int32_t slice)
{
    return (struct gen__facts){.index = 9,
                               .threads = (uint32_t)(32 * rows * split),
                               .registers = 96,
                               .cluster = 1,
                               .fact = {rows, split, slice, 1}};
}

static gen_plan planned(gen_mla_merge_problem p, const struct gen__facts *variant)
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
    gen_mla_merge_problem p = merge_problem(5, 7, 33);
    struct gen__key key;
    p.q_len = 2;
    p.dtype = GEN_DTYPE_FP16;
    assert_int_equal(family->check(&p.base, &key), GEN_OK);
    assert_string_equal(family->required[0].values[key.codes[0]], "fp16");
    assert_true(key.counts[0] == 70 && key.counts[1] == 33 && !key.empty);
    p.base.flags = GEN_BATCH_INVARIANT;
    assert_int_equal(family->check(&p.base, &key), GEN_OK);
    assert_true(key.counts[0] == 64 * 14 && key.counts[1] == 16);
    p.num_records = 0;
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
#define AT(field) offsetof(gen_mla_merge_problem, field)
        {AT(num_records), -1, "mla_merge: num_records = -1; allowed: 0 to 16777216"},
        {AT(num_records), 16777217, "mla_merge: num_records = 16777217; allowed: 0 to 16777216"},
        {AT(num_heads), 0, "mla_merge: head count num_heads = 0; allowed: 1 to 128"},
        {AT(num_heads), 129, "mla_merge: head count num_heads = 129; allowed: 1 to 128"},
        {AT(q_len), 0, "mla_merge: q_len = 0; allowed: 1 to 1024"},
        {AT(q_len), 1025, "mla_merge: q_len = 1025; allowed: 1 to 1024"},
        {AT(num_pieces), 0, "mla_merge: num_pieces = 0; allowed: 1 to 65536"},
        {AT(num_pieces), 65537, "mla_merge: num_pieces = 65537; allowed: 1 to 65536"},
        {AT(dtype), 2, "mla_merge: dtype = 2; allowed: GEN_DTYPE_BF16 (0), GEN_DTYPE_FP16 (1)"},
#undef AT
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gen_mla_merge_problem p = merge_problem(4, 8, 3);
        struct gen__key key;
        memcpy((char *)&p + cases[i].offset, &cases[i].value, sizeof cases[i].value);
        assert_failed(family->check(&p.base, &key), INVALID_ARGUMENT, cases[i].message);
    }
}

static void geometry(void **state)
{
    (void)state;
    static const struct {
        int32_t rows, split, slice;
        uint32_t grid[3];
    } cases[] = {{4, 1, 512, {6, 7, 1}},
                 {1, 16, 128, {6, 26, 4}},
                 {2, 2, 512, {6, 13, 1}},
                 {1, 8, 512, {6, 26, 1}}};
    gen_mla_merge_problem p = merge_problem(6, 13, 5);
    p.q_len = 2;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct gen__facts v = merge_variant(cases[i].rows, cases[i].split, cases[i].slice);
        const gen_plan plan = planned(p, &v);
        assert_int_equal(plan.num_launches, 1);
        assert_int_equal(plan.launch[0].variant, 9);
        for (int d = 0; d < 3; d++)
            assert_int_equal(plan.launch[0].grid[d], cases[i].grid[d]);
        assert_int_equal(plan.launch[0].threads, v.threads);
        assert_int_equal(plan.launch[0].dependent, 1);
        assert_null(family->fits(&p.base, &h200, &v));
        assert_true(family->predict(&p.base, &h200, &v) > 0);
    }
    struct gen__facts v = merge_variant(1, 16, 128);
    p.base.flags = GEN_SERIAL_LAUNCH;
    assert_int_equal(planned(p, &v).launch[0].dependent, 0);
    p.q_len = 1024;
    p.num_heads = 63;
    assert_null(family->fits(&p.base, &h200, &v));
    p.num_heads = 64;
    assert_string_equal(
        family->fits(&p.base, &h200, &v),
        "q_len * num_heads / rows of a block is more than a grid's second dimension "
        "holds (65535)");
    p.num_heads = 128;
    v = merge_variant(4, 1, 512);
    assert_null(family->fits(&p.base, &h200, &v));
}

/* Many pieces are for many warps, few for few. */
static void estimates_tell_which_variant(void **state)
{
    (void)state;
    const struct gen__facts narrow = merge_variant(1, 16, 128), wide = merge_variant(4, 1, 512);
    gen_mla_merge_problem p = merge_problem(1, 16, 132);
    assert_true(family->predict(&p.base, &h200, &narrow) < family->predict(&p.base, &h200, &wide));
    p = merge_problem(132, 64, 2);
    assert_true(family->predict(&p.base, &h200, &narrow) > family->predict(&p.base, &h200, &wide));
}

/* ---- arguments ---------------------------------------------------------- */

static gen_mla_merge_args good_args(const gen_mla_merge_problem *p)
{
    gen_mla_merge_args a;
    family->default_args(&p->base, &a.base);
    a.partial = mla_memory;
    a.partial_rows = (const struct gen_mla_partial_row *)(const void *)(mla_memory + 48);
    a.records = (const struct gen_mla_record *)(const void *)(mla_memory + 16);
    a.o = mla_memory + 32;
    a.lse = (float *)(void *)(mla_memory + 8);
    return a;
}

#define AT(field) offsetof(gen_mla_merge_args, field), sizeof((gen_mla_merge_args *)0)->field

static const struct wrong wrongs[] = {
    {AT(partial), 0, false, "partial is NULL"},
    {AT(partial_rows), 0, false, "partial_rows is NULL"},
    {AT(records), 0, false, "records is NULL"},
    {AT(o), 0, false, "o is NULL"},
    {AT(partial), 8, true, "partial = %p; allowed: a multiple of 16 bytes"},
    {AT(partial_rows), 8, true, "partial_rows = %p; allowed: a multiple of 16 bytes"},
    {AT(records), 4, true, "records = %p; allowed: a multiple of 16 bytes"},
    {AT(o), 2, true, "o = %p; allowed: a multiple of 16 bytes"},
    {AT(lse), 1, true, "lse = %p; allowed: NULL, or a multiple of 4 bytes"},
    {AT(q_indptr), 3, true, "q_indptr = %p; allowed: NULL, or a multiple of 4 bytes"},
    {AT(num_slots), 0, false, "num_slots = 0; allowed: >= 1"},
    {AT(chunked), 2, false, "chunked = 2; allowed: 0, 1"},
    {AT(lse_base_2), -1, false, "lse_base_2 = -1; allowed: 0, 1"},
    {AT(out_scale), 0x7f800000, false, "out_scale = inf; allowed: a finite number"},
    {AT(o_token_stride), 516, false,
     "o_token_stride = 516 elements; allowed: 0 (packed), or a multiple of 8 from 512 to "
     "268435456"},
    {AT(o_head_stride), 504, false,
     "o_head_stride = 504 elements; allowed: 0 (packed), or a multiple of 8 from 512 to "
     "44343134792571037"},
    {AT(lse_token_stride), 268435457, false,
     "lse_token_stride = 268435457 elements; allowed: 0 (packed), or -268435456 to 268435456"},
    {AT(lse_head_stride), -44343134792571038, false,
     "lse_head_stride = -44343134792571038 elements; allowed: 0 (packed), or -44343134792571037 to "
     "44343134792571037"},
};

static void wrong_arguments(void **state)
{
    (void)state;
    const gen_mla_merge_problem p = merge_problem(3, 13, 4);
    const struct gen__facts v = merge_variant(4, 1, 512);
    const gen_plan plan = planned(p, &v);
    const gen_mla_merge_args a = good_args(&p);
    assert_int_equal(family->params(&plan, 0, &a.base, NULL, NULL), GEN_OK);
    check_wrong(family, &plan, &a.base, mla_memory, wrongs, sizeof wrongs / sizeof *wrongs);
}

static void parameters(void **state)
{
    (void)state;
    gen_mla_merge_problem p = merge_problem(3, 13, 4);
    const struct gen__facts v = merge_variant(4, 1, 512);
    p.q_len = 5;
    gen_plan plan = planned(p, &v);
    gen_mla_merge_args a = good_args(&p);
    struct gen_mla_merge_params k;
    a.o_head_stride = 520;
    a.lse_token_stride = 1;
    a.lse_head_stride = 15;
    a.chunked = 1;
    a.lse_base_2 = 0;
    a.out_scale = 0.25f;
    a.num_slots = 77;
    assert_int_equal(family->params(&plan, 0, &a.base, NULL, &k), GEN_OK);
    assert_ptr_equal(k.partial, a.partial);
    assert_ptr_equal(k.partial_rows, a.partial_rows);
    assert_ptr_equal(k.records, a.records);
    assert_null(k.q_indptr);
    assert_ptr_equal(k.o, a.o);
    assert_ptr_equal(k.lse, a.lse);
    assert_int_equal(k.o_head_stride, 520);
    assert_int_equal(k.o_token_stride, 13 * 520);
    assert_int_equal(k.lse_head_stride, 15);
    assert_int_equal(k.lse_token_stride, 1);
    assert_int_equal(k.num_heads, 13);
    assert_int_equal(k.q_len, 5);
    assert_int_equal(k.chunked, 1);
    assert_int_equal(k.lse_base_2, 0);
    assert_true(k.out_scale == 0.25f);
    assert_int_equal(k.num_slots, 77);
    for (unsigned row = 0; row < 65; row++)
        assert_int_equal((unsigned)((uint64_t)row * k.heads_mul >> 32) >> k.heads_shift, row / 13);
    plan.dims[MLA_MERGE_NUM_HEADS] = 0;
    assert_failed(family->params(&plan, 0, &a.base, NULL, &k), MISMATCH,
                  "mla_merge: the plan's num_heads, q_len are 0, 5; not what gen_select() writes");
}

/* ---- the reference ------------------------------------------------------ */

/* Two pieces, of weight 3 and 1, the first in units of 1, the second in units of 4, but for the
 * last 64 columns, which are in units of 8 and 1/2; a third that is empty and holds NaN. */
static void by_hand(void **state)
{
    (void)state;
    _Alignas(16) static uint16_t partial[6 * 512];
    _Alignas(16) static struct gen_mla_partial_row rows[6];
    _Alignas(16) static uint16_t o[512];
    float lse = 0;
    struct gen_mla_record record = {0, 1, 3, 0}; /* slots 1, 2, 4 */
    gen_mla_merge_problem p = merge_problem(1, 1, 3);
    gen_mla_merge_args a = {.base = {sizeof a, GEN_MLA_MERGE},
                            .partial = partial,
                            .partial_rows = rows,
                            .records = &record,
                            .o = o,
                            .lse = &lse,
                            .num_slots = 6,
                            .lse_base_2 = 1,
                            .out_scale = 2};
    const gen_plan plan = planned(p, NULL);
    for (int i = 0; i < 6 * 512; i++)
        partial[i] = gen__fp16_from_double(NAN);
    for (int i = 0; i < 512; i++) {
        partial[512 + i] = gen__fp16_from_double(i < 448 ? 1 : 0.125);
        partial[2 * 512 + i] = gen__fp16_from_double(i < 448 ? 1.25 : 10);
    }
    for (int i = 0; i < 6; i++)
        rows[i].exponents[0] = rows[i].exponents[1] = -1; /* of a NaN */
    rows[1].exponents[0] = 0x7f7f7f7f;
    rows[1].exponents[1] = (int)0x827f7f7f;
    rows[2].exponents[0] = (int)0x81818181;
    rows[2].exponents[1] = (int)0x7e818181;
    rows[1].lse = log2f(3) + 10;
    rows[2].lse = 10;
    rows[4].lse = -INFINITY;
    rows[0].lse = rows[3].lse = rows[5].lse = NAN;
    assert_int_equal(family->reference(&plan, &a.base), GEN_OK);
    assert_true(gen__bf16_to_double(o[0]) == 4 && gen__bf16_to_double(o[511]) == 4);
    assert_true(lse == 12); /* log2 of 4 times 2^10 */

    record.num_pieces = 2; /* neighbours */
    a.chunked = 1;
    a.lse_base_2 = 0;
    assert_int_equal(family->reference(&plan, &a.base), GEN_OK);
    assert_true(gen__bf16_to_double(o[7]) == 4);
    assert_true(fabs((double)lse - 12 * log(2)) < 1e-6);

    rows[1].lse = rows[2].lse = -INFINITY; /* nothing at all */
    assert_int_equal(family->reference(&plan, &a.base), GEN_OK);
    assert_true(o[3] == 0 && lse == -INFINITY);

    memset(o, 0xff, sizeof o); /* nothing to merge */
    for (int kind = 0; kind < 3; kind++) {
        record = (struct gen_mla_record){kind == 0 ? -1 : 0, 1, kind == 0 ? 3 : kind - 1, 0};
        assert_int_equal(family->reference(&plan, &a.base), GEN_OK);
        assert_int_equal(o[0], 0xffff);
    }
}

/* One piece after the other into a running state. */
static void streamed_row(const struct mla_tensors *m, const struct gen_mla_record *r, int64_t row,
                         double *o, double *lse)
{
    const gen_mla_merge_problem *p = (const gen_mla_merge_problem *)m->problem;
    const gen_mla_merge_args *a = &m->args.merge;
    const int64_t rows = (int64_t)p->q_len * p->num_heads;
    double max = -INFINITY, d = 0;
    memset(o, 0, 512 * sizeof *o);
    for (int64_t i = 0; i < r->num_pieces; i++) {
        const int64_t slot = a->chunked ? r->first_slot + i
                             : i == 0   ? r->first_slot
                                        : r->first_slot + 2 * i - 1;
        if (slot >= a->num_slots)
            continue;
        const struct gen_mla_partial_row *at = &a->partial_rows[slot * rows + row];
        const double l = (double)at->lse;
        if (l == -INFINITY)
            continue;
        const double now = l > max ? l : max, f1 = exp2(max - now), f2 = exp2(l - now);
        d = d * f1 + f2;
        for (int c = 0; c < 512; c++)
            o[c] = o[c] * f1 +
                   f2 * mla_partial(
                            at, ((const uint16_t *)a->partial)[(slot * rows + row) * 512 + c], c);
        max = now;
    }
    for (int c = 0; c < 512; c++)
        o[c] = d > 0 ? o[c] / d * (double)a->out_scale : 0;
    *lse = d > 0 ? max + log2(d) : -INFINITY;
}

/* Rows written are those of records of several pieces; returns how many. */
static uint64_t check_record(const struct mla_tensors *m, const struct gen_mla_record *r,
                             const double *exact)
{
    const gen_mla_merge_problem *p = (const gen_mla_merge_problem *)m->problem;
    const gen_mla_merge_args *a = &m->args.merge;
    const int64_t head = a->o_head_stride ? a->o_head_stride : 512;
    const int64_t lse_head = a->lse_head_stride ? a->lse_head_stride : 1;
    if (r->request < 0 || r->num_pieces < 2)
        return 0;
    const int64_t first = a->q_indptr ? a->q_indptr[r->request] : (int64_t)r->request * p->q_len;
    const int64_t tokens = a->q_indptr ? a->q_indptr[r->request + 1] - first : p->q_len;
    for (int64_t row = 0; row < tokens * p->num_heads; row++) {
        double o[512], lse;
        streamed_row(m, r, row, o, &lse);
        const int64_t at = (first * p->num_heads + row) * head;
        for (int c = 0; c < 512; c++)
            if (!(fabs(exact[at + c] - o[c]) <= 1e-12))
                fail_msg("o[%lld]: %.15g is not %.15g", (long long)(at + c), exact[at + c], o[c]);
        if (!a->lse)
            continue;
        const double got = (double)a->lse[(first * p->num_heads + row) * lse_head];
        const double want = a->lse_base_2 ? lse : lse * log(2);
        assert_true(got == want || fabs(got - want) < 1e-5);
    }
    return (uint64_t)(tokens * p->num_heads) * 512;
}

static void random_problems_against_the_stream(void **state)
{
    (void)state;
    uint64_t seed = 21;
    for (int form = -1; form < (int)family->num_forms; form++) {
        for (int i = 0; i < 12; i++) {
            gen_mla_merge_problem p = merge_problem((int32_t)(random_bits(&seed) % 14),
                                                    (int32_t)(random_bits(&seed) % 5) + 1,
                                                    (int32_t)(random_bits(&seed) % 40) + 1);
            struct mla_tensors m;
            double *exact[MLA_MERGE_NUM_TENSORS] = {NULL};
            uint64_t written = 0, found = 0;
            p.q_len = (int32_t)(random_bits(&seed) % 3) + 1;
            p.dtype = random_bits(&seed) & 1;
            if (!mla_tensors_make(
                    &m, family, &p.base, form,
                    (struct gen__fill_options){
                        .seed = seed, .padding = i & 1, .non_finite = i & 2, .ordered = i & 4}))
                continue;
            exact[MLA_MERGE_O] = calloc((size_t)m.tensor[MLA_MERGE_O].count + 1, sizeof(double));
            assert_non_null(exact[MLA_MERGE_O]);
            const gen_plan plan = mla_cpu_plan(&m);
            assert_int_equal(family->exact(&plan, &m.args.base, exact), GEN_OK);
            for (int r = 0; r < p.num_records; r++)
                written += check_record(&m, &m.args.merge.records[r], exact[MLA_MERGE_O]);
            for (uint64_t e = 0; e < m.tensor[MLA_MERGE_O].count; e++)
                found +=
                    isnan(element_get((enum gen_dtype)p.dtype, m.data[MLA_MERGE_O], (int64_t)e))
                        ? 0
                        : 1;
            assert_int_equal(found, written);
            free(exact[MLA_MERGE_O]);
            mla_tensors_free(&m);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(key_of_a_problem), cmocka_unit_test(check_errors),
        cmocka_unit_test(geometry),         cmocka_unit_test(estimates_tell_which_variant),
        cmocka_unit_test(wrong_arguments),  cmocka_unit_test(parameters),
        cmocka_unit_test(by_hand),          cmocka_unit_test(random_problems_against_the_stream),
    };
    return cmocka_run_group_tests_name("mla_merge", tests, NULL, NULL);
}
