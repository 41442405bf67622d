// The Hopper kernel of attn_paged: the consumer groups. The template gives sizes, types and products.
#pragma once

#include "attn_fwd/tiles.cuh"
#include "attn_paged/arrive.cuh"
#include "attn_paged/rows.cuh"
#include "lib/ptx/ldst_cg.cuh"
#include "lib/ptx/mbarrier.cuh"
#include "lib/ptx/sync.cuh"
#include "lib/ptx/wgmma.cuh"
#include "lib/transpose.cuh"

namespace {

// All lanes are done with what the barrier guards.
__device__ __forceinline__ void release(unsigned long long &barrier)
{
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        mbarrier_arrive(shared_address(&barrier));
}

struct group_state {
    float s[S::keys / 2]; // scores of the block at work
    float o[S::dim / 2];
    unsigned packed[S::keys / 4]; // probabilities
    attn_rows_state r;
};

// What decides which keys count for the thread's two rows and for all of the group's.
struct group_masks {
    int from[2], end[2], whole_from, whole_end;

    __device__ __forceinline__ group_masks(const gen_attn_paged_params &p, const paged_piece &piece, int group)
    {
        const int row = group * 64 + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
        const int first = own_key(p, piece, group * 64), last = own_key(p, piece, group * 64 + 63);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int key = own_key(p, piece, row + 8 * h);
            end[h] = p.causal ? min(piece.kv_len, key + 1) : piece.kv_len;
            from[h] = p.left_window ? key - p.left_window + 1 : 0;
        }
        whole_end = p.causal ? min(piece.kv_len, first + 1) : piece.kv_len;
        whole_from = p.left_window ? last - p.left_window + 1 : 0;
    }

    __device__ __forceinline__ static int own_key(const gen_attn_paged_params &p, const paged_piece &piece, int row)
    {
        return piece.kv_len - piece.tokens + static_cast<int>(quotient(piece.row + row, p.group_mul, p.group_shift));
    }
};

// What scores are multiplied by, above 0 as the softmax wants it; a factor below 0 changes their signs before.
struct group_scale {
    float scale;
    bool negative;

    __device__ __forceinline__ group_scale(const gen_attn_paged_params &p, const paged_piece &piece)
    {
        const float x = paged_scale_of(p, piece);
        negative = x < 0.f;
        scale = fmaxf(fabsf(x), 1e-30f);
    }
};

// Scores of block `j` as they count.
__device__ __forceinline__ void mask_scores(const gen_attn_paged_params &p, const group_masks &m,
                                            const group_scale &scale, float (&s)[S::keys / 2], int j)
{
    if (scale.negative)
#pragma unroll
        for (int i = 0; i < S::keys / 2; i++)
            s[i] = -s[i];
    if (p.cap_log2 != 0.f)
#pragma unroll
        for (int i = 0; i < S::keys / 2; i++)
            s[i] = fmaf(-2.f, rcp_fast(1.f + exp2_fast(s[i] * scale.scale)), 1.f);
    const int key = j * S::keys;
    if (key < m.whole_from || key + S::keys > m.whole_end)
        attn_mask_outside<mask_any>(s, key, m.from, m.end);
}

// Clears values beyond the request's end, which may not even be multiplied by zero. Every group clears them for itself.
__device__ __forceinline__ void clear_values(unsigned v, int valid, int group)
{
    for (int i = threadIdx.x % 128; i < (S::keys - valid) * (S::dim / 8); i += 128) {
        const int row = valid + i / (S::dim / 8), chunk = i % (S::dim / 8);
        st_shared_v4_f32(v + chunk / 8 * S::kv_cell + row * 128 + chunk % 8 * 16, make_float4(0.f, 0.f, 0.f, 0.f));
    }
    fence_proxy_async();
    barrier_sync(clear_barrier + group, 128);
}

// ---- the end of a piece ----

