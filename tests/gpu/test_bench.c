/* What the bench programs are made of, as far as it needs no GPU. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "buffers.h"
#include "contest.h"
#include "problems.h"
#include "tournament.h"
#include "tune.h"
#include "verify.h"
#include "util.h"
#include "worker.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern const struct gen__family gen__family_attn_fwd;

static char *scratch(const char *name)
{
    return xasprintf("%s/%s", SCRATCH_DIR, name);
}

static void write_text(const char *path, const char *text)
{
    assert_true(file_write(path, text, strlen(text)));
}

static void assert_near(double a, double b)
{
    if (!(fabs(a - b) <= 1e-9 * (1 + fabs(b))))
        fail_msg("%.17g is not %.17g", a, b);
}

/* ---- statistics -------------------------------------------------------- */

static void quantiles_interpolate(void **state)
{
    double odd[] = {5, 1, 3}, even[] = {4, 1, 3, 2}, five[] = {50, 10, 40, 20, 30};
    const double values[] = {1, 4};
    (void)state;
    assert_near(stats_median(odd, 3), 3);
    assert_near(stats_median(even, 4), 2.5);
    assert_near(stats_quantile(five, 5, 0), 10);
    assert_near(stats_quantile(five, 5, 1), 50);
    assert_near(stats_quantile(five, 5, 0.9), 46);
    assert_near(stats_spread(five, 5), 20.0 / 30);
    assert_near(stats_geomean(values, 2), 2);
    assert_near(stats_median(NULL, 0), 0);
}

static void random_numbers_repeat_and_stay_inside(void **state)
{
    struct rng a, b;
    double sum = 0, squares = 0;
    (void)state;
    rng_seed(&a, 7);
    rng_seed(&b, 7);
    for (int i = 0; i < 20000; i++) {
        double x = rng_normal(&a);
        assert_near(x, rng_normal(&b));
        sum += x;
        squares += x * x;
        assert_true(rng_below(&a, 5) < 5);
        assert_true(rng_below(&b, 5) < 5);
    }
    assert_true(fabs(sum / 20000) < 0.03);
    assert_true(fabs(squares / 20000 - 1) < 0.05);
}

/* ---- problems ---------------------------------------------------------- */

static const struct gen__family *family(void)
{
    return gen__family_by_name("la_decode");
}

static void shape_files_name_their_bad_lines(void **state)
{
    struct shape_list list = {0};
    char *path = scratch("shapes.txt");
    (void)state;
    write_text(path, "# a comment\n\nbatch=2 num_qk_heads=4 @pad # a model\n"
                     "batch=-1\nnonsense\nbatch=3 num_qk_heads=4 layout=kv\n");
    assert_int_equal(shapes_read(&list, family(), SHAPES_VERIFIED, path), 2);
    assert_int_equal(list.count, 2);
    assert_string_equal(list.item[0].controls, "@pad");
    assert_string_equal(list.item[0].note, "a model");
    assert_string_equal(list.item[1].name, "B3-H4-K128-V128-kv");
    assert_int_equal(shapes_read(&list, family(), SHAPES_TIMED, "/nonexistent"), -1);
    shapes_free(&list);
    free(path);
}

/* A word that no program would heed is an error, with the words of its kind. */
static void unknown_words_are_errors(void **state)
{
    static const struct {
        enum shape_use use;
        const char *word, *message;
    } bad[] = {
        {SHAPES_TIMED, "@scatterd",
         "unknown word '@scatterd' in a list of shapes; allowed: "
         "@scattered, @serial"},
        {SHAPES_TIMED, "@serially", "unknown word '@serially'"},
        {SHAPES_TIMED, "@", "unknown word '@'"},
        {SHAPES_TIMED, "@pad", "unknown word '@pad' in a list of shapes"},
        {SHAPES_VERIFIED, "@serial",
         "unknown word '@serial' in a list of checks; allowed: @pad, "
         "@nan, @tiny, @invariant, @form="},
        {SHAPES_VERIFIED, "@form=none", "unknown word '@form=none'"},
        {SHAPES_VERIFIED, "@form=", "unknown word '@form='"},
        {SHAPES_VERIFIED, "@pad @pad @pad @pad @pad @pad @pad @pad @pad @pad @pad @pad @pad",
         "take 64 bytes; allowed: 63"},
    };
    struct shape_list list = {0};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char *words = xasprintf("batch=2 %s num_qk_heads=4", bad[i].word);
        assert_false(shapes_parse(&list, family(), bad[i].use, words));
        if (!strstr(gen_last_error(), bad[i].message))
            fail_msg("'%s' is not in '%s'", bad[i].message, gen_last_error());
        free(words);
    }
    assert_int_equal(list.count, 0);
    assert_true(shapes_parse(&list, family(), SHAPES_TIMED, "batch=2 @scattered,@serial"));
    assert_string_equal(list.item[0].controls, "@scattered @serial");
    assert_true(list.item[0].problem->flags & GEN_SERIAL_LAUNCH);
    assert_true(shapes_parse(&list, family(), SHAPES_VERIFIED, "@form=strides batch=2 @nan"));
    assert_string_equal(list.item[1].controls, "@form=strides @nan");
    shapes_free(&list);
}

