// Exchanges of lanes that make stores whole sectors.
#pragma once

// Lane q of four neighbours gives word i to lane i, as its word q.
__device__ __forceinline__ void transpose_quad(unsigned (&x)[4])
{
    const bool odd = threadIdx.x & 1, upper = threadIdx.x & 2;
#pragma unroll
    for (int i = 0; i < 4; i += 2) { // within pairs of lanes: words i and i + 1
        const unsigned other = __shfl_xor_sync(0xffffffffu, odd ? x[i] : x[i + 1], 1);
        if (odd)
            x[i] = other;
        else
            x[i + 1] = other;
    }
#pragma unroll
    for (int i = 0; i < 2; i++) { // between pairs: words i and i + 2
        const unsigned other = __shfl_xor_sync(0xffffffffu, upper ? x[i] : x[i + 2], 2);
        if (upper)
            x[i] = other;
        else
            x[i + 2] = other;
    }
}
