/*
 * The arguments of mla_decode: every one that is wrong with its message, and the
 * parameters of both launches. test_mla_decode_maps.c has the tensor maps.
 */
#include "mla.h"

#include "families/common/fastdiv.h"

static _Alignas(64) unsigned char mla_memory[256]; /* never read: addresses alone count */
static const struct gen__family *const family = &gen__family_mla_decode;

/* Three requests of two tokens and 7 heads, cut; pages of 16 rows. */
static gen_mla_decode_problem usual_problem(void)
{
    gen_mla_decode_problem p = mla_problem(3, 7, 100000);
    p.q_len = 2;
    p.page_size = 16;
    p.causal = 1;
    return p;
}

static gen_mla_decode_args good_args(const gen_mla_decode_problem *p)
{
    gen_mla_decode_args a;
    memset(&a, 0xa5, sizeof a);
    family->default_args(&p->base, &a.base);
    a.q_nope = mla_memory;
    a.q_pe = mla_memory + 16;
    a.ckv = mla_memory + 32;
    a.kpe = mla_memory + 48;
    a.o = mla_memory + 64;
    a.lse = (float *)(void *)(mla_memory + 4);
    a.kv_len = (const int32_t *)(const void *)(mla_memory + 8);
    a.page_indices = (const int32_t *)(const void *)(mla_memory + 12);
    return a;
}

/* ---- wrong arguments ---------------------------------------------------- */

#define AT(field) offsetof(gen_mla_decode_args, field), sizeof((gen_mla_decode_args *)0)->field
#define NO_POINTER(name)                     \
    {                                        \
        AT(name), 0, false, #name " is NULL" \
    }
#define MISALIGNED(name, by, allowed)                        \
    {                                                        \
        AT(name), by, true, #name " = %p; allowed: " allowed \
    }
#define STRIDE(name, bad, unit, width, most)                                           \
    {                                                                                  \
        AT(name), bad, false,                                                          \
            #name " = " #bad " elements; allowed: 0 (packed), or a multiple of " #unit \
                  " from " #width " to " #most                                         \
    }
#define FREE_STRIDE(name, bad, most)                                                   \
    {                                                                                  \
        AT(name), bad, false,                                                          \
            #name " = " #bad " elements; allowed: 0 (packed), or -" #most " to " #most \
    }
#define UNIT16 "a multiple of 16 bytes"
#define UNIT4 "a multiple of 4 bytes"

static const struct wrong wrongs[] = {
    NO_POINTER(q_nope),
    NO_POINTER(q_pe),
    NO_POINTER(ckv),
    NO_POINTER(kpe),
    NO_POINTER(o),
    NO_POINTER(kv_len),
    NO_POINTER(page_indices),
    MISALIGNED(q_nope, 8, UNIT16),
    MISALIGNED(q_pe, 4, UNIT16),
    MISALIGNED(ckv, 2, UNIT16),
    MISALIGNED(kpe, 1, UNIT16),
    MISALIGNED(o, 24, UNIT16),
    MISALIGNED(lse, 2, "NULL, or " UNIT4),
    MISALIGNED(kv_len, 1, UNIT4),
    MISALIGNED(page_indices, 3, UNIT4),
    MISALIGNED(page_indptr, 2, "NULL, or " UNIT4),
    MISALIGNED(q_indptr, 1, "NULL, or " UNIT4),
    STRIDE(q_nope_token_stride, 504, 8, 512, 96076792050570581),
    STRIDE(q_nope_token_stride, -512, 8, 512, 96076792050570581),
    STRIDE(q_nope_token_stride, 516, 8, 512, 96076792050570581),
    STRIDE(q_nope_token_stride, 96076792050570584, 8, 512, 96076792050570581),
    STRIDE(q_nope_head_stride, 256, 8, 512, 82351536043346212),
    STRIDE(q_pe_token_stride, 63, 8, 64, 96076792050570581),
    STRIDE(q_pe_head_stride, 65, 8, 64, 82351536043346212),
    STRIDE(ckv_page_stride, 500, 8, 512, 30739655111364),
    STRIDE(ckv_page_stride, 30739655111368, 8, 512, 30739655111364),
    STRIDE(ckv_row_stride, 577, 8, 512, 36028797018963968),
    STRIDE(kpe_page_stride, 8, 8, 64, 30739655111364),
    STRIDE(kpe_row_stride, 68, 8, 64, 36028797018963968),
    STRIDE(o_token_stride, 511, 8, 512, 96076792050570581),
    STRIDE(o_head_stride, 8, 8, 512, 82351536043346212),
    STRIDE(page_table_stride, 6249, 1, 6250, 192153584101141162),
    FREE_STRIDE(lse_token_stride, 96076792050570582, 96076792050570581),
    FREE_STRIDE(lse_head_stride, -82351536043346213, 82351536043346212),
    {AT(num_pages), 0, false, "num_pages = 0; allowed: >= 1"},
    {AT(num_pages), -3, false, "num_pages = -3; allowed: >= 1"},
    {AT(lse_base_2), 2, false, "lse_base_2 = 2; allowed: 0, 1"},
    {AT(lse_base_2), -1, false, "lse_base_2 = -1; allowed: 0, 1"},
    {AT(scale), 0x7f800000, false, "scale = inf; allowed: a finite number"},
    {AT(scale), 0x7fc00000, false, "scale = nan; allowed: a finite number"},
    {AT(scale), 0x7f7fffff, false,
     "scale, ckv_scale, kpe_scale = 3.40282e+38, 0.45, 0.35; allowed: scale * ckv_scale and "
     "kpe_scale / ckv_scale that fp32 holds"},
};

