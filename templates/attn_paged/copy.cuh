// The stream kernel of attn_paged: tiles of keys and values on their way to a team's ring in shared memory.
#pragma once

#include "attn_paged/line.cuh"
#include "lib/ptx/cp_async.cuh"
#include "lib/ptx/sync.cuh"
#include "lib/swizzle.cuh"

// What of warps shares a ring.
template <class S> __device__ __forceinline__ void paged_team_sync()
{
    if constexpr (S::team == 1)
        __syncwarp();
    else
        barrier_sync(1 + threadIdx.x / (32 * S::team), 32 * S::team);
}

// The next tile to be copied: of this piece or, when this one's are all under way, of the next; and in a lane the page of a
// key of it, looked up one tile ahead.
template <class S> struct paged_feed {
    bool ahead, more; // of the next piece; whether there is one
    int tile;
    int page, row;  // -1: reads as zeros
    int left;       // keys from the tile's first one to the request's end
    int to, flying; // stage that is filled next, stages that are under way

    __device__ __forceinline__ void begin(const gen_attn_paged_params &p, const paged_piece &current,
                                          const paged_piece &next, int team)
    {
        ahead = false;
        tile = current.lo + team;
        to = flying = 0;
        seek(p, current, next, team);
    }

    // What was the next piece is the current one.
    __device__ __forceinline__ void turn(const gen_attn_paged_params &p, const paged_piece &current,
                                         const paged_piece &next, int team)
    {
        ahead = false;
        if (!more)
            seek(p, current, next, team);
    }

    __device__ __forceinline__ void seek(const gen_attn_paged_params &p, const paged_piece &current,
                                         const paged_piece &next, int team)
    {
        if (!ahead && tile >= current.hi) {
            ahead = true;
            tile = next.lo + team;
        }
        more = !ahead || (next.rows > 0 && tile < next.hi);
        if (!more)
            return;
        const int kv_len = ahead ? next.kv_len : current.kv_len;
        const int *const pages = ahead ? next.pages : current.pages;
        const int key = tile * S::keys + static_cast<int>(threadIdx.x % S::keys);
        left = kv_len - tile * S::keys;
        page = -1;
        row = key;
        if (key >= kv_len)
            return;
        if (pages) {
            const int index = static_cast<int>(quotient_or_shift(key, p.page_mul, p.page_shift));
            row = key - index * p.page_size;
            page = ld_global(pages + index);
        } else {
            page = ahead ? next.request : current.request;
        }
    }

    // All keys of the tile are of one page, rows behind each other.
    __device__ __forceinline__ void copy_rows(const gen_attn_paged_params &p, unsigned stage, unsigned key,
                                              unsigned chunk, long long head) const
    {
        const int its_page = __shfl_sync(0xffffffffu, page, 0), first = __shfl_sync(0xffffffffu, row, 0);
        const int valid = static_cast<unsigned>(its_page) < static_cast<unsigned>(p.num_pages) ? left : 0;
        const long long at_page = valid ? its_page : 0, at_row = first + static_cast<int>(key);
        const char *k = static_cast<const char *>(p.k) +
                        (at_page * p.k_page + at_row * p.k_row + head * p.k_head) * S::element_bytes + chunk * 16;
        const char *v = static_cast<const char *>(p.v) +
                        (at_page * p.v_page + at_row * p.v_row + head * p.v_head) * S::element_bytes + chunk * 16;
#pragma unroll
        for (int pass = 0; pass < S::passes; pass++) {
            const unsigned its = pass * S::keys_a_pass + key, at = swizzled<S::pitch>(stage, its, chunk);
            const bool there = static_cast<int>(its) < valid;
            cp_async_16_or_zero(at, k, there);
            cp_async_16_or_zero(at + S::keys * S::pitch, v, there);
            k += S::keys_a_pass * p.k_row * S::element_bytes;
            v += S::keys_a_pass * p.v_row * S::element_bytes;
        }
    }

    // Each key of a page of its own, perhaps: lanes hand out where theirs lie.
    __device__ __forceinline__ void copy_any(const gen_attn_paged_params &p, unsigned stage, unsigned key,
                                             unsigned chunk, long long head) const
    {
        const bool valid = static_cast<unsigned>(page) < static_cast<unsigned>(p.num_pages);
        const long long k_at = valid ? (page * p.k_page + row * p.k_row + head * p.k_head) * S::element_bytes : -1;
        const long long v_at = valid ? (page * p.v_page + row * p.v_row + head * p.v_head) * S::element_bytes : -1;
#pragma unroll
        for (int pass = 0; pass < S::passes; pass++) {
            const unsigned its = pass * S::keys_a_pass + key, at = swizzled<S::pitch>(stage, its, chunk);
            const long long k = __shfl_sync(0xffffffffu, k_at, its), v = __shfl_sync(0xffffffffu, v_at, its);
            const bool there = k >= 0;
            cp_async_16_or_zero(at, static_cast<const char *>(p.k) + (there ? k : 0) + chunk * 16, there);
            cp_async_16_or_zero(at + S::keys * S::pitch, static_cast<const char *>(p.v) + (there ? v : 0) + chunk * 16,
                                there);
        }
    }

    // Copies the tile to the ring's next stage, and looks for the one behind it.
    __device__ __forceinline__ void copy(const gen_attn_paged_params &p, unsigned ring, const paged_piece &current,
                                         const paged_piece &next, int team)
    {
        const unsigned lane = threadIdx.x % 32, member = threadIdx.x / 32 % S::team;
        const long long head = ahead ? next.head : current.head;
        const unsigned key = member * (32 / S::chunks) + lane / S::chunks, chunk = lane % S::chunks;
        const unsigned stage = ring + to * S::stage_bytes;
        if (S::by_rows && p.map_rows)
            copy_rows(p, stage, key, chunk, head);
        else
            copy_any(p, stage, key, chunk, head);
        cp_async_commit_group();
        to = to + 1 == S::stages ? 0 : to + 1;
        flying++;
        tile += S::teams;
        seek(p, current, next, team);
    }

    // Until the oldest of the tiles that are under way is there, and the team sees it.
    __device__ __forceinline__ void wait()
    {
        if (flying >= S::stages)
            cp_async_wait_group<S::stages - 1>();
        else if (S::stages > 3 && flying == 3)
            cp_async_wait_group<2>();
        else if (S::stages > 2 && flying == 2)
            cp_async_wait_group<1>();
        else
            cp_async_wait_group<0>();
        paged_team_sync<S>();
        flying--;
    }
};
