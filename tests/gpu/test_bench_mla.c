/* The bench programs on the MLA families: shapes, tensors that the family fills
 * and views, and what the verifier takes for correct. No GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "verify/ahead.h"
#include "common/buffers.h"
#include "families/mla_decode/mla_decode.h"
#include "make_product.h"
#include "measure/peer_file.h"
#include "common/problems.h"
#include "reference/half.h"
#include "common/util.h"
#include "verify/verify.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct gen__family *decode(void)
{
    return gen__family_by_name("mla_decode");
}

/* ---- shapes ------------------------------------------------------------- */

static bool has_case(const struct shape_list *list, const char *name)
{
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->item[i].name, name) == 0)
            return true;
    return false;
}

static void the_shapes_hold_every_recorded_case(void **state)
{
    struct shape_list list = {0};
    struct peer_list peers = {0};
    (void)state;
    shapes_load(&list, decode(), SHAPES_TIMED, NULL);
    assert_int_equal(peers_read(&peers, SOURCE_DIR "/bench/peers/flashmla_recorded.tsv"), 0);
    assert_true(peers.count >= 40);
    for (size_t i = 0; i < peers.count; i++)
        if (!has_case(&list, peers.item[i].name))
            fail_msg("no case %s", peers.item[i].name);
    assert_true(has_case(&list, "B768-N1024-H16-P1-T1-fp16"));
    assert_true(has_case(&list, "B128-N4096-H128-P64-T2c-bf16"));
    assert_true(has_case(&list, "B128-N4096of8192-H16-P64-T1-bf16"));
    assert_true(has_case(&list, "B1-N32768-H16-P64-T1-bf16e4m3"));
    assert_true(has_case(&list, "B128-N4096-H128-P64-T1-bf16r0"));
    assert_true(has_case(&list, "B128-N4096-H64-P64-T1-bf16-invariant"));
    for (size_t i = 0; i < list.count; i++) {
        if (!*list.item[i].note)
            fail_msg("%s: no model is named", list.item[i].name);
        for (size_t k = 0; k < i; k++)
            if (strcmp(list.item[i].name, list.item[k].name) == 0)
                fail_msg("%s stands there twice", list.item[i].name);
    }
    peers_free(&peers);
    shapes_free(&list);
}

/* Every line for every key, and one for the tuner's own check of each. */
static void the_verify_lists_are_whole(void **state)
{
    static const struct {
        const char *family;
        size_t keys;
    } families[] = {{"mla_decode", 12}, {"mla_merge", 2}};
    (void)state;
    for (int f = 0; f < 2; f++) {
        struct shape_list lines = {0}, all = {0};
        const struct gen__family *family = gen__family_by_name(families[f].family);
        bool small = false;
        shapes_load(&lines, family, SHAPES_VERIFIED, NULL);
        verify_list(&all, family, NULL);
        assert_int_equal(all.count, lines.count * families[f].keys);
        for (size_t i = 0; i < lines.count; i++)
            small = small || (strstr(lines.item[i].controls, "@tiny") &&
                              strstr(lines.item[i].controls, "@pad") &&
                              !strstr(lines.item[i].controls, "@form"));
        assert_true(small);
        for (uint32_t form = 0; form < family->num_forms; form++) {
            bool used = false;
            for (size_t i = 0; i < lines.count; i++)
                used = used || strstr(lines.item[i].controls, family->forms[form]);
            if (!used)
                fail_msg("no line has @form=%s", family->forms[form]);
        }
        shapes_free(&lines);
        shapes_free(&all);
    }
}

/* Every second octave of what the shapes span, of cache rows of all requests and of requests, with
 * lengths of 1,024 to 65,536; every octave of rows; pages of one row and of 64; of the shapes'
 * keys, with all lengths equal. */
