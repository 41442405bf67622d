/* Data that hurts: the words of a list, what stands in the tensors, and which outputs the verifier
 * then refuses. No GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "common/buffers.h"
#include "families/attn_fwd/attn_fwd.h"
#include "families/kda/stage.h"
#include "make_product.h"
#include "common/problems.h"
#include "reference/half.h"
#include "common/util.h"
#include "verify/verify.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const user_families[] = {"attn_fwd", "mla_decode", "la_decode", "kda_decode",
                                            "kda_prefill"};
#define NUM_USER_FAMILIES 5

/* ---- lists -------------------------------------------------------------- */

static void words_name_data(void **state)
{
    (void)state;
    for (int f = 0; f < NUM_USER_FAMILIES; f++) {
        const struct gen__family *family = gen__family_by_name(user_families[f]);
        struct shape_list list = {0};
        for (int i = 0; i < GEN__NUM_DATA; i++) {
            char *words = xasprintf("batch=2 @tiny @data=%s", gen__data_names[i]);
            assert_true(shapes_parse(&list, family, SHAPES_VERIFIED, words));
            assert_string_equal(list.item[i].controls, strchr(words, '@'));
            assert_false(shapes_parse(&list, family, SHAPES_TIMED, words));
            free(words);
        }
        assert_false(shapes_parse(&list, family, SHAPES_VERIFIED, "batch=2 @data=one"));
        assert_non_null(strstr(gen_last_error(), "@data=ones, @data=mean1, @data=constant"));
        assert_false(shapes_parse(&list, family, SHAPES_VERIFIED, "batch=2 @data="));
        assert_false(shapes_parse(&list, family, SHAPES_VERIFIED, "batch=2 @form=ones"));
        shapes_free(&list);
    }
    struct shape_list none = {0};
    assert_false(shapes_parse(&none, gen__family_by_name("kda_gate"), SHAPES_VERIFIED,
                              "batch=1 seq_len=64 num_qk_heads=1 @data=ones"));
}

/* ---- what stands in the tensors ------------------------------------------ */

struct filled {
    struct shape_list list;
    struct buffers b;
    uint8_t *block;
};

static void fill(struct filled *f, const char *family, const char *words, enum gen__data kind)
{
    memset(f, 0, sizeof *f);
    assert_true(shapes_parse(&f->list, gen__family_by_name(family), SHAPES_VERIFIED, words));
    assert_true(buffers_init(&f->b, f->list.item[0].family, f->list.item[0].problem,
                             BUFFERS_DEFAULT_FORM, 1, true));
    assert_true(buffers_set_data(&f->b, kind));
    f->block = xmalloc(f->b.total_bytes);
    /* As of great blocks, which repeat what was drawn. */
    buffers_fill(&f->b, &(struct fill_options){.seed = 1, .cycle = true}, f->block);
}

static void put_away(struct filled *f)
{
    free(f->block);
    buffers_free(&f->b);
    shapes_free(&f->list);
}

static uint32_t tensor_named(const struct filled *f, const char *name)
{
    for (uint32_t t = 0; t < f->b.num_tensors; t++)
        if (strcmp(f->b.tensor[t].name, name) == 0)
            return t;
    fail_msg("no tensor %s", name);
    return 0;
}

static double at(const struct filled *f, uint32_t t, uint64_t i)
{
    return dtype_get(f->b.tensor[t].dtype, f->block + buffers_at(&f->b, 0, t), i);
}

/* Mean, greatest size, root of the mean square; every element is finite. */
struct moments {
    double mean, most, rms;
};

static struct moments moments_of(const struct filled *f, const char *name)
{
    const uint32_t t = tensor_named(f, name);
    const uint64_t count = f->b.tensor[t].count;
    struct moments m = {0, 0, 0};
    assert_true(count > 0);
    for (uint64_t i = 0; i < count; i++) {
        const double x = at(f, t, i);
        assert_true(isfinite(x));
        m.mean += x / (double)count;
        m.rms += x * x / (double)count;
        m.most = fmax(m.most, fabs(x));
    }
    m.rms = sqrt(m.rms);
    return m;
}

static bool near(double x, double to, double by)
{
    return fabs(x - to) <= by;
}

static void assert_same_rows(const struct filled *f, const char *name, uint64_t width)
{
    const uint32_t t = tensor_named(f, name);
    assert_true(f->b.tensor[t].count > width && f->b.tensor[t].count % width == 0);
    for (uint64_t i = width; i < f->b.tensor[t].count; i++)
        assert_true(at(f, t, i) == at(f, t, i - width));
    assert_true(at(f, t, 0) != at(f, t, 1) || at(f, t, 0) != at(f, t, 2));
}

