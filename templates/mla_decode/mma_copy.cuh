// The portable kernel of mla_decode: what comes from global memory, and where in shared memory it goes.
#pragma once

#include "mla_decode/mma_shape.cuh"
#include "mla_decode/rows.cuh"
#include "mla_decode/schedule.cuh"
#include "lib/divide.cuh"
#include "lib/ptx/cp_async.cuh"
#include "lib/ptx/ldst.cuh"
#include "lib/swizzle.cuh"

// A block's share of a piece: packed rows of its row tile, tiles of the cache. It stays in shared memory and is read from
// there in every tile, because registers are scarce.
struct mla_work {
    mla_piece piece;
    mla_tokens tokens;
    const int *pages; // of the request
    int num_rows;     // 0: there is nothing left
    int first, end;   // cache rows of the tiles. What lies at `end` and behind is zero in shared memory
    int whole;        // all rows of the tile may see the cache's rows before this
    mla_cut behind;   // where the next piece begins

    // Becomes the next piece of the part that has rows here, beginning at `from`. All threads compute it, so that
    // branches are uniform; the first one writes.
    template <class S>
    __device__ __forceinline__ void advance(const gen_mla_decode_params &p, const mla_share &share, mla_cut from)
    {
        mla_walk walk(share, static_cast<int>(blockIdx.y));
        walk.next = uniform_cut(from);
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
__device__ __forceinline__ void mla_copy_permuted(unsigned to, unsigned row, unsigned chunk, const unsigned short *from,
                                                  bool valid)
{
    float4 x[2] = {make_float4(0.f, 0.f, 0.f, 0.f), make_float4(0.f, 0.f, 0.f, 0.f)}, y[2];
    if (valid) {
        x[0] = ld_global_v4_f32<false>(reinterpret_cast<const float *>(from));
        x[1] = ld_global_v4_f32<false>(reinterpret_cast<const float *>(from + 8));
    }
    mla_permute_query(x, y);
    st_shared_v4_f32(swizzled<pitch>(to, row, chunk), y[0]);
    st_shared_v4_f32(swizzled<pitch>(to, row, chunk + 1), y[1]);
}

// The queries of a piece, zeros where the tile has no row. Asynchronous but for 8-bit caches.
template <class S>
__device__ __forceinline__ void mla_copy_queries(const gen_mla_decode_params &p, const mla_work &w, unsigned thread,
                                                 unsigned memory)
{
    const unsigned lane = thread % 8;
    const unsigned rope = memory + S::q_rope_at;
#pragma unroll 1
    for (unsigned row = thread / 8; row < S::q; row += S::score_threads / 8) {
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

// A thread's share of the tiles: a chunk in every `lanes` of one or two rows. The tile's page numbers are loaded first, and
// much later, when they are there, its rows (mla_tile_copy).
template <class S> struct mla_tile_pages {
    static constexpr int lanes = S::kv >= 32 ? 8 : 16;
    static constexpr int lines = S::output_threads / lanes, passes = S::kv / lines; // rows of a pass
    static_assert(passes * lines == S::kv, "threads share a tile evenly");

    int page[passes]; // of the thread's rows; none: -1

    // Of the tile that starts at cache row `first`; behind the work's end there are none.
    __device__ __forceinline__ void find(const gen_mla_decode_params &p, const mla_work &work, unsigned thread,
                                         int first)
    {
        const int *const indices = work.pages;
        const int end = work.end;
#pragma unroll
        for (int u = 0; u < passes; u++) {
            const int row = first + u * lines + static_cast<int>(thread / lanes);
            page[u] = -1;
            if (row < end)
                page[u] = ld_global(indices + quotient_or_shift(row, p.page_mul, p.page_shift));
        }
    }
};

// The copies of one tile, a few at a time: rotary(), then latent() `groups` times, each in `slices`.
template <class S, int groups> struct mla_tile_copy {
    using pages = mla_tile_pages<S>;
    static constexpr int lanes = pages::lanes, passes = pages::passes;
    static constexpr int rope_chunks = S::rope_pitch / 16, chunks = S::pitch / 16 / lanes;
    // A group's chunks of a row.
    static constexpr int each = chunks > groups ? chunks / groups : 1, busy = chunks / each;
    static_assert(rope_chunks <= lanes && busy * each == chunks && busy <= groups, "groups share a row evenly");

    const unsigned char *latents[passes], *rotary_keys[passes];
    bool valid[passes];
    unsigned to, to_rope;

    // `first` is the cache row that the tile starts with.
    __device__ __forceinline__ mla_tile_copy(const gen_mla_decode_params &p, const pages &found, unsigned thread,
                                             unsigned stage, int first)
    {
        const unsigned line = thread / lanes, chunk = thread % lanes;
#pragma unroll
        for (int u = 0; u < passes; u++) {
            valid[u] = static_cast<unsigned>(found.page[u]) < p.num_pages;
            const long long page = valid[u] ? found.page[u] : 0;
            const int row = first + u * pages::lines + static_cast<int>(line);
            const int place = row - static_cast<int>(quotient_or_shift(row, p.page_mul, p.page_shift)) * p.page_size;
            latents[u] = static_cast<const unsigned char *>(p.ckv) +
                         (page * p.ckv_page_stride + place * p.ckv_row_stride) * S::element_bytes + chunk * 16;
            if (S::rope)
                rotary_keys[u] = static_cast<const unsigned char *>(p.kpe) +
                                 (page * p.kpe_page_stride + place * p.kpe_row_stride) * S::element_bytes + chunk * 16;
        }
        to = swizzled<S::pitch>(stage, line, chunk);
        to_rope = rope_chunks == lanes || chunk < static_cast<unsigned>(rope_chunks)
                      ? swizzled<S::rope_pitch>(stage + S::rope_at, line, chunk)
                      : 0; // not this thread's
    }

    __device__ __forceinline__ void rotary(int slice, int slices) const
    {
        if constexpr (S::rope)
#pragma unroll
            for (int u = 0; u < passes; u++)
                if (u * slices / passes == slice && (rope_chunks == lanes || to_rope))
                    cp_async_16_or_zero(to_rope + u * pages::lines * S::rope_pitch, rotary_keys[u], valid[u]);
    }

    __device__ __forceinline__ void latent(int group, int slice, int slices) const
    {
        if (busy < groups && group >= busy)
            return;
            // A multiple of eight chunks further, the swizzle is the same.
#pragma unroll
        for (int i = 0; i < passes * each; i++)
            if (i * slices / (passes * each) == slice)
                cp_async_16_or_zero(to + i / each * pages::lines * S::pitch + i % each * lanes * 16,
                                    latents[i / each] + i % each * lanes * 16, valid[i / each]);
    }

    // Behind a group.
    __device__ __forceinline__ void advance()
    {
        to += each * lanes * 16;
#pragma unroll
        for (int u = 0; u < passes; u++)
            latents[u] += each * lanes * 16;
    }

    __device__ __forceinline__ void all()
    {
        rotary(0, 1);
#pragma unroll
        for (int group = 0; group < groups; group++) {
            latent(group, 0, 1);
            advance();
        }
    }
};

// A tile that is not copied.
struct mla_no_copy {
    __device__ __forceinline__ void rotary(int, int) const {}
    __device__ __forceinline__ void latent(int, int, int) const {}
    __device__ __forceinline__ void advance() const {}
};
