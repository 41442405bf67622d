// What a CUDA compiler has built in, for a C++ compiler: included before a kernel's source. Like NVRTC it brings no
// standard header along, so a kernel may use any name that it may use there.
#pragma once

#include "engine.h"

#define __CUDACC__ 1
#define __CUDACC_RTC__ 1
#ifndef __CUDA_ARCH__
#define __CUDA_ARCH__ 900
#endif

// ---- qualifiers. Shared memory is thread-local storage: `extern` may stand before it, and without it it is static. ----
#define __device__
#define __host__
#define __global__
#define __constant__ static
#define __shared__ thread_local
#define __managed__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __maxnreg__(...)
#define __cluster_dims__(...) // compile.sh reads it
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))
#define __restrict__ __restrict

// ---- vectors ----
#define EMUL_VECTOR(T, name, alignment1, alignment2, alignment4)                                                         \
    struct name##1 { T x; };                                                                                             \
    struct __attribute__((aligned(alignment2))) name##2 { T x, y; };                                                     \
    struct name##3 { T x, y, z; };                                                                                       \
    struct __attribute__((aligned(alignment4))) name##4 { T x, y, z, w; };                                               \
    inline name##1 make_##name##1(T x) { return {x}; }                                                                   \
    inline name##2 make_##name##2(T x, T y) { return {x, y}; }                                                           \
    inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }                                                   \
    inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
EMUL_VECTOR(signed char, char, 1, 2, 4)
EMUL_VECTOR(unsigned char, uchar, 1, 2, 4)
EMUL_VECTOR(short, short, 2, 4, 8)
EMUL_VECTOR(unsigned short, ushort, 2, 4, 8)
EMUL_VECTOR(int, int, 4, 8, 16)
EMUL_VECTOR(unsigned, uint, 4, 8, 16)
EMUL_VECTOR(float, float, 4, 8, 16)
EMUL_VECTOR(long, long, 8, 16, 16)
EMUL_VECTOR(unsigned long, ulong, 8, 16, 16)
EMUL_VECTOR(long long, longlong, 8, 16, 16)
EMUL_VECTOR(unsigned long long, ulonglong, 8, 16, 16)
EMUL_VECTOR(double, double, 8, 16, 16)
#undef EMUL_VECTOR
using dim3 = emul_dim;
#define warpSize 32

#define threadIdx (emul_self()->thread)
#define blockIdx (emul_self()->block)
#define blockDim (emul_self()->threads)
#define gridDim (emul_self()->blocks)

