// A ring of stages in shared memory with a full and an empty mbarrier each: a producer fills a stage when it is empty, consumers
// read it when it is full and release it.
#pragma once

#include "lib/ptx/mbarrier.cuh"

// Both sides count steps 0, 1, 2, ...; step i is in stage i % stages.
template <int stages> struct pipeline {
    static constexpr int bytes = stages * 16; // of the barriers

    unsigned barriers; // shared address: of each stage the full one, then the empty one

    __device__ __forceinline__ unsigned full(int stage) const { return barriers + stage * 16; }
    __device__ __forceinline__ unsigned empty(int stage) const { return barriers + stage * 16 + 8; }

    // By one thread, before the others are let behind a barrier. Arrivals: that fill a stage, that release it.
    __device__ __forceinline__ void init(unsigned producers, unsigned consumers) const
    {
        for (int s = 0; s < stages; s++) {
            mbarrier_init(full(s), producers);
            mbarrier_init(empty(s), consumers);
        }
        fence_mbarrier_init();
    }

    // The producer's: `stage`, which is that of the step, is empty. In the first round it is from the beginning.
    __device__ __forceinline__ void wait_empty(int step, int stage) const
    {
        if (step >= stages)
            mbarrier_wait(empty(stage), (step / stages - 1) & 1);
    }

    // The consumers'.
    __device__ __forceinline__ void wait_full(int step) const { mbarrier_wait(full(step % stages), step / stages & 1); }
    __device__ __forceinline__ void release(int step) const { mbarrier_arrive(empty(step % stages)); }
};

// A place in a ring of `places`, and in which of its phases the round is, in one register.
template <int places> struct ring_place {
    unsigned at; // place, + 16 in phase 1

    __device__ __forceinline__ explicit ring_place(unsigned phase = 0) : at(phase * 16) {}
    __device__ __forceinline__ unsigned place() const { return places == 1 ? 0 : at % 16; }
    __device__ __forceinline__ unsigned phase() const { return at / 16; }
    __device__ __forceinline__ void next() { at = at % 16 == places - 1 ? (at ^ 16) & 16 : at + 1; }
};
