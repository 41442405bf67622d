/*
 * Four floats at once, where gcc's vector types lack an operation or compile it
 * poorly: x86-64's own, or spelled out.
 */
#ifndef GEN_SIMD_H
#define GEN_SIMD_H

#include <math.h>
#include <stdint.h>
#include <string.h>
#if defined(__SSE4_1__)
#include <smmintrin.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#endif

typedef float gen__lanes __attribute__((vector_size(16)));
typedef int32_t gen__int_lanes __attribute__((vector_size(16)));
typedef uint32_t gen__bit_lanes __attribute__((vector_size(16)));
typedef uint16_t gen__places __attribute__((vector_size(16))); /* the first four count */

static inline gen__lanes gen__lanes_all(float x)
{
    return (gen__lanes){x, x, x, x};
}

static inline gen__lanes gen__lanes_load(const float *at)
{
    gen__lanes lanes;
    memcpy(&lanes, at, sizeof(lanes));
    return lanes;
}

static inline void gen__lanes_store(float *at, gen__lanes lanes)
{
    memcpy(at, &lanes, sizeof(lanes));
}

/* Numbers for all lanes, where the compiler takes them as they stand: those it knows it would
 * rather make anew, by two instructions each. */
struct gen__lanes_terms {
    gen__lanes terms[4];
    gen__bit_lanes mantissa, one, distance;
};
extern const struct gen__lanes_terms gen__lanes_terms;

static inline gen__lanes gen__lanes_of_bits(gen__bit_lanes bits)
{
    gen__lanes lanes;
    memcpy(&lanes, &bits, sizeof(lanes));
    return lanes;
}

static inline gen__bit_lanes gen__bits_of_lanes(gen__lanes lanes)
{
    gen__bit_lanes bits;
    memcpy(&bits, &lanes, sizeof(bits));
    return bits;
}

static inline gen__int_lanes gen__lanes_apart(gen__int_lanes a, gen__int_lanes b)
{
#if defined(__SSE4_1__)
    return (gen__int_lanes)_mm_abs_epi32((__m128i)(a - b));
#else
    const gen__int_lanes difference = a - b, sign = difference >> 31;
    return (difference ^ sign) - sign;
#endif
}

static inline gen__lanes gen__lanes_distance(gen__lanes a, gen__lanes b)
{
    return gen__lanes_of_bits(gen__bits_of_lanes(a - b) & gen__lanes_terms.distance);
}

/* The eighth of a doubling that a positive number is in, counted from `low`, which
 * is where numbers below it are; `high` likewise. Four of them. */
static inline gen__places gen__lanes_places(gen__lanes x, const int16_t low[4],
                                            const int16_t high[4])
{
    const gen__bit_lanes bits = gen__bits_of_lanes(x) >> 20;
#if defined(__SSE2__)
    __m128i places, lowest, highest;
    memcpy(&places, &bits, sizeof(places));
    lowest = _mm_loadl_epi64((const __m128i *)(const void *)low);
    highest = _mm_loadl_epi64((const __m128i *)(const void *)high);
    places = _mm_max_epi16(_mm_packs_epi32(places, places), lowest);
    places = _mm_sub_epi16(_mm_min_epi16(places, highest), lowest);
    return (gen__places)places;
#else
    gen__places places = {0};
    for (int i = 0; i < 4; i++) {
        int32_t place = (int32_t)bits[i];
        place = place > low[i] ? place : low[i];
        place = place < high[i] ? place : high[i];
        places[i] = (uint16_t)(place - low[i]);
    }
    return places;
#endif
}

static inline gen__int_lanes gen__lanes_least(gen__int_lanes a, gen__int_lanes b)
{
#if defined(__SSE4_1__)
    return (gen__int_lanes)_mm_min_epi32((__m128i)a, (__m128i)b);
#else
    return b ^ ((a ^ b) & (a < b));
#endif
}

/* The lesser and the greater of each two. SSE2's own for floats would take longer. */
static inline void gen__lanes_sort(gen__int_lanes *a, gen__int_lanes *b)
{
#if defined(__SSE4_1__)
    const gen__int_lanes less = gen__lanes_least(*a, *b);
    *b = (gen__int_lanes)_mm_max_epi32((__m128i)*a, (__m128i)*b);
    *a = less;
#else
    const gen__int_lanes swap = (*a ^ *b) & (*a > *b);
    *a ^= swap;
    *b ^= swap;
#endif
}