// ---- bits ----
inline unsigned __float_as_uint(float x) { return __builtin_bit_cast(unsigned, x); }
inline int __float_as_int(float x) { return __builtin_bit_cast(int, x); }
inline float __uint_as_float(unsigned x) { return __builtin_bit_cast(float, x); }
inline float __int_as_float(int x) { return __builtin_bit_cast(float, x); }
inline long long __double_as_longlong(double x) { return __builtin_bit_cast(long long, x); }
inline double __longlong_as_double(long long x) { return __builtin_bit_cast(double, x); }
inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>(static_cast<unsigned long long>(a) * b >> 32); }
inline int __mulhi(int a, int b) { return static_cast<int>(static_cast<long long>(a) * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz(static_cast<unsigned>(x)) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll(static_cast<unsigned long long>(x)) : 64; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __brev(unsigned x)
{
    unsigned y = 0;
    for (int i = 0; i < 32; i++)
        y |= (x >> i & 1) << (31 - i);
    return y;
}
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector)
{
    const unsigned long long both = static_cast<unsigned long long>(b) << 32 | a;
    unsigned result = 0;
    for (int i = 0; i < 4; i++) {
        const unsigned which = selector >> 4 * i & 15;
        unsigned byte = static_cast<unsigned>(both >> 8 * (which & 7)) & 255;
        if (which & 8)
            byte = byte & 128 ? 255 : 0;
        result |= byte << 8 * i;
    }
    return result;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned n)
{
    return static_cast<unsigned>((static_cast<unsigned long long>(high) << 32 | low) << (n & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned n)
{
    return static_cast<unsigned>((static_cast<unsigned long long>(high) << 32 | low) >> (n & 31));
}

// ---- arithmetic ----
inline constexpr int min(int a, int b) { return a < b ? a : b; }
inline constexpr int max(int a, int b) { return a > b ? a : b; }
inline constexpr unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
inline constexpr unsigned max(unsigned a, unsigned b) { return a > b ? a : b; }
inline constexpr unsigned min(int a, unsigned b) { return min(static_cast<unsigned>(a), b); }
inline constexpr unsigned max(int a, unsigned b) { return max(static_cast<unsigned>(a), b); }
inline constexpr unsigned min(unsigned a, int b) { return min(a, static_cast<unsigned>(b)); }
inline constexpr unsigned max(unsigned a, int b) { return max(a, static_cast<unsigned>(b)); }
inline constexpr long min(long a, long b) { return a < b ? a : b; }
inline constexpr long max(long a, long b) { return a > b ? a : b; }
inline constexpr unsigned long min(unsigned long a, unsigned long b) { return a < b ? a : b; }
inline constexpr unsigned long max(unsigned long a, unsigned long b) { return a > b ? a : b; }
inline constexpr long long min(long long a, long long b) { return a < b ? a : b; }
inline constexpr long long max(long long a, long long b) { return a > b ? a : b; }
inline constexpr unsigned long long min(unsigned long long a, unsigned long long b) { return a < b ? a : b; }
inline constexpr unsigned long long max(unsigned long long a, unsigned long long b) { return a > b ? a : b; }
// A NaN loses, as with fminf() and fmaxf().
inline float min(float a, float b) { return __builtin_fminf(a, b); }
inline float max(float a, float b) { return __builtin_fmaxf(a, b); }
inline double min(double a, double b) { return __builtin_fmin(a, b); }
inline double max(double a, double b) { return __builtin_fmax(a, b); }

extern "C" {
float expf(float) noexcept;
float exp2f(float) noexcept;
float logf(float) noexcept;
float log2f(float) noexcept;
float log1pf(float) noexcept;
float sqrtf(float) noexcept;
float fmaf(float, float, float) noexcept;
float fabsf(float) noexcept;
float fmaxf(float, float) noexcept;
float fminf(float, float) noexcept;
float tanhf(float) noexcept;
float floorf(float) noexcept;
float ceilf(float) noexcept;
float rintf(float) noexcept;
float copysignf(float, float) noexcept;
float ldexpf(float, int) noexcept;
int abs(int) noexcept;
int printf(const char *, ...);
void *memcpy(void *, const void *, unsigned long) noexcept;
void *memset(void *, int, unsigned long) noexcept;
}
inline bool isnan(float x) { return __builtin_isnan(x); }
inline bool isinf(float x) { return __builtin_isinf(x); }
inline bool isfinite(float x) { return __builtin_isfinite(x); }
inline float rsqrtf(float x) { return 1.f / sqrtf(x); }
inline float __expf(float x) { return expf(x); }
inline float __exp2f(float x) { return exp2f(x); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __frcp_rn(float x) { return 1.f / x; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
// The operands are volatile lest the compiler makes one operation of two.
inline float __fmul_rn(float a, float b) { volatile float x = a * b; return x; }
inline float __fadd_rn(float a, float b) { volatile float x = a + b; return x; }
inline float __fsub_rn(float a, float b) { volatile float x = a - b; return x; }
inline int __float2int_rn(float x) { return static_cast<int>(rintf(x)); }
inline int __float2int_rz(float x) { return static_cast<int>(x); }
inline int __float2int_rd(float x) { return static_cast<int>(floorf(x)); }
inline float __int2float_rn(int x) { return static_cast<float>(x); }

// ---- memory ----
template <class T> inline T __ldg(const T *p) { return *p; }
template <class T> inline T __ldcg(const T *p) { return *p; }
template <class T> inline T __ldcs(const T *p) { return *p; }
template <class T> inline void __stcs(T *p, T x) { *p = x; }
template <class T> inline void __stcg(T *p, T x) { *p = x; }
inline unsigned long __cvta_generic_to_shared(const void *p) { return emul_shared_address(p); }
inline void *__cvta_shared_to_generic(unsigned long a) { return emul_shared(static_cast<unsigned>(a), 1, 1, "cvta"); }
inline void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __nanosleep(unsigned) { emul_yield(); }
[[noreturn]] inline void __trap() { emul_fault("trap"); }

template <class T> inline T atomicAdd(T *p, T x)
{
    T old = *p, next;
    do
        next = old + x;
    while (!__atomic_compare_exchange(p, &old, &next, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
    return old;
}
template <class T> inline T atomicMax(T *p, T x)
{
    T old = *p, next;
    do
        next = old < x ? x : old;
    while (!__atomic_compare_exchange(p, &old, &next, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
    return old;
}
template <class T> inline T atomicMin(T *p, T x)
{
    T old = *p, next;
    do
        next = x < old ? x : old;
    while (!__atomic_compare_exchange(p, &old, &next, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
    return old;
}
template <class T> inline T atomicCAS(T *p, T expected, T x)
{
    __atomic_compare_exchange(p, &expected, &x, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return expected;
}
template <class T> inline T atomicExch(T *p, T x)
{
    T old;
    __atomic_exchange(p, &x, &old, __ATOMIC_SEQ_CST);
    return old;
}
template <class T> inline T atomicOr(T *p, T x) { return __atomic_fetch_or(p, x, __ATOMIC_SEQ_CST); }
template <class T> inline T atomicAnd(T *p, T x) { return __atomic_fetch_and(p, x, __ATOMIC_SEQ_CST); }

// ---- threads that meet ----
inline void __syncthreads() { emul_sync_block(0, EMUL_COUNT); }
inline int __syncthreads_count(int x) { return emul_sync_block(x, EMUL_COUNT); }
inline int __syncthreads_and(int x) { return emul_sync_block(x, EMUL_AND); }
inline int __syncthreads_or(int x) { return emul_sync_block(x, EMUL_OR); }
inline void __syncwarp(unsigned mask = 0xffffffffu) { emul_sync_warp(mask); }
inline unsigned __ballot_sync(unsigned mask, int x) { return emul_ballot(mask, x); }
inline int __any_sync(unsigned mask, int x) { return emul_ballot(mask, x) != 0; }
inline int __all_sync(unsigned mask, int x) { return emul_ballot(mask, !x) == 0; }
inline unsigned __match_any_sync(unsigned mask, unsigned x) { return emul_match(mask, x); }
inline unsigned __reduce_add_sync(unsigned mask, unsigned x) { return emul_reduce(mask, x, EMUL_ADD); }
inline unsigned __reduce_min_sync(unsigned mask, unsigned x) { return emul_reduce(mask, x, EMUL_UMIN); }
inline unsigned __reduce_max_sync(unsigned mask, unsigned x) { return emul_reduce(mask, x, EMUL_UMAX); }
inline int __reduce_add_sync(unsigned mask, int x) { return static_cast<int>(emul_reduce(mask, static_cast<unsigned>(x), EMUL_ADD)); }
inline int __reduce_min_sync(unsigned mask, int x) { return static_cast<int>(emul_reduce(mask, static_cast<unsigned>(x), EMUL_MIN)); }
inline int __reduce_max_sync(unsigned mask, int x) { return static_cast<int>(emul_reduce(mask, static_cast<unsigned>(x), EMUL_MAX)); }
inline unsigned __reduce_and_sync(unsigned mask, unsigned x) { return emul_reduce(mask, x, EMUL_BITAND); }
inline unsigned __reduce_or_sync(unsigned mask, unsigned x) { return emul_reduce(mask, x, EMUL_BITOR); }
inline unsigned __reduce_xor_sync(unsigned mask, unsigned x) { return emul_reduce(mask, x, EMUL_BITXOR); }

template <class T> inline T emul_shuffled(unsigned mask, T x, enum emul_direction kind, int parameter, int width)
{
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles are of 4 or 8 bytes");
    unsigned long long bits = 0;
    __builtin_memcpy(&bits, &x, sizeof x);
    bits = emul_shuffle(mask, bits, kind, parameter, width);
    __builtin_memcpy(&x, &bits, sizeof x);
    return x;
}
template <class T> inline T __shfl_sync(unsigned mask, T x, int lane, int width = 32)
{
    return emul_shuffled(mask, x, EMUL_IDX, lane, width);
}
template <class T> inline T __shfl_up_sync(unsigned mask, T x, unsigned delta, int width = 32)
{
    return emul_shuffled(mask, x, EMUL_UP, static_cast<int>(delta), width);
}
template <class T> inline T __shfl_down_sync(unsigned mask, T x, unsigned delta, int width = 32)
{
    return emul_shuffled(mask, x, EMUL_DOWN, static_cast<int>(delta), width);
}
template <class T> inline T __shfl_xor_sync(unsigned mask, T x, int distance, int width = 32)
{
    return emul_shuffled(mask, x, EMUL_XOR, distance, width);
}

// ---- asm statements, as rewrite.py leaves them ----
template <char kind, class T> constexpr void emul_check_operand()
{
    static_assert(kind == 'n' || sizeof(T) == (kind == 'h' ? 2 : kind == 'l' || kind == 'd' ? 8 : 4),
                  "an asm operand of another size than its constraint says");
}
template <char kind, class T> inline emul_operand emul_in(T x)
{
    emul_check_operand<kind, T>();
    emul_operand o = {nullptr, 0, sizeof x};
    __builtin_memcpy(&o.value, &x, sizeof x);
    return o;
}
template <char kind, class T> inline emul_operand emul_inout(T &x)
{
    emul_check_operand<kind, T>();
    return {&x, 0, sizeof x};
}
template <char kind, class T> inline emul_operand emul_out(T &x)
{
    return emul_inout<kind>(x);
}
template <class... O> inline void emul_asm_with(const emul_code *code, O... operands)
{
    const emul_operand all[sizeof...(O) + 1] = {operands...};
    emul_asm_run(code, all, sizeof...(O));
}
#define EMUL_ASM(text, ...)                                                                                              \
    do {                                                                                                                 \
        static const emul_code *emul_code_here;                                                                          \
        if (!emul_code_here)                                                                                             \
            emul_code_here = emul_asm(text);                                                                             \
        emul_asm_with(emul_code_here, ##__VA_ARGS__);                                                                    \
    } while (0)