/* Where the cache is e4m3. */
static const struct wrong e4m3_wrongs[] = {
    STRIDE(ckv_row_stride, 520, 16, 512, 36028797018963968),
    STRIDE(kpe_row_stride, 72, 16, 64, 36028797018963968),
    STRIDE(ckv_page_stride, 9224, 16, 512, 30739655111364),
    STRIDE(kpe_page_stride, 9224, 16, 64, 30739655111364),
    {AT(ckv_scale), 0, false, "ckv_scale = 0; allowed: a finite number > 0"},
    {AT(ckv_scale), 0x7f800000, false, "ckv_scale = inf; allowed: a finite number > 0"},
    {AT(kpe_scale), 0x7fc00000, false, "kpe_scale = nan; allowed: a finite number > 0"},
    {AT(kpe_scale), (int32_t)0xbf800000, false, "kpe_scale = -1; allowed: a finite number > 0"},
    {AT(ckv_scale), 0x00000001, false,
     "scale, ckv_scale, kpe_scale = 0.0721688, 1.4013e-45, 0.35; allowed: scale * ckv_scale and "
     "kpe_scale / ckv_scale that fp32 holds"},
};

static const struct wrong byte_queries_wrongs[] = {
    STRIDE(q_nope_head_stride, 520, 16, 512, 82351536043346212),
    STRIDE(q_pe_head_stride, 72, 16, 64, 82351536043346212),
    {AT(q_scale), 0, false, "q_scale = 0; allowed: a finite number > 0"},
    {AT(q_scale), 0x7fc00000, false, "q_scale = nan; allowed: a finite number > 0"},
};

static void wrong_arguments(void **state)
{
    (void)state;
    const struct gen__facts variant = mla_mma();
    gen_mla_decode_problem p = usual_problem();
    gen_plan plan = mla_planned(p, &variant);
    gen_mla_decode_args a = good_args(&p);
    assert_int_equal(plan.num_launches, 2);
    assert_int_equal(family->params(&plan, 0, &a.base, mla_memory, NULL), GEN_OK);
    check_wrong(family, &plan, &a.base, mla_memory, wrongs, sizeof wrongs / sizeof *wrongs);
    p.cache = GEN_MLA_CACHE_E4M3;
    plan = mla_planned(p, &variant);
    assert_int_equal(family->params(&plan, 0, &a.base, mla_memory, NULL), GEN_OK);
    check_wrong(family, &plan, &a.base, mla_memory, e4m3_wrongs,
                sizeof e4m3_wrongs / sizeof *e4m3_wrongs);
    p.cache = GEN_MLA_CACHE_E4M3_Q;
    plan = mla_planned(p, &variant);
    assert_int_equal(family->params(&plan, 0, &a.base, mla_memory, NULL), GEN_OK);
    check_wrong(family, &plan, &a.base, mla_memory, byte_queries_wrongs,
                sizeof byte_queries_wrongs / sizeof *byte_queries_wrongs);
}

