// The Hopper kernel of attn_fwd for 16 bits: the producer warp. The template gives shapes and types.
#pragma once

#include "attn_fwd/wgmma_load.cuh"
#include "attn_fwd/work.cuh"
#include "lib/ptx/cp_async.cuh"
#include "lib/ptx/ldst.cuh"
#include "lib/ptx/mbarrier.cuh"
#include "lib/ptx/tma.cuh"

namespace {

__device__ void produce(const gen_attn_fwd_params &p, const block_state &b)
{
    const tensor_map *const k_map = reinterpret_cast<const tensor_map *>(p.k_map);
    const tensor_map *const v_map = reinterpret_cast<const tensor_map *>(p.v_map);
    const unsigned long long once = policy_evict_first(), often = policy_evict_last();
    stage_ring k(1), v(1); // of what is free: the first round is
    q_ring q(1);
    attn_place published(1);
    tile_walk walk(p);
    attn_tile t = walk.tile(p);
    attn_publish(p, b.c->published, published, t);
    bool more = true, takes_first = true, first = t.last > t.first; // its queries come behind its first keys
    while (more) {
        const int request = p.cu_q ? 0 : t.request, now = max(t.last - 2, t.first - 1),
                  ahead = max(t.last - 1 - q_blocks, t.first - 1);
        for (int j = t.last - 1; j >= t.first - 1; j--) { // values come a block behind their keys
            if (j >= t.first) {
                mbarrier_wait(shared_address(&b.c->k_empty[k.place()]), k.phase());
                load_block(k_map, b.k(k.place()), b.c->k_full[k.place()], t, j, request, often);
                k.next();
            }
            if (first)
                load_queries(p, b, q, t, once);
            if (takes_first)
                walk.take_first(p);
            first = takes_first = false;
            if (j < t.last - 1) {
                mbarrier_wait(shared_address(&b.c->v_empty[v.place()]), v.phase());
                load_block(v_map, b.v(v.place()), b.c->v_full[v.place()], t, j + 1, request, often);
                v.next();
            }
            if (j == now) { // the next tile: early, but what this one begins with comes first
                walk.next(p);
                more = !walk.ended(p);
                if (more)
                    attn_publish(p, b.c->published, published, walk.tile(p));
                else
                    attn_publish_end(p, b.c->published, published);
            }
            if (has_place && j == ahead && more) {
                const attn_tile next = attn_last_published(b.c->published, published);
                if (next.last > next.first)
                    load_queries(p, b, q, next, once);
            }
        }
        if (more) {
            t = attn_last_published(b.c->published, published);
            if (!has_place && t.last > t.first)
                load_queries(p, b, q, t, once);
        }
    }
    // In a CTA pair the other block's groups arrive at this block's barriers for every stage, so the barriers have to
    // exist until they have.
    for (int i = 0; sharers > 1 && i < stages; i++) {
        mbarrier_wait(shared_address(&b.c->k_empty[k.place()]), k.phase());
        k.next();
        mbarrier_wait(shared_address(&b.c->v_empty[v.place()]), v.phase());
        v.next();
    }
}

} // namespace
