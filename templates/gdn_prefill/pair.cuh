// Gated DeltaNet between chunks, where a block has 64 columns of V and two groups: one takes the state from chunk to chunk, the
// other makes the outputs behind it. What they share is in shared memory, rounded: the state before a chunk, as the left operand of
// its products, and vn' of the chunk. So neither the products of outputs nor their way to memory are in the chain.
#pragma once

#include "gdn_prefill/chunk.cuh"
#include "kda_inter/recurrence.cuh"
#include "lib/pipeline.cuh"
#include "lib/ptx/ldst.cuh"
#include "lib/ptx/mma.cuh"
#include "lib/ptx/sync.cuh"

namespace gdn_prefill {

// Behind a block's other shared memory: vn'; then the barriers of both exchanges. The state has the place of staged outputs; those
// have one that is left of a stage, where it is as wide as kda_inter's w, or a place behind the rest.
template <class S> struct exchange {
    static constexpr int state = S::outputs, values = (S::shared + 1023) / 1024 * 1024, rings = values + S::cell;
    static constexpr int place = rings + 2 * pipeline<1>::bytes, ends = place + 48; // of the block
    static constexpr bool room = S::tile > S::cell;
    static constexpr int outputs = room ? S::w + S::cell : (ends + 1023) / 1024 * 1024; // of a stage, or of the block
    static constexpr int shared = room ? ends : outputs + S::cell;
    static_assert(S::tile <= 2 * S::cell, "two places of outputs hold it");

    static __device__ __forceinline__ pipeline<1> states(unsigned base) { return {base + rings}; }
    static __device__ __forceinline__ pipeline<1> new_values(unsigned base)
    {
        return {base + rings + pipeline<1>::bytes};
    }
    static __device__ __forceinline__ void init(unsigned base)
    {
        states(base).init(128, 128);
        new_values(base).init(128, 128);
    }
};

// The block's place through shared memory: ptxas keeps what is live across a trade of registers in few of them, and spills.
template <class S> __device__ __forceinline__ void keep_work(const work<S> &b)
{
    const int number[12] = {b.part,  b.head, b.n,       b.sequence.first, b.sequence.length, b.sequence.slot,
                            b.begin, b.end,  b.segment, b.number,         b.count,           0};
#pragma unroll
    for (int i = 0; i < 12; i += 4)
        st_shared_v4_u32(b.base + exchange<S>::place + i * 4, number[i], number[i + 1], number[i + 2], number[i + 3]);
}

template <class S> __device__ __forceinline__ work<S> kept_work(const work<S> &here)
{
    unsigned number[12];
    work<S> b = here;
#pragma unroll
    for (int i = 0; i < 12; i += 4)
        ld_shared_v4_u32(here.base + exchange<S>::place + i * 4, number[i], number[i + 1], number[i + 2],
                         number[i + 3]);
    b.part = number[0], b.head = number[1], b.n = number[2];
    b.sequence.first = number[3], b.sequence.length = number[4], b.sequence.slot = number[5];
    b.begin = number[6], b.end = number[7];
    b.segment = number[8], b.number = number[9], b.count = number[10];
    return b;
}

// A left operand, rows of this warp, to the other group's warp of the same number, and from there.
template <int steps> __device__ __forceinline__ void give_operand(unsigned to, const unsigned (&a)[steps][4])
{
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 % 4 * 16 + lane % 16;
#pragma unroll
    for (int k = 0; k < steps; k++)
        stmatrix_x4(kda_stage::chunk_at(to, row, 2 * k + lane / 16), a[k]);
}

template <int steps> __device__ __forceinline__ void take_operand(unsigned from, unsigned (&a)[steps][4])
{
#pragma unroll
    for (int k = 0; k < steps; k++)
        kda_stage::load_rows_first(a[k], from, static_cast<int>(threadIdx.x) / 32 % 4 * 16, 2 * k);
}

// The group that has the state.
template <class S> __device__ __forceinline__ void advance(const gen_gdn_prefill_params &p, const work<S> &b)
{
    using at = places<S>;
    using shared = exchange<S>;
    using products = chunk_products<S, at>;
    const int row =
        b.part * 64 + static_cast<int>(threadIdx.x) / 32 * 16 + static_cast<int>(threadIdx.x) % 32 / 4; // of S'
    float s[S::head_dim / 2];
    kda_inter::begin_state<false>(p.inter, b, 0, row, s);
    int chunks_before = 0;
    if (p.inter.states)
        chunks_before = kda_chunks_before(p.inter.sequences, b.n);
    const pipeline<1> states = shared::states(b.base), values = shared::new_values(b.base);
    int step = b.transitions();
#pragma unroll 1
    for (int chunk = b.begin; chunk < b.end; chunk++, step++) {
        const unsigned from = b.stage(step % S::stages);
        const int turn = chunk - b.begin;
        unsigned a[S::head_dim / 16][4], v[4][4], x[4][4], y[4][4];
        float d[32], vn[32];
        products::wide::round_operand(s, a);
        if (p.inter.states)
            kda_inter::store_states<false>(p.inter, b, chunks_before + chunk, row, a);
        clear(d);
        b.ring().wait_full(step);
        if constexpr (S::pooled)
            kda_inter::store_checkpoint(p.inter, b, kda_inter::told_checkpoint(b, step % S::stages), s);
        products::decay(from, s); // ahead of products: none may be under way while others write what is added to
        products::wide::fence();
        products::template times_rows<0, S::head_dim / 16>(d, a, from + at::k);
        products::load_values(from, 0, v);
        states.wait_empty(turn, 0);
        give_operand(b.base + shared::state, a);
        mbarrier_arrive(states.full(0));
        products::wide::template finish<0>(d);
        products::correct(from, v, true, d, y);
        clear(vn);
        products::wide::fence();
        products::narrow::template times_columns<0>(vn, y, from + at::x);
        products::wide::template finish<0>(vn);
        products::narrow::round_operand(vn, x);
        products::outgoing(from, vn, y);
        products::wide::fence();
        products::wide::template times_columns<0>(s, y, from + at::k);
        values.wait_empty(turn, 0);
        give_operand(b.base + shared::values, x);
        mbarrier_arrive(values.full(0));
        products::wide::template finish<0>(s);
        b.ring().release(step);
    }
    if constexpr (S::pooled)
        kda_inter::store_last(p.inter, b, b.end == b.sequence.chunks(), s);
    else if (b.end == b.sequence.chunks())
        kda_inter::store_state<false>(p.inter, b, row, s);
}

// The group that makes the outputs.
template <class S> __device__ __forceinline__ void answer(const gen_gdn_prefill_params &p, const work<S> &b)
{
    using at = places<S>;
    using shared = exchange<S>;
    using products = chunk_products<S, at>;
    const pipeline<1> states = shared::states(b.base), values = shared::new_values(b.base);
    int step = 0;
    for (; step < b.transitions(); step++) { // nothing for this group, but a stage is released by both
        b.ring().wait_full(step);
        b.ring().release(step);
    }
#pragma unroll 1
    for (int chunk = b.begin; chunk < b.end; chunk++, step++) {
        const unsigned from = b.stage(step % S::stages);
        const int turn = chunk - b.begin;
        unsigned a[S::head_dim / 16][4], x[4][4];
        float o[32];
        clear(o);
        b.ring().wait_full(step);
        states.wait_full(turn);
        take_operand(b.base + shared::state, a);
        states.release(turn);
        products::wide::fence();
        products::template times_rows<0, S::head_dim / 16>(o, a, from + at::q);
        values.wait_full(turn);
        take_operand(b.base + shared::values, x);
        values.release(turn);
        products::wide::template finish<0>(o);
        products::narrow::decay_columns(from + at::factors + GDN_Q_OUT * 4, o);
        products::wide::fence();
        products::narrow::times_rows(o, x, from + at::a_qk);
        products::wide::template finish<0>(o);
        const unsigned place = (shared::room ? from : b.base) + shared::outputs;
        if constexpr (!shared::room)
            barrier_sync(1, 128); // the last outputs are not read any more
        kda_inter::stage_output<S>(place, o);
        barrier_sync(1, 128);
        kda_inter::store_output(p.inter, b, place, 0, chunk);
        b.ring().release(step);
    }
}

} // namespace gdn_prefill
