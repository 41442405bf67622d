// Gated DeltaNet, what segments do to states, as kda_scan has it for KDA: columns of what is added come of v and of S = 0 (or the
// initial state), columns of the transition of no v and of S = I. What the decays alone leave of I is a number.
#pragma once

#include "gdn_prefill/chunk.cuh"
#include "kda_inter/state.cuh"
#include "lib/half.cuh"
#include "lib/pipeline.cuh"
#include "lib/ptx/ldst.cuh"
#include "lib/swizzle.cuh"

namespace gdn_prefill {

// Which segment and units of 64 columns the block has: first those of what is added, then as many of the transition. False: none.
template <class S> __device__ __forceinline__ bool find_scan(const gen_gdn_prefill_params &p, work<S> &b, int &values)
{
    constexpr int groups = scan_places<S>::groups, units = S::head_dim / 64, parts = 2 * units / groups;
    const kda_segment at = kda_segment_at(p.inter.sequences, blockIdx.y, p.inter.segment_chunks);
    b.part = blockIdx.x % parts;
    b.head = blockIdx.x / parts;
    values = min(max(units - b.part * groups, 0), groups);
    // Neither the last one's nor the first one's transition is needed.
    if (at.number < 0 || at.number >= at.count - 1 || (at.number == 0 && !values))
        return false;
    b.n = at.n, b.sequence = at.sequence;
    b.segment = at.slot, b.number = at.number, b.count = at.count;
    b.begin = at.number * p.inter.segment_chunks;
    b.end = b.begin + p.inter.segment_chunks;
    return true;
}

// Is element i of a thread's accumulator on the diagonal of the transition, whose column `row` is the thread's first?
__device__ __forceinline__ bool on_diagonal(int i, int row)
{
    return row + i / 2 % 2 * 8 == i / 4 * 8 + static_cast<int>(threadIdx.x) % 4 * 2 + i % 2;
}

// Column `row` of the transition, less what the decays alone leave, goes to row `row` of a tile of first parts and one of rests;
// what they leave to fp32, a number a channel as a recurrence reads it.
template <class S>
__device__ __forceinline__ void store_transition(const gen_gdn_prefill_params &p, const work<S> &b, int columns,
                                                 float kept, float (&s)[S::head_dim / 2])
{
    using element = typename S::element;
    constexpr int units = S::head_dim / 64;
    const int lane = threadIdx.x % 32, in_unit = threadIdx.x / 32 % 4 * 16 + lane / 4, row = columns * 64 + in_unit;
    const long long record = b.segment_record(p.inter, b.number);
#pragma unroll
    for (int i = 0; i < S::head_dim / 2; i++)
        s[i] -= on_diagonal(i, row) ? kept : 0.f;
    if (lane % 4 == 0) {
        p.inter.segment_decay[record * S::head_dim + row] = kept;
        p.inter.segment_decay[record * S::head_dim + row + 8] = kept;
    }
    unsigned char *const to =
        static_cast<unsigned char *>(p.inter.transition) + (record * units + columns) * (2 * S::tile) + lane % 4 * 4;
#pragma unroll
    for (int t = 0; t < S::head_dim / 8; t++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const float x = s[4 * t + 2 * h], y = s[4 * t + 2 * h + 1];
            const unsigned first = pack2<element>(x, y);
            const float2 both = to_float2<element>(first);
            const unsigned at = swizzled<128>(t / 8 * S::cell, in_unit + 8 * h, t % 8);
            *reinterpret_cast<unsigned *>(to + at) = first;
            *reinterpret_cast<unsigned *>(to + S::tile + at) = pack2<element>(x - both.x, y - both.y);
        }
}

template <class S>
__device__ __forceinline__ void scan_segment(const gen_gdn_prefill_params &p, const work<S> &b, int values, int group)
{
    using at = scan_places<S>;
    using products = chunk_products<S, at>;
    constexpr int units = S::head_dim / 64;
    const pipeline<at::stages> ring = ring_of<at>(b.base);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, unit = b.part * at::groups + group;
    const bool added = unit < units;
    const int columns = added ? unit : unit - units, row = columns * 64 + warp * 16 + lane / 4;
    float s[S::head_dim / 2];
    if (added && b.number == 0 && (!S::pooled || kda_inter::has_initial(p.inter, b))) {
        kda_inter::load_state<!S::wgmma>(p.inter, b, row, s);
        if (S::pooled || p.inter.initial_state)
            kda_inter::store_added(kda_inter::added_of(p.inter, b, b.count - 1, columns), s);
    } else {
#pragma unroll
        for (int i = 0; i < S::head_dim / 2; i++)
            s[i] = !added && on_diagonal(i, row) ? 1.f : 0.f;
    }
    float kept = 1.f;
#pragma unroll 1
    for (int step = 0; step < b.end - b.begin; step++) {
        const unsigned from = b.base + step % at::stages * at::stage_bytes;
        unsigned a[S::head_dim / 16][4], v[4][4], y[4][4];
        float d[32], vn[32];
        products::wide::round_operand(s, a);
        if constexpr (S::wgmma)
            ring.wait_full(step);
        else
            copy_all<S, at, true>(p, b, b.begin + step, values);
        clear(d);
        kept *=
            products::decay(from, s); // ahead of products: none may be under way while others write what is added to
        products::wide::fence();
        products::wide::times_rows(d, a, from + at::k);
        products::load_values(from, min(group, at::most_values - 1), v);
        products::wide::template finish<0>(d);
        products::correct(from, v, added, d, y);
        clear(vn);
        products::wide::fence();
        products::narrow::template times_columns<0>(vn, y, from + at::x);
        products::wide::template finish<0>(vn);
        products::outgoing(from, vn, y);
        products::wide::fence();
        products::wide::template times_columns<0>(s, y, from + at::k);
        products::wide::template finish<0>(s);
        if constexpr (S::wgmma)
            ring.release(step);
        else
            __syncthreads();
    }
    if (added)
        kda_inter::store_added(kda_inter::added_of(p.inter, b, b.number, columns), s);
    else if (b.number > 0)
        store_transition(p, b, columns, kept, s);
}

} // namespace gdn_prefill
