// The Hopper kernel of attn_fwd for 16 bits: the consumer groups. The template gives shapes, types and products.
#pragma once

#include "attn_fwd/output.cuh"
#include "attn_fwd/tiles.cuh"
#include "attn_fwd/wgmma_tile.cuh"
#include "attn_fwd/work.cuh"
#include "lib/opaque.cuh"
#include "lib/ptx/cluster.cuh"
#include "lib/ptx/ldst.cuh"
#include "lib/ptx/mbarrier.cuh"
#include "lib/ptx/sync.cuh"
#include "lib/ptx/wgmma.cuh"
#include "lib/uniform.cuh"

namespace {

// release() of a stage of keys or values, to all blocks that write to it.
__device__ __forceinline__ void release_stage(unsigned long long &barrier)
{
    if (sharers == 1)
        release(barrier);
    else if (threadIdx.x % 32 < sharers)
        mbarrier_arrive_remote(cluster_address(shared_address(&barrier), threadIdx.x % 32));
}

// Clears values beyond the request's end. They belong to the next request and may not even be multiplied by zero. Every
// group clears them for itself.
__device__ __forceinline__ void clear_values(unsigned v, int valid, int group)
{
    for (int i = threadIdx.x % 128; i < (keys - valid) * (dim / 8); i += 128) {
        const int row = valid + i / (dim / 8), chunk = i % (dim / 8);
        st_shared_v4_f32(v + chunk / 8 * kv_cell + row * 128 + chunk % 8 * 16, make_float4(0.f, 0.f, 0.f, 0.f));
    }
    fence_proxy_async();
    barrier_sync(clear_barrier + group, 128);
}

struct group_state {
    float s[keys / 2]; // scores of the block at work
    float o[dim / 2];
    unsigned packed[keys / 4]; // probabilities
    attn_rows_state r;
};

// What a group keeps of a tile; the rest it reads again at the end.
struct group_tile {
    unsigned slot; // of the tile's work descriptor
    int first;     // of its blocks of keys
    int kv_len;
    int edge; // of the group's first row: keys from here on are masked, but for the length
};

// Whether a mask cuts block `j` for one of the group's rows.
__device__ __forceinline__ bool is_cut(const gen_attn_fwd_params &p, const group_tile &w, int j)
{
    return cuts(p, w.kv_len, w.edge, j * keys, keys);
}

// Scores of block `j` as they count.
__device__ __forceinline__ void mask_scores(const gen_attn_fwd_params &p, const group_tile &w, float (&s)[keys / 2],
                                            int j)
{
    if (mask == mask_any && p.cap_scale != 0.f)
        attn_cap(p, s);
    mask_keys(p, w.kv_len, w.edge, s, j * keys);
}

// The number of a tile's last blocks that none of the group's rows sees: at most as many as there are stages, and at least
// one block is left.
__device__ __forceinline__ int left_out(const gen_attn_fwd_params &p, const block_state &b, const attn_place &published,
                                        int group)
{
    if (!leaves_out)
        return 0;
    const attn_tile &t = b.c->published.tile[published.place()];
    const int seen = max(min(t.last, (edge_of(p, t, group) + 63 + keys - 1) / keys), t.first + 1);
    return min(t.last - seen, stages);
}

// The tile whose work descriptor is at `published`, of which the group leaves out `out` blocks; returns the block that it begins with, the last
// one that the group computes.
__device__ __forceinline__ int enter_tile(const gen_attn_fwd_params &p, const block_state &b, attn_place &published,
                                          int group, int out, group_tile &w)
{
    const attn_tile &t = b.c->published.tile[published.place()];
    const int j = t.last - 1 - out;
    w = {published.place(), mask == mask_any ? t.first : 0, mask == mask_any ? t.kv_len : p.kv_len,
         edge_of(p, t, group)};
    published.next();
    return j;
}

// Sums and divides; the output goes to shared memory where there is room. `place`: of the tile's queries.
__device__ __forceinline__ void end_rows(const block_state &b, group_state &g, int place, float (&factor)[2],
                                         float (&lse)[2])
{
    attn_end_rows(g.r, 1.f, factor, lse);
    if (is_staged)
        attn_put_rows<element, stage_place>(g.o, factor, b.staged(place));
}

// Writes the output, and releases what only the tile needed.
__device__ __forceinline__ void send_rows(const gen_attn_fwd_params &p, const block_state &b, const group_tile &w,
                                          const group_state &g, int group, int row, int place, const float (&factor)[2],
                                          const float (&lse)[2])
{
    const attn_tile &t = b.c->published.tile[w.slot];
    if (is_staged) {
        attn_sent<dim> sent;
        sent.template take<stage_place>(b.staged(place));
        if (!stages_own) { // the place is free for queries: the fence waits for the loads, and behind the stores would for these
            fence_proxy_async();
            __syncwarp();
            release(b.c->q_empty[place][group]);
        }
        sent.send(p, b.c->published.results[w.slot], t.num_rows, row - threadIdx.x % 32 / 4, lse);
    } else {
        attn_write_rows<element>(p, t, row, g.o, factor, lse);
    }
    __syncwarp();
    release(b.c->published.empty[w.slot]);
}

// Releases stages that the group does not use as soon as they are filled, because all groups walk the same ring. Keys are
// skipped while the group still holds values of the tile before, so at most as many as there are stages, or the loads
// between them would wait for their place.
__device__ __forceinline__ void leave_out(unsigned long long (&full)[stages], unsigned long long (&empty)[stages],
                                          stage_ring &r, int count)
{
#pragma unroll 1
    for (; leaves_out && count > 0; count--) {
        mbarrier_wait(shared_address(&full[r.place()]), r.phase());
        __syncwarp(); // one lane arrives for all
        release_stage(empty[r.place()]);
        r.next();
    }
}

// Waits until the tile's queries have arrived, and puts them where products take them from.
__device__ __forceinline__ void take_queries(const block_state &b, group_queries &q, int group, const q_ring &at,
                                             bool arrived)
{
    if (!arrived)
        mbarrier_wait(shared_address(&b.c->q_full[at.place()][group]), at.phase());
    q.take(b.q(at.place(), group));
}

// The tile's first scores are there.
__device__ __forceinline__ void release_queries(const block_state &b, int group, const q_ring &at)
{
    if (in_registers)
        release(b.c->q_empty[at.place()][group]);
}

// A tile of which the group has nothing to compute: it releases what is loaded for it, and writes rows that see no key.
// `row`: of the tile, the thread's first. Values are where keys are: none is ahead.
__device__ __forceinline__ void pass_tile(const gen_attn_fwd_params &p, const block_state &b, attn_place &published,
                                          int group, int row, q_ring &at, stage_ring &k)
{
    const attn_tile &t = b.c->published.tile[published.place()];
    const int count = t.last - t.first;
    if (count > 0) {
        mbarrier_wait(shared_address(&b.c->q_full[at.place()][group]), at.phase());
        __syncwarp(); // one lane arrives for all
        release(b.c->q_empty[at.place()][group]);
        at.next();
    } else {
        attn_write_nothing<element, dim / 2>(p, t, row);
    }
#pragma unroll 1
    for (int i = 0; i < count; i++) {
        mbarrier_wait(shared_address(&b.c->k_full[k.place()]), k.phase());
        __syncwarp();
        release_stage(b.c->k_empty[k.place()]);
        mbarrier_wait(shared_address(&b.c->v_full[k.place()]), k.phase());
        __syncwarp();
        release_stage(b.c->v_empty[k.place()]);
        k.next();
    }
    __syncwarp();
    release(b.c->published.empty[published.place()]);
    published.next();
}

// Whether M is to be looked for at once: in a tile's first block, and where a row may have seen no key before.
__device__ __forceinline__ bool looks_for_reference(const group_state &g, bool first)
{
    return may_lack ? attn_lacks_reference(g.r) : first;
}

// Turns finished scores into probabilities. `first`: of the tile's blocks.
__device__ __forceinline__ void exponentiate(const gen_attn_fwd_params &p, group_state &g, bool first, bool looks)
{
    attn_softmax<attn_16_bits<element>>(g.r, g.s, p.scale_log2, g.packed, first, looks,
                                        [&g](const float(&factor)[2]) { attn_scale_rows(g.o, factor); });
}

// Waits until the block's values have arrived, and clears those behind the request's end.
__device__ __forceinline__ void await_values(const gen_attn_fwd_params &p, const block_state &b, const group_tile &w,
                                             const stage_ring &v, bool arrived, int j, int group)
{
    if (!arrived)
        mbarrier_wait(shared_address(&b.c->v_full[v.place()]), v.phase());
    const int valid = mask == mask_any && p.cu_q ? w.kv_len - j * keys : keys;
    if (mask == mask_any && valid < keys)
        clear_values(b.v(v.place()), valid, group);
}

// Waits for all products under way; the block's keys go back.
__device__ __forceinline__ void await_scores(const block_state &b, group_state &g, stage_ring &k)
{
    wgmma_wait_group<0>();
    wgmma_fence_registers(g.s);
    release_stage(b.c->k_empty[k.place()]);
    k.next();
}

// The place `blocks` before `k`: within a tile values are a block behind the next block's keys.
__device__ __forceinline__ stage_ring behind(const stage_ring &k, int blocks)
{
    stage_ring v = k;
#pragma unroll 1
    for (; blocks > 0; blocks--)
        v.at = v.place() ? v.at - 1 : (v.at ^ 16) + stages - 1;
    return v;
}

// A block that is not the tile's last: its product with the values, and scores of the next one.
__device__ __forceinline__ void do_block(const gen_attn_fwd_params &p, const block_state &b, const group_tile &w,
                                         group_state &g, group_queries &q, stage_ring &k, int group, int j, bool first)
{
    const stage_ring v = behind(k, 1);
    // Tested before there is need, so that nothing waits for the answer.
    const bool k_arrived = tests_early && attn_arrived(b.c->k_full[k.place()], k.phase());
    const bool v_arrived = tests_early && attn_arrived(b.c->v_full[v.place()], v.phase());
    const int early = uniform(k.place() | v.place() << 8);
    q.renew();
    mask_scores(p, w, g.s, j);
    exponentiate(p, g, first, looks_for_reference(g, first));
    await_values(p, b, w, v, v_arrived, j, group);
    if (!k_arrived)
        mbarrier_wait(shared_address(&b.c->k_full[k.place()]), k.phase());
    wgmma_fence();
    start_values(g.o, g.packed, b.v_low(early >> 8), first);
    start_scores(g.s, q, b.k_low(early & 255));
    await_scores(b, g, k);
    wgmma_fence_registers(g.o);
    release_stage(b.c->v_empty[v.place()]);
}

// The same of a block that no mask cuts, with the next one's keys in stage `at` and its values in the one before.
template <int at>
__device__ __forceinline__ void do_inner_block(const gen_attn_fwd_params &p, const block_state &b, group_state &g,
                                               group_queries &q, unsigned phase)
{
    constexpr int v_at = (at + stages - 1) % stages;
    const unsigned v_phase = at ? phase : phase ^ 1;
    const bool k_arrived = attn_arrived(b.c->k_full[at], phase), v_arrived = attn_arrived(b.c->v_full[v_at], v_phase);
    q.renew();
    exponentiate(p, g, false, false);
    if (!(k_arrived & v_arrived)) {
        mbarrier_wait(shared_address(&b.c->k_full[at]), phase);
        mbarrier_wait(shared_address(&b.c->v_full[v_at]), v_phase);
    }
    wgmma_fence();
    start_values(g.o, g.packed, b.v_low(v_at), false);
    start_scores(g.s, q, b.k_low(at));
    wgmma_wait_group<0>();
    wgmma_fence_registers(g.s);
    wgmma_fence_registers(g.o);
    release_stage(b.c->k_empty[at]);
    release_stage(b.c->v_empty[v_at]);
}

// A round of the ring, from stage 0 on.
template <int at = 0>
__device__ __forceinline__ void do_round(const gen_attn_fwd_params &p, const block_state &b, group_state &g,
                                         group_queries &q, unsigned phase)
{
    do_inner_block<at>(p, b, g, q, phase);
    if constexpr (at + 1 < stages)
        do_round<at + 1>(p, b, g, q, phase);
}

// Of the tile's rows the thread's first one, the other is 8 behind it. Computed anew, so that no register keeps it.
__device__ __forceinline__ int thread_row()
{
    unsigned thread = threadIdx.x;
    opaque(thread);
    return thread / 32 * 16 + thread % 32 / 4;
}

__device__ void consume(const gen_attn_fwd_params &p, const block_state &b, int group)
{
    stage_ring k;
    q_ring queries;
    attn_place published;
    group_tile w;
    group_state g;
    group_queries q;
    next_kind kind = next_tile(b, published, group);
#pragma unroll 1
    for (;;) {
        for (; kind == next_idle || kind == next_empty; kind = next_tile(b, published, group))
            pass_tile(p, b, published, group, thread_row(), queries, k);
        if (kind == next_none)
            break;
        int out = left_out(p, b, published, group);
        take_queries(b, q, group, queries, false);
        leave_out(b.c->k_full, b.c->k_empty, k, out);
        mbarrier_wait(shared_address(&b.c->k_full[k.place()]), k.phase());
        q.renew();
        wgmma_fence();
        start_scores(g.s, q, b.k_low(uniform(k.place())));
        await_scores(b, g, k);
        release_queries(b, group, queries);
        bool first;
#pragma unroll 1
        for (;;) { // tiles, as long as one follows the other; scores of the first block are there
            if (leaves_out) {
                stage_ring v = behind(k, 1 + out);
                leave_out(b.c->v_full, b.c->v_empty, v, out);
            }
            int j = enter_tile(p, b, published, group, out, w);
            g.r.reset();
            first = true;
#pragma unroll 1
            while (j > w.first) {
                if (in_rounds && k.place() == 0 && j - w.first >= stages && !first && !is_cut(p, w, j)) {
#pragma unroll 1
                    do {
                        do_round(p, b, g, q, k.phase());
                        k.at ^= 16; // the other phase
                        j -= stages;
                    } while (j - w.first >= stages);
                } else {
                    do_block(p, b, w, g, q, k, group, j, first);
                    first = false;
                    j--;
                }
            }
            // The last block: its product with the values, and scores of the next tile's first one.
            const int place = in_registers ? 0 : queries.place();
            if (!in_registers && !is_staged)
                release(b.c->q_empty[place][group]);
            queries.next();
            const stage_ring v = behind(k, 1);
            bool q_arrived = false, k_arrived = false, v_arrived = false;
            if (tests_ahead) {
                kind = next_tile(b, published, group);
                out = kind == next_work ? left_out(p, b, published, group) : 0;
                q_arrived = attn_arrived(b.c->q_full[queries.place()][group], queries.phase());
                k_arrived = out == 0 && attn_arrived(b.c->k_full[k.place()], k.phase());
                v_arrived = attn_arrived(b.c->v_full[v.place()], v.phase());
            }
            const int v_stage = uniform(v.place());
            mask_scores(p, w, g.s, j);
            exponentiate(p, g, first, looks_for_reference(g, first));
            await_values(p, b, w, v, v_arrived, j, group);
            if (!tests_ahead) {
                kind = next_tile(b, published, group);
                out = kind == next_work ? left_out(p, b, published, group) : 0;
            }
            if (kind != next_work)
                break;
            take_queries(b, q, group, queries, q_arrived);
            q.renew();
            leave_out(b.c->k_full, b.c->k_empty, k, out);
            if (!k_arrived)
                mbarrier_wait(shared_address(&b.c->k_full[k.place()]), k.phase());
            const int k_stage = uniform(k.place());
            wgmma_fence();
            start_values(g.o, g.packed, b.v_low(v_stage), first);
            start_scores(g.s, q, b.k_low(k_stage));
            wgmma_wait_group<1>();
            wgmma_fence_registers(g.o);
            release_stage(b.c->v_empty[v_stage]);
            float factor[2], lse[2];
            end_rows(b, g, place, factor, lse);
            if (releases_early)
                await_scores(b, g, k);
            send_rows(p, b, w, g, group, thread_row(), place, factor, lse);
            if (!releases_early)
                await_scores(b, g, k);
            release_queries(b, group, queries);
        }
        const int v_stage = uniform(behind(k, 1).place());
        wgmma_fence();
        start_values(g.o, g.packed, b.v_low(v_stage), first);
        wgmma_wait_group<0>();
        wgmma_fence_registers(g.o);
        release_stage(b.c->v_empty[v_stage]);
        const int place = in_registers || q_places == 1 ? 0 : queries.place() ^ 1; // queries.next() was called
        float factor[2], lse[2];
        end_rows(b, g, place, factor, lse);
        send_rows(p, b, w, g, group, thread_row(), place, factor, lse);
    }
}

} // namespace
