/*
 * Where elements lie in what the kernels of Kimi Delta Attention hand each other (kda_intra/args.h,
 * kda_scan/args.h): for the references and the tests.
 */
#ifndef GEN_REFERENCE_KDA_LAYOUT_H
#define GEN_REFERENCE_KDA_LAYOUT_H

#include <stdint.h>

/* Element of a tile of rows: w, qg, kg, A_qk. */
static inline int64_t gen__kda_tile_at(int64_t row, int64_t column)
{
    const int64_t chunk = column % 64 / 8 ^ row % 8;
    return column / 64 * 4096 + row * 64 + chunk * 8 + column % 8;
}

/* Element of u. */
static inline int64_t gen__kda_u_at(int64_t v, int64_t token)
{
    const int64_t fragment = v / 16 * 4 + token / 16;
    const int64_t lane = v % 8 * 4 + token % 8 / 2, word = v % 16 / 8 + token % 16 / 8 * 2;
    return (fragment * 32 + lane) * 8 + word * 2 + token % 2;
}

/* Element of what a segment adds, of one head: V x K, in 64s of V. */
static inline int64_t gen__kda_added_at(int64_t head_dim, int64_t v, int64_t k)
{
    const int64_t thread = v % 64 / 16 * 32 + v % 8 * 4 + k % 8 / 2;
    return v / 64 * 64 * head_dim + k / 8 * 512 + thread * 4 + v % 16 / 8 * 2 + k % 2;
}

/* Element of a transition's first part, of one head: row of M', column of M'; the rest lies a tile
 * of 64 * head_dim behind. */
static inline int64_t gen__kda_transition_at(int64_t head_dim, int64_t row, int64_t column)
{
    return row / 64 * 2 * 64 * head_dim + gen__kda_tile_at(row % 64, column);
}

#endif /* GEN_REFERENCE_KDA_LAYOUT_H */
