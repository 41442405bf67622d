/*
 * The host side of mla_decode: what it allows and what it says where it does not,
 * how a batch is shared out, and the estimates.
 */
#include "mla.h"

static const struct gen__family *const family = &gen__family_mla_decode;

static gen_plan planned(gen_mla_decode_problem p, const struct gen__facts *variant)
{
    gen_plan plan = {0};
    struct gen__key key;
    assert_int_equal(family->check(&p.base, &key), GEN_OK);
    family->plan(&p.base, &h200, variant, &plan);
    return plan;
}

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
    /* 24 rows take a tile of 32; what reads 8-bit caches takes no boxes. */
    static const float counts[] = {72000, 24, 32, 1};
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
        p.page_size = unboxed[i]; /* no boxes for the copy engine */
        assert_int_equal(family->check(&p.base, &key), GEN_OK);
        assert_true(key.counts[3] == 1);
    }

    p.batch = 0;
    assert_int_equal(family->check(&p.base, &key), GEN_OK);
    assert_true(key.empty && key.counts[0] > 0);
    assert_int_equal(planned(p, NULL).num_launches, 0);
    const struct gen__facts variant = mla_wgmma();
    assert_int_equal(planned(p, &variant).num_launches, 0);
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
        {AT(cache), 2,
         "mla_decode: cache = 2; allowed: GEN_MLA_CACHE_SAME (0), GEN_MLA_CACHE_E4M3 (1)"},
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
    static const char idle[] = "a cluster for each request leaves more than half of the SMs idle";
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
        const gen_plan plan = planned(p, &variant);
        assert_int_equal(plan.num_launches, 1); /* no merge */
        assert_int_equal(plan.workspace_bytes, 0);
        assert_int_equal(plan.launch[0].grid[0],
                         cases[i].cluster * (uint32_t)((cases[i].num_heads + 63) / 64));
        p.base.flags |= GEN_BATCH_INVARIANT;
        assert_string_equal(
            family->fits(&p.base, &h200, &variant),
            "how many clusters there are hangs on the batch, and the result may not");
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
        assert_string_equal(family->fits(&p.base, &h200, &wgmma),
                            "page_size is neither 16, 32, 64 nor a multiple of 64, as boxes of the "
                            "copy engine want it");
        assert_null(family->fits(&p.base, &h200, &mma));
    }
    p.q_len = 1024; /* 131072 rows: 2048 tiles of 64, 8192 of 16 */
    p.page_size = 64;
    assert_null(family->fits(&p.base, &h200, &wgmma));
    assert_string_equal(family->fits(&p.base, &h200, &mma),
                        "q_len * num_heads makes more than 2048 row tiles");
}

/* ---- how a batch is shared out ------------------------------------------ */

/* Grid, launches, and the schedule's numbers. */
static void expect_whole(const gen_plan *plan, uint32_t tiles, uint32_t parts)
{
    assert_int_equal(plan->num_launches, 1);
    assert_int_equal(plan->launch[0].grid[0], tiles);
    assert_int_equal(plan->launch[0].grid[1], parts);
    assert_int_equal(plan->launch[0].grid[2], 1);
    assert_int_equal(plan->dims[MLA_DECODE_NUM_PARTS], parts);
    assert_int_equal(plan->dims[MLA_DECODE_SNAP], INT32_MAX);
    assert_int_equal(plan->dims[MLA_DECODE_CHUNK], 0);
    assert_int_equal(plan->dims[MLA_DECODE_NUM_RECORDS], 0);
    assert_int_equal(plan->workspace_bytes, 0);
}

static void expect_cut(const gen_plan *plan, uint32_t tiles, uint32_t parts, int32_t records,
                       uint64_t rows)
{
    const uint64_t slots = 2 * parts;
    assert_int_equal(plan->num_launches, 2);
    assert_int_equal(plan->launch[0].grid[0], tiles);
    assert_int_equal(plan->launch[0].grid[1], parts);
    assert_int_equal(plan->launch[1].threads, 0); /* the merge's family fills it */
    assert_int_equal(plan->dims[MLA_DECODE_NUM_PARTS], parts);
    assert_int_equal(plan->dims[MLA_DECODE_NUM_RECORDS], records);
    assert_int_equal(plan->dims[MLA_DECODE_NUM_SLOTS], slots);
    assert_int_equal(plan->dims[MLA_DECODE_CHUNK], 0);
    assert_true(plan->dims[MLA_DECODE_SNAP] <= 2);
    const struct gen__mla_workspace w = gen__mla_decode_workspace(plan->dims);
    assert_int_equal(w.records % 256 + w.partial_rows % 256 + w.partial % 256, 0);
    assert_true(w.partial_rows >= w.records + (uint64_t)records * 16);
    assert_true(w.partial >= w.partial_rows + slots * rows * 16);
    assert_int_equal(w.size, w.partial + slots * rows * 1024);
    assert_int_equal(plan->workspace_bytes, w.size);
}

