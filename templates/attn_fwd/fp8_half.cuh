// The Hopper kernel of attn_fwd for 8 bits of width 64: values converted to fp16, and a consumer warpgroup's probabilities as fp16, whose
// sums the tensor cores make. The template gives shapes and types.
#pragma once

#include "attn_fwd/fp8_producer.cuh"
#include "attn_fwd/fp8_group.cuh"
#include "lib/fp8.cuh"
#include "lib/half.cuh"
#include "lib/ptx/ldst.cuh"
#include "lib/ptx/math.cuh"
#include "lib/ptx/mbarrier.cuh"

namespace {

// ---- the warps that prepare values ----

// A row of 64 values of 8 bits becomes a row of 64 of fp16, both swizzled. A lane takes sixteen; of eight lanes neither what is read nor what is
// written lies in the same bank.
template <bool clears>
__device__ __forceinline__ void prepare_block(const block_state &b, int raw_stage, int ready_stage, int valid, int warp)
{
    static_assert(dim == 64 && keys % 8 == 0, "eight rows a warp");
    const unsigned raw = b.v(raw_stage), to = b.ready(ready_stage);
    const int lane = threadIdx.x % 32, chunk = lane % 4;
#pragma unroll(clears ? 1 : 2)
    for (int first = warp * 8; first < keys; first += preparers * 8) {
        const int row = first + lane / 4;
        const float4 x = ld_shared_v4_f32(raw + row * 64 + ((chunk ^ row / 2 % 4) << 4));
        unsigned from[4] = {__float_as_uint(x.x), __float_as_uint(x.y), __float_as_uint(x.z), __float_as_uint(x.w)},
                 y[8];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (clears) // keys of the next request may not even be multiplied by zero
                from[i] = row < valid ? from[i] : 0;
            fp8_to_fp16<element>(from[i], y[2 * i], y[2 * i + 1]);
        }
        const unsigned target = to + row * 128 + ((2 * chunk ^ row % 8) << 4);
        st_shared_v4_u32(target, y[0], y[1], y[2], y[3]);
        st_shared_v4_u32(target ^ 16, y[4], y[5], y[6], y[7]);
    }
}

// ---- consumer warpgroups ----

// 1 where none of the group's rows sees the last of the tile's blocks; one is left.
__device__ __forceinline__ int left_out(const gen_attn_fwd_params &p, const block_state &b, const attn_place &published,
                                        int group)
{
    const attn_tile &t = b.c->published.tile[published.place()];
    return leaves_out && t.last > t.first + 1 && (t.last - 1) * keys >= edge_of(p, t, group) + 63;
}

// A stage that the group has no use for is released as soon as it is full, for the ring goes round for all groups alike.
__device__ __forceinline__ void leave_out(unsigned long long (&full)[stages], unsigned long long (&empty)[stages],
                                          unsigned block, int count)
{
    if (!leaves_out || !count)
        return;
    mbarrier_wait(shared_address(&full[block % stages]), block / stages & 1);
    __syncwarp(); // one lane arrives for all
    release(empty[block % stages]);
}

struct group_state {
    float s[parts][part / 2];         // scores of the block at work
    float o[columns / 2];             // the output's sums, then those of a row's probabilities
    unsigned packed[parts][part / 4]; // probabilities
    attn_rows_state r;                // of its sums there is no use

    __device__ __forceinline__ void reset() { r.reset(); }
};

// The output, whose products are complete, becomes relative to M, which moved since: exponentiate() left the factors in shared memory, for there are
// no registers to spare.
__device__ __forceinline__ void follow_reference(const block_state &b, group_state &g)
{
    float factor[2];
    const float2 both = ld_shared_v2_f32(b.staged() + threadIdx.x % 32 * 8);
    factor[0] = both.x, factor[1] = both.y;
    attn_scale_rows(g.o, factor);
}

// The part's scores to probabilities, while products are under way that the output takes part in, as attn_softmax() of tiles.cuh does it, but that no sum is made and the bits say when M has to move. fp16
// holds 2^(s - M - 4) to 12 bits down to 2^-10 of the reference and to 2^-25 absolutely; bit 14 is set from 2 on, at 32 times the reference, and in
// what is infinite or no number.
// Returns whether M moved, and the output has to follow.
__device__ __forceinline__ bool exponentiate(const block_state &b, group_state &g, int which, float scale, bool first)
{
    constexpr float offset = -4.f;
    float neg_max[2] = {g.r.neg_max[0], g.r.neg_max[1]};
    unsigned beyond = 0x40004000u;
    bool moves = first;
#pragma unroll 1
    for (;;) {
        if (moves) {
            float factor[2];
            attn_move_reference(g.r, g.s[which], scale, offset, factor);
            st_shared_v2_f32(b.staged() + threadIdx.x % 32 * 8, factor[0], factor[1]);
#pragma unroll
            for (int h = 0; h < 2; h++)
                neg_max[h] =
                    g.r.neg_max[h] == -minus_infinity() ? 0.f : g.r.neg_max[h]; // every score is minus infinity
            beyond = 0;
        }
        unsigned bits = 0;
#pragma unroll
        for (int i = 0; i < part / 2; i += 2) {
            const int h = i / 2 % 2;
            g.packed[which][i / 2] = pack2<fp16>(exp2_fast(fmaf(g.s[which][i], scale, neg_max[h])),
                                                 exp2_fast(fmaf(g.s[which][i + 1], scale, neg_max[h])));
            bits |= g.packed[which][i / 2];
        }
        if (!__any_sync(0xffffffffu, bits & beyond))
            return moves;
        moves = true;
    }
}

// Divides, writes.
__device__ __forceinline__ void finish_tile(const gen_attn_fwd_params &p, const block_state &b, const group_tile &w,
                                            const group_state &g)
{
    float factor[2], lse[2], o[dim / 2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const float sum = g.o[dim / 2 + 2 * h];
        const bool any = sum != 0.f; // NaN, too
        factor[h] = any ? b.c->descale[w.slot] * rcp_fast(sum) : 0.f;
        lse[h] = any ? (log2_fast(sum) - g.r.neg_max[h]) * ln_2 : minus_infinity();
    }
#pragma unroll
    for (int i = 0; i < dim / 2; i++)
        o[i] = g.o[i];
    if (p.o_fp16)
        attn_put_rows<fp16, attn_stage_apart<dim>>(o, factor, b.staged());
    else
        attn_put_rows<bf16, attn_stage_apart<dim>>(o, factor, b.staged());
    attn_sent<dim> sent;
    sent.take<attn_stage_apart<dim>>(b.staged());
    sent.send(p, b.c->published.results[w.slot], b.c->published.tile[w.slot].num_rows, threadIdx.x / 32 * 16, lse);
    __syncwarp(); // one lane arrives for all
    release(b.c->published.empty[w.slot]);
}

} // namespace
