// The portable kernel of mla_sparse: what comes from global memory, and which of a tile's rows there are. Queries are copied
// as mla_decode does it (mla_decode/mma_copy.cuh), and a block's share of a list is its struct, too.
#pragma once

#include "mla_sparse/ds_row.cuh"
#include "mla_sparse/rows.cuh"
#include "mla_decode/mma_copy.cuh"

// Becomes the next piece of the part that has rows here, beginning at `from`; the first thread writes it. `end` is where the
// list's entries end, `pages` the list.
template <class S>
__device__ __forceinline__ void sparse_advance(const gen_mla_sparse_params &p, const mla_share &share, mla_cut from,
                                               mla_work &to)
{
    sparse_walk walk(share, static_cast<int>(blockIdx.y));
    walk.next = uniform_cut(from);
    mla_piece next;
    const int count = min(p.decode.num_heads - to.first_row<S>(), S::q);
    const bool there = walk.step(p, next) && count > 0;
    if (threadIdx.x != 0)
        return;
    to.num_rows = there ? count : 0;
    if (!there)
        return;
    to.behind = walk.next;
    to.piece = next;
    to.tokens = {next.request, 1};
    to.pages = sparse_list(p, next.request);
    to.first = next.first * MLA_BLOCK;
    to.whole = 0;
    to.end = min(next.last * MLA_BLOCK, next.kv_len);
}

// Which rows of the tiles under way count.
template <class S> struct sparse_counts {
    static constexpr int slots = S::stages + 1; // entries are loaded a tile before there is room for their rows
    unsigned char row[slots][S::kv];

    // Of the tile that starts at entry `first`.
    static __device__ __forceinline__ int slot(int first) { return first / S::kv % slots; }
};

// A thread's share of the tiles' rows. Entries are loaded first, and much later, when they are there, the rows.
template <class S> struct sparse_entries {
    using pages = mla_tile_pages<S>;
    static constexpr int lanes = pages::lanes, lines = pages::lines, passes = pages::passes;

    int entry[passes]; // of the thread's rows; none: -1

    // Of the tile that starts at entry `first`; behind the work's end there are none.
    __device__ __forceinline__ void find(const gen_mla_sparse_params &p, const mla_work &work, unsigned thread,
                                         int first, sparse_counts<S> &counts)
    {
#pragma unroll
        for (int u = 0; u < passes; u++) {
            const int row = u * lines + static_cast<int>(thread / lanes);
            entry[u] = sparse_entry(p, work.pages, first + row, work.end);
            if (thread % lanes == 0)
                counts.row[sparse_counts<S>::slot(first)][row] = entry[u] >= 0;
        }
    }
};

// The copies of one tile, a few at a time, as those of mla_tile_copy.
template <class S, int groups> struct sparse_tile_copy {
    using entries = sparse_entries<S>;
    static constexpr int lanes = entries::lanes, passes = entries::passes;
    static constexpr int rope_chunks = S::rope_pitch / 16, chunks = S::pitch / 16 / lanes;
    static constexpr int each = chunks > groups ? chunks / groups : 1,
                         busy = chunks / each; // a group's chunks of a row
    static_assert(rope_chunks <= lanes && busy * each == chunks && busy <= groups, "groups share a row evenly");

    const unsigned char *row[passes];
    bool valid[passes];
    unsigned to, to_rope;

    __device__ __forceinline__ sparse_tile_copy(const gen_mla_sparse_params &p, const entries &found, unsigned thread,
                                                unsigned stage)
    {
        const unsigned line = thread / lanes, chunk = thread % lanes;
#pragma unroll
        for (int u = 0; u < passes; u++) {
            valid[u] = found.entry[u] >= 0;
            row[u] = sparse_row<2>(p, found.entry[u]) + chunk * 16;
        }
        to = swizzled<S::pitch>(stage, line, chunk);
        to_rope = rope_chunks == lanes || chunk < static_cast<unsigned>(rope_chunks)
                      ? swizzled<S::rope_pitch>(stage + S::rope_at, line, chunk)
                      : 0; // not this thread's
    }

    // Before the latent's groups: it stands behind all of them.
    __device__ __forceinline__ void rotary(int slice, int slices) const
    {
        if constexpr (S::rope)
#pragma unroll
            for (int u = 0; u < passes; u++)
                if (u * slices / passes == slice && (rope_chunks == lanes || to_rope))
                    cp_async_16_or_zero(to_rope + u * entries::lines * S::rope_pitch, row[u] + S::pitch, valid[u]);
    }

    __device__ __forceinline__ void latent(int group, int slice, int slices) const
    {
        if (busy < groups && group >= busy)
            return;
            // A multiple of eight chunks further, the swizzle is the same.
#pragma unroll
        for (int i = 0; i < passes * each; i++)
            if (i * slices / (passes * each) == slice)
                cp_async_16_or_zero(to + i / each * entries::lines * S::pitch + i % each * lanes * 16,
                                    row[i / each] + i % each * lanes * 16, valid[i / each]);
    }

    // Behind a group.
    __device__ __forceinline__ void advance()
    {
        to += each * lanes * 16;
#pragma unroll
        for (int u = 0; u < passes; u++)
            row[u] += each * lanes * 16;
    }
};

