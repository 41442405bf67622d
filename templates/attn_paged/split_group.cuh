// The Hopper kernel of attn_paged whose groups share rows: the consumer groups. The template gives sizes, types and products.
#pragma once

#include "attn_fwd/tiles.cuh"
#include "attn_paged/row_group.cuh"
#include "attn_paged/wgmma_tile.cuh"
#include "lib/prefetch.cuh"
#include "lib/ptx/cluster.cuh"
#include "lib/ptx/ldst.cuh"
#include "lib/ptx/mbarrier.cuh"
#include "lib/ptx/wgmma.cuh"

namespace {

static_assert(S::takers == 2, "one group gives what it has to the other");

// Whether there is a part for each unit, so that a part needs no other unit's length to know its own: then that is the part's.
__device__ __forceinline__ bool stands_alone(const gen_attn_paged_params &p, int part, paged_share &share)
{
    const int tiles = (p.q_len * p.group + S::tile_rows - 1) / S::tile_rows, units = tiles * p.num_kv_heads;
    if (!p.line.whole || p.q_indptr || p.line.num_parts != p.line.batch * units)
        return false;
    if (threadIdx.x == 0) {
        const int request = part / units, unit = part - request * units;
        share.cut[0] = {request, unit, 0, 0, 0};
        share.cut[1] = {request, unit + 1, 0, 0, 0};
    }
    __syncthreads();
    return true;
}

// What is read first is brought to L2 while the kernel before is still running; what that one changes is changed there, too.
__device__ __forceinline__ void prefetch_alone(const gen_attn_paged_params &p, int request)
{
    touch(p.q);
    touch(p.k_page);
    touch(p.num_kv_heads);
    touch(p.map_rows);
    if (threadIdx.x == 0 && p.kv_len)
        prefetch_global(p.kv_len + request);
    const int *const pages = p.page_indptr ? nullptr : p.page_indices;
    const int key = static_cast<int>(threadIdx.x) * S::keys;
    if (pages && threadIdx.x < 16 && key < p.max_kv_len && !p.left_window)
        prefetch_global(pages + request * p.page_table + quotient_or_shift(key, p.page_mul, p.page_shift));
}

// Blocks of a piece that are this CTA's: those that the cluster's CTAs take in turn, or all.
struct own_blocks {
    int first, count;

