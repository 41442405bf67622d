// Products of a warpgroup with few columns (sm_90a): 64 x n fp32 for n = 16, 32, 64, the left operand in registers, the right
// one K-major in shared memory. lib/ptx/wgmma.cuh has fences, groups, descriptors and the layout of accumulators.
#pragma once

#include "lib/ptx/wgmma.cuh"

#define WGMMA_NARROW_D16 "{%0, %1, %2, %3, %4, %5, %6, %7}"
#define WGMMA_NARROW_D32 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}"
#define WGMMA_NARROW_OUT16 WGMMA_OUT8(0)
#define WGMMA_NARROW_OUT32 WGMMA_OUT8(0), WGMMA_OUT8(8)

// `a0` to `p`: the operands' numbers behind the accumulator's. `last`: which 16-bit matrices are MN-major, none.
#define WGMMA_NARROW(shape, list, out, a0, a1, a2, a3, b0, p, last)                                                 \
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %" #p ", 0;\n\t"                                             \
                 "wgmma.mma_async.sync.aligned." shape " " list ", {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #b0 \
                 ", p, 1, 1" last ";\n\t}"                                                                          \
                 : out                                                                                              \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate ? 1 : 0)                      \
                 : "memory")

// d (+)= a b in fp16. The accumulator's size is n / 2. Of a, 64 x 16, a thread holds rows as in an accumulator, columns
// 2 (t % 4) + {0, 1} and those + 8.
template <int size>
__device__ __forceinline__ void wgmma_fp16_narrow(float (&d)[size], const unsigned (&a)[4], unsigned long long b,
                                                  bool accumulate)
{
    static_assert(size == 8 || size == 16 || size == 32, "16, 32 or 64 columns");
    if constexpr (size == 8)
        WGMMA_NARROW("m64n16k16.f32.f16.f16", WGMMA_NARROW_D16, WGMMA_NARROW_OUT16, 8, 9, 10, 11, 12, 13, ", 0");
    else if constexpr (size == 16)
        WGMMA_NARROW("m64n32k16.f32.f16.f16", WGMMA_NARROW_D32, WGMMA_NARROW_OUT32, 16, 17, 18, 19, 20, 21, ", 0");
    else
        WGMMA_NARROW("m64n64k16.f32.f16.f16", WGMMA_D64, WGMMA_OUT64, 32, 33, 34, 35, 36, 37, ", 0");
}

// The same in e4m3, 32 deep: a thread's columns are 4 (t % 4) to + 3 and those + 16. Sums keep some 14 bits.
template <int size>
__device__ __forceinline__ void wgmma_e4m3_narrow(float (&d)[size], const unsigned (&a)[4], unsigned long long b,
                                                  bool accumulate)
{
    static_assert(size == 8 || size == 16 || size == 32, "16, 32 or 64 columns");
    if constexpr (size == 8)
        WGMMA_NARROW("m64n16k32.f32.e4m3.e4m3", WGMMA_NARROW_D16, WGMMA_NARROW_OUT16, 8, 9, 10, 11, 12, 13, "");
    else if constexpr (size == 16)
        WGMMA_NARROW("m64n32k32.f32.e4m3.e4m3", WGMMA_NARROW_D32, WGMMA_NARROW_OUT32, 16, 17, 18, 19, 20, 21, "");
    else
        WGMMA_NARROW("m64n64k32.f32.e4m3.e4m3", WGMMA_D64, WGMMA_OUT64, 32, 33, 34, 35, 36, 37, "");
}