// A tile of whole rows of 16 bits.
template <class S>
__device__ __forceinline__ void sparse_copy_tile(const gen_mla_sparse_params &p, const sparse_entries<S> &found,
                                                 unsigned thread, unsigned stage)
{
    sparse_tile_copy<S, 1> copy(p, found, thread, stage);
    copy.rotary(0, 1);
    copy.latent(0, 0, 1);
}

// A tile of 656-byte rows: the rotary part is copied, eight elements of the latent at a time are loaded, converted and stored.
template <class S>
__device__ __forceinline__ void sparse_convert_tile(const gen_mla_sparse_params &p, const sparse_entries<S> &found,
                                                    unsigned thread, unsigned stage)
{
    using entries = sparse_entries<S>;
    constexpr int lanes = entries::lanes, chunks = MLA_LATENT / 8 / lanes; // of eight elements
    const unsigned line = thread / lanes, chunk = thread % lanes;
#pragma unroll 1
    for (int u = 0; u < entries::passes; u++) {
        const bool valid = found.entry[u] >= 0;
        const unsigned char *const row = sparse_row<1>(p, found.entry[u]);
        if (S::rope && chunk < 8)
            cp_async_16_or_zero(swizzled<S::rope_pitch>(stage + S::rope_at, u * entries::lines + line, chunk),
                                row + MLA_SPARSE_ROPE_AT + chunk * 16, valid);
        uint2 bytes[chunks];
        float4 scales = make_float4(0.f, 0.f, 0.f, 0.f);
        if (valid)
            scales = ld_global_v4_f32<false>(reinterpret_cast<const float *>(row + MLA_SPARSE_SCALES_AT));
#pragma unroll
        for (int i = 0; i < chunks; i++) {
            bytes[i] = make_uint2(0, 0);
            if (valid)
                bytes[i] = ld_global_v2_u32(row + (i * lanes + chunk) * 8);
        }
        const float scale[4] = {scales.x, scales.y, scales.z, scales.w};
        const unsigned to = swizzled<S::pitch>(stage, u * entries::lines + line, chunk);
#pragma unroll
        for (int i = 0; i < chunks; i++) {
            unsigned x[4];
            ds_elements(bytes[i].x, scale[i * lanes * 8 / MLA_SPARSE_GROUP], x[0], x[1]);
            ds_elements(bytes[i].y, scale[i * lanes * 8 / MLA_SPARSE_GROUP], x[2], x[3]);
            st_shared_v4_u32(to + i * lanes * 16, x[0], x[1], x[2], x[3]);
        }
    }
}

// Scores to base 2, -infinity where their rows do not count, and the greatest ones.
template <class S>
__device__ __forceinline__ void sparse_scale(const gen_mla_sparse_params &p, const sparse_counts<S> &counts,
                                             unsigned column, int first, float (&s)[S::column_tiles][4])
{
    const unsigned char *const its = counts.row[sparse_counts<S>::slot(first)] + column;
#pragma unroll
    for (int n = 0; n < S::own_tiles; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            s[n][i] = its[8 * n + i % 2] ? s[n][i] * p.decode.scale_log2 : minus_infinity();
}
