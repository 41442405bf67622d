// The Hopper kernel of attn_fwd for 8 bits of width 128 whose probabilities are e4m3 but for some keys (probs = mixed).
//
// e4m3 costs an output of mean 0 an error of 0.026, which FlashAttention-3's running maximum brings down by up to a tenth. Keys whose
// probabilities and values are fp16, exact beside e4m3, take their share of it. They are the first 64 of a block, and the blocks are:
//   * the tile's last one, which has the first keys: rows that see few keys have the greatest outputs, and a model's first tokens great
//     probabilities;
//   * of the first wide_blocks() blocks of keys each third, stage 0 in rounds of the ring, where the stage is known when the kernel is compiled:
//     one key in six. Over more keys FlashAttention-3's sums lose as much by themselves.
// docs/log/2026-11-28-attn-fp8-mixed-128.md has what chose them.
#pragma once

#include "attn_fwd/fp8_producer.cuh"
#include "attn_fwd/fp8_totals.cuh"
#include "attn_fwd/fp8_transpose.cuh"
#include "lib/fp8.cuh"
#include "lib/half.cuh"
#include "lib/ptx/ldst.cuh"

namespace {

static_assert(dim == 128 && keys == 128 && parts == 1 && in_rounds && wide_keys == 64, "what is written below");
constexpr int wide_words = wide_keys / 4, other_words = (keys - wide_keys) / 8; // of a thread's probabilities

// Where rounds have such keys, of a tile that sees `last` blocks: as many as hold FlashAttention-3's error with one percent to spare. With causality and
// no keys before the first query the rows that see few keys make the error, and the tile's last block suffices.
__device__ __forceinline__ int wide_blocks(const gen_attn_fwd_params &p, int last)
{
    return mask == mask_causal && p.kv_len <= p.q_len ? 0 : 24 + last / 8;
}

// Whether block `j` of those up to `last` has such keys; blocks go down from last - 1 to 0. In stage 0 this holds of some that a group does not do
// in a round, which has keys of three blocks that no mask cuts; there they are prepared in vain.
__device__ __forceinline__ bool may_be_wide(const gen_attn_fwd_params &p, int j, int last, int stage)
{
    return j == 0 || (stage == 0 && j >= stages && j < wide_blocks(p, last) && j < last - 1);
}

// ---- the warps that prepare values ----

// The first rows of values as rows of fp16, in cells of 64 columns, both swizzled; columns in the order of transposed ones: of sixteen the even
// ones come first. A lane takes sixteen.
__device__ __forceinline__ void prepare_wide(unsigned raw, unsigned to, int warp)
{
    constexpr int chunks = dim / 16, at_once = 32 / chunks; // of a row; rows
    const int lane = threadIdx.x % 32, chunk = lane % chunks;
#pragma unroll 1
    for (int first = warp * at_once; first < wide_keys; first += preparers * at_once) {
        const int row = first + lane / chunks;
        const float4 x = ld_shared_v4_f32(raw + row * pitch + ((chunk ^ row % 8) << 4));
        const unsigned a = __float_as_uint(x.x), b = __float_as_uint(x.y), c = __float_as_uint(x.z),
                       d = __float_as_uint(x.w);
        const unsigned from[4] = {__byte_perm(a, b, 0x6420), __byte_perm(c, d, 0x6420), __byte_perm(a, b, 0x7531),
                                  __byte_perm(c, d, 0x7531)};
        unsigned y[8];
#pragma unroll
        for (int i = 0; i < 4; i++)
            fp8_to_fp16<element>(from[i], y[2 * i], y[2 * i + 1]);
        const unsigned target = to + chunk / 4 * (wide_keys * 128) + row * 128 + ((2 * (chunk % 4) ^ row % 8) << 4);
        st_shared_v4_u32(target, y[0], y[1], y[2], y[3]);
        st_shared_v4_u32(target ^ 16, y[4], y[5], y[6], y[7]);
    }
}

// prepare_values() of kernels that have a place for one block's values as fp16.
__device__ void prepare_mixed_values(const gen_attn_fwd_params &p, const block_state &b, int warp)
{
    raw_ring raw;
    stage_ring ready, wide; // `wide`: the last block that had such keys
    int since = stages;     // blocks since then
    attn_place published;
    for (;; published.next()) {
        mbarrier_wait(shared_address(&b.c->published.full[published.place()]), published.phase());
        const int last = b.c->published.tile[published.place()].last;
        if (last < 0)
            break;
        __syncwarp(); // one lane arrives for all
        release(b.c->published.empty[published.place()]);
        for (int j = last - 1; j >= 0; j--) {
            mbarrier_wait(shared_address(&b.c->v_full[raw.place()]), raw.phase());
            mbarrier_wait(shared_address(&b.c->ready_empty[ready.place()]), ready.phase() ^ 1);
            transpose_block<false>(b.v(raw.place()), b.ready(ready.place()), keys, warp);
            since++;
            if (may_be_wide(p, j, last, ready.place())) {
                // Products of the wide block before are complete if it was a round ago; else, where tiles change, they are waited for.
                if (since < stages)
                    mbarrier_wait(shared_address(&b.c->ready_empty[wide.place()]), wide.phase());
                prepare_wide(b.v(raw.place()), b.wide(), warp);
                wide = ready;
                since = 0;
            }
            fence_proxy_async();
            __syncwarp();
            release(b.c->ready_full[ready.place()]);
            release(b.c->v_empty[raw.place()]);
            raw.next();
            ready.next();
        }
    }
}

// ---- consumer warpgroups ----

// Probabilities of wide_keys keys as fp16, then those of the others as e4m3, which they are summed with; the words behind them are not set.
struct attn_mixed_e4m3 {
    static constexpr float most_sum = attn_e4m3::most_sum, offset = attn_e4m3::offset;
    static constexpr int in_word = 2;

