// The Hopper kernel of mla_decode for 8-bit caches: left operands of products, made in registers of a tile's bytes. Keys are
// rows of S^T = K Q^T, latent columns are rows of O^T = V^T P^T.
//
// A lane gets four neighbouring columns of a key (ldmatrix), which count as columns 2 q, 2 q + 1, 2 q + 8, 2 q + 9 of 16: the
// queries' columns are permuted alike (rgmma_queries.cuh). Of the values a lane gets two neighbouring columns of two keys
// (ldmatrix.trans): the even column is row lane / 4 of a warp's 16, the odd one row lane / 4 + 8.
#pragma once

#include "mla_decode/rgmma_block.cuh"
#include "lib/e4m3.cuh"
#include "lib/fp8.cuh"
#include "lib/half.cuh"
#include "lib/ptx/mma.cuh"

namespace {

// What one ldmatrix brings: two steps of 16, the left operands of two products, or in 8 bits of one.
using raw_pair = unsigned[4];
using fragment = unsigned[4];

// Where a lane's bytes of a tile are.
template <class S> struct tile_addresses {
    unsigned keys, rope, values; // of the first step; others are an XOR or a constant away

    __device__ __forceinline__ explicit tile_addresses(int half)
    {
        const unsigned lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
        // Keys 0-7 and 8-15 of the warp's 16, then the same of the next 16 columns.
        const unsigned key = warp * 16 + lane % 16;
        keys = swizzled<128>(0, key, lane / 16);
        rope = S::rope_at + swizzled<64>(0, key, lane / 16);
        // Four times eight keys of 16 columns. A warp has 64 neighbouring columns of each half.
        values = half * 2 * S::cell + warp / 2 * S::cell + swizzled<128>(0, lane, warp % 2 * 4);
    }

    // 32 columns of the warp's keys; the last two pairs are the RoPE columns.
    __device__ __forceinline__ void load_keys(unsigned stage, int pair, raw_pair &raw) const
    {
        if (pair < 16)
            ldmatrix_x4(raw, ((stage + keys) ^ (pair % 4 * 32)) + pair / 4 * S::cell);
        else
            ldmatrix_x4(raw, (stage + rope) ^ ((pair - 16) * 32));
    }

    // Half of the keys of the warp's 16 columns of an output tile, pair / 2; tiles 4 to 7 are of the other half, `across` bytes
    // away.
    __device__ __forceinline__ void load_values(unsigned stage, int pair, int across, raw_pair &raw) const
    {
        ldmatrix_x4_trans(raw, ((stage + values) ^ (pair / 2 % 4 * 16)) + (pair / 8 * across + pair % 2 * 32 * 128));
    }
};

// Step 0 or 1 of a pair.
__device__ __forceinline__ void convert_keys(const raw_pair &raw, int step, fragment &a)
{
#pragma unroll
    for (int h = 0; h < 2; h++)
        fp8_to_fp16<e4m3>(raw[2 * step + h], a[h], a[2 + h]);
}

__device__ __forceinline__ void convert_values(const raw_pair &raw, int step, fragment &a)
{
#pragma unroll
    for (int deep = 0; deep < 2; deep++)
        e4m3_pairs<fp16>(raw[2 * step + deep], a[2 * deep], a[2 * deep + 1]);
}

} // namespace
