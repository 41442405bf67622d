/*
 * attn_fwd on the host: which problems it allows and what it says where it does
 * not, geometry of a launch, and its estimate. Arguments: test_attn_fwd_args.c.
 */
#include "attn_fwd.h"

static const struct gen__family *const family = &gen__family_attn_fwd;

/* ---- the problem -------------------------------------------------------- */

static const char *mask_of(const gen_attn_fwd_problem *p)
{
    struct gen__key key;
    assert_int_equal(family->check(&p->base, &key), GEN_OK);
    return family->required[2].values[key.codes[2]];
}

static void key_of_a_problem(void **state)
{
    (void)state;
    gen_attn_fwd_problem p = attn_problem();
    struct gen__key key;
    assert_int_equal(family->check(&p.base, &key), GEN_OK);
    assert_string_equal(family->required[0].values[key.codes[0]], "bf16");
    assert_string_equal(family->required[1].values[key.codes[1]], "128");
    assert_true(key.counts[0] == 16 && key.counts[1] == 300 && key.counts[2] == 500 && !key.empty);
    p.base.flags = GEN_BATCH_INVARIANT;
    p.dtype = GEN_DTYPE_FP16;
    p.head_dim = 64;
    p.kv_len = 0;
    assert_int_equal(family->check(&p.base, &key), GEN_OK);
    assert_string_equal(family->required[0].values[key.codes[0]], "fp16");
    assert_string_equal(family->required[1].values[key.codes[1]], "64");
    assert_true(key.counts[0] == 32 && key.counts[2] == 1 && !key.empty);
    static const char *const names[] = {"e4m3", "e5m2"};
    for (int i = 0; i < 2; i++) {
        p.dtype = i ? GEN_DTYPE_E5M2 : GEN_DTYPE_E4M3;
        p.o_dtype = i ? GEN_DTYPE_BF16 : GEN_DTYPE_FP16;
        assert_int_equal(family->check(&p.base, &key), GEN_OK);
        assert_string_equal(family->required[0].values[key.codes[0]], names[i]);
    }
    p.q_len = 0;
    assert_int_equal(family->check(&p.base, &key), GEN_OK);
    assert_true(key.empty);
    assert_int_equal(attn_planned(&p, NULL).num_launches, 0);
    p = attn_problem();
    p.batch = 0;
    assert_int_equal(family->check(&p.base, &key), GEN_OK);
    assert_true(key.empty);
}

static void masks(void **state)
{
    (void)state;
    gen_attn_fwd_problem p = attn_problem();
    assert_string_equal(mask_of(&p), "full");
    p.causal = 1;
    assert_string_equal(mask_of(&p), "causal");
    p.left_window = 1;
    assert_string_equal(mask_of(&p), "any");
    p.left_window = 0;
    p.right_window = 1; /* says no more than causal */
    assert_string_equal(mask_of(&p), "causal");
    p.causal = 0;
    assert_string_equal(mask_of(&p), "any");
    p.right_window = 0;
    p.causal = 1;
    p.varlen = 1;
    assert_string_equal(mask_of(&p), "any");
    p.varlen = 0;
    p.softcap = 1;
    assert_string_equal(mask_of(&p), "any");
}

