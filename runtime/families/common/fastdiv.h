/*
 * Division by a number that is known before the launch: the kernels replace
 * x / d by one multiplication and one shift,
 *
 *     x / d == (x * mul >> 32) >> shift      for every x < 2^31,
 *
 * and mul = 0 stands for d = 1.
 *
 * Why it is exact: with l = ceil(log2 d), mul = ceil(2^(31+l) / d) and
 * shift = l - 1 the multiplication is by mul / 2^(31+l) = (1 + e) / d, where
 * 0 <= e < d / 2^(31+l) <= 2^-31. So x * mul / 2^(31+l) exceeds x / d by less
 * than 1 / d, and cannot reach the next multiple of 1 / d, hence not the next
 * integer. mul < 2^32 because d > 2^(l-1).
 */
#ifndef GEN_FASTDIV_H
#define GEN_FASTDIV_H

#include <stdint.h>

struct gen__fastdiv {
    uint32_t mul, shift;
};

/*
 * For 1 <= d < 2^31. Without a branch, and the division in floating point,
 * which some processors do many times faster than one of 64-bit integers. Its
 * quotient, cut off, is the integer one or, where rounding reached up, one
 * more, which is then the ceiling: either way the comparison ends there. d = 1
 * gives 2^32, whose low word is the 0 that stands for it.
 */
static inline struct gen__fastdiv gen__fastdiv(uint32_t d)
{
    const uint32_t shift = 31u - (uint32_t)__builtin_clz((d - 1) | 1);
    const uint64_t n = UINT64_C(1) << (32 + shift);
    const uint64_t quotient = (uint64_t)(int64_t)((double)(int64_t)n / (double)(int32_t)d);
    const struct gen__fastdiv f = {(uint32_t)(quotient + (quotient * d < n)), shift};
    return f;
}

#endif /* GEN_FASTDIV_H */
