// The Hopper kernel of mla_sparse for rows of 656 bytes: the producer group, whose threads turn elements of 8 bits into what the
// tensor cores take.
//
// A warp has 16 neighbouring rows of each tile and needs no other one. A tile's bytes arrive in the stage itself, in the half
// that the tile's owner releases first: for that the owner needs no later tile, so that the producer may wait for it at any
// time. They are converted run by run, those of the other half first; the last run's lie where it goes to, so a warp has them
// in registers before it stores.
#pragma once

#include "mla_sparse/ds_row.cuh"
#include "mla_sparse/wgmma_block.cuh"
#include "lib/ptx/cp_async.cuh"
#include "lib/ptx/ldst.cuh"
#include "lib/ptx/mbarrier.cuh"

namespace {

// How many arrive at the barrier of a stage's run: every thread, with what it stored or for its copies.
__device__ __forceinline__ constexpr int arrivals(int, int)
{
    return 128;
}

// The half of a stage that is there first.
__device__ __forceinline__ constexpr int first_half(int stage)
{
    return stage ^ 1;
}

// The stage's cell in which the bytes of run `n` arrive: those of half s in the half's last two cells.
__device__ __forceinline__ int bytes_cell(int s, int n)
{
    return 4 * s + (n / 2 == s ? 2 : 0) + n % 2;
}

// Where 16 bytes of a row of a cell of bytes are. Two neighbouring rows' first or last four together fill the banks.
__device__ __forceinline__ unsigned bytes_at(int row, int chunk)
{
    return row * 128 + ((chunk ^ row % 2 * 4) << 4);
}

// Issues the copies of a tile's bytes and scales. Lane l has the entry of the warp's row l % 16.
template <class S>
__device__ __forceinline__ void copy_bytes(const gen_mla_sparse_params &p, const sparse_block<S> &b, int thread, int s,
                                           int entry)
{
    const int lane = thread % 32, chunk = lane % 8, first = thread / 32 * 16;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const int row = 4 * k + lane / 8, its = __shfl_sync(0xffffffffu, entry, row);
        const unsigned char *const from = sparse_row<1>(p, its) + chunk * 16;
        const unsigned to = b.stage(s) + bytes_at(first + row, chunk);
#pragma unroll
        for (int n = 0; n < latent_runs; n++)
            cp_async_16_or_zero(to + bytes_cell(s, n) * cell, from + n * 128, its >= 0);
    }
    if (lane < 16)
        cp_async_16_or_zero(b.scales(s, first + lane), sparse_row<1>(p, entry) + MLA_SPARSE_SCALES_AT, entry >= 0);
    cp_async_commit_group();
}

// The RoPE columns, which are as they are to be: 16 bytes of rows 4 k + lane / 8.
template <class S>
__device__ __forceinline__ void copy_rope(const gen_mla_sparse_params &p, const sparse_block<S> &b, int thread, int s,
                                          int entry)
{
    const int lane = thread % 32, chunk = lane % 8;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const int row = 4 * k + lane / 8, its = __shfl_sync(0xffffffffu, entry, row);
        cp_async_16_or_zero(b.stage(s) + 8 * cell + (thread / 32 * 16 + row) * 128 + ((chunk ^ row % 8) << 4),
                            sparse_row<1>(p, its) + MLA_SPARSE_ROPE_AT + chunk * 16, its >= 0);
    }
    cp_async_mbarrier_arrive(b.full(s, latent_runs));
}

