// The Hopper kernel of attn_fwd for 8 bits of width 128: a consumer warpgroup's sums, with totals in fp32. The template gives shapes and types.
#pragma once

#include "attn_fwd/fp8_group.cuh"
#include "lib/ptx/ldst.cuh"

namespace {

// The output is the sum of two accumulators, for the tensor cores add 8-bit products to an accumulator with 13 bits below its exponent and
// truncate: o is theirs and holds the sums of a stretch of keys, usually 384; `total` has those of all stretches before, added in fp32. Where all
// values are the same the truncated sums of 512 keys are 0.2 % too small, of 768 keys 0.4 %, of 4,096 keys 6 %.
//
// Each stretch has an M of its own, the maximum of its first block: e4m3 has four significant bits, so it matters that the greatest
// probabilities are a power of two, or little below. What is promoted is multiplied by the ratio of the two references.

struct group_state {
    float s[keys / 2]; // scores of the block at work
    float o[dim / 2];  // sums of the last `blocks` blocks; of no meaning where these are none
    float total
        [register_totals]; // of all blocks before, if any were promoted; those of o[register_totals] and behind are in shared memory
    unsigned packed[keys / 8]; // probabilities
    attn_rows_state r;         // of the stretch
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

    // What a stretch's sums are multiplied by as they are added to the totals; the sums of its probabilities are. `totals`, here and below: the
    // shared address of the thread's first four totals there; four others are 512 bytes further, and behind them `all`.
    __device__ __forceinline__ attn_rows_state end_sums(const attn_rows_state &r, float (&factor)[2], unsigned totals)
    {
        constexpr float most = 60.f; // a power of two that sums have room for
        const unsigned at = totals + (dim / 2 - register_totals) * 128;
        attn_rows_state all = r;
        bool beyond = false;
#pragma unroll
        for (int h = 0; h < 2; h++)
            factor[h] = 1.f;
        if (promoted) {
            const float4 x = ld_shared_v4_f32(at);
            all.neg_max[0] = x.x, all.neg_max[1] = x.y, all.sum[0] = x.z, all.sum[1] = x.w;
#pragma unroll
            for (int h = 0; h < 2; h++) {
                if (all.neg_max[h] == -minus_infinity()) // no key was seen
                    all.neg_max[h] = r.neg_max[h];
                const float rise = all.neg_max[h] - r.neg_max[h]; // no number: nor was one now, and all is 0
                factor[h] = rise == rise ? exp2_fast(rise) : 0.f;
                beyond |= rise > most;
            }
            if (__any_sync(0xffffffffu, beyond)) { // the totals become relative to the new M
                float down[2];
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    const bool rises = factor[h] > 1.f;
                    down[h] = rises ? exp2_fast(r.neg_max[h] - all.neg_max[h]) : 1.f;
                    all.sum[h] *= down[h];
                    all.neg_max[h] = rises ? r.neg_max[h] : all.neg_max[h];
                    factor[h] = rises ? 1.f : factor[h];
                }
                scale_totals(down, totals);
            }
#pragma unroll
            for (int h = 0; h < 2; h++)
                all.sum[h] = fmaf(r.sum[h], factor[h], all.sum[h]);
        }
        return all;
    }

    __device__ __forceinline__ void keep(const attn_rows_state &all, unsigned totals)
    {
        st_shared_v4_f32(totals + (dim / 2 - register_totals) * 128,
                         make_float4(all.neg_max[0], all.neg_max[1], all.sum[0], all.sum[1]));
    }

    // o becomes the sum of all blocks, and r is of all.
    __device__ __forceinline__ void add_totals(unsigned totals)
    {
        if (!promoted)
            return;
        float factor[2];
        r = end_sums(r, factor, totals);
#pragma unroll
        for (int i = 0; i < register_totals; i++)
            o[i] = fmaf(o[i], factor[i / 2 % 2], total[i]);
#pragma unroll
        for (int i = register_totals; i < dim / 2; i += 4) {
            const float4 x = ld_shared_v4_f32(totals + (i - register_totals) * 128);
            o[i] = fmaf(o[i], factor[0], x.x), o[i + 1] = fmaf(o[i + 1], factor[0], x.y);
            o[i + 2] = fmaf(o[i + 2], factor[1], x.z), o[i + 3] = fmaf(o[i + 3], factor[1], x.w);
        }
    }

    __device__ __forceinline__ void clear_totals(unsigned totals)
    {
        if (promoted) // not at the tile's begin: a short tile needs none
            return;
#pragma unroll
        for (int i = 0; i < register_totals; i++)
            total[i] = 0.f;
#pragma unroll
        for (int i = register_totals; i < dim / 2; i += 4)
            st_shared_v4_f32(totals + (i - register_totals) * 128, make_float4(0.f, 0.f, 0.f, 0.f));
        promoted = true;
    }

    // The totals become the sums of all blocks.
    __device__ __forceinline__ void promote(const attn_rows_state &before, unsigned totals)
    {
        float factor[2];
        keep(end_sums(before, factor, totals), totals);
        clear_totals(totals);
#pragma unroll
        for (int i = 0; i < register_totals; i++)
            total[i] = fmaf(o[i], factor[i / 2 % 2], total[i]);
#pragma unroll
        for (int i = register_totals; i < dim / 2; i += 4) {
            const float4 x = ld_shared_v4_f32(totals + (i - register_totals) * 128);
            st_shared_v4_f32(totals + (i - register_totals) * 128,
                             make_float4(fmaf(o[i], factor[0], x.x), fmaf(o[i + 1], factor[0], x.y),
                                         fmaf(o[i + 2], factor[1], x.z), fmaf(o[i + 3], factor[1], x.w)));
        }
    }

