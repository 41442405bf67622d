// Groups of value heads in variants that keep a query head's normalized rows in registers from one head to the next
// (kda_bwd_grad.cu.in). What earlier heads have made of q's and k's gradients is loaded ahead of a barrier, so that its way
// from L2 is that of the gates' rows, and stays in L2 by a policy: between two heads of a block all blocks together read and
// write about as much as L2 holds.
#pragma once

#include "kda_bwd_grad/rows.cuh"
#include "lib/ptx/cp_async.cuh"
#include "lib/ptx/ldst_policy.cuh"
#include "lib/ticket.cuh"

namespace kda_grad {

// Whose turn a chunk is. Units, which are single heads or a group's, go round among the blocks.
template <int head_dim> struct rounds {
    __device__ __forceinline__ rounds(const gen_kda_bwd_grad_params &, unsigned) {}
    __device__ __forceinline__ int begin(const gen_kda_bwd_grad_params &p, unsigned) const
    {
        return static_cast<int>(blockIdx.x) * p.unit;
    }
    __device__ __forceinline__ int behind(const gen_kda_bwd_grad_params &p, const block_work &b) const
    {
        return tile_behind(p, b);
    }
    // Whether the block loads rows of q and k for it.
    __device__ __forceinline__ bool is_first(const gen_kda_bwd_grad_params &, const block_work &) const { return true; }
};

// Of variants that keep these rows: units go round among the blocks; the heads of those that are left for a last round are spread, one to
// a block, where all blocks together have room for them, and the last block to finish adds them up.
template <int head_dim> struct spread_rounds {
    using L = layout<head_dim>;

    // In shared memory, as registers are few: the first tile that is spread.
    __device__ __forceinline__ spread_rounds(const gen_kda_bwd_grad_params &p, unsigned base)
    {
        const int blocks = static_cast<int>(gridDim.x), units = p.num_tiles / p.unit, rest = units % blocks;
        if (threadIdx.x == 0)
            st_shared_u32(base + L::end, p.unit > 1 && rest * p.unit <= blocks ? (units - rest) * p.unit : p.num_tiles);
        __syncthreads();
    }
    __device__ __forceinline__ int from(unsigned base, int tile) const
    {
        const int spread = ld_shared_s32(base + L::end);
        return tile < spread ? tile : spread + static_cast<int>(blockIdx.x);
    }
    __device__ __forceinline__ int begin(const gen_kda_bwd_grad_params &p, unsigned base) const
    {
        return from(base, static_cast<int>(blockIdx.x) * p.unit);
    }
    __device__ __forceinline__ bool is_spread(const gen_kda_bwd_grad_params &p, const block_work &b) const
    {
        return b.slot * p.shape.num_v_heads + b.head >= ld_shared_s32(b.base + L::end);
    }
    __device__ __forceinline__ int behind(const gen_kda_bwd_grad_params &p, const block_work &b) const
    {
        return is_spread(p, b) ? p.num_tiles : from(b.base, tile_behind(p, b));
    }
    // Whether the block has had no other head of the group.
    __device__ __forceinline__ bool is_first(const gen_kda_bwd_grad_params &p, const block_work &b) const
    {
        return is_spread(p, b) || first_of_unit(p, b);
    }
};

// Gradients of q's and k's rows, of a block's heads of a group until here.
template <int head_dim> struct kept_sums {
    using L = layout<head_dim>;
    using place = group_sums<head_dim>;
    static constexpr int part = L::own * place::step; // elements, of q's or k's of a block
    float q[L::own][L::channels], k[L::own][L::channels];

    template <bool add>
    static __device__ __forceinline__ void load_rows(const float *from, float (&x)[L::own][L::channels],
                                                     unsigned long long policy)
    {
#pragma unroll
        for (int i = 0; i < L::own; i++) {
            float more[L::channels];
            if constexpr (L::channels == 4) {
                const float4 all = ld_global_cg_v4_f32_policy(from + i * place::step, policy);
                more[0] = all.x, more[1] = all.y, more[2] = all.z, more[3] = all.w;
            } else {
                const float2 both = ld_global_cg_v2_f32_policy(from + i * place::step, policy);
                more[0] = both.x, more[1] = both.y;
            }
#pragma unroll
            for (int c = 0; c < L::channels; c++)
                x[i][c] = add ? x[i][c] + more[c] : more[c];
        }
    }
    static __device__ __forceinline__ void store_rows(float *to, const float (&x)[L::own][L::channels],
                                                      unsigned long long policy)
    {
#pragma unroll
        for (int i = 0; i < L::own; i++)
            if constexpr (L::channels == 4)
                st_global_v4_f32_policy(to + i * place::step, make_float4(x[i][0], x[i][1], x[i][2], x[i][3]), policy);
            else
                st_global_v2_f32_policy(to + i * place::step, make_float2(x[i][0], x[i][1]), policy);
    }

    // Zeros for a block's first head of a group.
    __device__ __forceinline__ void load(const gen_kda_bwd_grad_params &p, bool first)
    {
        if (first) {
#pragma unroll
            for (int i = 0; i < L::own; i++)
#pragma unroll
                for (int c = 0; c < L::channels; c++)
                    q[i][c] = k[i][c] = 0.f;
            return;
        }
        const float *const at = place::place(p);
        const unsigned long long policy = policy_evict_last();
        load_rows<false>(at, q, policy);
        load_rows<false>(at + part, k, policy);
    }
    // What load_gradients() gives is added, row by row.
    template <class T>
    __device__ __forceinline__ void add(const block_work &b, const unit_rows<L::own, L::channels> &unit)
    {
        constexpr int channels = L::channels;
        const int thread = thread_again(), lane = thread % 32, first = thread / 32 * L::own;
        const unsigned from = floats_at<head_dim>(b.base, first, lane * channels / 8) + lane * channels % 8 * 4;
#pragma unroll
        for (int i = 0; i < L::own; i++) {
            float x[channels], y[channels], d[channels];
            const float on_diagonal = ld_shared_f32(b.base + L::diagonal + first * 4 + i * 4);
            unpack<T>(unit.q[i], x);
            unpack<T>(unit.k[i], y);
            load_lane<channels>((from ^ i % 4 * 32) + L::d_q + i * L::vector, d);
#pragma unroll
            for (int c = 0; c < channels; c++)
                q[i][c] += fmaf(on_diagonal, y[c], d[c]);
            load_lane<channels>((from ^ i % 4 * 32) + L::d_k + i * L::vector, d);
#pragma unroll
            for (int c = 0; c < channels; c++)
                k[i][c] += fmaf(on_diagonal, x[c], d[c]);
        }
    }
    // For the group's next head.
    __device__ __forceinline__ void store(const gen_kda_bwd_grad_params &p) const
    {
        float *const at = place::place(p);
        const unsigned long long policy = policy_evict_last();
        store_rows(at, q, policy);
        store_rows(at + part, k, policy);
    }

    // Of a head by itself, stored: whether those of the group's other heads are, too, so that they are added here. Tickets
    // are handed out in the place of a block that no launch has.
    __device__ __forceinline__ bool is_last_to_store(const gen_kda_bwd_grad_params &p, const block_work &b) const
    {
        const unsigned answer = b.base + L::log_sums; // in use between other barriers
        __syncthreads();
        if (threadIdx.x == 0) {
            unsigned long long *const word =
                reinterpret_cast<unsigned long long *>(p.sums + KDA_BWD_GRAD_TICKETS * (2LL * part)) +
                blockIdx.x / p.unit;
            __threadfence();
            open_tickets(word, look_at_tickets(word));
            const bool all = take_ticket(word) + 1 >= static_cast<unsigned>(p.unit);
            if (all)
                close_tickets(word);
            __threadfence();
            st_shared_u32(answer, static_cast<unsigned>(all));
        }
        __syncthreads();
        return ld_shared_s32(answer);
    }
    // In the heads' order, as one block would.
    __device__ __forceinline__ void add_all(const gen_kda_bwd_grad_params &p)
    {
        const float *at = place::place(p) - static_cast<int>(blockIdx.x) % p.unit * (2LL * part);
        const unsigned long long policy = policy_evict_last();
        load_rows<false>(at, q, policy);
        load_rows<false>(at + part, k, policy);
#pragma unroll 1
        for (int i = 1; i < p.unit; i++) {
            at += 2 * part;
            load_rows<true>(at, q, policy);
            load_rows<true>(at + part, k, policy);
        }
    }
};

// store_rows(), behind sums.load().
template <class T, int head_dim>
__device__ __forceinline__ void
store_kept_rows(const gen_kda_bwd_grad_params &p, const block_work &b, const spread_rounds<head_dim> &turns,
                const unit_rows<layout<head_dim>::own, layout<head_dim>::channels> &unit, kept_sums<head_dim> &sums)
{
    sums.template add<T>(b, unit);
    if (turns.is_spread(p, b)) {
        sums.store(p);
        if (!sums.is_last_to_store(p, b))
            return;
        sums.add_all(p);
    } else if (!last_of_unit(p, b)) {
        sums.store(p);
        return;
    }
    if (p.qk_l2norm && p.q.d_x)
        through_norm<T>(unit, sums.q, sums.k);
    store_gradients<T, head_dim>(p, p.q, b, sums.q);
    store_gradients<T, head_dim>(p, p.k, b, sums.k);
}

} // namespace kda_grad
