// What all lanes of a warp have alike, made known to the compiler.
#pragma once

// The first lane's value: every lane's, where they agree. Branches on it are uniform then, as wgmma requires, and what follows
// from it is computed once a warp.
__device__ __forceinline__ int uniform(int x)
{
    return __shfl_sync(0xffffffffu, x, 0);
}
