/* The logarithm and the root of estimates, against libm's. */
#include "test.h"

#include "families/common/mathf.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(logarithm), cmocka_unit_test(root)};
    return cmocka_run_group_tests_name("approx", tests, NULL, NULL);
}
