// Groups of value heads in variants that keep a query head's normalized rows in registers from one head to the next
// (kda_bwd_grad.cu.in). Sums of q's and k's gradients pass from head to head as accumulators hold them, and only the group's last
// head makes rows of them. P's diagonals are added where they lie in shared memory, for the rows of q and k that they are
// multiplied by are the group's.
#pragma once

#include "kda_bwd_grad/layout.cuh"
#include "lib/ptx/cp_async.cuh"
#include "lib/ptx/ldst_policy.cuh"

namespace kda_grad {

// What a group's earlier heads have made, a half at a time: each thread reads what it has written, past L1. L2 keeps it by a
// policy, for between two heads of a block all blocks together move about as much as it holds.
template <int head_dim> struct kept_sums {
    using L = layout<head_dim>;
    static constexpr int step = L::threads * 4;
    float4 x[4];

    static __device__ __forceinline__ float *place(const gen_kda_bwd_grad_params &p)
    {
        return p.sums + static_cast<long long>(blockIdx.x) * (8 * step) + thread_again() * 4;
    }
    __device__ __forceinline__ void load(const gen_kda_bwd_grad_params &p, int half)
    {
        const float *const at = place(p) + half * 4 * step;
        const unsigned long long policy = policy_evict_last();
#pragma unroll
        for (int i = 0; i < 4; i++)
            x[i] = ld_global_cg_v4_f32_policy(at + i * step, policy);
    }
    __device__ __forceinline__ void add_to(float (&d)[4][4]) const
    {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float(&y)[4] = d[i];
            y[0] += x[i].x, y[1] += x[i].y, y[2] += x[i].z, y[3] += x[i].w;
        }
    }
    // For the group's next head.
    static __device__ __forceinline__ void store(const gen_kda_bwd_grad_params &p, const float (&d)[2][4][4])
    {
        float *const at = place(p);
        const unsigned long long policy = policy_evict_last();
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const float(&y)[4] = d[i / 4][i % 4];
            st_global_v4_f32_policy(at + i * step, make_float4(y[0], y[1], y[2], y[3]), policy);
        }
    }
};

} // namespace kda_grad
