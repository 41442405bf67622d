// wgmma for values, half of a group's columns at a time.
#pragma once

#include "lib/wgmma_regs.cuh"

#define MLA_OUT128 \
        "+f"(d[at + 0]), "+f"(d[at + 1]), "+f"(d[at + 2]), "+f"(d[at + 3]), "+f"(d[at + 4]), "+f"(d[at + 5]), "+f"(d[at + 6]), "+f"(d[at + 7]), \
        "+f"(d[at + 8]), "+f"(d[at + 9]), "+f"(d[at + 10]), "+f"(d[at + 11]), "+f"(d[at + 12]), "+f"(d[at + 13]), "+f"(d[at + 14]), "+f"(d[at + 15]), \
        "+f"(d[at + 16]), "+f"(d[at + 17]), "+f"(d[at + 18]), "+f"(d[at + 19]), "+f"(d[at + 20]), "+f"(d[at + 21]), "+f"(d[at + 22]), "+f"(d[at + 23]), \
        "+f"(d[at + 24]), "+f"(d[at + 25]), "+f"(d[at + 26]), "+f"(d[at + 27]), "+f"(d[at + 28]), "+f"(d[at + 29]), "+f"(d[at + 30]), "+f"(d[at + 31]), \
        "+f"(d[at + 32]), "+f"(d[at + 33]), "+f"(d[at + 34]), "+f"(d[at + 35]), "+f"(d[at + 36]), "+f"(d[at + 37]), "+f"(d[at + 38]), "+f"(d[at + 39]), \
        "+f"(d[at + 40]), "+f"(d[at + 41]), "+f"(d[at + 42]), "+f"(d[at + 43]), "+f"(d[at + 44]), "+f"(d[at + 45]), "+f"(d[at + 46]), "+f"(d[at + 47]), \
        "+f"(d[at + 48]), "+f"(d[at + 49]), "+f"(d[at + 50]), "+f"(d[at + 51]), "+f"(d[at + 52]), "+f"(d[at + 53]), "+f"(d[at + 54]), "+f"(d[at + 55]), \
        "+f"(d[at + 56]), "+f"(d[at + 57]), "+f"(d[at + 58]), "+f"(d[at + 59]), "+f"(d[at + 60]), "+f"(d[at + 61]), "+f"(d[at + 62]), "+f"(d[at + 63])

// d[at .. at + 63] (+)= a b, 64 x 128: as wgmma_n256_mn().
template <class T, int at>
__device__ __forceinline__ void wgmma_n128_mn(float (&d)[128], const unsigned (&a)[4], unsigned long long b, bool accumulate)
{
    if constexpr (T::is_bf16)
        asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %69, 0;\n\t"
                     "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " WGMMA_D128 ", {%64, %65, %66, %67}, %68, p, 1, 1, 1;\n\t}"
                     : MLA_OUT128 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate ? 1 : 0) : "memory");
    else
        asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %69, 0;\n\t"
                     "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 " WGMMA_D128 ", {%64, %65, %66, %67}, %68, p, 1, 1, 1;\n\t}"
                     : MLA_OUT128 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate ? 1 : 0) : "memory");
}
