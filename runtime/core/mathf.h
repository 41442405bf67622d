/*
 * A logarithm and a root for estimates, inline: a selection by the model takes
 * one of each for hundreds of variants, and libm's cost more than all the rest.
 * To 1e-6; the argument is a normal number > 0, for the root below 8e37. And a
 * power for times.
 */
#ifndef GEN_MATHF_H
#define GEN_MATHF_H

#include <stdint.h>
#include <string.h>

/* log2, to 1e-6 (absolute), and exact for powers of two. With m = x / 2^n in
 * [sqrt(1/2), sqrt(2)) and t = (m - 1) / (m + 1), so |t| < 0.172, it is n and the
 * series 2 / ln 2 * (t + t^3 / 3 + t^5 / 5 + ...), whose fourth term is the last
 * that counts. */
static inline float gen__log2(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    const uint32_t root_half = 0x3f3504f3u;
    const int32_t n = (int32_t)(bits - root_half) >> 23;
    bits -= (uint32_t)n << 23;
    float m;
    memcpy(&m, &bits, sizeof(m));
    const float t = (m - 1.0f) / (m + 1.0f);
    const float s = t * t;
    return (float)n +
           t * (2.88539008f + s * (0.961796694f + s * (0.577078016f + s * 0.412198583f)));
}

/* The cube root, to 1e-6 of it: a third of the exponent for a start, which is off
 * by less than 6 %, and two of Halley's steps, each of which cubes the error. */
static inline float gen__cbrt(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    bits = bits / 3 + 709921077u; /* 2/3 of the bits of 1, and a little less */
    float y;
    memcpy(&y, &bits, sizeof(y));
    for (int i = 0; i < 2; i++) {
        const float cube = y * y * y;
        y *= (cube + 2.0f * x) / (2.0f * cube + x);
    }
    return y;
}

/* 2^x, to 1e-5 of it, for x in [-126, 127.5): with n the nearest whole number, 2^n times the
 * polynomial that is nearest to 2^f for |f| <= 1/2, and 1 for f = 0. */
static inline float gen__exp2(float x)
{
    /* In this sum n stands in the last bits: two conversions, which take as long as all the rest,
     * are spared. */
    const float shift = 12582912.0f; /* 1.5 * 2^23 */
    const float sum = x + shift;
    const float f = x - (sum - shift), square = f * f;
    uint32_t bits;
    memcpy(&bits, &sum, sizeof(bits));
    bits = (bits + 127) << 23;
    float power;
    memcpy(&power, &bits, sizeof(power));
    /* The powers side by side, not in Horner's chain: the result is waited for. */
    return power * (1.0f + 0.693124184f * f +
                    square * (0.240240986f + 0.0559065114f * f + 0.00958288653f * square));
}

/* The same where x is mostly small: without n, for |x| <= 3/2. */
static inline float gen__exp2_small(float x)
{
    const float square = x * x;
    if (__builtin_expect(!(square <= 2.25f), 0))
        return gen__exp2(x);
    const float low = 1.0f + 0.693156274f * x, middle = 0.2402069f + 0.0554530366f * x;
    const float high = (0.00964380702f + 0.00138813739f * x) + 0.000149007572f * square;
    return (low + square * middle) + square * square * high;
}

#endif /* GEN_MATHF_H */