static void whole_requests_where_they_fill_the_gpu(void **state)
{
    (void)state;
    const struct gen__facts variant = mla_wgmma();
    gen_plan plan = planned(mla_problem(768, 16, 1024), &variant);
    expect_whole(&plan, 1, 132);
    plan = planned(mla_problem(768, 64, 2048), &variant);
    expect_whole(&plan, 1, 132);
    plan = planned(mla_problem(128, 16, 1024), &variant);
    expect_whole(&plan, 1, 128); /* one each */
    plan = planned(mla_problem(128, 64, 8192), &variant);
    expect_whole(&plan, 1, 128);
    assert_int_equal(plan.launch[0].variant, 5);
    assert_int_equal(plan.launch[0].threads, 384);
    assert_int_equal(plan.launch[0].shared, 224 * 1024);
}

static void long_requests_of_small_batches_are_cut(void **state)
{
    (void)state;
    const struct gen__facts variant = mla_wgmma();
    gen_plan plan = planned(mla_problem(1, 16, 32768), &variant);
    expect_cut(&plan, 1, 132, 1, 16);
    assert_int_equal(plan.dims[MLA_DECODE_BY_REQUEST], 1);
    plan = planned(mla_problem(16, 128, 8192), &variant);
    expect_cut(&plan, 2, 64, 16, 128); /* two row tiles; four equal pieces of each request */
    gen_mla_decode_problem p = mla_problem(16, 128, 8192);
    p.max_kv_len = 8256; /* lengths that differ: whatever parts there are */
    plan = planned(p, &variant);
    expect_cut(&plan, 2, 66, 16, 128);
    p = mla_problem(4, 126, 8192);
    p.q_len = 4;
    plan = planned(p, &variant); /* 504 rows: 8 tiles */
    expect_cut(&plan, 8, 16, 4, 504);
    /* 133 requests on 132 SMs would take two rounds. */
    plan = planned(mla_problem(133, 64, 8192), &variant);
    expect_cut(&plan, 1, 132, 132, 64);
    assert_int_equal(plan.dims[MLA_DECODE_BY_REQUEST], 0);
}

static void ragged_batches_are_cut(void **state)
{
    (void)state;
    const struct gen__facts variant = mla_wgmma();
    gen_mla_decode_problem p = mla_problem(768, 16, 1024);
    p.max_kv_len = 1087; /* a block more */
    gen_plan plan = planned(p, &variant);
    expect_cut(&plan, 1, 132, 132, 16);
    p.max_kv_len = 1024;
    plan = planned(p, &variant);
    expect_whole(&plan, 1, 132);
}

static void no_more_parts_than_work(void **state)
{
    (void)state;
    const struct gen__facts variant = mla_wgmma();
    gen_plan plan = planned(mla_problem(1, 16, 64), &variant);
    expect_whole(&plan, 1, 1);
    plan = planned(mla_problem(3, 128, 0), &variant);
    expect_whole(&plan, 2, 3);
    plan = planned(mla_problem(1, 16, 2048), &variant);
    expect_cut(&plan, 1, 32, 1, 16);
    gen_mla_decode_problem p = mla_problem(2, 128, 64);
    p.q_len = 1024; /* more row tiles than the GPU holds */
    plan = planned(p, &variant);
    expect_whole(&plan, 2048, 1);
}

