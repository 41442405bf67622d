// The Hopper kernel of attn_fwd for 8 bits of width 64 with probabilities of 8 bits (probs = mixed): a block of keys goes in two halves, since
// exponentials take longer than products, so that the products of one run while the other is exponentiated. The first half of stage 0 is that
// of fp16 (fp8_wide.cuh).
#pragma once

#include "attn_fwd/fp8_totals.cuh"
#include "attn_fwd/fp8_wide.cuh"

namespace {

static_assert(parts == 2 && part == wide_keys, "a half is of one type");

// The second half's scores to probabilities, while products are under way that the output takes part in: it is rescaled once they are complete.
__device__ __forceinline__ void exponentiate_second(group_state &g, float scale)
{
    attn_softmax<attn_e4m3>(g.r, g.s[1], scale, g.packed[1], false, false, [](const float(&)[2]) {});
}

// What the output may have to be multiplied by, where M was moved from offset - `before`.
__device__ __forceinline__ void follow_reference(const block_state &b, group_state &g, const float (&before)[2])
{
    if (!__any_sync(0xffffffffu, before[0] != g.r.neg_max[0] || before[1] != g.r.neg_max[1]))
        return;
    float factor[2];
#pragma unroll
    for (int h = 0; h < 2; h++)
        factor[h] = before[h] == g.r.neg_max[h] ? 1.f : exp2_fast(g.r.neg_max[h] - before[h]);
    g.scale_output(factor, b.totals());
}

// A block that is neither the tile's first nor its last and that no mask cuts, in stage `at`: the first half's scores are there, the
// second one's are issued.
template <int at>
__device__ __forceinline__ void do_inner_block(const block_state &b, group_state &g, group_queries &q, float scale,
                                               unsigned phase)
{
    constexpr int next = (at + 1) % stages;
    constexpr bool wide = at == 0;
    const unsigned next_phase = next ? phase : phase ^ 1;
    unsigned x[part / 4];
    const bool v_arrived = attn_arrived(b.c->ready_full[at], phase),
               k_arrived = attn_arrived(b.c->k_full[next], next_phase);
    if constexpr (wide)
        attn_softmax<attn_wide_e4m3>(g.r, g.s[0], scale, x, false, false,
                                     [&](const float(&factor)[2]) { g.scale_output(factor, b.totals()); });
    else
        exponentiate(b, g, 0, scale, false);
    if (!(v_arrived & k_arrived)) {
        mbarrier_wait(shared_address(&b.c->ready_full[at]), phase);
        mbarrier_wait(shared_address(&b.c->k_full[next]), next_phase);
    }
    wgmma_wait_group<0>();
    wgmma_fence_registers(g.s[1]);
    wgmma_fence();
    if constexpr (wide) {
        issue_wide_values(g.o, x, b.wide_low(), g.has_sums());
        wgmma_commit_group();
    } else {
        start_values(g.o, g.packed[0], b.ready_low(at), true);
    }
    start_scores(g.s[0], q, b.k_low(next));
    release(b.c->k_empty[at]);
    const float before[2] = {g.r.neg_max[0], g.r.neg_max[1]};
    exponentiate_second(g, scale);
    wgmma_wait_group<0>();
    wgmma_fence_registers(g.o);
    wgmma_fence_registers(g.s[0]);
    follow_reference(b, g, before);
    wgmma_fence();
    start_values(g.o, g.packed[1], b.ready_low(at), true, 1);
    start_scores(g.s[1], q, b.k_low(next), 1);
    wgmma_wait_group<1>();
    wgmma_fence_registers(g.o);
    release(b.c->ready_empty[at]);
}

__device__ void consume(const gen_attn_fwd_params &p, const block_state &b, int group)
{
    group_place at;
    group_tile w;
    group_state g;
    group_queries q;
    next_kind kind = next_tile(b, at.published, group);
#pragma unroll 1
    for (;;) {
        for (; kind == next_idle || kind == next_empty; kind = next_tile(b, at.published, group))
            pass_tile(p, b, at.published, group, at.queries, at.block);
        if (kind == next_none)
            break;
        g.reset();
        take_queries(b, q, group, at.queries);
        mbarrier_wait(shared_address(&b.c->k_full[at.block % stages]), at.block / stages & 1);
        const unsigned first_keys = b.k_low(uniform(at.block % stages));
        wgmma_fence();
        start_scores(g.s[0], q, first_keys);
        wgmma_wait_group<0>();
        wgmma_fence_registers(g.s[0]);
        wgmma_fence();
        start_scores(g.s[1], q, first_keys, 1);
        int j = enter_tile(p, b, at.published, group, 0, w);
        bool first = true; // of the tile's blocks
        for (;;) {
            if (in_rounds && !first)
                do_rounds(p, b, w, g, q, at.block, j);
            // The first half, while the second one's scores are computed.
            const int stage = uniform(at.block % stages); // so that descriptors are computed once a warp
            const bool ends = j == w.first;
            // Tested before there is need, so that nothing waits for the answer; slower with bounds, where registers are short.
            constexpr bool tests_early = mask == mask_full;
            const bool v_arrived =
                tests_early && attn_arrived(b.c->ready_full[at.block % stages], at.block / stages & 1);
            const bool k_arrived =
                tests_early && !ends && attn_arrived(b.c->k_full[(at.block + 1) % stages], (at.block + 1) / stages & 1);
            mask_scores(p, w, g.s[0], j * keys);
            exponentiate(b, g, 0, softmax_scale(p, w), first);
            first = false;
            if (!v_arrived)
                mbarrier_wait(shared_address(&b.c->ready_full[stage]), at.block / stages & 1);
            wgmma_wait_group<0>();
            wgmma_fence_registers(g.s[1]);
            at.block++;
            wgmma_fence();
            start_values(g.o, g.packed[0], b.ready_low(stage), g.has_sums());
            // The next block, of this tile or the next one. If the group has none, scores are issued all the same, in vain
            // and of whatever is there.
            bool more = true;
            if (ends) {
                release(b.c->q_empty[at.queries.place()][group]);
                at.queries.next();
                kind = next_tile(b, at.published, group);
                more = kind == next_work;
                if (more)
                    take_queries(b, q, group, at.queries);
            }
            const int ahead = uniform(at.block % stages);
            if (more && !k_arrived)
                mbarrier_wait(shared_address(&b.c->k_full[ahead]), at.block / stages & 1);
            wgmma_fence();
            start_scores(g.s[0], q, b.k_low(ahead));
            release(b.c->k_empty[stage]);
            // The second half, while those run.
            mask_scores(p, w, g.s[1], j * keys + part);
            const float before[2] = {g.r.neg_max[0], g.r.neg_max[1]};
            exponentiate_second(g, softmax_scale(p, w));
            wgmma_wait_group<0>();
            wgmma_fence_registers(g.o);
            wgmma_fence_registers(g.s[0]);
            follow_reference(b, g, before);
            wgmma_fence();
            start_values(g.o, g.packed[1], b.ready_low(stage), true, 1);
            start_scores(g.s[1], q, b.k_low(ahead), 1);
            wgmma_wait_group<1>();
            wgmma_fence_registers(g.o);
            release(b.c->ready_empty[stage]);
            if (!ends)
                g.end_blocks(1, j - w.first, b.totals());
            j--;
            if (ends) {
                finish_tile(p, b, w, g);
                if (!more)
                    break;
                j = enter_tile(p, b, at.published, group, 0, w);
                g.reset();
                first = true;
            }
        }
        wgmma_wait_group<0>();
        wgmma_fence_registers(g.s[1]);
    }
}

} // namespace