/* What is not used is not looked at. */
static void unused_arguments(void **state)
{
    (void)state;
    gen_mla_decode_problem p = usual_problem();
    p.rope_dim = 0;
    gen_plan plan = mla_planned(p, NULL);
    gen_mla_decode_args a = good_args(&p);
    a.q_pe = a.kpe = mla_memory + 1;
    a.q_pe_head_stride = a.q_pe_token_stride = a.kpe_page_stride = a.kpe_row_stride = 1;
    a.ckv_scale = a.kpe_scale = NAN;
    a.page_indptr = a.page_indices;
    a.page_table_stride = -5;
    a.lse = NULL;
    assert_int_equal(family->params(&plan, 0, &a.base, NULL, NULL), GEN_OK);
    p.cache = GEN_MLA_CACHE_E4M3;
    a.ckv_scale = 1;
    plan = mla_planned(p, NULL);
    assert_int_equal(family->params(&plan, 0, &a.base, NULL, NULL), GEN_OK);
}

/* Token numbers of the caller's may be any of 31 bits. */
static void numbered_tokens(void **state)
{
    (void)state;
    const gen_mla_decode_problem p = usual_problem();
    const gen_plan plan = mla_planned(p, NULL);
    gen_mla_decode_args a = good_args(&p);
    a.q_indptr = a.kv_len;
    a.o_token_stride = 268435456;
    assert_int_equal(family->params(&plan, 0, &a.base, NULL, NULL), GEN_OK);
    a.o_token_stride = 268435464;
    assert_failed(family->params(&plan, 0, &a.base, NULL, NULL), INVALID_ARGUMENT,
                  "mla_decode: o_token_stride = 268435464 elements; allowed: 0 (packed), or a "
                  "multiple of 8 from 512 to 268435456");
}

static void plans_that_are_none(void **state)
{
    (void)state;
    const gen_mla_decode_problem p = usual_problem();
    const gen_mla_decode_args a = good_args(&p);
    gen_plan plan = mla_planned(p, NULL);
    plan.dims[MLA_DECODE_PAGE_SIZE] = 0;
    assert_failed(family->params(&plan, 0, &a.base, NULL, NULL), MISMATCH,
                  "mla_decode: the plan's batch, num_heads, q_len, page_size, max_kv_len are 3, 7, "
                  "2, 0, 100000; not what gen_select() writes");
    const struct gen__facts variant = mla_mma();
    struct gen_mla_decode_params k;
    plan = mla_planned(p, &variant);
    plan.dims[MLA_DECODE_NUM_PARTS] = 0;
    assert_failed(family->params(&plan, 0, &a.base, mla_memory, &k), MISMATCH,
                  "mla_decode: the plan's num_parts is 0; not what gen_select() writes");
}

/* ---- parameters --------------------------------------------------------- */

static unsigned quotient(unsigned x, unsigned mul, unsigned shift)
{
    return mul ? (unsigned)((uint64_t)x * mul >> 32) >> shift : x >> shift;
}

