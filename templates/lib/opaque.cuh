// Values that the compiler may not see through: what follows from one is computed behind this point, each time anew, and not
// kept in registers from before or moved ahead of a branch.
#pragma once

__device__ __forceinline__ void opaque(unsigned &x)
{
    asm volatile("" : "+r"(x));
}

__device__ __forceinline__ void opaque(unsigned long long &x)
{
    asm volatile("" : "+l"(x));
}

__device__ __forceinline__ void opaque(float &x)
{
    asm volatile("" : "+f"(x));
}
