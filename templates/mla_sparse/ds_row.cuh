// Rows of 656 bytes: elements in e4m3 to bf16, each times its scale and rounded once.
#pragma once

#include "lib/fp8.cuh"
#include "lib/half.cuh"

// Four elements to two pairs.
__device__ __forceinline__ void ds_elements(unsigned x, float scale, unsigned &ab, unsigned &cd)
{
    fp8_to_fp16<e4m3>(x, ab, cd);
    const float2 low = to_float2<fp16>(ab), high = to_float2<fp16>(cd);
    ab = pack2<bf16>(low.x * scale, low.y * scale);
    cd = pack2<bf16>(high.x * scale, high.y * scale);
}