static void parameters_of_the_main_launch(void **state)
{
    (void)state;
    const struct gen__facts variant = mla_mma();
    gen_mla_decode_problem p = usual_problem();
    const gen_plan plan = mla_planned(p, &variant);
    gen_mla_decode_args a = good_args(&p);
    struct gen_mla_decode_params k;
    a.q_nope_head_stride = 520; /* the token's follows: 7 * 520 */
    a.o_token_stride = 4096;
    a.lse_head_stride = -2;
    memset(&k, 0xa5, sizeof k);
    assert_int_equal(family->params(&plan, 0, &a.base, mla_memory, &k), GEN_OK);
    assert_ptr_equal(k.q_nope, a.q_nope);
    assert_ptr_equal(k.q_pe, a.q_pe);
    assert_ptr_equal(k.ckv, a.ckv);
    assert_ptr_equal(k.kpe, a.kpe);
    assert_ptr_equal(k.o, a.o);
    assert_ptr_equal(k.lse, a.lse);
    assert_ptr_equal(k.kv_len, a.kv_len);
    assert_ptr_equal(k.page_indices, a.page_indices);
    assert_null(k.page_indptr);
    assert_null(k.q_indptr);
    const struct gen__mla_workspace w = gen__mla_decode_workspace(plan.dims);
    assert_int_equal((uintptr_t)k.records, (uintptr_t)mla_memory + w.records);
    assert_int_equal((uintptr_t)k.partial_rows, (uintptr_t)mla_memory + w.partial_rows);
    assert_int_equal((uintptr_t)k.partial, (uintptr_t)mla_memory + w.partial);
    assert_int_equal(k.q_nope_head_stride, 520);
    assert_int_equal(k.q_nope_token_stride, 7 * 520);
    assert_int_equal(k.q_pe_head_stride, 64);
    assert_int_equal(k.q_pe_token_stride, 7 * 64);
    assert_int_equal(k.ckv_row_stride, 576);
    assert_int_equal(k.ckv_page_stride, 16 * 576);
    assert_int_equal(k.kpe_row_stride, 576);
    assert_int_equal(k.kpe_page_stride, 16 * 576);
    assert_int_equal(k.o_head_stride, 512);
    assert_int_equal(k.o_token_stride, 4096);
    assert_int_equal(k.lse_head_stride, -2);
    assert_int_equal(k.lse_token_stride, -14);
    assert_int_equal(k.page_table_stride, 6251);
    assert_int_equal(k.schedule.batch, 3);
    assert_int_equal(k.schedule.num_parts, plan.launch[0].grid[1]);
    assert_int_equal(k.schedule.visit, plan.dims[MLA_DECODE_VISIT]);
    assert_int_equal(k.schedule.snap, plan.dims[MLA_DECODE_SNAP]);
    assert_int_equal(k.schedule.chunk, 0);
    assert_int_equal(k.schedule.max_chunks, 0);
    assert_int_equal(k.schedule.max_kv_len, 100000);
    assert_int_equal(k.schedule.by_request, 1);
    assert_int_equal(k.num_heads, 7);
    assert_int_equal(k.q_len, 2);
    assert_int_equal(k.causal, 1);
    assert_int_equal(k.lse_base_2, 1);
    assert_int_equal(k.page_size, 16);
    assert_int_equal(k.num_pages, a.num_pages);
    assert_int_equal(k.map_rows, 0);
    assert_int_equal(k.ckv_map[0] | k.kpe_map[15], 0);
    assert_true(fabs((double)k.scale_log2 - 1 / sqrt(192) / log(2)) < 1e-8);
    assert_true(k.kpe_factor == 1 && k.out_scale == 1);
}

/* What is packed follows the strides within it. */
static void packed_strides_of_the_main_launch(void **state)
{
    (void)state;
    const struct gen__facts variant = mla_mma();
    gen_mla_decode_problem p = usual_problem();
    const gen_plan plan = mla_planned(p, &variant);
    gen_mla_decode_args a = good_args(&p);
    struct gen_mla_decode_params k;
    a.o_head_stride = 520;
    a.ckv_row_stride = 640;
    a.kpe_row_stride = 72;
    a.q_pe_head_stride = 80;
    a.o_token_stride = a.ckv_page_stride = a.kpe_page_stride = a.page_table_stride = 0;
    assert_int_equal(family->params(&plan, 0, &a.base, mla_memory, &k), GEN_OK);
    assert_int_equal(k.o_token_stride, 7 * 520);
    assert_int_equal(k.ckv_page_stride, 16 * 640);
    assert_int_equal(k.kpe_page_stride, 16 * 72);
    assert_int_equal(k.q_pe_token_stride, 7 * 80);
    assert_int_equal(k.page_table_stride, 6250);
}

static void parameters_of_an_e4m3_cache(void **state)
{
    (void)state;
    const struct gen__facts variant = mla_mma();
    gen_mla_decode_problem p = usual_problem();
    p.cache = GEN_MLA_CACHE_E4M3;
    gen_mla_decode_args a = good_args(&p);
    struct gen_mla_decode_params k;
    struct gen_mla_merge_params m;
    a.ckv_scale = 0.5f;
    a.kpe_scale = 0.75f;
    a.scale = 2;
    const gen_plan plan = mla_planned(p, &variant);
    assert_int_equal(family->params(&plan, 0, &a.base, mla_memory, &k), GEN_OK);
    assert_true(k.scale_log2 == (float)(1 / log(2)));
    assert_true(k.kpe_factor == 1.5f);
    assert_true(k.out_scale == 0.5f);
    /* Partial results are in units of ckv_scale. */
    assert_int_equal(family->params(&plan, 1, &a.base, mla_memory, &m), GEN_OK);
    assert_true(m.out_scale == 0.5f);
}

