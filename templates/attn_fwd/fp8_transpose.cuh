// The Hopper kernel of attn_fwd for 8 bits of width 128: values transposed, so that keys are contiguous. The template gives shapes and types.
#pragma once

#include "attn_fwd/fp8_producer.cuh"
#include "lib/ptx/mma.cuh"

namespace {

// Values are transposed in units of 32 keys and 16 columns. A warp has every third sixteen of columns and of them all keys, so
// that the rest of an address is known when the kernel is compiled.
template <bool clears> __device__ __forceinline__ void transpose_block(unsigned raw, unsigned to, int valid, int warp)
{
    constexpr int units = keys / 32; // of them so many at once, so that they wait together, as there are registers for
    constexpr int at_once = clears ? 1 : groups == 2 ? 4 : 2;
    const int lane = threadIdx.x % 32;
    // Lane l has the address of key l, and of row l % 16 of the transposed ones: even columns, then odd ones, of the lower or upper 16 keys.
    const unsigned from = raw + lane * pitch, from_swizzle = (pitch == 128 ? lane % 8 : lane / 2 % 4) << 4;
    const unsigned lane_to = to + lane % 16 * 128 + ((lane / 16 ^ lane % 8) << 4);
#pragma unroll 1
    for (int columns = warp * 16; columns < dim; columns += preparers * 16) {
        const unsigned source = from + columns / pitch * kv_cell + (columns % pitch ^ from_swizzle),
                       target = lane_to + columns * 128;
#pragma unroll (clears ? 1 : units)
        for (int first = 0; first < units; first += at_once) {
            unsigned y[at_once][4];
#pragma unroll
            for (int k = 0; k < at_once; k++)
                ldmatrix_x4_trans(y[k], source + (first + k) * (32 * pitch));
#pragma unroll
            for (int k = 0; k < at_once; k++) {
                const int key = (first + k) * 32;
                // Keys from `valid` on belong to the next request and may not even be multiplied by zero.
                if (clears) {
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        const int at = key + i * 8 + lane % 4 * 2;
                        y[k][i] &= (at < valid ? 0xffffu : 0u) | (at + 1 < valid ? 0xffff0000u : 0u);
                    }
                }
                // Words of four keys of a column.
                const unsigned x[4] = {__byte_perm(y[k][0], y[k][1], 0x6420), __byte_perm(y[k][0], y[k][1], 0x7531),
                                       __byte_perm(y[k][2], y[k][3], 0x6420), __byte_perm(y[k][2], y[k][3], 0x7531)};
                stmatrix_x4((target ^ key % 128) + key / 128 * ready_cell, x);
            }
        }
    }
}

} // namespace
