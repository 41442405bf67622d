// fp8 as bits: packing from fp32, and exact conversion to fp16.
#pragma once

struct e4m3 {
    static constexpr bool is_e5m2 = false;
};
struct e5m2 {
    static constexpr bool is_e5m2 = true;
};

// Four floats rounded to e4m3, the first in the lowest byte. What is beyond 448 becomes that; NaN stays. sm_89 and later.
__device__ __forceinline__ unsigned pack4_e4m3(float a, float b, float c, float d)
{
    unsigned x;
    asm("{\n\t"
        ".reg .b16 lo, hi;\n\t"
        "cvt.rn.satfinite.e4m3x2.f32 lo, %2, %1;\n\t"
        "cvt.rn.satfinite.e4m3x2.f32 hi, %4, %3;\n\t"
        "mov.b32 %0, {lo, hi};\n\t"
        "}"
        : "=r"(x)
        : "f"(a), "f"(b), "f"(c), "f"(d));
    return x;
}

// Elements a, b, c, d of a word, from its lowest byte, as fp16: a and b in `ab`, c and d in `cd`. NaN stays NaN.
template <class T> __device__ __forceinline__ void fp8_to_fp16(unsigned x, unsigned &ab, unsigned &cd)
{
    if constexpr (T::is_e5m2) { // the upper half of an fp16
        asm("prmt.b32 %0, %1, 0, 0x1404;" : "=r"(ab) : "r"(x));
        asm("prmt.b32 %0, %1, 0, 0x3424;" : "=r"(cd) : "r"(x));
    } else {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
        asm("{\n\t"
            ".reg .b16 lo, hi;\n\t"
            "mov.b32 {lo, hi}, %2;\n\t"
            "cvt.rn.f16x2.e4m3x2 %0, lo;\n\t"
            "cvt.rn.f16x2.e4m3x2 %1, hi;\n\t"
            "}"
            : "=r"(ab), "=r"(cd)
            : "r"(x));
#else
        // The bits below the sign are those of an fp16 times 2^-8, subnormals too, one place above; NaN, all ones, would
        // become 480.
        unsigned wide[2];
        asm("prmt.b32 %0, %1, 0, 0x1404;" : "=r"(wide[0]) : "r"(x));
        asm("prmt.b32 %0, %1, 0, 0x3424;" : "=r"(wide[1]) : "r"(x));
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const unsigned rest = wide[i] >> 1 & 0x3f803f80u, ones = (rest + 0x00800080u) >> 14 & 0x00010001u; // of NaN
            unsigned y = (wide[i] & 0x80008000u) | rest;
            asm("mul.rn.f16x2 %0, %0, %1;" : "+r"(y) : "r"(0x5c005c00u));
            wide[i] = y | ones * 0x7fff;
        }
        ab = wide[0];
        cd = wide[1];
#endif
    }
}
