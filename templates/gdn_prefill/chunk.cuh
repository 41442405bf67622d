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

template <class S> struct chunk_products : kda_products<typename S::element, S::head_dim, S::wgmma> {
    using wide = kda_products<typename S::element, S::head_dim, S::wgmma>; // over K
    using narrow = kda_products<typename S::element, 64, S::wgmma>;        // over tokens
    using at = places<S>;

    // d = v' - d diag(k_in); without v' where not `there`.
    static __device__ __forceinline__ void correct(unsigned from, int group, bool there, float (&d)[32])
    {
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
#pragma unroll
        for (int n = 0; n < 4; n++) { // tokens 16 n + 8 (i / 2), columns 16 warp + 8 (i % 2) in matrix i
            unsigned x[4];
            ldmatrix_x4_trans(x, kda_stage::chunk_at(from + at::v + group * S::cell, 16 * n + lane / 16 * 8 + lane % 8,
                                                     2 * warp + lane / 8 % 2));
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float2 v = to_float2<typename S::element>(x[i]);
                const float2 factor =
                    ld_shared_v2_f32(from + at::factors + (GDN_K_IN + 16 * n + i / 2 * 8 + lane % 4 * 2) * 4);
                d[8 * n + 2 * i] = fmaf(-factor.x, d[8 * n + 2 * i], there ? v.x : 0.f);
                d[8 * n + 2 * i + 1] = fmaf(-factor.y, d[8 * n + 2 * i + 1], there ? v.y : 0.f);
            }
        }
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

    // vn', from S' k' in d.
    static __device__ __forceinline__ void new_values(unsigned from, int group, bool there, float (&d)[32],
                                                      float (&vn)[32])
    {
        correct(from, group, there, d);
        unsigned y[4][4];
        narrow::round_operand(d, y);
        clear(vn);
        narrow::fence();
        narrow::template times_columns<0>(vn, y, from + at::x);
        narrow::template finish<0>(vn);
    }

    // vn' as it is added to S'.
    static __device__ __forceinline__ void outgoing(unsigned from, float (&vn)[32], unsigned (&x)[4][4])
    {
        narrow::decay_columns(from + at::factors + GDN_K_OUT * 4, vn);
        narrow::round_operand(vn, x);
    }
};

} // namespace gdn_prefill
