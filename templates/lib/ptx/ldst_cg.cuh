// Loads that pass by L1, beside ldst.cuh's.
#pragma once

#include "lib/ptx/ldst.cuh"

// For what other blocks of this launch write.
__device__ __forceinline__ float ld_global_cg(const float *p)
{
    float x;
    asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(x) : "l"(p) : "memory");
    return x;
}

__device__ __forceinline__ float4 ld_global_cg_v4_f32(const float *p)
{
    float4 x;
    asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
                 : "l"(p)
                 : "memory");
    return x;
}
