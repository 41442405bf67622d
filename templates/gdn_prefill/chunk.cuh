// Gated DeltaNet between chunks: what a chunk does to a group's 64 columns of a state. It is held transposed, V x K, in the
// accumulators of the products that add to it, as in kda_inter:
//
//     d' = v' - (S' k') diag(k_in)      vn' = d' X'      o' = (S' q') diag(q_out) + vn' A_qk'
//     S' = decay S' + vn' diag(k_out) k
//
// with q and k as they came. Norms and decays of tokens are factors of columns, in fp32, so no operand is rewritten.
#pragma once

#include "gdn_prefill/operands.cuh"
#include "kda/products.cuh"
#include "lib/half.cuh"
#include "lib/ptx/ldst.cuh"
#include "lib/ptx/wgmma.cuh"

namespace gdn_prefill {

// Zeros that are in registers here: where ptxas is free to, it makes them between products, and waits.
template <int size> __device__ __forceinline__ void clear(float (&x)[size])
{
#pragma unroll
    for (int i = 0; i < size; i++)
        x[i] = 0.f;
    wgmma_fence_registers(x);
}

// `at`: where operands lie in a stage.
template <class S, class at> struct chunk_products {
    using wide = kda_products<typename S::element, S::head_dim, S::wgmma>; // over K
    using narrow = kda_products<typename S::element, 64, S::wgmma>;        // over tokens

    // Some of the steps of d += a b', b with 64 rows; all of them at once without wgmma.
    template <int first, int steps>
    static __device__ __forceinline__ void times_rows(float (&d)[32], const unsigned (&a)[S::head_dim / 16][4],
                                                      unsigned b)
    {
        if constexpr (S::wgmma) {
            const unsigned long long matrix = wgmma_descriptor(b, 0, 1024);
#pragma unroll
            for (int k = first; k < first + steps; k++)
                wgmma_regs<typename S::element, false>(d, a[k], matrix + ((k / 4 * S::cell + k % 4 * 32) >> 4));
            wgmma_commit_group();
        } else if constexpr (first == 0) {
            wide::times_rows(d, a, b);
        }
    }

    // v' of the warp's rows, before it is needed.
    static __device__ __forceinline__ void load_values(unsigned from, int group, unsigned (&v)[4][4])
    {
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
#pragma unroll
        for (int n = 0; n < 4; n++) // tokens 16 n + 8 (i / 2), columns 16 warp + 8 (i % 2) in matrix i
            ldmatrix_x4_trans(v[n], kda_stage::chunk_at(from + at::v + group * S::cell,
                                                        16 * n + lane / 16 * 8 + lane % 8, 2 * warp + lane / 8 % 2));
    }

    // S' decays. Returns by what.
    static __device__ __forceinline__ float decay(unsigned from, float (&s)[S::head_dim / 2])
    {
        const float factor = ld_shared_f32(from + at::factors + GDN_DECAY * 4);
#pragma unroll
        for (int i = 0; i < S::head_dim / 2; i++)
            s[i] *= factor;
        return factor;
    }

    // v' - d diag(k_in), rounded; without v' where not `there`.
    static __device__ __forceinline__ void correct(unsigned from, const unsigned (&v)[4][4], bool there, float (&d)[32],
                                                   unsigned (&y)[4][4])
    {
#pragma unroll
        for (int t = 0; t < 8; t++) {
            const float2 factor = ld_shared_v2_f32(from + at::factors + (GDN_K_IN + 8 * t + threadIdx.x % 4 * 2) * 4);
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const float2 x = to_float2<typename S::element>(v[t / 2][t % 2 * 2 + h]);
                d[4 * t + 2 * h] = fmaf(-factor.x, d[4 * t + 2 * h], there ? x.x : 0.f);
                d[4 * t + 2 * h + 1] = fmaf(-factor.y, d[4 * t + 2 * h + 1], there ? x.y : 0.f);
            }
        }
        narrow::round_operand(d, y);
    }

    // vn' as it is added to S'.
    static __device__ __forceinline__ void outgoing(unsigned from, float (&vn)[32], unsigned (&x)[4][4])
    {
        narrow::decay_columns(from + at::factors + GDN_K_OUT * 4, vn);
        narrow::round_operand(vn, x);
    }
};

} // namespace gdn_prefill
