// The Hopper kernel of attn_paged: the warps that load. The template gives sizes and types.
#pragma once

#include "attn_paged/rows.cuh"
#include "lib/ptx/cp_async.cuh"
#include "lib/ptx/mbarrier.cuh"
#include "lib/ptx/tma.cuh"

namespace {

// Block `j` of keys or of values: a lane a box, of the rows that one page has of it. A box of a page that does not exist, or
// behind the request's end, is aimed behind the last page: zeros.
__device__ __forceinline__ void load_block(const gen_attn_paged_params &p, const tensor_map *map, unsigned to,
                                           unsigned long long &full, const paged_piece &piece, int j,
                                           unsigned long long policy)
{
    const int lane = threadIdx.x % 32, boxes = S::keys / p.map_rows;
    if (lane == 0)
        mbarrier_arrive_expect_tx(shared_address(&full), S::kv_bytes);
    __syncwarp();
#pragma unroll 1
    for (int i = lane; i < boxes * S::cells; i += 32) {
        const int box = i / S::cells, cell = i % S::cells, key = j * S::keys + box * p.map_rows;
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
#pragma unroll 1
        for (int j = piece.lo; j < piece.hi; j++) {
            mbarrier_wait(shared_address(&b.c->k_empty[at.place()]), at.phase());
            load_block(p, k_map, b.k(at.place()), b.c->k_full[at.place()], piece, j, often);
            mbarrier_wait(shared_address(&b.c->v_empty[at.place()]), at.phase());
            load_block(p, v_map, b.v(at.place()), b.c->v_full[at.place()], piece, j, often);
            at.next();
        }
    }
}

// Three warps: the queries of each piece, rows that there are not as zeros.
__device__ void gather_queries(const gen_attn_paged_params &p, const block_state &b)
{
    constexpr int chunks = S::dim / 8;
    work_ring work;
#pragma unroll 1
    for (;;) {
        const unsigned place = work.place();
        mbarrier_wait(shared_address(&b.c->work_full[place]), work.phase());
        const paged_piece &piece = b.c->work[place];
        if (piece.rows == 0)
            break;
        mbarrier_wait(shared_address(&b.c->q_empty[place]), work.phase() ^ 1);
#pragma unroll 4
        for (int i = static_cast<int>(threadIdx.x) - 128 * S::groups - 32; i < S::tile_rows * chunks; i += 96) {
            const int row = i / chunks, chunk = i % chunks;
            const bool there = row < piece.rows;
            const paged_row at(p, piece, there ? row : 0);
            cp_async_16_or_zero(
                b.q(place, row / 64) + chunk / 8 * S::q_cell + row % 64 * 128 + ((chunk % 8 ^ row % 8) << 4),
                static_cast<const unsigned short *>(p.q) + at.token * p.q_token + at.head * p.q_head + chunk * 8,
                there);
        }
        cp_async_commit_group();
        cp_async_wait_group<0>();
        fence_proxy_async();
        mbarrier_arrive(shared_address(&b.c->q_full[place]));
        work.next();
    }
}

} // namespace
