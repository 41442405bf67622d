/*
 * A logarithm and a root for estimates, inline: a selection by the model takes
 * one of each for hundreds of variants, and libm's cost more than all the rest.
 * To 1e-6; the argument is a normal number > 0, for the root below 8e37.
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

#endif /* GEN_MATHF_H */
