// The stream kernel of attn_paged: sizes, and where in shared memory things lie. Axes: element of queries and outputs, e4m3
// (of the cache), dim, rows (of a warp), team, warps, stages.
//
// `team` warps share their keys, each has `rows` packed rows; the block's warps / team teams have keys of their own.
#pragma once

#include "attn_paged/args.h"
#include "lib/half.cuh"

template <bool e4m3, class T> struct paged_operand {
    using type = T;
};
template <class T> struct paged_operand<true, T> {
    using type = fp16;
};

template <class A> struct paged_shape : A {
    using element = typename A::element;
    using operand = typename paged_operand<A::e4m3, element>::type; // of the products
    static constexpr int dim = A::dim, rows = A::rows, team = A::team, warps = A::warps, stages = A::stages;
    static constexpr int threads = 32 * warps, teams = warps / team, tile_rows = rows * team;
    static constexpr int element_bytes = A::e4m3 ? 1 : 2;
    static constexpr int pitch = dim * element_bytes; // of a key in shared memory
    static constexpr int keys = pitch >= 256 || rows * dim >= 4096 ? 16 : 32;
    static constexpr int steps = keys / 16;
    static constexpr int chunks = pitch / 16;
    static constexpr int row_tiles = rows < 16 ? 1 : rows / 16; // of m16n8k16, in products with keys
    static constexpr int halves = rows / 8;                     // of these, and row tiles of products with values
    static constexpr int dim_tiles = dim / 16;
    static constexpr int query_registers = rows < 16 ? 2 : 4; // of a step of 16 columns
    static constexpr bool keeps_queries = rows <= 16 && dim <= 128;
    static constexpr bool light = rows * dim <= 1024;    // registers are there for more at once
    static constexpr int chains = light ? 2 : 1;         // of products with keys
    static constexpr bool ahead = rows * dim <= 2048;    // the next piece's queries wait in registers
    static constexpr bool both_sums = rows * dim < 4096; // outputs are divided by the sum of what was multiplied
    static constexpr bool by_rows = rows * dim <= 2048;  // elsewhere registers are short
    // Copies: keys of one instruction of a team, and instructions.
    static constexpr int keys_a_pass = team * 32 / chunks, passes = keys / keys_a_pass;
    static_assert(chunks <= 32 && passes * keys_a_pass == keys, "a lane copies 16 bytes of a key");
    // Teams that add up columns in the end, and column tiles of each.
    static constexpr int owners = teams < dim_tiles ? teams : dim_tiles, own_tiles = dim_tiles / owners;

    static constexpr int stage_bytes = 2 * keys * pitch;
    static constexpr int exchange_at = teams * stages * stage_bytes;
    static constexpr int exchange_bytes = team * owners * (teams - 1) * own_tiles * 512;
    static constexpr int queries_at = exchange_at + exchange_bytes;
    static constexpr int control_at = queries_at + tile_rows * dim * 2;
};
