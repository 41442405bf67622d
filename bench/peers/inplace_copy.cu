/*
 * The bar for kernels that update memory in place: every 16-byte vector is
 * read, multiplied and written back, nothing else. Several forms, of which the
 * benchmark takes the fastest at each size:
 *
 *   once   each thread handles UNROLL vectors, a block's width apart
 *   loop   a grid of a few blocks per multiprocessor strides over the data
 *   def    default caching
 *   cs     streaming loads and stores (evict first)
 *   na     no allocation in L1, 256-byte L2 prefetch
 *
 * The factor is -1, so that the data neither grows nor fades.
 */

__device__ __forceinline__ float4 load_def(const float4 *p)
{
    return *p;
}
__device__ __forceinline__ void store_def(float4 *p, float4 x)
{
    *p = x;
}
__device__ __forceinline__ float4 load_cs(const float4 *p)
{
    return __ldcs(p);
}
__device__ __forceinline__ void store_cs(float4 *p, float4 x)
{
    __stcs(p, x);
}
__device__ __forceinline__ float4 load_na(const float4 *p)
{
    float4 x;
    asm volatile("ld.global.L1::no_allocate.L2::256B.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
                 : "l"(__cvta_generic_to_global(p))
                 : "memory");
    return x;
}
__device__ __forceinline__ void store_na(float4 *p, float4 x)
{
    asm volatile("st.global.L1::no_allocate.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(
                     __cvta_generic_to_global(p)),
                 "f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w)
                 : "memory");
}
__device__ __forceinline__ float4 scaled(float4 x, float factor)
{
    return make_float4(x.x * factor, x.y * factor, x.z * factor, x.w * factor);
}

/* One step: all loads are issued before the first store. */
#define STEP(first, UNROLL, CACHE)                                  \
    {                                                               \
        float4 x[UNROLL];                                           \
        _Pragma("unroll") for (int u = 0; u < UNROLL; u++)          \
        {                                                           \
            if ((first) + u * (unsigned long long)blockDim.x < n)   \
                x[u] = load_##CACHE(&data[(first) + u * blockDim.x]); \
        }                                                           \
        _Pragma("unroll") for (int u = 0; u < UNROLL; u++)          \
        {                                                           \
            if ((first) + u * (unsigned long long)blockDim.x < n)   \
                store_##CACHE(&data[(first) + u * blockDim.x], scaled(x[u], factor)); \
        }                                                           \
    }

#define ONCE(UNROLL, CACHE)                                                                   \
    extern "C" __global__ void __launch_bounds__(512)                                         \
        inplace_once_u##UNROLL##_##CACHE(float4 *data, unsigned long long n, float factor)    \
    {                                                                                         \
        const unsigned long long first =                                                      \
            (unsigned long long)blockIdx.x * blockDim.x * UNROLL + threadIdx.x;               \
        STEP(first, UNROLL, CACHE)                                                            \
    }

#define LOOP(UNROLL, CACHE)                                                                   \
    extern "C" __global__ void __launch_bounds__(512)                                         \
        inplace_loop_u##UNROLL##_##CACHE(float4 *data, unsigned long long n, float factor)    \
    {                                                                                         \
        const unsigned long long stride = (unsigned long long)gridDim.x * blockDim.x * UNROLL; \
        unsigned long long at = (unsigned long long)blockIdx.x * blockDim.x * UNROLL;         \
        for (; at < n; at += stride)                                                          \
            STEP(at + threadIdx.x, UNROLL, CACHE)                                             \
    }

#define FORMS(CACHE) \
    ONCE(1, CACHE)   \
    ONCE(2, CACHE)   \
    ONCE(4, CACHE)   \
    ONCE(8, CACHE)   \
    LOOP(4, CACHE)   \
    LOOP(8, CACHE)

FORMS(def)
FORMS(cs)
FORMS(na)
