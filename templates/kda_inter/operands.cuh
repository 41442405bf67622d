// The recurrence between chunks: how operands get to shared memory, and u from there.
#pragma once

#include "kda_inter/pool.cuh"
#include "kda_inter/shape.cuh"
#include "lib/half.cuh"
#include "lib/pipeline.cuh"
#include "lib/ptx/cp_async.cuh"
#include "lib/ptx/ldst.cuh"
#include "lib/ptx/mbarrier.cuh"
#include "lib/ptx/tma.cuh"

namespace kda_inter {

// One lane issues the copies of a chunk's operands.
template <class S>
__device__ __forceinline__ void issue_chunk(const gen_kda_inter_params &p, const work<S> &b, int chunk, int s,
                                            unsigned long long policy)
{
    const long long record = b.record(p, chunk);
    const unsigned to = b.stage(s), full = b.ring().full(s);
    mbarrier_arrive_expect_tx(full, 3 * S::tile + S::cell + S::groups * S::cell + S::head_dim * 4);
    bulk_load<true>(to + S::w, record_at(p.w, record, S::tile), S::tile, full, policy);
    bulk_load<true>(to + S::u, record_at(p.u, record, S::tile) + b.part * S::groups * S::cell, S::groups * S::cell,
                    full, policy);
    bulk_load<true>(to + S::qg, record_at(p.qg, record, S::tile), S::tile, full, policy);
    bulk_load<true>(to + S::decay, p.decay + record * S::head_dim, S::head_dim * 4, full, policy);
    bulk_load<true>(to + S::kg, record_at(p.kg, record, S::tile), S::tile, full, policy);
    bulk_load<true>(to + S::a_qk, record_at(p.a_qk, record, S::cell), S::cell, full, policy);
}

template <class S>
__device__ __forceinline__ void issue_transition(const gen_kda_inter_params &p, const work<S> &b, int i, int s)
{
    const long long record = b.segment_record(p, i);
    mbarrier_arrive_expect_tx(b.ring().full(s), S::transition_bytes + S::head_dim * 4);
    bulk_load<false>(b.stage(s), record_at(p.transition, record, S::transition_bytes), S::transition_bytes,
                     b.ring().full(s), 0);
    bulk_load<false>(b.stage(s) + S::segment_decay, p.segment_decay + record * S::head_dim, S::head_dim * 4,
                     b.ring().full(s), 0);
}

// The same, of states in pools: the lane that issued a stage's copies publishes its checkpoint. That takes loads, so the first stages'
// copies are all issued before.
template <class S> __device__ __forceinline__ void produce_and_tell(const gen_kda_inter_params &p, const work<S> &b)
{
    const unsigned long long policy = policy_evict_first();
    const int before = b.transitions(), steps = before + b.end - b.begin, first = min(S::stages, steps);
    const auto tell = [&](int step) {
        if (step >= before)
            tell_checkpoint(b, 0, b.begin + step - before, step % S::stages);
        mbarrier_arrive(b.ring().full(step % S::stages));
    };
    for (int step = 0; step < steps; step++) {
        const int s = step % S::stages;
        b.ring().wait_empty(step, s);
        __syncwarp();
        if (!elect_one())
            continue;
        if (step < before)
            issue_transition(p, b, 1 + step, s);
        else
            issue_chunk(p, b, b.begin + step - before, s, policy);
        if (step + 1 == first) {
            first_checkpoint(b, 0);
            for (int i = 0; i < first; i++)
                tell(i);
        } else if (step >= first) {
            tell(step);
        }
    }
}

template <class S> __device__ __forceinline__ void produce(const gen_kda_inter_params &p, const work<S> &b)
{
    if constexpr (S::pooled) {
        produce_and_tell(p, b);
        return;
    }
    const unsigned long long policy = policy_evict_first();
    const int before = b.transitions(), steps = before + b.end - b.begin;
    for (int step = 0; step < steps; step++) {
        const int s = step % S::stages;
        b.ring().wait_empty(step, s);
        __syncwarp();
        if (elect_one()) {
            if (S::segmented && step < before)
                issue_transition(p, b, 1 + step, s);
            else
                issue_chunk(p, b, b.begin + step - before, s, policy);
        }
    }
}

// Every thread copies its part, without TMA.
template <class S> __device__ __forceinline__ void copy(unsigned to, const unsigned char *from, int bytes)
{
    for (int i = threadIdx.x * 16; i < bytes; i += S::threads * 16)
        cp_async_16<false>(to + i, from + i, 0);
}

template <class S> __device__ __forceinline__ void copy_all(const gen_kda_inter_params &p, const work<S> &b, int chunk)
{
    const long long record = b.record(p, chunk);
    copy<S>(b.base + S::w, record_at(p.w, record, S::tile), S::tile);
    copy<S>(b.base + S::u, record_at(p.u, record, S::tile) + b.part * S::groups * S::cell, S::groups * S::cell);
    copy<S>(b.base + S::qg, record_at(p.qg, record, S::tile), S::tile);
    copy<S>(b.base + S::decay, record_at(p.decay, record, S::head_dim * 4), S::head_dim * 4);
    copy<S>(b.base + S::kg, record_at(p.kg, record, S::tile), S::tile);
    copy<S>(b.base + S::a_qk, record_at(p.a_qk, record, S::cell), S::cell);
    cp_async_commit_group();
    cp_async_wait_group<0>();
    __syncthreads();
}

// A group's rows of u, as an accumulator has them.
template <class T> __device__ __forceinline__ void load_u(unsigned from, float (&x)[32])
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        unsigned word[4];
        ld_shared_v4_u32(from + ((warp * 4 + i) * 32 + lane) * 16, word[0], word[1], word[2], word[3]);
#pragma unroll
        for (int n = 0; n < 4; n++) {
            const float2 both = to_float2<T>(word[n]);
            x[8 * i + 2 * n] = both.x, x[8 * i + 2 * n + 1] = both.y;
        }
    }
}

} // namespace kda_inter
