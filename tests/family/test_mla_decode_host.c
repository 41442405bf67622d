/*
 * The host side of mla_decode: what it allows, what it says where it does not, and
 * which variants fit.
 */
#include "mla.h"
#include "common/problem_text.h"

static const struct gen__family *const family = &gen__family_mla_decode;

/* ---- the problem ------------------------------------------------------- */

static void key_of_a_problem(void **state)
{
    (void)state;
    gen_mla_decode_problem p = mla_problem(24, 12, 3000);
    struct gen__key key;
    p.q_len = 2;
    p.page_size = 16;
    p.dtype = GEN_DTYPE_FP16;
    p.cache = GEN_MLA_CACHE_E4M3;
    p.rope_dim = 0;
    memset(&key, 0xff, sizeof key);
    assert_int_equal(family->check(&p.base, &key), GEN_OK);
    static const char *const names[] = {"fp16", "e4m3", "0"};
    /* 24 rows take a tile of 32. */
    static const float counts[] = {72000, 24, 32, 16};
    assert_int_equal(family->num_required, 3);
    assert_int_equal(family->num_coords, 4);
    for (int i = 0; i < 3; i++)
        assert_string_equal(family->required[i].values[key.codes[i]], names[i]);
    for (int i = 0; i < 4; i++)
        assert_true(key.counts[i] == counts[i]);
    assert_false(key.empty);
    p.cache = GEN_MLA_CACHE_SAME;
    assert_int_equal(family->check(&p.base, &key), GEN_OK);
    assert_true(key.counts[3] == 16);

    p = mla_problem(1, 1, 0);
    p.page_size = 4096;
    assert_int_equal(family->check(&p.base, &key), GEN_OK);
    for (int i = 0; i < 3; i++)
        assert_int_equal(key.codes[i], 0);
    assert_true(key.counts[0] == 1 && key.counts[3] == 64); /* no length, large pages */
    assert_true(key.counts[2] == 16);
    static const int32_t tiled[][2] = {{16, 16}, {17, 32},  {32, 32},
                                       {33, 64}, {65, 128}, {128, 128}};
    for (size_t i = 0; i < sizeof tiled / sizeof *tiled; i++) {
        p.num_heads = tiled[i][0];
        assert_int_equal(family->check(&p.base, &key), GEN_OK);
        assert_true(key.counts[2] == (float)tiled[i][1]);
    }
    p.q_len = 2; /* 256 rows */
    assert_int_equal(family->check(&p.base, &key), GEN_OK);
    assert_true(key.counts[2] == 256);
    static const int32_t unboxed[] = {1, 2, 8, 31, 48, 63, 65, 100};
    for (size_t i = 0; i < sizeof unboxed / sizeof *unboxed; i++) {
        p.page_size = unboxed[i]; /* no TMA boxes */
        assert_int_equal(family->check(&p.base, &key), GEN_OK);
        assert_true(key.counts[3] == 1);
    }

    p.batch = 0;
    assert_int_equal(family->check(&p.base, &key), GEN_OK);
    assert_true(key.empty && key.counts[0] > 0);
    assert_int_equal(mla_planned(p, NULL).num_launches, 0);
    const struct gen__facts variant = mla_wgmma();
    assert_int_equal(mla_planned(p, &variant).num_launches, 0);
}

