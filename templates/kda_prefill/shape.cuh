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

// A block has `groups` groups of four warps, with 64 rows of S' each, and four teams of two. Two blocks may be a `pair`: a cluster whose
// blocks have one group and three teams each, which make every other chunk's operands and copy them to the other block.
template <class element_, int groups_, bool pair_> struct shape {
    using element = element_;
    static constexpr bool pair = pair_, wgmma = true, segmented = false, pooled = false;
    static constexpr int groups = groups_, head_dim = 128, stages = 1;
    static constexpr int teams = pair ? 3 : 4, makers = pair ? 2 * teams : teams; // of a block; of a state's chunks
    static constexpr int threads = 128 * groups + 64 * teams;
    static constexpr int parts = head_dim / 64 / groups; // of a state

    // What a team loads of a chunk, of two in turn, by rows: a padded row begins in other banks than the ones before, so ldmatrix has no
    // conflicts. Of a pair v is in halves. Then k's place has the columns of scores, and g's A_kk', fp32. Of fp16, scores have bf16 rows
    // of their own: k's in g's place, q's in q's.
    static constexpr int pitch = head_dim * 2 + 16, tile = tokens * pitch;
    static constexpr int v_row = pair ? head_dim : head_dim * 2 / parts; // bytes
    static constexpr int v_pitch = pair ? v_row + 16 : pitch, v_half = tokens * v_pitch;
    static constexpr int q = 0, k = tile, v = 2 * tile, g = v + (pair ? 2 : 1) * v_half;
    static constexpr int g_pitch_fp32 = head_dim * 4, lower = g + (tile + 255) / 256 * 256;
    static constexpr int raw_bytes = g + tokens * g_pitch_fp32;
    // Rows of the recurrence are anchored if they are bf16.
    static constexpr float row_anchor = element::is_bf16 ? anchored : 1.f;
    // What it makes of a chunk, in cells of 64 channels: rows of 128 bytes, swizzled. Rows: 16 of k, 16 of q. Columns lie behind the
    // rows of the same channels, so a lane has one address for both. The inverse is a sum of two 16-bit numbers.
    static constexpr int cell = tokens * 128;
    static constexpr int rows = 0, columns = 2 * cell, half = 3 * cell;
    static constexpr int inverse = 2 * half, scores = inverse + 1024, decay = scores + 512;
    static constexpr int norms = decay + head_dim * 4, made_bytes = norms + (pair ? tokens * 4 : 0);
    static constexpr int operand_bytes = (made_bytes + 1023) / 1024 * 1024;

    // The other block's operands lie behind the own ones.
    static constexpr int operands = 2 * teams * raw_bytes, v_copies = operands + makers * operand_bytes;
    static constexpr int outputs = v_copies + (pair ? teams * v_half : 0); // 512 bytes a warp of the groups
    // 1 / |k|, and scale / |q|, of two chunks in turn, of each team.
    static constexpr int k_norms = outputs + groups * 4 * 512, q_norms = k_norms + teams * 64;
    // Of each place of operands whether it is full and empty; whether what a team loads is there; a number.
    static constexpr int handover = q_norms + teams * 128, loaded = handover + makers * 16;
    static constexpr int number = loaded + teams * 8, barriers = number - 64; // as kda_inter names it
    static constexpr int shared = number + 8;
    static_assert(operands % 1024 == 0 && raw_bytes % 128 == 0 && lower + 1024 <= raw_bytes && k_norms % 16 == 0,
                  "aligned, and there is room");
};

template <class S> struct block {
    unsigned base; // shared address
    kda_sequence sequence;
    int n, head, part; // sequence, head, which rows of S'

    __device__ __forceinline__ int chunks() const { return (sequence.length + tokens - 1) / tokens; }
    __device__ __forceinline__ int first_chunk(int team) const { return S::pair ? 2 * team + part : team; }
    __device__ __forceinline__ unsigned raw(int team, int turn) const
    {
        return base + (2 * team + turn) * S::raw_bytes;
    }
    __device__ __forceinline__ unsigned operands(int place) const
    {
        return base + S::operands + place * S::operand_bytes;
    }
    __device__ __forceinline__ unsigned k_norms(int team) const { return base + S::k_norms + team * 64; }
    __device__ __forceinline__ unsigned q_norms(int team, int turn) const
    {
        return base + S::q_norms + (2 * team + turn) * 64;
    }
    __device__ __forceinline__ unsigned v_copy(int team) const { return base + S::v_copies + team * S::v_half; }
    __device__ __forceinline__ unsigned loaded(int team) const { return base + S::loaded + team * 8; }
    __device__ __forceinline__ unsigned full(int place) const { return base + S::handover + place * 16; }
    __device__ __forceinline__ unsigned empty(int place) const { return base + S::handover + place * 16 + 8; }
};

// What the recurrence takes of a chunk, and whose it is.
template <class S> struct handed {
    int team, turn;
    bool own; // made in this block
    unsigned operands, values, norms, full;

    __device__ __forceinline__ handed(const block<S> &b, int chunk)
    {
        if constexpr (S::pair) {
            team = chunk / 2 % S::teams, turn = chunk / S::makers % 2, own = chunk % 2 == b.part;
            const int place = own ? team : S::teams + team;
            operands = b.operands(place), full = b.full(place), norms = operands + S::norms;
            values = own ? b.raw(team, turn) + S::v + b.part * S::v_half : b.v_copy(team);
        } else {
            team = chunk % S::teams, turn = chunk / S::teams % 2, own = true;
            operands = b.operands(team), full = b.full(team), norms = b.q_norms(team, turn);
            values = b.raw(team, turn) + S::v;
        }
    }
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