/* A line's problem of another dtype: what follows the dtype goes along, what was set does not. */
static void what_follows_a_field_goes_along(void **state)
{
    const struct gen__family *prefill = gen__family_by_name("kda_prefill");
    gen_problem *p = xmalloc(prefill->problem_size);
    char text[512];
    (void)state;
    assert_int_equal(gen__problem_parse(prefill, "beta_dtype=bf16", p), GEN_OK);
    assert_true(problem_set(prefill, p, "dtype", "fp16"));
    gen__problem_format(prefill, p, text, sizeof text);
    assert_non_null(strstr(text, " dtype=fp16 gate_dtype=fp16 beta_dtype=bf16 "));
    assert_int_equal(gen__problem_parse(prefill, "gate_dtype=fp32", p), GEN_OK);
    assert_true(problem_set(prefill, p, "dtype", "fp16"));
    gen__problem_format(prefill, p, text, sizeof text);
    assert_non_null(strstr(text, " dtype=fp16 gate_dtype=fp32 beta_dtype=fp32 "));
    assert_false(problem_set(prefill, p, "dtype", "fp8"));
    free(p);
}

static void the_shape_file_holds_the_published_cases(void **state)
{
    static const int batches[] = {1, 4, 16, 32, 64, 128, 256};
    struct shape_list list = {0};
    (void)state;
    assert_int_equal(shapes_read_default(&list, family(), SHAPES_TIMED), 0);
    assert_string_equal(list.item[0].name, "B64-H64-K128-V128-vk");
    for (size_t b = 0; b < 7; b++) {
        static const char *const forms[] = {"B%d-H64-K128-V128-vk", "B%d-H32-K128-V128-vk",
                                            "B%d-H64-K128-V128-kv"};
        for (size_t f = 0; f < 3; f++) {
            char name[64];
            bool found = false;
            snprintf(name, sizeof name, forms[f], batches[b]);
            for (size_t i = 0; i < list.count; i++)
                found = found || strcmp(list.item[i].name, name) == 0;
            if (!found)
                fail_msg("no case %s", name);
        }
    }
    shapes_free(&list);
}

/* Twelve keys, and for each half-octaves from 8 to 16384 states where small
 * whole numbers allow. */
static void the_grid_spans_the_shapes(void **state)
{
    struct shape_list shapes = {0}, grid = {0};
    size_t per_key = 0;
    (void)state;
    assert_int_equal(shapes_read_default(&shapes, family(), SHAPES_TIMED), 0);
    shapes_grid(&grid, &shapes, family());
    for (size_t i = 0; i < grid.count; i++)
        per_key += memcmp(grid.item[i].key.codes, grid.item[0].key.codes,
                          sizeof grid.item[0].key.codes) == 0;
    assert_int_equal(grid.count, 12 * per_key);
    assert_true(per_key >= 20);
    float low = INFINITY, high = 0;
    for (size_t i = 0; i < grid.count; i++) {
        low = fminf(low, gen__key_log2(&grid.item[i].key, 0));
        high = fmaxf(high, gen__key_log2(&grid.item[i].key, 0));
    }
    assert_near((double)low, 3);
    assert_near((double)high, 14);
    shapes_free(&grid);
    shapes_free(&shapes);
}

