// Powers of two by multiply-adds, where the special function unit, which has exp2_fast() of mma.cuh, is what is waited for.
#pragma once

// 2^x to 3e-6 of it: a whole number in the exponent times a polynomial of what is left, -1/2 to 1/2. From -127 down it is 0, so
// that what is hidden counts for nothing; from 127 up it is 2^127. No number comes out infinite or as one of that size.
__device__ __forceinline__ float exp2_by_fma(float x)
{
    constexpr float round = 12582912.f; // 1.5 x 2^23: the sum's last bits are x rounded
    asm("max.NaN.f32 %0, %0, %1;" : "+f"(x) : "f"(-127.f));
    asm("min.NaN.f32 %0, %0, %1;" : "+f"(x) : "f"(127.f));
    const float whole = x + round, left = x - (whole - round);
    float y = fmaf(fmaf(9.582852944731712e-3f, left, 5.5906426161527634e-2f), left, 2.4024099111557007e-1f);
    y = fmaf(fmaf(y, left, 6.931241750717163e-1f), left, 1.f);
    return __uint_as_float(__float_as_uint(y) + (__float_as_uint(whole) << 23));
}
