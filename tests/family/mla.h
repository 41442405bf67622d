/* Problems, variants and filled arguments for the tests of the MLA families. */
#ifndef TEST_FAMILY_MLA_H
#define TEST_FAMILY_MLA_H

#include "families/mla_decode/mla_decode.h"
#include "families/mla_merge/mla_merge.h"
#include "h200.h"
#include "reference/half.h"
#include "test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

extern const struct gen__family gen__family_mla_decode, gen__family_mla_merge;

static inline gen_mla_decode_problem mla_problem(int32_t batch, int32_t num_heads, int32_t kv_len)
{
    return (gen_mla_decode_problem){
        .base = {.size = sizeof(gen_mla_decode_problem), .family = GEN_MLA_DECODE},
        .batch = batch,
        .num_heads = num_heads,
        .q_len = 1,
        .kv_len = kv_len,
        .max_kv_len = kv_len > 0 ? kv_len : 1,
        .page_size = 64,
        .rope_dim = 64,
        .dtype = GEN_DTYPE_BF16,
        .cache = GEN_MLA_CACHE_SAME,
    };
}

/* The Hopper kernel: a block an SM. */
static inline struct gen__facts mla_wgmma(void)
{
    return (struct gen__facts){.index = 5,
                               .threads = 384,
                               .shared_dynamic = 224 * 1024,
                               .registers = 168,
                               .cluster = 1,
                               .fact = {64, 64, 2, 1, 1, 1, 1}};
}

/* A portable one of 16 rows, two blocks an SM. */
static inline struct gen__facts mla_mma(void)
{
    return (struct gen__facts){.index = 6,
                               .threads = 256,
                               .shared_dynamic = 100 * 1024,
                               .registers = 128,
                               .cluster = 1,
                               .fact = {16, 32, 2, 1, 0, 0, 0}};
}

static inline gen_plan mla_planned(gen_mla_decode_problem p, const struct gen__facts *variant)
{
    gen_plan plan = {0};
    struct gen__key key;
    assert_int_equal(gen__family_mla_decode.check(&p.base, &key), GEN_OK);
    gen__family_mla_decode.plan(&p.base, &h200, variant, &plan);
    return plan;
}

/* ---- wrong arguments ---------------------------------------------------- */

/* Never read: params() looks at addresses alone. */
static _Alignas(64) unsigned char mla_memory[256];

/* One wrong argument at a time; %p in a message stands for the pointer. */
struct mla_wrong {
    size_t offset, size; /* in the arguments; 4 or 8 bytes */
    int64_t value;       /* NULL and numbers; for `pointer` an offset from mla_memory */
    bool pointer;
    const char *message; /* behind "<family>: " */
};

/* Puts it into the arguments and spells out what should be said. */
static inline void mla_write_wrong(const struct mla_wrong *w, const char *family, void *args,
                                   char *message, size_t capacity)
{
    const void *pointer = w->pointer ? mla_memory + w->value : NULL;
    const int32_t narrow = (int32_t)w->value;
    const char *mark = w->pointer ? strstr(w->message, "%p") : NULL;
    char text[32] = "";
    if (mark)
        snprintf(text, sizeof text, "%p", pointer);
    snprintf(message, capacity, "%s: %.*s%s%s", family,
             mark ? (int)(mark - w->message) : (int)strlen(w->message), w->message, text,
             mark ? mark + 2 : "");
    if (w->pointer)
        memcpy((char *)args + w->offset, &pointer, sizeof pointer);
    else
        memcpy((char *)args + w->offset,
               w->size == 4 ? (const void *)&narrow : (const void *)&w->value, w->size);
}

/* Each is refused with its message, and nothing is written. */
static inline void mla_check_wrongs(const struct gen__family *family, const gen_plan *plan,
                                    const void *good, const struct mla_wrong *wrongs, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        _Alignas(64) unsigned char args[512], params[GEN__MAX_PARAMS], before[GEN__MAX_PARAMS];
        char message[512];
        assert_true(family->args_size <= sizeof args);
        memcpy(args, good, family->args_size);
        memset(params, 0xa5, sizeof params);
        memcpy(before, params, sizeof params);
        mla_write_wrong(&wrongs[i], family->name, args, message, sizeof message);
        const gen_args *a = (const gen_args *)(const void *)args;
        assert_failed(family->params(plan, 0, a, mla_memory, params), INVALID_ARGUMENT, message);
        assert_memory_equal(params, before, sizeof params);
        assert_failed(family->params(plan, 0, a, NULL, NULL), INVALID_ARGUMENT, message);
    }
}

/* ---- tensors in host memory -------------------------------------------- */

struct mla_tensors {
    const struct gen__family *family;
    const gen_problem *problem;
    struct gen__tensor tensor[GEN__MAX_TENSORS];
    void *data[GEN__MAX_TENSORS];
    uint32_t count;
    union {
        gen_args base;
        gen_mla_decode_args decode;
        gen_mla_merge_args merge;
    } args;
};

static inline uint64_t mla_element_size(enum gen_dtype dtype)
{
    return dtype == GEN_DTYPE_E4M3 ? 1 : dtype == GEN_DTYPE_BF16 || dtype == GEN_DTYPE_FP16 ? 2 : 4;
}