static void check_errors(void **state)
{
    (void)state;
    static const struct {
        size_t offset;
        int32_t value;
        const char *message;
    } cases[] = {
#define AT(field) offsetof(gen_attn_fwd_problem, field)
        {AT(batch), -1, "batch = -1; allowed: 0 to 16777216"},
        {AT(batch), 16777217, "batch = 16777217; allowed: 0 to 16777216"},
        {AT(num_q_heads), 0, "head count num_q_heads = 0; allowed: 1 to 1024"},
        {AT(num_q_heads), 1025, "head count num_q_heads = 1025; allowed: 1 to 1024"},
        {AT(num_kv_heads), 0, "head count num_kv_heads = 0; allowed: 1 to 1024"},
        {AT(num_kv_heads), 3,
         "num_q_heads = 8, num_kv_heads = 3; allowed: a multiple of num_kv_heads"},
        {AT(num_kv_heads), 16,
         "num_q_heads = 8, num_kv_heads = 16; allowed: a multiple of num_kv_heads"},
        {AT(q_len), -1, "q_len = -1; allowed: 0 to 16777216"},
        {AT(q_len), 16777217, "q_len = 16777217; allowed: 0 to 16777216"},
        {AT(kv_len), -5, "kv_len = -5; allowed: 0 to 16777216"},
        {AT(kv_len), 16777217, "kv_len = 16777217; allowed: 0 to 16777216"},
        {AT(head_dim), 96, "head_dim = 96; allowed: 64, 128, 256"},
        {AT(dtype), GEN_DTYPE_FP32,
         "dtype = 2; allowed: GEN_DTYPE_BF16 (0), GEN_DTYPE_FP16 (1), GEN_DTYPE_E4M3 (4), "
         "GEN_DTYPE_E5M2 (5)"},
        {AT(o_dtype), GEN_DTYPE_FP16,
         "o_dtype = 1; allowed: 0, or what dtype is; another only where dtype has 8 bits"},
        {AT(causal), 2, "causal = 2; allowed: 0, 1"},
        {AT(left_window), -1,
         "left_window = -1; allowed: 0 (none), 1 (the query's own key alone) to 16777217"},
        {AT(left_window), 16777218,
         "left_window = 16777218; allowed: 0 (none), 1 (the query's own key alone) to 16777217"},
        {AT(right_window), -1,
         "right_window = -1; allowed: 0 (none), 1 (the query's own key alone) to 16777217"},
        {AT(varlen), -1, "varlen = -1; allowed: 0, 1"},
        {AT(softcap), 5, "softcap = 5; allowed: 0, 1"},
        {AT(batch), 16777216,
         "batch * num_q_heads * ceil(q_len / 64) = 671088640; allowed: <= 268435456"},
#undef AT
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gen_attn_fwd_problem p = attn_problem();
        struct gen__key key;
        char message[256];
        memcpy((char *)&p + cases[i].offset, &cases[i].value, sizeof cases[i].value);
        snprintf(message, sizeof message, "attn_fwd: %s", cases[i].message);
        assert_failed(family->check(&p.base, &key), INVALID_ARGUMENT, message);
    }
}

static void check_errors_of_two_fields(void **state)
{
    (void)state;
    gen_attn_fwd_problem p = attn_problem();
    struct gen__key key;
    p.dtype = GEN_DTYPE_E4M3;
    p.o_dtype = GEN_DTYPE_FP32;
    assert_failed(family->check(&p.base, &key), INVALID_ARGUMENT,
                  "attn_fwd: o_dtype = 2; allowed: GEN_DTYPE_BF16 (0), GEN_DTYPE_FP16 (1)");
    p.dtype = GEN_DTYPE_BF16;
    p.o_dtype = GEN_DTYPE_BF16;
    p.causal = 1;
    p.right_window = 2;
    assert_failed(family->check(&p.base, &key), INVALID_ARGUMENT,
                  "attn_fwd: right_window = 2; allowed: 0 (none), 1 with causal");
    p.right_window = 1;
    assert_int_equal(family->check(&p.base, &key), GEN_OK);
}

/* ---- geometry ----------------------------------------------------------- */