static void several_blocks_an_sm(void **state)
{
    (void)state;
    const struct gen__facts variant = mla_mma(); /* 16 rows, two blocks */
    gen_plan plan = planned(mla_problem(1, 16, 131072), &variant);
    expect_cut(&plan, 1, 264, 1, 16);
    plan = planned(mla_problem(1, 40, 131072), &variant);
    expect_cut(&plan, 3, 88, 1, 40);
    /* Lengths that differ: one an SM, unless both have a block of 64 cache rows. */
    gen_mla_decode_problem p = mla_problem(14, 16, 1152);
    p.max_kv_len = 131072;
    plan = planned(p, &variant); /* 14 x 18 = 252 blocks */
    expect_cut(&plan, 1, 132, 14, 16);
    p.kv_len = 1216;
    plan = planned(p, &variant); /* 14 x 19 = 266: not below 264 */
    expect_cut(&plan, 1, 264, 14, 16);
    p = mla_problem(5, 40, 1088); /* three row tiles of 85 blocks */
    p.max_kv_len = 131072;
    plan = planned(p, &variant);
    expect_cut(&plan, 3, 44, 5, 40);
    p.kv_len = 1152; /* 90 */
    plan = planned(p, &variant);
    expect_cut(&plan, 3, 88, 5, 40);
    /* Even pieces fill all places, or are not more than there are SMs. */
    plan = planned(mla_problem(66, 16, 8192), &variant);
    expect_cut(&plan, 1, 264, 66, 16);
    plan = planned(mla_problem(92, 16, 8192), &variant); /* not 184 */
    expect_cut(&plan, 1, 264, 92, 16);
    plan = planned(mla_problem(131, 16, 8192), &variant); /* or nearly all */
    expect_cut(&plan, 1, 262, 131, 16);
    /* What is not cut has them all. */
    p = mla_problem(200, 16, 192);
    p.max_kv_len = 1024;
    p.base.max_workspace_mib = 1;
    plan = planned(p, &variant);
    expect_whole(&plan, 1, 200);
    p = mla_problem(200, 16, 128);
    p.max_kv_len = 256;
    p.base.flags = GEN_BATCH_INVARIANT; /* a chunk each */
    plan = planned(p, &variant);
    expect_whole(&plan, 1, 264);
    /* Nor does the estimate take one part an SM for half of its blocks: it rises with the work. */
    float before = 0;
    for (int32_t kv = 512; kv <= 32768; kv *= 2) {
        p = mla_problem(32, 16, kv);
        p.max_kv_len = 8 * kv;
        const float us = family->predict(&p.base, &h200, &variant);
        assert_true(us > before && (kv == 512 || us < 2.1f * before));
        before = us;
    }
}

/* The workspace stays where it is, whatever the lengths. */
static void workspace_is_bounded(void **state)
{
    (void)state;
    const struct gen__facts variant = mla_wgmma();
    uint64_t most = 0;
    for (int32_t length = 1024; length <= 1 << 24; length *= 2)
        for (int32_t batch = 1; batch <= 1024; batch *= 2) {
            gen_mla_decode_problem p = mla_problem(batch, 128, length / 2);
            p.max_kv_len = length;
            const uint64_t bytes = planned(p, &variant).workspace_bytes;
            most = bytes > most ? bytes : most;
        }
    assert_true(most > 0 && most < 18u << 20);
}

static void a_workspace_that_is_not_allowed_is_done_without(void **state)
{
    (void)state;
    const struct gen__facts variant = mla_wgmma();
    gen_mla_decode_problem p = mla_problem(4, 64, 32768);
    gen_plan plan = planned(p, &variant);
    expect_cut(&plan, 1, 132, 4, 64);
    const uint32_t mib = (uint32_t)(plan.workspace_bytes >> 20) + 1;
    p.base.max_workspace_mib = mib;
    plan = planned(p, &variant);
    expect_cut(&plan, 1, 132, 4, 64);
    assert_true(plan.workspace_bytes <= (uint64_t)mib << 20);
    p.base.max_workspace_mib = mib - 1;
    plan = planned(p, &variant);
    expect_whole(&plan, 1, 4);
    p.base.flags = GEN_BATCH_INVARIANT; /* a result may not hang on that */
    assert_true(planned(p, &variant).workspace_bytes > 0);
}

