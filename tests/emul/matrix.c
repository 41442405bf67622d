/* Conversions and the tensor core instructions of a warp. */
#include "internal.h"

#include <math.h>
#include <string.h>

static float as_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint32_t as_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

float emul_from_fp16(unsigned short bits)
{
    const uint32_t sign = (uint32_t)(bits & 0x8000) << 16;
    const uint32_t exponent = bits >> 10 & 31, fraction = bits & 1023;
    if (exponent == 31)
        return as_float(sign | 0x7f800000u | fraction << 13);
    if (exponent)
        return as_float(sign | (exponent + 112) << 23 | fraction << 13);
    const float tiny = (float)fraction * 0x1p-24f;
    return sign ? -tiny : tiny;
}

unsigned short emul_to_fp16(float x)
{
    const uint32_t bits = as_bits(x), sign = bits >> 16 & 0x8000;
    const uint32_t magnitude = bits & 0x7fffffff;
    uint32_t code;
    if (magnitude > 0x7f800000u)
        return 0x7fff; /* the GPU's NaN has no sign */
    if (magnitude >= 0x477ff000u)
        code = 0x7c00;                /* 65520 and more round to infinity */
    else if (magnitude < 0x38800000u) /* below 2^-14: a multiple of 2^-24 */
        code = (uint32_t)nearbyintf(as_float(magnitude) * 0x1p24f);
    else
        code = (magnitude - 0x38000000u + 0xfff + (magnitude >> 13 & 1)) >> 13;
    return (unsigned short)(sign | code);
}