    __device__ __forceinline__ void scale_totals(const float (&factor)[2], unsigned totals)
    {
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

// M becomes the greatest of the block's scores, whatever it was.
__device__ __forceinline__ void find_reference(group_state &g, float scale)
{
    int most[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        // As integers, three at once: so floats are ordered, but for negative ones among themselves.
        most[h] = __float_as_int(g.s[2 * h]);
#pragma unroll
        for (int i = 2 * h; i < keys / 2; i += 4)
            most[h] = max(max(most[h], __float_as_int(g.s[i])), __float_as_int(g.s[i + 1]));
    }
    float x[2] = {__int_as_float(most[0]), __int_as_float(most[1])};
    if (__any_sync(0xffffffffu, (most[0] | most[1]) < 0)) {
        x[0] = x[1] = minus_infinity();
#pragma unroll
        for (int i = 0; i < keys / 2; i++) {
            float y = g.s[i];
            opaque(y); // not ahead of the branch
            x[i / 2 % 2] = fmaxf(x[i / 2 % 2], y);
        }
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        x[h] = fmaxf(x[h], __shfl_xor_sync(0xffffffffu, x[h], 1));
        x[h] = fmaxf(x[h], __shfl_xor_sync(0xffffffffu, x[h], 2));
        g.r.neg_max[h] = fmaf(x[h], -scale, attn_e4m3::offset);
    }
}

__device__ __forceinline__ float usable(float neg_max)
{
    return neg_max == -minus_infinity() ? 0.f : neg_max; // every score is minus infinity
}

// Scores [from, to) of the block to probabilities, in their place, and their sums.
template <int from, int to>
__device__ __forceinline__ void exponentiate_part(group_state &g, float scale, const float (&neg_max)[2],
                                                  float (&sum)[2])
{
#pragma unroll
    for (int i = from; i < to; i++) {
        const int h = i / 2 % 2;
        g.s[i] = exp2_fast(fmaf(g.s[i], scale, neg_max[h]));
        sum[h] = i < 4 && i % 2 == 0 ? g.s[i] : sum[h] + g.s[i];
    }
}

template <int from, int to> __device__ __forceinline__ void pack_part(group_state &g)
{
#pragma unroll
    for (int i = from; i < to; i += 8) {
#pragma unroll
        for (int h = 0; h < 4; h += 2)
            g.packed[i / 4 + h / 2] = pack4_e4m3(g.s[i + h], g.s[i + h + 1], g.s[i + h + 4], g.s[i + h + 5]);
    }
}

// The block's scores to probabilities. The product before is under way until a half of them is computed, and reads `packed`; with `starts` it is the
// stretch's last one. `q`, `k`, masked(): as repeat_reference() takes them.
template <class F, class G>
__device__ __forceinline__ void exponentiate(const block_state &b, group_state &g, float scale, bool starts, unsigned q,
                                             unsigned k, F landed, G masked)
{
    constexpr int all = keys / 2;
    float sum[2];
    const bool promotes = starts && g.has_sums();
    const attn_rows_state before = g.r;
    if (starts) {
        find_reference(g, scale);
        g.r.sum[0] = g.r.sum[1] = 0.f;
        g.blocks = 0;
    }
    g.blocks++;
    // Where a row had no M so far, its probabilities are infinite or NaN, and the sum shows it.
    float neg_max[2] = {g.r.neg_max[0], g.r.neg_max[1]};
    if (starts)
        neg_max[0] = usable(neg_max[0]), neg_max[1] = usable(neg_max[1]);
    exponentiate_part<0, all / 2>(g, scale, neg_max, sum);
    wgmma_wait_group<0>();
    wgmma_fence_registers(g.o);
    landed();
    if (promotes)
        g.promote(before, b.totals());
    pack_part<0, all / 2>(g);
    exponentiate_part<all / 2, all>(g, scale, neg_max, sum);
    pack_part<all / 2, all>(g);
    const unsigned most = __float_as_uint(attn_e4m3::most_sum);
    if (__any_sync(0xffffffffu, __float_as_uint(sum[0]) > most || __float_as_uint(sum[1]) > most)) {
        float down[2];
        repeat_reference(g.r, q, k, scale, attn_e4m3::offset, down, masked);
        attn_scale_rows(g.o, down);
        neg_max[0] = usable(g.r.neg_max[0]), neg_max[1] = usable(g.r.neg_max[1]);
        sum[0] = sum[1] = 0.f;
#pragma unroll
        for (int i = 0; i < keys / 16; i++) {
            float x[8];
            repeat_scores(x, q, k + i * 16 * pitch);
            masked(x, i * 16);
#pragma unroll
            for (int n = 0; n < 8; n++) {
                x[n] = exp2_fast(fmaf(x[n], scale, neg_max[n / 2 % 2]));
                sum[n / 2 % 2] += x[n];
            }
            g.packed[2 * i] = pack4_e4m3(x[0], x[1], x[4], x[5]);
            g.packed[2 * i + 1] = pack4_e4m3(x[2], x[3], x[6], x[7]);
        }
    }
    g.r.sum[0] += sum[0];
    g.r.sum[1] += sum[1];
}

} // namespace
