// The recurrence between chunks: how outputs get to memory.
#pragma once

#include "kda_inter/shape.cuh"
#include "lib/half.cuh"
#include "lib/ptx/ldst.cuh"
#include "lib/ptx/mma.cuh"
#include "lib/swizzle.cuh"

namespace kda_inter {

// The group's o' to shared memory, [64 tokens][64 columns of V].
template <class S> __device__ __forceinline__ void stage_output(unsigned to, const float (&o)[32])
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    if constexpr (S::wgmma) {
#pragma unroll
        for (int t = 0; t < 8; t += 2) { // matrices: rows 0 and 8 of the warp's of tile t, of tile t + 1
            const unsigned x[4] = {pack2<typename S::element>(o[4 * t], o[4 * t + 1]),
                                   pack2<typename S::element>(o[4 * t + 2], o[4 * t + 3]),
                                   pack2<typename S::element>(o[4 * t + 4], o[4 * t + 5]),
                                   pack2<typename S::element>(o[4 * t + 6], o[4 * t + 7])};
            stmatrix_x4_trans(swizzled<128>(to, 8 * t + lane / 16 * 8 + lane % 8, 2 * warp + lane / 8 % 2), x);
        }
    } else {
#pragma unroll
        for (int i = 0; i < 32; i++) {
            const int token = i / 4 * 8 + lane % 4 * 2 + i % 2;
            const unsigned at = swizzled<128>(to, token, 2 * warp + i / 2 % 2) + lane / 4 * 2;
            st_shared_u16(at, from_float<typename S::element>(o[i]));
        }
    }
}

template <class S>
__device__ __forceinline__ void store_output(const gen_kda_inter_params &p, const work<S> &b, unsigned from, int group,
                                             int chunk)
{
    const int line = threadIdx.x % 128 / 8, column = threadIdx.x % 8;
    const int count = b.sequence.length - chunk * S::rows;
    const long long first = b.sequence.first + chunk * S::rows;
    unsigned short *const to =
        static_cast<unsigned short *>(p.o) + b.head * S::head_dim + (b.part * S::groups + group) * 64 + column * 8;
#pragma unroll
    for (int row = line; row < S::rows; row += 16) {
        unsigned x[4];
        ld_shared_v4_u32(swizzled<128>(from, row, column), x[0], x[1], x[2], x[3]);
        if (row < count)
            st_global_v4_u32(to + (first + row) * p.o_stride, x);
    }
}

} // namespace kda_inter