/* What a row of a table names, and nothing near it. */
static void a_problem_is_found_by_its_coordinates(void **state)
{
    static const char *const wrong[] = {"states=0",  "states=40,",    "states=40 ", "states=",
                                        "rows=40",   "states=40,a=1", "states=nan", "",
                                        "states=1e9"}; /* beyond what fits: not added */
    struct shape_list shapes = {0}, list = {0};
    char coords[64];
    (void)state;
    assert_int_equal(shapes_read_default(&shapes, family(), SHAPES_TIMED), 0);
    const struct shape *keyed = &shapes.item[shapes.count - 1];
    assert_true(shapes_at(&list, &shapes, keyed, "states=40"));
    assert_int_equal(list.count, 1);
    coords_format(family(), &list.item[0].key, coords, sizeof coords);
    assert_string_equal(coords, "states=40");
    assert_memory_equal(list.item[0].key.codes, keyed->key.codes, sizeof keyed->key.codes);
    assert_false(shapes_at(&list, &shapes, keyed, "states=40")); /* the list has it */
    assert_false(shapes_at(&list, &shapes, keyed, "states=37")); /* 36 would be the nearest */
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_false(shapes_at(&list, &shapes, keyed, wrong[i]));
    assert_int_equal(list.count, 1);
    shapes_free(&list);
    shapes_free(&shapes);
}

static void random_problems_are_new_and_repeatable(void **state)
{
    struct shape_list shapes = {0}, a = {0}, b = {0};
    (void)state;
    assert_int_equal(shapes_read_default(&shapes, family(), SHAPES_TIMED), 0);
    shapes_random(&a, &shapes, &shapes, family(), 100, 3);
    shapes_random(&b, &shapes, &shapes, family(), 100, 3);
    assert_int_equal(a.count, 100);
    assert_int_equal(b.count, 100);
    for (size_t i = 0; i < 100; i++) {
        assert_memory_equal(a.item[i].problem, b.item[i].problem, family()->problem_size);
        for (size_t k = 0; k < shapes.count; k++)
            assert_false(memcmp(a.item[i].key.codes, shapes.item[k].key.codes,
                                sizeof a.item[i].key.codes) == 0 &&
                         fabsf(gen__key_log2(&a.item[i].key, 0) -
                               gen__key_log2(&shapes.item[k].key, 0)) < 1e-4f);
    }
    shapes_free(&a);
    shapes_free(&b);
    shapes_free(&shapes);
}

static int32_t value_of(const struct shape *shape, const struct gen__field *field)
{
    int32_t value;
    memcpy(&value, (const char *)shape->problem + field->offset, sizeof value);
    return value;
}

/* Segments of one chunk, for one, which no problem of the file asks for and which are far slower.
 */
static void random_problems_leave_what_no_shape_sets(void **state)
{
    (void)state;
    int unset = 0;
    for (uint32_t f = 0; f < gen__num_families; f++) {
        const struct gen__family *one = gen__families[f];
        struct shape_list shapes = {0}, random = {0}, none = {0};
        shapes_load(&shapes, one, SHAPES_TIMED, NULL);
        shapes_random(&random, &shapes, &none, one, 50, 1);
        for (uint32_t i = 0; i < one->num_fields; i++) {
            const struct gen__field *field = &one->fields[i];
            bool set = field->values != NULL;
            for (size_t k = 0; k < shapes.count; k++)
                set = set || value_of(&shapes.item[k], field) > 0;
            unset += !set;
            for (size_t k = 0; k < random.count && !set; k++)
                if (value_of(&random.item[k], field) != value_of(&shapes.item[0], field))
                    fail_msg("%s: %s is %d", one->name, field->name,
                             (int)value_of(&random.item[k], field));
        }
        shapes_free(&shapes);
        shapes_free(&random);
    }
    assert_true(unset > 0);
}

/* ---- buffers ----------------------------------------------------------- */

/* What the tuner verifies variants with; the timed problem itself may take the reference hours. */
static void every_tuned_key_has_a_small_problem(void **state)
{
    (void)state;
    for (uint32_t f = 0; f < gen__num_families; f++) {
        struct shape_list shapes = {0}, small = {0};
        shapes_load(&shapes, gen__families[f], SHAPES_TIMED, NULL);
        verify_small(&small, gen__families[f]);
        for (size_t i = 0; i < shapes.count; i++) {
            const struct shape *its = shapes_of_key(&small, &shapes.item[i]);
            double bytes, flops;
            if (!its)
                fail_msg("%s: no small problem", shapes.item[i].name);
            its->family->cost(its->problem, &bytes, &flops);
            assert_true(flops < 1e9 && bytes < 1e8 && !its->key.empty);
        }
        for (size_t i = 0; i < small.count; i++) /* one a key */
            assert_ptr_equal(shapes_of_key(&small, &small.item[i]), &small.item[i]);
        shapes_free(&shapes);
        shapes_free(&small);
    }
}

