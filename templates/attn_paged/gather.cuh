// The Hopper kernels of attn_paged: the warps that gather queries. The template gives sizes and types.
#pragma once

#include "attn_paged/rows.cuh"
#include "lib/ptx/cp_async.cuh"
#include "lib/ptx/mbarrier.cuh"

namespace {

// Three warps: the queries of each piece, rows that there are not as zeros.
__device__ void gather_queries(const gen_attn_paged_params &p, const block_state &b)
{
    constexpr int chunks = S::dim / 8, set_rows = S::block_rows / S::q_sets;
    work_ring work;
    q_ring queries; // where there are not as many places as of work
#pragma unroll 1
    for (;;) {
        const unsigned place = work.place();
        mbarrier_wait(shared_address(&b.c->work_full[place]), work.phase());
        const paged_piece &piece = b.c->work[place];
        if (piece.rows == 0)
            break;
        const unsigned q_place = S::q_places == S::places ? place : queries.place();
        const unsigned phase = S::q_places == S::places ? work.phase() : queries.phase();
        const int first = S::blocks == 1 ? 0 : static_cast<int>(blockIdx.x % S::blocks) * S::block_rows;
#pragma unroll
        for (int set = 0; set < S::q_sets; set++) {
            const int begin = static_cast<int>(threadIdx.x) - S::consumers - 32 + set * set_rows * chunks;
            mbarrier_wait(shared_address(&b.c->q_empty[q_place + set]), phase ^ 1);
#pragma unroll 4
            for (int i = begin; i < (set + 1) * set_rows * chunks; i += 96) {
                const int row = i / chunks, chunk = i % chunks;
                const bool there = first + row < piece.rows;
                const paged_row at(p, piece, there ? first + row : 0);
                cp_async_16_or_zero(
                    b.q(q_place, row / 64) + chunk / 8 * S::q_cell + row % 64 * 128 + ((chunk % 8 ^ row % 8) << 4),
                    static_cast<const unsigned short *>(p.q) + at.token * p.q_token + at.head * p.q_head + chunk * 8,
                    there);
            }
            cp_async_commit_group();
            cp_async_wait_group<0>();
            fence_proxy_async();
            mbarrier_arrive(shared_address(&b.c->q_full[q_place + set]));
        }
        work.next();
        queries.next();
    }
}

} // namespace