static void check_errors(void **state)
{
    (void)state;
    static const struct {
        size_t offset;
        int32_t value;
        const char *message;
    } cases[] = {
#define AT(field) offsetof(gen_mla_decode_problem, field)
        {AT(batch), -1, "mla_decode: batch = -1; allowed: 0 to 16777216"},
        {AT(batch), 16777217, "mla_decode: batch = 16777217; allowed: 0 to 16777216"},
        {AT(num_heads), 0, "mla_decode: head count num_heads = 0; allowed: 1 to 128"},
        {AT(num_heads), 129, "mla_decode: head count num_heads = 129; allowed: 1 to 128"},
        {AT(q_len), 0, "mla_decode: q_len = 0; allowed: 1 to 1024"},
        {AT(q_len), 1025, "mla_decode: q_len = 1025; allowed: 1 to 1024"},
        {AT(max_kv_len), 0, "mla_decode: max_kv_len = 0; allowed: 1 to 16777216"},
        {AT(max_kv_len), 16777217, "mla_decode: max_kv_len = 16777217; allowed: 1 to 16777216"},
        {AT(max_kv_len), 999, "mla_decode: kv_len = 1000; allowed: 0 to max_kv_len = 999"},
        {AT(kv_len), -1, "mla_decode: kv_len = -1; allowed: 0 to max_kv_len = 2000"},
        {AT(kv_len), 2001, "mla_decode: kv_len = 2001; allowed: 0 to max_kv_len = 2000"},
        {AT(page_size), 0, "mla_decode: page_size = 0; allowed: 1 to 65536"},
        {AT(page_size), 65537, "mla_decode: page_size = 65537; allowed: 1 to 65536"},
        {AT(rope_dim), 32, "mla_decode: rope_dim = 32; allowed: 64, 0"},
        {AT(dtype), 2, "mla_decode: dtype = 2; allowed: GEN_DTYPE_BF16 (0), GEN_DTYPE_FP16 (1)"},
        {AT(dtype), -1, "mla_decode: dtype = -1; allowed: GEN_DTYPE_BF16 (0), GEN_DTYPE_FP16 (1)"},
        {AT(cache), 3,
         "mla_decode: cache = 3; allowed: GEN_MLA_CACHE_SAME (0), GEN_MLA_CACHE_E4M3 (1), "
         "GEN_MLA_CACHE_E4M3_Q (2)"},
        {AT(cache), -1,
         "mla_decode: cache = -1; allowed: GEN_MLA_CACHE_SAME (0), GEN_MLA_CACHE_E4M3 (1), "
         "GEN_MLA_CACHE_E4M3_Q (2)"},
        {AT(causal), 2, "mla_decode: causal = 2; allowed: 0, 1"},
        {AT(causal), -1, "mla_decode: causal = -1; allowed: 0, 1"},
#undef AT
    };
    gen_mla_decode_problem good = mla_problem(4, 16, 1000);
    good.max_kv_len = 2000;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gen_mla_decode_problem p = good;
        struct gen__key key;
        assert_int_equal(family->check(&p.base, &key), GEN_OK);
        memcpy((char *)&p + cases[i].offset, &cases[i].value, sizeof cases[i].value);
        assert_failed(family->check(&p.base, &key), INVALID_ARGUMENT, cases[i].message);
    }
    struct gen__key key;
    good.batch = 16777216;
    good.max_kv_len = 2048;
    assert_int_equal(family->check(&good.base, &key), GEN_OK);
    good.max_kv_len = 2049;
    assert_failed(family->check(&good.base, &key), INVALID_ARGUMENT,
                  "mla_decode: batch * max_kv_len = 16777216 * 2049 = 34376515584; allowed: <= "
                  "34359738368");
    good.batch = 2097152;
    good.q_len = 1023;
    assert_int_equal(family->check(&good.base, &key), GEN_OK);
    good.q_len = 1024;
    assert_failed(
        family->check(&good.base, &key), INVALID_ARGUMENT,
        "mla_decode: batch * q_len = 2097152 * 1024 = 2147483648; allowed: <= 2147483647");
}

static void problems_as_text(void **state)
{
    (void)state;
    gen_mla_decode_problem p;
    char text[256];
    assert_int_equal(
        gen__problem_parse(family, "batch=3 kv_len=500 rope=0 cache=e4m3 causal=yes", &p.base),
        GEN_OK);
    assert_int_equal(p.max_kv_len, 500); /* where it is not said, all are as long */
    assert_int_equal(p.rope_dim, 0);
    gen__problem_format(family, &p.base, text, sizeof text);
    assert_string_equal(text, "batch=3 num_heads=16 q_len=1 kv_len=500 max_kv_len=500 page_size=64 "
                              "rope=0 dtype=bf16 cache=e4m3 causal=yes");
}

