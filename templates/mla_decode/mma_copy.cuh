// The portable kernel of mla_decode: what comes from global memory, and where in shared memory it goes.
#pragma once

#include "mla_decode/mma_shape.cuh"
#include "mla_decode/rows.cuh"
#include "mla_decode/schedule.cuh"
#include "lib/mma.cuh"
#include "lib/store.cuh"
#include "lib/swizzle.cuh"

// What a block has of a piece: packed rows of its row tile, tiles of the cache. It stays in shared memory and is read from
// there in every tile, for registers are scarce.
struct mla_work {
    mla_piece piece;
    mla_tokens tokens;
    const int *pages; // of the request
    int num_rows;     // 0: there is nothing left
    int first, end;   // cache rows of the tiles. What lies at `end` and behind is zero in shared memory
    int whole;        // all rows of the tile may see the cache's rows before this
    mla_cut behind;   // where the next piece begins

    // Becomes the next piece of the part that has rows here, beginning at `from`. All threads work it out, so that branches
    // are uniform; the first one writes.
    template <class S>
    __device__ __forceinline__ void advance(const gen_mla_decode_params &p, const mla_share &share, mla_cut from)
    {
        mla_walk walk(share, static_cast<int>(blockIdx.y));
        walk.next = mla_uniform(from);
        mla_piece next;
        mla_tokens its;
        int count = 0;
        while (walk.step(p.schedule, p.kv_len, next)) {
            its = mla_request_tokens(p.q_indptr, p.q_len, next.request);
            count = min(its.count * p.num_heads - first_row<S>(), S::q);
            if (count > 0)
                break;
        }
        if (threadIdx.x != 0)
            return;
        num_rows = max(count, 0);
        if (count <= 0)
            return;
        behind = walk.next;
        piece = next;
        tokens = its;
        pages = mla_pages(p, next.request).indices;
        first = next.first * MLA_BLOCK;
        whole = mla_limit(p, its, first_row<S>(), next.kv_len);
        // What the last packed row may see ends the tiles; rows before it see less and are masked.
        end = min(next.last * MLA_BLOCK, mla_limit(p, its, first_row<S>() + count - 1, next.kv_len));
    }

    template <class S> __device__ __forceinline__ int first_row() const { return static_cast<int>(blockIdx.x) * S::q; }
};

// Sixteen elements of a query where keys have 8 bits: in the order in which ldmatrix and e4m3_pairs() hand those out, so
// that the fragments' columns agree. Thread i of four has keys 4i to 4i + 3 as the pairs (4i, 4i + 2), (4i + 1, 4i + 3).
__device__ __forceinline__ void mla_permute_query(const float4 (&from)[2], float4 (&to)[2])
{
    const unsigned w[8] = {__float_as_uint(from[0].x), __float_as_uint(from[0].y), __float_as_uint(from[0].z),
                           __float_as_uint(from[0].w), __float_as_uint(from[1].x), __float_as_uint(from[1].y),
                           __float_as_uint(from[1].z), __float_as_uint(from[1].w)};
    float even[4], odd[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        even[i] = __uint_as_float(__byte_perm(w[2 * i], w[2 * i + 1], 0x5410));
        odd[i] = __uint_as_float(__byte_perm(w[2 * i], w[2 * i + 1], 0x7632));
    }
    to[0] = make_float4(even[0], even[1], even[2], even[3]);
    to[1] = make_float4(odd[0], odd[1], odd[2], odd[3]);
}

// Two chunks of a query's row, permuted; zeros where not `valid`.
template <int pitch>
__device__ __forceinline__ void mla_copy_permuted(unsigned to, unsigned row, unsigned chunk, const unsigned short *from, bool valid)
{
    float4 x[2] = {make_float4(0.f, 0.f, 0.f, 0.f), make_float4(0.f, 0.f, 0.f, 0.f)}, y[2];
    if (valid) {
        x[0] = load_global_16<false>(reinterpret_cast<const float *>(from));
        x[1] = load_global_16<false>(reinterpret_cast<const float *>(from + 8));
    }
    mla_permute_query(x, y);
    store_shared(swizzled<pitch>(to, row, chunk), y[0]);
    store_shared(swizzled<pitch>(to, row, chunk + 1), y[1]);
}