static void chunks_do_not_hang_on_the_batch(void **state)
{
    (void)state;
    const struct gen__facts variant = mla_wgmma();
    static const struct {
        int32_t max_kv_len, chunk, max_chunks;
    } cases[] = {
        {131072, 64, 32}, {131073, 65, 32}, {16384, 8, 32},
        {16385, 9, 29},   {1024, 8, 2},     {513, 8, 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int32_t batch = 1; batch <= 1000; batch = batch * 10) {
            gen_mla_decode_problem p = mla_problem(batch, 16, batch);
            p.max_kv_len = cases[i].max_kv_len;
            p.kv_len = p.kv_len < p.max_kv_len ? p.kv_len : p.max_kv_len;
            p.base.flags = GEN_BATCH_INVARIANT;
            const gen_plan plan = planned(p, &variant);
            assert_int_equal(plan.num_launches, 2);
            assert_int_equal(plan.dims[MLA_DECODE_CHUNK], cases[i].chunk);
            assert_int_equal(plan.dims[MLA_DECODE_MAX_CHUNKS], cases[i].max_chunks);
            assert_int_equal(plan.dims[MLA_DECODE_BY_REQUEST], 1);
            assert_int_equal(plan.dims[MLA_DECODE_NUM_RECORDS], batch);
            assert_int_equal(plan.dims[MLA_DECODE_NUM_SLOTS], batch * cases[i].max_chunks);
        }
    }
    gen_mla_decode_problem p = mla_problem(300, 16, 512); /* one chunk: whole requests */
    p.base.flags = GEN_BATCH_INVARIANT;
    const gen_plan plan = planned(p, &variant);
    assert_int_equal(plan.num_launches, 1);
    assert_int_equal(plan.dims[MLA_DECODE_SNAP], INT32_MAX);
    assert_int_equal(plan.workspace_bytes, 0);
}

/* Neither the variant nor its merge may. */
static void an_invariant_choice_forgets_the_batch(void **state)
{
    (void)state;
    const struct gen__facts variants[] = {mla_wgmma(), mla_mma()};
    gen_mla_decode_problem p = mla_problem(7, 16, 3000);
    struct gen__key first, key;
    p.max_kv_len = 9000;
    p.base.flags = GEN_BATCH_INVARIANT;
    assert_int_equal(family->check(&p.base, &first), GEN_OK);
    float us[2];
    for (int i = 0; i < 2; i++)
        us[i] = family->predict(&p.base, &h200, &variants[i]);
    for (p.batch = 1; p.batch < 3000; p.batch = 3 * p.batch + 1) {
        p.kv_len = p.batch == 13 ? p.max_kv_len : p.batch; /* all alike, or not */
        assert_int_equal(family->check(&p.base, &key), GEN_OK);
        for (uint32_t c = 0; c < family->num_coords; c++)
            assert_true(key.counts[c] == first.counts[c]);
        for (int i = 0; i < 2; i++)
            assert_true(family->predict(&p.base, &h200, &variants[i]) == us[i]);
        struct gen__part part[GEN_PLAN_MAX_LAUNCHES];
        struct gen__key merge_key;
        const gen_plan plan = planned(p, &variants[0]);
        assert_int_equal(family->parts(&p.base, &h200, &variants[0], &plan, part), 1);
        assert_int_equal(gen__family_mla_merge.check(&part[0].problem.base, &merge_key), GEN_OK);
        assert_true(merge_key.counts[0] == 64 * 16 && merge_key.counts[1] == 18);
    }
}

/* ---- the merge ---------------------------------------------------------- */

