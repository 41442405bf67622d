// Products of a warpgroup with few columns (sm_90a): 64 x n fp32 for n = 16, 32, 64, the left operand in registers, the right
// one K-major in shared memory. lib/ptx/wgmma.cuh has fences, groups, descriptors and the layout of accumulators.
#pragma once

#include "lib/ptx/wgmma.cuh"

// d (+)= a b in fp16. The accumulator's size is n / 2. Of a, 64 x 16, a thread holds rows as in an accumulator, columns
// 2 (t % 4) + {0, 1} and those + 8.
#define WGMMA_NARROW_LIST8 "{%0, %1, %2, %3, %4, %5, %6, %7}"
#define WGMMA_NARROW_LIST16 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}"
#define WGMMA_NARROW_OUT16 WGMMA_OUT8(0), WGMMA_OUT8(8)

__device__ __forceinline__ void wgmma_fp16_narrow(float (&d)[8], const unsigned (&a)[4], unsigned long long b,
                                                  bool accumulate)
{
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %13, 0;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 " WGMMA_NARROW_LIST8
                 ", {%8, %9, %10, %11}, %12, p, 1, 1, 0;\n\t}"
                 : WGMMA_OUT8(0)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate ? 1 : 0)
                 : "memory");
}

__device__ __forceinline__ void wgmma_fp16_narrow(float (&d)[16], const unsigned (&a)[4], unsigned long long b,
                                                  bool accumulate)
{
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %21, 0;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 " WGMMA_NARROW_LIST16
                 ", {%16, %17, %18, %19}, %20, p, 1, 1, 0;\n\t}"
                 : WGMMA_NARROW_OUT16
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate ? 1 : 0)
                 : "memory");
}

__device__ __forceinline__ void wgmma_fp16_narrow(float (&d)[32], const unsigned (&a)[4], unsigned long long b,
                                                  bool accumulate)
{
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %37, 0;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 " WGMMA_D64
                 ", {%32, %33, %34, %35}, %36, p, 1, 1, 0;\n\t}"
                 : WGMMA_OUT64
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate ? 1 : 0)
                 : "memory");
}
