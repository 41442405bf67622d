// Where sequences and their chunks lie (kda_intra/args.h). cu_seqlens may hold anything: no token is outside of num_tokens,
// and no sequence longer than seq_len.
#pragma once

#include "kda_intra/args.h"
#include "lib/divide.cuh"
#include "lib/ptx/ldst.cuh"

struct kda_sequence {
    int first, length; // tokens
    int slot;          // of its first chunk

    __device__ __forceinline__ int chunks() const { return (length + KDA_CHUNK - 1) / KDA_CHUNK; }
};

__device__ __forceinline__ int kda_first_token(const gen_kda_sequences &s, int n)
{
    return min(max(ld_global(s.cu_seqlens + n), 0), s.num_tokens);
}

__device__ __forceinline__ kda_sequence kda_sequence_at(const gen_kda_sequences &s, int n)
{
    kda_sequence at;
    if (s.cu_seqlens) {
        at.first = kda_first_token(s, n);
        at.length = min(max(kda_first_token(s, n + 1) - at.first, 0), s.seq_len);
        at.slot = at.first / KDA_CHUNK + n;
    } else {
        at.first = n * s.seq_len;
        at.length = s.seq_len;
        at.slot = n * at.chunks();
    }
    return at;
}

// Slots of what sequences have ascend with the sequences, so the sequence of a slot is the last one whose first(n) is not
// behind it: lanes try 32 at a time.
template <class First> __device__ __forceinline__ int kda_sequence_of(const gen_kda_sequences &s, int slot, First first)
{
    int n = 0, count = s.batch; // candidates n to n + count - 1
    while (count > 1) {
        const int step = (count + 31) / 32, lane = threadIdx.x % 32, at = n + lane * step;
        const bool before = lane * step < count && first(at) <= slot;
        const unsigned votes = __ballot_sync(0xffffffffu, before);
        const int last = votes ? 31 - __clz(votes) : 0;
        n += last * step;
        count = min(step, count - last * step);
    }
    return n;
}

struct kda_chunk {
    int first, rows; // tokens; rows <= 0: no chunk has this slot
};

__device__ __forceinline__ kda_chunk kda_chunk_at(const gen_kda_sequences &s, int slot)
{
    int n;
    if (s.cu_seqlens)
        n = kda_sequence_of(s, slot, [&](int at) { return kda_first_token(s, at) / KDA_CHUNK + at; });
    else
        n = quotient(slot, s.chunks_mul, s.chunks_shift);
    const kda_sequence sequence = kda_sequence_at(s, n);
    const int row = (slot - sequence.slot) * KDA_CHUNK;
    return {sequence.first + row, row < 0 ? 0 : min(sequence.length - row, KDA_CHUNK)};
}

// Chunks of the sequences before the n-th, by a whole warp.
__device__ __forceinline__ int kda_chunks_before(const gen_kda_sequences &s, int n)
{
    if (!s.cu_seqlens)
        return n * ((s.seq_len + KDA_CHUNK - 1) / KDA_CHUNK);
    int sum = 0;
    for (int i = threadIdx.x % 32; i < n; i += 32)
        sum += kda_sequence_at(s, i).chunks();
#pragma unroll
    for (int distance = 16; distance; distance /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    return sum;
}

// Runs of `chunks` chunks of a sequence, the last one shorter; one without chunks where there is no token.
struct kda_segment {
    kda_sequence sequence;
    int n, number,
        count; // sequence; which of its segments, of how many. Not 0 <= number < count: no segment has this slot
    int slot;  // of the sequence's first segment
};

__device__ __forceinline__ int kda_segments_of(int chunks, int segment_chunks)
{
    return max((chunks + segment_chunks - 1) / segment_chunks, 1);
}

// Slots as in kda_scan/args.h.
__device__ __forceinline__ kda_segment kda_segment_at(const gen_kda_sequences &s, int slot, int segment_chunks)
{
    kda_segment at;
    if (s.cu_seqlens) {
        const auto first = [&](int n) { return (kda_first_token(s, n) / KDA_CHUNK + n) / segment_chunks + n; };
        at.n = kda_sequence_of(s, slot, first);
        at.slot = first(at.n);
        at.sequence = kda_sequence_at(s, at.n);
    } else {
        const int each = kda_segments_of((s.seq_len + KDA_CHUNK - 1) / KDA_CHUNK, segment_chunks);
        at.n = slot / each;
        at.slot = at.n * each;
        at.sequence = kda_sequence_at(s, at.n);
    }
    at.count = kda_segments_of(at.sequence.chunks(), segment_chunks);
    at.number = slot - at.slot;
    return at;
}

// The number of the chunk in a slot, counted through all sequences. Slots ascend with sequences: all chunks of earlier sequences come before it, none of
// later ones.
__device__ __forceinline__ int kda_chunk_number(const gen_kda_sequences &s, int slot)
{
    if (!s.cu_seqlens)
        return slot;
    int number = 0;
    for (int n = threadIdx.x % 32; n < s.batch; n += 32) {
        const kda_sequence sequence = kda_sequence_at(s, n);
        number += min(max(slot - sequence.slot, 0), sequence.chunks());
    }
#pragma unroll
    for (int distance = 16; distance; distance /= 2)
        number += __shfl_xor_sync(0xffffffffu, number, distance);
    return number;
}