static void the_grid_is_coarse(void **state)
{
    struct shape_list shapes = {0}, grid = {0};
    (void)state;
    assert_true(shapes_parse(&shapes, decode(), SHAPES_TIMED,
                             "batch=1 kv_len=1024 num_heads=16 page_size=1"));
    assert_true(shapes_parse(&shapes, decode(), SHAPES_TIMED,
                             "batch=16 kv_len=4096 max_kv_len=9000 num_heads=128 q_len=2"));
    shapes_grid(&grid, &shapes, decode());
    assert_int_equal(grid.count, (4 + 3 + 2) * 5 * 2); /* of 1, 4 and 16 requests */
    for (size_t i = 0; i < grid.count; i++) {
        const gen_mla_decode_problem *p = (const gen_mla_decode_problem *)grid.item[i].problem;
        const int32_t rows = p->q_len * p->num_heads;
        assert_int_equal(p->kv_len, p->max_kv_len);
        assert_true(p->batch == 1 || p->batch == 4 || p->batch == 16);
        assert_true(p->kv_len >= 1024 && p->batch * p->kv_len <= 65536);
        assert_true(p->kv_len == 1024 || p->kv_len % 4096 == 0);
        assert_true(rows == 16 || rows == 32 || rows == 64 || rows == 128 || rows == 256);
        assert_true(p->page_size == 1 || p->page_size == 64);
        assert_true(p->dtype == GEN_DTYPE_BF16 && p->rope_dim == 64);
    }
    shapes_free(&shapes);
    shapes_free(&grid);
}

/* ---- buffers ------------------------------------------------------------ */

static struct shape_list one_shape(const struct gen__family *family, const char *words)
{
    struct shape_list list = {0};
    if (!shapes_parse(&list, family, SHAPES_VERIFIED, words))
        fail_msg("%s", gen_last_error());
    return list;
}

static void views_lie_in_the_others_memory(void **state)
{
    struct shape_list list = one_shape(decode(), "batch=2 num_heads=3 kv_len=100 page_size=16");
    struct buffers b;
    gen_mla_decode_args set[2];
    (void)state;
    assert_true(buffers_init(&b, decode(), list.item[0].problem, BUFFERS_DEFAULT_FORM, 2, true));
    for (uint32_t s = 0; s < 2; s++)
        buffers_args(&b, 0x10000, s, &set[s].base);
    assert_int_equal((uintptr_t)set[0].kpe - (uintptr_t)set[0].ckv, 1024);
    assert_int_equal((uintptr_t)set[1].kpe - (uintptr_t)set[1].ckv, 1024);
    assert_int_equal((uintptr_t)set[1].ckv - (uintptr_t)set[0].ckv, b.set_bytes);
    assert_ptr_equal(set[0].o, set[1].o); /* not cold */
    assert_null(set[0].page_indptr);
    assert_int_equal(b.bytes[MLA_DECODE_KPE], 0);
    buffers_free(&b);
    shapes_free(&list);
}

static bool is_finite(uint16_t code)
{
    return isfinite(gen__bf16_to_double(code)) != 0;
}

/* In every set, whichever tensors are cold; the same for the same options. */
static void the_family_fills_every_set(void **state)
{
    struct shape_list list =
        one_shape(decode(), "batch=3 num_heads=2 kv_len=100 max_kv_len=200 page_size=16");
    struct buffers b;
    (void)state;
    assert_true(buffers_init(&b, decode(), list.item[0].problem, BUFFERS_DEFAULT_FORM, 3, false));
    uint8_t *block = xmalloc(b.total_bytes), *again = xmalloc(b.total_bytes);
    const struct fill_options options = {.seed = 5, .non_finite = true};
    memset(block, 0, b.total_bytes);
    memset(again, 0, b.total_bytes);
    buffers_fill(&b, &options, block);
    buffers_fill(&b, &options, again);
    assert_memory_equal(block, again, b.total_bytes);
    for (uint32_t set = 0; set < 3; set++) {
        gen_mla_decode_args a;
        buffers_args(&b, (uint64_t)(uintptr_t)block, set, &a.base);
        assert_int_equal(a.kv_len[0], 200);
        assert_int_equal(a.kv_len[1], 0);
        bool seen[64] = {false};
        assert_true(a.num_pages <= 64);
        for (int i = 0; i < 13; i++) { /* 200 rows of the first request */
            assert_true(a.page_indices[i] >= 0 && a.page_indices[i] < a.num_pages);
            assert_false(seen[a.page_indices[i]]);
            seen[a.page_indices[i]] = true;
        }
        assert_int_equal(a.page_indices[13], 2147480000); /* behind the last */
        /* Row 8 of its last page is the first behind the length. */
        const uint16_t *page = (const uint16_t *)a.ckv + a.page_indices[12] * a.ckv_page_stride;
        assert_true(is_finite(page[7 * 576]));
        assert_false(is_finite(page[8 * 576]));
        assert_false(is_finite(page[8 * 576 + 575]));
    }
    free(block);
    free(again);
    buffers_free(&b);
    shapes_free(&list);
}

