/* Problems, variants and filled arguments for the tests of the MLA families. */
#ifndef TEST_FAMILY_MLA_H
#define TEST_FAMILY_MLA_H

#include "family/occupancy.h"
#include "families/mla_decode/mla_decode.h"
#include "families/mla_merge/mla_merge.h"
#include "fixture.h"

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
    struct gen__facts variant = {.index = 5,
                                 .threads = 384,
                                 .shared_dynamic = 224 * 1024,
                                 .registers = 168,
                                 .cluster = 1,
                                 .fact = {64, 64, 2, 1, 1, 1, 1}};
    variant.occupancy = gen__occupancy(&variant);
    return variant;
}

/* A portable one of 16 rows, two blocks an SM. */
static inline struct gen__facts mla_mma(void)
{
    struct gen__facts variant = {.index = 6,
                                 .threads = 256,
                                 .shared_dynamic = 100 * 1024,
                                 .registers = 128,
                                 .cluster = 1,
                                 .fact = {16, 32, 2, 1, 0, 0, 0}};
    variant.occupancy = gen__occupancy(&variant);
    return variant;
}

static inline gen_plan mla_planned(gen_mla_decode_problem p, const struct gen__facts *variant)
{
    gen_plan plan = {0};
    struct gen__key key;
    assert_int_equal(gen__family_mla_decode.check(&p.base, &key), GEN_OK);
    gen__family_mla_decode.plan(&p.base, &h200, variant, &plan);
    return plan;
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

/* Standard normal, nearly: a sum of twelve. */
static inline double mla_normal(uint64_t *state)
{
    double sum = 0;
    for (int i = 0; i < 12; i++)
        sum += random_unit(state) / 2;
    return sum;
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
        const size_t size = (size_t)(x->count * element_size(x->dtype));
        if (!x->count)
            continue;
        t->data[i] = aligned_alloc(16, (size + 15) / 16 * 16);
        assert_non_null(t->data[i]);
        memset(t->data[i], x->fill == GEN__FILL_POISON ? 0xff : 0, size);
        for (uint64_t e = 0; x->fill == GEN__FILL_NORMAL && e < x->count; e++)
            element_put(x->dtype, t->data[i], (int64_t)e, x->amount * mla_normal(&state));
    }
    for (uint32_t i = 0; i < t->count; i++) {
        const struct gen__tensor *x = &t->tensor[i];
        if (x->view_of && t->data[x->view_of - 1])
            t->data[i] = (char *)t->data[x->view_of - 1] + x->view_at * element_size(x->dtype);
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
