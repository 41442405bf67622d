// Tensor core instructions of a warpgroup (sm_90a): 64 x N fp32 += 64 x 16 and 16 x N of T, asynchronous. 128 threads run
// them together; thread t holds, of the accumulator, row 16 (t / 32 % 4) + t % 32 / 4 + 8 (i / 2 % 2) and column
// 8 (i / 4) + 2 (t % 4) + i % 2 in d[i]. Matrices in shared memory are named by descriptors and are swizzled by 128 bytes:
// of an address, bits 4 to 6 are XORed with bits 7 to 9.
#pragma once

// Before the first instruction, and wherever registers that one will use were written by others.
__device__ __forceinline__ void wgmma_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void wgmma_commit_group()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits until at most `pending` of the youngest groups are still running.
template <int pending> __device__ __forceinline__ void wgmma_wait_group()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

// Keeps the compiler from touching an accumulator before this point: the instruction that writes it returns at once.
template <int n> __device__ __forceinline__ void wgmma_fence_registers(float (&d)[n])
{
#pragma unroll
    for (int i = 0; i < n; i++)
        asm volatile("" : "+f"(d[i])::"memory");
}

// A matrix in shared memory, swizzled by 128 bytes, in cells of 8 x 128 bytes (1,024 bytes, aligned to that). `group_bytes`
// lie between cells along the rows (K-major: M or N; MN-major: K), `row_bytes` between cells along a row of an MN-major
// matrix (a K-major one's row is one cell wide here).
__device__ __forceinline__ unsigned long long wgmma_descriptor(unsigned address, unsigned row_bytes,
                                                               unsigned group_bytes)
{
    return static_cast<unsigned long long>(address >> 4 & 0x3fff) |
           static_cast<unsigned long long>(row_bytes >> 4) << 16 |
           static_cast<unsigned long long>(group_bytes >> 4) << 32 | 1ull << 62;
}

// A warp's share of registers: the sum over the block's warps must stay within what the launch gave.
template <int registers> __device__ __forceinline__ void setmaxnreg_inc()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}

template <int registers> __device__ __forceinline__ void setmaxnreg_dec()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}

// ---- the lists of an accumulator's registers: d[0] to d[n / 2 - 1] of 64 x n ----

#define WGMMA_REGISTERS_64                                                   \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define WGMMA_REGISTERS_128                                                                               \
    WGMMA_REGISTERS_64 ", "                                                                               \
                       "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
                       "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define WGMMA_REGISTERS_256                                                                        \
    WGMMA_REGISTERS_128                                                                            \
    ", "                                                                                           \
    "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "             \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "             \
    "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
    "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

#define WGMMA_D64 "{" WGMMA_REGISTERS_64 "}"
#define WGMMA_D128 "{" WGMMA_REGISTERS_128 "}"
#define WGMMA_D256 "{" WGMMA_REGISTERS_256 "}"

#define WGMMA_OUT8(i)                                                                                           \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
        "+f"(d[i + 7])
#define WGMMA_OUT32(i) WGMMA_OUT8(i), WGMMA_OUT8(i + 8), WGMMA_OUT8(i + 16), WGMMA_OUT8(i + 24)
#define WGMMA_OUT64 WGMMA_OUT32(0)
#define WGMMA_OUT128 WGMMA_OUT32(0), WGMMA_OUT32(32)
#define WGMMA_OUT256 WGMMA_OUT128, WGMMA_OUT32(64), WGMMA_OUT32(96)

// ---- products of T, which the macros take by PTX's name ----

// d (+)= a b, 64 x 64: a and b K-major in shared memory.
template <class T>
__device__ __forceinline__ void wgmma_n64(float (&d)[32], unsigned long long a, unsigned long long b, bool accumulate)
{
#define WGMMA_PRODUCT(type)                                                                  \
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %34, 0;\n\t"                          \
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32." #type "." #type " " WGMMA_D64 \
                 ", %32, %33, p, 1, 1, 0, 0;\n\t}"                                           \
                 : WGMMA_OUT64                                                               \
                 : "l"(a), "l"(b), "r"(accumulate ? 1 : 0)                                   \
                 : "memory")
    if constexpr (T::is_bf16)
        WGMMA_PRODUCT(bf16);
    else
        WGMMA_PRODUCT(f16);
#undef WGMMA_PRODUCT
}

// ---- with the left operand in registers: the accumulator of one product, rounded, is the left operand of the next. Of its
// 64 x 16 a thread holds rows as in an accumulator, columns 2 (t % 4) + {0, 1} and those + 8. ----

// d (+)= a b, 64 x 256: b MN-major in shared memory.
template <class T>
__device__ __forceinline__ void wgmma_n256_mn(float (&d)[128], const unsigned (&a)[4], unsigned long long b,
                                              bool accumulate)
{
#define WGMMA_PRODUCT(type)                                                                    \
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %133, 0;\n\t"                           \
                 "wgmma.mma_async.sync.aligned.m64n256k16.f32." #type "." #type " " WGMMA_D256 \
                 ", {%128, %129, %130, %131}, %132, p, 1, 1, 1;\n\t}"                          \
                 : WGMMA_OUT256                                                                \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate ? 1 : 0) \
                 : "memory")
    if constexpr (T::is_bf16)
        WGMMA_PRODUCT(bf16);
    else
        WGMMA_PRODUCT(f16);
#undef WGMMA_PRODUCT
}

// d += a b, 64 x 64: b in shared memory, K-major or (mn) MN-major.
template <class T, bool mn>
__device__ __forceinline__ void wgmma_n64_regs(float (&d)[32], const unsigned (&a)[4], unsigned long long b)
{
#define WGMMA_PRODUCT(type)                                                                    \
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %37, 0;\n\t"                            \
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32." #type "." #type " " WGMMA_D64   \
                 ", {%32, %33, %34, %35}, %36, p, 1, 1, %38;\n\t}"                             \
                 : WGMMA_OUT64                                                                 \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(1), "n"(mn ? 1 : 0) \
                 : "memory")
    if constexpr (T::is_bf16)
        WGMMA_PRODUCT(bf16);
    else
        WGMMA_PRODUCT(f16);
#undef WGMMA_PRODUCT
}

// The same, 64 x 128.
template <class T, bool mn>
__device__ __forceinline__ void wgmma_n128_regs(float (&d)[64], const unsigned (&a)[4], unsigned long long b)
{
#define WGMMA_PRODUCT(type)                                                                    \
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %69, 0;\n\t"                            \
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32." #type "." #type " " WGMMA_D128 \
                 ", {%64, %65, %66, %67}, %68, p, 1, 1, %70;\n\t}"                             \
                 : WGMMA_OUT128                                                                \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(1), "n"(mn ? 1 : 0) \
                 : "memory")
    if constexpr (T::is_bf16)
        WGMMA_PRODUCT(bf16);
    else
        WGMMA_PRODUCT(f16);
#undef WGMMA_PRODUCT
}

// The same by the accumulator's size: 32 registers are 64 columns, 64 are 128.
template <class T, bool mn, int size>
__device__ __forceinline__ void wgmma_regs(float (&d)[size], const unsigned (&a)[4], unsigned long long b)
{
    static_assert(size == 32 || size == 64, "64 or 128 columns");
    if constexpr (size == 32)
        wgmma_n64_regs<T, mn>(d, a, b);
    else
        wgmma_n128_regs<T, mn>(d, a, b);
}
