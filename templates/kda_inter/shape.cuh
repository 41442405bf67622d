// The recurrence of Kimi Delta Attention between chunks (recurrence.cuh): what a block has in shared memory, and what it works on.
#pragma once

#include "kda/products.cuh"
#include "kda/sequences.cuh"
#include "kda_inter/args.h"
#include "lib/pipeline.cuh"

namespace kda_inter {

// pooled: states are in pools, and there may be checkpoints (pool.cuh).
template <class element_, int head_dim_, int groups_, int stages_, bool wgmma_, bool segmented_, bool pooled_ = false>
struct shape {
    using element = element_;
    static constexpr int head_dim = head_dim_, groups = groups_, stages = stages_;
    static constexpr bool wgmma = wgmma_, segmented = segmented_, pooled = pooled_;

    static constexpr int rows = KDA_CHUNK, cell = rows * 128, tile = head_dim / 64 * cell;
    static constexpr int threads = groups * 128; // that compute

    // A stage: the operands of a chunk.
    static constexpr int w = 0, qg = tile, kg = 2 * tile, a_qk = 3 * tile, u = a_qk + cell, decay = u + groups * cell;
    static constexpr int stage_bytes = decay + 1024;
    // Behind the stages lie the staged outputs, with wgmma two places of a group in alternation; then
    // barriers, full and empty in alternation; then a number; then one number a warp.
    static constexpr int outputs = stages * stage_bytes, turns = wgmma ? 2 : 1;
    static constexpr int barriers = outputs + groups * turns * cell;
    static constexpr int checkpoints =
        barriers + 48; // slots for the state before the chunk of each stage; behind the last
    static constexpr int shared = barriers + 128;
    static_assert(stages <= 3, "barriers end where checkpoints begin");

    // Of kda_scan: what a segment adds, of 64 columns of V; its transition, in two 16-bit parts, which a stage holds.
    // Behind it are the segment's decays.
    static constexpr int added_floats = 64 * head_dim, transition_bytes = head_dim / 64 * 2 * tile,
                         segment_decay = transition_bytes;
    static_assert(segment_decay + head_dim * 4 <= stage_bytes, "a stage holds a transition");
};

template <class S> using products = kda_products<typename S::element, S::head_dim, S::wgmma>;

template <bool pooled> struct pools_of {
};
template <> struct pools_of<true> {
    const gen_kda_pool_params *pools; // the kernel's parameters
};

template <class S> struct work : pools_of<S::pooled> {
    unsigned base; // shared address
    kda_sequence sequence;
    int n, head, part; // sequence, head, which of the head's columns of V
    int begin, end;    // chunks
    // The sequence's segments, where it has several: slot of the first, which is the block's, of how many.
    int segment, number, count;

    __device__ __forceinline__ unsigned stage(int s) const { return base + s * S::stage_bytes; }
    __device__ __forceinline__ pipeline<S::stages> ring() const { return {base + S::barriers}; }
    __device__ __forceinline__ long long record(const gen_kda_inter_params &p, int chunk) const
    {
        return static_cast<long long>(sequence.slot + chunk) * p.num_v_heads + head;
    }
    __device__ __forceinline__ long long segment_record(const gen_kda_inter_params &p, int i) const
    {
        return static_cast<long long>(segment + i) * p.num_v_heads + head;
    }
    // Segments whose transition the state goes through: what the first one adds is a state.
    __device__ __forceinline__ int transitions() const { return S::segmented ? max(number - 1, 0) : 0; }
};

template <class S> __device__ __forceinline__ void set_pools(work<S> &b, const gen_kda_pool_params *pools)
{
    if constexpr (S::pooled)
        b.pools = pools;
}

__device__ __forceinline__ const unsigned char *record_at(const void *tensor, long long record, int bytes)
{
    return static_cast<const unsigned char *>(tensor) + record * bytes;
}

} // namespace kda_inter
