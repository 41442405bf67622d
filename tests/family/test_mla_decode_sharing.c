/*
 * mla_decode on the host: how a batch is partitioned, what is merged, and the estimates.
 */
#include "mla.h"

static const struct gen__family *const family = &gen__family_mla_decode;

/* ---- how a batch is partitioned ------------------------------------------ */

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
    gen_plan plan = mla_planned(mla_problem(768, 16, 1024), &variant);
    expect_whole(&plan, 1, 132);
    plan = mla_planned(mla_problem(768, 64, 2048), &variant);
    expect_whole(&plan, 1, 132);
    plan = mla_planned(mla_problem(128, 16, 1024), &variant);
    expect_whole(&plan, 1, 128); /* one each */
    plan = mla_planned(mla_problem(128, 64, 8192), &variant);
    expect_whole(&plan, 1, 128);
    assert_int_equal(plan.launch[0].variant, 5);
    assert_int_equal(plan.launch[0].threads, 384);
    assert_int_equal(plan.launch[0].shared, 224 * 1024);
}

static void long_requests_of_small_batches_are_cut(void **state)
{
    (void)state;
    const struct gen__facts variant = mla_wgmma();
    gen_plan plan = mla_planned(mla_problem(1, 16, 32768), &variant);
    expect_cut(&plan, 1, 132, 1, 16);
    assert_int_equal(plan.dims[MLA_DECODE_BY_REQUEST], 1);
    plan = mla_planned(mla_problem(16, 128, 8192), &variant);
    expect_cut(&plan, 2, 64, 16, 128); /* two row tiles; four equal pieces of each request */
    gen_mla_decode_problem p = mla_problem(16, 128, 8192);
    p.max_kv_len = 8256; /* lengths that differ: whatever parts there are */
    plan = mla_planned(p, &variant);
    expect_cut(&plan, 2, 66, 16, 128);
    p = mla_problem(4, 126, 8192);
    p.q_len = 4;
    plan = mla_planned(p, &variant); /* 504 rows: 8 tiles */
    expect_cut(&plan, 8, 16, 4, 504);
    /* 133 requests on 132 SMs would take two rounds. */
    plan = mla_planned(mla_problem(133, 64, 8192), &variant);
    expect_cut(&plan, 1, 132, 132, 64);
    assert_int_equal(plan.dims[MLA_DECODE_BY_REQUEST], 0);
}

static void ragged_batches_are_cut(void **state)
{
    (void)state;
    const struct gen__facts variant = mla_wgmma();
    gen_mla_decode_problem p = mla_problem(768, 16, 1024);
    p.max_kv_len = 1087; /* a block more */
    gen_plan plan = mla_planned(p, &variant);
    expect_cut(&plan, 1, 132, 132, 16);
    p.max_kv_len = 1024;
    plan = mla_planned(p, &variant);
    expect_whole(&plan, 1, 132);
}

static void no_more_parts_than_work(void **state)
{
    (void)state;
    const struct gen__facts variant = mla_wgmma();
    gen_plan plan = mla_planned(mla_problem(1, 16, 64), &variant);
    expect_whole(&plan, 1, 1);
    plan = mla_planned(mla_problem(3, 128, 0), &variant);
    expect_whole(&plan, 2, 3);
    plan = mla_planned(mla_problem(1, 16, 2048), &variant);
    expect_cut(&plan, 1, 32, 1, 16);
    gen_mla_decode_problem p = mla_problem(2, 128, 64);
    p.q_len = 1024; /* more row tiles than the GPU holds */
    plan = mla_planned(p, &variant);
    expect_whole(&plan, 2048, 1);
}

static void several_blocks_an_sm(void **state)
{
    (void)state;
    const struct gen__facts variant = mla_mma(); /* 16 rows, two blocks */
    gen_plan plan = mla_planned(mla_problem(1, 16, 131072), &variant);
    expect_cut(&plan, 1, 264, 1, 16);
    plan = mla_planned(mla_problem(1, 40, 131072), &variant);
    expect_cut(&plan, 3, 88, 1, 40);
    /* Lengths that differ: one an SM, unless both have a block of 64 cache rows. */
    gen_mla_decode_problem p = mla_problem(14, 16, 1152);
    p.max_kv_len = 131072;
    plan = mla_planned(p, &variant); /* 14 x 18 = 252 blocks */
    expect_cut(&plan, 1, 132, 14, 16);
    p.kv_len = 1216;
    plan = mla_planned(p, &variant); /* 14 x 19 = 266: not below 264 */
    expect_cut(&plan, 1, 264, 14, 16);
    p = mla_problem(5, 40, 1088); /* three row tiles of 85 blocks */
    p.max_kv_len = 131072;
    plan = mla_planned(p, &variant);
    expect_cut(&plan, 3, 44, 5, 40);
    p.kv_len = 1152; /* 90 */
    plan = mla_planned(p, &variant);
    expect_cut(&plan, 3, 88, 5, 40);
    /* Even pieces fill all places, or are not more than there are SMs. */
    plan = mla_planned(mla_problem(66, 16, 8192), &variant);
    expect_cut(&plan, 1, 264, 66, 16);
    plan = mla_planned(mla_problem(92, 16, 8192), &variant); /* not 184 */
    expect_cut(&plan, 1, 264, 92, 16);
    plan = mla_planned(mla_problem(131, 16, 8192), &variant); /* or nearly all */
    expect_cut(&plan, 1, 262, 131, 16);
    /* What is not cut has them all. */
    p = mla_problem(200, 16, 192);
    p.max_kv_len = 1024;
    p.base.max_workspace_mib = 1;
    plan = mla_planned(p, &variant);
    expect_whole(&plan, 1, 200);
    p = mla_problem(200, 16, 128);
    p.max_kv_len = 256;
    p.base.flags = GEN_BATCH_INVARIANT; /* a chunk each */
    plan = mla_planned(p, &variant);
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
            const uint64_t bytes = mla_planned(p, &variant).workspace_bytes;
            most = bytes > most ? bytes : most;
        }
    assert_true(most > 0 && most < 18u << 20);
}

