/* bf16, fp16, e4m3 and e5m2 against their definitions, over every code. */
#include "test.h"

#include "reference/half.h"

#include <float.h>
#include <math.h>

struct format {
    const char *name;
    int fraction, bias; /* bits, exponent bias */
    uint16_t infinity;
    uint16_t (*from_double)(double);
    double (*to_double)(uint16_t);
};

static const struct format bf16 = {
    "bf16", 7, 127, 0x7f80, gen__bf16_from_double, gen__bf16_to_double,
};
static const struct format fp16 = {
    "fp16", 10, 15, 0x7c00, gen__fp16_from_double, gen__fp16_to_double,
};

/* The value of a finite code, or where infinity would lie if the exponent went
 * on, from the definition of the format. */
static double value_of(const struct format *f, uint16_t code)
{
    const int magnitude = code & 0x7fff;
    const int exponent = magnitude >> f->fraction;
    const int fraction = magnitude & ((1 << f->fraction) - 1);
    const double value =
        exponent ? ldexp((1 << f->fraction) + fraction, exponent - f->bias - f->fraction)
                 : ldexp(fraction, 1 - f->bias - f->fraction);
    return code & 0x8000 ? -value : value;
}

static void every_code_there_and_back(void **state)
{
    const struct format *f = *state;
    for (unsigned c = 0; c < 0x10000; c++) {
        const uint16_t code = (uint16_t)c;
        const unsigned magnitude = code & 0x7fffu;
        const double x = f->to_double(code);
        if (magnitude > f->infinity) {
            assert_true(isnan(x));
            const uint16_t back = f->from_double(x);
            assert_true((back & 0x7fff) > f->infinity);
            assert_int_equal(back & 0x8000, code & 0x8000);
            continue;
        }
        if (magnitude == f->infinity)
            assert_true(isinf(x) && (x < 0) == (code >> 15));
        else
            assert_true(x == value_of(f, code) && !!signbit(x) == code >> 15);
        assert_int_equal(f->from_double(x), code);
    }
}

/* Between every two neighbours: the middle goes to the even one, and the
 * doubles next to the middle to their own side. Beyond the greatest finite
 * number the neighbour is infinity. */
static void every_tie(void **state)
{
    const struct format *f = *state;
    for (unsigned c = 0; c < f->infinity; c++) {
        const uint16_t low = (uint16_t)c, high = (uint16_t)(c + 1);
        const double middle = value_of(f, low) + (value_of(f, high) - value_of(f, low)) / 2;
        const uint16_t even = c & 1 ? high : low;
        assert_int_equal(f->from_double(middle), even);
        assert_int_equal(f->from_double(nextafter(middle, 0)), low);
        assert_int_equal(f->from_double(nextafter(middle, INFINITY)), high);
        assert_int_equal(f->from_double(-middle), even | 0x8000);
        assert_int_equal(f->from_double(nextafter(-middle, 0)), low | 0x8000);
        assert_int_equal(f->from_double(nextafter(-middle, -INFINITY)), high | 0x8000);
    }
}

static void extremes(void **state)
{
    const struct format *f = *state;
    assert_int_equal(f->from_double(0.0), 0);
    assert_int_equal(f->from_double(-0.0), 0x8000);
    assert_int_equal(f->from_double(DBL_MAX), f->infinity);
    assert_int_equal(f->from_double(-DBL_MAX), f->infinity | 0x8000);
    assert_int_equal(f->from_double(INFINITY), f->infinity);
    assert_int_equal(f->from_double(-INFINITY), f->infinity | 0x8000);
    assert_int_equal(f->from_double(DBL_MIN), 0);
    assert_int_equal(f->from_double(-DBL_TRUE_MIN), 0x8000);
    assert_true((f->from_double(NAN) & 0x7fff) > f->infinity);
}

/* No code is nearer to a number than the one it was rounded to. */
static void nearest_of_random_numbers(void **state)
{
    const struct format *f = *state;
    uint64_t seed = 1;
    for (int i = 0; i < 200000; i++) {
        const uint16_t pick = (uint16_t)(random_bits(&seed) % f->infinity);
        const double x = value_of(f, pick) * (1 + random_unit(&seed) * 0.01);
        const uint16_t code = f->from_double(x);
        if (code == f->infinity) /* every_tie() covers where that begins */
            continue;
        const double error = fabs(x - value_of(f, code));
        if (code)
            assert_true(error <= fabs(x - value_of(f, (uint16_t)(code - 1))));
        assert_true(error <= fabs(x - value_of(f, (uint16_t)(code + 1))));
    }
}

/* ---- e4m3, which has no infinity ---- */