static void the_footprint_is_the_state(void **state)
{
    struct shape_list list = {0};
    uint64_t inplace, touched;
    (void)state;
    assert_true(
        shapes_parse(&list, family(), SHAPES_TIMED, "batch=16 num_qk_heads=64 head_dim=128"));
    problem_footprint(family(), list.item[0].problem, &inplace, &touched);
    assert_int_equal(inplace, 16ull * 64 * 128 * 128 * 4);
    assert_true(touched > inplace && touched < inplace + (2u << 20));
    assert_int_equal(sets_beyond_cache(inplace, 60u << 20, 1000), 3);
    assert_int_equal(sets_beyond_cache(1ull << 30, 60u << 20, 1000), 2);
    assert_int_equal(sets_beyond_cache(1, 60u << 20, 1000), 1000);
    shapes_free(&list);
}

/* Rests are for what the tensor cores bound, not for what the memory does. */
static void tensor_bound_problems_rest(void **state)
{
    (void)state;
    struct shape_list list = {0};
    assert_true(shapes_parse(&list, &gen__family_attn_fwd, SHAPES_TIMED,
                             "batch=4 num_q_heads=32 q_len=2048 head_dim=128"));
    assert_true(shapes_parse(&list, &gen__family_attn_fwd, SHAPES_TIMED,
                             "batch=4 num_q_heads=32 q_len=1 kv_len=2048 head_dim=128"));
    assert_true(
        shapes_parse(&list, family(), SHAPES_TIMED, "batch=16 num_qk_heads=64 head_dim=128"));
    assert_true(shape_rest_ms(&list.item[0], 20) == 20 && shape_rest_ms(&list.item[0], 0) == 0);
    assert_true(shape_rest_ms(&list.item[1], 20) == 0);
    assert_true(shape_rest_ms(&list.item[2], 20) == 0);
    shapes_free(&list);
}

static void tensors_do_not_overlap(void **state)
{
    struct shape_list list = {0};
    struct buffers b;
    (void)state;
    assert_true(shapes_parse(&list, family(), SHAPES_TIMED, "batch=3 num_qk_heads=2 head_dim=64"));
    assert_true(buffers_init(&b, family(), list.item[0].problem, BUFFERS_DEFAULT_FORM, 3, true));
    uint8_t *block = xmalloc(b.total_bytes), *seen = xmalloc(b.total_bytes);
    memset(seen, 0, b.total_bytes);
    buffers_fill(&b, &(struct fill_options){.seed = 1, .padding = true}, block);
    for (uint32_t set = 0; set < b.num_sets; set++) {
        for (uint32_t t = 0; t < b.num_tensors; t++) {
            const uint64_t at = buffers_at(&b, set, t);
            assert_int_equal(at % 256, 16);
            if (set && !b.tensor[t].cold)
                continue;
            assert_true(at >= BUFFERS_GUARD);
            assert_true(at + b.bytes[t] + BUFFERS_GUARD <= b.total_bytes);
            for (uint64_t i = 0; i < b.bytes[t]; i++)
                assert_int_equal(seen[at + i]++, 0);
            assert_int_equal(block[at - 1], BUFFERS_CANARY);
            assert_int_equal(block[at + b.bytes[t]], BUFFERS_CANARY);
        }
    }
    free(block);
    free(seen);
    buffers_free(&b);
    shapes_free(&list);
}

/* ---- the tournament ---------------------------------------------------- */

struct fake_times {
    double us[64];
    int calls[64], fails_at; /* contestant that fails; -1: none */
    double noise;
    struct rng rng;
};

static bool fake_measure(void *context, size_t i, int pass, double *us)
{
    struct fake_times *f = context;
    (void)pass;
    f->calls[i]++;
    *us = f->us[i] * (1 + f->noise * (rng_uniform(&f->rng) - 0.5));
    return (int)i != f->fails_at;
}

static const struct tournament_pass fake_passes[] = {{2, 1.15, 24}, {4, 1.04, 8}, {11, 1, 0}};

