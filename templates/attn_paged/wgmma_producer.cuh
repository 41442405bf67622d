// The Hopper kernel of attn_paged for many rows: the warps that load keys and values. The template gives sizes and types.
#pragma once

#include "attn_paged/chunk_walk.cuh"
#include "attn_paged/rows.cuh"
#include "lib/ptx/cluster.cuh"
#include "lib/ptx/mbarrier.cuh"
#include "lib/ptx/tma.cuh"

namespace {

// The boxes of what the CTA loads of a block, a lane each, and their pages, which are looked up while the block before is
// at work.
struct own_boxes {
    static constexpr int own = S::keys / S::blocks, most = own / 8; // boxes have eight rows at least
    int first;                                                      // row of the lane's box in a block
    int count;
    int page, row;

    __device__ __forceinline__ explicit own_boxes(const gen_attn_paged_params &p)
    {
        first = static_cast<int>(blockIdx.x % S::blocks) * own + static_cast<int>(threadIdx.x % 32) * p.map_rows;
        count = own / p.map_rows;
        page = row = 0;
    }

    __device__ __forceinline__ void find(const gen_attn_paged_params &p, const paged_piece &piece, int j)
    {
        const int key = j * S::keys + first;
        page = piece.request;
        row = key;
        if (!piece.pages)
            return;
        page = p.num_pages; // behind it are zeros
        row = 0;
        if (key < piece.kv_len && static_cast<int>(threadIdx.x % 32) < count) {
            const int index = static_cast<int>(quotient_or_shift(key, p.page_mul, p.page_shift));
            row = key - index * p.page_size;
            page = ld_global(piece.pages + index);
        }
    }

    // One lane issues all boxes, each of its numbers handed to it: a lane that issues its own waits for the others'.
    template <int cells>
    __device__ __forceinline__ void load(const gen_attn_paged_params &p, const tensor_map *map, unsigned to,
                                         unsigned long long &full, int head, unsigned long long policy) const
    {
        const bool issues = elect_one();
        const unsigned barrier = shared_address(&full), block_first = blockIdx.x % S::blocks * own;
        const unsigned mine =
            min(static_cast<unsigned>(page), static_cast<unsigned>(p.num_pages)); // behind it are zeros
        if (issues)
            mbarrier_arrive_expect_tx(barrier, cells * S::kv_cell);
        unsigned at = to + block_first * 128;
#pragma unroll
        for (int i = 0; i < most; i++) {
            if (i >= count)
                break;
            const int its = __shfl_sync(0xffffffffu, static_cast<int>(mine), i),
                      its_row = __shfl_sync(0xffffffffu, row, i);
            if (issues) {
#pragma unroll
                for (int cell = 0; cell < cells; cell++) {
                    if constexpr (S::blocks == 1)
                        tensor_load_4d(at + cell * S::kv_cell, map, cell * 64, its_row, head, its, barrier, policy);
                    else
                        tensor_load_4d_multicast(at + cell * S::kv_cell, map, cell * 64, its_row, head, its, barrier,
                                                 (1 << S::blocks) - 1, policy);
                }
            }
            at += p.map_rows * 128;
        }
        __syncwarp();
    }
};

// The blocks of a piece: of keys, of values, or both in turn.
template <bool has_keys, bool has_values>
__device__ __forceinline__ void load_piece(const gen_attn_paged_params &p, const block_state &b,
                                           const paged_piece &piece, own_boxes &boxes, stage_ring &at)
{
    const tensor_map *const k_map = reinterpret_cast<const tensor_map *>(p.k_map);
    const tensor_map *const v_map = reinterpret_cast<const tensor_map *>(p.v_map);
    const unsigned long long often = policy_evict_last();
    const int end = piece.hi, head = piece.head;
    int j = piece.lo;
    if (j < end)
        boxes.find(p, piece, j);
#pragma unroll 1
    for (; j < end; j++) {
        const int stage = at.place();
        if constexpr (has_keys) {
            mbarrier_wait(shared_address(&b.c->k_empty[stage]), at.phase());
            boxes.template load<S::cells>(p, k_map, b.k(stage), b.c->k_full[stage], head, often);
        }
        if constexpr (has_values) {
            mbarrier_wait(shared_address(&b.c->v_empty[stage]), at.phase());
            boxes.template load<S::v_cells>(p, v_map, b.v(stage), b.c->v_full[stage], head, often);
        }
        at.next();
        if (j + 1 < end)
            boxes.find(p, piece, j + 1);
    }
}

// Publishes the pieces of the part, and loads their keys; where there is one loading warp values, too.
__device__ void produce(const gen_attn_paged_params &p, const block_state &b, int part)
{
    stage_ring at(1); // of what is free: the first round is
    work_ring work(1);
    chunk_walk<S> walk;
    walk.begin(b.c->share);
    own_boxes boxes(p);
#pragma unroll 1
    for (;;) {
        mbarrier_wait(shared_address(&b.c->work_empty[work.place()]), work.phase());
        paged_piece &piece = b.c->work[work.place()];
        if (threadIdx.x % 32 == 0)
            walk.step(p, b.c->share, part, piece);
        __syncwarp();
        if (threadIdx.x % 32 == 0)
            mbarrier_arrive(shared_address(&b.c->work_full[work.place()]));
        if (piece.rows == 0)
            break;
        work.next();
        load_piece<true, S::loaders == 1>(p, b, piece, boxes, at);
    }
}

// A second warp: values alone.
__device__ __forceinline__ void produce_values(const gen_attn_paged_params &p, const block_state &b)
{
    stage_ring at(1);
    work_ring work;
    own_boxes boxes(p);
#pragma unroll 1
    for (;;) {
        mbarrier_wait(shared_address(&b.c->work_full[work.place()]), work.phase());
        const paged_piece &piece = b.c->work[work.place()];
        if (piece.rows == 0)
            break;
        load_piece<false, true>(p, b, piece, boxes, at);
        __syncwarp();
        if (threadIdx.x % 32 == 0)
            mbarrier_arrive(shared_address(&b.c->work_empty[work.place()]));
        work.next();
    }
}

} // namespace
