// The Hopper kernel of attn_fwd for 8 bits of 8-bit probabilities: a consumer warpgroup's sums, with totals in fp32. The template gives shapes and types.
#pragma once

#include "attn_fwd/fp8_group.cuh"
#include "lib/ptx/ldst.cuh"

namespace {

// The output is the sum of two accumulators, for the tensor cores add 8-bit products to an accumulator with 13 bits below its exponent and
// truncate: o is theirs and holds the sums of at most 640 keys, usually of 384; `total` has those of all keys before, added in fp32. Where all
// values are the same the truncated sums of 512 keys are 0.2 % too small, of 768 keys 0.4 %, of 4,096 keys 6 %.
constexpr int most_blocks = 640 / keys,
              enough_blocks =
                  most_blocks - stages + 1; // a round of the ring may come behind blocks that were not promoted

struct group_state {
    float s[parts][part / 2]; // scores of the block at work
    float o[dim / 2];         // sums of the last `blocks` blocks; of no meaning where these are none
    float total
        [register_totals]; // of all blocks before, if any were promoted; those of o[register_totals] and behind are in shared memory
    unsigned packed[parts][part / 8]; // probabilities
    attn_rows_state r;
    int blocks;
    bool promoted;

    __device__ __forceinline__ void reset()
    {
        r.reset();
        blocks = 0;
        promoted = false;
    }

    // Whether the next product is added to o, or begins it.
    __device__ __forceinline__ bool has_sums() const { return blocks > 0; }

    // o becomes the sum of all blocks. `totals`, here and below: the shared address of the thread's first four totals there; four others are
    // 512 bytes further.
    __device__ __forceinline__ void add_totals(unsigned totals)
    {
        if (!promoted)
            return;
#pragma unroll
        for (int i = 0; i < register_totals; i++)
            o[i] += total[i];
#pragma unroll
        for (int i = register_totals; i < dim / 2; i += 4) {
            const float4 x = ld_shared_v4_f32(totals + (i - register_totals) * 128);
            o[i] += x.x, o[i + 1] += x.y, o[i + 2] += x.z, o[i + 3] += x.w;
        }
    }

    // The totals become the sums of all blocks. The next scores are under way meanwhile.
    __device__ __forceinline__ void promote(unsigned totals)
    {
        if (!promoted) { // not at the tile's begin: a short tile needs none
#pragma unroll
            for (int i = 0; i < register_totals; i++)
                total[i] = 0.f;
#pragma unroll
            for (int i = register_totals; i < dim / 2; i += 4)
                st_shared_v4_f32(totals + (i - register_totals) * 128, make_float4(0.f, 0.f, 0.f, 0.f));
            promoted = true;
        }
#pragma unroll
        for (int i = 0; i < register_totals; i++)
            total[i] += o[i];
#pragma unroll
        for (int i = register_totals; i < dim / 2; i += 4) {
            const float4 x = ld_shared_v4_f32(totals + (i - register_totals) * 128);
            st_shared_v4_f32(totals + (i - register_totals) * 128,
                             make_float4(o[i] + x.x, o[i + 1] + x.y, o[i + 2] + x.z, o[i + 3] + x.w));
        }
        blocks = 0;
    }

    // Behind `count` blocks, with `left` to come: the tile's last ones stay in o where there is room.
    __device__ __forceinline__ void end_blocks(int count, int left, unsigned totals)
    {
        blocks += count;
        if (blocks >= enough_blocks && blocks + left > most_blocks)
            promote(totals);
    }

    __device__ __forceinline__ void scale_output(const float (&factor)[2], unsigned totals)
    {
        attn_scale_rows(o, factor);
        if (!promoted)
            return;
        attn_scale_rows(total, factor);
#pragma unroll 1
        for (int i = register_totals; i < dim / 2; i += 4) {
            const float4 x = ld_shared_v4_f32(totals + (i - register_totals) * 128);
            st_shared_v4_f32(totals + (i - register_totals) * 128,
                             make_float4(x.x * factor[0], x.y * factor[0], x.z * factor[1], x.w * factor[1]));
        }
    }
};

// Sums, divides, writes.
__device__ __forceinline__ void finish_tile(const gen_attn_fwd_params &p, const block_state &b, const group_tile &w,
                                            group_state &g)
{
    float factor[2], lse[2];
    g.add_totals(b.totals());
    attn_end_rows(g.r, b.c->descale[w.slot], factor, lse);
    attn_stage_even_odd(p, b.c->published.results[w.slot], b.c->published.tile[w.slot].num_rows, threadIdx.x / 32 * 16,
                        g.o, factor, lse, b.staged());
    __syncwarp(); // one lane arrives for all
    release(b.c->published.empty[w.slot]);
}

// The scores of the block's part `which` to probabilities. `first`: of the tile's parts.
__device__ __forceinline__ void exponentiate(const block_state &b, group_state &g, int which, float scale, bool first)
{
    attn_softmax<attn_e4m3>(g.r, g.s[which], scale, g.packed[which], first, first,
                            [&](const float(&factor)[2]) { g.scale_output(factor, b.totals()); });
}

// A block that is neither the tile's first nor its last and that no mask cuts, in stage `at`; the kernel has it.
template <int at>
__device__ __forceinline__ void do_inner_block(const block_state &b, group_state &g, group_queries &q, float scale,
                                               unsigned phase);

// A round of the ring, from stage 0 on.
template <int at = 0>
__device__ __forceinline__ void do_round(const block_state &b, group_state &g, group_queries &q, float scale,
                                         unsigned phase)
{
    do_inner_block<at>(b, g, q, scale, phase);
    if constexpr (at + 1 < stages)
        do_round<at + 1>(b, g, q, scale, phase);
}

// Whole rounds, where there are any.
__device__ __forceinline__ void do_rounds(const gen_attn_fwd_params &p, const block_state &b, const group_tile &w,
                                          group_state &g, group_queries &q, unsigned &block, int &j)
{
    if (block % stages || cuts(p, w.kv_len, w.edge, j * keys, keys))
        return;
#pragma unroll 1
    for (; j - w.first >= stages; j -= stages, block += stages) {
        do_round(b, g, q, softmax_scale(p, w), block / stages & 1);
        g.end_blocks(stages, j - w.first - stages + 1, b.totals());
    }
}

} // namespace
