// The TMA loads that the producer warps of both Hopper kernels of attn_fwd issue. The template gives shapes and types, of which
// cell_columns is how many of a row's lie in a cell, and sharers how many blocks share what comes of keys and values.
#pragma once

#include "attn_fwd/work.cuh"
#include "lib/ptx/ldst.cuh"
#include "lib/ptx/mbarrier.cuh"
#include "lib/ptx/tma.cuh"

namespace {

__device__ __forceinline__ void load_queries(const gen_attn_fwd_params &p, const block_state &b, q_ring &q,
                                             const attn_tile &t, unsigned long long policy)
{
    const tensor_map *const map = reinterpret_cast<const tensor_map *>(p.q_map);
    const int request = p.cu_q ? 0 : t.request;
#pragma unroll 1
    for (int group = 0; group < groups; group++) {
        const unsigned full = shared_address(&b.c->q_full[q.place()][group]);
        mbarrier_wait(shared_address(&b.c->q_empty[q.place()][group]), q.phase());
        if (elect_one()) {
            mbarrier_arrive_expect_tx(full, cells * q_cell);
#pragma unroll
            for (int n = 0; n < cells; n++)
                tensor_load_4d(b.q(q.place(), group) + n * q_cell, map, n * cell_columns,
                               t.q_at + t.first_row + group * 64, t.head, request, full, policy);
        }
    }
    q.next();
}

// Block `j` of the tile's keys or values.
__device__ __forceinline__ void load_block(const tensor_map *map, unsigned to, unsigned long long &full,
                                           const attn_tile &t, int j, int request, unsigned long long policy)
{
    if (elect_one()) {
        mbarrier_arrive_expect_tx(shared_address(&full), kv_bytes);
        if (sharers > 1) {
            const int n = blockIdx.x % sharers;
            tensor_load_4d_multicast(to + n * kv_cell, map, n * cell_columns, t.k_at + j * keys, t.kv_head, request,
                                     shared_address(&full), (1 << sharers) - 1, policy);
            return;
        }
#pragma unroll
        for (int n = 0; n < cells; n++)
            tensor_load_4d(to + n * kv_cell, map, n * cell_columns, t.k_at + j * keys, t.kv_head, request,
                           shared_address(&full), policy);
    }
}

} // namespace