static inline gen__int_lanes gen__lanes_int_halves(gen__int_lanes a)
{
#if defined(__SSE2__)
    return (gen__int_lanes)_mm_shuffle_epi32((__m128i)a, _MM_SHUFFLE(1, 0, 3, 2));
#else
    return (gen__int_lanes){a[2], a[3], a[0], a[1]};
#endif
}

static inline gen__int_lanes gen__lanes_int_pairs(gen__int_lanes a)
{
#if defined(__SSE2__)
    return (gen__int_lanes)_mm_shuffle_epi32((__m128i)a, _MM_SHUFFLE(2, 3, 0, 1));
#else
    return (gen__int_lanes){a[1], a[0], a[3], a[2]};
#endif
}

#if defined(__SSE2__)
static inline gen__lanes gen__lanes_min(gen__lanes a, gen__lanes b)
{
    return _mm_min_ps(a, b);
}

static inline gen__lanes gen__lanes_max(gen__lanes a, gen__lanes b)
{
    return _mm_max_ps(a, b);
}

/* A bit a lane. */
static inline uint32_t gen__lanes_bits(gen__int_lanes truth)
{
    gen__lanes lanes;
    memcpy(&lanes, &truth, sizeof(lanes));
    return (uint32_t)_mm_movemask_ps(lanes);
}

/* Both halves, and the two of each, change places. */
static inline gen__lanes gen__lanes_halves(gen__lanes a)
{
    return _mm_castsi128_ps(_mm_shuffle_epi32(_mm_castps_si128(a), _MM_SHUFFLE(1, 0, 3, 2)));
}

static inline gen__lanes gen__lanes_pairs(gen__lanes a)
{
    return _mm_castsi128_ps(_mm_shuffle_epi32(_mm_castps_si128(a), _MM_SHUFFLE(2, 3, 0, 1)));
}

/* To the nearest whole numbers. */
static inline gen__int_lanes gen__lanes_round(gen__lanes a)
{
    return (gen__int_lanes)_mm_cvtps_epi32(a);
}
#else
static inline gen__lanes gen__lanes_min(gen__lanes a, gen__lanes b)
{
    for (int i = 0; i < 4; i++)
        a[i] = a[i] < b[i] ? a[i] : b[i];
    return a;
}

static inline gen__lanes gen__lanes_max(gen__lanes a, gen__lanes b)
{
    for (int i = 0; i < 4; i++)
        a[i] = a[i] > b[i] ? a[i] : b[i];
    return a;
}

static inline uint32_t gen__lanes_bits(gen__int_lanes truth)
{
    return (truth[0] & 1u) | (truth[1] & 2u) | (truth[2] & 4u) | (truth[3] & 8u);
}

static inline gen__lanes gen__lanes_halves(gen__lanes a)
{
    return (gen__lanes){a[2], a[3], a[0], a[1]};
}

static inline gen__lanes gen__lanes_pairs(gen__lanes a)
{
    return (gen__lanes){a[1], a[0], a[3], a[2]};
}

static inline gen__int_lanes gen__lanes_round(gen__lanes a)
{
    for (int i = 0; i < 4; i++)
        a[i] = rintf(a[i]);
    return __builtin_convertvector(a, gen__int_lanes);
}
#endif

/*
 * log2 in whole 65536ths, from that of 2^-127 on: below 2^24, so that sums of distances are
 * exact and what is equally far is: to three of them, rising, exact for powers of two,
 * and 65536 more for twice as much, whatever the number. Arguments are positive. The
 * exponent and the first 16 bits of the mantissa 1 + f are log2 but for
 * log2(1 + f) - f, which is f (1 - f) times a polynomial.
 */
static inline gen__int_lanes gen__lanes_log2(gen__lanes x)
{
    const struct gen__lanes_terms *k = &gen__lanes_terms;
    const gen__bit_lanes bits = gen__bits_of_lanes(x);
    const gen__bit_lanes mantissa = (bits & k->mantissa) | k->one;
    const gen__lanes f = gen__lanes_of_bits(mantissa) - gen__lanes_of_bits(k->one);
    const gen__lanes square = f * f;
    const gen__lanes low = k->terms[0] + k->terms[1] * f, high = k->terms[2] + k->terms[3] * f;
    const gen__lanes rest = (f - square) * (low + square * high);
    return (gen__int_lanes)(bits >> 7) + gen__lanes_round(rest);
}

/* Those and doublings. */
#define GEN__LOG_UNIT (1.0f / 65536)
#define GEN__LOG_BIAS 127.0f

static inline float gen__doublings(float x)
{
    return (float)gen__lanes_log2(gen__lanes_all(x))[0] * GEN__LOG_UNIT - GEN__LOG_BIAS;
}

#endif /* GEN_SIMD_H */
