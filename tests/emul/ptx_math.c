/* PTX: moves, conversions, arithmetic. */
#include "ptx.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum operation {
    OP_ADD,
    OP_SUB,
    OP_MUL,
    OP_FMA,
    OP_MIN,
    OP_MAX,
    OP_AND,
    OP_OR,
    OP_XOR,
    OP_NOT,
    OP_SHL,
    OP_SHR,
    OP_NEG,
    OP_ABS,
    OP_EX2,
    OP_LG2,
    OP_RCP,
    OP_SQRT,
    OP_RSQRT
};

static float as_float(uint64_t bits)
{
    const uint32_t low = (uint32_t)bits;
    float x;
    memcpy(&x, &low, sizeof x);
    return x;
}

static uint32_t as_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static uint64_t masked(uint64_t x, unsigned bits)
{
    return bits < 64 ? x & ((1ull << bits) - 1) : x;
}

static int64_t extended(uint64_t x, unsigned bits)
{
    return (int64_t)(x << (64 - bits)) >> (64 - bits);
}

/* To the next odd float, so that rounding once more rounds as if it were the first time. */
static float to_odd(double x)
{
    const float near = (float)x;
    uint32_t bits = as_bits(near);
    if (isnan(x) || (double)near == x)
        return near;
    if (fabs((double)near) > fabs(x))
        bits--;
    return as_float(bits | 1);
}

/* ---- arithmetic ------------------------------------------------------------------ */

static double calculate(enum operation operation, double a, double b, double c)
{
    switch (operation) {
    case OP_ADD:
        return a + b;
    case OP_SUB:
        return a - b;
    case OP_MUL:
        return a * b;
    case OP_FMA:
        return fma(a, b, c);
    case OP_MIN:
        return fmin(a, b);
    case OP_MAX:
        return fmax(a, b);
    case OP_NEG:
        return -a;
    case OP_ABS:
        return fabs(a);
    case OP_EX2:
        return exp2(a);
    case OP_LG2:
        return log2(a);
    case OP_RCP:
        return 1 / a;
    case OP_SQRT:
        return sqrt(a);
    default:
        return 1 / sqrt(a);
    }
}

static float flushed(const struct ptx_instruction *i, float x)
{
    return i->flags && fabsf(x) < 0x1p-126f ? copysignf(0, x) : x;
}

static void run_float(struct ptx_frame *f, const struct ptx_instruction *i)
{
    double x[3] = {0};
    for (unsigned n = 0; n + 1 < i->num_args && n < 3; n++)
        x[n] = (double)flushed(i, as_float(ptx_get(f, &i->arg[n + 1], 0)));
    const double y = calculate((enum operation)i->operation, x[0], x[1], x[2]);
    ptx_set(f, &i->arg[0], 0, as_bits(flushed(i, (float)y)));
}

/* One or two 16-bit floats in a register. */
static void run_half(struct ptx_frame *f, const struct ptx_instruction *i)
{
    const bool bf16 = i->type == 'B';
    uint64_t result = 0;
    for (unsigned lane = 0; lane < i->lanes; lane++) {
        double x[3] = {0};
        for (unsigned n = 0; n + 1 < i->num_args && n < 3; n++)
            x[n] = (double)emul__element(
                (unsigned short)(ptx_get(f, &i->arg[n + 1], 0) >> 16 * lane), bf16);
        const float y = to_odd(calculate((enum operation)i->operation, x[0], x[1], x[2]));
        result |= (uint64_t)(bf16 ? emul_to_bf16(y) : emul_to_fp16(y)) << 16 * lane;
    }
    ptx_set(f, &i->arg[0], 0, result);
}

static uint64_t integer(const struct ptx_instruction *i, uint64_t a, uint64_t b, uint64_t c)
{
    const bool is_signed = i->type == 's';
    const bool less = is_signed ? extended(a, i->bits) < extended(b, i->bits) : a < b;
    const uint64_t shift = b > i->bits ? i->bits : b;
    switch ((enum operation)i->operation) {
    case OP_ADD:
        return a + b;
    case OP_SUB:
        return a - b;
    case OP_MUL:
        return a * b;
    case OP_FMA:
        return a * b + c;
    case OP_MIN:
        return less ? a : b;
    case OP_MAX:
        return less ? b : a;
    case OP_AND:
        return a & b;
    case OP_OR:
        return a | b;
    case OP_XOR:
        return a ^ b;
    case OP_NOT:
        return ~a;
    case OP_SHL:
        return shift < 64 ? a << shift : 0;
    case OP_SHR:
        if (is_signed)
            return (uint64_t)(extended(a, i->bits) >> (shift < i->bits ? shift : i->bits - 1));
        return shift < 64 ? a >> shift : 0;
    case OP_NEG:
        return 0 - a;
    default:
        return extended(a, i->bits) < 0 ? 0 - a : a;
    }
}

