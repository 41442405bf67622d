// For which chunks the inverse may be made of fp16 (docs/numerics.md).
#pragma once

namespace {

// Factors of the inverse stand in fp16 times this, so that the row of a small beta has the bits that others have. The entries of usual
// rows are at most 56.
constexpr float narrow_scale = 256.f;

// Whether a row couples as a normalised key does, by its |k|^2 and its beta: I - beta k k' stretches nothing, and fp16 holds beta. Rows
// of zeros couple none. No number is not usual.
__device__ __forceinline__ bool usual_row(float square, float beta)
{
    const float size = fabsf(beta);
    const bool key = square >= 0.25f && square <= 4.f, held = size == 0.f || size >= 0x1p-20f;
    return square == 0.f || (key & held & (square * size <= 2.03125f)); // 2, and what rounding adds to a key's length
}

} // namespace
