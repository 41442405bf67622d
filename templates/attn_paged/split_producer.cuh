// The Hopper kernel of attn_paged whose groups share rows: the warp that loads keys and values. The template gives sizes and types.
#pragma once

#include "attn_paged/rows.cuh"
#include "lib/ptx/cluster.cuh"
#include "lib/ptx/mbarrier.cuh"
#include "lib/ptx/tma.cuh"

namespace {

// Pages of the CTA's next 32 boxes, a lane one: their look-ups are one load, and those of the next 32 are under way while these
// are loaded.
struct page_window {
    int shift;               // boxes of a block, as a power of two
    int page, row;           // the lane's
    int next_page, next_row; // and of the window behind
    int begin;               // the window's first block, of the CTA's

    __device__ __forceinline__ explicit page_window(const gen_attn_paged_params &p)
    {
        shift = 31 - __clz(S::keys / p.map_rows);
    }

    __device__ __forceinline__ int blocks() const { return 32 >> shift; }

    // Entries of the table that are behind the request's end are read, and not used, where `end` is not the request's.
    __device__ __forceinline__ void look_up(const gen_attn_paged_params &p, const int *pages, int first, int from,
                                            int end)
    {
        const int lane = threadIdx.x % 32, block = first + (from + (lane >> shift)) * S::sharers;
        const int key = block * S::keys + (lane & ((1 << shift) - 1)) * p.map_rows;
        next_page = p.num_pages;
        next_row = 0;
        if (key < end) {
            const int index = static_cast<int>(quotient_or_shift(key, p.page_mul, p.page_shift));
            next_row = key - index * p.page_size;
            next_page = ld_global(pages + index);
        }
    }

    __device__ __forceinline__ void next(int at)
    {
        begin = at;
        page = next_page;
        row = next_row;
    }
};

// What a lane loads of a block: a box.
struct block_box {
    int box, cell;
    bool is;

    __device__ __forceinline__ explicit block_box(const gen_attn_paged_params &p)
    {
        constexpr int most = S::keys / 8; // boxes have eight rows at least
        static_assert(S::cells * most <= 32 && S::cells == S::v_cells, "a lane a box");
        box = threadIdx.x % most;
        cell = threadIdx.x % 32 / most;
        is = box < S::keys / p.map_rows && cell < S::cells;
    }

    __device__ __forceinline__ void load(const gen_attn_paged_params &p, const tensor_map *map, unsigned to,
                                         unsigned long long &full, int page, int row, int head,
                                         unsigned long long policy) const
    {
        if (threadIdx.x % 32 == 0)
            mbarrier_arrive_expect_tx(shared_address(&full), S::cells * S::kv_cell);
        __syncwarp();
        if (is)
            tensor_load_4d(to + cell * S::kv_cell + box * p.map_rows * 128, map, cell * 64, row, head, page,
                           shared_address(&full), policy);
        __syncwarp();
    }
};

struct split_loads {
    const tensor_map *k_map, *v_map;
    unsigned long long policy;
    stage_ring at;
    load_ring load;
    block_box box;

    __device__ __forceinline__ explicit split_loads(const gen_attn_paged_params &p)
        : at(1), box(p) // all stages are free
    {
        k_map = reinterpret_cast<const tensor_map *>(p.k_map);
        v_map = reinterpret_cast<const tensor_map *>(p.v_map);
        policy = policy_evict_first(); // no other row tile reads the same keys
    }

    __device__ __forceinline__ void block(const gen_attn_paged_params &p, const block_state &b, int page, int row,
                                          int head)
    {
        mbarrier_wait(shared_address(&b.c->k_empty[at.place()]), at.phase());
        box.load(p, k_map, b.k(at.place()), b.c->k_full[load.place()], page, row, head, policy);
        mbarrier_wait(shared_address(&b.c->v_empty[at.place()]), at.phase());
        box.load(p, v_map, b.v(at.place()), b.c->v_full[load.place()], page, row, head, policy);
        at.next();
        load.next();
    }
};

// The CTA's blocks of a piece, `count` from `first` on. `looked_up`: the first window is.
__device__ __forceinline__ void load_piece(const gen_attn_paged_params &p, const block_state &b,
                                           const paged_piece &piece, int first, int count, bool looked_up,
                                           page_window &w, split_loads &loads)
{
    const int head = piece.head, kv_len = piece.kv_len;
    const int *const pages = piece.pages;
    if (!pages) {
        const int request = piece.request;
#pragma unroll 1
        for (int i = 0; i < count; i++)
            loads.block(p, b, request, (first + i * S::sharers) * S::keys + loads.box.box * p.map_rows, head);
        return;
    }
    if (!looked_up)
        w.look_up(p, pages, first, 0, kv_len);
#pragma unroll 1
    for (int i = 0; i < count; i++) {
        if (i % w.blocks() == 0) {
            w.next(i);
            w.look_up(p, pages, first, i + w.blocks(), i + w.blocks() < count ? kv_len : 0);
        }
        const int lane = ((i - w.begin) << w.shift) + loads.box.box;
        const int key = (first + i * S::sharers) * S::keys + loads.box.box * p.map_rows;
        const int page = __shfl_sync(0xffffffffu, w.page, lane), row = __shfl_sync(0xffffffffu, w.row, lane);
        // Of a page that does not exist, or behind the request's end, are zeros: those behind the last page.
        const unsigned its = key < kv_len ? min(static_cast<unsigned>(page), static_cast<unsigned>(p.num_pages))
                                          : static_cast<unsigned>(p.num_pages);
        loads.block(p, b, static_cast<int>(its), row, head);
    }
}

// Publishes the pieces of the part, and loads their keys and values. `alone`: the part is a unit whatever lengths are, and the
// pages of its first blocks are looked up beside its length.
__device__ void produce(const gen_attn_paged_params &p, const block_state &b, int part, bool alone)
{
    const int rank = S::sharers > 1 ? static_cast<int>(blockIdx.x % S::sharers) : 0;
    split_loads loads(p);
    page_window w(p);
    work_ring work(1);
    paged_walk<S> walk;
    walk.begin(b.c->share);
    bool looked_up = alone && p.page_indices && !p.page_indptr && !p.left_window;
    if (looked_up)
        w.look_up(p, p.page_indices + walk.request * p.page_table, rank, 0, p.max_kv_len);
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
        const int first = piece.lo + rank;
        load_piece(p, b, piece, first, max(piece.hi - first + S::sharers - 1, 0) / S::sharers, looked_up, w, loads);
        looked_up = false;
    }
}

} // namespace