static void geometry(void **state)
{
    (void)state;
    gen_attn_fwd_problem p = attn_problem();
    const struct gen__facts one = attn_hopper(0), many = attn_hopper(1), small = attn_portable();
    gen_plan plan = attn_planned(&p, &one);
    assert_int_equal(plan.num_launches, 1);
    assert_int_equal(plan.launch[0].variant, 3);
    assert_int_equal(plan.launch[0].grid[0], 2 * 8 * 3); /* 300 rows: three tiles of 128 */
    assert_int_equal(plan.launch[0].threads, 384);
    assert_int_equal(plan.launch[0].dependent, 1);
    assert_int_equal(plan.dims[ATTN_FWD_MAP_ROWS], 128);
    assert_int_equal(plan.dims[ATTN_FWD_HEAD_UNITS], 3);
    assert_int_equal(plan.dims[ATTN_FWD_PAIRED], 0);
    assert_int_equal(plan.workspace_bytes, 0);
    plan = attn_planned(&p, &small);
    assert_int_equal(plan.launch[0].grid[0], 2 * 8 * 5);
    assert_int_equal(plan.dims[ATTN_FWD_MAP_ROWS], 0); /* no tensor maps */
    assert_int_equal(attn_planned(&p, &many).launch[0].grid[0], 48);
    p.q_len = 3000;
    assert_int_equal(attn_planned(&p, &many).launch[0].grid[0], 132);
    /* Causal tiles of persistent blocks go in pairs: 24 of a head are 12, 23 are 12, too. */
    p.causal = 1;
    plan = attn_planned(&p, &many);
    assert_int_equal(plan.dims[ATTN_FWD_PAIRED], 1);
    assert_int_equal(plan.dims[ATTN_FWD_ROW_TILES], 24);
    assert_int_equal(plan.dims[ATTN_FWD_HEAD_UNITS], 12);
    p.q_len = 23 * 128;
    assert_int_equal(attn_planned(&p, &many).dims[ATTN_FWD_HEAD_UNITS], 12);
    assert_int_equal(attn_planned(&p, &one).dims[ATTN_FWD_PAIRED], 0);
    p.base.flags = GEN_SERIAL_LAUNCH;
    assert_int_equal(attn_planned(&p, &many).launch[0].dependent, 0);
}

/* Same kernel for a request whatever its mates, and none that looks at theirs. */
static void batch_invariance(void **state)
{
    (void)state;
    gen_attn_fwd_problem p = attn_problem();
    const struct gen__facts many = attn_hopper(1), small = attn_portable();
    struct gen__key key, other;
    p.varlen = 1;
    assert_null(family->fits(&p.base, &h200, &many));
    p.base.flags = GEN_BATCH_INVARIANT;
    assert_null(family->fits(&p.base, &h200, &small));
    assert_string_equal(
        family->fits(&p.base, &h200, &many),
        "with varlen a request's last bits depend on the next request's queries: not "
        "batch-invariant");
    p.varlen = 0;
    assert_null(family->fits(&p.base, &h200, &many));
    gen_attn_fwd_problem q = p;
    q.batch = 64;
    assert_int_equal(family->check(&p.base, &key), GEN_OK);
    assert_int_equal(family->check(&q.base, &other), GEN_OK);
    assert_memory_equal(key.counts, other.counts, family->num_coords * sizeof *key.counts);
    assert_true(family->predict(&p.base, &h200, &many) == family->predict(&q.base, &h200, &many));
    assert_true(family->predict(&p.base, &h200, &small) == family->predict(&q.base, &h200, &small));
    p.varlen = q.varlen = 1; /* then lengths are the longest request's */
    q.q_len = 9000;
    q.kv_len = 17;
    assert_int_equal(family->check(&p.base, &key), GEN_OK);
    assert_int_equal(family->check(&q.base, &other), GEN_OK);
    assert_memory_equal(key.counts, other.counts, family->num_coords * sizeof *key.counts);
    assert_true(family->predict(&p.base, &h200, &small) == family->predict(&q.base, &h200, &small));
    p.varlen = 0; /* here they are its own */
    p.q_len = 9000;
    assert_int_equal(family->check(&p.base, &key), GEN_OK);
    assert_true(key.counts[1] == 9000);
    p = attn_problem();
    q = p;
    q.batch = 64;
    assert_true(family->predict(&p.base, &h200, &many) < family->predict(&q.base, &h200, &many));
}

