// Loads and stores for what blocks of one launch tell each other without a fence: a lane's 16 bytes, aligned, come and go as one.
#pragma once

#include "lib/ptx/ldst.cuh"

__device__ __forceinline__ void ld_strong_v4_u32(unsigned (&x)[4], const void *p)
{
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "l"(p)
                 : "memory");
}

__device__ __forceinline__ void st_strong_v4_u32(void *p, const unsigned (&x)[4])
{
    asm volatile("st.relaxed.gpu.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(x[0]), "r"(x[1]), "r"(x[2]),
                 "r"(x[3])
                 : "memory");
}
