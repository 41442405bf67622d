/* Division by multiplication, against division. */
#include "test.h"

#include "families/common/fastdiv.h"

/* What the device computes. */
static uint32_t quotient(uint32_t x, struct gen__fastdiv f)
{
    return f.mul ? (uint32_t)((uint64_t)x * f.mul >> 32) >> f.shift : x;
}

static void check_one(uint32_t x, uint32_t d, struct gen__fastdiv f)
{
    if (quotient(x, f) != x / d)
        fail_msg("%u / %u is %u, not %u (mul %u, shift %u)", x, d, x / d, quotient(x, f), f.mul,
                 f.shift);
}

/* The product exceeds x / d by x * e / d for a fixed e >= 0, so the greatest x
 * below 2^31 that is -1 modulo d is the first to go wrong if any does: the
 * few x here decide for a whole d. */
static void check_divisor(uint32_t d)
{
    const uint32_t end = UINT32_C(1) << 31;
    const struct gen__fastdiv f = gen__fastdiv(d);
    const uint32_t multiple = end / d * d;
    assert_true(f.shift < 32);
    check_one(multiple - 1, d, f);
    check_one(end - 1, d, f);
    check_one(multiple < end ? multiple : 0, d, f);
    check_one(d - 1, d, f);
    check_one(d < end ? d : 0, d, f);
    check_one(0, d, f);
}

static void small_divisors(void **state)
{
    (void)state;
    for (uint32_t d = 1; d <= 1u << 20; d++)
        check_divisor(d);
}

static void divisors_about_powers_of_two(void **state)
{
    (void)state;
    for (int n = 2; n < 31; n++)
        for (uint32_t d = (1u << n) - 2; d <= (1u << n) + 2; d++)
            check_divisor(d);
    check_divisor(INT32_MAX);
    check_divisor(INT32_MAX - 1);
}

static void random_divisors(void **state)
{
    (void)state;
    uint64_t seed = 2;
    for (int i = 0; i < 1000000; i++) {
        const uint32_t d = (uint32_t)(random_bits(&seed) >> (33 + random_bits(&seed) % 31));
        check_divisor(d ? d : 1);
    }
}

static void every_dividend_of_some_divisors(void **state)
{
    (void)state;
    const uint32_t divisors[] = {1, 2, 3, 5, 6, 7, 8, 10, 12, 24, 48, 56, 64, 96, 641, 65537};
    for (size_t i = 0; i < sizeof divisors / sizeof *divisors; i++) {
        const struct gen__fastdiv f = gen__fastdiv(divisors[i]);
        for (uint32_t x = 0; x < 1u << 20; x++) {
            check_one(x, divisors[i], f);
            check_one((1u << 31) - 1 - x, divisors[i], f);
        }
    }
}

/* What args.h promises the kernels. */
static void one_is_mul_zero(void **state)
{
    (void)state;
    assert_int_equal(gen__fastdiv(1).mul, 0);
    assert_int_equal(gen__fastdiv(1).shift, 0);
    for (uint32_t d = 2; d < 1000; d++)
        assert_int_not_equal(gen__fastdiv(d).mul, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_divisors),  cmocka_unit_test(divisors_about_powers_of_two),
        cmocka_unit_test(random_divisors), cmocka_unit_test(every_dividend_of_some_divisors),
        cmocka_unit_test(one_is_mul_zero),
    };
    return cmocka_run_group_tests_name("fastdiv", tests, NULL, NULL);
}
