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

/* For 1 <= d < 2^31. Powers of two, the common case, cost no division. */
static inline struct gen__fastdiv gen__fastdiv(uint32_t d)
{
    struct gen__fastdiv f = {0, 0};
    if (d <= 1)
        return f;
    const uint32_t log2_ceil = 32u - (uint32_t)__builtin_clz(d - 1);
    f.shift = log2_ceil - 1;
    if ((d & (d - 1)) == 0)
        f.mul = 1u << 31;
    else
        f.mul = (uint32_t)(((UINT64_C(1) << (31 + log2_ceil)) + d - 1) / d);
    return f;
}

/* What the device computes. */
static inline uint32_t gen__fastdiv_quotient(uint32_t x, struct gen__fastdiv f)
{
    return f.mul ? (uint32_t)((uint64_t)x * f.mul >> 32) >> f.shift : x;
}

#endif /* GEN_FASTDIV_H */
