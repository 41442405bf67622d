// The Hopper kernel of mla_decode for 8-bit caches: queries of a piece to shared memory, in fp16.
#pragma once

#include "mla_decode/rgmma_block.cuh"
#include "lib/half.cuh"
#include "lib/ptx/ldst.cuh"
#include "lib/ptx/math.cuh"
#include "lib/ptx/mbarrier.cuh"
#include "lib/ptx/sync.cuh"

namespace {

// A row's factor is the power of two that brings its greatest magnitude to 2^8, so that fp16 keeps bf16's bits of what is
// down to 2^-22 of it. Given as the exponent of an fp32 number; 127 is a factor of 1, for rows of zeros or with infinities.
__device__ __forceinline__ unsigned query_exponent(float most)
{
    const unsigned exponent = __float_as_uint(most) >> 23;
    return exponent == 0 || exponent == 255 ? 127 : min(262 - exponent, 253u);
}

// A row of queries in a warp's registers: a lane has 16 neighbouring columns of the latent part, and two RoPE columns.
template <class S> struct query_row {
    unsigned words[8], rope;

    __device__ __forceinline__ void load(const gen_mla_decode_params &p, const block_piece &w, int row)
    {
        const int lane = threadIdx.x % 32;
        unsigned lo[4] = {}, hi[4] = {};
        rope = 0;
        if (row < w.num_rows) {
            const mla_row at(p, w.tokens, w.first_row + row);
            ld_global_v4_u32(lo, at.q_nope(p) + lane * 16);
            ld_global_v4_u32(hi, at.q_nope(p) + lane * 16 + 8);
            if (S::rope)
                rope = static_cast<unsigned>(
                    ld_global(reinterpret_cast<const int *>(at.q_pe(p)) + lane)); // two columns of 16 bits
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            words[i] = lo[i];
            words[4 + i] = hi[i];
        }
    }

    // Columns are permuted within each 16 as the keys' fragments have them: pairs 0, 2, 4, 6 first, then the others.
    __device__ __forceinline__ void store(const gen_mla_decode_params &p, const block_state<S> &b, int row) const
    {
        using T = typename S::element;
        const int lane = threadIdx.x % 32;
        const float2 two = to_float2<T>(rope);
        float most = fmaxf(fabsf(two.x), fabsf(two.y));
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const float2 x = to_float2<T>(words[i]);
            most = fmaxf(most, fmaxf(fabsf(x.x), fabsf(x.y)));
        }
#pragma unroll
        for (int distance = 16; distance > 0; distance /= 2)
            most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, distance));
        const unsigned exponent = query_exponent(most);
        const float factor = __uint_as_float(exponent << 23);
        unsigned x[8];
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const float2 pair = to_float2<T>(words[i]);
            x[i] = pack2<fp16>(pair.x * factor, pair.y * factor);
        }
        const unsigned to = b.base + lane / 4 * S::q_cell;
        st_shared_v4_u32(swizzled<128>(to, row, lane % 4 * 2), x[0], x[2], x[4], x[6]);
        st_shared_v4_u32(swizzled<128>(to, row, lane % 4 * 2 + 1), x[1], x[3], x[5], x[7]);
        if (S::rope)
            st_shared_u32(swizzled<128>(b.base + 8 * S::q_cell, row, lane / 8 * 2 + lane % 2) + lane % 8 / 2 * 4,
                          pack2<fp16>(two.x * factor, two.y * factor));
        if (lane == 0) {
            const float scale = p.scale_log2 * __uint_as_float((254 - exponent) << 23);
            // Not 0, so that times infinity it is no NaN; below 0 it reverses the scores' order.
            b.c->scale[row] = p.scale_log2 < 0.f ? fminf(scale, -1e-37f) : fmaxf(scale, 1e-37f);
        }
    }
};

// Bytes of queries, as they are: a lane has 16 columns of the latent part, and four lanes 16 of the RoPE part.
template <class S>
__device__ __forceinline__ void copy_query_bytes(const gen_mla_decode_params &p, const block_state<S> &b,
                                                 const block_piece &w, int row)
{
    const unsigned lane = threadIdx.x % 32;
    unsigned x[4] = {}, y[4] = {};
    if (row < w.num_rows) {
        const mla_row at(p, w.tokens, w.first_row + row);
        ld_global_v4_u32(x, static_cast<const unsigned char *>(p.q_nope) + at.token * p.q_nope_token_stride +
                                at.head * p.q_nope_head_stride + lane * 16);
        if (S::rope && lane < 4)
            ld_global_v4_u32(y, static_cast<const unsigned char *>(p.q_pe) + at.token * p.q_pe_token_stride +
                                    at.head * p.q_pe_head_stride + lane * 16);
    }
    st_shared_v4_u32(swizzled<128>(b.base + lane / 8 * S::q_cell, row, lane % 8), x[0], x[1], x[2], x[3]);
    if (S::rope && lane < 4)
        st_shared_v4_u32(swizzled<128>(b.base + 4 * S::q_cell, row, lane), y[0], y[1], y[2], y[3]);
    if (lane == 0)
        b.c->scale[row] = p.scale_log2 < 0.f ? fminf(p.scale_log2, -1e-37f) : fmaxf(p.scale_log2, 1e-37f);
}

// Brings a piece's queries, and what the consumers keep of its rows. All of them call it, when none reads the last piece's.
template <class S>
__device__ __forceinline__ void prepare_queries(const gen_mla_decode_params &p, const block_state<S> &b,
                                                const block_piece &w)
{
    constexpr int warps = consumers / 32, at_once = S::q_rows / warps < 4 ? S::q_rows / warps : 4;
    const int warp = uniform(threadIdx.x / 32);
    if (threadIdx.x == 0) {
        b.c->piece = w;
        // The first packed row sees the fewest keys.
        b.c->whole_tiles = max(mla_limit(p, w.tokens, w.first_row, w.piece.kv_len), 0) / tile_rows - w.piece.first;
    }
    if (threadIdx.x < S::q_rows) {
        b.c->of_group[0].neg_max[threadIdx.x] = b.c->of_group[1].neg_max[threadIdx.x] = -minus_infinity();
        b.c->limit[threadIdx.x] = mla_limit(p, w.tokens, w.first_row + threadIdx.x, w.piece.kv_len);
    }
#pragma unroll 1
    for (int first = warp; first < S::q_rows; first += warps * at_once) {
        if constexpr (S::byte_queries) {
#pragma unroll
            for (int i = 0; i < at_once; i++)
                copy_query_bytes(p, b, w, first + i * warps);
        } else {
            query_row<S> q[at_once];
#pragma unroll
            for (int i = 0; i < at_once; i++)
                q[i].load(p, w, first + i * warps);
#pragma unroll
            for (int i = 0; i < at_once; i++)
                q[i].store(p, b, first + i * warps);
        }
    }
    fence_proxy_async(); // wgmma reads them
    barrier_sync(consumer_barrier, consumers);
}

} // namespace
