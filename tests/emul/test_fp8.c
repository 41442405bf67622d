/* The emulation's 8-bit types: conversions over every code, wgmma of either operand order, swizzle
 * and pair of types against plain loops. */
#include "test_emul.h"

#include <math.h>
#include <string.h>

static float value_of(unsigned code, int is_e5m2)
{
    return emul_from_fp16(is_e5m2 ? (unsigned short)(code << 8)
                                  : emul_fp16_of_e4m3((unsigned char)code));
}

static unsigned encode(float x, int is_e5m2)
{
    return is_e5m2 ? emul_to_e5m2(x) : emul_to_e4m3(x);
}

void test_fp8_conversions(void **state)
{
    (void)state;
    for (int e5m2 = 0; e5m2 < 2; e5m2++) {
        const unsigned most = e5m2 ? 0x7b : 0x7e;
        for (unsigned code = 0; code < most; code++) {
            const float x = value_of(code, e5m2), next = value_of(code + 1, e5m2);
            const float middle = (x + next) / 2;
            assert_int_equal(encode(x, e5m2), code);
            assert_int_equal(encode(-x, e5m2), code | 0x80);
            assert_int_equal(encode(middle, e5m2), code & 1 ? code + 1 : code);
            assert_int_equal(encode(nextafterf(middle, 0), e5m2), code);
            assert_int_equal(encode(nextafterf(-middle, -INFINITY), e5m2), (code + 1) | 0x80);
        }
        assert_int_equal(encode(1e30f, e5m2), most);
        assert_int_equal(encode(-INFINITY, e5m2), most | 0x80);
        assert_int_equal(encode(2 * value_of(most, e5m2), e5m2), most);
        assert_int_equal(encode(NAN, e5m2), 0x7f);
        assert_int_equal(encode(0x1p-40f, e5m2), 0);
    }
}

static void check_product(int pitch, int registers, int types, const char *mode)
{
    static _Alignas(64) unsigned char a[64 * 128], b[64 * 128];
    static float d[64 * 64];
    _Alignas(64) struct fp8_params p = {
        .a = a, .d = d, .pitch = pitch, .registers = registers, .types = types};
    const unsigned long long dims[] = {(unsigned)pitch, 64, 1, 1}, bytes = 64ull * (unsigned)pitch;
    const unsigned long long strides[] = {(unsigned)pitch, bytes, bytes};
    const unsigned box[] = {(unsigned)pitch, 64, 1, 1}, element[] = {1, 1, 1, 1};
    for (int i = 0; i < 64 * pitch; i++) { /* small whole numbers: sums are exact */
        a[i] = (unsigned char)encode((float)(i * 7 % 13 - 6), types >> 1);
        b[i] = (unsigned char)encode((float)(i * 5 % 9 - 4 + i / pitch % 3), types & 1);
    }
    const int swizzle = pitch == 128 ? 3 : 2;
    assert_int_equal(emul_tensor_map(p.a_map, 0, 4, a, dims, strides, box, element, 0, swizzle, 0),
                     0);
    assert_int_equal(emul_tensor_map(p.b_map, 0, 4, b, dims, strides, box, element, 0, swizzle, 0),
                     0);
    memset(d, 0xff, sizeof d);
    if (run("emul_fp8", mode, 1, 128, 16384, &p))
        fail_msg("%s: %s", mode, message);
    for (int row = 0; row < 64; row++) {
        for (int n = 0; n < 64; n++) {
            float sum = 0;
            for (int k = 0; k < pitch; k++)
                sum += value_of(a[row * pitch + k], types >> 1) *
                       value_of(b[n * pitch + k], types & 1);
            if (d[row * 64 + n] != sum)
                fail_msg("%s, rows of %d bytes, types %d, %s: [%d][%d] is %g, not %g", mode, pitch,
                         types, registers ? "registers" : "shared", row, n, (double)d[row * 64 + n],
                         (double)sum);
        }
    }
}

void test_fp8_products(void **state)
{
    (void)state;
    for (size_t m = 0; m < NUM_MODES; m++)
        for (int i = 0; i < 16; i++)
            check_product(i & 1 ? 64 : 128, i >> 1 & 1, i >> 2, modes[m]);
}
