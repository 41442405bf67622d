// Kimi Delta Attention, prefill, in one kernel: the blocks of a cluster, one for every 64 columns of V, take a sequence of one
// head. Two warp groups of a block work out every other chunk's operands (kda_intra), a third has the state of the block's
// columns and takes all chunks in turn (kda_inter), and a warp of a fourth brings it the operands.
//
// These go through memory, for both blocks need them; but places of `ring` chunks are used again and again, so they stay in
// L2. Per place and block two barriers: `ready`, which the block that made the operands tells all, and `free`, which all tell
// that block when they have them in shared memory.
#pragma once

#include "kda_inter/recurrence.cuh"
#include "kda_intra/chunk.cuh"
#include "kda_prefill/args.h"
#include "lib/cluster.cuh"

template <class element, int head_dim> struct kda_pair {
    static constexpr int members = head_dim / 64, ring = KDA_RING, stages = 2;
    using intra = kda_intra_chunk<element, head_dim>;
    using inter = kda_recurrence<element, head_dim, 1, stages, true, ring>;
    static_assert(ring % members == 0 && intra::threads == 256, "a place is always made by the same block, of two groups");

    static constexpr int chain = (intra::shared + 1023) / 1024 * 1024; // the recurrence's shared memory
    static constexpr int barriers = chain + inter::shared;
    static constexpr int tokens = barriers + ring * 16; // of the sequence: the first, and how many
    static constexpr int shared = tokens + 16;

    static __device__ __forceinline__ unsigned ready(unsigned base, int place) { return base + barriers + place * 16; }
    static __device__ __forceinline__ unsigned free_again(unsigned base, int place) { return base + barriers + place * 16 + 8; }

    static __device__ __forceinline__ void tell(unsigned barrier, int rank)
    {
        if constexpr (members > 1)
            mbarrier_arrive_cluster(barrier, rank);
        else
            mbarrier_arrive(barrier);
    }

    static __device__ __forceinline__ void wait(unsigned barrier, unsigned parity)
    {
        if constexpr (members > 1)
            mbarrier_wait_cluster(barrier, parity);
        else
            mbarrier_wait(barrier, parity);
    }

    static __device__ __forceinline__ void meet()
    {
        if constexpr (members > 1)
            cluster_sync();
        else
            __syncthreads();
    }

    // Chunks rank, rank + members, ... What does not change is read anew for each: every register counts.
    static __device__ __forceinline__ void make_operands(const gen_kda_prefill_params &p, unsigned base)
    {
        for (int chunk = blockIdx.x % members;; chunk += members) {
            typename intra::block_work b;
            unsigned x = blockIdx.x, n = blockIdx.y;
            int first, length;
            asm volatile("" : "+r"(x), "+r"(n));
            asm volatile("ld.shared.v2.s32 {%0, %1}, [%2];" : "=r"(first), "=r"(length) : "r"(base + tokens) : "memory");
            const int place = chunk % ring, round = chunk / ring, row = chunk * KDA_CHUNK;
            if (row >= length)
                break;
            b.base = base;
            b.head = x / members;
            b.chunk = {first + row, min(length - row, KDA_CHUNK)};
            b.record = (static_cast<long long>(n) * p.inter.num_v_heads + b.head) * ring + place;
            if (round > 0)
                wait(free_again(base, place), (round - 1) & 1);
            intra::run(p.intra, b);
            fence_to_copies();
            intra::sync();
            if (threadIdx.x == 0)
#pragma unroll
                for (int member = 0; member < members; member++)
                    tell(ready(base, chunk % ring), member);
        }
    }

    // What threads wrote to memory is for other blocks' copy engine.
    static __device__ __forceinline__ void fence_to_copies()
    {
        __threadfence();
        asm volatile("fence.proxy.async;" ::: "memory");
    }

    static __device__ __forceinline__ void run(const gen_kda_prefill_params &p, unsigned char *memory)
    {
        const unsigned base = shared_address(memory);
        typename inter::work b;
        b.base = base + chain;
        b.part = blockIdx.x % members;
        b.head = blockIdx.x / members;
        b.n = blockIdx.y;
        b.sequence = kda_sequence_at(p.inter.sequences, b.n);
        if (threadIdx.x == 0) {
            for (int s = 0; s < stages; s++) {
                mbarrier_init(b.full(s), 1);
                mbarrier_init(b.empty(s), 4);
            }
            for (int place = 0; place < ring; place++) {
                mbarrier_init(ready(base, place), 1);
                mbarrier_init(free_again(base, place), members);
            }
            fence_mbarrier_init();
            asm volatile("st.shared.v2.s32 [%0], {%1, %2};" :: "r"(base + tokens), "r"(b.sequence.first), "r"(b.sequence.length) : "memory");
        }
        meet();
        const int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
        if (group == 3) {
            registers_less<24>();
            if (threadIdx.x % 128 < 32)
                inter::feed(p.inter, b, [&](int chunk) {
                    wait(ready(base, chunk % ring), chunk / ring & 1);
                    asm volatile("fence.proxy.async;" ::: "memory");
                });
        } else if (group == 2) {
            registers_more<232>();
            inter::calculate(p.inter, b, 0, [&](int chunk) {
                if (threadIdx.x % 128 == 0)
                    tell(free_again(base, chunk % ring), chunk % members);
            });
        } else {
            make_operands(p, base);
        }
        meet(); // nobody leaves while others may tell him something
    }
};
