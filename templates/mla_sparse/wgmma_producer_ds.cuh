// The Hopper kernel of mla_sparse for rows of 656 bytes: two producer groups, whose threads turn elements of 8 bits into what the
// tensor cores take. One group's warp a scheduler would wait for its own instructions most of the time.
//
// A warp has eight neighbouring rows of each tile and needs no other one. A tile's bytes arrive in the stage itself, in the half
// that the tile's owner releases first: for that the owner needs no later tile, so that the producer may wait for it at any
// time, and does behind each run of the tile before. They are converted run by run, those of the other half first; the last
// run's lie where it goes to, so a warp has them in registers before it stores.
#pragma once

#include "mla_sparse/ds_row.cuh"
#include "mla_sparse/wgmma_block.cuh"
#include "lib/ptx/cp_async.cuh"
#include "lib/ptx/ldst.cuh"
#include "lib/ptx/mbarrier.cuh"

namespace {

constexpr int producer_threads = 256, warp_rows = rows / (producer_threads / 32);

// How many arrive at the barrier of a stage's run: every thread, with what it stored or for its copies.
__device__ __forceinline__ constexpr int arrivals(int, int)
{
    return producer_threads;
}

// The thread's number in the groups, of which the compiler knows nothing, as producer_thread().
__device__ __forceinline__ int converter_thread()
{
    unsigned thread = threadIdx.x % producer_threads; // behind two groups of consumers
    opaque(thread);
    return static_cast<int>(thread);
}

__device__ __forceinline__ void st_shared_u8(unsigned address, unsigned x)
{
    asm volatile("st.shared.u8 [%0], %1;" ::"r"(address), "r"(x) : "memory");
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

constexpr unsigned no_place = ~0u;

// Where the row of an entry begins, in 16 bytes from the cache's start, or no_place.
__device__ __forceinline__ unsigned place_of(const gen_mla_sparse_params &p, int entry)
{
    const long long at = sparse_row<1>(p, entry) - static_cast<const unsigned char *>(p.decode.ckv);
    return entry < 0 ? no_place : static_cast<unsigned>(at >> 4);
}

// The address of a row's byte `at`, which need not be there where there is no row.
__device__ __forceinline__ const unsigned char *place_address(const gen_mla_sparse_params &p, unsigned place, int at)
{
    const unsigned there = place == no_place ? 0 : place;
    return static_cast<const unsigned char *>(p.decode.ckv) + at + there * 16ull;
}

// Issues the copies of a tile's bytes and scales. Lane l has the place of the warp's row l % 8.
template <class S>
__device__ __forceinline__ void copy_bytes(const gen_mla_sparse_params &p, const sparse_block<S> &b, int thread, int s,
                                           unsigned place)
{
    const int lane = thread % 32, chunk = lane % 8, first = thread / 32 * warp_rows;
#pragma unroll
    for (int k = 0; k < warp_rows / 4; k++) {
        const int row = 4 * k + lane / 8;
        const unsigned its = __shfl_sync(0xffffffffu, place, row);
        const unsigned char *const from = place_address(p, its, chunk * 16);
        const unsigned to = b.stage(s) + bytes_at(first + row, chunk);
#pragma unroll
        for (int n = 0; n < latent_runs; n++)
            cp_async_16_or_zero(to + bytes_cell(s, n) * cell, from + n * 128, its != no_place);
    }
    if (lane < warp_rows)
        cp_async_16_or_zero(b.scales(s, first + lane), place_address(p, place, MLA_SPARSE_SCALES_AT),
                            place != no_place);
    cp_async_commit_group();
}

// The RoPE columns, which are as they are to be: 16 bytes of rows 4 k + lane / 8.
template <class S>
__device__ __forceinline__ void copy_rope(const gen_mla_sparse_params &p, const sparse_block<S> &b, int thread, int s,
                                          unsigned place)
{
    const int lane = thread % 32, chunk = lane % 8;
#pragma unroll
    for (int k = 0; k < warp_rows / 4; k++) {
        const int row = 4 * k + lane / 8;
        const unsigned its = __shfl_sync(0xffffffffu, place, row);
        cp_async_16_or_zero(b.stage(s) + 8 * cell + (thread / 32 * warp_rows + row) * 128 + ((chunk ^ row % 8) << 4),
                            place_address(p, its, MLA_SPARSE_ROPE_AT + chunk * 16), its != no_place);
    }
    cp_async_mbarrier_arrive(b.full(s, latent_runs));
}

// Converts run `n` of the warp's rows, and publishes the half of the stage that it completes.
template <class S> __device__ __forceinline__ void convert_run(const sparse_block<S> &b, int thread, int s, int n)
{
    const int lane = thread % 32, row = thread / 32 * warp_rows + lane / 4;
    const unsigned from = b.stage(s) + bytes_cell(s, n) * cell;
    const unsigned to = b.stage(s) + n * (run * cell) + row * 128 + ((lane % 4 * 2 ^ lane / 4) << 4);
    unsigned bytes[run][4]; // of 16 columns
#pragma unroll
    for (int c = 0; c < run; c++) {
        unsigned(&x)[4] = bytes[c];
        ld_shared_v4_u32(from + bytes_at(row, 4 * c + lane % 4), x[0], x[1], x[2], x[3]);
    }
    const float scale = ld_shared_f32(b.scales(s, row) + n * 4);
    __syncwarp(); // others' bytes may lie where these go
#pragma unroll
    for (int c = 0; c < run; c++) {
        unsigned x[8];
#pragma unroll
        for (int k = 0; k < 4; k++)
            ds_elements(bytes[c][k], scale, x[2 * k], x[2 * k + 1]);
        const unsigned at = to + c * cell;
        st_shared_v4_u32(at, x[0], x[1], x[2], x[3]);
        st_shared_v4_u32(at ^ 16, x[4], x[5], x[6], x[7]);
    }
    if (n % 2) { // the half's other run is behind it, and both are waited for together: a fence is half a run's time
        fence_proxy_async();
        mbarrier_arrive(b.full(s, n - 1));
        mbarrier_arrive(b.full(s, n));
    }
}

// What a warp keeps of a piece beside the place in it, and no more: registers are few.
struct listed_rows {
    unsigned request;
    int end; // of the piece's entries

    // The entry of the warp's row lane % 8 in the tile whose first is `at`: not yet its place, for that waits for the load.
    __device__ __forceinline__ int entry(const gen_mla_sparse_params &p, int at) const
    {
        const int thread = converter_thread();
        unsigned its = request;
        opaque(its);
        return sparse_entry(p, sparse_list(p, static_cast<int>(its)), at + thread / 32 * warp_rows + thread % warp_rows,
                            end);
    }
};

template <class S> __device__ __forceinline__ void produce(const gen_mla_sparse_params &p, const sparse_block<S> &b)
{
    sparse_walk walk(b.c->share, b.part);
    block_piece w;
    unsigned turn = 0; // tiles so far, modulo 4, and pieces
    while (next_piece(p, b, walk, w)) {
        int thread = converter_thread();
        const listed_rows list = {static_cast<unsigned>(w.piece.request), min(w.piece.kv_len, w.piece.last * rows)};
        int at = w.piece.first * rows;
        unsigned place = place_of(p, list.entry(p, at));
        int next = list.entry(p, at + rows);
        if (at < list.end) { // before the queries, which wait for the last tile's scores
            mbarrier_wait(b.empty(turn & 1, turn & 1), (turn >> 1 & 1) ^ 1);
            copy_bytes(p, b, thread, turn & 1, place);
        }
        mbarrier_wait(b.q_empty(), (turn >> 2 & 1) ^ 1);
#pragma unroll 1
        for (int k = 0; k < warp_rows / 4; k++) {
            const int line = thread / 32 * warp_rows + thread % 32 / 8 + 4 * k, chunk = thread % 8;
            copy_query<S>(p.decode, w, line, chunk, b.base + line * 128 + ((chunk ^ line % 8) << 4));
        }
        cp_async_mbarrier_arrive(b.q_full());
#pragma unroll 1
        for (; at < list.end; at += rows) {
            const int s = turn & 1;
            const unsigned before = (turn + 1 >> 1 & 1) ^ 1; // of the tile in the other stage: released by its owner?
            const bool more = at + rows < list.end;
            thread = converter_thread();
            const unsigned counts = __ballot_sync(0xffffffffu, place != no_place);
            const unsigned behind = place_of(p, next);
            bool issued = !more;
            if (more && __all_sync(0xffffffffu, mbarrier_test_wait(b.empty(s ^ 1, s ^ 1), before))) {
                copy_bytes(p, b, thread, s ^ 1, behind);
                issued = true;
                cp_async_wait_group<1>();
            } else {
                cp_async_wait_group<0>();
            }
            __syncwarp();
            mbarrier_wait(b.empty(s, s ^ 1), (turn >> 1 & 1) ^ 1);
            // The tile's owner has read the bits of its last one; the arrivals behind publish these.
            if (thread % 32 == 0)
                st_shared_u8(b.counts(s) + thread / 32, counts);
            if (S::rope)
                copy_rope(p, b, thread, s, place);
            place = behind;
            next = list.entry(p, at + 2 * rows); // there when the conversion is done
#pragma unroll 1
            for (int n = 0; n < latent_runs; n++) {
                convert_run(b, thread, s, run_at(first_half(s), n));
                if (issued)
                    continue;
                if (n + 1 == latent_runs)
                    mbarrier_wait(b.empty(s ^ 1, s ^ 1), before);
                else if (!__all_sync(0xffffffffu, mbarrier_test_wait(b.empty(s ^ 1, s ^ 1), before)))
                    continue;
                copy_bytes(p, b, converter_thread(), s ^ 1, place);
                issued = true;
            }
            turn = turn & 4 | (turn + 1 & 3);
        }
        turn ^= 4;
    }
    cp_async_wait_group<0>();
}

} // namespace
