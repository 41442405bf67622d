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

static _Alignas(64) unsigned char a[64 * 128], b[64 * 128];
static float d[64 * 64];

/* Runs the kernel on a and b, rows of p->pitch bytes, into d. */
static void multiply(struct fp8_params *p, const char *mode)
{
    const unsigned long long pitch = (unsigned)p->pitch, bytes = 64 * pitch;
    const unsigned long long dims[] = {pitch, 64, 1, 1}, strides[] = {pitch, bytes, bytes};
    const unsigned box[] = {(unsigned)pitch, 64, 1, 1}, element[] = {1, 1, 1, 1};
    const int swizzle = pitch == 128 ? 3 : 2;
    p->a = a;
    p->d = d;
    assert_int_equal(emul_tensor_map(p->a_map, 0, 4, a, dims, strides, box, element, 0, swizzle, 0),
                     0);
    assert_int_equal(emul_tensor_map(p->b_map, 0, 4, b, dims, strides, box, element, 0, swizzle, 0),
                     0);
    memset(d, 0xff, sizeof d);
    if (run("emul_fp8", mode, 1, 128, 16384, p))
        fail_msg("%s: %s", mode, message);
}

static void check_product(int pitch, int registers, int types, const char *mode)
{
    _Alignas(64) struct fp8_params p = {
        .pitch = pitch, .registers = registers, .types = types, .rounds = 1};
    for (int i = 0; i < 64 * pitch; i++) { /* small whole numbers: sums are exact */
        a[i] = (unsigned char)encode((float)(i * 7 % 13 - 6), types >> 1);
        b[i] = (unsigned char)encode((float)(i * 5 % 9 - 4 + i / pitch % 3), types & 1);
    }
    multiply(&p, mode);
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

/* What a step of 32 keys gives: row 0 is `first` and 31 times `rest`, every column is ones. */
static float step_of(float first, float rest, float column)
{
    _Alignas(64) struct fp8_params p = {.pitch = 64, .rounds = 1};
    memset(a, 0, sizeof a);
    memset(b, 0, sizeof b);
    for (int k = 0; k < 32; k++) {
        a[k] = emul_to_e4m3(k == 7 ? first : rest);
        for (int n = 0; n < 64; n++)
            b[n * 64 + k] = emul_to_e4m3(k == 7 && column > 1 ? column : 1);
    }
    multiply(&p, "eager");
    for (int n = 1; n < 64; n++)
        assert_true(d[n] == d[0]);
    return d[0];
}

/* Hopper's accumulator: terms keep 13 bits below the greatest exponent of their step, sums 14
 * significant bits, and both are truncated toward zero. */
void test_fp8_accumulator(void **state)
{
    (void)state;
    /* 448 x 448 has the exponent 8 + 8 of its factors: the others count in multiples of 8. */
    assert_true(step_of(448, 7, 448) == 200704);
    assert_true(step_of(448, -7, 448) == 200704);
    assert_true(step_of(448, 8, 448) == 200944); /* 200952 in multiples of 16, as it is over 2^17 */
    assert_true(step_of(448, 15, 448) == 200944);
    assert_true(step_of(448, -15, 448) == 200448); /* 200456 likewise */
    assert_true(step_of(-448, 15, 448) == -200448);
    /* Without a great term nothing is lost. */
    assert_true(step_of(7, 7, 1) == 224);
    assert_true(step_of(0.001953125f, 0.001953125f, 1) == 0.0625f);
    /* A sum of ones stands still from 2^14 on, where it counts in twos. */
    for (int types = 0; types < 4; types++) {
        const int rounds[] = {127, 128, 129, 300};
        for (int i = 0; i < 4; i++) {
            _Alignas(64) struct fp8_params p = {
                .pitch = 128, .registers = i % 2, .types = types, .rounds = rounds[i]};
            memset(a, (int)encode(1, types >> 1), sizeof a);
            memset(b, (int)encode(1, types & 1), sizeof b);
            multiply(&p, i % 2 ? "late" : "eager");
            for (int j = 0; j < 64 * 64; j++)
                assert_true(d[j] == (float)(rounds[i] < 128 ? 128 * rounds[i] : 16384));
        }
    }
}

/* A NaN among the factors reaches its own row or column and no other; infinities have signs. */
void test_fp8_not_finite(void **state)
{
    (void)state;
    _Alignas(64) struct fp8_params p = {.pitch = 64, .types = 3, .rounds = 2};
    memset(a, (int)encode(1, 1), sizeof a);
    memset(b, (int)encode(2, 1), sizeof b);
    a[3 * 64 + 5] = 0x7f;
    b[9 * 64 + 40] = 0x7f;
    b[17 * 64 + 63] = 0xfc;
    multiply(&p, "late");
    for (int row = 0; row < 64; row++) {
        for (int n = 0; n < 64; n++) {
            const float x = d[row * 64 + n];
            if (row == 3 || n == 9)
                assert_true(isnan(x));
            else
                assert_true(x == (n == 17 ? -INFINITY : 256));
        }
    }
}
