// Vectors to other blocks of a cluster (sm_90), beside cluster_async.cuh's single numbers.
#pragma once

// st_async_f32() of 16 bytes; both addresses are cluster_address()'s.
__device__ __forceinline__ void st_async_v4_f32(unsigned address, float4 x, unsigned barrier)
{
    asm volatile(
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(address),
        "f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w), "r"(barrier)
        : "memory");
}