static void run_integer(struct ptx_frame *f, const struct ptx_instruction *i)
{
    uint64_t x[3] = {0};
    for (unsigned n = 0; n + 1 < i->num_args && n < 3; n++)
        x[n] = masked(ptx_get(f, &i->arg[n + 1], 0), i->bits);
    ptx_set(f, &i->arg[0], 0, masked(integer(i, x[0], x[1], x[2]), i->bits));
}

/* The type that a suffix names. */
static bool read_type(struct ptx_instruction *i, const char *type)
{
    i->lanes = 1;
    if (strcmp(type, "pred") == 0) {
        i->type = 'p';
        i->bits = 1;
        return true;
    }
    if (strcmp(type, "f16x2") == 0 || strcmp(type, "bf16x2") == 0)
        i->lanes = 2;
    if (strncmp(type, "bf16", 4) == 0 || strncmp(type, "f16", 3) == 0) {
        i->type = type[0] == 'b' ? 'B' : 'h';
        i->bits = 16 * i->lanes;
        return true;
    }
    i->type = type[0];
    i->bits = (unsigned)atoi(type + 1);
    return strchr("subf", type[0]) && (i->bits == 16 || i->bits == 32 || i->bits == 64);
}

static bool prepare_arithmetic(struct ptx_instruction *i, enum operation operation,
                               unsigned num_sources)
{
    i->operation = (int)operation;
    i->flags = ptx_has(i, "ftz");
    if (!read_type(i, i->token[i->num_tokens - 1]) || i->num_args != num_sources + 1)
        return false;
    if (i->type == 'f')
        i->run = i->bits == 32 ? run_float : NULL;
    else if (i->type == 'h' || i->type == 'B')
        i->run = run_half;
    else if (operation >= OP_EX2 || ptx_has(i, "hi") || ptx_has(i, "wide") || ptx_has(i, "sat"))
        return false;
    else
        i->run = run_integer;
    return i->run && !ptx_has(i, "relu") && !ptx_has(i, "cc");
}

/* ---- moves, bytes, predicates ---------------------------------------------------- */

/* Between one register and a vector of parts of it, or from one to another. */
static void run_mov(struct ptx_frame *f, const struct ptx_instruction *i)
{
    const struct ptx_arg *to = &i->arg[0], *from = &i->arg[1];
    const unsigned to_bits = i->bits / to->count, from_bits = i->bits / from->count;
    uint64_t value = 0;
    for (unsigned n = 0; n < from->count; n++)
        value |= masked(ptx_get(f, from, n), from_bits) << n * from_bits;
    for (unsigned n = 0; n < to->count; n++)
        ptx_set(f, to, n, masked(value >> n * to_bits, to_bits));
}

static void run_prmt(struct ptx_frame *f, const struct ptx_instruction *i)
{
    const uint64_t both = masked(ptx_get(f, &i->arg[1], 0), 32) | ptx_get(f, &i->arg[2], 0) << 32;
    const uint64_t selector = ptx_get(f, &i->arg[3], 0);
    uint64_t result = 0;
    for (unsigned n = 0; n < 4; n++) {
        const uint64_t which = selector >> 4 * n & 15;
        uint64_t byte = both >> 8 * (which & 7) & 255;
        if (which & 8)
            byte = byte & 128 ? 255 : 0;
        result |= byte << 8 * n;
    }
    ptx_set(f, &i->arg[0], 0, result);
}

