/*
 * Data that hurts, for gen__family.data: what every family's queries, keys and
 * values hold of each kind. Tensors come as gen__family.tensors() and form() left
 * them; `width` is a head's.
 */
#ifndef GEN_DATA_H
#define GEN_DATA_H

#include "reference/inputs.h"

/* Keys of GEN__DATA_CORRELATED: so much of one direction to one part of noise. */
#define GEN__DATA_DIRECTION 3
/* The greatest of millions of normal numbers is below this. */
#define GEN__DATA_MOST_NORMAL 8

/* The greatest number that is drawn: the greatest of the type, or what leaves fp32 room for the sum
 * of many squares. */
static inline double gen__data_extreme(enum gen_dtype dtype)
{
    switch (dtype) {
    case GEN_DTYPE_FP16:
        return 65504;
    case GEN_DTYPE_E4M3:
        return 448;
    case GEN_DTYPE_E5M2:
        return 57344;
    default:
        return 0x1p40;
    }
}

/* One row for all, of the size that rows had. */
static inline void gen__data_same_rows(struct gen__tensor *t, int64_t width)
{
    t->common = t->amount;
    t->amount = 0;
    t->width = (uint32_t)width;
}

/* `keys`: their type, whose extremes the scores take back. */
static inline void gen__data_queries(enum gen__data kind, struct gen__tensor *t,
                                     enum gen_dtype keys, int64_t width)
{
    if (kind == GEN__DATA_CONSTANT)
        gen__data_same_rows(t, width);
    else if (kind == GEN__DATA_EXTREME)
        t->amount = GEN__DATA_MOST_NORMAL / gen__data_extreme(keys);
}

static inline void gen__data_keys(enum gen__data kind, struct gen__tensor *t, int64_t width)
{
    if (kind == GEN__DATA_CONSTANT) {
        gen__data_same_rows(t, width);
    } else if (kind == GEN__DATA_CORRELATED) {
        t->common = GEN__DATA_DIRECTION * t->amount;
        t->width = (uint32_t)width;
    } else if (kind == GEN__DATA_EXTREME) {
        t->amount = gen__data_extreme(t->dtype) / GEN__DATA_MOST_NORMAL;
    }
}

/* Values that are added to a state, times dot products of queries and keys; `averaged`: with
 * weights whose sum is 1. */
static inline void gen__data_values(enum gen__data kind, struct gen__tensor *t, int64_t width,
                                    bool averaged)
{
    if (kind == GEN__DATA_ONES || kind == GEN__DATA_MEAN1)
        t->mean = 1;
    if (kind == GEN__DATA_ONES) {
        t->amount = 0;
    } else if (kind == GEN__DATA_CONSTANT) {
        gen__data_same_rows(t, width);
    } else if (kind == GEN__DATA_EXTREME) {
        t->fill = averaged ? GEN__FILL_SIGNS : GEN__FILL_NORMAL;
        t->amount = gen__data_extreme(t->dtype) / (averaged ? 1 : GEN__DATA_MOST_NORMAL);
    }
}

/* Where keys are alike nothing decays and every step counts in full, so that what was written
 * stays. Gates and steps that the kernel activates are normal numbers, those that it takes as they
 * are uniform ones. */
static inline void gen__data_gates(enum gen__data kind, struct gen__tensor *gate,
                                   struct gen__tensor *step)
{
    if (kind != GEN__DATA_CONSTANT && kind != GEN__DATA_CORRELATED)
        return;
    gate->mean = gate->fill == GEN__FILL_NORMAL ? -100 : 0;
    gate->fill = GEN__FILL_NORMAL;
    gate->amount = 0;
    if (step) {
        step->mean = step->fill == GEN__FILL_NORMAL ? 100 : step->amount;
        step->fill = GEN__FILL_NORMAL;
        step->amount = 0;
    }
}

#endif /* GEN_DATA_H */
