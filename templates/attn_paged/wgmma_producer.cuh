// The Hopper kernel of attn_paged: the warps that load. The template gives sizes and types.
#pragma once

#include "attn_paged/rows.cuh"
#include "lib/ptx/cluster.cuh"
#include "lib/ptx/mbarrier.cuh"
#include "lib/ptx/tma.cuh"

namespace {

// Block `j` of keys or of values: a lane a box, of the rows that one page has of it. A box of a page that does not exist, or
// behind the request's end, is aimed behind the last page: zeros.
template <int cells>
__device__ __forceinline__ void load_block(const gen_attn_paged_params &p, const tensor_map *map, unsigned to,
                                           unsigned long long &full, const paged_piece &piece, int j,
                                           unsigned long long policy)
{
    const int lane = threadIdx.x % 32, boxes = S::keys / p.map_rows;
    if (lane == 0)
        mbarrier_arrive_expect_tx(shared_address(&full), cells * S::kv_cell);
    __syncwarp();
#pragma unroll 1
    for (int i = lane; i < boxes * cells; i += 32) {
        const int box = i / cells, cell = i % cells, key = j * S::keys + box * p.map_rows;
        int page = p.num_pages, row = key;
        if (!piece.pages) {
            page = piece.request;
        } else if (key < piece.kv_len) {
            const int index = static_cast<int>(quotient_or_shift(key, p.page_mul, p.page_shift));
            row = key - index * p.page_size;
            page = ld_global(piece.pages + index);
            page = static_cast<unsigned>(page) < static_cast<unsigned>(p.num_pages) ? page : p.num_pages;
        } else {
            row = 0;
        }
        tensor_load_4d(to + cell * S::kv_cell + box * p.map_rows * 128, map, cell * 64, row, piece.head, page,
                       shared_address(&full), policy);
    }
    __syncwarp();
}

// A lane's box of what the CTA loads of a block, and its page, which is looked up while the block before is at work.
struct lane_box {
    static constexpr int own = S::keys / S::blocks, most = own / 8; // boxes have eight rows at least
    int box, cell, first;                                           // first: its row in a block
    int page, row;
    bool is;

    __device__ __forceinline__ explicit lane_box(const gen_attn_paged_params &p)
    {
        box = threadIdx.x % most;
        cell = threadIdx.x % 32 / most;
        first = static_cast<int>(blockIdx.x % S::blocks) * own + box * p.map_rows;
        is = box < own / p.map_rows;
        page = row = 0;
    }

    __device__ __forceinline__ void find(const gen_attn_paged_params &p, const paged_piece &piece, int j)
    {
        const int key = j * S::keys + first;
        page = piece.request;
        row = key;
        if (!piece.pages || !is)
            return;
        page = p.num_pages;
        row = 0;
        if (key < piece.kv_len) {
            const int index = static_cast<int>(quotient_or_shift(key, p.page_mul, p.page_shift));
            row = key - index * p.page_size;
            page = ld_global(piece.pages + index);
        }
    }

    template <int cells>
    __device__ __forceinline__ void load(const gen_attn_paged_params &p, const tensor_map *map, unsigned to,
                                         unsigned long long &full, int head, unsigned long long policy) const
    {
        static_assert(cells * most <= 32, "a lane a box");
        if (threadIdx.x % 32 == 0)
            mbarrier_arrive_expect_tx(shared_address(&full), cells * S::kv_cell);
        __syncwarp();
        const unsigned its =
            min(static_cast<unsigned>(page), static_cast<unsigned>(p.num_pages)); // behind it are zeros
        if (S::blocks == 1 && is && cell < cells)
            tensor_load_4d(to + cell * S::kv_cell + first * 128, map, cell * 64, row, head, its, shared_address(&full),
                           policy);
        if (S::blocks > 1 && is && cell < cells)
            tensor_load_4d_multicast(
                to + cell * S::kv_cell + first * 128, map, cell * 64, row, head,
                min(static_cast<unsigned>(page), static_cast<unsigned>(p.num_pages)), // behind it are zeros
                shared_address(&full), (1 << S::blocks) - 1, policy);
        __syncwarp();
    }
};

// Publishes the pieces of the part, and loads their keys and values.
__device__ void produce(const gen_attn_paged_params &p, const block_state &b, int part)
{
    const tensor_map *const k_map = reinterpret_cast<const tensor_map *>(p.k_map);
    const tensor_map *const v_map = reinterpret_cast<const tensor_map *>(p.v_map);
    const unsigned long long often = policy_evict_last();
    stage_ring at(1); // of what is free: the first round is
    work_ring work(1);
    paged_walk<S> walk;
    walk.begin(b.c->share);
    [[maybe_unused]] lane_box box(p);
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
        if constexpr (S::blocks > 1) { // looks ahead for pages
            const int end = piece.hi, head = piece.head;
            int j = piece.lo;
            if (j < end)
                box.find(p, piece, j);
#pragma unroll 1
            for (; j < end; j++) {
                mbarrier_wait(shared_address(&b.c->k_empty[at.place()]), at.phase());
                box.template load<S::cells>(p, k_map, b.k(at.place()), b.c->k_full[at.place()], head, often);
                mbarrier_wait(shared_address(&b.c->v_empty[at.place()]), at.phase());
                box.template load<S::v_cells>(p, v_map, b.v(at.place()), b.c->v_full[at.place()], head, often);
                at.next();
                if (j + 1 < end)
                    box.find(p, piece, j + 1);
            }
        } else {
#pragma unroll 1
            for (int j = piece.lo; j < piece.hi; j++) {
                mbarrier_wait(shared_address(&b.c->k_empty[at.place()]), at.phase());
                load_block<S::cells>(p, k_map, b.k(at.place()), b.c->k_full[at.place()], piece, j, often);
                mbarrier_wait(shared_address(&b.c->v_empty[at.place()]), at.phase());
                load_block<S::v_cells>(p, v_map, b.v(at.place()), b.c->v_full[at.place()], piece, j, often);
                at.next();
            }
        }
    }
}

} // namespace
