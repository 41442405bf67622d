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

// ---- products ----

// Where matrices lie, as descriptors have it: all from one address, so that a stage that is known is an offset.
__device__ __forceinline__ unsigned low_k(unsigned low, int stage)
{
    return low + stage * (S::k_bytes >> 4);
}

__device__ __forceinline__ unsigned low_v(unsigned low, int stage)
{
    return low + S::stages * (S::k_bytes >> 4) + stage * (S::v_bytes >> 4);
}

// ---- blocks of keys ----

// Blocks of which the group needs nothing.
__device__ __forceinline__ void pass_blocks(const block_state &b, int count, stage_ring &k)
{
#pragma unroll 1
    for (; count > 0; count--) {
        mbarrier_wait(shared_address(&b.c->k_full[k.place()]), k.phase());
        release_stage(b.c->k_empty[k.place()]);
        mbarrier_wait(shared_address(&b.c->v_full[k.place()]), k.phase());
        release_stage(b.c->v_empty[k.place()]);
        k.next();
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

// The place before `k`: values are a block behind the next block's keys.
__device__ __forceinline__ stage_ring before(const stage_ring &k)
{
    stage_ring v = k;
    v.at = v.place() ? v.at - 1 : (v.at ^ 16) + S::stages - 1;
    return v;
}

// What a group keeps of a piece; the rest it reads again where a mask cuts.
struct group_piece {
    int whole_from, whole_end; // keys that count for all of the group's rows
    float factor;
    bool negative;
    int group;
    unsigned low; // the tiles' address as a descriptor has it

    __device__ __forceinline__ group_piece(const gen_attn_paged_params &p, const block_state &b,
                                           const paged_piece &piece, int group)
        : group(group), low(low_of(b.base))
    {
        const group_masks masks(p, piece, group);
        const group_scale scale(p, piece);
        whole_from = uniform(masks.whole_from);
        whole_end = uniform(masks.whole_end);
        factor = p.cap_log2 != 0.f ? p.cap_log2 : scale.scale;
        negative = scale.negative;
    }
};

// Scores of block `j` as they count.
__device__ __forceinline__ void mask_block(const gen_attn_paged_params &p, const paged_piece &piece,
                                           const group_piece &w, float (&s)[S::keys / 2], int j)
{
    if (w.negative)
#pragma unroll
        for (int i = 0; i < S::keys / 2; i++)
            s[i] = -s[i];
    if (p.cap_log2 != 0.f) {
        const float scale = group_scale(p, piece).scale;
#pragma unroll
        for (int i = 0; i < S::keys / 2; i++)
            s[i] = fmaf(-2.f, rcp_fast(1.f + exp2_fast(s[i] * scale)), 1.f);
    }
    const int key = j * S::keys;
    if (key < w.whole_from || key + S::keys > w.whole_end) {
        const group_masks masks(p, piece, w.group);
        attn_mask_outside<mask_any>(s, key, masks.from, masks.end);
    }
}

// Turns scores into probabilities. `first`: of the piece's blocks.
__device__ __forceinline__ void exponentiate_block(const group_piece &w, group_state &g, bool first, bool looks)
{
    attn_softmax<attn_16_bits<element>>(g.r, g.s, w.factor, g.packed, first, looks,
                                        [&g](const float(&x)[2]) { attn_scale_rows(g.o, x); });
}

// Block `j`, which is not the piece's last: its product with the values, and scores of the next one.
__device__ __forceinline__ void do_block(const gen_attn_paged_params &p, const block_state &b, const paged_piece &piece,
                                         const group_piece &w, group_queries &q, group_state &g, stage_ring &k, int j,
                                         bool first)
{
    const stage_ring v = before(k);
    // Tested before there is need, so that nothing waits for the answer.
    const bool k_arrived = mbarrier_test_wait(shared_address(&b.c->k_full[k.place()]), k.phase());
    const bool v_arrived = mbarrier_test_wait(shared_address(&b.c->v_full[v.place()]), v.phase());
    const unsigned stages = uniform(k.place() | v.place() << 8), low = uniform(w.low);
    q.renew();
    mask_block(p, piece, w, g.s, j);
    exponentiate_block(w, g, first, attn_lacks_reference(g.r));
    await_values(b, v, v_arrived, piece.kv_len - j * S::keys, w.group);
    if (!k_arrived)
        mbarrier_wait(shared_address(&b.c->k_full[k.place()]), k.phase());
    wgmma_fence();
    start_values(g.o, g.packed, low_v(low, stages >> 8), first);
    start_scores(g.s, q, low_k(low, stages & 255));
    wgmma_wait_group<0>();
    wgmma_fence_registers(g.s);
    wgmma_fence_registers(g.o);
    release_stage(b.c->k_empty[k.place()]);
    release_stage(b.c->v_empty[v.place()]);
    k.next();
}

// The same of a block that nothing cuts, with the next one's keys in stage `at` and its values in the one before.
template <int at>
__device__ __forceinline__ void do_inner_block(const block_state &b, const group_piece &w, group_queries &q,
                                               group_state &g, unsigned phase)
{
    constexpr int v_at = (at + S::stages - 1) % S::stages;
    const unsigned v_phase = at ? phase : phase ^ 1;
    const bool k_arrived = mbarrier_test_wait(shared_address(&b.c->k_full[at]), phase);
    const bool v_arrived = mbarrier_test_wait(shared_address(&b.c->v_full[v_at]), v_phase);
    const unsigned low = uniform(w.low);
    q.renew();
    exponentiate_block(w, g, false, false);
    if (!(k_arrived & v_arrived)) {
        mbarrier_wait(shared_address(&b.c->k_full[at]), phase);
        mbarrier_wait(shared_address(&b.c->v_full[v_at]), v_phase);
    }
    wgmma_fence();
    start_values(g.o, g.packed, low_v(low, v_at), false);
    start_scores(g.s, q, low_k(low, at));
    wgmma_wait_group<0>();
    wgmma_fence_registers(g.s);
    wgmma_fence_registers(g.o);
    release_stage(b.c->k_empty[at]);
    release_stage(b.c->v_empty[v_at]);
}

// A round of the ring, from stage 0 on: an instruction beside the products delays them, and here every address is known.
template <int at = 0>
__device__ __forceinline__ void do_round(const block_state &b, const group_piece &w, group_queries &q, group_state &g,
                                         unsigned phase)
{
    do_inner_block<at>(b, w, q, g, phase);
    if constexpr (at + 1 < S::stages)
        do_round<at + 1>(b, w, q, g, phase);
}

// Where the queries of the piece at `work` are, and what guards them. A place of their own is that of the piece; one for all is
// filled for every piece anew.
struct query_place {
    unsigned place, set, phase;

    __device__ __forceinline__ query_place(const work_ring &work, int group)
    {
        static_assert(S::q_places == S::places || (S::q_places == 1 && S::places == 2), "else another phase");
        place = S::q_places == S::places ? work.place() : 0;
        phase = S::q_places == S::places ? work.phase() : work.place();
        set = S::q_sets > 1 ? group : place;
    }
};

// Begins a piece: the scores of its first block. Queries in registers give up their place.
__device__ __forceinline__ void begin_piece(const block_state &b, const query_place &at, int group, group_queries &q,
                                            group_state &g, stage_ring &k)
{
    mbarrier_wait(shared_address(&b.c->q_full[at.set]), at.phase);
    q.take(b.q(uniform(at.place), group));
    q.renew();
    mbarrier_wait(shared_address(&b.c->k_full[k.place()]), k.phase());
    wgmma_fence();
    start_scores(g.s, q, low_k(uniform(low_of(b.base)), uniform(k.place())));
    wgmma_wait_group<0>();
    wgmma_fence_registers(g.s);
    release_stage(b.c->k_empty[k.place()]);
    k.next();
    if constexpr (S::in_registers)
        release(b.c->q_empty[at.set]);
}

// Behind the last block of the piece that some of the group's rows sees; at least one is left.
__device__ __forceinline__ int own_end(const gen_attn_paged_params &p, const paged_piece &piece, int group)
{
    int end = piece.hi;
    if (p.causal)
        end = min(end, (max(group_masks::own_key(p, piece, first_row_of(group) + 63) + 1, 0) + S::keys - 1) / S::keys);
    return uniform(max(end, piece.lo + 1));
}

// All of the piece's blocks.
__device__ __forceinline__ void attend(const gen_attn_paged_params &p, const block_state &b, const paged_piece &piece,
                                       const query_place &at, int group, stage_ring &k, group_state &g)
{
    const group_piece w(p, b, piece, group);
    const int end = own_end(p, piece, group), left_out = uniform(piece.hi) - end;
    // Behind the last block that no mask cuts for any of the group's rows, and that another one follows.
    const int inner_to = uniform(w.negative || p.cap_log2 != 0.f ? 0 : min(max(w.whole_end, 0) / S::keys, end - 1));
    int j = uniform(piece.lo);
    group_queries q;
    begin_piece(b, at, group, q, g, k);
    bool first = true;
#pragma unroll 1
    while (j + 1 < end) {
        if (k.place() == 0 && !first && j * S::keys >= w.whole_from && j + S::stages <= inner_to) {
#pragma unroll 1
            do {
                do_round(b, w, q, g, k.phase());
                k.at ^= 16; // the other phase
                j += S::stages;
            } while (j + S::stages <= inner_to);
        } else {
            do_block(p, b, piece, w, q, g, k, j, first);
            first = false;
            j++;
        }
    }
    if constexpr (!S::in_registers)
        release(b.c->q_empty[at.set]); // the next piece's are wanted soon
    const stage_ring v = before(k);
    mask_block(p, piece, w, g.s, j);
    exponentiate_block(w, g, first, attn_lacks_reference(g.r));
    await_values(b, v, false, piece.kv_len - j * S::keys, group);
    wgmma_fence();
    start_values(g.o, g.packed, low_v(uniform(w.low), uniform(v.place())), first);
    wgmma_wait_group<0>();
    wgmma_fence_registers(g.o);
    release_stage(b.c->v_empty[v.place()]);
    pass_blocks(b, left_out, k);
}

__device__ void consume(const gen_attn_paged_params &p, const block_state &b, int group, int part)
{
    stage_ring k;
    work_ring work;
    group_state g;
#pragma unroll 1
    for (;;) {
        mbarrier_wait(shared_address(&b.c->work_full[work.place()]), work.phase());
        const paged_piece &piece = b.c->work[work.place()];
        const int rows = uniform(piece.rows);
        if (rows == 0)
            break;
        const bool mine = first_row_of(group) < rows, some = uniform(piece.lo) < uniform(piece.hi);
        const query_place at(work, group);
        g.r.reset();
        if (mine && some) {
            attend(p, b, piece, at, group, k, g);
        } else {
            mbarrier_wait(shared_address(&b.c->q_full[at.set]), at.phase);
            pass_blocks(b, piece.hi - piece.lo, k);
            release(b.c->q_empty[at.set]);
        }
        if (mine)
            end_rows(p, piece, group, some, g);
        if (piece.slot >= 0)
            join(p, b, piece, part, group, g.o);
        release(b.c->work_empty[work.place()]);
        work.next();
    }
}

} // namespace
