/* The real templates: they expand for every target, and quickly. */
#include "support.h"

#include <sys/resource.h>

/* The CPU's time of the programs that ran: the machine's other work does not count. */
static double now(void)
{
    struct rusage usage;
    assert_int_equal(getrusage(RUSAGE_CHILDREN, &usage), 0);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
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

/* A second build does this and reads its cache, within a second; four leave room for sanitizers. */
static void one_target_is_quick(void **state)
{
    (void)state;
    const double start = now();
    struct outcome o = attngen("check", "--templates", TEMPLATES, "-t", "sm_90a", NULL);
    const double seconds = now() - start;
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