/* Of each family a problem with keys of more than one piece of random numbers, and the width of a
 * head. */
static const struct {
    const char *family, *words, *keys, *values;
    uint64_t width;
    bool averaged; /* values, and not added to a state */
} kinds_of[] = {
    {"attn_fwd", "dtype=e4m3 num_q_heads=2 q_len=9 kv_len=1200", "k", "v", 128, true},
    {"attn_fwd", "dtype=e5m2 head_dim=64 num_q_heads=2 q_len=9 kv_len=2100", "k", "v", 64, true},
    {"attn_fwd", "dtype=fp16 head_dim=256 num_q_heads=2 q_len=9 kv_len=700", "k", "v", 256, true},
    {"attn_fwd", "dtype=bf16 num_q_heads=2 q_len=9 kv_len=1200", "k", "v", 128, true},
    {"mla_decode", "batch=2 num_heads=4 kv_len=700 page_size=64", "ckv", "ckv", 576, false},
    {"mla_decode", "batch=2 num_heads=4 kv_len=700 cache=e4m3", "ckv", "ckv", 576, false},
    {"la_decode", "batch=70 num_qk_heads=32 dtype=fp16", "k", "v", 128, false},
    {"kda_decode", "batch=70 num_qk_heads=32 head_dim=64 layout=kv", "k", "v", 64, false},
    {"kda_prefill", "seq_len=1100 num_qk_heads=2", "k", "v", 128, false},
};
#define NUM_PROBLEMS (sizeof kinds_of / sizeof *kinds_of)

static void values_of_mean_1(void **state)
{
    (void)state;
    for (size_t i = 0; i < NUM_PROBLEMS; i++) {
        const bool e4m3 = strstr(kinds_of[i].words, "cache=e4m3") != NULL;
        const double size = e4m3 ? 1 / 0.45 : 1; /* such a cache has a scale */
        struct filled f;
        fill(&f, kinds_of[i].family, kinds_of[i].words, GEN__DATA_ONES);
        struct moments m = moments_of(&f, kinds_of[i].values);
        assert_true(near(m.mean, size, e4m3 ? 0.06 : 1e-9) && near(m.rms, m.most, 1e-9));
        if (strcmp(kinds_of[i].keys, kinds_of[i].values) != 0)
            assert_true(near(moments_of(&f, kinds_of[i].keys).mean, 0, 0.02));
        put_away(&f);
        fill(&f, kinds_of[i].family, kinds_of[i].words, GEN__DATA_MEAN1);
        m = moments_of(&f, kinds_of[i].values);
        assert_true(near(m.mean, size, 0.03 * size) && near(m.rms, size * sqrt(2), 0.03 * size));
        put_away(&f);
    }
}

static void rows_that_are_the_same(void **state)
{
    (void)state;
    for (size_t i = 0; i < NUM_PROBLEMS; i++) {
        struct filled f;
        fill(&f, kinds_of[i].family, kinds_of[i].words, GEN__DATA_CONSTANT);
        assert_same_rows(&f, kinds_of[i].keys, kinds_of[i].width);
        assert_same_rows(&f, kinds_of[i].values, kinds_of[i].width);
        const bool mla = strcmp(kinds_of[i].family, "mla_decode") == 0;
        assert_same_rows(&f, mla ? "q_nope" : "q", mla ? 512 : kinds_of[i].width);
        put_away(&f);
    }
}

/* Cosines of keys far apart are near 9/10 where 9 parts of 10 of their square are common. */
static void keys_that_are_alike(void **state)
{
    (void)state;
    for (size_t i = 0; i < NUM_PROBLEMS; i++) {
        struct filled f;
        fill(&f, kinds_of[i].family, kinds_of[i].words, GEN__DATA_CORRELATED);
        const uint32_t t = tensor_named(&f, kinds_of[i].keys);
        const uint64_t width = kinds_of[i].width, rows = f.b.tensor[t].count / width;
        for (uint64_t row = 1; row < rows; row += rows / 7) {
            double ab = 0, aa = 0, bb = 0;
            for (uint64_t d = 0; d < width; d++) {
                const double a = at(&f, t, d), b = at(&f, t, row * width + d);
                ab += a * b;
                aa += a * a;
                bb += b * b;
            }
            assert_true(ab / sqrt(aa * bb) > 0.75 && ab / sqrt(aa * bb) < 0.98);
        }
        put_away(&f);
    }
}

