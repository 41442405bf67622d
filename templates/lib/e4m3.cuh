// fp8 e4m3 to 16-bit floats, exactly, subnormals included. Four elements travel in a word; they come out as two pairs of
// elements two apart, since that is a mask and a shift of the word, and where the pairs lie is the caller's to choose.
#pragma once

// Whether e4m3_pairs() makes NaN of NaN (0x7f, 0xff). Otherwise it makes 480 of it, one step beyond the greatest element,
// and e4m3_nan() tests for it.
template <class T> __device__ __forceinline__ constexpr bool e4m3_keeps_nan()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    return !T::is_bf16;
#else
    return false;
#endif
}

// x holds the elements a, b, c, d from its lowest byte.
template <class T> __device__ __forceinline__ void e4m3_pairs(unsigned x, unsigned &ac, unsigned &bd)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    if constexpr (!T::is_bf16) {
        asm("{\n\t"
            ".reg .b16 lo, hi;\n\t"
            ".reg .b32 y;\n\t"
            "prmt.b32 y, %2, 0, 0x3120;\n\t"
            "mov.b32 {lo, hi}, y;\n\t"
            "cvt.rn.f16x2.e4m3x2 %0, lo;\n\t"
            "cvt.rn.f16x2.e4m3x2 %1, hi;\n\t"
            "}"
            : "=r"(ac), "=r"(bd)
            : "r"(x));
        return;
    }
#endif
    // The bits of an element, sign apart, are those of T times a power of two, subnormals too, once they stand above T's
    // fraction: 3 bits of 7 (bf16) or 10 (fp16).
    constexpr int down = T::is_bf16 ? 4 : 1; // from the upper byte of a half
    constexpr unsigned sign = 0x80008000u, rest = T::is_bf16 ? 0x07f007f0u : 0x3f803f80u;
    ac = (x << 8 & sign) | (x << (8 - down) & rest);
    bd = (x & sign) | (x >> down & rest);
    if constexpr (T::is_bf16) { // times 2^120
        asm("fma.rn.bf16x2 %0, %0, %1, %2;" : "+r"(ac) : "r"(0x7b807b80u), "r"(0x80008000u));
        asm("fma.rn.bf16x2 %0, %0, %1, %2;" : "+r"(bd) : "r"(0x7b807b80u), "r"(0x80008000u));
    } else { // times 2^8
        asm("mul.rn.f16x2 %0, %0, %1;" : "+r"(ac) : "r"(0x5c005c00u));
        asm("mul.rn.f16x2 %0, %0, %1;" : "+r"(bd) : "r"(0x5c005c00u));
    }
}

// Bits 0x80808080 say which of the four are NaN; other bits mean nothing.
__device__ __forceinline__ unsigned e4m3_nan(unsigned x)
{
    return (x & 0x7f7f7f7fu) + 0x01010101u;
}
