// The recurrence between chunks: a block's state, from and to memory and through the segments before its own.
#pragma once

#include "kda_inter/operands.cuh"
#include "kda_inter/pool.cuh"
#include "lib/half.cuh"
#include "lib/pipeline.cuh"
#include "lib/ptx/cp_async.cuh"
#include "lib/ptx/ldst.cuh"

namespace kda_inter {

// Of the thread's elements 4 t + 2 h + {0, 1}, the place in a state; h: row + 8.
template <class S>
__device__ __forceinline__ long long state_at(const gen_kda_inter_params &p, const work<S> &b, int v, int k)
{
    const long long state = static_cast<long long>(b.n) * p.num_v_heads + b.head;
    return state * (S::head_dim * S::head_dim) + (p.state_vk ? v * S::head_dim + k : k * S::head_dim + v);
}

// f(element, its place in the block's state), each layout by itself, so that a place is the first one and a constant: fewer
// registers than state_at() takes.
template <class S, class F> __device__ __forceinline__ void each_element(const gen_kda_inter_params &p, int row, F f)
{
    const int k = threadIdx.x % 4 * 2, first = p.state_vk ? row * S::head_dim + k : k * S::head_dim + row;
    if (p.state_vk)
#pragma unroll
        for (int i = 0; i < S::head_dim / 2; i++)
            f(i, first + i / 4 * 8 + i % 2 + i / 2 % 2 * 8 * S::head_dim);
    else
#pragma unroll
        for (int i = 0; i < S::head_dim / 2; i++)
            f(i, first + (i / 4 * 8 + i % 2) * S::head_dim + i / 2 % 2 * 8);
}

// Does the block's sequence have an initial state?
template <class S> __device__ __forceinline__ bool has_initial(const gen_kda_inter_params &p, const work<S> &b)
{
    if constexpr (S::pooled)
        return initial_of(p, b) != nullptr;
    else
        return p.initial_state != nullptr;
}

// `roomy`: a block of one group has all registers that a thread may have.
template <bool roomy = true, class S>
__device__ __forceinline__ void load_state(const gen_kda_inter_params &p, const work<S> &b, int row,
                                           float (&s)[S::head_dim / 2])
{
#pragma unroll
    for (int i = 0; i < S::head_dim / 2; i++)
        s[i] = 0.f;
    if constexpr (S::pooled) {
        if (const char *const from = initial_of(p, b))
            load_from<S>(*b.pools, p.state_vk, from, row, s);
        return;
    }
    if (!p.initial_state)
        return;
    if constexpr (!roomy) {
        const float *const from = p.initial_state + state_at(p, b, 0, 0);
        each_element<S>(p, row, [&](int i, int at) { s[i] = ld_global(from + at); });
    } else {
#pragma unroll
        for (int i = 0; i < S::head_dim / 2; i++)
            s[i] = ld_global(p.initial_state +
                             state_at(p, b, row + i / 2 % 2 * 8, i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2));
    }
}

template <bool roomy = true, class S>
__device__ __forceinline__ void store_state(const gen_kda_inter_params &p, const work<S> &b, int row,
                                            const float (&s)[S::head_dim / 2])
{
    if (!p.final_state)
        return;
    if constexpr (!roomy) {
        float *const to = p.final_state + state_at(p, b, 0, 0);
        each_element<S>(p, row, [&](int i, int at) { to[at] = s[i]; });
    } else {
#pragma unroll
        for (int i = 0; i < S::head_dim / 2; i++)
            p.final_state[state_at(p, b, row + i / 2 % 2 * 8, i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2)] = s[i];
    }
}

// Stores the state before a chunk, rounded as the left operand has it, from row `row` on. A chunk number out of range, which
// follows from wrong cu_seqlens and can be negative, is skipped.
template <bool roomy = true, class S>
__device__ __forceinline__ void store_states(const gen_kda_inter_params &p, const work<S> &b, int chunk, int row,
                                             const unsigned (&a)[S::head_dim / 16][4])
{
    if (static_cast<unsigned>(chunk) >= static_cast<unsigned>(p.num_states))
        return;
    const long long record = static_cast<long long>(chunk) * p.num_v_heads + b.head;
    unsigned short *const to = static_cast<unsigned short *>(p.states) + record * (S::head_dim * S::head_dim);
    if constexpr (!roomy) {
        each_element<S>(
            p, row, [&](int i, int at) { to[at] = static_cast<unsigned short>(a[i / 8][i % 8 / 2] >> i % 2 * 16); });
    } else {
#pragma unroll
        for (int k = 0; k < S::head_dim / 16; k++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int v = row + i % 2 * 8, channel = 16 * k + i / 2 * 8 + threadIdx.x % 4 * 2;
                if (p.state_vk) {
                    *reinterpret_cast<unsigned *>(to + v * S::head_dim + channel) = a[k][i];
                } else {
                    to[channel * S::head_dim + v] = static_cast<unsigned short>(a[k][i]);
                    to[(channel + 1) * S::head_dim + v] = static_cast<unsigned short>(a[k][i] >> 16);
                }
            }
    }
}

// A thread's place in what a segment adds: 16 bytes for each 8 columns.
template <class S>
__device__ __forceinline__ float *added_of(const gen_kda_inter_params &p, const work<S> &b, int i, int columns)
{
    const long long record = b.segment_record(p, i) * (S::head_dim / 64) + columns;
    return p.added + record * S::added_floats + threadIdx.x % 128 * 4;
}

template <int size> __device__ __forceinline__ void load_added(const float *from, float (&s)[size])
{
#pragma unroll
    for (int t = 0; t < size / 4; t++) {
        const float4 x = ld_global_v4_f32<false>(from + t * 512);
        s[4 * t] = x.x, s[4 * t + 1] = x.y, s[4 * t + 2] = x.z, s[4 * t + 3] = x.w;
    }
}

template <int size> __device__ __forceinline__ void store_added(float *to, const float (&s)[size])
{
#pragma unroll
    for (int t = 0; t < size / 4; t++)
        st_global_v4_f32<false>(to + t * 512, make_float4(s[4 * t], s[4 * t + 1], s[4 * t + 2], s[4 * t + 3]));
}

// s = diag(D) s + added, both from global memory.
template <int size>
__device__ __forceinline__ void decay_and_add(const float *decay, const float *from, float (&s)[size])
{
#pragma unroll
    for (int t = 0; t < size / 4; t++) {
        const uint2 factor = ld_global_v2_u32(decay + 8 * t + threadIdx.x % 4 * 2);
        const float4 x = ld_global_v4_f32<false>(from + t * 512);
        s[4 * t] = fmaf(s[4 * t], __uint_as_float(factor.x), x.x);
        s[4 * t + 1] = fmaf(s[4 * t + 1], __uint_as_float(factor.y), x.y);
        s[4 * t + 2] = fmaf(s[4 * t + 2], __uint_as_float(factor.x), x.z);
        s[4 * t + 3] = fmaf(s[4 * t + 3], __uint_as_float(factor.y), x.w);
    }
}

// What the first 16 bits leave of an accumulator, in another 16.
template <class T, int steps, int size>
__device__ __forceinline__ void round_rest(const float (&d)[size], const unsigned (&a)[steps][4],
                                           unsigned (&rest)[steps][4])
{
#pragma unroll
    for (int k = 0; k < steps; k++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float2 both = to_float2<T>(a[k][i]);
            rest[k][i] = pack2<T>(d[8 * k + 2 * i] - both.x, d[8 * k + 2 * i + 1] - both.y);
        }
}

// S' = S' diag(D) + S' R' (kda_scan/args.h). What only decays is multiplied in fp32. The rest is as exact as
// products of 16-bit numbers allow: both factors are sums of two, and the product of the lesser parts is left out.
// R' has rows of K in 64s, each first part followed by its rest; D lies behind them.
template <class S>
__device__ __forceinline__ void apply_transition(const unsigned (&a)[S::head_dim / 16][4],
                                                 const unsigned (&rest)[S::head_dim / 16][4], unsigned m,
                                                 float (&s)[S::head_dim / 2])
{
    products<S>::fence();
    products<S>::template times_columns<0>(s, a, m);
    products<S>::template times_columns<0>(s, rest, m);
    products<S>::template times_columns<0>(s, a, m + S::tile);
    if constexpr (S::head_dim > 64) {
        products<S>::template times_columns<4>(s, a, m + 2 * S::tile);
        products<S>::template times_columns<4>(s, rest, m + 2 * S::tile);
        products<S>::template times_columns<4>(s, a, m + 3 * S::tile);
    }
    products<S>::template finish<0>(s);
}

// The state before the block's first chunk.
template <bool roomy = true, class S>
__device__ __forceinline__ void begin_state(const gen_kda_inter_params &p, const work<S> &b, int group, int row,
                                            float (&s)[S::head_dim / 2])
{
    const int columns = b.part * S::groups + group;
    // kda_scan has stored it apart, because the block of the last segment may have written the final state over it.
    if constexpr (S::pooled && S::segmented) { // each kind of loads at one place
        if (b.count > 1 && (b.number > 0 || has_initial(p, b)))
            load_added(added_of(p, b, b.number > 0 ? 0 : b.count - 1, columns), s);
        else
            load_state<roomy>(p, b, row, s);
    } else if (!S::segmented || b.count <= 1) {
        load_state<roomy>(p, b, row, s);
        return;
    } else if (b.number == 0) {
        if (p.initial_state)
            load_added(added_of(p, b, b.count - 1, columns), s);
        else
            load_state<roomy>(p, b, row, s);
        return;
    } else {
        load_added(added_of(p, b, 0, columns), s);
    }
    for (int i = 1; i < b.number; i++) {
        const int step = i - 1;
        const unsigned from = b.stage(S::wgmma ? step % S::stages : 0);
        unsigned a[S::head_dim / 16][4], rest[S::head_dim / 16][4];
        float added[S::head_dim / 2];
        constexpr bool early =
            roomy && S::wgmma && S::groups == 1; // loads overlap the products, if registers hold them
        if constexpr (early)
            load_added(added_of(p, b, i, columns), added);
        if constexpr (S::wgmma) {
            products<S>::round_operand(s, a);
            round_rest<typename S::element>(s, a, rest);
            b.ring().wait_full(step);
            products<S>::decay_columns(from + S::segment_decay, s);
            apply_transition<S>(a, rest, from, s);
            b.ring().release(step);
        } else {
            const long long record = b.segment_record(p, i);
            products<S>::round_operand(s, a);
            round_rest<typename S::element>(s, a, rest);
            decay_and_add(p.segment_decay + record * S::head_dim, added_of(p, b, i, columns), s);
            copy<S>(b.base, record_at(p.transition, record, S::transition_bytes), S::transition_bytes);
            cp_async_commit_group();
            cp_async_wait_group<0>();
            __syncthreads();
            apply_transition<S>(a, rest, from, s);
            __syncthreads();
        }
        if constexpr (S::wgmma && !early)
            load_added(added_of(p, b, i, columns), added);
        if constexpr (S::wgmma)
#pragma unroll
            for (int k = 0; k < S::head_dim / 2; k++)
                s[k] += added[k];
    }
}

} // namespace kda_inter
