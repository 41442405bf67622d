// Prefetches of what a kernel loads later.
#pragma once

// Has a parameter loaded here. Parameters are constants, and the first of a line is missed for a third of a microsecond:
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
