// Where sequences and their chunks lie (args.h). What cu_seqlens holds is not believed: no token is outside of num_tokens,
// and no sequence longer than seq_len.
#pragma once

#include "kda_intra/args.h"
#include "lib/ptx.cuh"

struct kda_sequence {
    int first, length; // tokens
    int slot;          // of its first chunk

    __device__ __forceinline__ int chunks() const { return (length + KDA_CHUNK - 1) / KDA_CHUNK; }
};

__device__ __forceinline__ int kda_first_token(const gen_kda_sequences &s, int n)
{
    return min(max(load_global(s.cu_seqlens + n), 0), s.num_tokens);
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

struct kda_chunk {
    int first, rows; // tokens; rows <= 0: nobody has this slot
};

// Sequences' slots ascend, so a slot's sequence is the last one that begins at or before it: lanes try 32 at a time.
__device__ __forceinline__ kda_chunk kda_chunk_at(const gen_kda_sequences &s, int slot)
{
    int n = 0;
    if (s.cu_seqlens) {
        int count = s.batch; // candidates n to n + count - 1
        while (count > 1) {
            const int step = (count + 31) / 32, lane = threadIdx.x % 32, at = n + lane * step;
            const bool before = lane * step < count && kda_first_token(s, at) / KDA_CHUNK + at <= slot;
            const unsigned votes = __ballot_sync(0xffffffffu, before);
            const int last = votes ? 31 - __clz(votes) : 0;
            n += last * step;
            count = min(step, count - last * step);
        }
    } else {
        n = s.chunks_mul ? __umulhi(slot, s.chunks_mul) >> s.chunks_shift : slot;
    }
    const kda_sequence sequence = kda_sequence_at(s, n);
    const int row = (slot - sequence.slot) * KDA_CHUNK;
    return {sequence.first + row, row < 0 ? 0 : min(sequence.length - row, KDA_CHUNK)};
}
