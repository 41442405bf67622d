// The portable kernel with roles: how queries and tiles of the cache lie in shared memory.
//
// A row is 72 chunks of 16 bytes, 64 latent ones and 8 rotary ones (without rotary columns their place has what is rotated),
// and is rotated by its number: chunk c of row r is the (c + r % 8) % 72nd. A row is a multiple of 128 bytes, so eight rows'
// chunks of one number, which ldmatrix reads at once, lie in different banks, as where chunks are XORed. But a latent chunk
// never wraps around, so that whatever a lane reads of them is a constant away from one address.
#pragma once

#include "mla_decode/mma_shape.cuh"

template <class A> struct mla_roles_shape : mla_shape<A> {
    static constexpr int row_pitch = (MLA_LATENT + MLA_ROPE) * 2;
    static constexpr int q_bytes = A::q * row_pitch, stage_bytes = A::kv * row_pitch;
    static constexpr int exchange_at = q_bytes + A::stages * stage_bytes; // probabilities
    static constexpr int control_at = exchange_at + mla_shape<A>::exchange_bytes;
};

// Where chunks of a row lie, from the first row on: of row + 8 i they are i * 8 * row_pitch behind.
template <class S> __device__ __forceinline__ unsigned mla_latent_at(unsigned row, unsigned chunk)
{
    return row * S::row_pitch + (row % 8 + chunk) * 16;
}

template <class S> __device__ __forceinline__ unsigned mla_rotary_at(unsigned row, unsigned chunk)
{
    const unsigned place = row % 8 + chunk;
    return row * S::row_pitch + place * 16 + (place < 8 ? MLA_LATENT * 2 : -128);
}