static void numbers_as_great_as_the_type_has(void **state)
{
    static const double most[] = {[GEN_DTYPE_BF16] = 0x1p40,
                                  [GEN_DTYPE_FP16] = 65504,
                                  [GEN_DTYPE_E4M3] = 448,
                                  [GEN_DTYPE_E5M2] = 57344};
    (void)state;
    for (size_t i = 0; i < NUM_PROBLEMS; i++) {
        struct filled f;
        fill(&f, kinds_of[i].family, kinds_of[i].words, GEN__DATA_EXTREME);
        const struct moments k = moments_of(&f, kinds_of[i].keys);
        const struct moments v = moments_of(&f, kinds_of[i].values);
        const double m = most[f.b.tensor[tensor_named(&f, kinds_of[i].keys)].dtype];
        assert_true(k.most <= m && k.most > m / 4 && near(k.rms, m / 8, 0.01 * m));
        assert_true(near(v.rms, kinds_of[i].averaged ? m : m / 8, 0.01 * m) && v.most <= m);
        /* Queries take it back, as well as their type can. */
        const bool mla = strcmp(kinds_of[i].family, "mla_decode") == 0;
        const struct moments q = moments_of(&f, mla ? "q_nope" : "q");
        const bool normalized = strcmp(kinds_of[i].family, "kda_prefill") == 0;
        assert_true(near(q.rms * (normalized ? 1 : k.rms), 1, 0.15));
        put_away(&f);
    }
}

/* Gates of keys that are alike, activated in the kernel or not; else they are as ever. */
static void nothing_decays_where_keys_are_alike(void **state)
{
    (void)state;
    for (int kind = 0; kind < GEN__NUM_DATA; kind++) {
        const bool alike = kind == GEN__DATA_CONSTANT || kind == GEN__DATA_CORRELATED;
        struct filled f;
        fill(&f, "kda_prefill", "seq_len=100 num_qk_heads=2", (enum gen__data)kind);
        assert_true(alike ? near(moments_of(&f, "g").mean, -100, 1e-9)
                          : moments_of(&f, "g").mean > -0.1);
        assert_true(alike ? near(moments_of(&f, "beta").mean, 1, 1e-9)
                          : moments_of(&f, "beta").mean < 0.7);
        put_away(&f);
        fill(&f, "kda_decode", "batch=40 num_qk_heads=2", (enum gen__data)kind);
        assert_true(alike ? near(moments_of(&f, "g").mean, -100, 1e-9)
                          : fabs(moments_of(&f, "g").mean) < 0.3);
        assert_true(alike ? near(moments_of(&f, "beta").mean, 100, 1e-9)
                          : fabs(moments_of(&f, "beta").mean) < 0.4);
        put_away(&f);
        fill(&f, "la_decode", "batch=2 num_qk_heads=20", (enum gen__data)kind);
        assert_true(alike ? moments_of(&f, "decay").most == 0 : moments_of(&f, "decay").mean > 1);
        put_away(&f);
    }
}

/* With @poison the last key head of the first request and the first one of the third are NaN or
 * infinite in all rows, k and v alike; every other number is as without. */
static void poison_is_of_one_head(void **state)
{
    static const char words[] =
        "dtype=e4m3 batch=3 num_q_heads=4 num_kv_heads=2 q_len=5 kv_len=40 @poison";
    static const char *const names[] = {"k", "v"};
    (void)state;
    struct filled f;
    fill(&f, "attn_fwd", words, GEN__DATA_NORMAL);
    uint8_t *poisoned = xmalloc(f.b.total_bytes);
    buffers_fill(&f.b, &(struct fill_options){.seed = 1, .cycle = true, .poisoned = true},
                 poisoned);
    for (int n = 0; n < 2; n++) {
        const uint32_t t = tensor_named(&f, names[n]);
        for (uint64_t i = 0; i < f.b.tensor[t].count; i++) {
            const uint64_t request = i / (40 * 2 * 128), head = i / 128 % 2;
            const double x = dtype_get(GEN_DTYPE_E4M3, poisoned + buffers_at(&f.b, 0, t), i);
            if ((request == 0 && head == 1) || (request == 2 && head == 0))
                assert_true(isnan(x));
            else
                assert_true(x == at(&f, t, i));
        }
    }
    free(poisoned);
    put_away(&f);
}

/* ---- what is refused ------------------------------------------------------ */

static gen_library *open_any(void **bytes)
{
    struct product *product = product_new();
    gen_open_options options = {.size = sizeof options};
    gen_library *library = NULL;
    *bytes = product_bytes(product, &options.data_size);
    product_free(product);
    options.data = *bytes;
    assert_int_equal(gen_open(&options, &library), GEN_OK);
    return library;
}

