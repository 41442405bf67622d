/* Numbers for the inputs that families make: lengths, slots, orders. */
#ifndef GEN_SCATTER_H
#define GEN_SCATTER_H

#include <stdint.h>

/* 0 to below 1, the same for the same arguments (SplitMix64's finalizer). */
static inline double gen__scatter(uint64_t seed, int64_t index)
{
    uint64_t z = (seed + 1) * UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)index;
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

#endif /* GEN_SCATTER_H */