// Gives what rows have, times a factor, to the outputs or, where slot >= 0, to a slot. `lse`: to base 2.
__device__ __forceinline__ void give(const gen_attn_paged_params &p, const paged_piece &piece, int group, int slot,
                                     const float (&o)[S::dim / 2], float (&factor)[2], const float (&lse)[2])
{
    const int quarter = threadIdx.x % 4, first = group * 64 + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
    if (slot >= 0) {
        float *const to =
            p.partial + (static_cast<long long>(slot) * S::groups + group) * (64 * S::dim) + threadIdx.x % 128 * 4;
#pragma unroll
        for (int i = 0; i < S::dim / 8; i++)
            st_global_v4_f32<false>(to + i * 512, make_float4(o[4 * i] * factor[0], o[4 * i + 1] * factor[0],
                                                              o[4 * i + 2] * factor[1], o[4 * i + 3] * factor[1]));
#pragma unroll
        for (int h = 0; h < 2; h++)
            if (quarter == 0)
                p.partial_lse[static_cast<long long>(slot) * S::tile_rows + first + 8 * h] = lse[h];
        return;
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int row = first + 8 * h;
        const bool mine = row < piece.rows;
        if (mine)
            factor[h] *= paged_finish_row(p, piece, row, lse[h], quarter == 0);
        const paged_row at(p, piece, mine ? row : 0);
        unsigned short *const to =
            static_cast<unsigned short *>(p.o) + at.token * p.o_token + at.head * p.o_head + quarter * 8;
#pragma unroll
        for (int i = 0; i < S::dim / 2; i += 16) {
            unsigned x[4];
#pragma unroll
            for (int k = 0; k < 4; k++)
                x[k] = pack2<element>(o[i + 4 * k + 2 * h] * factor[h], o[i + 4 * k + 2 * h + 1] * factor[h]);
            transpose_quad(x);
            if (mine)
                st_global_v4_u32(to + i * 2, x);
        }
    }
}

// Adds up `count` partial results (arrive.cuh).
__device__ __forceinline__ void merge(const gen_attn_paged_params &p, const paged_piece &piece,
                                      const paged_pieces &pieces, int group, int first, int step, int count, int slot,
                                      float (&o)[S::dim / 2])
{
    const int row = group * 64 + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
    float top[2], sum[2] = {0.f, 0.f}, lse[2], factor[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        top[h] = minus_infinity();
        for (int k = 0; k < count; k++)
            top[h] = fmaxf(top[h], ld_global_cg(p.partial_lse +
                                                static_cast<long long>(pieces.slot(first + k * step)) * S::tile_rows +
                                                row + 8 * h));
    }
#pragma unroll
    for (int i = 0; i < S::dim / 2; i++)
        o[i] = 0.f;
#pragma unroll 1
    for (int k = 0; k < count; k++) {
        const long long from = pieces.slot(first + k * step);
        float weight[2];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            weight[h] = paged_weight(ld_global_cg(p.partial_lse + from * S::tile_rows + row + 8 * h), top[h]);
            sum[h] += weight[h];
        }
        constexpr int batch = 8; // loads under way
#pragma unroll
        for (int begin = 0; begin < S::dim / 8; begin += batch) {
            float4 x[batch];
#pragma unroll
            for (int i = 0; i < batch; i++)
                x[i] = ld_global_cg_v4_f32(p.partial + (from * S::groups + group) * (64 * S::dim) + (begin + i) * 512 +
                                           threadIdx.x % 128 * 4);
#pragma unroll
            for (int i = 0; i < batch; i++) {
                float *const to = o + 4 * (begin + i);
                to[0] = fmaf(weight[0], x[i].x, to[0]);
                to[1] = fmaf(weight[0], x[i].y, to[1]);
                to[2] = fmaf(weight[1], x[i].z, to[2]);
                to[3] = fmaf(weight[1], x[i].w, to[3]);
            }
        }
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        lse[h] = sum[h] == 0.f ? minus_infinity() : top[h] + log2f(sum[h]);
        factor[h] = sum[h] == 0.f ? 0.f : 1.f / sum[h];
    }
    __syncwarp(); // of a group the sum takes the place of its first piece
    give(p, piece, group, slot, o, factor, lse);
}

// The piece's partial results are in its slot.
__device__ __forceinline__ void join(const gen_attn_paged_params &p, const block_state &b, const paged_piece &piece,
                                     int part, int group, float (&o)[S::dim / 2])
{
    const paged_pieces pieces = b.c->pieces[piece.slot == 2 * part ? 0 : 1];
    const auto arrives = [&](unsigned long long *tickets, int count) {
        return paged_arrives_last(tickets, count, threadIdx.x == 0, b.c->last,
                                  [] { barrier_sync(consumers_barrier, 128 * S::groups); });
    };
    paged_add_up(p, part, pieces, arrives, [&](int first, int step, int count, int slot) {
        if (group * 64 < piece.rows)
            merge(p, piece, pieces, group, first, step, count, slot, o);
    });
}

// ---- blocks of keys ----

// A piece of which the group has no rows.
__device__ __forceinline__ void pass_piece(const block_state &b, const paged_piece &piece, stage_ring &at)
{
#pragma unroll 1
    for (int j = piece.lo; j < piece.hi; j++) {
        mbarrier_wait(shared_address(&b.c->k_full[at.place()]), at.phase());
        release(b.c->k_empty[at.place()]);
        mbarrier_wait(shared_address(&b.c->v_full[at.place()]), at.phase());
        release(b.c->v_empty[at.place()]);
        at.next();
    }
}

