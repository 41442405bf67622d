// Kimi Delta Attention in one launch (one.cuh): what a block has in shared memory, and whose chunk it is.
#pragma once

#include "kda_inter/shape.cuh"
#include "kda_prefill/args.h"
#include "lib/ptx/mbarrier.cuh"

namespace kda_prefill {

constexpr int tokens = 16; // of a chunk here

// Exponents of decays within a chunk are between this and this - 115.4, so that neither a factor nor its inverse, times a key that is
// not normalised, leaves what bf16 and fp32 hold.
constexpr float anchor = 16.f, anchored = 65536.f; // 2^anchor

// A block has `groups` groups of four warps, with 64 rows of S' each, and four teams of two.
template <class element_, int groups_> struct shape {
    using element = element_;
    static constexpr int groups = groups_, head_dim = 128, stages = 1, teams = 4, threads = 128 * groups + 64 * teams;
    static constexpr int parts = head_dim / 64 / groups; // of a state
    static constexpr bool wgmma = true, segmented = false;

    // What a team loads of a chunk, of two in turn, by rows: a padded row begins in other banks than the ones before, so ldmatrix has no
    // conflicts. Then k's place has the columns of scores, and g's A_kk', fp32. Of fp16, scores have bf16 rows of their own: k's in
    // g's place, q's in q's.
    static constexpr int pitch = head_dim * 2 + 16, tile = tokens * pitch;
    static constexpr int q = 0, k = tile, v = 2 * tile, g = 3 * tile, lower = g + (tile + 255) / 256 * 256;
    static constexpr int g_pitch_fp32 = head_dim * 4, raw_bytes = g + tokens * g_pitch_fp32;
    // Rows of the recurrence are anchored if they are bf16.
    static constexpr float row_anchor = element::is_bf16 ? anchored : 1.f;
    // What it makes of a chunk, in cells of 64 channels: rows of 128 bytes, swizzled. Rows: 16 of k, 16 of q. The inverse is a sum of two
    // 16-bit numbers.
    static constexpr int cell = tokens * 128;
    // Of 64 channels each: columns lie behind the rows of the same, so a lane has one address for both.
    static constexpr int rows = 0, columns = 2 * cell, half = 3 * cell;
    static constexpr int inverse = 2 * half, scores = inverse + 1024, decay = scores + 512;
    static constexpr int operand_bytes = (decay + head_dim * 4 + 1023) / 1024 * 1024;

    static constexpr int operands = 2 * teams * raw_bytes;
    static constexpr int outputs =
        operands + teams * operand_bytes; // 512 bytes a warp of the groups, of which there may be 8
    // 1 / |k|, and scale / |q|, of two chunks in turn, of each team.
    static constexpr int k_norms = outputs + 8 * 512, q_norms = k_norms + teams * 64;
    // Full and empty in alternation; a number; whether what a team loads is there.
    static constexpr int barriers = q_norms + teams * 128, loaded = barriers + 96;
    static constexpr int shared = barriers + 128;
    static_assert(operands % 1024 == 0 && raw_bytes % 128 == 0 && lower + 1024 <= raw_bytes,
                  "aligned, and there is room");
};

template <class S> struct block {
    unsigned base; // shared address
    kda_sequence sequence;
    int n, head, part; // sequence, head, which rows of S'

    __device__ __forceinline__ int chunks() const { return (sequence.length + tokens - 1) / tokens; }
    __device__ __forceinline__ unsigned raw(int team, int turn) const
    {
        return base + (2 * team + turn) * S::raw_bytes;
    }
    __device__ __forceinline__ unsigned operands(int team) const
    {
        return base + S::operands + team * S::operand_bytes;
    }
    __device__ __forceinline__ unsigned k_norms(int team) const { return base + S::k_norms + team * 64; }
    __device__ __forceinline__ unsigned q_norms(int team, int turn) const
    {
        return base + S::q_norms + (2 * team + turn) * 64;
    }
    __device__ __forceinline__ unsigned loaded(int team) const { return base + S::loaded + team * 8; }
    __device__ __forceinline__ unsigned full(int team) const { return base + S::barriers + team * 16; }
    __device__ __forceinline__ unsigned empty(int team) const { return base + S::barriers + team * 16 + 8; }
};

// 16 bytes of a row, of what a team loads, and of what it makes.
template <class S> __device__ __forceinline__ unsigned raw_at(unsigned base, int row, int chunk)
{
    return base + row * S::pitch + chunk * 16;
}

template <class S> __device__ __forceinline__ unsigned chunk_at(unsigned base, int row, int chunk)
{
    return base + chunk / 8 * S::half + row * 128 + ((chunk ^ row) % 8 << 4);
}

} // namespace kda_prefill
