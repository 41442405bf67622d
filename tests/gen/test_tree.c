/* The real templates: they expand for every target, and quickly. */
#include "support.h"

#include <time.h>

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void everything_expands(void **state)
{
    (void)state;
    struct outcome o = attngen("check", "--templates", TEMPLATES, "--format", "tsv", NULL);
    assert_run(o, 0);
    assert_lacks(o.out, "error\t");
    print_message("%s%s", o.out, o.err);
    outcome_free(&o);
}

/* A second build does this and reads its cache, within a second on a machine
 * that does nothing else; four leave room for one that does. */
static void one_target_is_quick(void **state)
{
    (void)state;
    double start = now();
    struct outcome o = attngen("check", "--templates", TEMPLATES, "-t", "sm_90a", NULL);
    double seconds = now() - start;
    assert_run(o, 0);
    print_message("sm_90a: %.2f s\n", seconds);
    assert_true(seconds < 4);
    outcome_free(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_expands),
        cmocka_unit_test(one_target_is_quick),
    };
    return cmocka_run_group_tests(tests, NULL, remove_scratch);
}
