// The Hopper kernel of attn_fwd for 8 bits: the warp that feeds and those that turn values. The template gives shapes and types.
#pragma once

#include "attn_fwd/fp8.cuh"
#include "attn_fwd/wgmma_load.cuh"
#include "attn_fwd/wgmma_tile.cuh"
#include "attn_fwd/work.cuh"
#include "lib/tma.cuh"

namespace {

// ---- the warp that feeds ----

// A tile, and what its products are multiplied by.
__device__ __forceinline__ void tell(const gen_attn_fwd_params &p, const block_state &b, attn_place &place, const attn_tile &t)
{
    const float scale = mask == mask_any && p.cap_scale != 0.f ? p.cap_scale : p.scale_log2;
    mbarrier_wait(shared_address(&b.c->told.empty[place.place()]), place.phase());
    if (threadIdx.x % 32 == 0) {
        b.c->scale[place.place()] = scale * attn_score_descale(p, t);
        b.c->descale[place.place()] = attn_descale(p, p.v_descale, t);
    }
    attn_tell(p, b.c->told, place, t);
}

__device__ void feed(const gen_attn_fwd_params &p, const block_state &b)
{
    const tensor_map *const k_map = reinterpret_cast<const tensor_map *>(p.k_map);
    const tensor_map *const v_map = reinterpret_cast<const tensor_map *>(p.v_map);
    const unsigned long long once = policy_evict_first(), often = policy_evict_last();
    stage_ring k(1), v(1); // of what is free: the first round is
    q_ring q(1);
    attn_place told(1);
    tile_walk walk(p);
    attn_tile t = walk.tile(p);
    tell(p, b, told, t);
    bool more = true, asks = true, first = t.last > t.first; // queries come behind the tile's first keys
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
            if (asks)
                walk.ask(p);
            first = asks = false;
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
                    tell(p, b, told, next);
                    if (has_place && next.last > next.first)
                        load_queries(p, b, q, next, once);
                } else {
                    attn_tell_end(p, b.c->told, told);
                }
            }
        }
        if (more) {
            t = attn_last_told(b.c->told, told);
            first = !has_place && t.last > t.first;
        }
    }
}

// ---- the warps that turn values ----

// Values are turned in units of 32 keys and 16 columns. A warp has every third sixteen of columns and of them all keys, so
// that the rest of an address is known when the kernel is compiled.
template <bool clears> __device__ __forceinline__ void turn_block(unsigned v, unsigned turned, int valid, int warp)
{
    constexpr int units = keys / 32; // of them so many at once, so that they wait together, as there are registers for
    constexpr int at_once = clears ? 1 : groups == 2 ? 4 : 2;
    const int lane = threadIdx.x % 32;
    // Lane l tells where key l is; and row l % 16 of the turned ones: even columns, then odd ones, of the lower or upper 16 keys.
    const unsigned from = v + lane * pitch, from_turn = (pitch == 128 ? lane % 8 : lane / 2 % 4) << 4;
    const unsigned to = turned + lane % 16 * 128 + ((lane / 16 ^ lane % 8) << 4);
#pragma unroll 1
    for (int columns = warp * 16; columns < dim; columns += turners * 16) {
        const unsigned source = from + columns / pitch * kv_cell + (columns % pitch ^ from_turn), target = to + columns * 128;
#pragma unroll (clears ? 1 : units)
        for (int first = 0; first < units; first += at_once) {
            unsigned y[at_once][4];
#pragma unroll
            for (int k = 0; k < at_once; k++)
                ldmatrix_x4_trans(y[k], source + (first + k) * (32 * pitch));
#pragma unroll
            for (int k = 0; k < at_once; k++) {
                const int key = (first + k) * 32;
                // Keys from `valid` on belong to the next request and may not even be multiplied by zero.
                if (clears) {
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        const int at = key + i * 8 + lane % 4 * 2;
                        y[k][i] &= (at < valid ? 0xffffu : 0u) | (at + 1 < valid ? 0xffff0000u : 0u);
                    }
                }
                // Words of four keys of a column.
                const unsigned x[4] = {__byte_perm(y[k][0], y[k][1], 0x6420), __byte_perm(y[k][0], y[k][1], 0x7531),
                                       __byte_perm(y[k][2], y[k][3], 0x6420), __byte_perm(y[k][2], y[k][3], 0x7531)};
                stmatrix_x4((target ^ key % 128) + key / 128 * turned_cell, x);
            }
        }
    }
}

__device__ void turn(const gen_attn_fwd_params &p, const block_state &b, int warp)
{
    stage_ring r;
    attn_place told;
    for (;; told.next()) {
        mbarrier_wait(shared_address(&b.c->told.full[told.place()]), told.phase());
        const attn_tile &t = b.c->told.tile[told.place()];
        const int first = mask == mask_any ? t.first : 0, last = t.last, kv_len = t.kv_len;
        if (last < 0)
            break;
        __syncwarp(); // one lane tells for all
        release(b.c->told.empty[told.place()]);
        for (int j = last - 1; j >= first; j--) {
            const int valid = mask == mask_any && p.cu_q ? kv_len - j * keys : keys;
            mbarrier_wait(shared_address(&b.c->v_full[r.place()]), r.phase());
            mbarrier_wait(shared_address(&b.c->turned_empty[r.place()]), r.phase() ^ 1);
            if (mask == mask_any && valid < keys)
                turn_block<true>(b.v(r.place()), b.turned(r.place()), valid, warp);
            else
                turn_block<false>(b.v(r.place()), b.turned(r.place()), valid, warp);
            fence_proxy_async();
            __syncwarp();
            release(b.c->turned_full[r.place()]);
            release(b.c->v_empty[r.place()]);
            r.next();
        }
    }
}

} // namespace
