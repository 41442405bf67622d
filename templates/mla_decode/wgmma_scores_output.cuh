// The Hopper kernel of mla_decode whose scores have a group of their own: the two groups that add values up.
#pragma once

#include "mla_decode/wgmma_output.cuh"
#include "mla_decode/wgmma_scores_feed.cuh"
#include "mla_decode/wgmma_scores_products.cuh"

namespace {

__device__ __forceinline__ float load_shared_4(unsigned address)
{
    float x;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(address) : "memory");
    return x;
}

// Takes over what a tile's probabilities are relative to; where that has moved, the output follows.
__device__ __forceinline__ void follow(const ring_place &at, group_state &g)
{
    unsigned x[2];
    load_shared_8(at.minus() + threadIdx.x % 128 / 4 * 8, x[0], x[1]);
    if (__any_sync(0xffffffffu, x[0] != __float_as_uint(g.minus[0]) || x[1] != __float_as_uint(g.minus[1]))) {
        const float to[2] = {__uint_as_float(x[0]), __uint_as_float(x[1])};
        g.go_over(to);
    }
}

// Asks for probabilities times the group's half of a tile's columns, added to the output.
__device__ __forceinline__ void ask_values(const ring_place &at, int half, group_state &g)
{
    const unsigned low = mla_uniform(at.cells() >> 4 & 0x3fff), columns = mla_uniform(half * (4 * cell >> 4));
    const unsigned long long a = wgmma_descriptor(0, 0, 1024) | (low + (8 * cell >> 4));
    const unsigned long long v = wgmma_descriptor(0, cell, 1024) | (low + columns);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < 4; step++)
        wgmma_n256_shared<element>(g.o, a + (step * 32 >> 4), v + (step * 2048 >> 4), g.started || step > 0);
    wgmma_commit();
    g.started = true;
}

// Gives a stage back and asks for the tile that comes there.
__device__ __forceinline__ void renew(const gen_mla_decode_params &p, const scores_control *c, const ring_place &at, int half, unsigned tile)
{
    tell(at.empty(half));
    if (mla_uniform(threadIdx.x % 128 / 32) == 0)
        request(p, c, at, half, tile + stages, true);
}

// A piece's tiles, of which `before` came before. `kv_left`: cache rows from the piece's first tile on. The last tile's stage is not given back.
__device__ __forceinline__ void add_values(const gen_mla_decode_params &p, const block_state &b, const scores_control *c, int half,
                                           unsigned before, int tiles, int kv_left, ring_place &at, group_state &g)
{
#pragma unroll 1
    for (int i = 0;; i++) {
        mbarrier_wait(at.ready(), at.parity);
        follow(at, g);
        if (i + 1 == tiles && kv_left < tiles * rows) {
            if (half == 0)
                clear_rows<0>(b, at.stage, kv_left - i * rows);
            else
                clear_rows<1>(b, at.stage, kv_left - i * rows);
        }
        ask_values(at, half, g);
        wgmma_wait<0>();
        if (i + 1 == tiles)
            break;
        renew(p, c, at, half, before + i);
        at.step();
    }
}

__device__ __forceinline__ void add_up(const gen_mla_decode_params &p, const block_state &b, scores_control *c, ring_place at, int half)
{
    if (mla_uniform(threadIdx.x % 128 / 32) == 0) {
        barrier_sync(places_listed, 96);
        ring_place first = at;
#pragma unroll 1
        for (int i = 0; i < stages; i++) {
            request(p, c, first, half, i, false);
            first.step();
        }
    }
    mla_walk walk(c->share, b.part);
    block_piece w;
    group_state g(p);
    unsigned t = 0; // tiles so far
    while (next_piece(p, b, walk, w)) {
        float sum[2] = {0.f, 0.f};
        g.reset();
        if (w.tiles > 0) {
            add_values(p, b, c, half, t, w.tiles, w.piece.kv_len - w.piece.first * rows, at, g);
            const unsigned from = at.sums() + (threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4) * 4;
            sum[0] = load_shared_4(from);
            sum[1] = load_shared_4(from + 32);
        }
        write_rows(p, b, w, g, half, at.stage, sum);
        if (w.tiles > 0) {
            t += w.tiles;
            fence_proxy_async(); // threads were there, the copy engine comes
            renew(p, c, at, half, t - 1);
            at.step();
        }
    }
}

} // namespace