// The queries of a piece, zeros where the tile has no row. Asynchronous but for 8-bit caches.
template <class S>
__device__ __forceinline__ void mla_copy_queries(const gen_mla_decode_params &p, const mla_work &w, unsigned memory)
{
    const unsigned lane = threadIdx.x % 8;
    const unsigned rope = memory + S::q_rope_at;
#pragma unroll 1
    for (unsigned row = threadIdx.x / 8; row < S::q; row += S::threads / 8) {
        const bool valid = row < static_cast<unsigned>(w.num_rows);
        const mla_row at(p, w.tokens, w.first_row<S>() + static_cast<int>(valid ? row : 0));
        const unsigned short *const nope = at.q_nope(p), *const pe = S::rope ? at.q_pe(p) : nope;
        if constexpr (S::e4m3) {
#pragma unroll
            for (unsigned chunk = 2 * lane; chunk < S::q_pitch / 16; chunk += 16)
                mla_copy_permuted<S::q_pitch>(memory, row, chunk, nope + chunk * 8, valid);
            if (S::rope && lane < 4)
                mla_copy_permuted<S::q_rope_pitch>(rope, row, 2 * lane, pe + lane * 16, valid);
        } else {
#pragma unroll
            for (unsigned chunk = lane; chunk < S::q_pitch / 16; chunk += 8)
                cp_async_16_or_zero(swizzled<S::q_pitch>(memory, row, chunk), nope + chunk * 8, valid);
            if (S::rope)
                cp_async_16_or_zero(swizzled<S::q_rope_pitch>(rope, row, lane), pe + lane * 8, valid);
        }
    }
}

// A thread's share of the tiles: a chunk in every `lanes` of one or two rows. The tile's pages are asked for first, and
// much later, when they are there, its rows; so a tile takes find(), then mla_tile_copy.
template <class S> struct mla_tile_copier {
    static constexpr int lanes = S::kv >= 32 ? 8 : 16;
    static constexpr int lines = S::threads / lanes, passes = S::kv / lines; // rows of a pass
    static constexpr int latent_chunks = S::pitch / 16 / lanes, rope_chunks = S::rope_pitch / 16;
    static constexpr int copies_per_row = latent_chunks + (S::rope ? 1 : 0), copies = passes * copies_per_row;
    static_assert(passes * lines == S::kv && rope_chunks <= lanes, "threads share a tile evenly");

    int page[passes]; // of the thread's rows; none: -1

    // The pages of the tile that starts at cache row `first`; behind the work's end there are none.
    __device__ __forceinline__ void find(const gen_mla_decode_params &p, const mla_work &work, unsigned thread, int first)
    {
        const int *const indices = work.pages;
        const int end = work.end;
#pragma unroll
        for (int u = 0; u < passes; u++) {
            const int row = first + u * lines + static_cast<int>(thread / lanes);
            const int there = min(row, end - 1); // an entry that may be read, without a branch
            page[u] = load_global(indices + mla_quotient(there, p.page_mul, p.page_shift));
            if (row >= end)
                page[u] = -1;
        }
    }
};

// The copies of one tile.
template <class S> struct mla_tile_copy {
    using C = mla_tile_copier<S>;
    const gen_mla_decode_params &p;
    const C &copier;
    unsigned stage, line, chunk;
    int first;
    const unsigned char *from;

    __device__ __forceinline__ mla_tile_copy(const gen_mla_decode_params &p, const C &copier, unsigned thread, unsigned stage,
                                             int first)
        : p(p), copier(copier), stage(stage), line(thread / C::lanes), chunk(thread % C::lanes), first(first), from(nullptr)
    {
    }

    // 16 bytes, number i of `copies`; in order.
    __device__ __forceinline__ void copy(int i)
    {
        const int u = i / C::copies_per_row, k = i % C::copies_per_row - (S::rope ? 1 : 0);
        const unsigned line_u = u * C::lines + line;
        const bool valid = static_cast<unsigned>(copier.page[u]) < p.num_pages;
        if (k <= 0) {
            const int row = first + static_cast<int>(line_u);
            const long long page = valid ? copier.page[u] : 0;
            const int page_row = row - static_cast<int>(mla_quotient(row, p.page_mul, p.page_shift)) * p.page_size;
            if (k < 0) { // rotary
                from = static_cast<const unsigned char *>(p.kpe) +
                       (page * p.kpe_page_stride + page_row * p.kpe_row_stride) * S::element_bytes + chunk * 16;
                if (C::rope_chunks == C::lanes || chunk < static_cast<unsigned>(C::rope_chunks))
                    cp_async_16_or_zero(swizzled<S::rope_pitch>(stage + S::rope_at, line_u, chunk), from, valid);
                return;
            }
            from = static_cast<const unsigned char *>(p.ckv) +
                   (page * p.ckv_page_stride + page_row * p.ckv_row_stride) * S::element_bytes + chunk * 16;
        }
        // A multiple of eight chunks further, the swizzle is the same.
        cp_async_16_or_zero(swizzled<S::pitch>(stage, line_u, chunk) + k * C::lanes * 16, from + k * C::lanes * 16, valid);
    }

    // The copies that fall to step `step` of `steps`.
    template <int steps> __device__ __forceinline__ void share(int step)
    {
#pragma unroll
        for (int i = 0; i < C::copies; i++)
            if (i >= step * C::copies / steps && i < (step + 1) * C::copies / steps)
                copy(i);
    }
};
