// Sums across the lanes of a warp.
#pragma once

// Sums each of x[0..n) over groups of `lanes` neighbouring lanes, all n sums together: while more than one element is
// left, lanes exchange halves, so n elements cost n - 1 + log2(lanes / n) shuffles instead of n log2(lanes). On return
// x[0] of lane l (within its group) is the sum of element l / (lanes / n). n and lanes are powers of two, n <= lanes.
template <int n, int lanes, int size> __device__ __forceinline__ void reduce_rows(float (&x)[size])
{
    static_assert(n <= lanes && lanes <= 32, "one element a lane at most");
    if constexpr (lanes > 1) {
        constexpr int distance = lanes / 2;
        if constexpr (n > 1) {
            constexpr int half = n / 2;
            const bool upper = threadIdx.x & distance;
#pragma unroll
            for (int i = 0; i < half; i++) {
                const float give = upper ? x[i] : x[i + half];
                const float keep = upper ? x[i + half] : x[i];
                x[i] = keep + __shfl_xor_sync(0xffffffffu, give, distance);
            }
            reduce_rows<half, distance>(x);
        } else {
            x[0] += __shfl_xor_sync(0xffffffffu, x[0], distance);
            reduce_rows<1, distance>(x);
        }
    }
}

// Sums a float4 over the lanes whose numbers agree modulo `lanes`.
template <int lanes> __device__ __forceinline__ float4 reduce_columns(float4 x)
{
#pragma unroll
    for (int distance = 16; distance >= lanes; distance /= 2) {
        x.x += __shfl_xor_sync(0xffffffffu, x.x, distance);
        x.y += __shfl_xor_sync(0xffffffffu, x.y, distance);
        x.z += __shfl_xor_sync(0xffffffffu, x.z, distance);
        x.w += __shfl_xor_sync(0xffffffffu, x.w, distance);
    }
    return x;
}
