/* cmocka with what it wants included before, and what the tests here share. */
#ifndef TEST_FAMILY_H
#define TEST_FAMILY_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "family/family.h"

/* A small generator with a long period: the tests are the same everywhere. */
static inline uint64_t random_bits(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* Uniform in [-1, 1). */
static inline double random_unit(uint64_t *state)
{
    return (double)(int64_t)random_bits(state) * 0x1p-63;
}

/* The call failed with this status and exactly this message. */
#define assert_failed(status, expected, text)            \
    do {                                                 \
        assert_int_equal(status, GEN_STATUS_##expected); \
        assert_string_equal(gen_last_error(), text);     \
    } while (0)

#endif /* TEST_FAMILY_H */
