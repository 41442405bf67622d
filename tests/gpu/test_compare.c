/*
 * Sums of many elements at a time against those of each in turn.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "verify/compare.h"
#include "common/util.h"

#include <math.h>
#include <stdlib.h>

#define COUNT 5000 /* four blocks and a rest */

static float expected[COUNT], found[COUNT];

static void fill(uint64_t seed)
{
    struct rng rng;
    rng_seed(&rng, seed);
    for (int i = 0; i < COUNT; i++) {
        expected[i] = (float)(rng_uniform(&rng) - 0.5);
        found[i] = expected[i] + (float)(1e-3 * (rng_uniform(&rng) - 0.5));
    }
}

static struct sums in_turn(uint64_t first, uint64_t count)
{
    struct sums s = {0};
    for (uint64_t i = 0; i < count; i++)
        sums_add(&s, first + i, (double)expected[i], (double)found[i]);
    return s;
}

static void assert_alike(uint64_t first, uint64_t count)
{
    const struct sums want = in_turn(first, count);
    struct sums s = {0};
    sums_add_floats(&s, first, expected, found, count);
    assert_true(fabs(s.difference - want.difference) <= 1e-12 * want.difference);
    assert_true(fabs(s.reference - want.reference) <= 1e-12 * want.reference);
    assert_true(s.worst == want.worst);
    assert_int_equal(s.worst_index, want.worst_index);
    assert_int_equal(s.any_misplaced, want.any_misplaced);
    assert_int_equal(s.misplaced, want.misplaced);
}

static void any_number_of_elements(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 5; seed++) {
        fill(seed);
        assert_alike(0, COUNT);
        assert_alike(700, 1024);
        assert_alike(1, 1023);
        assert_alike(0, 2049);
        assert_alike(3, 0);
    }
}

/* The greatest difference is reported of the first element that has it, wherever that stands. */
static void the_worst_is_the_first(void **state)
{
    static const int at[] = {0, 3, 1023, 1024, 2000, 4095, 4096, 4999};
    (void)state;
    for (size_t k = 0; k < sizeof at / sizeof *at; k++) {
        struct sums s = {0};
        fill(9);
        for (size_t n = k; n < sizeof at / sizeof *at; n++) {
            expected[at[n]] = 1;
            found[at[n]] = n % 2 ? 3 : -1;
        }
        sums_add_floats(&s, 0, expected, found, COUNT);
        assert_int_equal(s.worst_index, at[k]);
        assert_true(s.worst == 2);
        assert_alike(0, COUNT);
    }
}

/* The same infinity and any NaN in both are right and count for nothing; in one alone they are
 * misplaced, the first of them. */
static void what_is_not_finite(void **state)
{
    static const int at[] = {5, 1500, 4990};
    (void)state;
    for (size_t k = 0; k < sizeof at / sizeof *at; k++)
        for (int kind = 0; kind < 6; kind++) {
            struct sums s = {0};
            fill(11);
            expected[100] = found[100] = INFINITY;
            expected[3000] = NAN, found[3000] = -NAN;
            expected[at[k]] = kind < 2 ? NAN : kind < 4 ? INFINITY : 1;
            found[at[k]] = kind == 0   ? 1
                           : kind == 1 ? INFINITY
                           : kind == 2 ? -INFINITY
                           : kind == 3 ? 1
                           : kind == 4 ? NAN
                                       : INFINITY;
            if (k == 0)
                found[4991] = NAN; /* not the first */
            sums_add_floats(&s, 0, expected, found, COUNT);
            assert_true(s.any_misplaced);
            assert_int_equal(s.misplaced, at[k]);
            assert_true(isfinite(s.difference) && isfinite(s.reference) && isfinite(s.worst));
            assert_alike(0, COUNT);
            assert_alike(700, COUNT);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_elements),
        cmocka_unit_test(the_worst_is_the_first),
        cmocka_unit_test(what_is_not_finite),
    };
    return cmocka_run_group_tests_name("compare", tests, NULL, NULL);
}