static void run_lop3(struct ptx_frame *f, const struct ptx_instruction *i)
{
    const uint64_t a = ptx_get(f, &i->arg[1], 0), b = ptx_get(f, &i->arg[2], 0);
    const uint64_t c = ptx_get(f, &i->arg[3], 0), table = ptx_get(f, &i->arg[4], 0);
    uint64_t result = 0;
    for (unsigned n = 0; n < 32; n++)
        result |= (table >> ((a >> n & 1) * 4 + (b >> n & 1) * 2 + (c >> n & 1)) & 1) << n;
    ptx_set(f, &i->arg[0], 0, result);
}

static bool compare(const struct ptx_instruction *i, uint64_t a, uint64_t b)
{
    static const char *const names[] = {"eq", "ne", "lt", "le", "gt", "ge"};
    int order = 0;
    bool unordered = false;
    if (i->type == 'f') {
        const float x = as_float(a), y = as_float(b);
        order = (x > y) - (x < y);
        unordered = isnan(x) || isnan(y);
    } else if (i->type == 's') {
        order = (extended(a, i->bits) > extended(b, i->bits)) -
                (extended(a, i->bits) < extended(b, i->bits));
    } else {
        order =
            (masked(a, i->bits) > masked(b, i->bits)) - (masked(a, i->bits) < masked(b, i->bits));
    }
    const bool holds[] = {order == 0, order != 0, order<0, order <= 0, order> 0, order >= 0};
    for (unsigned n = 0; n < 6; n++)
        if (strcmp(i->token[1], names[n]) == 0)
            return holds[n] && !unordered;
    emul_fault("%s is not emulated", i->name);
}

static void run_setp(struct ptx_frame *f, const struct ptx_instruction *i)
{
    ptx_set(f, &i->arg[0], 0, compare(i, ptx_get(f, &i->arg[1], 0), ptx_get(f, &i->arg[2], 0)));
}

static void run_selp(struct ptx_frame *f, const struct ptx_instruction *i)
{
    ptx_set(f, &i->arg[0], 0, ptx_get(f, &i->arg[ptx_get(f, &i->arg[3], 0) & 1 ? 1 : 2], 0));
}

/* ---- conversions -------------------------------------------------------------------- */

static void run_from_half(struct ptx_frame *f, const struct ptx_instruction *i)
{
    ptx_set(f, &i->arg[0], 0,
            as_bits(emul__element((unsigned short)ptx_get(f, &i->arg[1], 0), i->flags)));
}

/* The first source stands in the upper half. flags: 1 bf16, 2 fp16 that stays finite. */
static void run_to_half(struct ptx_frame *f, const struct ptx_instruction *i)
{
    uint64_t result = 0;
    for (unsigned n = 1; n < i->num_args; n++) {
        float x = as_float(ptx_get(f, &i->arg[n], 0));
        if (i->flags == 2 && (x > 65504.0f || x < -65504.0f))
            x = x < 0 ? -65504.0f : 65504.0f;
        result = result << 16 | (i->flags == 1 ? emul_to_bf16(x) : emul_to_fp16(x));
    }
    ptx_set(f, &i->arg[0], 0, result);
}

static void run_from_e4m3(struct ptx_frame *f, const struct ptx_instruction *i)
{
    const uint64_t pair = ptx_get(f, &i->arg[1], 0);
    ptx_set(f, &i->arg[0], 0,
            (uint64_t)emul_fp16_of_e4m3((unsigned char)(pair >> 8)) << 16 |
                emul_fp16_of_e4m3((unsigned char)pair));
}

static void run_from_e5m2(struct ptx_frame *f, const struct ptx_instruction *i)
{
    const uint64_t pair = ptx_get(f, &i->arg[1], 0);
    ptx_set(f, &i->arg[0], 0, (pair & 0xff00) << 16 | (pair & 0xff) << 8);
}

/* Two floats, the first to the upper byte, or a pair of halves; flags: e5m2. */
static void run_to_8_bits(struct ptx_frame *f, const struct ptx_instruction *i)
{
    float x[2];
    if (i->num_args == 3) {
        x[0] = as_float(ptx_get(f, &i->arg[2], 0));
        x[1] = as_float(ptx_get(f, &i->arg[1], 0));
    } else {
        const uint64_t pair = ptx_get(f, &i->arg[1], 0);
        x[0] = emul_from_fp16((unsigned short)pair);
        x[1] = emul_from_fp16((unsigned short)(pair >> 16));
    }
    const unsigned low = i->flags ? emul_to_e5m2(x[0]) : emul_to_e4m3(x[0]);
    const unsigned high = i->flags ? emul_to_e5m2(x[1]) : emul_to_e4m3(x[1]);
    ptx_set(f, &i->arg[0], 0, high << 8 | low);
}

