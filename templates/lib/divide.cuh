// Division of integers by a divisor that the host prepared.
#pragma once

// x / d for x < 2^31, d as the host prepared it: the quotient is umulhi(x, mul) >> shift, and mul = 0 means d = 1.
__device__ __forceinline__ unsigned quotient(unsigned x, unsigned mul, unsigned shift)
{
    return mul ? __umulhi(x, mul) >> shift : x;
}

// The same where mul = 0 means d = 2^shift.
__device__ __forceinline__ unsigned quotient_or_shift(unsigned x, unsigned mul, unsigned shift)
{
    return mul ? __umulhi(x, mul) >> shift : x >> shift;
}