/* ---- verifying ---------------------------------------------------------- */

struct fixture {
    struct shape_list list;
    struct verify_case check;
    gen_library *library;
    void *product;
};

static void open_fixture(struct fixture *f, const char *words)
{
    struct product *product = product_new();
    gen_open_options options = {.size = sizeof options};
    f->product = product_bytes(product, &options.data_size);
    product_free(product);
    options.data = f->product;
    f->library = NULL;
    assert_int_equal(gen_open(&options, &f->library), GEN_OK);
    f->list = one_shape(decode(), words);
    assert_true(verify_prepare(&f->check, &f->list.item[0], "@nan", f->library));
}

static void close_fixture(struct fixture *f)
{
    verify_free(&f->check, NULL);
    shapes_free(&f->list);
    gen_close(f->library);
    free(f->product);
}

/* As a kernel would leave it that is exact. */
static void *right_outputs(struct fixture *f, uint32_t tensor)
{
    memcpy(f->check.actual, f->check.expected, f->check.buffers.total_bytes);
    return f->check.actual + buffers_at(&f->check.buffers, 0, tensor);
}

static void expect_refused(struct fixture *f, const char *piece)
{
    struct verify_result result;
    verify_compare(&f->check, &result);
    assert_false(result.ok);
    if (!strstr(result.reason, piece))
        fail_msg("\"%s\" is not in \"%s\"", piece, result.reason);
}

static void expect_passed(struct fixture *f)
{
    struct verify_result result;
    verify_compare(&f->check, &result);
    if (!result.ok)
        fail_msg("%s", result.reason);
}

/* Multiplies columns of a row of o. */
static void change(uint16_t *o, int first, int last, double factor)
{
    for (int i = first; i < last; i++)
        o[i] = gen__bf16_from_double(gen__bf16_to_double(o[i]) * factor);
}

static void outputs_are_held_row_by_row(void **state)
{
    struct fixture f;
    (void)state;
    open_fixture(&f, "batch=40 num_heads=8 kv_len=200 max_kv_len=300");
    uint16_t *o = right_outputs(&f, MLA_DECODE_O);
    expect_passed(&f);
    change(o, 0, 512, 1 + 0x1p-6); /* four times what is allowed, of one row of 320 */
    expect_refused(&f, "o: relative error 0.01");
    expect_refused(&f, "in the row at [0], allowed 0.00586");
    o = right_outputs(&f, MLA_DECODE_O);
    o[512 + 100] = gen__bf16_from_double(gen__bf16_to_double(o[512 + 100]) + 0.02);
    expect_refused(&f, "o");
    /* The second request has no rows: its outputs are zeros, and nothing near it. */
    o = right_outputs(&f, MLA_DECODE_O);
    assert_int_equal(o[8 * 512], 0);
    o[8 * 512] = gen__bf16_from_double(1e-30);
    expect_refused(&f, "in the row at [4096]");
    o = right_outputs(&f, MLA_DECODE_O);
    o[8 * 512 + 1] = 0x7fc0;
    expect_refused(&f, "o[4097] is nan");
    close_fixture(&f);
}

