// The Hopper kernels of attn_fwd for 8 bits: the producer warp, and the loop of the warps that prepare values. The template gives shapes and types.
#pragma once

#include "attn_fwd/fp8.cuh"
#include "attn_fwd/wgmma_load.cuh"
#include "attn_fwd/wgmma_tile.cuh"
#include "attn_fwd/work.cuh"
#include "lib/ptx/cp_async.cuh"
#include "lib/ptx/ldst.cuh"
#include "lib/ptx/mbarrier.cuh"
#include "lib/ptx/tma.cuh"

namespace {

// ---- the producer warp ----

// A tile, and what its products are multiplied by.
__device__ __forceinline__ void publish(const gen_attn_fwd_params &p, const block_state &b, attn_place &place,
                                        const attn_tile &t)
{
    const float scale = mask == mask_any && p.cap_scale != 0.f ? p.cap_scale : p.scale_log2;
    mbarrier_wait(shared_address(&b.c->published.empty[place.place()]), place.phase());
    if (threadIdx.x % 32 == 0) {
        b.c->scale[place.place()] = scale * attn_score_descale(p, t);
        b.c->descale[place.place()] = attn_descale(p, p.v_descale, t);
    }
    attn_publish(p, b.c->published, place, t);
}

__device__ void produce(const gen_attn_fwd_params &p, const block_state &b)
{
    const tensor_map *const k_map = reinterpret_cast<const tensor_map *>(p.k_map);
    const tensor_map *const v_map = reinterpret_cast<const tensor_map *>(p.v_map);
    const unsigned long long once = policy_evict_first(), often = policy_evict_last();
    stage_ring k(1); // of what is free: the first round is
    raw_ring v(1);
    q_ring q(1);
    attn_place published(1);
    tile_walk walk(p);
    attn_tile t = walk.tile(p);
    publish(p, b, published, t);
    bool more = true, takes_first = true, first = t.last > t.first; // queries come behind the tile's first keys
    while (more) {
        const int request = p.cu_q ? 0 : t.request, now = max(t.last - 2, t.first - 1);
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
                if (more) {
                    const attn_tile next = walk.tile(p);
                    publish(p, b, published, next);
                    if (has_place && next.last > next.first)
                        load_queries(p, b, q, next, once);
                } else {
                    attn_publish_end(p, b.c->published, published);
                }
            }
        }
        if (more) {
            t = attn_last_published(b.c->published, published);
            first = !has_place && t.last > t.first;
        }
    }
}

// ---- the warps that prepare values ----

// A block of values as the products take them, in stage `ready`, from the block as it came, in stage `raw`: this warp's part. Keys from
// `valid` on become zeros where `clears` says so.
template <bool clears>
__device__ __forceinline__ void prepare_block(const block_state &b, int raw, int ready, int valid, int warp);

__device__ void prepare_values(const gen_attn_fwd_params &p, const block_state &b, int warp)
{
    raw_ring raw;
    stage_ring ready;
    attn_place published;
    for (;; published.next()) {
        mbarrier_wait(shared_address(&b.c->published.full[published.place()]), published.phase());
        const attn_tile &t = b.c->published.tile[published.place()];
        const int first = mask == mask_any ? t.first : 0, last = t.last, kv_len = t.kv_len;
        if (last < 0)
            break;
        __syncwarp(); // one lane arrives for all
        release(b.c->published.empty[published.place()]);
        for (int j = last - 1; j >= first; j--) {
            const int valid = mask == mask_any && p.cu_q ? kv_len - j * keys : keys;
            mbarrier_wait(shared_address(&b.c->v_full[raw.place()]), raw.phase());
            mbarrier_wait(shared_address(&b.c->ready_empty[ready.place()]), ready.phase() ^ 1);
            if (mask == mask_any && valid < keys)
                prepare_block<true>(b, raw.place(), ready.place(), valid, warp);
            else
                prepare_block<false>(b, raw.place(), ready.place(), valid, warp);
            fence_proxy_async();
            __syncwarp();
            release(b.c->ready_full[ready.place()]);
            release(b.c->v_empty[raw.place()]);
            raw.next();
            ready.next();
        }
    }
}

} // namespace