/* Heads of a section share the L2 cache: 37.5 MiB of the H200's. */
static void sections(void **state)
{
    (void)state;
    static const struct {
        int32_t batch, kv_len, section;
    } cases[] = {
        {2, 500, 16},    /* all 16 heads, 256,000 bytes each */
        {64, 500, 256},  /* 153 fit: 128, and each has two query heads */
        {64, 8192, 16},  /* 4 MiB each: 9 fit, so 8 */
        {64, 65536, 2},  /* 32 MiB: one */
        {64, 1 << 20, 2} /* none fits: the heads that share keys, at least */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gen_attn_fwd_problem p = attn_problem();
        const struct gen__facts v = attn_hopper(0);
        p.batch = cases[i].batch;
        p.kv_len = cases[i].kv_len;
        assert_int_equal(attn_planned(&p, &v).dims[ATTN_FWD_SECTION], cases[i].section);
    }
}

/* ---- orders of tiles ---------------------------------------------------- */

/* With causality the shortest tiles of all heads come behind all sections, where there are several.
 */
static void short_tiles_last(void **state)
{
    (void)state;
    static const struct {
        int32_t heads, q_len, kv_len, rows, units;
    } cases[] = {
        {32, 1024, 1024, 192, 2},  /* 64 and 256 keys of 422; the next tile has 448 */
        {32, 1024, 1024, 128, 2},  /* 128 and 256 */
        {32, 4096, 4096, 192, 4},  /* 64, 256, 448 and 640 of 1,689 */
        {32, 1000, 3000, 128, 0},  /* the first tile has 2,104 of 1,237 */
        {32, 3000, 1000, 192, 12}, /* ten see no key, the next ones 48 and 240 */
        {8, 1024, 1024, 192, 0},   /* one section */
        {2000, 150, 1024, 192, 0}  /* one tile a head */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gen_attn_fwd_problem p = attn_problem();
        const struct gen__facts v = attn_shape(cases[i].rows, 64);
        p.batch = 4, p.num_q_heads = p.num_kv_heads = cases[i].heads;
        p.q_len = cases[i].q_len, p.kv_len = cases[i].kv_len;
        assert_int_equal(attn_planned(&p, &v).dims[ATTN_FWD_SHORT_UNITS], 0); /* no causality */
        p.causal = 1;
        gen_plan plan = attn_planned(&p, &v);
        assert_int_equal(plan.dims[ATTN_FWD_SHORT_UNITS], cases[i].units);
        struct gen_attn_fwd_params k;
        gen_attn_fwd_args a = attn_args(&p);
        plan.dims[ATTN_FWD_MAP_ROWS] = 0; /* tensor maps want a driver */
        assert_int_equal(family->params(&plan, 0, &a.base, NULL, &k), GEN_OK);
        assert_int_equal(k.schedule.short_units, cases[i].units);
        plan.dims[ATTN_FWD_SHORT_UNITS] = plan.dims[ATTN_FWD_HEAD_UNITS]; /* none is left */
        assert_int_equal(family->params(&plan, 0, &a.base, NULL, &k), GEN_STATUS_MISMATCH);
        p.left_window = 101;
        assert_int_equal(attn_planned(&p, &v).dims[ATTN_FWD_SHORT_UNITS], 0);
        p.left_window = 0, p.varlen = 1;
        assert_int_equal(attn_planned(&p, &v).dims[ATTN_FWD_SHORT_UNITS], 0);
        struct gen__facts shares = v; /* in pairs, which are alike */
        shares.fact[ATTN_FWD_DYNAMIC] = 0;
        p.varlen = 0;
        assert_int_equal(attn_planned(&p, &shares).dims[ATTN_FWD_SHORT_UNITS], 0);
    }
}