static void the_fastest_wins_with_few_measurements(void **state)
{
    struct contestant c[64] = {0};
    struct fake_times f = {.fails_at = -1, .noise = 0.004};
    char names[64][8];
    int second = -1, calls = 0;
    (void)state;
    for (int i = 0; i < 64; i++) {
        snprintf(names[i], sizeof names[i], "v%02d", i);
        c[i].name = names[i];
        f.us[i] = 100 + 2 * ((i * 37) % 64);
    }
    int winner = tournament_run(c, 64, fake_passes, 3, 0.005, fake_measure, &f, &second);
    for (int i = 0; i < 64; i++)
        calls += f.calls[i];
    assert_near(f.us[winner], 100);
    assert_near(f.us[second], 102);
    assert_true(calls < 64 * 17 / 3);
    assert_int_equal(c[winner].num_samples, 11);
}

static void ties_go_to_the_first_name(void **state)
{
    struct contestant c[3] = {{.name = "b"}, {.name = "a"}, {.name = "c"}};
    struct fake_times f = {.us = {100, 100.4, 99.9}, .fails_at = -1};
    int second = -1;
    (void)state;
    assert_int_equal(tournament_run(c, 3, fake_passes, 3, 0.005, fake_measure, &f, &second), 0);
    assert_int_equal(second, 2);
    f.us[1] = 100.3;
    assert_int_equal(tournament_run(c, 3, fake_passes, 3, 0.005, fake_measure, &f, &second), 1);
}

static void ties_go_to_the_least_expected(void **state)
{
    struct contestant c[4] = {{.name = "a", .expected = 3},
                              {.name = "b", .expected = 2},
                              {.name = "c", .expected = 2},
                              {.name = "d", .expected = 1}};
    struct fake_times f = {.us = {100, 100.4, 100.3, 100.6}, .fails_at = -1};
    int second = -1;
    (void)state;
    assert_int_equal(tournament_run(c, 4, fake_passes, 3, 0.005, fake_measure, &f, &second), 1);
    assert_int_equal(second, 0);
}

/* Two groups, the second three times as slow, and one contestant in both: each keeps its own. */
static void groups_have_survivors_of_their_own(void **state)
{
    struct contestant c[6] = {{.name = "a", .groups = 1}, {.name = "b", .groups = 1},
                              {.name = "c", .groups = 1}, {.name = "d", .groups = 2},
                              {.name = "e", .groups = 2}, {.name = "f", .groups = 3}};
    struct fake_times f = {.us = {100, 101, 200, 300, 400, 302}, .fails_at = -1};
    const struct tournament_pass two[] = {{1, 1.10, 2}, {5, 1, 0}};
    const size_t samples[6] = {5, 5, 1, 5, 1, 5};
    (void)state;
    assert_int_equal(tournament_run(c, 6, two, 2, 0, fake_measure, &f, NULL), 0);
    for (int i = 0; i < 6; i++)
        assert_int_equal(c[i].num_samples, samples[i]);
    for (int i = 0; i < 6; i++)
        c[i].groups = 0;
    assert_int_equal(tournament_run(c, 6, two, 2, 0, fake_measure, &f, NULL), 0);
    assert_int_equal(c[3].num_samples, 1);
}

/* Launches of 100 ms, a dozen variants: minutes for one row of a table otherwise. But as many in
 * the end, which settle who is the fastest. */
static void long_launches_get_fewer_looks(void **state)
{
    (void)state;
    int usual, few, count;
    const struct tournament_pass *passes = tune_passes(false, false, 100, &usual);
    const struct tournament_pass *quick = tune_passes(true, false, 100, &few);
    assert_true(usual > few && passes != quick);
    assert_ptr_equal(tune_passes(false, false, 0, &count), passes); /* nothing is known */
    assert_int_equal(count, usual);
    const struct tournament_pass *at_length = tune_passes(false, false, 1e5, &count);
    assert_true(count < usual && at_length != quick);
    assert_true(at_length[0].rounds < passes[0].rounds &&
                at_length[0].keep_most < passes[0].keep_most);
    assert_int_equal(at_length[count - 1].rounds, passes[usual - 1].rounds);
    assert_ptr_equal(tune_passes(true, false, 1e5, &count), quick);
    assert_int_equal(count, few);
}

