// Gated DeltaNet between chunks: how operands get to shared memory. q, k and v come as they lie in memory, row by row; what
// gdn_intra made in one piece each.
#pragma once

#include "gdn_prefill/args.h"
#include "kda/tile.cuh"
#include "kda_inter/operands.cuh"
#include "kda_inter/shape.cuh"
#include "lib/divide.cuh"
#include "lib/ptx/cp_async.cuh"
#include "lib/ptx/mbarrier.cuh"
#include "lib/ptx/tma.cuh"

namespace gdn_prefill {

using kda_inter::record_at;
using kda_inter::work;

// Where a chunk's operands lie in a stage: in the places of kda_inter's, none of which is smaller.
template <class S> struct places {
    static constexpr int x = S::w, q = S::qg, k = S::kg, a_qk = S::a_qk, v = S::u, factors = S::decay;
};

// Columns of V from the first on, of which a block's groups have 64 each; `values` groups have any.
struct inputs {
    const unsigned short *q, *k, *v; // of the chunk's first row
    int valid;                       // rows
};

template <class S>
__device__ __forceinline__ inputs inputs_of(const gen_gdn_prefill_params &p, const work<S> &b, int chunk)
{
    const int qk_head = quotient(b.head, p.group_mul, p.group_shift);
    const long long first = b.sequence.first + static_cast<long long>(chunk) * S::rows;
    inputs at;
    at.q = static_cast<const unsigned short *>(p.q) + first * p.q_stride + qk_head * S::head_dim;
    at.k = static_cast<const unsigned short *>(p.k) + first * p.k_stride + qk_head * S::head_dim;
    at.v =
        static_cast<const unsigned short *>(p.v) + first * p.v_stride + b.head * S::head_dim + b.part * S::groups * 64;
    at.valid = b.sequence.length - chunk * S::rows;
    return at;
}

// Of 128 threads each its part of q, k and v; zeros beyond the sequence's end. Without `scan` q, too; v of `values` groups.
template <class S, bool scan>
__device__ __forceinline__ void copy_inputs(const gen_gdn_prefill_params &p, const work<S> &b, int chunk, int values,
                                            unsigned to)
{
    using at = places<S>;
    const inputs from = inputs_of(p, b, chunk);
    const int row = threadIdx.x % 128 / 32 * 16;
    kda_stage::copy_rows<S::head_dim, 16>(to + at::k, from.k, p.k_stride, row, from.valid);
    if (values)
        kda_stage::copy_rows<S::groups * 64, 16>(to + at::v, from.v, p.v_stride, row, from.valid);
    if constexpr (!scan)
        kda_stage::copy_rows<S::head_dim, 16>(to + at::q, from.q, p.q_stride, row, from.valid);
}

// A warp group brings a chunk's operands; its first thread those that are in one piece.
template <class S, bool scan>
__device__ __forceinline__ void issue_chunk(const gen_gdn_prefill_params &p, const work<S> &b, int chunk, int values,
                                            int s)
{
    using at = places<S>;
    const long long record = b.record(p.inter, chunk);
    const unsigned to = b.stage(s), full = b.ring().full(s);
    if (threadIdx.x % 128 == 0) {
        mbarrier_arrive_expect_tx(full, (scan ? 1 : 2) * S::cell + GDN_FACTORS * 4);
        bulk_load<false>(to + at::x, record_at(p.inter.w, record, S::cell), S::cell, full, 0);
        bulk_load<false>(to + at::factors, p.inter.decay + record * GDN_FACTORS, GDN_FACTORS * 4, full, 0);
        if constexpr (!scan)
            bulk_load<false>(to + at::a_qk, record_at(p.inter.a_qk, record, S::cell), S::cell, full, 0);
    }
    copy_inputs<S, scan>(p, b, chunk, values, to);
    cp_async_mbarrier_arrive(full);
}

template <class S, bool scan>
__device__ __forceinline__ void produce(const gen_gdn_prefill_params &p, const work<S> &b, int values)
{
    const int before = scan ? 0 : b.transitions(), steps = before + b.end - b.begin;
#pragma unroll 1
    for (int step = 0; step < steps; step++) {
        const int s = step % S::stages;
        b.ring().wait_empty(step, s);
        if (step < before) {
            if (threadIdx.x % 128 == 0)
                kda_inter::issue_transition(p.inter, b, 1 + step, s);
            mbarrier_arrive(b.ring().full(s));
        } else {
            issue_chunk<S, scan>(p, b, b.begin + step - before, values, s);
        }
    }
}

// Every thread copies its part, without TMA.
template <class S, bool scan>
__device__ __forceinline__ void copy_all(const gen_gdn_prefill_params &p, const work<S> &b, int chunk, int values)
{
    using at = places<S>;
    const long long record = b.record(p.inter, chunk);
    kda_inter::copy<S>(b.base + at::x, record_at(p.inter.w, record, S::cell), S::cell);
    kda_inter::copy<S>(b.base + at::factors, record_at(p.inter.decay, record, GDN_FACTORS * 4), GDN_FACTORS * 4);
    if constexpr (!scan)
        kda_inter::copy<S>(b.base + at::a_qk, record_at(p.inter.a_qk, record, S::cell), S::cell);
    copy_inputs<S, scan>(p, b, chunk, values, b.base);
    cp_async_commit_group();
    cp_async_wait_group<0>();
    __syncthreads();
}

} // namespace gdn_prefill