/* Are outputs refused that are `bias` off, all of them alike? */
static bool is_refused(const gen_library *library, const char *words, double bias)
{
    struct shape_list list = {0};
    struct verify_case c;
    struct verify_result result;
    assert_true(shapes_parse(&list, gen__family_by_name("attn_fwd"), SHAPES_VERIFIED, words));
    assert_true(verify_prepare(&c, &list.item[0], list.item[0].controls, library));
    memcpy(c.actual, c.expected, c.buffers.total_bytes);
    const struct gen__tensor *o = &c.buffers.tensor[ATTN_FWD_O];
    uint16_t *out = (uint16_t *)(c.actual + buffers_at(&c.buffers, 0, ATTN_FWD_O));
    for (uint64_t i = 0; i < o->count; i++)
        out[i] = gen__bf16_from_double(c.exact[ATTN_FWD_O][i] * (1 + bias));
    verify_compare(&c, &result);
    verify_free(&c, NULL);
    shapes_free(&list);
    return !result.ok;
}

/* An output that is 1 % too small is refused of values that are all 1 and passes of normal ones;
 * of values of mean 1 3 % are refused. Rounding to bf16 alone is not. */
static void a_bias_is_refused(void **state)
{
    static const char problem[] = "num_q_heads=1 q_len=3 kv_len=500";
    static const char *const dtypes[] = {"e4m3", "e5m2"};
    static const int widths[] = {64, 128, 256};
    void *bytes;
    gen_library *library = open_any(&bytes);
    (void)state;
    for (int i = 0; i < 6; i++) {
        char words[3][160];
        static const char *const kinds[] = {"ones", "mean1", "normal"};
        for (int k = 0; k < 3; k++)
            snprintf(words[k], sizeof words[k], "%s dtype=%s head_dim=%d @data=%s", problem,
                     dtypes[i % 2], widths[i / 2], kinds[k]);
        for (int k = 0; k < 3; k++)
            assert_false(is_refused(library, words[k], 0));
        assert_true(is_refused(library, words[0], -0.01));
        assert_true(is_refused(library, words[0], 0.01));
        assert_false(is_refused(library, words[1], -0.01));
        assert_true(is_refused(library, words[1], i % 2 ? -0.05 : -0.03));
        assert_false(is_refused(library, words[2], -0.03)); /* why such data is needed */
    }
    gen_close(library);
    free(bytes);
}

/* Constant keys and one beta: an inverse of KDA whose entries are rounded by themselves is refused,
 * for all entries of a diagonal are rounded one way; one whose columns carry what rounding takes
 * from an entry to the entry two rows below passes. */
static void roundings_that_add_up_are_refused(void **state)
{
    static const char *const widths[] = {"head_dim=64", "head_dim=128"};
    void *bytes;
    gen_library *library = open_any(&bytes);
    (void)state;
    for (int w = 0; w < 2; w++) {
        struct shape_list list = {0};
        struct verify_case c;
        struct verify_result result;
        char words[128];
        snprintf(words, sizeof words,
                 "batch=1 seq_len=128 num_qk_heads=1 dtype=bf16 %s @form=constant_beta", widths[w]);
        assert_true(
            shapes_parse(&list, gen__family_by_name("kda_chunk_intra"), SHAPES_VERIFIED, words));
        assert_true(verify_prepare(&c, &list.item[0], list.item[0].controls, library));
        memcpy(c.actual, c.expected, c.buffers.total_bytes);
        verify_compare(&c, &result);
        assert_false(result.ok);
        assert_non_null(strstr(result.reason, "a_kk: errors add up to"));

        const double *exact = c.exact[KDA_CHUNK_INTRA_A_KK];
        uint16_t *out = (uint16_t *)(c.actual + buffers_at(&c.buffers, 0, KDA_CHUNK_INTRA_A_KK));
        for (int column = 0; column < 64; column++) {
            double carry[2] = {0};
            for (int row = 0; row < 128; row++) {
                const double x = exact[row * 64 + column] + carry[row % 2];
                out[row * 64 + column] = gen__bf16_from_double(x);
                carry[row % 2] = x - gen__bf16_to_double(out[row * 64 + column]);
            }
        }
        verify_compare(&c, &result);
        assert_true(result.ok);
        verify_free(&c, NULL);
        shapes_free(&list);
    }
    gen_close(library);
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_name_data),
        cmocka_unit_test(values_of_mean_1),
        cmocka_unit_test(rows_that_are_the_same),
        cmocka_unit_test(keys_that_are_alike),
        cmocka_unit_test(numbers_as_great_as_the_type_has),
        cmocka_unit_test(nothing_decays_where_keys_are_alike),
        cmocka_unit_test(poison_is_of_one_head),
        cmocka_unit_test(a_bias_is_refused),
        cmocka_unit_test(roundings_that_add_up_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