/* Every page size and head count, and the parts, divided by as the device does. */
static void quotients(void **state)
{
    (void)state;
    const struct gen__facts variant = mla_mma();
    uint64_t seed = 5;
    for (int32_t page = 1; page <= 65536; page = page < 200 ? page + 1 : 2 * page - page % 3) {
        gen_mla_decode_problem p = usual_problem();
        struct gen_mla_decode_params k;
        p.page_size = page;
        p.num_heads = (page - 1) % 128 + 1;
        const gen_plan plan = mla_planned(p, &variant);
        gen_mla_decode_args a = good_args(&p);
        assert_int_equal(family->params(&plan, 0, &a.base, mla_memory, &k), GEN_OK);
        assert_true((k.page_mul == 0) == ((page & (page - 1)) == 0));
        for (int i = 0; i < 200; i++) {
            const unsigned row = (unsigned)(random_bits(&seed) >> (33 + i % 24));
            const unsigned heads = (unsigned)p.num_heads;
            assert_int_equal(quotient(row, k.page_mul, k.page_shift), row / (unsigned)page);
            assert_int_equal(k.heads_mul ? quotient(row, k.heads_mul, k.heads_shift) : row,
                             row / heads);
            assert_int_equal(quotient(row, k.schedule.parts_mul, k.schedule.parts_shift),
                             row / (unsigned)k.schedule.num_parts);
        }
    }
}

static void parameters_of_the_merge(void **state)
{
    (void)state;
    const struct gen__facts variant = mla_mma();
    gen_mla_decode_problem p = usual_problem();
    for (int chunked = 0; chunked < 2; chunked++) {
        p.base.flags = chunked ? GEN_BATCH_INVARIANT : 0;
        const gen_plan plan = mla_planned(p, &variant);
        const struct gen__mla_workspace w = gen__mla_decode_workspace(plan.dims);
        gen_mla_decode_args a = good_args(&p);
        struct gen_mla_merge_params k;
        a.q_indptr = a.kv_len;
        a.lse_base_2 = 0;
        memset(&k, 0xa5, sizeof k);
        assert_int_equal(family->params(&plan, 1, &a.base, mla_memory, &k), GEN_OK);
        assert_int_equal((uintptr_t)k.records, (uintptr_t)mla_memory + w.records);
        assert_int_equal((uintptr_t)k.partial_rows, (uintptr_t)mla_memory + w.partial_rows);
        assert_int_equal((uintptr_t)k.partial, (uintptr_t)mla_memory + w.partial);
        assert_ptr_equal(k.q_indptr, a.q_indptr);
        assert_ptr_equal(k.o, a.o);
        assert_ptr_equal(k.lse, a.lse);
        assert_int_equal(k.o_head_stride, 512);
        assert_int_equal(k.o_token_stride, 7 * 512);
        assert_int_equal(k.lse_head_stride, 1);
        assert_int_equal(k.lse_token_stride, 7);
        assert_int_equal(k.num_heads, 7);
        assert_int_equal(k.q_len, 2);
        assert_int_equal(k.chunked, chunked);
        assert_int_equal(k.lse_base_2, 0);
        assert_true(k.out_scale == 1);
        assert_int_equal(k.num_slots, plan.dims[MLA_DECODE_NUM_SLOTS]);
        assert_int_equal(quotient(20, k.heads_mul, k.heads_shift), 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_arguments),
        cmocka_unit_test(unused_arguments),
        cmocka_unit_test(numbered_tokens),
        cmocka_unit_test(plans_that_are_none),
        cmocka_unit_test(parameters_of_the_main_launch),
        cmocka_unit_test(packed_strides_of_the_main_launch),
        cmocka_unit_test(parameters_of_an_e4m3_cache),
        cmocka_unit_test(quotients),
        cmocka_unit_test(parameters_of_the_merge),
    };
    return cmocka_run_group_tests_name("mla_decode arguments", tests, NULL, NULL);
}
