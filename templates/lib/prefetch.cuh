// Prefetches of what a kernel loads later.
#pragma once

// Uses a parameter here. Parameters are constants, and the first use of a line of them misses for a third of a microsecond:
// before grid_dependency_wait() that costs nothing.
template <class T> __device__ __forceinline__ void touch(const T &parameter)
{
    if constexpr (sizeof(T) == 8)
        asm volatile("" ::"l"(parameter));
    else
        asm volatile("" ::"r"(parameter));
}

// Brings a line to L2.
__device__ __forceinline__ void prefetch_global(const void *p)
{
    asm volatile("prefetch.global.L2 [%0];" ::"l"(p) : "memory");
}

// Brings contiguous bytes to L2: 16-byte aligned, a multiple of 16 long; sm_90. One thread issues all of it.
__device__ __forceinline__ void prefetch_bulk(const void *p, unsigned bytes)
{
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(p), "r"(bytes) : "memory");
}
