/* Statistics, races and workers of the bench programs, which need no GPU. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "tune/race.h"
#include "tune/halving.h"
#include "tune/tune.h"
#include "common/util.h"
#include "common/worker.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* ---- successive halving ---------------------------------------------------- */

struct fake_times {
    double us[64];
    int calls[64], fails_at; /* candidate that fails; -1: none */
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

static const struct halving_pass fake_passes[] = {{2, 1.15, 24}, {4, 1.04, 8}, {11, 1, 0}};

static void the_fastest_wins_with_few_measurements(void **state)
{
    struct halving_candidate c[64] = {0};
    struct fake_times f = {.fails_at = -1, .noise = 0.004};
    char names[64][8];
    int second = -1, calls = 0;
    (void)state;
    for (int i = 0; i < 64; i++) {
        snprintf(names[i], sizeof names[i], "v%02d", i);
        c[i].name = names[i];
        f.us[i] = 100 + 2 * ((i * 37) % 64);
    }
    int winner = halving_run(c, 64, fake_passes, 3, 0.005, fake_measure, &f, &second);
    for (int i = 0; i < 64; i++)
        calls += f.calls[i];
    assert_near(f.us[winner], 100);
    assert_near(f.us[second], 102);
    assert_true(calls < 64 * 17 / 3);
    assert_int_equal(c[winner].num_samples, 11);
}

static void ties_go_to_the_first_name(void **state)
{
    struct halving_candidate c[3] = {{.name = "b"}, {.name = "a"}, {.name = "c"}};
    struct fake_times f = {.us = {100, 100.4, 99.9}, .fails_at = -1};
    int second = -1;
    (void)state;
    assert_int_equal(halving_run(c, 3, fake_passes, 3, 0.005, fake_measure, &f, &second), 0);
    assert_int_equal(second, 2);
    f.us[1] = 100.3;
    assert_int_equal(halving_run(c, 3, fake_passes, 3, 0.005, fake_measure, &f, &second), 1);
}

static void ties_go_to_the_least_expected(void **state)
{
    struct halving_candidate c[4] = {{.name = "a", .expected = 3},
                                     {.name = "b", .expected = 2},
                                     {.name = "c", .expected = 2},
                                     {.name = "d", .expected = 1}};
    struct fake_times f = {.us = {100, 100.4, 100.3, 100.6}, .fails_at = -1};
    int second = -1;
    (void)state;
    assert_int_equal(halving_run(c, 4, fake_passes, 3, 0.005, fake_measure, &f, &second), 1);
    assert_int_equal(second, 0);
}

/* Two groups, the second three times as slow, and one candidate in both: each keeps its own. */
static void groups_have_survivors_of_their_own(void **state)
{
    struct halving_candidate c[6] = {{.name = "a", .groups = 1}, {.name = "b", .groups = 1},
                                     {.name = "c", .groups = 1}, {.name = "d", .groups = 2},
                                     {.name = "e", .groups = 2}, {.name = "f", .groups = 3}};
    struct fake_times f = {.us = {100, 101, 200, 300, 400, 302}, .fails_at = -1};
    const struct halving_pass two[] = {{1, 1.10, 2}, {5, 1, 0}};
    const size_t samples[6] = {5, 5, 1, 5, 1, 5};
    (void)state;
    assert_int_equal(halving_run(c, 6, two, 2, 0, fake_measure, &f, NULL), 0);
    for (int i = 0; i < 6; i++)
        assert_int_equal(c[i].num_samples, samples[i]);
    for (int i = 0; i < 6; i++)
        c[i].groups = 0;
    assert_int_equal(halving_run(c, 6, two, 2, 0, fake_measure, &f, NULL), 0);
    assert_int_equal(c[3].num_samples, 1);
}

/* Launches of 100 ms, a dozen variants: minutes for one row of a table otherwise. But as many in
 * the end, which settle who is the fastest. */
static void long_launches_get_fewer_looks(void **state)
{
    (void)state;
    int usual, few, count;
    const struct halving_pass *passes = tune_passes(false, false, 100, &usual);
    const struct halving_pass *quick = tune_passes(true, false, 100, &few);
    assert_true(usual > few && passes != quick);
    assert_ptr_equal(tune_passes(false, false, 0, &count), passes); /* nothing is known */
    assert_int_equal(count, usual);
    const struct halving_pass *at_length = tune_passes(false, false, 1e5, &count);
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
    } races[] = {{false, 100}, {true, 100}, {false, 1e5}, {false, 0}};
    (void)state;
    for (size_t i = 0; i < sizeof races / sizeof *races; i++) {
        int all, one;
        const struct halving_pass *usual = tune_passes(races[i].quick, false, races[i].us, &all);
        const struct halving_pass *last = tune_passes(races[i].quick, true, races[i].us, &one);
        assert_int_equal(one, 1);
        assert_ptr_equal(last, &usual[all - 1]);
        assert_int_equal(last->rounds, races[i].quick ? 5 : 11);
    }
}

/* The last pass' windows are full, also where no other came before it. */
static void a_first_look_is_short_unless_it_is_the_last(void **state)
{
    const struct race of_three = {.stage.floor_us = 100, .last_pass = 2};
    const struct race of_one = {.stage.floor_us = 100, .last_pass = 0};
    (void)state;
    assert_true(race_launches(&of_three, 0) < race_launches(&of_three, 1));
    assert_true(race_launches(&of_three, 1) < race_launches(&of_three, 2));
    assert_int_equal(race_launches(&of_one, 0), race_launches(&of_three, 2));
}

static void failures_leave_and_the_kept_one_stays(void **state)
{
    struct halving_candidate c[3] = {{.name = "a"}, {.name = "b", .stays = true}, {.name = "c"}};
    struct fake_times f = {.us = {1, 500, 100}, .fails_at = 0};
    (void)state;
    assert_int_equal(halving_run(c, 3, fake_passes, 3, 0.005, fake_measure, &f, NULL), 2);
    assert_true(c[0].failed);
    assert_int_equal(c[1].num_samples, 11);
    struct halving_candidate only = {.name = "x"};
    assert_int_equal(halving_run(&only, 1, fake_passes, 3, 0.005, fake_measure, &f, NULL), -1);
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
