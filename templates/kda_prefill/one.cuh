// Kimi Delta Attention in one launch: a block has a sequence's tokens of one value head, 16 at a time, with its state on chip from the
// first to the last. All decays of 16 tokens are taken from before the first one, so the same operands serve scores and recurrence;
// gates are not below -5, so exponents fit bf16. With G the cumulated gates (base 2), S' the state, transposed, V x K:
//
//     qd = q 2^G    kd = k 2^G    ki = k 2^-G    kr = k 2^(G_last - G)
//     A_qk = qd ki', lower triangle    A_kk = beta kd ki', strictly    X = (I + A_kk)^-1 diag(beta)
//     vn' = (v' - S' kd') X'    o' = scale (S' qd' + vn' A_qk')    S' = S' 2^G_last + vn' kr
//
// Four teams of two warps make these, a chunk each in turn: producer.cuh. One or two groups of four warps, with 64 rows of S' each in the
// accumulators of wgmma, are the recurrence: recurrence.cuh. A team has one place for operands, handed over by barriers. With one group
// two blocks share a state: both make all operands, or as a pair each makes half of them, for both.
#pragma once

#include "kda_inter/recurrence.cuh"
#include "kda_prefill/producer.cuh"
#include "kda_prefill/recurrence.cuh"
#include "kda_prefill/shape.cuh"
#include "lib/ptx/cluster.cuh"
#include "lib/ptx/mbarrier.cuh"
#include "lib/ptx/wgmma.cuh"
#include "lib/uniform.cuh"

namespace kda_prefill {

template <class S> __device__ __forceinline__ void run(const gen_kda_prefill_params &p, unsigned char *memory)
{
    block<S> b;
    b.base = shared_address(memory);
    b.part = blockIdx.x % S::parts;
    b.head = blockIdx.x / S::parts;
    if (threadIdx.x == 0) {
        for (int team = 0; team < S::teams; team++) {
            mbarrier_init(b.loaded(team), 64);
            mbarrier_init(b.full(team), 2);
            mbarrier_init(b.empty(team), S::groups * (S::pair ? 8 : 4));
        }
        for (int place = S::teams; place < S::makers; place++)
            mbarrier_init(b.full(place), 1);
        fence_mbarrier_init();
        for (int place = S::teams; place < S::makers; place++)
            mbarrier_arrive_expect_tx(b.full(place), S::made_bytes + S::v_half);
    }
    b.n = kda_inter::ranked<S>(p.in.sequences, b.base, blockIdx.y);
    b.sequence = kda_sequence_at(p.in.sequences, b.n);
    if constexpr (S::pair) {
        cluster_arrive();
        cluster_wait();
    } else {
        __syncthreads();
    }
    const int group = uniform(threadIdx.x / 128);
    if (group < S::groups) {
        if constexpr (S::groups > 1)
            setmaxnreg_inc<152>();
        recur(p, b, group);
    } else {
        if constexpr (S::groups > 1)
            setmaxnreg_dec<104>();
        produce(p, b, uniform(threadIdx.x / 64) - 2 * S::groups);
    }
    if constexpr (S::pair) { // neither ends while the other may read from it or write to it
        cluster_arrive();
        cluster_wait();
    }
}

} // namespace kda_prefill
