// wgmma with the left operand in registers, beyond what wgmma.cuh has: the accumulator of one product, rounded, is the left
// operand of the next. Of its 64 x 16 a thread holds rows as in an accumulator, columns 2 (t % 4) + {0, 1} and those + 8.
#pragma once

#include "lib/wgmma.cuh"

#define WGMMA_D128                                                                     \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "          \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}"
#define WGMMA_OUT128                                                                                            \
    "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), \
        "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),  \
        "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), \
        "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), \
        "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), \
        "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), \
        "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), \
        "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])

// d += a b, 64 x 64: b in shared memory, K-major or (mn) MN-major.
template <class T, bool mn>
__device__ __forceinline__ void wgmma_n64_regs(float (&d)[32], const unsigned (&a)[4], unsigned long long b)
{
    if constexpr (T::is_bf16)
        asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %37, 0;\n\t"
                     "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " WGMMA_D64
                     ", {%32, %33, %34, %35}, %36, p, 1, 1, %38;\n\t}"
                     : WGMMA_OUT64
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(1), "n"(mn ? 1 : 0)
                     : "memory");
    else
        asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %37, 0;\n\t"
                     "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 " WGMMA_D64
                     ", {%32, %33, %34, %35}, %36, p, 1, 1, %38;\n\t}"
                     : WGMMA_OUT64
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(1), "n"(mn ? 1 : 0)
                     : "memory");
}

// The same, 64 x 128.
template <class T, bool mn>
__device__ __forceinline__ void wgmma_n128_regs(float (&d)[64], const unsigned (&a)[4], unsigned long long b)
{
    if constexpr (T::is_bf16)
        asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %69, 0;\n\t"
                     "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " WGMMA_D128
                     ", {%64, %65, %66, %67}, %68, p, 1, 1, %70;\n\t}"
                     : WGMMA_OUT128
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(1), "n"(mn ? 1 : 0)
                     : "memory");
    else
        asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %69, 0;\n\t"
                     "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 " WGMMA_D128
                     ", {%64, %65, %66, %67}, %68, p, 1, 1, %70;\n\t}"
                     : WGMMA_OUT128
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(1), "n"(mn ? 1 : 0)
                     : "memory");
}

// The same by the accumulator's size: 32 registers are 64 columns, 64 are 128.
template <class T, bool mn, int size>
__device__ __forceinline__ void wgmma_regs(float (&d)[size], const unsigned (&a)[4], unsigned long long b)
{
    static_assert(size == 32 || size == 64, "64 or 128 columns");
    if constexpr (size == 32)
        wgmma_n64_regs<T, mn>(d, a, b);
    else
        wgmma_n128_regs<T, mn>(d, a, b);
}
