// The recurrence between chunks: states in pools of slots (kda/public.h), fp32 or of 16 bits, and checkpoints.
//
// A thread has of S', V x K, rows row and row + 8, columns 8 t + 2 (lane % 4) + {0, 1} in elements 4 t to 4 t + 3.
#pragma once

#include "kda_inter/shape.cuh"
#include "lib/half.cuh"
#include "lib/ptx/ldst.cuh"
#include "lib/state.cuh"

namespace kda_inter {

// The sequence's slot, -1 where it is null.
__device__ __forceinline__ int valid_slot(const gen_kda_pools &p, int slot, int num_slots)
{
    return static_cast<unsigned>(slot) < static_cast<unsigned>(num_slots) && slot != p.null_slot ? slot : -1;
}

__device__ __forceinline__ int sequence_slot(const gen_kda_pools &p, const int *slots, int n)
{
    return valid_slot(p, slots ? ld_global(slots + n) : n, p.num_slots);
}

// A head's state in a slot of a pool.
template <class S>
__device__ __forceinline__ char *state_in(const gen_kda_pool_params &p, const void *pool, int slot, long long stride,
                                          int head)
{
    const long long at = slot * stride + static_cast<long long>(head) * (S::head_dim * S::head_dim);
    return static_cast<char *>(const_cast<void *>(pool)) + at * (p.narrow ? 2 : 4);
}

// The block's initial state, nullptr where it begins at 0.
template <class S> __device__ __forceinline__ const char *initial_of(const gen_kda_inter_params &p, const work<S> &b)
{
    if (!p.initial_state)
        return nullptr;
    const gen_kda_pools &pools = b.pools->at;
    const int slot = sequence_slot(pools, pools.slots_in, b.n);
    const bool has = !pools.has_initial || pools.has_initial[b.n];
    return slot >= 0 && has ? state_in<S>(*b.pools, p.initial_state, slot, pools.stride_in, b.head) : nullptr;
}

// The thread's first element in a head's state.
template <class S> __device__ __forceinline__ int first_place(bool vk, int row)
{
    const int k = threadIdx.x % 4 * 2;
    return vk ? row * S::head_dim + k : k * S::head_dim + row;
}

// f(element i, its place from the first one on, distance to i + 1) for every second element: places are constants, since registers
// are few.
template <class S, class F> __device__ __forceinline__ void each_pair(bool vk, F f)
{
    if (vk)
#pragma unroll
        for (int i = 0; i < S::head_dim / 2; i += 2)
            f(i, i / 4 * 8 + i / 2 % 2 * 8 * S::head_dim, 1);
    else
#pragma unroll
        for (int i = 0; i < S::head_dim / 2; i += 2)
            f(i, i / 4 * 8 * S::head_dim + i / 2 % 2 * 8, S::head_dim);
}

template <class S>
__device__ __forceinline__ void load_from(const gen_kda_pool_params &p, bool vk, const char *state, int row,
                                          float (&s)[S::head_dim / 2])
{
    if (!p.narrow) {
        const float *const from = reinterpret_cast<const float *>(state) + first_place<S>(vk, row);
        each_pair<S>(vk, [&](int i, int at, int next) {
            if (next == 1) {
                const uint2 both = ld_global_v2_u32(from + at);
                s[i] = __uint_as_float(both.x), s[i + 1] = __uint_as_float(both.y);
            } else {
                s[i] = ld_global(from + at), s[i + 1] = ld_global(from + at + next);
            }
        });
        return;
    }
    const unsigned short *const from = reinterpret_cast<const unsigned short *>(state) + first_place<S>(vk, row);
    const bool is_fp16 = p.fp16;
    each_pair<S>(vk, [&](int i, int at, int next) {
        unsigned both;
        if (next == 1)
            both = static_cast<unsigned>(ld_global(reinterpret_cast<const int *>(from + at)));
        else
            both = ld_global(from + at) | static_cast<unsigned>(ld_global(from + at + next)) << 16;
        const float2 x = to_float2<fp16>(both), y = to_float2<bf16>(both);
        s[i] = is_fp16 ? x.x : y.x, s[i + 1] = is_fp16 ? x.y : y.y;
    });
}

template <class S>
__device__ __forceinline__ void store_to(const gen_kda_pool_params &p, bool vk, char *state, int row,
                                         const float (&s)[S::head_dim / 2])
{
    if (!p.narrow) {
        float *const to = reinterpret_cast<float *>(state) + first_place<S>(vk, row);
        each_pair<S>(vk, [&](int i, int at, int next) {
            if (next == 1)
                st_global_v2_f32(to + at, s[i], s[i + 1]);
            else
                to[at] = s[i], to[at + next] = s[i + 1];
        });
        return;
    }
    unsigned short *const to = reinterpret_cast<unsigned short *>(state) + first_place<S>(vk, row);
    const bool is_fp16 = p.fp16;
    each_pair<S>(vk, [&](int i, int at, int next) {
        const unsigned both =
            __float_as_uint(is_fp16 ? pack_state<fp16>(s[i], s[i + 1]) : pack_state<bf16>(s[i], s[i + 1]));
        if (next == 1)
            st_global_u32(to + at, both);
        else
            to[at] = static_cast<unsigned short>(both), to[at + next] = static_cast<unsigned short>(both >> 16);
    });
}

// ---- checkpoints ----

// What depends on a block's place is kept in shared memory, so that it is not computed ahead of the loop over chunks and held in
// registers: behind the barriers the first row of S', the sequence, its chunks' end, and twice, for threads that take turns, the
// list's entry that comes next and its token.
template <class S> struct kept {
    static constexpr int end = S::barriers + 68, row = end + 4, sequence = row + 4, entries = sequence + 4;
    static_assert(entries + 16 <= S::barriers + 96, "numbers of warps begin there");
};

template <class S> __device__ __forceinline__ int kept_sequence(const work<S> &b)
{
    return ld_shared_s32(b.base + kept<S>::sequence);
}

__device__ __forceinline__ int clamped_entry(const gen_kda_pools &p, int sequence)
{
    return min(max(ld_global(p.ckpt_begin + sequence), 0), p.num_ckpts);
}

constexpr int no_token = 0x7fffffff;

// Goes to entry `entry` of the sequence's list; its token.
template <class S> __device__ __forceinline__ int go_to_entry(const work<S> &b, unsigned at, int entry)
{
    const gen_kda_pools &p = b.pools->at;
    const int token = entry < clamped_entry(p, kept_sequence(b) + 1) ? ld_global(p.ckpt_token + entry) : no_token;
    st_shared_u32(at, static_cast<unsigned>(entry));
    st_shared_u32(at + 4, static_cast<unsigned>(token));
    return token;
}

// One thread's, before the first chunk of a block: bisects the list. `turn`: which of the threads that take turns.
template <class S> __device__ __forceinline__ void first_checkpoint(const work<S> &b, int turn)
{
    const gen_kda_pools &p = b.pools->at;
    if (!p.ckpt_pool || !p.ckpt_begin)
        return;
    int entry = clamped_entry(p, kept_sequence(b));
    for (int end = clamped_entry(p, kept_sequence(b) + 1); b.begin && entry < end;) {
        const int middle = (entry + end) / 2;
        if (ld_global(p.ckpt_token + middle) < b.begin * S::rows)
            entry = middle + 1;
        else
            end = middle;
    }
    go_to_entry(b, b.base + kept<S>::entries + turn * 8, entry);
}

// Where the state before `chunk` goes, a slot or -1: chunks ascend from call to call. Of the one behind the last chunk the caller
// knows that tokens fill it.
template <class S> __device__ __forceinline__ int checkpoint_slot(const work<S> &b, int turn, int chunk)
{
    const gen_kda_pools &p = b.pools->at;
    int slot = -1;
    if (!p.ckpt_pool)
        return slot;
    if (p.ckpt_begin) {
        const unsigned at = b.base + kept<S>::entries + turn * 8;
        int token = ld_shared_s32(at + 4);
        while (token < chunk * S::rows)
            token = go_to_entry(b, at, ld_shared_s32(at) + 1);
        if (token == chunk * S::rows)
            slot = ld_global(p.ckpt_slot + ld_shared_s32(at));
    } else if (p.ckpt_every) {
        const int column = chunk / p.ckpt_every - 1;
        if (chunk > 0 && chunk % p.ckpt_every == 0 && column < p.ckpt_stride)
            slot = ld_global(p.ckpt_slot + static_cast<long long>(kept_sequence(b)) * p.ckpt_stride + column);
    }
    return valid_slot(p, slot, p.num_ckpt_slots);
}

// By the thread that fills stage `s` with the operands of `chunk`, before it says so: what the others read when it is full.
template <class S> __device__ __forceinline__ void tell_checkpoint(const work<S> &b, int turn, int chunk, int s)
{
    st_shared_u32(b.base + S::checkpoints + s * 4, static_cast<unsigned>(checkpoint_slot(b, turn, chunk)));
    if (chunk + 1 == ld_shared_s32(b.base + kept<S>::end)) {
        const bool full = b.sequence.length == (chunk + 1) * S::rows;
        st_shared_u32(b.base + S::checkpoints + 12,
                      static_cast<unsigned>(full ? checkpoint_slot(b, turn, chunk + 1) : -1));
    }
}

template <class S> __device__ __forceinline__ int told_checkpoint(const work<S> &b, int s)
{
    return ld_shared_s32(b.base + S::checkpoints + s * 4); // the same for all
}

// By one thread, before the others are let behind a barrier.
template <class S> __device__ __forceinline__ void keep_place(const work<S> &b)
{
    st_shared_u32(b.base + kept<S>::end, static_cast<unsigned>(b.end));
    st_shared_u32(b.base + kept<S>::row, static_cast<unsigned>(b.part * S::groups * 64));
    st_shared_u32(b.base + kept<S>::sequence, static_cast<unsigned>(b.n));
    if (b.begin == b.end) { // no chunk's stage publishes what is behind it
        first_checkpoint(b, 0);
        st_shared_u32(b.base + S::checkpoints + 12, static_cast<unsigned>(checkpoint_slot(b, 0, b.end)));
    }
}

template <class S> __device__ __forceinline__ int kept_row(const work<S> &b)
{
    return ld_shared_s32(b.base + kept<S>::row) + static_cast<int>(threadIdx.x) / 32 * 16 +
           static_cast<int>(threadIdx.x) % 32 / 4;
}

// Where the block's state goes in a slot of a pool, nullptr of slot -1.
template <class S>
__device__ __forceinline__ char *place_in(const work<S> &b, const void *pool, int slot, long long stride)
{
    return slot < 0 ? nullptr : state_in<S>(*b.pools, pool, slot, stride, b.head);
}

template <class S>
__device__ __forceinline__ void store_checkpoint(const gen_kda_inter_params &p, const work<S> &b, int slot,
                                                 const float (&s)[S::head_dim / 2])
{
    const gen_kda_pools &pools = b.pools->at;
    if (char *const to = place_in(b, pools.ckpt_pool, slot, pools.ckpt_state_stride))
        store_to<S>(*b.pools, p.state_vk, to, kept_row(b), s);
}

// Behind the block's last chunk: a checkpoint, also of a sequence without tokens, and where that is the sequence's last the final
// state.
template <class S>
__device__ __forceinline__ void store_last(const gen_kda_inter_params &p, const work<S> &b, bool last,
                                           const float (&s)[S::head_dim / 2])
{
    const gen_kda_pools &pools = b.pools->at;
    char *to = place_in(b, pools.ckpt_pool, told_checkpoint(b, 3), pools.ckpt_state_stride), *final = nullptr;
    if (last && p.final_state)
        final = place_in(b, p.final_state, sequence_slot(pools, pools.slots_out, kept_sequence(b)), pools.stride_out);
#pragma unroll 1
    for (int i = 0; i < 2; i++, to = final) // one copy of the code
        if (to)
            store_to<S>(*b.pools, p.state_vk, to, kept_row(b), s);
}

} // namespace kda_inter
