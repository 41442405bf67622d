// The direct kernel of attn_paged: tiles of keys and values on their way to a warp's ring. A warp has every so many tiles of
// its unit, so which ones are its first does not depend on the request's length: their pages are looked up while it comes.
#pragma once

#include "attn_paged/copy.cuh"
#include "lib/prefetch.cuh"

template <class S> struct direct_feed : paged_feed<S> {
    int first, step;      // the warp's first tile of the unit, and tiles from one to the next
    int found[S::stages]; // pages of the lane's keys of the first tiles

    // The page of the lane's key of a tile; it counts where `key` is below the request's length.
    __device__ __forceinline__ static int page_of(const gen_attn_paged_params &p, const int *pages, int request,
                                                  int key)
    {
        if (!pages)
            return request;
        return ld_global(pages + quotient_or_shift(key, p.page_mul, p.page_shift));
    }

    __device__ __forceinline__ static int key_of(int tile)
    {
        return tile * S::keys + static_cast<int>(threadIdx.x % S::keys);
    }

    // What comes first is brought to L2 while the kernel before is still running: loads, after the wait for it, read it there,
    // and what that kernel still changes is changed there, too.
    __device__ __forceinline__ void prefetch(const gen_attn_paged_params &p, const paged_piece &piece) const
    {
        if (p.kv_len && threadIdx.x == 0)
            prefetch_global(p.kv_len + piece.request);
        const int key = (first + static_cast<int>(threadIdx.x % 32 % S::stages) * step) * S::keys;
        if (piece.pages && threadIdx.x % 32 < S::stages && key < p.max_kv_len)
            prefetch_global(piece.pages + quotient_or_shift(key, p.page_mul, p.page_shift));
    }

    // Of the first tiles, those of keys below `end`.
    __device__ __forceinline__ void look_up(const gen_attn_paged_params &p, const int *pages, int request, int end)
    {
#pragma unroll
        for (int i = 0; i < S::stages; i++) {
            const int key = key_of(first + i * step);
            found[i] = -1;
            if (key < end)
                found[i] = page_of(p, pages, request, key);
        }
    }

    __device__ __forceinline__ void aim(const gen_attn_paged_params &p, const paged_piece &piece, int its_page)
    {
        const int key = key_of(this->tile);
        this->left = piece.kv_len - this->tile * S::keys;
        this->page = key < piece.kv_len ? its_page : -1;
        this->row = key;
        if (piece.pages)
            this->row -= static_cast<int>(quotient_or_shift(key, p.page_mul, p.page_shift)) * p.page_size;
    }

    __device__ __forceinline__ void issue(const gen_attn_paged_params &p, unsigned ring, const paged_piece &piece)
    {
        const unsigned lane = threadIdx.x % 32, key = lane / S::chunks, chunk = lane % S::chunks;
        const unsigned stage = ring + this->to * S::stage_bytes;
        if (p.map_rows)
            this->copy_rows(p, stage, key, chunk, piece.head);
        else
            this->copy_any(p, stage, key, chunk, piece.head);
        cp_async_commit_group();
        this->to = this->to + 1 == S::stages ? 0 : this->to + 1;
        this->flying++;
        this->tile += step;
    }

    __device__ __forceinline__ void seek(const gen_attn_paged_params &p, const paged_piece &piece)
    {
        this->more = this->tile < piece.hi;
        if (!this->more)
            return;
        const int key = key_of(this->tile);
        aim(p, piece, key < piece.kv_len ? page_of(p, piece.pages, piece.request, key) : -1);
    }

    // As many tiles as the ring holds, from what look_up() found, and the look for the one behind them.
    __device__ __forceinline__ void begin(const gen_attn_paged_params &p, unsigned ring, const paged_piece &piece)
    {
        this->tile = first;
        this->to = this->flying = 0;
#pragma unroll
        for (int i = 0; i < S::stages; i++)
            if (this->tile < piece.hi) {
                aim(p, piece, found[i]);
                issue(p, ring, piece);
            }
        seek(p, piece);
    }

    __device__ __forceinline__ void copy(const gen_attn_paged_params &p, unsigned ring, const paged_piece &piece)
    {
        issue(p, ring, piece);
        seek(p, piece);
    }
};