/* Clusters take requests whole, one each. */
static void what_fits_in_clusters(void **state)
{
    (void)state;
    static const char more[] = "there are more requests than clusters that run at once";
    static const char idle[] = "a cluster for each request leaves more than half of the SMs idle",
                      third[] =
                          "a cluster for each request leaves more than a third of the SMs idle";
    static const char longer[] =
        "a cluster takes a request whole, and max_kv_len is far above kv_len: lengths that differ "
        "are better cut";
    static const struct {
        uint32_t cluster;
        int32_t batch, num_heads, kv_len, max_kv_len;
        const char *message; /* NULL: it fits */
    } cases[] = {
        {6, 16, 16, 2048, 2048, NULL}, {6, 17, 16, 2048, 2048, more},
        {6, 8, 128, 2048, 2048, NULL}, {6, 9, 128, 2048, 2048, more},
        {2, 66, 64, 4096, 4096, NULL}, {2, 67, 64, 4096, 4096, more},
        {3, 33, 64, 4096, 4096, NULL}, {3, 34, 64, 4096, 4096, more},
        {6, 4, 16, 2048, 2048, NULL},  {6, 4, 16, 4096, 4096, idle},
        {6, 16, 16, 2048, 2304, NULL}, {6, 16, 16, 2048, 4096, longer},
        {6, 14, 16, 1536, 1536, NULL}, {6, 14, 16, 1537, 1537, third},
        {6, 15, 16, 8192, 8192, NULL}, {2, 43, 62, 8192, 8192, third},
        {2, 44, 64, 8192, 8192, NULL}, {2, 43, 64, 512, 512, NULL},
    };
    struct gen__facts variant = mla_wgmma();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gen_mla_decode_problem p = mla_problem(cases[i].batch, cases[i].num_heads, cases[i].kv_len);
        p.max_kv_len = cases[i].max_kv_len;
        variant.cluster = cases[i].cluster;
        const char *found = family->fits(&p.base, &h200, &variant);
        if (cases[i].message == NULL ? found != NULL
                                     : found == NULL || strcmp(found, cases[i].message) != 0)
            fail_msg("case %zu: '%s'", i, found ? found : "fits");
        if (found)
            continue;
        const gen_plan plan = mla_planned(p, &variant);
        assert_int_equal(plan.num_launches, 1); /* no merge */
        assert_int_equal(plan.workspace_bytes, 0);
        assert_int_equal(plan.launch[0].grid[0],
                         cases[i].cluster * (uint32_t)((cases[i].num_heads + 63) / 64));
        p.base.flags |= GEN_BATCH_INVARIANT;
        assert_string_equal(
            family->fits(&p.base, &h200, &variant),
            "how many clusters there are depends on the batch, and the result may not");
    }
}

/* A caller's device may have any number of SMs. */
static void clusters_on_any_device(void **state)
{
    (void)state;
    static const uint32_t num_sms[] = {1, 1 << 30, INT32_MAX, UINT32_MAX};
    struct gen__facts variant = mla_wgmma();
    gen_mla_decode_problem p = mla_problem(42, 62, 8192);
    variant.cluster = 6;
    for (size_t i = 0; i < sizeof num_sms / sizeof *num_sms; i++) {
        gen_device device = h200;
        device.num_sms = num_sms[i];
        const char *found = family->fits(&p.base, &device, &variant);
        if (num_sms[i] == 1)
            assert_string_equal(found, "there are more requests than clusters that run at once");
        else
            assert_null(found); /* all idle but a few, and fewer blocks than these */
    }
}

static void what_fits(void **state)
{
    (void)state;
    struct gen__facts wgmma = mla_wgmma();
    const struct gen__facts mma = mla_mma();
    gen_mla_decode_problem p = mla_problem(4, 128, 1000);
    static const int32_t whole[] = {16, 32, 64, 128, 192, 65536}, odd[] = {1, 8, 24, 48, 96, 100};
    for (size_t i = 0; i < 6; i++) {
        p.page_size = whole[i];
        assert_null(family->fits(&p.base, &h200, &wgmma));
        p.page_size = odd[i];
        assert_string_equal(
            family->fits(&p.base, &h200, &wgmma),
            "page_size is neither 16, 32, 64 nor a multiple of 64, as TMA boxes need it");
        assert_null(family->fits(&p.base, &h200, &mma));
    }
    p.q_len = 1024; /* 131072 rows: 2048 tiles of 64, 8192 of 16 */
    p.page_size = 64;
    assert_null(family->fits(&p.base, &h200, &wgmma));
    assert_string_equal(family->fits(&p.base, &h200, &mma),
                        "q_len * num_heads makes more than 2048 row tiles");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(key_of_a_problem),      cmocka_unit_test(check_errors),
        cmocka_unit_test(problems_as_text),      cmocka_unit_test(what_fits),
        cmocka_unit_test(what_fits_in_clusters), cmocka_unit_test(clusters_on_any_device),
    };
    return cmocka_run_group_tests_name("mla_decode host", tests, NULL, NULL);
}
