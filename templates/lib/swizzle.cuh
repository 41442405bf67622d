// Matrices in shared memory whose rows are cut into chunks of 16 bytes, laid out so that eight rows' chunks of one number,
// which ldmatrix reads at once, lie in different banks.
#pragma once

// Address of a chunk of a row of `pitch` bytes, 64 or a multiple of 128; `base` is a multiple of 128. Where `chunk` grows by
// a multiple of two below eight (four), the address is XORed with 16 times that, whatever the row.
template <int pitch> __device__ __forceinline__ unsigned swizzled(unsigned base, unsigned row, unsigned chunk)
{
    static_assert(pitch == 64 || pitch % 128 == 0, "other rows are not spread over the banks");
    const unsigned mask = pitch == 64 ? row / 2 % 4 : row % 8; // two rows of 64 bytes fill the banks
    return base + row * pitch + ((chunk ^ mask) << 4);
}