// Converts run `n` of the warp's rows, and publishes it.
template <class S> __device__ __forceinline__ void convert_run(const sparse_block<S> &b, int thread, int s, int n)
{
    const int lane = thread % 32, row = thread / 32 * 16 + lane / 4;
    const unsigned from = b.stage(s) + bytes_cell(s, n) * cell;
    const unsigned to = b.stage(s) + n * (run * cell) + row * 128 + ((lane % 4 * 2 ^ lane / 4) << 4);
    unsigned bytes[run][2][4]; // of 16 columns
#pragma unroll
    for (int c = 0; c < run; c++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            unsigned(&x)[4] = bytes[c][h];
            ld_shared_v4_u32(from + bytes_at(row + 8 * h, 4 * c + lane % 4), x[0], x[1], x[2], x[3]);
        }
    __syncwarp(); // others' bytes may lie where these go
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const float scale = ld_shared_f32(b.scales(s, row + 8 * h) + n * 4);
#pragma unroll
        for (int c = 0; c < run; c++) {
            unsigned x[8];
#pragma unroll
            for (int k = 0; k < 4; k++)
                ds_elements(bytes[c][h][k], scale, x[2 * k], x[2 * k + 1]);
            const unsigned at = to + c * cell + h * 1024;
            st_shared_v4_u32(at, x[0], x[1], x[2], x[3]);
            st_shared_v4_u32(at ^ 16, x[4], x[5], x[6], x[7]);
        }
    }
    fence_proxy_async();
    mbarrier_arrive(b.full(s, n));
}

template <class S> __device__ __forceinline__ void produce(const gen_mla_sparse_params &p, const sparse_block<S> &b)
{
    sparse_walk walk(b.c->share, b.part);
    block_piece w;
    unsigned t = 0;
    unsigned q_parity = 1;
    while (next_piece(p, b, walk, w)) {
        int thread = producer_thread();
        const int *its = sparse_list(p, w.piece.request) + (w.piece.first * rows + thread / 32 * 16 + thread % 16);
        int left = min(w.piece.kv_len, w.piece.last * rows) - (w.piece.first * rows + thread / 32 * 16 + thread % 16);
        int entry = sparse_entry(p, its, 0, left), next = sparse_entry(p, its, rows, left);
        if (w.tiles > 0) { // before the queries, which wait for the last tile's scores
            mbarrier_wait(b.empty(t & 1, t & 1), (t >> 1 & 1) ^ 1);
            copy_bytes(p, b, thread, t & 1, entry);
        }
        mbarrier_wait(b.q_empty(), q_parity);
        q_parity ^= 1;
#pragma unroll 1
        for (int k = 0; k < 4; k++) {
            const int line = thread / 32 * 16 + thread % 32 / 8 + 4 * k, chunk = thread % 8;
            copy_query<S>(p.decode, w, line, chunk, b.base + line * 128 + ((chunk ^ line % 8) << 4));
        }
        cp_async_mbarrier_arrive(b.q_full());
#pragma unroll 1
        for (int more = w.tiles - 1; more >= 0; more--, t++) {
            const int s = t & 1;
            const unsigned before = (t + 1 >> 1 & 1) ^ 1; // of the tile in the other stage: released by its owner?
            thread = producer_thread();
            bool issued = false;
            if (more > 0 && __all_sync(0xffffffffu, mbarrier_test_wait(b.empty(s ^ 1, s ^ 1), before))) {
                copy_bytes(p, b, thread, s ^ 1, next);
                issued = true;
            }
            if (issued)
                cp_async_wait_group<1>();
            else
                cp_async_wait_group<0>();
            __syncwarp();
            mbarrier_wait(b.empty(s, s ^ 1), (t >> 1 & 1) ^ 1);
            const unsigned counts = __ballot_sync(0xffffffffu, entry >= 0);
            if (thread % 32 ==
                0) // the tile's owner has read the bits of its last one; the arrivals behind publish these
                st_shared_u16(b.counts(s) + thread / 32 * 2, static_cast<unsigned short>(counts));
            if (S::rope)
                copy_rope(p, b, thread, s, entry);
#pragma unroll 1
            for (int n = 0; n < latent_runs; n++)
                convert_run(b, thread, s, run_at(first_half(s), n));
            if (more > 0 && !issued) {
                mbarrier_wait(b.empty(s ^ 1, s ^ 1), before);
                copy_bytes(p, b, thread, s ^ 1, next);
            }
            entry = next;
            its += rows;
            left -= rows;
            next = sparse_entry(p, its, rows, left);
        }
    }
    cp_async_wait_group<0>();
}

} // namespace
