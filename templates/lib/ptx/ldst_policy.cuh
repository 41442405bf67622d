// Loads (past L1, which other blocks do not write) and stores of global memory with a policy for L2, which cp_async.cuh makes:
// one PTX instruction each.
#pragma once

__device__ __forceinline__ float2 ld_global_cg_v2_f32_policy(const float *p, unsigned long long policy)
{
    float2 x;
    asm volatile("ld.global.cg.L2::cache_hint.v2.f32 {%0, %1}, [%2], %3;"
                 : "=f"(x.x), "=f"(x.y)
                 : "l"(p), "l"(policy)
                 : "memory");
    return x;
}

__device__ __forceinline__ float4 ld_global_cg_v4_f32_policy(const float *p, unsigned long long policy)
{
    float4 x;
    asm volatile("ld.global.cg.L2::cache_hint.v4.f32 {%0, %1, %2, %3}, [%4], %5;"
                 : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
                 : "l"(p), "l"(policy)
                 : "memory");
    return x;
}

__device__ __forceinline__ void st_global_v2_f32_policy(float *p, float2 x, unsigned long long policy)
{
    asm volatile("st.global.L2::cache_hint.v2.f32 [%0], {%1, %2}, %3;" ::"l"(p), "f"(x.x), "f"(x.y), "l"(policy)
                 : "memory");
}

__device__ __forceinline__ void st_global_v4_f32_policy(float *p, float4 x, unsigned long long policy)
{
    asm volatile("st.global.L2::cache_hint.v4.f32 [%0], {%1, %2, %3, %4}, %5;" ::"l"(p), "f"(x.x), "f"(x.y), "f"(x.z),
                 "f"(x.w), "l"(policy)
                 : "memory");
}
