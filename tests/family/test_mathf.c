/* The logarithm, the root and the power of estimates, against libm's. */
#include "test.h"

#include "core/mathf.h"

#include <float.h>
#include <math.h>

static float of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Every 97th normal number. */
static void logarithm(void **state)
{
    (void)state;
    for (uint32_t bits = 0x00800000u; bits < 0x7f800000u; bits += 97) {
        const float x = of_bits(bits);
        const double error = fabs((double)gen__log2(x) - log2((double)x));
        if (!(error < 1e-6 || error < 2e-7 * fabs(log2((double)x))))
            fail_msg("log2(%a) is off by %g", (double)x, error);
    }
    for (double x = -3; x < 3; x += 0.00001) {
        const double error = fabs((double)gen__exp2_small((float)x) / exp2((double)(float)x) - 1);
        if (!(error < 1e-5))
            fail_msg("2^%g is off by %g of it", x, error);
    }
    assert_true(gen__exp2_small(0.0f) == 1.0f);
    for (int i = -126; i < 128; i++)
        assert_true(gen__log2(ldexpf(1.0f, i)) == (float)i);
}

/* Up to where its cube, doubled, is still a number. */
static void root(void **state)
{
    (void)state;
    for (uint32_t bits = 0x00800000u; of_bits(bits) < FLT_MAX / 4; bits += 97) {
        const float x = of_bits(bits);
        const double error = fabs((double)gen__cbrt(x) / cbrt((double)x) - 1);
        if (!(error < 1e-6))
            fail_msg("the root of %a is off by %g of it", (double)x, error);
    }
}

static void power(void **state)
{
    (void)state;
    for (double x = -126; x < 127.49; x += 0.0007) {
        const double error = fabs((double)gen__exp2((float)x) / exp2((double)(float)x) - 1);
        if (!(error < 1e-5))
            fail_msg("2^%g is off by %g of it", x, error);
    }
    for (double x = -3; x < 3; x += 0.00001) {
        const double error = fabs((double)gen__exp2_small((float)x) / exp2((double)(float)x) - 1);
        if (!(error < 1e-5))
            fail_msg("2^%g is off by %g of it", x, error);
    }
    assert_true(gen__exp2_small(0.0f) == 1.0f);
    for (int i = -126; i < 128; i++)
        assert_true(gen__exp2((float)i) == ldexpf(1.0f, i));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(logarithm), cmocka_unit_test(root),
                                       cmocka_unit_test(power)};
    return cmocka_run_group_tests_name("approx", tests, NULL, NULL);
}