/* Standard normal, nearly: a sum of twelve. */
static inline double mla_normal(uint64_t *state)
{
    double sum = 0;
    for (int i = 0; i < 12; i++)
        sum += random_unit(state) / 2;
    return sum;
}

static inline void mla_put(enum gen_dtype dtype, void *data, uint64_t i, double x)
{
    if (dtype == GEN_DTYPE_E4M3)
        ((uint8_t *)data)[i] = gen__e4m3_from_double(x);
    else if (dtype == GEN_DTYPE_FP32)
        ((float *)data)[i] = (float)x;
    else
        ((uint16_t *)data)[i] =
            dtype == GEN_DTYPE_FP16 ? gen__fp16_from_double(x) : gen__bf16_from_double(x);
}

static inline double mla_get(enum gen_dtype dtype, const void *data, uint64_t i)
{
    return dtype == GEN_DTYPE_E4M3   ? gen__e4m3_to_double(((const uint8_t *)data)[i])
           : dtype == GEN_DTYPE_FP32 ? (double)((const float *)data)[i]
           : dtype == GEN_DTYPE_FP16 ? gen__fp16_to_double(((const uint16_t *)data)[i])
                                     : gen__bf16_to_double(((const uint16_t *)data)[i]);
}

/* A column of a row of a partial result, and its fp16 bits (struct gen_mla_partial_row). */
static inline uint32_t mla_partial_exponent(const struct gen_mla_partial_row *row, int column)
{
    return (uint32_t)row->exponents[column / 256] >> column / 64 % 4 * 8 & 0xff;
}

static inline double mla_partial(const struct gen_mla_partial_row *row, uint16_t bits, int column)
{
    return ldexp(gen__fp16_to_double(bits), (int)mla_partial_exponent(row, column) - 127);
}

/* 512 columns as kernels leave them: the greatest of 64 is 2^14 to 2^15 in fp16. */
static inline void mla_put_partial(struct gen_mla_partial_row *row, const double *x, uint16_t *bits)
{
    uint32_t exponents[2] = {0};
    for (int c = 0; c < 8; c++) {
        int exponent = 0;
        double most = 0;
        for (int i = 64 * c; i < 64 * c + 64; i++)
            most = fmax(most, fabs(x[i]));
        (void)frexp(most, &exponent); /* most < 2^exponent */
        exponent = exponent + 112 > 1 ? exponent + 112 : 1;
        exponents[c / 4] |= (uint32_t)exponent << c % 4 * 8;
        for (int i = 64 * c; i < 64 * c + 64; i++)
            bits[i] = gen__fp16_from_double(ldexp(x[i], 127 - exponent));
    }
    row->exponents[0] = (int)exponents[0];
    row->exponents[1] = (int)exponents[1];
}

/* Random inputs, poisoned outputs, as the verifier makes them; false where the
 * problem has no such form (-1: the default one). */
static inline bool mla_tensors_make(struct mla_tensors *t, const struct gen__family *family,
                                    const gen_problem *problem, int form,
                                    struct gen__fill_options options)
{
    uint64_t state = options.seed;
    memset(t, 0, sizeof *t);
    t->family = family;
    t->problem = problem;
    t->count = family->tensors(problem, t->tensor);
    family->default_args(problem, &t->args.base);
    if (form >= 0 && !family->form(problem, (uint32_t)form, &t->args.base, t->tensor))
        return false;
    for (uint32_t i = 0; i < t->count; i++) {
        const struct gen__tensor *x = &t->tensor[i];
        const size_t size = (size_t)(x->count * mla_element_size(x->dtype));
        if (!x->count)
            continue;
        t->data[i] = aligned_alloc(16, (size + 15) / 16 * 16);
        assert_non_null(t->data[i]);
        memset(t->data[i], x->fill == GEN__FILL_POISON ? 0xff : 0, size);
        for (uint64_t e = 0; x->fill == GEN__FILL_NORMAL && e < x->count; e++)
            mla_put(x->dtype, t->data[i], e, x->amount * mla_normal(&state));
    }
    for (uint32_t i = 0; i < t->count; i++) {
        const struct gen__tensor *x = &t->tensor[i];
        if (x->view_of && t->data[x->view_of - 1])
            t->data[i] = (char *)t->data[x->view_of - 1] + x->view_at * mla_element_size(x->dtype);
        memcpy((char *)&t->args + x->pointer_offset, &t->data[i], sizeof t->data[i]);
    }
    assert_int_equal(family->fill(problem, &t->args.base, t->tensor, &options, t->data), GEN_OK);
    return true;
}

static inline void mla_tensors_free(struct mla_tensors *t)
{
    for (uint32_t i = 0; i < t->count; i++)
        if (!t->tensor[i].view_of)
            free(t->data[i]);
}

/* The plan of the reference, its arguments checked. */
static inline gen_plan mla_cpu_plan(const struct mla_tensors *t)
{
    gen_plan plan = {0};
    t->family->plan(t->problem, &h200, NULL, &plan);
    if (plan.num_launches)
        assert_int_equal(t->family->params(&plan, 0, &t->args.base, NULL, NULL), GEN_OK);
    return plan;
}

static inline void mla_run_reference(const struct mla_tensors *t)
{
    const gen_plan plan = mla_cpu_plan(t);
    assert_int_equal(t->family->reference(&plan, &t->args.base), GEN_OK);
}

#endif /* TEST_FAMILY_MLA_H */