    template <int n>
    static __device__ __forceinline__ void find(const float (&s)[n], float scale, const float (&neg_max)[2],
                                                unsigned (&packed)[n / 2], float (&sum)[2])
    {
        constexpr int wide = wide_keys / 2, rest = n - wide;
        float a[wide], b[rest], more[2];
        unsigned x[wide_words], y[other_words];
#pragma unroll
        for (int i = 0; i < wide; i++)
            a[i] = s[i];
#pragma unroll
        for (int i = 0; i < rest; i++)
            b[i] = s[wide + i];
        attn_16_bits<fp16>::find(a, scale, neg_max, x, sum);
        attn_e4m3::find(b, scale, neg_max, y, more);
#pragma unroll
        for (int i = 0; i < wide_words; i++)
            packed[i] = x[i];
#pragma unroll
        for (int i = 0; i < other_words; i++)
            packed[wide_words + i] = y[i];
        sum[0] += more[0];
        sum[1] += more[1];
    }
};

// exponentiate() of a block with such keys.
__device__ __forceinline__ void exponentiate_mixed(const block_state &b, group_state &g, float scale,
                                                   unsigned (&x)[keys / 4], bool first)
{
    attn_softmax<attn_mixed_e4m3>(g.r, g.s[0], scale, x, first, first,
                                  [&](const float(&factor)[2]) { g.scale_output(factor, b.totals()); });
}

// start_values() of it.
__device__ __forceinline__ void start_mixed_values(const block_state &b, group_state &g, const unsigned (&x)[keys / 4],
                                                   int stage)
{
    unsigned y[other_words];
#pragma unroll
    for (int i = 0; i < other_words; i++)
        y[i] = x[wide_words + i];
    issue_wide_values(g.o, x, b.wide_low(), g.has_sums());
    start_values(g.o, y, b.ready_low(stage), true, 1);
}

// do_inner_block<0>() of such a block.
__device__ __forceinline__ void do_mixed_block(const block_state &b, group_state &g, group_queries &q, float scale,
                                               unsigned phase)
{
    unsigned x[keys / 4];
    wgmma_wait_group<0>();
    wgmma_fence_registers(g.s[0]);
    release(b.c->k_empty[0]);
    const bool v_arrived = attn_arrived(b.c->ready_full[0], phase), k_arrived = attn_arrived(b.c->k_full[1], phase);
    q.renew();
    exponentiate_mixed(b, g, scale, x, false);
    if (!(v_arrived & k_arrived)) {
        mbarrier_wait(shared_address(&b.c->ready_full[0]), phase);
        mbarrier_wait(shared_address(&b.c->k_full[1]), phase);
    }
    wgmma_fence();
    start_mixed_values(b, g, x, 0);
    start_scores(g.s[0], q, b.k_low(1));
    wgmma_wait_group<1>();
    wgmma_fence_registers(g.o);
    release(b.c->ready_empty[0]);
}

// do_rounds(), of which those of the first `wide` blocks of keys begin with such a block.
__device__ __forceinline__ void do_mixed_rounds(const gen_attn_fwd_params &p, const block_state &b, const group_tile &w,
                                                group_state &g, group_queries &q, unsigned &block, int &j, int wide)
{
    if (block % stages || cuts(p, w.kv_len, w.edge, j * keys, keys))
        return;
#pragma unroll 1
    for (; j >= max(wide, stages); j -= stages, block += stages) {
        do_round(b, g, q, softmax_scale(p, w), block / stages & 1);
        g.end_blocks(stages, j - stages + 1, b.totals());
    }
#pragma unroll 1
    for (; j >= stages; j -= stages, block += stages) {
        const unsigned phase = block / stages & 1;
        do_mixed_block(b, g, q, softmax_scale(p, w), phase);
        do_round<1>(b, g, q, softmax_scale(p, w), phase);
        g.end_blocks(stages, j - stages + 1, b.totals());
    }
}

// A block that is not the tile's last, outside of rounds: its scores are there.
__device__ __forceinline__ void do_block(const gen_attn_fwd_params &p, const block_state &b, const group_tile &w,
                                         group_state &g, group_queries &q, unsigned &block, int j, bool first)
{
    const bool v_arrived = attn_arrived(b.c->ready_full[block % stages], block / stages & 1);
    const bool k_arrived = attn_arrived(b.c->k_full[(block + 1) % stages], (block + 1) / stages & 1);
    q.renew();
    mask_scores(p, w, g.s[0], j * keys);
    exponentiate(b, g, 0, softmax_scale(p, w), first);
    const int stage = uniform(block % stages); // so that descriptors are computed once a warp
    if (!v_arrived)
        mbarrier_wait(shared_address(&b.c->ready_full[stage]), block / stages & 1);
    block++;
    const int ahead = uniform(block % stages);
    if (!k_arrived)
        mbarrier_wait(shared_address(&b.c->k_full[ahead]), block / stages & 1);
    wgmma_fence();
    start_values(g.o, g.packed[0], b.ready_low(stage), g.has_sums());
    start_scores(g.s[0], q, b.k_low(ahead));
    wgmma_wait_group<1>();
    wgmma_fence_registers(g.o);
    release(b.c->ready_empty[stage]);
    g.end_blocks(1, j, b.totals());
}

// The tile's last block, and the first scores of the next one, which `kind` is of. If the group has none, scores are issued all the same, in vain
// and of whatever is there.
__device__ __forceinline__ void do_last_block(const gen_attn_fwd_params &p, const block_state &b, const group_tile &w,
                                              group_state &g, group_queries &q, group_place &at, int group, bool first,
                                              next_kind &kind)
{
    unsigned x[keys / 4];
    release(b.c->q_empty[at.queries.place()][group]);
    at.queries.next();
    const bool v_arrived = attn_arrived(b.c->ready_full[at.block % stages], at.block / stages & 1);
    q.renew();
    mask_scores(p, w, g.s[0], 0);
    exponentiate_mixed(b, g, softmax_scale(p, w), x, first);
    const int stage = uniform(at.block % stages);
    if (!v_arrived)
        mbarrier_wait(shared_address(&b.c->ready_full[stage]), at.block / stages & 1);
    at.block++;
    wgmma_fence();
    start_mixed_values(b, g, x, stage);
    kind = next_tile(b, at.published, group);
    if (kind == next_work) {
        take_queries(b, q, group, at.queries);
        q.renew();
    }
    const int ahead = uniform(at.block % stages);
    if (kind == next_work)
        mbarrier_wait(shared_address(&b.c->k_full[ahead]), at.block / stages & 1);
    wgmma_fence();
    start_scores(g.s[0], q, b.k_low(ahead));
    wgmma_wait_group<1>();
    wgmma_fence_registers(g.o);
    release(b.c->ready_empty[stage]);
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
        take_queries(b, q, group, at.queries);
        mbarrier_wait(shared_address(&b.c->k_full[at.block % stages]), at.block / stages & 1);
        wgmma_fence();
        start_scores(g.s[0], q, b.k_low(uniform(at.block % stages)));
#pragma unroll 1
        while (kind == next_work) { // tiles, as long as one follows the other; the first scores are issued
            g.reset();
            int j = enter_tile(p, b, at.published, group, 0, w);
            const int wide = wide_blocks(p, j + 1);
            bool first = true; // of the tile's blocks
#pragma unroll 1
            for (;; j--, first = false) {
                if (!first)
                    do_mixed_rounds(p, b, w, g, q, at.block, j, wide);
                wgmma_wait_group<0>();
                wgmma_fence_registers(g.s[0]);
                release(b.c->k_empty[at.block % stages]);
                if (j == 0)
                    break;
                do_block(p, b, w, g, q, at.block, j, first);
            }
            do_last_block(p, b, w, g, q, at, group, first, kind);
            finish_tile(p, b, w, g);
        }
        wgmma_wait_group<0>();
        wgmma_fence_registers(g.s[0]);
    }
}

} // namespace
