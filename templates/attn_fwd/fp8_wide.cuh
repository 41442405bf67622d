// The Hopper kernel of attn_fwd for 8 bits whose probabilities are e4m3 but for one key in six (probs = mixed).
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

static_assert(dim == 64 && keys == 128 && stages == 3 && wide_bytes == wide_keys * dim * 2, "one key in six");

// The first rows of values as rows of fp16, both swizzled; columns in the order of transposed ones: of sixteen the even ones
// come first. A lane takes sixteen.
__device__ __forceinline__ void prepare_wide(unsigned raw, unsigned to, int warp)
{
    const int lane = threadIdx.x % 32, chunk = lane % 4;
#pragma unroll 1
    for (int first = warp * 8; first < wide_keys; first += preparers * 8) {
        const int row = first + lane / 4;
        const float4 x = ld_shared_v4_f32(raw + row * 64 + ((chunk ^ row / 2 % 4) << 4));
        const unsigned a = __float_as_uint(x.x), b = __float_as_uint(x.y), c = __float_as_uint(x.z),
                       d = __float_as_uint(x.w);
        const unsigned from[4] = {__byte_perm(a, b, 0x6420), __byte_perm(c, d, 0x6420), __byte_perm(a, b, 0x7531),
                                  __byte_perm(c, d, 0x7531)};
        unsigned y[8];
#pragma unroll
        for (int i = 0; i < 4; i++)
            fp8_to_fp16<element>(from[i], y[2 * i], y[2 * i + 1]);
        const unsigned target = to + row * 128 + ((2 * chunk ^ row % 8) << 4);
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

} // namespace
