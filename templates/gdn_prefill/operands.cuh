// Gated DeltaNet between chunks: how operands get to shared memory. q, k and v come as they lie in memory, row by row; what
// gdn_intra made in one piece each.
#pragma once

#include "gdn_prefill/args.h"
#include "kda/tile.cuh"
#include "kda_inter/operands.cuh"
#include "kda_inter/pool.cuh"
#include "kda_inter/shape.cuh"
#include "lib/divide.cuh"
#include "lib/pipeline.cuh"
#include "lib/ptx/cp_async.cuh"
#include "lib/ptx/mbarrier.cuh"
#include "lib/ptx/tma.cuh"

namespace gdn_prefill {

using kda_inter::record_at;
using kda_inter::work;

// Where a chunk's operands lie in a stage: in the recurrence in the places of kda_inter's, none of which is smaller.
template <class S> struct places {
    static constexpr int groups = S::groups, stages = S::stages; // of 64 columns of V
    static constexpr int x = S::w, q = S::qg, k = S::kg, a_qk = S::a_qk, v = S::u, factors = S::decay;
    static constexpr int stage_bytes = S::stage_bytes, barriers = S::barriers;
};

// In the scan, of which a block has two units of columns, there is neither q nor A_qk. What a block of the recurrence has is room.
template <class S> struct scan_places {
    static constexpr int groups = S::wgmma ? 2 : 1, stages = S::wgmma ? 3 : 1;
    static constexpr int most_values =
        groups < S::head_dim / 64 ? groups : S::head_dim / 64; // groups that have columns of V
    static constexpr int k = 0, x = k + S::tile, v = x + S::cell, factors = v + most_values * S::cell;
    static constexpr int stage_bytes = factors + 1024, barriers = stages * stage_bytes;
    static constexpr int q = 0, a_qk = 0; // not there
    static_assert(barriers + 64 <= S::shared, "less than a block has");
};

template <class Places> __device__ __forceinline__ pipeline<Places::stages> ring_of(unsigned base)
{
    return {base + Places::barriers};
}

// As kda_stage::copy_rows, in a loop: addresses of all rows at once are more than the registers of a warp that copies.
template <int columns, int count>
__device__ __forceinline__ void copy_rows(unsigned to, const unsigned short *from, long long stride, int first,
                                          int valid)
{
    constexpr int chunks = columns / 8, at_once = 32 / chunks; // of a row; rows
    const int lane = threadIdx.x % 32, chunk = lane % chunks;
    int row = first + lane / chunks;
    const unsigned short *x = from + row * stride + chunk * 8;
#pragma unroll 4
    for (int i = 0; i < count; i += at_once, row += at_once, x += at_once * stride)
        cp_async_16_or_zero(kda_stage::chunk_at(to, row, chunk), x, row < valid);
}

// Of `threads` threads each its part of a chunk's q, k and v; zeros beyond the sequence's end. In the scan not of q, and of v's
// columns, of which a block has Places::groups times 64, only where `values` says that there are some.
template <class S, class Places, bool scan, int threads>
__device__ __forceinline__ void copy_inputs(const gen_gdn_prefill_params &p, const work<S> &b, int chunk, int values,
                                            unsigned to)
{
    constexpr int count = S::rows / (threads / 32); // rows of a warp
    constexpr int columns = scan ? scan_places<S>::most_values * 64 : S::groups * 64;
    const int qk_head = quotient(b.head, p.group_mul, p.group_shift), row = threadIdx.x % threads / 32 * count;
    const long long first = b.sequence.first + static_cast<long long>(chunk) * S::rows;
    const int valid = b.sequence.length - chunk * S::rows;
    copy_rows<S::head_dim, count>(to + Places::k,
                                  static_cast<const unsigned short *>(p.k) + first * p.k_stride + qk_head * S::head_dim,
                                  p.k_stride, row, valid);
    if (values)
        copy_rows<columns, count>(to + Places::v,
                                  static_cast<const unsigned short *>(p.v) + first * p.v_stride + b.head * S::head_dim +
                                      b.part * Places::groups * 64,
                                  p.v_stride, row, valid);
    if constexpr (!scan)
        copy_rows<S::head_dim, count>(
            to + Places::q, static_cast<const unsigned short *>(p.q) + first * p.q_stride + qk_head * S::head_dim,
            p.q_stride, row, valid);
}

// ---- with wgmma: two pairs of warps take turns, each with a chunk under way ----

constexpr int pair = 64, arrivals = pair + 1; // threads that fill a stage; and the one that counts the copies' bytes

// q, k and v of a chunk that is full, by TMA: 64 columns at a time, as tiles have them.
template <class S, class Places, bool scan>
__device__ __forceinline__ void load_inputs(const gen_gdn_prefill_params &p, const work<S> &b, int chunk, int values,
                                            unsigned to, unsigned full, unsigned long long policy)
{
    const int qk_head = quotient(b.head, p.group_mul, p.group_shift), row = b.sequence.first + chunk * S::rows;
    const auto load = [&](unsigned place, const unsigned long long(&map)[16], int column, int head) {
        tensor_load_4d(place, reinterpret_cast<const tensor_map *>(map), column, row, head, 0, full, policy);
    };
#pragma unroll
    for (int i = 0; i < S::head_dim / 64; i++) {
        load(to + Places::k + i * S::cell, p.k_map, 64 * i, qk_head);
        if constexpr (!scan)
            load(to + Places::q + i * S::cell, p.q_map, 64 * i, qk_head);
    }
    for (int i = 0; i < values; i++)
        load(to + Places::v + i * S::cell, p.v_map, (b.part * Places::groups + i) * 64, b.head);
}

// A pair brings a chunk's operands, its first thread those that are in one piece, and all of a full chunk. Of one that is not, threads
// copy rows, and zeros behind them; they wait for that and fence it here: a fence of those that compute would wait for the outputs that
// they have stored.
template <class S, class Places, bool scan>
__device__ __forceinline__ void bring_chunk(const gen_gdn_prefill_params &p, const work<S> &b, int chunk, int values,
                                            int s, unsigned long long policy)
{
    const long long record = b.record(p.inter, chunk);
    const unsigned to = b.base + s * Places::stage_bytes, full = ring_of<Places>(b.base).full(s);
    const bool whole = b.sequence.length - chunk * S::rows >= S::rows;
    if (threadIdx.x % pair == 0) {
        const int inputs = whole ? (scan ? 1 : 2) * S::tile + values * S::cell : 0;
        mbarrier_arrive_expect_tx(full, (scan ? 1 : 2) * S::cell + GDN_FACTORS * 4 + inputs);
        if (whole)
            load_inputs<S, Places, scan>(p, b, chunk, values, to, full, policy);
        bulk_load<false>(to + Places::x, record_at(p.inter.w, record, S::cell), S::cell, full, 0);
        bulk_load<false>(to + Places::factors, p.inter.decay + record * GDN_FACTORS, GDN_FACTORS * 4, full, 0);
        if constexpr (!scan)
            bulk_load<false>(to + Places::a_qk, record_at(p.inter.a_qk, record, S::cell), S::cell, full, 0);
    }
    if (!whole) {
        copy_inputs<S, Places, scan, pair>(p, b, chunk, values, to);
        cp_async_commit_group();
    }
    if constexpr (S::pooled && !scan) // while the copies are under way
        if (threadIdx.x % pair == 32)
            kda_inter::tell_checkpoint(b, static_cast<int>(threadIdx.x) / pair % 2, chunk, s);
    if (!whole) {
        cp_async_wait_group<0>();
        fence_proxy_async();
    }
    mbarrier_arrive(full);
}

template <class S, class Places, bool scan>
__device__ __forceinline__ void produce(const gen_gdn_prefill_params &p, const work<S> &b, int values)
{
    const pipeline<Places::stages> ring = ring_of<Places>(b.base);
    const int before = scan ? 0 : b.transitions(), steps = before + b.end - b.begin;
    const unsigned long long policy = policy_evict_last(); // others read the same
    if constexpr (S::pooled && !scan)
        if (threadIdx.x % pair == 32)
            kda_inter::first_checkpoint(b, static_cast<int>(threadIdx.x) / pair % 2);
#pragma unroll 1
    for (int step = threadIdx.x % (2 * pair) / pair; step < steps; step += 2) {
        const int s = step % Places::stages;
        ring.wait_empty(step, s);
        if (step < before) {
            if (threadIdx.x % pair == 0)
                kda_inter::issue_transition(p.inter, b, 1 + step, s);
            mbarrier_arrive(ring.full(s));
        } else {
            bring_chunk<S, Places, scan>(p, b, b.begin + step - before, values, s, policy);
        }
    }
}

// ---- without: every thread copies its part ----

template <class S, class Places, bool scan>
__device__ __forceinline__ void copy_all(const gen_gdn_prefill_params &p, const work<S> &b, int chunk, int values)
{
    const long long record = b.record(p.inter, chunk);
    kda_inter::copy<S>(b.base + Places::x, record_at(p.inter.w, record, S::cell), S::cell);
    kda_inter::copy<S>(b.base + Places::factors, record_at(p.inter.decay, record, GDN_FACTORS * 4), GDN_FACTORS * 4);
    if constexpr (!scan)
        kda_inter::copy<S>(b.base + Places::a_qk, record_at(p.inter.a_qk, record, S::cell), S::cell);
    copy_inputs<S, Places, scan, 128>(p, b, chunk, values, b.base);
    cp_async_commit_group();
    cp_async_wait_group<0>();
    __syncthreads();
}

} // namespace gdn_prefill