unsigned short emul_to_bf16(float x)
{
    const uint32_t bits = as_bits(x);
    if ((bits & 0x7fffffff) > 0x7f800000u)
        return 0x7fff;
    return (unsigned short)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

unsigned short emul_fp16_of_e4m3(unsigned char bits)
{
    const unsigned exponent = bits >> 3 & 15, fraction = bits & 7;
    const float size = exponent ? (float)(8 + fraction) * ldexpf(1, (int)exponent - 10)
                                : (float)fraction * 0x1p-9f;
    if ((bits & 0x7f) == 0x7f)
        return 0x7fff;
    return emul_to_fp16(bits & 0x80 ? -size : size);
}

/* To a format with `fraction` stored bits, normal from 2^least up, finite up to code `most`. */
static unsigned char to_8_bits(float x, int fraction, int least, unsigned most)
{
    const uint32_t sign = as_bits(x) >> 24 & 0x80, magnitude = as_bits(x) & 0x7fffffff;
    if (magnitude > 0x7f800000u)
        return 0x7f;
    int exponent;
    const float size = as_float(magnitude);
    if (magnitude >= 0x7f800000u || size > 65536)
        return (unsigned char)(sign | most);
    if (size == 0)
        return (unsigned char)sign;
    frexpf(size, &exponent);
    const int unit = (exponent - 1 > least ? exponent - 1 : least) - fraction;
    const float kept = rintf(ldexpf(size, -unit)); /* ties to even */
    unsigned code = (unsigned)kept;
    if (unit + fraction > least || kept >= (float)(1 << fraction))
        code += (unsigned)(unit + fraction - least) << fraction;
    return (unsigned char)(sign | (code < most ? code : most));
}

unsigned char emul_to_e4m3(float x)
{
    return to_8_bits(x, 3, -6, 0x7e);
}

unsigned char emul_to_e5m2(float x)
{
    return to_8_bits(x, 2, -14, 0x7b);
}

float emul__element(unsigned short bits, bool is_bf16)
{
    return is_bf16 ? as_float((uint32_t)bits << 16) : emul_from_fp16(bits);
}

/* ---- ldmatrix ------------------------------------------------------------------ */

struct ldmatrix {
    unsigned *r;
    unsigned address;
    int count, transposed;
};

static void run_ldmatrix(unsigned warp, unsigned lanes, void *const *payload)
{
    const struct ldmatrix *first = payload[0];
    (void)warp;
    if (lanes != FULL_MASK)
        emul_fault("ldmatrix with lanes %#010x; all 32 must come", lanes);
    for (int i = 0; i < first->count; i++) {
        uint16_t m[8][8];
        for (int row = 0; row < 8; row++) {
            const struct ldmatrix *l = payload[8 * i + row];
            memcpy(m[row], emul_shared(l->address, 16, 16, "ldmatrix"), 16);
        }
        for (int lane = 0; lane < WARP; lane++) {
            const struct ldmatrix *l = payload[lane];
            const int a = lane / 4, b = lane % 4 * 2;
            if (l->count != first->count || l->transposed != first->transposed)
                emul_fault("ldmatrix: the lanes do different ones");
            const uint32_t low = first->transposed ? m[b][a] : m[a][b];
            const uint32_t high = first->transposed ? m[b + 1][a] : m[a][b + 1];
            l->r[i] = low | high << 16;
        }
    }
}

void emul_ldmatrix(unsigned *r, int count, unsigned address, int transposed)
{
    static const struct meeting_kind kind = {"ldmatrix", run_ldmatrix};
    struct ldmatrix l = {r, address, count, transposed};
    emul__meet(FULL_MASK, &kind, &l);
}

static void run_stmatrix(unsigned warp, unsigned lanes, void *const *payload)
{
    const struct ldmatrix *first = payload[0];
    (void)warp;
    if (lanes != FULL_MASK)
        emul_fault("stmatrix with lanes %#010x; all 32 must come", lanes);
    for (int i = 0; i < first->count; i++) {
        uint16_t m[8][8];
        for (int lane = 0; lane < WARP; lane++) {
            const struct ldmatrix *l = payload[lane];
            const int a = lane / 4, b = lane % 4 * 2;
            for (int half = 0; half < 2; half++)
                *(first->transposed ? &m[b + half][a] : &m[a][b + half]) =
                    (uint16_t)(l->r[i] >> 16 * half);
        }
        for (int row = 0; row < 8; row++) {
            const struct ldmatrix *l = payload[8 * i + row];
            memcpy(emul_shared(l->address, 16, 16, "stmatrix"), m[row], 16);
        }
    }
}

void emul_stmatrix(const unsigned *r, int count, unsigned address, int transposed)
{
    static const struct meeting_kind kind = {"stmatrix", run_stmatrix};
    unsigned copy[4];
    memcpy(copy, r, (size_t)count * sizeof *r);
    struct ldmatrix l = {copy, address, count, transposed};
    emul__meet(FULL_MASK, &kind, &l);
}

/* ---- mma.sync.m16n8k16 ------------------------------------------------------------ */

struct mma {
    float *d;
    const unsigned *a;
    unsigned b[2];
    int is_bf16;
};

static void gather(void *const *payload, float (*a)[16], float (*b)[8])
{
    for (int lane = 0; lane < WARP; lane++) {
        const struct mma *m = payload[lane];
        const int row = lane / 4, column = lane % 4 * 2;
        for (int i = 0; i < 8; i++) /* element i of the fragment of a */
            a[row + 8 * (i / 2 % 2)][column + i % 2 + 8 * (i / 4)] =
                emul__element((unsigned short)(m->a[i / 2] >> 16 * (i % 2)), m->is_bf16);
        for (int i = 0; i < 4; i++)
            b[column + i % 2 + 8 * (i / 2)][row] =
                emul__element((unsigned short)(m->b[i / 2] >> 16 * (i % 2)), m->is_bf16);
    }
}

static void run_mma(unsigned warp, unsigned lanes, void *const *payload)
{
    float a[16][16], b[16][8], d[16][8];
    (void)warp;
    if (lanes != FULL_MASK)
        emul_fault("mma.sync with lanes %#010x; all 32 must come", lanes);
    gather(payload, a, b);
    for (int lane = 0; lane < WARP; lane++)
        for (int i = 0; i < 4; i++)
            d[lane / 4 + 8 * (i / 2)][lane % 4 * 2 + i % 2] =
                ((const struct mma *)payload[lane])->d[i];
    for (int row = 0; row < 16; row++)
        for (int k = 0; k < 16; k++)
            for (int column = 0; column < 8; column++)
                d[row][column] += a[row][k] * b[k][column];
    for (int lane = 0; lane < WARP; lane++)
        for (int i = 0; i < 4; i++)
            ((struct mma *)payload[lane])->d[i] = d[lane / 4 + 8 * (i / 2)][lane % 4 * 2 + i % 2];
}

void emul_mma(float *d, const unsigned *a, unsigned b0, unsigned b1, int is_bf16)
{
    static const struct meeting_kind kind = {"mma.sync", run_mma};
    struct mma m = {d, a, {b0, b1}, is_bf16};
    emul__meet(FULL_MASK, &kind, &m);
}