// Turns finished scores of block `j` into probabilities. `first`: of the piece's blocks.
__device__ __forceinline__ void exponentiate(const gen_attn_paged_params &p, const group_masks &masks,
                                             const group_scale &scale, float factor, int j, bool first, group_state &g)
{
    mask_scores(p, masks, scale, g.s, j);
    attn_softmax<attn_16_bits<element>>(g.r, g.s, factor, g.packed, first, attn_lacks_reference(g.r),
                                        [&g](const float(&x)[2]) { attn_scale_rows(g.o, x); });
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

// All blocks of the piece.
__device__ __forceinline__ void attend(const gen_attn_paged_params &p, const block_state &b, const paged_piece &piece,
                                       int group, unsigned q, stage_ring &at, group_state &g)
{
    const group_masks masks(p, piece, group);
    const group_scale scale(p, piece);
    const float factor = p.cap_log2 != 0.f ? p.cap_log2 : scale.scale;
    const int end = uniform(piece.hi), kv_len = piece.kv_len;
    int j = uniform(piece.lo);
    mbarrier_wait(shared_address(&b.c->k_full[at.place()]), at.phase());
    wgmma_fence();
    start_scores(g.s, q, b.k(uniform(at.place())));
    wgmma_wait_group<0>();
    wgmma_fence_registers(g.s);
    release(b.c->k_empty[at.place()]);
    bool first = true;
    stage_ring now = at;
#pragma unroll 1
    for (; j + 1 < end; j++) {
        at.next();
        // Tested before there is need, so that nothing waits for the answer.
        const bool k_arrived = mbarrier_test_wait(shared_address(&b.c->k_full[at.place()]), at.phase());
        const bool v_arrived = mbarrier_test_wait(shared_address(&b.c->v_full[now.place()]), now.phase());
        exponentiate(p, masks, scale, factor, j, first, g);
        await_values(b, now, v_arrived, kv_len - j * S::keys, group);
        if (!k_arrived)
            mbarrier_wait(shared_address(&b.c->k_full[at.place()]), at.phase());
        const unsigned stages = uniform(now.place() | at.place() << 8);
        wgmma_fence();
        start_values(g.o, g.packed, b.v(stages & 255), first);
        start_scores(g.s, q, b.k(stages >> 8));
        wgmma_wait_group<0>();
        wgmma_fence_registers(g.s);
        wgmma_fence_registers(g.o);
        release(b.c->k_empty[at.place()]);
        release(b.c->v_empty[now.place()]);
        first = false;
        now = at;
    }
    at.next();
    exponentiate(p, masks, scale, factor, j, first, g);
    await_values(b, now, false, kv_len - j * S::keys, group);
    wgmma_fence();
    start_values(g.o, g.packed, b.v(uniform(now.place())), first);
    wgmma_wait_group<0>();
    wgmma_fence_registers(g.o);
    release(b.c->v_empty[now.place()]);
}

__device__ void consume(const gen_attn_paged_params &p, const block_state &b, int group, int part)
{
    stage_ring at;
    work_ring work;
    group_state g;
#pragma unroll 1
    for (;;) {
        const unsigned place = work.place();
        mbarrier_wait(shared_address(&b.c->work_full[place]), work.phase());
        const paged_piece &piece = b.c->work[place];
        const int rows = uniform(piece.rows);
        if (rows == 0)
            break;
        const bool mine = group * 64 < rows, some = uniform(piece.lo) < uniform(piece.hi);
        mbarrier_wait(shared_address(&b.c->q_full[place]), work.phase());
        g.r.reset();
        if (mine && some)
            attend(p, b, piece, group, b.q(uniform(place), group), at, g);
        else
            pass_piece(b, piece, at);
        release(b.c->q_empty[place]);
        if (mine) {
            float factor[2], lse[2];
            if (!some)
#pragma unroll
                for (int i = 0; i < S::dim / 2; i++)
                    g.o[i] = 0.f;
#pragma unroll
            for (int h = 0; h < 2; h++) {
                float sum = g.r.sum[h] + __shfl_xor_sync(0xffffffffu, g.r.sum[h], 1);
                sum += __shfl_xor_sync(0xffffffffu, sum, 2);
                factor[h] = sum != 0.f ? 1.f / sum : 0.f; // NaN, too
                lse[h] = sum != 0.f ? log2f(sum) - g.r.neg_max[h] : minus_infinity();
            }
            give(p, piece, group, piece.slot, g.o, factor, lse);
        }
        if (piece.slot >= 0)
            join(p, b, piece, part, group, g.o);
        release(b.c->work_empty[place]);
        work.next();
    }
}

} // namespace
