// Kimi Delta Attention between chunks (args.h): a block takes a sequence's chunks in turn, for 64 columns of V a group of
// four warps.
//
// The state is held transposed, V x K, in the accumulators of the products that add to it. Rounded, an accumulator is the
// next product's left operand as it stands, so nothing of the chain goes through shared memory:
//
//     vn' = u' + S' (-w)'      o' = S' qg' + vn' A_qk'      S' = S' diag(decay) + vn' kg
//
// A sequence may be cut into segments whose blocks run side by side (`segmented`): kda_scan has computed what each one does to a
// state, and a block first takes its sequence's state through those before its own, then its own chunks.
//
// A thread has, of 64 x n, rows row and row + 8 of its warp's 16, columns 8 t + 2 (lane % 4) + {0, 1} in elements 4 t to
// 4 t + 3: for mma.sync as for wgmma.
#pragma once

#include "kda_inter/operands.cuh"
#include "kda_inter/output.cuh"
#include "kda_inter/state.cuh"
#include "lib/pipeline.cuh"
#include "lib/ptx/ldst.cuh"
#include "lib/ptx/sync.cuh"
#include "lib/ptx/wgmma.cuh"
#include "lib/uniform.cuh"

namespace kda_inter {

template <class S> __device__ __forceinline__ void consume(const gen_kda_inter_params &p, const work<S> &b, int group)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    const int row = (b.part * S::groups + group) * 64 + warp * 16 + lane / 4; // of S'
    float s[S::head_dim / 2];
    begin_state(p, b, group, row, s);
    // Chunks of earlier sequences: kept in shared memory, since registers are few and it is rarely read.
    const unsigned chunks_before = b.base + S::barriers + 96 + threadIdx.x / 32 * 4;
    if (p.states) {
        st_shared_u32(chunks_before, static_cast<unsigned>(kda_chunks_before(p.sequences, b.n)));
        __syncwarp();
    }
    int step = b.transitions();
    if constexpr (S::pooled && !S::wgmma)
        if (threadIdx.x == 0)
            first_checkpoint(b, 0);
    for (int chunk = b.begin; chunk < b.end; chunk++, step++) {
        const unsigned from = b.stage(S::wgmma ? step % S::stages : 0);
        unsigned a[S::head_dim / 16][4];
        products<S>::round_operand(s, a);
        if (p.states)
            store_states(p, b, ld_shared_s32(chunks_before) + chunk, row, a);
        if constexpr (S::pooled && !S::wgmma)
            if (threadIdx.x == 0)
                tell_checkpoint(b, 0, chunk, 0);
        if constexpr (S::wgmma)
            b.ring().wait_full(step);
        else
            copy_all(p, b, chunk);
        int slot = -1;
        if constexpr (S::pooled) // waited for behind u
            slot = told_checkpoint(b, S::wgmma ? step % S::stages : 0);
        float vn[32], o[32];
        load_u<typename S::element>(from + S::u + group * S::cell, vn);
        if constexpr (S::pooled)
            store_checkpoint(p, b, slot, s);
#pragma unroll
        for (int i = 0; i < 32; i++)
            o[i] = 0.f;
        products<S>::decay_columns(from + S::decay, s);
        products<S>::fence();
        products<S>::times_rows(vn, a, from + S::w);
        products<S>::times_rows(o, a, from + S::qg);
        products<S>::template finish<1>(vn);
        unsigned x[4][4];
        products<S>::round_operand(vn, x);
        products<S>::fence();
        products<S>::template times_columns<0>(s, x, from + S::kg);
        products<S>::times_rows(o, x, from + S::a_qk);
        products<S>::template finish<0>(s);
        products<S>::template finish<0>(o);
        // Every lane arrives, since racecheck does not see that one lane's arrival orders the others' reads.
        if constexpr (S::wgmma)
            b.ring().release(step);
        // Two places in alternation: a writer has passed the barrier behind which the others had read the place.
        const unsigned place = b.base + S::outputs + (group * S::turns + step % S::turns) * S::cell;
        stage_output<S>(place, o);
        barrier_sync(1 + group, 128);
        store_output(p, b, place, group, chunk);
        if constexpr (!S::wgmma)
            __syncthreads(); // the stage and the place are free
    }
    const bool last = !S::segmented || b.end == b.sequence.chunks();
    if constexpr (S::pooled)
        store_last(p, b, last, s);
    else if (last)
        store_state(p, b, row, s);
}

// Blocks start in the order of their numbers, and the longest sequence should start first: the sequence of rank n
// is block n's. Where there are many sequences, none dominates, and they keep their order.
constexpr int most_ranked = 128;

template <class S> __device__ __forceinline__ int ranked(const gen_kda_sequences &s, unsigned base, int rank)
{
    if (!s.cu_seqlens || s.batch > most_ranked)
        return rank;
    const int n = threadIdx.x;
    const unsigned lengths = base + S::outputs, chosen = base + S::barriers + 64;
    int length = 0;
    if (n < s.batch) {
        length = kda_sequence_at(s, n).length;
        st_shared_u32(lengths + n * 4, static_cast<unsigned>(length));
    }
    __syncthreads();
    if (n < s.batch) {
        int before = 0;
        for (int i = 0; i < s.batch; i++) {
            const int other = ld_shared_s32(lengths + i * 4);
            before += other > length || (other == length && i < n);
        }
        if (before == rank)
            st_shared_u32(chosen, static_cast<unsigned>(n));
    }
    __syncthreads();
    return ld_shared_s32(chosen);
}

// Of `pooled` states with the kernel's parameters of pools.
template <class S>
__device__ __forceinline__ void run(const gen_kda_inter_params &p, unsigned char *memory,
                                    const gen_kda_pool_params *pools = nullptr)
{
    work<S> b;
    set_pools(b, pools);
    constexpr int parts = S::head_dim / 64 / S::groups;
    b.base = shared_address(memory);
    b.part = blockIdx.x % parts;
    b.head = blockIdx.x / parts;
    if (S::segmented && p.segment_chunks) {
        const kda_segment at = kda_segment_at(p.sequences, blockIdx.y, p.segment_chunks);
        if (at.number < 0 || at.number >= at.count)
            return;
        b.n = at.n, b.sequence = at.sequence;
        b.segment = at.slot, b.number = at.number, b.count = at.count;
        b.begin = at.number * p.segment_chunks;
        b.end = min(b.begin + p.segment_chunks, at.sequence.chunks());
    } else {
        b.n = ranked<S>(p.sequences, b.base, blockIdx.y);
        b.sequence = kda_sequence_at(p.sequences, b.n);
        b.segment = b.number = b.begin = 0, b.count = 1;
        b.end = b.sequence.chunks();
    }
    if constexpr (S::wgmma) {
        if (threadIdx.x == 0) {
            b.ring().init(S::pooled ? 2 : 1, S::groups * 128);
            if constexpr (S::pooled)
                keep_place(b);
        }
        __syncthreads();
        const int group = uniform(threadIdx.x / 128);
        if (group == S::groups) {
            if constexpr (S::groups > 1)
                setmaxnreg_dec<(S::pooled ? 40 : 24)>();
            if (threadIdx.x % 128 < 32)
                produce(p, b);
        } else {
            if constexpr (S::groups > 1)
                setmaxnreg_inc<(S::pooled ? 232 : 240)>();
            consume(p, b, group);
        }
    } else {
        if constexpr (S::pooled) {
            if (threadIdx.x == 0)
                keep_place(b);
            __syncthreads();
        }
        consume(p, b, 0);
    }
}

} // namespace kda_inter
