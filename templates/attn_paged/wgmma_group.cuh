// The Hopper kernel of attn_paged: the consumer groups. The template gives sizes, types and products.
#pragma once

#include "attn_fwd/tiles.cuh"
#include "attn_paged/row_group.cuh"
#include "attn_paged/wgmma_tile.cuh"
#include "lib/ptx/cluster.cuh"
#include "lib/ptx/mbarrier.cuh"
#include "lib/ptx/sync.cuh"
#include "lib/ptx/wgmma.cuh"

namespace {

// The same of a stage of keys or values, to all blocks that write to it.
__device__ __forceinline__ void release_stage(unsigned long long &barrier)
{
    if constexpr (S::blocks == 1) {
        release(barrier);
    } else {
        __syncwarp();
        if (threadIdx.x % 32 < S::blocks)
            mbarrier_arrive_remote(cluster_address(shared_address(&barrier), threadIdx.x % 32));
    }
}

// ---- blocks of keys ----

// A piece of which the group has no rows.
__device__ __forceinline__ void pass_piece(const block_state &b, const paged_piece &piece, stage_ring &at)
{
#pragma unroll 1
    for (int j = piece.lo; j < piece.hi; j++) {
        mbarrier_wait(shared_address(&b.c->k_full[at.place()]), at.phase());
        release_stage(b.c->k_empty[at.place()]);
        mbarrier_wait(shared_address(&b.c->v_full[at.place()]), at.phase());
        release_stage(b.c->v_empty[at.place()]);
        at.next();
    }
}

// Until the block's values are there, `valid` of them the request's.
__device__ __forceinline__ void await_values(const block_state &b, const stage_ring &at, bool arrived, int valid,
                                             int group)
{
    if (!arrived)
        mbarrier_wait(shared_address(&b.c->v_full[at.place()]), at.phase());
    if (valid < S::keys)
        clear_values(b.v(at.place()), max(valid, 0), group);
}

// All blocks of the piece.
__device__ __forceinline__ void attend(const gen_attn_paged_params &p, const block_state &b, const paged_piece &piece,
                                       int group, unsigned q, stage_ring &at, group_state &g)
{
    const group_masks masks(p, piece, group);
    const group_scale scale(p, piece);
    const float factor = p.cap_log2 != 0.f ? p.cap_log2 : scale.scale;
    const int end = uniform(piece.hi), kv_len = piece.kv_len;
    int j = uniform(piece.lo);
    mbarrier_wait(shared_address(&b.c->k_full[at.place()]), at.phase());
    wgmma_fence();
    start_scores(g.s, q, b.k(uniform(at.place())));
    wgmma_wait_group<0>();
    wgmma_fence_registers(g.s);
    release_stage(b.c->k_empty[at.place()]);
    bool first = true;
    stage_ring now = at;
#pragma unroll 1
    for (; j + 1 < end; j++) {
        at.next();
        // Tested before there is need, so that nothing waits for the answer.
        const bool k_arrived = mbarrier_test_wait(shared_address(&b.c->k_full[at.place()]), at.phase());
        const bool v_arrived = mbarrier_test_wait(shared_address(&b.c->v_full[now.place()]), now.phase());
        exponentiate(p, masks, scale, factor, j, first, g);
        await_values(b, now, v_arrived, kv_len - j * S::keys, group);
        if (!k_arrived)
            mbarrier_wait(shared_address(&b.c->k_full[at.place()]), at.phase());
        const unsigned stages = uniform(now.place() | at.place() << 8);
        wgmma_fence();
        start_values(g.o, g.packed, b.v(stages & 255), first);
        start_scores(g.s, q, b.k(stages >> 8));
        wgmma_wait_group<0>();
        wgmma_fence_registers(g.s);
        wgmma_fence_registers(g.o);
        release_stage(b.c->k_empty[at.place()]);
        release_stage(b.c->v_empty[now.place()]);
        first = false;
        now = at;
    }
    at.next();
    if constexpr (S::q_places == 1)
        release(b.c->q_empty[S::q_sets > 1 ? group : 0]); // the next piece's are wanted soon
    exponentiate(p, masks, scale, factor, j, first, g);
    await_values(b, now, false, kv_len - j * S::keys, group);
    wgmma_fence();
    start_values(g.o, g.packed, b.v(uniform(now.place())), first);
    wgmma_wait_group<0>();
    wgmma_fence_registers(g.o);
    release_stage(b.c->v_empty[now.place()]);
}

__device__ void consume(const gen_attn_paged_params &p, const block_state &b, int group, int part)
{
    stage_ring at;
    work_ring work;
    q_ring queries; // where there are not as many places as of work
    group_state g;
#pragma unroll 1
    for (;;) {
        const unsigned place = work.place();
        mbarrier_wait(shared_address(&b.c->work_full[place]), work.phase());
        const paged_piece &piece = b.c->work[place];
        const int rows = uniform(piece.rows);
        if (rows == 0)
            break;
        const bool mine = first_row_of(group) < rows, some = uniform(piece.lo) < uniform(piece.hi);
        const unsigned q_place = S::q_places == S::places ? place : queries.place();
        const unsigned q_set = S::q_sets > 1 ? group : q_place;
        mbarrier_wait(shared_address(&b.c->q_full[q_set]), S::q_places == S::places ? work.phase() : queries.phase());
        g.r.reset();
        if (mine && some)
            attend(p, b, piece, group, b.q(uniform(q_place), group), at, g);
        else
            pass_piece(b, piece, at);
        if (S::q_places > 1 || !(mine && some))
            release(b.c->q_empty[q_set]);
        queries.next();
        if (mine)
            end_rows(p, piece, group, some, g);
        if (piece.slot >= 0)
            join(p, b, piece, part, group, g.o);
        release(b.c->work_empty[place]);
        work.next();
    }
}

} // namespace
