// The portable kernel of mla_decode: what follows from a variant's axes, and who of the eight warps does what.
//
// A block has two divisions of labour. For the scores of a tile (q x kv) its warps are a grid of row groups x column groups,
// and with `shard` two parts, each of which multiplies half of the 576 columns: that way a warp has scores enough to use
// each fragment several times, and queries and keys are read from shared memory half as often. The parts add up through
// shared memory, each for half of the pair's scores, which it then owns. For the output the warps are slabs of rows x
// column groups. With `roles` the scores are four warps' own, which have all 576 columns, and the output is the other eight's.
#pragma once

#include "mla_decode/args.h"

// `A` has the axes: q, kv, stages, slab, shard, e4m3, rope, overlay, roles, and the type `element`.
template <class A> struct mla_shape {
    using element = typename A::element;
    static constexpr int q = A::q, kv = A::kv, stages = A::stages, slab = A::slab;
    static constexpr bool shard = A::shard, e4m3 = A::e4m3, rope = A::rope;
    static constexpr bool overlay = A::overlay; // half of the scores that travel lie over the tile's rotary keys
    static constexpr bool roles = A::roles;     // mla_decode_mma_roles.cu.in
    static constexpr int warps = 8, output_threads = 32 * warps; // these copy, too
    static constexpr int score_threads = roles ? 128 : output_threads, threads = roles ? 384 : output_threads;

    // Shared memory: queries (latent, rotary), stages (latent, rotary each), scores that travel or probabilities.
    static constexpr int element_bytes = e4m3 ? 1 : 2; // of the cache
    static constexpr int q_pitch = MLA_LATENT * 2, q_rope_pitch = MLA_ROPE * 2;
    static constexpr int pitch = MLA_LATENT * element_bytes, rope_pitch = MLA_ROPE * element_bytes;
    static constexpr int q_rope_at = q * q_pitch, q_bytes = q_rope_at + (rope ? q * q_rope_pitch : 0);
    static constexpr int rope_at = kv * pitch, stage_bytes = rope_at + (rope ? kv * rope_pitch : 0);
    static constexpr int exchange_at = q_bytes + stages * stage_bytes;
    static constexpr int exchange_bytes = shard ? q * kv * (overlay || roles ? 2 : 4) : 0;
    static constexpr int control_at = exchange_at + exchange_bytes;

    // Scores. Fragments are 16 rows, 8 columns, 16 deep.
    static constexpr int parts = shard && !roles ? 2 : 1;
    static constexpr int row_groups = shard ? (q == 16 ? 1 : 2) : q / slab;
    static constexpr int column_groups = shard ? score_threads / 32 / (parts * row_groups) : 1;
    static constexpr int rows = q / row_groups, columns = kv / column_groups; // of a warp
    static constexpr int row_tiles = rows / 16, column_tiles = columns / 8;
    static constexpr int rope_steps = rope ? MLA_ROPE / 16 / parts : 0, latent_steps = MLA_LATENT / 16 / parts;
    // Steps along 128 bytes of keys.
    static constexpr int group = 128 / (16 * element_bytes), groups = latent_steps / group;
    // Sums in turn, lest each product waits for the last.
    static constexpr int chains = row_tiles * column_tiles < 4 ? 2 : 1;
    static constexpr int span = e4m3 || column_tiles == 1 ? 2 : 1; // steps that one ldmatrix of keys covers
    static constexpr int loads = (column_tiles + 1) / 2;           // of them a span

    // Of these a warp owns one row tile (with roles, all) of `own_tiles` column tiles: its first ones, as it numbers them.
    // The parts share the row tiles, else the column tiles.
    static constexpr bool by_rows = parts == 2 && row_tiles == 2;
    static constexpr int own_tiles = parts == 1 || by_rows ? column_tiles : (column_tiles > 1 ? column_tiles / 2 : 1);
    static constexpr int owners = shard ? kv / (8 * own_tiles) : 1; // of a row

    // Output.
    static constexpr int slabs = q / slab, output_groups = warps / slabs;
    static constexpr int slab_tiles = slab / 16, output_columns = MLA_LATENT / output_groups,
                         output_tiles = output_columns / 8;
    static constexpr int output_span = e4m3 ? 4 : 2; // tiles that one ldmatrix of values covers
    static constexpr int p_pitch = kv * 2;

    static_assert(shard ? row_tiles <= 2 && kv >= 32 : slab == 16, "a warp owns 16 rows of scores, or with roles 32");
    static_assert(!e4m3 || column_tiles % 2 == 0, "fragments of 8-bit keys are 16 columns wide");
    static_assert(!overlay || (rope && !e4m3 && q >= 32), "half of the scores are at most as large as the rotary keys");
    static_assert(slabs * output_groups == warps && slab_tiles * output_tiles <= 32, "128 registers of output at most");
};

// Named barriers; 0 is the whole block.
constexpr int mla_pair_barrier = 1;    // + pair
constexpr int mla_overlay_barrier = 5; // + column group
// With roles: the warps of one role meet.
constexpr int mla_scores_barrier = 7, mla_output_barrier = 8;

// A warp's places in both divisions of labour. With roles `thread` counts within a role, and one of the places is
// meaningless.
template <class S> struct mla_warp {
    unsigned lane, part, pair, row_group, column_group; // pair: the warps of both parts with the same scores
    unsigned row, column;                               // first of the scores that it owns
    unsigned owner;                                     // its number among the owners of its rows
    bool owns;
    unsigned slab, output_group;

    __device__ __forceinline__ explicit mla_warp(unsigned thread)
    {
        const unsigned warp = thread / 32;
        lane = thread % 32;
        slab = warp % S::slabs;
        output_group = warp / S::slabs;
        if constexpr (S::roles) {
            part = pair = 0;
            row_group = warp % S::row_groups;
            owner = column_group = warp / S::row_groups;
            owns = true;
            row = row_group * S::rows;
        } else if constexpr (S::shard) {
            // Warps w and w + 4 share a scheduler: where one part has nothing to own, the other has it all.
            part = warp / 4;
            pair = warp % 4;
            row_group = pair % S::row_groups;
            column_group = pair / S::row_groups;
            owns = S::by_rows || S::column_tiles > 1 || part == 0;
            row = row_group * S::rows + (S::by_rows ? part * 16 : 0);
            owner = S::by_rows || S::column_tiles == 1 ? column_group : 2 * column_group + part;
        } else {
            part = pair = column_group = owner = 0;
            row_group = slab;
            owns = true;
            row = row_group * S::rows;
        }
        column = owner * S::own_tiles * 8;
    }

    // Tiles as the warp numbers them, its own ones first, to tiles of its rows and columns.
    __device__ __forceinline__ unsigned row_tile(unsigned m) const { return S::by_rows ? m ^ part : m; }

    __device__ __forceinline__ unsigned column_tile(unsigned n) const
    {
        return S::parts == 2 && !S::by_rows && S::column_tiles > 1 ? n ^ (part * (S::column_tiles / 2)) : n;
    }
};