    __device__ __forceinline__ explicit own_blocks(const paged_piece &piece)
    {
        first = uniform(piece.lo) + (S::sharers > 1 ? static_cast<int>(blockIdx.x % S::sharers) : 0);
        count = max(uniform(piece.hi) - first + S::sharers - 1, 0) / S::sharers;
    }
};

// The group's first block of the piece: groups take all of the CTA's in turn. `step`: of the ring's, the piece's first.
__device__ __forceinline__ int first_own(unsigned step, int group)
{
    return static_cast<int>((step + group) % S::takers);
}

// The group's blocks of the piece. Loads of several blocks need not arrive in their order, and a group that is ahead of the
// other may come to a stage whose last load, the other's, is not there yet: so each load of a stage in turn has a barrier of
// its own group's.
__device__ __forceinline__ void attend(const gen_attn_paged_params &p, const block_state &b, const paged_piece &piece,
                                       const own_blocks &own, unsigned step, int group, unsigned q, group_state &g)
{
    const group_masks masks(p, piece, 0);
    const group_scale scale(p, piece);
    const float factor = p.cap_log2 != 0.f ? p.cap_log2 : scale.scale;
    const int kv_len = piece.kv_len, first = first_own(step, group);
#pragma unroll 1
    for (int i = first; i < own.count; i += S::takers) {
        const unsigned at = uniform(step + i), stage = at % S::stages, load = at % S::loads, phase = at / S::loads % 2;
        const int j = own.first + i * S::sharers;
        mbarrier_wait(shared_address(&b.c->k_full[load]), phase);
        wgmma_fence();
        start_scores(g.s, q, b.k(stage));
        wgmma_wait_group<0>();
        wgmma_fence_registers(g.s);
        release(b.c->k_empty[stage]);
        exponentiate(p, masks, scale, factor, j, i == first, g);
        mbarrier_wait(shared_address(&b.c->v_full[load]), phase);
        if (kv_len - j * S::keys < S::keys)
            clear_values(b.v(stage), max(kv_len - j * S::keys, 0), group);
        wgmma_fence();
        start_values(g.o, g.packed, b.v(stage), i == first);
        wgmma_wait_group<0>();
        wgmma_fence_registers(g.o);
        release(b.c->v_empty[stage]);
    }
}

// ---- what groups and CTAs have of a piece comes together ----

// A thread's outputs and log-sum-exps for the other one of the same rows and columns, in this CTA's shared memory.
__device__ __forceinline__ void put_rows(const block_state &b, const float (&o)[S::v_dim / 2], const float (&factor)[2],
                                         const float (&lse)[2])
{
    const unsigned thread = threadIdx.x % 128, row = thread / 32 * 16 + thread % 32 / 4;
#pragma unroll
    for (int i = 0; i < S::v_dim / 8; i++)
        st_shared_v4_f32(b.base + S::exchange_at + i * 2048 + thread * 16,
                         make_float4(o[4 * i] * factor[0], o[4 * i + 1] * factor[0], o[4 * i + 2] * factor[1],
                                     o[4 * i + 3] * factor[1]));
    __syncwarp(); // all lanes have read the log-sum-exps that were here
#pragma unroll
    for (int h = 0; h < 2; h++)
        if (thread % 4 == 0)
            b.c->lse[row + 8 * h] = lse[h];
    __syncwarp();
}

__device__ __forceinline__ float4 read_cluster(unsigned address)
{
    unsigned a, b, c, d;
    ld_shared_cluster_v4_u32(address, a, b, c, d);
    return make_float4(__uint_as_float(a), __uint_as_float(b), __uint_as_float(c), __uint_as_float(d));
}

// Adds what is in the shared memory of CTA `from`, this one below 0.
__device__ __forceinline__ void add_rows(const block_state &b, int from, float (&o)[S::v_dim / 2], float (&factor)[2],
                                         float (&lse)[2])
{
    const unsigned thread = threadIdx.x % 128, row = thread / 32 * 16 + thread % 32 / 4;
    unsigned values = b.base + S::exchange_at + thread * 16, sums = shared_address(b.c->lse) + row * 4;
    if (from >= 0) {
        values = cluster_address(values, from);
        sums = cluster_address(sums, from);
    }
    float weight[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const float other = from >= 0 ? ld_shared_cluster_f32(sums + 32 * h) : ld_shared_f32(sums + 32 * h);
        const float top = fmaxf(lse[h], other), mine = paged_weight(lse[h], top), its = paged_weight(other, top);
        const float sum = mine + its, inverse = sum == 0.f ? 0.f : 1.f / sum;
        factor[h] *= mine * inverse;
        weight[h] = its * inverse;
        lse[h] = sum == 0.f ? minus_infinity() : top + log2f(sum);
    }
    constexpr int batch = 8; // loads under way
#pragma unroll
    for (int begin = 0; begin < S::v_dim / 8; begin += batch) {
        float4 x[batch];
#pragma unroll
        for (int i = 0; i < batch; i++)
            x[i] =
                from >= 0 ? read_cluster(values + (begin + i) * 2048) : ld_shared_v4_f32(values + (begin + i) * 2048);
#pragma unroll
        for (int i = 0; i < batch; i++) {
            float *const to = o + 4 * (begin + i);
            to[0] = fmaf(to[0], factor[0], x[i].x * weight[0]);
            to[1] = fmaf(to[1], factor[0], x[i].y * weight[0]);
            to[2] = fmaf(to[2], factor[1], x[i].z * weight[1]);
            to[3] = fmaf(to[3], factor[1], x[i].w * weight[1]);
        }
    }
    factor[0] = factor[1] = 1.f;
}

// The piece's end. Group 1 gives to group 0, and that of each CTA to that of the first, which writes. What a CTA has
// given is taken when the first CTA's group 0 has written: its stores depend on all that it read. `turn`: the parity of the
// number of pieces before.
__device__ __forceinline__ void end_piece(const gen_attn_paged_params &p, const block_state &b,
                                          const paged_piece &piece, int part, int group, bool some, unsigned turn,
                                          group_state &g)
{
    const int rank = S::sharers > 1 ? static_cast<int>(blockIdx.x % S::sharers) : 0;
    float factor[2], lse[2];
    finish_rows(g, some, factor, lse);
    if (group == 1) {
        mbarrier_wait(shared_address(&b.c->taken), turn ^ 1);
        put_rows(b, g.o, factor, lse);
        release(b.c->given);
        return;
    }
    mbarrier_wait(shared_address(&b.c->given), turn);
    add_rows(b, -1, g.o, factor, lse);
    if (rank > 0) {
        put_rows(b, g.o, factor, lse);
        if (threadIdx.x % 32 == 0)
            mbarrier_arrive_release_cluster(cluster_address(shared_address(&b.c->joined), 0));
        return;
    }
    if constexpr (S::sharers > 1) {
        mbarrier_wait_acquire_cluster(shared_address(&b.c->joined), turn);
#pragma unroll 1
        for (int from = 1; from < S::sharers; from++)
            add_rows(b, from, g.o, factor, lse);
    }
    give(p, piece, 0, piece.slot, g.o, factor, lse);
    __syncwarp();
    if (threadIdx.x % 32 < S::sharers) {
        const unsigned taken = shared_address(&b.c->taken);
        if (threadIdx.x % 32 == 0)
            mbarrier_arrive(taken);
        else
            mbarrier_arrive_remote(cluster_address(taken, threadIdx.x % 32));
    }
    if (piece.slot >= 0)
        join(p, b, piece, part, 0, g.o);
}

__device__ void consume(const gen_attn_paged_params &p, const block_state &b, int group, int part)
{
    unsigned step = 0, turn = 0;
    work_ring work;
    group_state g;
#pragma unroll 1
    for (;;) {
        const unsigned place = work.place();
        mbarrier_wait(shared_address(&b.c->work_full[place]), work.phase());
        const paged_piece &piece = b.c->work[place];
        if (uniform(piece.rows) == 0)
            break;
        const own_blocks own(piece);
        mbarrier_wait(shared_address(&b.c->q_full[place]), work.phase());
        g.r.reset();
        const bool some = first_own(step, group) < own.count;
        if (some)
            attend(p, b, piece, own, step, group, b.q(uniform(place), 0), g);
        step += own.count;
        release(b.c->q_empty[place]);
        end_piece(p, b, piece, part, group, some, turn, g);
        turn ^= 1;
        release(b.c->work_empty[place]);
        work.next();
    }
}

} // namespace
