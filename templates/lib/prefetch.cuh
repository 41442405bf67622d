// Hints to L2 (sm_90), and loads that leave nothing behind in L1.
#pragma once

// Reads past L1: for what the kernel before may still be writing, which a line in L1 would hide from later loads.
__device__ __forceinline__ int load_past_l1(const int *p)
{
    int x;
    asm volatile("ld.global.cg.s32 %0, [%1];" : "=r"(x) : "l"(p) : "memory");
    return x;
}

// Brings a run of bytes to L2: 16-byte aligned, a multiple of 16 long. One thread issues all of it.
__device__ __forceinline__ void prefetch_run(const void *p, unsigned bytes)
{
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(p), "r"(bytes) : "memory");
}