static void log_sum_exps_are_held_one_by_one(void **state)
{
    struct fixture f;
    (void)state;
    open_fixture(&f, "batch=40 num_heads=8 kv_len=200 max_kv_len=300");
    float *lse = right_outputs(&f, MLA_DECODE_LSE);
    lse[300] += 0.0009f;
    expect_passed(&f);
    lse[300] += 0.0002f;
    expect_refused(&f, "lse[300] is");
    expect_refused(&f, "allowed is a difference of 0.001");
    lse = right_outputs(&f, MLA_DECODE_LSE);
    assert_true(lse[8] == -INFINITY);
    lse[8] = -1e30f;
    expect_refused(&f, "lse[8] is -1e+30, the reference has -inf");
    close_fixture(&f);
}

static void inputs_stay_as_they_are(void **state)
{
    struct fixture f;
    (void)state;
    open_fixture(&f, "batch=2 num_heads=8 kv_len=200");
    int32_t *pages = right_outputs(&f, MLA_DECODE_PAGE_INDICES);
    pages[4] ^= 1;
    expect_refused(&f, "the input page_indices was changed at element 4");
    uint16_t *ckv = right_outputs(&f, MLA_DECODE_CKV);
    ckv[512] ^= 1; /* of the rotary keys, a view */
    expect_refused(&f, "the input ckv was changed at element 512");
    close_fixture(&f);
}

/* Not those of two requests. */
static bool one_request(void *context, const struct shape *shape)
{
    (void)context;
    return ((const gen_mla_decode_problem *)shape->problem)->batch != 2;
}

/* The same cases as one after the other, in the list's order, wherever it is begun and left. */
static void cases_are_made_ready_ahead(void **state)
{
    enum { COUNT = 60 };
    struct fixture f;
    struct shape_list list = {0};
    (void)state;
    open_fixture(&f, "batch=1 num_heads=1 kv_len=1");
    for (int i = 0; i < COUNT; i++) {
        char words[96];
        snprintf(words, sizeof words, "batch=%d num_heads=2 kv_len=%d%s", 1 + i % 3, 1 + 7 * i,
                 i % 2 ? " @nan" : "");
        assert_true(shapes_parse(&list, decode(), SHAPES_VERIFIED, words));
    }
    for (size_t first = 0; first < COUNT; first += 17) {
        struct ahead *ahead = ahead_open(&list, first, one_request, NULL, f.library);
        struct verify_case c, alone;
        size_t expected = first;
        for (size_t at; (first == 0 || expected < first + 5) && ahead_take(ahead, &c, &at);) {
            expected += !one_request(NULL, &list.item[expected]);
            assert_int_equal(at, expected);
            assert_true(verify_prepare(&alone, &list.item[at], list.item[at].controls, f.library));
            assert_string_equal(c.name, alone.name);
            assert_int_equal(c.buffers.total_bytes, alone.buffers.total_bytes);
            assert_memory_equal(c.initial, alone.initial, alone.buffers.total_bytes);
            assert_memory_equal(c.expected, alone.expected, alone.buffers.total_bytes);
            verify_free(&c, NULL);
            verify_free(&alone, NULL);
            expected++;
        }
        assert_true(first == 0 ? expected == COUNT : expected >= first + 5);
        ahead_close(ahead);
    }
    shapes_free(&list);
    close_fixture(&f);
}

int main(void)
{
    util_set_program("test-bench-mla");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_shapes_hold_every_recorded_case),
        cmocka_unit_test(the_verify_lists_are_whole),
        cmocka_unit_test(the_grid_is_coarse),
        cmocka_unit_test(views_lie_in_the_others_memory),
        cmocka_unit_test(the_family_fills_every_set),
        cmocka_unit_test(outputs_are_held_row_by_row),
        cmocka_unit_test(log_sum_exps_are_held_one_by_one),
        cmocka_unit_test(inputs_stay_as_they_are),
        cmocka_unit_test(cases_are_made_ready_ahead),
    };
    return cmocka_run_group_tests_name("bench mla", tests, NULL, NULL);
}
