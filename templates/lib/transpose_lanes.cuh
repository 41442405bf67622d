// The exchange of lib/transpose.cuh among lanes that are not neighbours.
#pragma once

// Of four lanes `distance` apart, a power of two, number q gives word i to number i, as its word q.
template <int distance> __device__ __forceinline__ void transpose_lanes(unsigned (&x)[4])
{
    const bool odd = threadIdx.x & distance, upper = threadIdx.x & 2 * distance;
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        const unsigned other = __shfl_xor_sync(0xffffffffu, odd ? x[i] : x[i + 1], distance);
        x[i] = odd ? other : x[i];
        x[i + 1] = odd ? x[i + 1] : other;
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const unsigned other = __shfl_xor_sync(0xffffffffu, upper ? x[i] : x[i + 2], 2 * distance);
        x[i] = upper ? other : x[i];
        x[i + 2] = upper ? x[i + 2] : other;
    }
}