/* Blocks that take tiles one by one, longest first, count them in a word of workspace. */
static void taken_as_needed(void **state)
{
    (void)state;
    gen_attn_fwd_problem p = attn_problem();
    const struct gen__facts dynamic = attn_asking(), many = attn_hopper(1);
    p.q_len = 3000;
    for (p.causal = 0; p.causal < 2; p.causal++) {
        const gen_plan plan = attn_planned(&p, &dynamic);
        assert_int_equal(plan.workspace_bytes, 8);
        assert_int_equal(plan.launch[0].grid[0], 132);
        assert_int_equal(plan.dims[ATTN_FWD_PAIRED], 0);
        assert_int_equal(plan.dims[ATTN_FWD_HEAD_UNITS], 24);
        gen_attn_fwd_args a = attn_args(&p);
        struct gen_attn_fwd_params k;
        unsigned long long word = 0;
        gen_plan portable_map = plan; /* no tensor maps: there is no driver */
        portable_map.dims[ATTN_FWD_MAP_ROWS] = 0;
        assert_int_equal(family->params(&portable_map, 0, &a.base, &word, &k), GEN_OK);
        assert_ptr_equal(k.tickets, &word);
        assert_int_equal(k.schedule.num_units, 16 * 24);
        assert_int_equal(k.schedule.descending, p.causal);
        assert_int_equal(k.schedule.paired, 0);
        assert_int_equal(attn_planned(&p, &many).workspace_bytes, 0);
    }
    p.q_len = 100; /* no more blocks than tiles: each has one that needs no ticket */
    assert_int_equal(attn_planned(&p, &dynamic).launch[0].grid[0], 16);
    p.q_len = 0;
    assert_int_equal(attn_planned(&p, &dynamic).workspace_bytes, 0);
    /* In the estimate they balance what pairs do not. */
    p = attn_problem();
    p.batch = 4;
    p.num_q_heads = p.num_kv_heads = 32;
    p.q_len = p.kv_len = 2048;
    p.causal = 1;
    assert_true(family->predict(&p.base, &h200, &dynamic) < family->predict(&p.base, &h200, &many));
}

/* Clusters of two blocks: a unit is two row tiles, the second of which need not exist. */
static void clusters_of_two(void **state)
{
    (void)state;
    gen_attn_fwd_problem p = attn_problem();
    const struct gen__facts many = attn_hopper(1);
    struct gen__facts twin = attn_hopper(1);
    gen_device odd = h200;
    twin.cluster = 2;
    gen_plan plan = attn_planned(&p, &twin); /* 300 rows: three tiles of 128 are two units */
    assert_int_equal(plan.dims[ATTN_FWD_ROW_TILES], 3);
    assert_int_equal(plan.dims[ATTN_FWD_HEAD_UNITS], 2);
    assert_int_equal(plan.launch[0].grid[0], 2 * 16 * 2);
    assert_int_equal(plan.workspace_bytes, 0);
    p.q_len = 3000;
    plan = attn_planned(&p, &twin);
    assert_int_equal(plan.launch[0].grid[0], 132);
    assert_int_equal(plan.dims[ATTN_FWD_HEAD_UNITS], 12);
    assert_int_equal(plan.dims[ATTN_FWD_PAIRED], 0);
    /* No half a cluster. */
    odd.num_sms = 17;
    memset(&plan, 0, sizeof plan);
    family->plan(&p.base, &odd, &twin, &plan);
    assert_int_equal(plan.launch[0].grid[0], 16);
    /* In the estimate they are faster where two row tiles exist, and slower where one does. */
    p = attn_problem();
    p.batch = 4;
    p.num_q_heads = p.num_kv_heads = 32;
    p.q_len = p.kv_len = 1024;
    assert_true(family->predict(&p.base, &h200, &twin) < family->predict(&p.base, &h200, &many));
    p.q_len = 128;
    assert_true(family->predict(&p.base, &h200, &twin) > family->predict(&p.base, &h200, &many));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(key_of_a_problem), cmocka_unit_test(masks),
        cmocka_unit_test(check_errors),     cmocka_unit_test(check_errors_of_two_fields),
        cmocka_unit_test(geometry),         cmocka_unit_test(taken_as_needed),
        cmocka_unit_test(clusters_of_two),  cmocka_unit_test(batch_invariance),
        cmocka_unit_test(sections),         cmocka_unit_test(short_tiles_last),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
