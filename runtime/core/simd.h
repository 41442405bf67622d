/*
 * Logarithms of tuning coordinates, four at once, in whole 65536ths of an octave: sums of distances
 * are exact, and what is equally far is so exactly.
 */
#ifndef GEN_SIMD_H
#define GEN_SIMD_H

#include <stdint.h>
#include <string.h>
#if defined(__SSE4_1__)
#include <smmintrin.h>
#endif

typedef float gen__lanes __attribute__((vector_size(16)));
typedef int32_t gen__int_lanes __attribute__((vector_size(16)));

/* To the nearest whole numbers, of even ones where two are as near. */
static inline gen__int_lanes gen__lanes_round(gen__lanes a)
{
#if defined(__SSE4_1__)
    return (gen__int_lanes)_mm_cvtps_epi32((__m128)a);
#else
    const gen__lanes shift = {12582912.0f, 12582912.0f, 12582912.0f, 12582912.0f};
    return __builtin_convertvector(a + shift - shift, gen__int_lanes);
#endif
}

/*
 * log2 in 65536ths, counted from that of 2^-127 on, so below 2^24: to three of them, rising, exact
 * for powers of two, and 65536 more for twice as much, whatever the number. Arguments are positive.
 * The exponent and the first 16 bits of the mantissa 1 + f are log2 but for log2(1 + f) - f, which
 * is f (1 - f) times a polynomial.
 */
static inline gen__int_lanes gen__lanes_log2(gen__lanes x)
{
#define ALL(k)     \
    {              \
        k, k, k, k \
    }
    const gen__lanes one = ALL(1.0f);
    const gen__lanes a = ALL(65536 * 0.44191703f), b = ALL(65536 * -0.26717935f);
    const gen__lanes c = ALL(65536 * 0.14842653f), d = ALL(65536 * -0.04514898f);
    const gen__int_lanes mantissa_bits = ALL(0x7fff80), one_bits = ALL(0x3f800000);
#undef ALL
    gen__int_lanes bits;
    gen__lanes mantissa;
    memcpy(&bits, &x, sizeof(bits));
    const gen__int_lanes fraction = (bits & mantissa_bits) | one_bits;
    memcpy(&mantissa, &fraction, sizeof(mantissa));
    const gen__lanes f = mantissa - one, square = f * f;
    const gen__lanes low = a + b * f, high = c + d * f;
    return (bits >> 7) + gen__lanes_round((f - square) * (low + square * high));
}

#endif /* GEN_SIMD_H */