static bool prepare_cvt(struct ptx_instruction *i)
{
    static const struct {
        const char *name;
        unsigned num_args;
        void (*run)(struct ptx_frame *, const struct ptx_instruction *);
        int flags;
    } table[] = {{"cvt.f32.f16", 2, run_from_half, 0},
                 {"cvt.f32.bf16", 2, run_from_half, 1},
                 {"cvt.rn.f16.f32", 2, run_to_half, 0},
                 {"cvt.rn.bf16.f32", 2, run_to_half, 1},
                 {"cvt.rn.f16x2.f32", 3, run_to_half, 0},
                 {"cvt.rn.bf16x2.f32", 3, run_to_half, 1},
                 {"cvt.rn.satfinite.f16x2.f32", 3, run_to_half, 2},
                 {"cvt.rn.f16x2.e4m3x2", 2, run_from_e4m3, 0},
                 {"cvt.rn.f16x2.e5m2x2", 2, run_from_e5m2, 0},
                 {"cvt.rn.satfinite.e4m3x2.f32", 3, run_to_8_bits, 0},
                 {"cvt.rn.satfinite.e5m2x2.f32", 3, run_to_8_bits, 1},
                 {"cvt.rn.satfinite.e4m3x2.f16x2", 2, run_to_8_bits, 0},
                 {"cvt.rn.satfinite.e5m2x2.f16x2", 2, run_to_8_bits, 1}};
    for (size_t n = 0; n < sizeof table / sizeof *table; n++) {
        if (strcmp(i->name, table[n].name) == 0) {
            i->run = table[n].run;
            i->flags = table[n].flags;
            return i->num_args == table[n].num_args;
        }
    }
    return false;
}

/* ---- all of them ------------------------------------------------------------------------ */

static bool prepare_simple(struct ptx_instruction *i)
{
    const char *name = i->token[0], *type = i->token[i->num_tokens - 1];
    if (strcmp(name, "mov") == 0) {
        i->run = run_mov;
        return i->num_args == 2 && read_type(i, type);
    }
    if (strcmp(name, "prmt") == 0) {
        i->run = run_prmt;
        return i->num_args == 4 && i->num_tokens == 2;
    }
    if (strcmp(name, "lop3") == 0) {
        i->run = run_lop3;
        return i->num_args == 5 && i->num_tokens == 2;
    }
    if (strcmp(name, "setp") == 0) {
        i->run = run_setp;
        return i->num_args == 3 && i->num_tokens == 3 && read_type(i, type) && i->type != 'h' &&
               i->type != 'B';
    }
    if (strcmp(name, "selp") == 0) {
        i->run = run_selp;
        return i->num_args == 4;
    }
    return strcmp(name, "cvt") == 0 && prepare_cvt(i);
}

bool ptx_prepare_math(struct ptx_instruction *i)
{
    static const struct {
        const char *name;
        enum operation operation;
        unsigned num_sources;
    } table[] = {
        {"add", OP_ADD, 2}, {"sub", OP_SUB, 2}, {"mul", OP_MUL, 2},   {"fma", OP_FMA, 3},
        {"mad", OP_FMA, 3}, {"min", OP_MIN, 2}, {"max", OP_MAX, 2},   {"and", OP_AND, 2},
        {"or", OP_OR, 2},   {"xor", OP_XOR, 2}, {"not", OP_NOT, 1},   {"shl", OP_SHL, 2},
        {"shr", OP_SHR, 2}, {"neg", OP_NEG, 1}, {"abs", OP_ABS, 1},   {"ex2", OP_EX2, 1},
        {"lg2", OP_LG2, 1}, {"rcp", OP_RCP, 1}, {"sqrt", OP_SQRT, 1}, {"rsqrt", OP_RSQRT, 1}};
    if (prepare_simple(i))
        return true;
    for (size_t n = 0; n < sizeof table / sizeof *table; n++)
        if (strcmp(i->token[0], table[n].name) == 0)
            return prepare_arithmetic(i, table[n].operation, table[n].num_sources);
    return false;
}