/* Of the usual, quick and long ones: no first looks at two that are known to be near. */
static void a_refreshed_row_has_the_last_pass(void **state)
{
    static const struct {
        bool quick;
        double us;
    } contests[] = {{false, 100}, {true, 100}, {false, 1e5}, {false, 0}};
    (void)state;
    for (size_t i = 0; i < sizeof contests / sizeof *contests; i++) {
        int all, one;
        const struct tournament_pass *usual =
            tune_passes(contests[i].quick, false, contests[i].us, &all);
        const struct tournament_pass *last =
            tune_passes(contests[i].quick, true, contests[i].us, &one);
        assert_int_equal(one, 1);
        assert_ptr_equal(last, &usual[all - 1]);
        assert_int_equal(last->rounds, contests[i].quick ? 5 : 11);
    }
}

/* The last pass' windows are full, also where no other came before it. */
static void a_first_look_is_short_unless_it_is_the_last(void **state)
{
    const struct contest of_three = {.stage.floor_us = 100, .last_pass = 2};
    const struct contest of_one = {.stage.floor_us = 100, .last_pass = 0};
    (void)state;
    assert_true(contest_launches(&of_three, 0) < contest_launches(&of_three, 1));
    assert_true(contest_launches(&of_three, 1) < contest_launches(&of_three, 2));
    assert_int_equal(contest_launches(&of_one, 0), contest_launches(&of_three, 2));
}

static void failures_leave_and_the_kept_one_stays(void **state)
{
    struct contestant c[3] = {{.name = "a"}, {.name = "b", .stays = true}, {.name = "c"}};
    struct fake_times f = {.us = {1, 500, 100}, .fails_at = 0};
    (void)state;
    assert_int_equal(tournament_run(c, 3, fake_passes, 3, 0.005, fake_measure, &f, NULL), 2);
    assert_true(c[0].failed);
    assert_int_equal(c[1].num_samples, 11);
    struct contestant only = {.name = "x"};
    assert_int_equal(tournament_run(&only, 1, fake_passes, 3, 0.005, fake_measure, &f, NULL), -1);
}

/* ---- the worker -------------------------------------------------------- */

/* Three steps, the second of which does what `context` says. */
static int troubled(struct worker *worker, void *context)
{
    const char *trouble = context;
    for (; worker->next < 3; worker->next++) {
        if (worker_reason(worker, "second") && worker->next == 1)
            continue;
        worker_try(worker, worker->next == 1 ? "second" : "other");
        if (worker->next == 1 && strcmp(trouble, "lost") == 0)
            return WORKER_LOST;
        if (worker->next == 1 && strcmp(trouble, "dies") == 0)
            abort();
        if (worker->next == 1 && strcmp(trouble, "hangs") == 0)
            for (;;)
                pause();
        worker_try(worker, "");
        worker->counter[0]++;
    }
    return worker->counter[0] == 2 && worker->num_failures == 1 ? 42 : 1;
}

static void a_worker_outlives_its_accidents(void **state)
{
    static char *const troubles[] = {"lost", "dies", "hangs"};
    (void)state;
    for (int i = 0; i < 3; i++)
        assert_int_equal(worker_run(troubled, troubles[i], 1, false), 42);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantiles_interpolate),
        cmocka_unit_test(random_numbers_repeat_and_stay_inside),
        cmocka_unit_test(shape_files_name_their_bad_lines),
        cmocka_unit_test(unknown_words_are_errors),
        cmocka_unit_test(what_follows_a_field_goes_along),
        cmocka_unit_test(the_shape_file_holds_the_published_cases),
        cmocka_unit_test(the_grid_spans_the_shapes),
        cmocka_unit_test(a_problem_is_found_by_its_coordinates),
        cmocka_unit_test(random_problems_are_new_and_repeatable),
        cmocka_unit_test(random_problems_leave_what_no_shape_sets),
        cmocka_unit_test(every_tuned_key_has_a_small_problem),
        cmocka_unit_test(the_footprint_is_the_state),
        cmocka_unit_test(tensor_bound_problems_rest),
        cmocka_unit_test(tensors_do_not_overlap),
        cmocka_unit_test(the_fastest_wins_with_few_measurements),
        cmocka_unit_test(ties_go_to_the_first_name),
        cmocka_unit_test(ties_go_to_the_least_expected),
        cmocka_unit_test(groups_have_survivors_of_their_own),
        cmocka_unit_test(long_launches_get_fewer_looks),
        cmocka_unit_test(a_refreshed_row_has_the_last_pass),
        cmocka_unit_test(a_first_look_is_short_unless_it_is_the_last),
        cmocka_unit_test(failures_leave_and_the_kept_one_stays),
        cmocka_unit_test(a_worker_outlives_its_accidents),
    };
    util_set_program("test-bench");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