static void a_workspace_that_is_not_allowed_is_done_without(void **state)
{
    (void)state;
    const struct gen__facts variant = mla_wgmma();
    gen_mla_decode_problem p = mla_problem(4, 64, 32768);
    gen_plan plan = mla_planned(p, &variant);
    expect_cut(&plan, 1, 132, 4, 64);
    const uint32_t mib = (uint32_t)(plan.workspace_bytes >> 20) + 1;
    p.base.max_workspace_mib = mib;
    plan = mla_planned(p, &variant);
    expect_cut(&plan, 1, 132, 4, 64);
    assert_true(plan.workspace_bytes <= (uint64_t)mib << 20);
    p.base.max_workspace_mib = mib - 1;
    plan = mla_planned(p, &variant);
    expect_whole(&plan, 1, 4);
    p.base.flags = GEN_BATCH_INVARIANT; /* a result may not depend on that */
    assert_true(mla_planned(p, &variant).workspace_bytes > 0);
}

static void chunks_do_not_hang_on_the_batch(void **state)
{
    (void)state;
    const struct gen__facts variant = mla_wgmma();
    static const struct {
        int32_t max_kv_len, chunk, max_chunks;
    } cases[] = {
        {131072, 8, 256}, {131073, 8, 257}, {16384, 8, 32},        {16385, 8, 33},
        {1024, 8, 2},     {513, 8, 2},      {1 << 24, 8, 1 << 15},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int32_t batch = 1; batch <= 1000; batch = batch * 10) {
            gen_mla_decode_problem p = mla_problem(batch, 16, batch);
            p.max_kv_len = cases[i].max_kv_len;
            p.kv_len = p.kv_len < p.max_kv_len ? p.kv_len : p.max_kv_len;
            p.base.flags = GEN_BATCH_INVARIANT;
            const gen_plan plan = mla_planned(p, &variant);
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
    const gen_plan plan = mla_planned(p, &variant);
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
        p.max_kv_len = 3000 * p.batch;                     /* that of the longest one */
        p.kv_len = p.batch == 13 ? p.max_kv_len : p.batch; /* all alike, or not */
        assert_int_equal(family->check(&p.base, &key), GEN_OK);
        for (uint32_t c = 0; c < family->num_coords; c++)
            assert_true(key.counts[c] == first.counts[c]);
        for (int i = 0; i < 2; i++)
            assert_true(family->predict(&p.base, &h200, &variants[i]) == us[i]);
        struct gen__part part[GEN_PLAN_MAX_LAUNCHES];
        struct gen__key merge_key;
        const gen_plan plan = mla_planned(p, &variants[0]);
        assert_int_equal(family->parts(&p.base, &h200, &variants[0], &plan, part), 1);
        assert_int_equal(gen__family_mla_merge.check(&part[0].problem.base, &merge_key), GEN_OK);
        assert_true(merge_key.counts[0] == 64 * 16 && merge_key.counts[1] == 16);
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
        const gen_plan plan = mla_planned(p, &variant);
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
    const gen_plan whole = mla_planned(mla_problem(768, 16, 1024), &variant);
    struct gen__part none[GEN_PLAN_MAX_LAUNCHES];
    const gen_mla_decode_problem p = mla_problem(768, 16, 1024);
    assert_int_equal(family->parts(&p.base, &h200, &variant, &whole, none), 0);
    assert_int_equal(family->num_part_families, 1);
    assert_int_equal(family->part_families[0], GEN_MLA_MERGE);
}

static void on_the_cpu_there_is_nothing_to_merge(void **state)
{
    (void)state;
    const gen_plan plan = mla_planned(mla_problem(1, 16, 32768), NULL);
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
    assert_int_equal(mla_planned(p, &variant).launch[0].dependent, 1);
    p.base.flags = GEN_SERIAL_LAUNCH;
    assert_int_equal(mla_planned(p, &variant).launch[0].dependent, 0);
    p.base.flags = 0;
    variant.fact[MLA_DECODE_DEPENDENT] = 0;
    assert_int_equal(mla_planned(p, &variant).launch[0].dependent, 0);
}

/* ---- estimates ---------------------------------------------------------- */

/* Numbers that order: more work takes longer, tensor cores without work wait
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
    return cmocka_run_group_tests_name("mla_decode sharing", tests, NULL, NULL);
}
