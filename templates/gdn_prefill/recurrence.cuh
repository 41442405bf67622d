// Gated DeltaNet between chunks: a block takes a sequence's chunks, or a segment's, in turn, as kda_inter's do.
#pragma once

#include "gdn_prefill/chunk.cuh"
#include "kda_inter/recurrence.cuh"
#include "lib/ptx/sync.cuh"

namespace gdn_prefill {

// Products are issued in an order that keeps tensor cores busy: half of S' q' while d' is made, the other half behind vn's, while
// that is rounded.
template <class S> __device__ __forceinline__ void consume(const gen_gdn_prefill_params &p, const work<S> &b, int group)
{
    using at = places<S>;
    using products = chunk_products<S, at>;
    constexpr int half = S::head_dim / 32;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    const int row = (b.part * S::groups + group) * 64 + warp * 16 + lane / 4; // of S'
    float s[S::head_dim / 2];
    kda_inter::begin_state<!S::wgmma>(p.inter, b, group, row, s);
    // Chunks of earlier sequences: kept in shared memory, since registers are few and it is rarely read.
    const unsigned chunks_before = b.base + S::barriers + 96 + threadIdx.x / 32 * 4;
    if (p.inter.states) {
        st_shared_u32(chunks_before, static_cast<unsigned>(kda_chunks_before(p.inter.sequences, b.n)));
        __syncwarp();
    }
    const unsigned end = b.base + kda_inter::kept<S>::end; // there, too: the block's last chunk
    int step = b.transitions();
    if constexpr (S::pooled && !S::wgmma)
        if (threadIdx.x == 0)
            kda_inter::first_checkpoint(b, 0);
#pragma unroll 1
    for (int chunk = b.begin; chunk < ld_shared_s32(end); chunk++, step++) {
        const unsigned from = b.stage(S::wgmma ? step % S::stages : 0);
        unsigned a[S::head_dim / 16][4], v[4][4], x[4][4], y[4][4];
        products::wide::round_operand(s, a);
        if (p.inter.states)
            kda_inter::store_states<!S::wgmma>(p.inter, b, ld_shared_s32(chunks_before) + chunk, row, a);
        if constexpr (S::pooled && !S::wgmma)
            if (threadIdx.x == 0)
                kda_inter::tell_checkpoint(b, 0, chunk, 0);
        if constexpr (S::wgmma)
            b.ring().wait_full(step);
        else
            copy_all<S, at, false>(p, b, chunk, S::groups);
        if constexpr (S::pooled)
            kda_inter::store_checkpoint(p.inter, b, kda_inter::told_checkpoint(b, S::wgmma ? step % S::stages : 0), s);
        float d[32], o[32], vn[32];
        clear(d);
        clear(o);
        products::decay(from, s);
        products::wide::fence();
        products::template times_rows<0, 2 * half>(d, a, from + at::k);
        products::template times_rows<0, half>(o, a, from + at::q);
        if constexpr (S::wgmma) // while products are made
            products::load_values(from, group, v);
        products::wide::template finish<1>(d);
        if constexpr (!S::wgmma)
            products::load_values(from, group, v);
        products::correct(from, v, true, d, y);
        clear(vn);
        products::wide::fence();
        products::narrow::template times_columns<0>(vn, y, from + at::x);
        products::template times_rows<half, half>(o, a, from + at::q);
        products::wide::template finish<1>(vn);
        products::narrow::round_operand(vn, x);
        products::outgoing(from, vn, y);
        products::wide::fence();
        products::wide::template times_columns<0>(s, y, from + at::k);
        products::wide::template finish<1>(o);
        products::narrow::decay_columns(from + at::factors + GDN_Q_OUT * 4, o);
        products::wide::fence();
        products::narrow::times_rows(o, x, from + at::a_qk);
        products::wide::template finish<0>(s);
        products::wide::template finish<0>(o);
        if constexpr (S::wgmma)
            b.ring().release(step);
        // Two places in alternation: a writer has passed the barrier behind which the others had read the place.
        const unsigned place = b.base + S::outputs + (group * S::turns + step % S::turns) * S::cell;
        kda_inter::stage_output<S>(place, o);
        barrier_sync(1 + group, 128);
        kda_inter::store_output(p.inter, b, place, group, chunk);
        if constexpr (!S::wgmma)
            __syncthreads(); // the stage and the place are free
    }
    if constexpr (S::pooled)
        kda_inter::store_last(p.inter, b, ld_shared_s32(end) == b.sequence.chunks(), s);
    else if (ld_shared_s32(end) == b.sequence.chunks())
        kda_inter::store_state<!S::wgmma>(p.inter, b, row, s);
}

// Which sequence, or segment, and head the block has; false: none.
template <class S> __device__ __forceinline__ bool find_work(const gen_gdn_prefill_params &p, work<S> &b)
{
    constexpr int parts = S::head_dim / 64 / S::groups;
    b.part = blockIdx.x % parts;
    b.head = blockIdx.x / parts;
    if (p.inter.segment_chunks) {
        const kda_segment at = kda_segment_at(p.inter.sequences, blockIdx.y, p.inter.segment_chunks);
        if (at.number < 0 || at.number >= at.count)
            return false;
        b.n = at.n, b.sequence = at.sequence;
        b.segment = at.slot, b.number = at.number, b.count = at.count;
        b.begin = at.number * p.inter.segment_chunks;
        b.end = min(b.begin + p.inter.segment_chunks, at.sequence.chunks());
    } else {
        b.n = kda_inter::ranked<S>(p.inter.sequences, b.base, blockIdx.y);
        b.sequence = kda_sequence_at(p.inter.sequences, b.n);
        b.segment = b.number = b.begin = 0, b.count = 1;
        b.end = b.sequence.chunks();
    }
    return true;
}

} // namespace gdn_prefill
