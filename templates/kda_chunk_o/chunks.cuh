// Chunks counted through, sequence after sequence (kda_chunk_h/args.h).
#pragma once

#include "kda_intra/sequences.cuh"

// The number of the chunk in a slot. Slots ascend with sequences: all chunks of earlier sequences come before it, none of
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
