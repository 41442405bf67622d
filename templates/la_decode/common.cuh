// What both layouts of la_decode share: where the tensors of one (row, value head) lie.
#pragma once

#include "la_decode/args.h"
#include "lib/divide.cuh"
#include "lib/ptx/ldst.cuh"

struct la_decode_place {
    unsigned row, v_head, qk_head;
    int slot;

    __device__ __forceinline__ la_decode_place(const gen_la_decode_params &p, unsigned index)
    {
        row = quotient(index, p.heads_mul, p.heads_shift);
        v_head = index - row * p.num_v_heads;
        qk_head = quotient(v_head, p.group_mul, p.group_shift);
        // Issued before everything else: the state's address depends on it.
        slot = static_cast<int>(row);
        if (p.slots)
            slot = ld_global(p.slots + row);
    }

    // True for a row that must not touch the pool: negative slots, and ones the pool does not have.
    __device__ __forceinline__ bool padding(const gen_la_decode_params &p) const
    {
        return static_cast<unsigned>(slot) >= p.num_slots;
    }

    // The decay of the head; lambda is exp(-decay).
    __device__ __forceinline__ float decay(const gen_la_decode_params &p) const
    {
        return ld_global(p.decay + quotient(v_head, p.decay_mul, p.decay_shift));
    }

    // The state's first element; head_dim x head_dim floats are contiguous.
    template <int head_dim> __device__ __forceinline__ float *state(const gen_la_decode_params &p) const
    {
        return p.state + (static_cast<long long>(slot) * p.num_v_heads + v_head) * (head_dim * head_dim);
    }

    template <int head_dim> __device__ __forceinline__ const unsigned short *q(const gen_la_decode_params &p) const
    {
        return static_cast<const unsigned short *>(p.q) + row * p.q_stride + qk_head * head_dim;
    }

    template <int head_dim> __device__ __forceinline__ const unsigned short *k(const gen_la_decode_params &p) const
    {
        return static_cast<const unsigned short *>(p.k) + row * p.k_stride + qk_head * head_dim;
    }

    template <int head_dim> __device__ __forceinline__ const unsigned short *v(const gen_la_decode_params &p) const
    {
        return static_cast<const unsigned short *>(p.v) + row * p.v_stride + v_head * head_dim;
    }

    template <int head_dim> __device__ __forceinline__ unsigned short *o(const gen_la_decode_params &p) const
    {
        return static_cast<unsigned short *>(p.o) + row * p.o_stride + v_head * head_dim;
    }
};

// h' = lambda h + k v, and the output's share q . h' of four neighbouring k (layout vk) or v (layout kv).
__device__ __forceinline__ float4 decayed_plus(float4 h, float lambda, float4 a, float b)
{
    return make_float4(fmaf(a.x, b, lambda * h.x), fmaf(a.y, b, lambda * h.y), fmaf(a.z, b, lambda * h.z),
                       fmaf(a.w, b, lambda * h.w));
}

__device__ __forceinline__ float4 scaled(float4 x, float factor)
{
    return make_float4(x.x * factor, x.y * factor, x.z * factor, x.w * factor);
}