static void the_merge_of_what_is_cut(void **state)
{
    (void)state;
    const struct gen__facts variant = mla_wgmma();
    static const struct {
        int32_t batch, records, pieces;
    } cases[] = {{1, 1, 133}, {16, 16, 9}, {100, 100, 2}, {200, 132, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gen_mla_decode_problem p = mla_problem(cases[i].batch, 48, 20000);
        struct gen__part part[GEN_PLAN_MAX_LAUNCHES];
        struct gen__key key;
        p.max_kv_len = 30000;
        p.q_len = 1;
        p.dtype = GEN_DTYPE_FP16;
        p.base.flags = GEN_SERIAL_LAUNCH;
        p.base.max_workspace_mib = 1000;
        const gen_plan plan = planned(p, &variant);
        assert_int_equal(plan.launch[0].dependent, 0);
        assert_int_equal(family->parts(&p.base, &h200, &variant, &plan, part), 1);
        const gen_mla_merge_problem *m = (const gen_mla_merge_problem *)&part[0].problem.base;
        assert_int_equal(part[0].launch, 1);
        assert_int_equal(m->base.size, sizeof *m);
        assert_int_equal(m->base.family, GEN_MLA_MERGE);
        assert_int_equal(m->base.flags, GEN_SERIAL_LAUNCH);
        assert_int_equal(m->base.max_workspace_mib, 0);
        assert_int_equal(m->num_records, cases[i].records);
        assert_int_equal(m->num_heads, 48);
        assert_int_equal(m->q_len, 1);
        assert_int_equal(m->num_pieces, cases[i].pieces);
        assert_int_equal(m->dtype, GEN_DTYPE_FP16);
        assert_int_equal(gen__family_mla_merge.check(&m->base, &key), GEN_OK);
        assert_false(key.empty);
    }
    const gen_plan whole = planned(mla_problem(768, 16, 1024), &variant);
    struct gen__part none[GEN_PLAN_MAX_LAUNCHES];
    const gen_mla_decode_problem p = mla_problem(768, 16, 1024);
    assert_int_equal(family->parts(&p.base, &h200, &variant, &whole, none), 0);
    assert_int_equal(family->num_part_families, 1);
    assert_int_equal(family->part_families[0], GEN_MLA_MERGE);
}

static void on_the_cpu_there_is_nothing_to_merge(void **state)
{
    (void)state;
    const gen_plan plan = planned(mla_problem(1, 16, 32768), NULL);
    assert_int_equal(plan.num_launches, 1);
    assert_int_equal(plan.workspace_bytes, 0);
    assert_int_equal(plan.dims[MLA_DECODE_BATCH], 1);
    assert_int_equal(plan.dims[MLA_DECODE_KV_LEN], 32768);
    assert_int_equal(plan.dims[MLA_DECODE_CAUSAL], 0);
    assert_int_equal(plan.dims[MLA_DECODE_ROPE_DIM], 64);
}

static void dependent_launches(void **state)
{
    (void)state;
    struct gen__facts variant = mla_wgmma();
    gen_mla_decode_problem p = mla_problem(4, 64, 128);
    assert_int_equal(planned(p, &variant).launch[0].dependent, 1);
    p.base.flags = GEN_SERIAL_LAUNCH;
    assert_int_equal(planned(p, &variant).launch[0].dependent, 0);
    p.base.flags = 0;
    variant.fact[MLA_DECODE_DEPENDENT] = 0;
    assert_int_equal(planned(p, &variant).launch[0].dependent, 0);
}

/* ---- estimates ---------------------------------------------------------- */

/* Numbers that order: more work takes longer, tensor cores that nobody needs wait
 * for the memory, and no device or problem gives nonsense. */
static void estimates(void **state)
{
    (void)state;
    const struct gen__facts wgmma = mla_wgmma(), mma = mla_mma();
    const struct gen__facts *const variants[] = {&wgmma, &mma};
    gen_device unknown = {.size = sizeof unknown, .compute_capability = 90, .ordinal = -1};
    for (int v = 0; v < 2; v++) {
        float before = 0;
        for (int32_t length = 1024; length <= 131072; length *= 2) {
            const gen_mla_decode_problem p = mla_problem(16, 64, length);
            const float us = family->predict(&p.base, &h200, variants[v]);
            assert_true(isfinite(us) && us > before);
            before = us;
            assert_true(isfinite(family->predict(&p.base, &unknown, variants[v])));
        }
        gen_mla_decode_problem p = mla_problem(0, 16, 0);
        assert_true(family->predict(&p.base, &h200, variants[v]) > 0);
    }
    /* 128 requests of 8192 rows, 16 heads: 1.21 GB at 4.37 TB/s. */
    gen_mla_decode_problem p = mla_problem(128, 16, 8192);
    float us = family->predict(&p.base, &h200, &wgmma);
    assert_true(us > 275 && us < 310);
    /* 128 heads: the tensor cores bound the portable kernel. */
    p = mla_problem(128, 128, 8192);
    us = family->predict(&p.base, &h200, &wgmma);
    assert_true(us > 300 && family->predict(&p.base, &h200, &mma) > 1.5f * us);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(key_of_a_problem),
        cmocka_unit_test(check_errors),
        cmocka_unit_test(problems_as_text),
        cmocka_unit_test(what_fits),
        cmocka_unit_test(what_fits_in_clusters),
        cmocka_unit_test(whole_requests_where_they_fill_the_gpu),
        cmocka_unit_test(long_requests_of_small_batches_are_cut),
        cmocka_unit_test(ragged_batches_are_cut),
        cmocka_unit_test(no_more_parts_than_work),
        cmocka_unit_test(several_blocks_an_sm),
        cmocka_unit_test(workspace_is_bounded),
        cmocka_unit_test(a_workspace_that_is_not_allowed_is_done_without),
        cmocka_unit_test(chunks_do_not_hang_on_the_batch),
        cmocka_unit_test(an_invariant_choice_forgets_the_batch),
        cmocka_unit_test(the_merge_of_what_is_cut),
        cmocka_unit_test(on_the_cpu_there_is_nothing_to_merge),
        cmocka_unit_test(dependent_launches),
        cmocka_unit_test(estimates),
    };
    return cmocka_run_group_tests_name("mla_decode host", tests, NULL, NULL);
}