static double e4m3_value(unsigned magnitude)
{
    const int exponent = (int)(magnitude >> 3), fraction = (int)(magnitude & 7);
    return exponent ? ldexp(8 + fraction, exponent - 7 - 3) : ldexp(fraction, 1 - 7 - 3);
}

static void every_e4m3(void **state)
{
    (void)state;
    for (unsigned code = 0; code < 0x7f; code++) {
        const unsigned minus = code | 0x80;
        assert_true(gen__e4m3_to_double((uint8_t)code) == e4m3_value(code));
        assert_true(gen__e4m3_to_double((uint8_t)minus) == -e4m3_value(code));
        assert_true(signbit(gen__e4m3_to_double((uint8_t)minus)));
        assert_int_equal(gen__e4m3_from_double(e4m3_value(code)), code);
        assert_int_equal(gen__e4m3_from_double(-e4m3_value(code)), minus);
        if (code == 0x7e)
            break;
        const double middle = (e4m3_value(code) + e4m3_value(code + 1)) / 2;
        assert_int_equal(gen__e4m3_from_double(middle), code & 1 ? code + 1 : code);
        assert_int_equal(gen__e4m3_from_double(nextafter(middle, 0)), code);
        assert_int_equal(gen__e4m3_from_double(nextafter(middle, INFINITY)), code + 1);
        assert_int_equal(gen__e4m3_from_double(-middle), (code & 1 ? code + 1 : code) | 0x80);
    }
    assert_true(e4m3_value(0x7e) == 448);
    assert_true(isnan(gen__e4m3_to_double(0x7f)) && isnan(gen__e4m3_to_double(0xff)));
}

static void e4m3_stays_finite(void **state)
{
    (void)state;
    const double large[] = {449, 464, 480, 1e30, DBL_MAX, INFINITY};
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
        assert_int_equal(gen__e4m3_from_double(large[i]), 0x7e);
        assert_int_equal(gen__e4m3_from_double(-large[i]), 0xfe);
    }
    assert_int_equal(gen__e4m3_from_double(NAN) & 0x7f, 0x7f);
    assert_int_equal(gen__e4m3_from_double(0x1p-11), 0);
    assert_int_equal(gen__e4m3_from_double(-DBL_TRUE_MIN), 0x80);
}

static double e5m2_value(unsigned magnitude)
{
    const int exponent = (int)(magnitude >> 2), fraction = (int)(magnitude & 3);
    return exponent ? ldexp(4 + fraction, exponent - 15 - 2) : ldexp(fraction, 1 - 15 - 2);
}

static void every_e5m2(void **state)
{
    (void)state;
    for (unsigned code = 0; code < 0x7c; code++) {
        const unsigned minus = code | 0x80;
        assert_true(gen__e5m2_to_double((uint8_t)code) == e5m2_value(code));
        assert_true(gen__e5m2_to_double((uint8_t)minus) == -e5m2_value(code));
        assert_int_equal(gen__e5m2_from_double(e5m2_value(code)), code);
        assert_int_equal(gen__e5m2_from_double(-e5m2_value(code)), minus);
        if (code == 0x7b)
            break;
        const double middle = (e5m2_value(code) + e5m2_value(code + 1)) / 2;
        assert_int_equal(gen__e5m2_from_double(middle), code & 1 ? code + 1 : code);
        assert_int_equal(gen__e5m2_from_double(nextafter(middle, 0)), code);
        assert_int_equal(gen__e5m2_from_double(nextafter(middle, INFINITY)), code + 1);
    }
    assert_true(e5m2_value(0x7b) == 57344);
    assert_true(isinf(gen__e5m2_to_double(0x7c)) && gen__e5m2_to_double(0xfc) < -57344);
    for (unsigned code = 0x7d; code < 0x80; code++)
        assert_true(isnan(gen__e5m2_to_double((uint8_t)code)));
    assert_int_equal(gen__e5m2_from_double(INFINITY), 0x7b);
    assert_int_equal(gen__e5m2_from_double(-1e30), 0xfb);
    assert_int_equal(gen__e5m2_from_double(NAN) & 0x7f, 0x7f);
}

int main(void)
{
#define BOTH(test)                                                              \
    {#test " bf16", test, NULL, NULL, (void *)(uintptr_t)(const void *)&bf16},  \
    {                                                                           \
#test " fp16", test, NULL, NULL, (void *)(uintptr_t)(const void *)&fp16 \
    }
    const struct CMUnitTest tests[] = {
        BOTH(every_code_there_and_back),
        BOTH(every_tie),
        BOTH(extremes),
        BOTH(nearest_of_random_numbers),
        cmocka_unit_test(every_e4m3),
        cmocka_unit_test(e4m3_stays_finite),
        cmocka_unit_test(every_e5m2),
    };
    return cmocka_run_group_tests_name("half", tests, NULL, NULL);
}
