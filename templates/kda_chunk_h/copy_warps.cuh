// Chunks by two groups of four warps: one computes, the other loads operands ahead and stores what was made. Where their places in
// shared memory lie, and the barriers between them. States is a kda_states; a stage and a place of results have these bytes.
//
// full(s):  a stage's operands are there. Each thread that copies arrives twice: its copies, and its channel's decay.
// empty(s): a stage's chunk is done: its operands are used, and what it made is written.
// out(t):   the loads from place t are complete, and the place is free.
#pragma once

#include "lib/ptx/mbarrier.cuh"

template <class states, int num_stages, int stage_bytes, int made_bytes> struct kda_copy_warps {
    static constexpr int stages = num_stages, turns = 2, threads = 2 * states::threads;
    static constexpr int made = stages * stage_bytes, decays = made + turns * made_bytes;
    static constexpr int barriers = decays + stages * states::decay_bytes, bytes = barriers + (2 * stages + turns) * 8;
    using work = typename states::work;

    static __device__ __forceinline__ unsigned stage_at(const work &b, int s) { return b.base + s * stage_bytes; }
    static __device__ __forceinline__ unsigned decays_at(const work &b, int s)
    {
        return b.base + decays + s * states::decay_bytes;
    }
    static __device__ __forceinline__ unsigned made_at(const work &b, int turn)
    {
        return b.base + made + turn * made_bytes;
    }
    static __device__ __forceinline__ unsigned full(const work &b, int s) { return b.base + barriers + s * 8; }
    static __device__ __forceinline__ unsigned empty(const work &b, int s)
    {
        return b.base + barriers + (stages + s) * 8;
    }
    static __device__ __forceinline__ unsigned out(const work &b, int turn)
    {
        return b.base + barriers + (2 * stages + turn) * 8;
    }

    // By one thread, before the others use them.
    static __device__ __forceinline__ void init(const work &b)
    {
        for (int s = 0; s < stages; s++) {
            mbarrier_init(full(b, s), 2 * states::threads);
            mbarrier_init(empty(b, s), states::threads);
        }
        for (int turn = 0; turn < turns; turn++)
            mbarrier_init(out(b, turn), states::threads);
        fence_mbarrier_init();
    }

    static __device__ __forceinline__ void put_decay(const work &b, int s, float gate)
    {
        states::put_decay(decays_at(b, s), gate);
        mbarrier_arrive(full(b, s));
    }
};
