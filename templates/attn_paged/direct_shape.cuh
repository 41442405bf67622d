// The direct kernel of attn_paged: sizes, and where in shared memory things lie. What tile.cuh, queries.cuh and end.cuh ask
// of a shape, with a warp for each team. Axes: those of shape.cuh, cluster (blocks of a cluster), keys (of a tile).
#pragma once

#include "attn_paged/shape.cuh"

template <class A> struct direct_shape : A {
    using element = typename A::element;
    using operand = typename paged_operand<A::e4m3, element>::type; // of the products
    static constexpr int dim = A::dim, rows = A::rows, team = 1, warps = A::warps, stages = A::stages, keys = A::keys;
    static constexpr int threads = 32 * warps, teams = warps, tile_rows = rows, cluster = A::cluster;
    static constexpr int element_bytes = A::e4m3 ? 1 : 2;
    static constexpr int pitch = dim * element_bytes; // of a key in shared memory
    static constexpr int steps = keys / 16, chunks = pitch / 16;
    static constexpr int row_tiles = rows < 16 ? 1 : rows / 16; // of m16n8k16, in products with keys
    static constexpr int halves = rows / 8;                     // of these, and row tiles of products with values
    static constexpr int dim_tiles = dim / 16;
    static constexpr int query_registers = rows < 16 ? 2 : 4; // of a step of 16 columns
    static constexpr bool keeps_queries = rows <= 16 && dim <= 128;
    static constexpr bool light = rows * dim <= 1024; // registers are there for more at once
    static constexpr int chains = light ? 2 : 1;      // of products with keys
    static constexpr bool both_sums = true, by_rows = true;
    // Copies: keys of one instruction of a warp, and instructions.
    static constexpr int keys_a_pass = 32 / chunks, passes = keys / keys_a_pass;
    static_assert(chunks <= 32 && passes * keys_a_pass == keys, "a lane copies 16 bytes of a key");
    // Warps that add up columns in the end, and column tiles of each.
    static constexpr int owners = teams < dim_tiles ? teams : dim_tiles, own_tiles = dim_tiles / owners;
    // What the blocks of a cluster add up: for each column tile and half of the rows 32 lanes' four numbers, a part of them
    // in each block. A place is a lane's two numbers of one row.
    static constexpr int block_items = dim_tiles * halves * 32 / cluster, places = 2 * block_items;

    static constexpr int stage_bytes = 2 * keys * pitch;
    static constexpr int exchange_at = 0; // in the end no tile is under way, and none is read
    static constexpr int exchange_bytes = owners * (teams - 1) * own_tiles * 512;
    static constexpr int queries_at = teams * stages * stage_bytes;
    static_assert(exchange_bytes <= queries_at, "warps exchange their outputs where the rings were");
    static constexpr int parts_at = queries_at + tile_rows * dim * 2; // the cluster's blocks' items
    static constexpr int sums_at = parts_at + (cluster > 1 ? cluster * block_items * 16 : 0);
    static constexpr int barrier_at = sums_at + (cluster > 1 ? cluster * tile_rows * 16 : 0);
    static constexpr int control_at = barrier_at + (cluster > 1 ? 16 : 0);
    static constexpr int arriving_bytes = cluster * (block_items + tile_rows) * 16;
};
