// Products of Kimi Delta Attention's recurrence, which holds a state transposed, V x K, in the accumulators of the products that add
// to it: by wgmma or by mma.sync. Rounded, an accumulator is the next product's left operand as it stands.
//
// A thread has, of 64 x n, rows row and row + 8 of its warp's 16, columns 8 t + 2 (lane % 4) + {0, 1} in elements 4 t to
// 4 t + 3: for mma.sync as for wgmma.
#pragma once

#include "kda/tile.cuh"
#include "lib/half.cuh"
#include "lib/ptx/ldst.cuh"
#include "lib/ptx/mma.cuh"
#include "lib/ptx/wgmma.cuh"
#include "lib/swizzle.cuh"

// `by_chunks`: of two ways to the same addresses of fragments the one by chunk_at(). Compilers do not see that they are the same, and
// tuning rows are of what they make of either.
template <class element, int head_dim, bool wgmma, bool by_chunks = false> struct kda_products {
    static constexpr int cell = kda_stage::cell;

    // Before products whose registers others wrote.
    static __device__ __forceinline__ void fence()
    {
        if constexpr (wgmma)
            wgmma_fence();
    }

    // Waits until at most `pending` of the youngest products are under way.
    template <int pending, int size> static __device__ __forceinline__ void finish(float (&d)[size])
    {
        if constexpr (wgmma) {
            wgmma_wait_group<pending>();
            wgmma_fence_registers(d);
        }
    }

    // Tiles t and t + 1 of 8 columns.
    template <int size>
    static __device__ __forceinline__ void multiply(float (&d)[size], int t, const unsigned (&a)[4],
                                                    const unsigned (&b)[4])
    {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float x[4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                x[i] = d[4 * (t + h) + i];
            mma_m16n8k16<element>(x, a, b[2 * h], b[2 * h + 1]);
#pragma unroll
            for (int i = 0; i < 4; i++)
                d[4 * (t + h) + i] = x[i];
        }
    }

    // d += a b', b with 64 rows, `steps` times 16 columns: K-major.
    template <int steps>
    static __device__ __forceinline__ void times_rows(float (&d)[32], const unsigned (&a)[steps][4], unsigned b)
    {
        if constexpr (wgmma) {
            const unsigned long long matrix = wgmma_descriptor(b, 0, 1024);
#pragma unroll
            for (int k = 0; k < steps; k++)
                wgmma_regs<element, false>(d, a[k], matrix + ((k / 4 * cell + k % 4 * 32) >> 4));
            wgmma_commit_group();
        } else {
            const int lane = threadIdx.x % 32, row = lane / 16 * 8 + lane % 8;
#pragma unroll
            for (int k = 0; k < steps; k++)
#pragma unroll
                for (int n = 0; n < 4; n++) {
                    unsigned x[4];
                    if constexpr (by_chunks)
                        kda_stage::load_chunks_first(x, b, 16 * n, 2 * k);
                    else
                        ldmatrix_x4(x, swizzled<128>(b + k / 4 * cell, 16 * n + row, k % 4 * 2 + lane / 8 % 2));
                    multiply(d, 2 * n, a[k], x);
                }
        }
    }

    // d += a b, b with 64 rows, head_dim columns: MN-major. Of a, four times 16 columns from step `first` on.
    template <int first, int steps>
    static __device__ __forceinline__ void times_columns(float (&d)[head_dim / 2], const unsigned (&a)[steps][4],
                                                         unsigned b)
    {
        if constexpr (wgmma) {
            const unsigned long long matrix = wgmma_descriptor(b, cell, 1024);
#pragma unroll
            for (int k = 0; k < 4; k++)
                wgmma_regs<element, true>(d, a[first + k], matrix + (k * 2048 >> 4));
            wgmma_commit_group();
        } else {
            const int lane = threadIdx.x % 32;
#pragma unroll
            for (int k = 0; k < 4; k++)
#pragma unroll
                for (int n = 0; n < head_dim / 16; n++) {
                    unsigned x[4];
                    if constexpr (by_chunks)
                        kda_stage::load_rows_first_trans(x, b, 16 * k, 2 * n);
                    else
                        ldmatrix_x4_trans(x,
                                          swizzled<128>(b + n / 4 * cell, 16 * k + lane % 16, n % 4 * 2 + lane / 16));
                    multiply(d, 2 * n, a[first + k], x);
                }
        }
    }

    // An accumulator rounded, or what it is the negative of.
    template <bool negative = false, int steps, int size>
    static __device__ __forceinline__ void round_operand(const float (&d)[size], unsigned (&a)[steps][4])
    {
        static_assert(size == steps * 8, "all of it");
#pragma unroll
        for (int k = 0; k < steps; k++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                a[k][i] = pack2<element>(d[8 * k + 2 * i], d[8 * k + 2 * i + 1]) ^ (negative ? 0x80008000u : 0);
    }

    // s times a factor a column, fp32 in shared memory.
    static __device__ __forceinline__ void decay_columns(unsigned from, float (&s)[head_dim / 2])
    {
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int t = 0; t < head_dim / 8; t++) {
            const float2 factor = ld_shared_v2_f32(from + (8 * t + lane % 4 * 2) * 4);
            s[4 * t] *= factor.x, s[4 * t + 1] *= factor.y;
            s[4 * t + 2] *= factor.x, s[4 * t + 3] *= factor.y;
        }
    }
};
