/*
 * The 16-bit and 8-bit float formats on the host. Values go through double, which
 * holds them exactly; the way back rounds once, to nearest, ties to even.
 */
#ifndef GEN_HALF_H
#define GEN_HALF_H

#include <stdint.h>
#include <string.h>

/* The exponent and fraction fields of a finite number, given by a double's bits
 * without the sign: rounded to a format with `fraction` stored
 * fraction bits and normal numbers from 2^min_exponent up, whose exponents go on
 * without end. What is too small becomes a subnormal or 0. */
static inline uint64_t gen__round_magnitude(uint64_t magnitude, unsigned fraction, int min_exponent)
{
    /* x = significand * 2^(exponent - 52); keep its bits down to 2^-fraction of
     * the leading one, or down to the smallest subnormal. */
    const int exponent = (int)(magnitude >> 52) - 1023;
    const uint64_t significand = (magnitude & ((UINT64_C(1) << 52) - 1)) | UINT64_C(1) << 52;
    unsigned drop = 52 - fraction;
    if (exponent < min_exponent) {
        const unsigned below = (unsigned)(min_exponent - exponent);
        if (below > fraction + 1) /* less than half the smallest subnormal */
            return 0;
        drop += below;
    }
    uint64_t kept = significand >> drop;
    const uint64_t rest = significand & ((UINT64_C(1) << drop) - 1);
    const uint64_t half = UINT64_C(1) << (drop - 1);
    if (rest > half || (rest == half && (kept & 1)))
        kept++;

    /* The leading one of a normal number adds 1 to the exponent field, and so
     * does a carry out of the fraction. */
    if (exponent >= min_exponent)
        kept += (uint64_t)(exponent - min_exponent) << fraction;
    return kept;
}

/* Rounds to a 16-bit format with `fraction` stored fraction bits and normal
 * numbers from 2^min_exponent up. Overflow gives infinity, NaN a quiet NaN of
 * the same sign; what is too small becomes a subnormal or a signed zero. */
static inline uint16_t gen__round_to_16(double x, unsigned fraction, int min_exponent)
{
    const unsigned infinity = 0x7fffu >> fraction << fraction;
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);

    const unsigned sign = (unsigned)(bits >> 63) << 15;
    const uint64_t magnitude = bits & ~(UINT64_C(1) << 63);
    const uint64_t double_infinity = UINT64_C(0x7ff) << 52;
    if (magnitude > double_infinity)
        return (uint16_t)(sign | infinity | 1u << (fraction - 1));
    if (magnitude == double_infinity)
        return (uint16_t)(sign | infinity);
    const uint64_t code = gen__round_magnitude(magnitude, fraction, min_exponent);
    return (uint16_t)(sign | (code < infinity ? code : infinity));
}

static inline uint16_t gen__bf16_from_double(double x)
{
    return gen__round_to_16(x, 7, -126);
}

static inline uint16_t gen__fp16_from_double(double x)
{
    return gen__round_to_16(x, 10, -14);
}

/* bf16 is the upper half of a float. */
static inline double gen__bf16_to_double(uint16_t code)
{
    const uint32_t bits = (uint32_t)code << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return (double)x;
}

static inline double gen__fp16_to_double(uint16_t code)
{
    const uint64_t sign = (uint64_t)(code >> 15) << 63;
    const unsigned exponent = code >> 10 & 31u;
    const uint64_t fraction = code & 1023u;
    uint64_t bits;
    if (exponent == 0) { /* a multiple of 2^-24 */
        const double magnitude = (double)fraction * 0x1p-24;
        return sign ? -magnitude : magnitude;
    }
    if (exponent == 31)
        bits = sign | UINT64_C(0x7ff) << 52 | fraction << 42;
    else
        bits = sign | (uint64_t)(exponent - 15 + 1023) << 52 | fraction << 42;
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Rounds to an 8-bit format whose greatest number has the code `most`. What is beyond becomes that,
 * infinity too, as the GPU's conversion does with .satfinite. */
static inline uint8_t gen__round_to_8(double x, unsigned fraction, int min_exponent, unsigned most)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    const unsigned sign = (unsigned)(bits >> 63) << 7;
    const uint64_t magnitude = bits & ~(UINT64_C(1) << 63);
    const uint64_t double_infinity = UINT64_C(0x7ff) << 52;
    if (magnitude > double_infinity)
        return (uint8_t)(sign | 0x7f);
    const uint64_t code = magnitude == double_infinity
                              ? most
                              : gen__round_magnitude(magnitude, fraction, min_exponent);
    return (uint8_t)(sign | (code < most ? code : most));
}

/* fp8 e4m3: 4 exponent bits of bias 7, 3 fraction bits, no infinity; all ones are NaN. The greatest
 * number is 448. */
static inline uint8_t gen__e4m3_from_double(double x)
{
    return gen__round_to_8(x, 3, -6, 0x7e);
}

static inline double gen__e4m3_to_double(uint8_t code)
{
    const unsigned exponent = code >> 3 & 15u, fraction = code & 7u;
    uint64_t bits = (uint64_t)(code >> 7) << 63;
    double x;
    if (exponent == 0) { /* a multiple of 2^-9 */
        const double magnitude = (double)fraction * 0x1p-9;
        return bits ? -magnitude : magnitude;
    }
    if ((code & 0x7f) == 0x7f)
        bits |= UINT64_C(0x7ff) << 52 | UINT64_C(1) << 51;
    else
        bits |= (uint64_t)(exponent - 7 + 1023) << 52 | (uint64_t)fraction << 49;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* fp8 e5m2: the upper half of an fp16. The greatest number is 57344. */
static inline uint8_t gen__e5m2_from_double(double x)
{
    return gen__round_to_8(x, 2, -14, 0x7b);
}

static inline double gen__e5m2_to_double(uint8_t code)
{
    return gen__fp16_to_double((uint16_t)(code << 8));
}

#endif /* GEN_HALF_H */
