// What the kernels of kda_bwd_wy share: where a block's chunk lies in the tensors, and its betas.
#pragma once

#include "kda/tile.cuh"
#include "kda_bwd_wy/args.h"
#include "lib/half.cuh"
#include "lib/ptx/ldst.cuh"

// Of the chunk's first row: a row of value heads' scalars; elements of value heads' and of query heads' tensors.
struct chunk_place {
    long long row, at, stride, qk_at, qk_stride;
};

template <int head_dim>
__device__ __forceinline__ chunk_place place_of(const gen_kda_bwd_wy_params &p, const kda_stage::block_work &b)
{
    chunk_place c;
    c.row = static_cast<long long>(b.chunk.first) * p.shape.num_v_heads + b.head;
    c.at = c.row * head_dim;
    c.stride = static_cast<long long>(p.shape.num_v_heads) * head_dim;
    c.qk_stride = static_cast<long long>(p.shape.num_qk_heads) * head_dim;
    c.qk_at = b.chunk.first * c.qk_stride + b.qk_head * head_dim;
    return c;
}

// The chunk's state in a tensor of them; null: it counts as zeros.
template <int head_dim>
__device__ __forceinline__ const unsigned short *
state_of(const gen_kda_bwd_wy_params &p, const kda_stage::block_work &b, int number, const void *states)
{
    // Sums of wrong lengths can be negative.
    if (static_cast<unsigned>(number) >= static_cast<unsigned>(p.num_chunks))
        return nullptr;
    return static_cast<const unsigned short *>(states) +
           (static_cast<long long>(number) * p.shape.num_v_heads + b.head) * (head_dim * head_dim);
}

template <class T>
__device__ __forceinline__ void load_betas(const gen_kda_bwd_wy_params &p, const kda_stage::block_work &b,
                                           long long row, unsigned to)
{
    if (threadIdx.x < kda_stage::rows) {
        const int i = threadIdx.x;
        const long long heads = p.shape.num_v_heads;
        float beta = 0.f;
        if (i < b.chunk.rows)
            beta = p.beta_fp32 ? ld_global(static_cast<const float *>(p.beta) + row + i * heads)
                               : to_float<T>(ld_global(static_cast<const unsigned short *>(p.beta) + row + i * heads));
        st_shared_f32(to + i * 4, beta);
    }
}
