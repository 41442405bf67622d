// The Hopper kernels of attn_fwd for 8 bits whose probabilities are e4m3 but for one key in six (probs = mixed).
//
// e4m3 costs an output of mean 0 an error of 0.026. One key in six has its probability and its value as fp16, exact beside e4m3. That takes a
// twelfth of the error, to below FlashAttention-3's, for a few more cycles of the tensor cores and no instruction. They are the first keys of
// stage 0 in rounds of the ring, where the stage is known when the kernel is compiled.
#pragma once

#include "attn_fwd/fp8.cuh"
#include "attn_fwd/fp8_producer.cuh"
#include "attn_fwd/fp8_transpose.cuh"
#include "lib/fp8.cuh"
#include "lib/half.cuh"
#include "lib/ptx/ldst.cuh"

namespace {

static_assert(cells == 1 && stages == 3 && wide_bytes == wide_keys * dim * 2, "one key in six");

// The first rows of values as rows of fp16, of 64 columns each, both swizzled; columns in the order of transposed ones: of sixteen the even ones
// come first. A lane takes sixteen.
__device__ __forceinline__ void prepare_wide(unsigned raw, unsigned to, int warp)
{
    constexpr int chunks = dim / 16, at_once = 32 / chunks; // of a row; rows
    const int lane = threadIdx.x % 32, chunk = lane % chunks;
#pragma unroll 3
    for (int first = warp * at_once; first < wide_keys; first += preparers * at_once) {
        const int row = first + lane / chunks;
        const float4 x = ld_shared_v4_f32(raw + row * pitch + ((chunk ^ (pitch == 128 ? row % 8 : row / 2 % 4)) << 4));
        const unsigned a = __float_as_uint(x.x), b = __float_as_uint(x.y), c = __float_as_uint(x.z),
                       d = __float_as_uint(x.w);
        const unsigned from[4] = {__byte_perm(a, b, 0x6420), __byte_perm(c, d, 0x6420), __byte_perm(a, b, 0x7531),
                                  __byte_perm(c, d, 0x7531)};
        unsigned y[8];
#pragma unroll
        for (int i = 0; i < 4; i++)
            fp8_to_fp16<element>(from[i], y[2 * i], y[2 * i + 1]);
        const unsigned target = to + chunk / 4 * (wide_keys * 128) + row * 128 + ((2 * (chunk % 4) ^ row % 8) << 4);
        st_shared_v4_u32(target, y[0], y[1], y[2], y[3]);
        st_shared_v4_u32(target ^ 16, y[4], y[5], y[6], y[7]);
    }
}

template <bool clears>
__device__ __forceinline__ void prepare_block(const block_state &b, int raw, int ready, int valid, int warp)
{
    transpose_block<clears>(b.v(raw), b.ready(ready), valid, warp);
    if (in_rounds && ready == 0)
        prepare_wide(b.v(raw), b.wide(), warp);
}

// Probabilities as fp16 beside those of attn_e4m3, which they are summed with.
struct attn_wide_e4m3 : attn_16_bits<fp16> {
    static constexpr float most_sum = attn_e4m3::most_sum, offset = attn_e4m3::offset;
};

// Those of wide_keys keys as fp16, then those of the others as e4m3; the words behind them are not set.
struct attn_mixed_e4m3 : attn_wide_e4m3 {
    template <int n>
    static __device__ __forceinline__ void find(const float (&s)[n], float scale, const float (&neg_max)[2],
                                                unsigned (&packed)[n / 2], float (&sum)[2])
    {
        constexpr int wide = wide_keys / 2, rest = n - wide;
        float a[wide], b[rest], more[2];
        unsigned x[wide / 2], y[rest / 4];
#pragma unroll
        for (int i = 0; i < wide; i++)
            a[i] = s[i];
#pragma unroll
        for (int i = 0; i < rest; i++)
            b[i] = s[wide + i];
        attn_16_bits<fp16>::find(a, scale, neg_max, x, sum);
        attn_e4m3::find(b, scale, neg_max, y, more);
#pragma unroll
        for (int i = 0; i < wide / 2; i++)
            packed[i] = x[i];
#pragma unroll
        for (int i = 0; i < rest / 4; i++)
            packed[wide / 2 + i] = y[i];
        sum[0] += more[0];
        sum[1] += more[1];
    }
};

} // namespace
