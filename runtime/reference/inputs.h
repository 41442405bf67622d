/*
 * What kernels and references are compared on: a family's tensors, and how the tuner, the verifier
 * and the tests fill them.
 */
#ifndef GEN_INPUTS_H
#define GEN_INPUTS_H

#include "gen.h"

#include <stdbool.h>

#define GEN__MAX_TENSORS 24

/* How the tuner and the tests fill a tensor before a launch. */
enum gen__fill {
    GEN__FILL_NORMAL,  /* standard normal times `amount`, `mean` and `common` added */
    GEN__FILL_UNIFORM, /* uniform in [0, amount) */
    GEN__FILL_SIGNS,   /* plus or minus `amount` */
    GEN__FILL_SLOTS,   /* a permutation of distinct slots below `amount` */
    GEN__FILL_POISON,  /* written by the kernel: NaN bytes before it */
    GEN__FILL_FAMILY   /* by gen__family.fill: lengths, tables, offsets */
};

/* Inputs on which a kernel goes wrong that standard normal numbers let pass: what is lost of sums
 * in one direction, or where operands leave their type, cancels there or does not occur. */
enum gen__data {
    GEN__DATA_NORMAL,     /* what tensors() says */
    GEN__DATA_ONES,       /* values are 1 */
    GEN__DATA_MEAN1,      /* values have mean 1 */
    GEN__DATA_CONSTANT,   /* all rows of queries, of keys and of values are the same */
    GEN__DATA_CORRELATED, /* keys are one direction and some noise */
    GEN__DATA_EXTREME,    /* keys and values as great as the type has them */
    GEN__NUM_DATA
};

/* What a fill is asked for, beside random numbers of a seed. */
struct gen__fill_options {
    uint64_t seed;
    bool padding;    /* entries that name nothing: every third slot, page, record */
    bool non_finite; /* NaN where no kernel may read, or in a state */
    bool poisoned;   /* NaN in all values (or the state) of one head of one request: all of its
                        outputs are NaN by the reference, and no other's are */
    bool ordered;    /* slots and pages in ascending order, not shuffled */
};

/* GEN__SCRATCH: written, and of no meaning when the launch is over. */
enum gen__role { GEN__IN, GEN__OUT, GEN__INOUT, GEN__SCRATCH };

/* A tensor argument: where its pointer stands in the argument struct, its
 * extent, and what a correct result is. Zero where nothing is said. */
struct gen__tensor {
    const char *name;
    uint32_t pointer_offset; /* in the argument struct */
    enum gen_dtype dtype;
    enum gen__role role;
    enum gen__fill fill;
    double amount;
    /* Of normal numbers: added to all of them, and so much of one normal row of `width` elements,
     * the same for each row. */
    double mean, common;
    uint32_t width;
    uint64_t count; /* elements; 0: the pointer is NULL, or a view's */
    bool cold;      /* the tuner rotates it through several copies */
    /* Outputs: the greatest relative Frobenius error, of the whole and, where `row` is not 0, of
     * each run of so many elements (row_tolerance, 0: the same); or, where `absolute` is not 0, of
     * each element by itself. */
    double tolerance, row_tolerance, absolute;
    uint32_t row;
    double bias; /* Of 16 bits: the most that all errors add up to, of all magnitudes; 0: any. */
    bool rounded_once; /* of 16 bits: each within one rounding of what exact() gives */
    /* A view: lies in the memory of tensor view_of - 1, from element view_at on. */
    uint32_t view_of;
    uint64_t view_at;
};

/* The first fields of one: GEN__TENSOR(gen_scale_args, x, GEN_DTYPE_FP32, GEN__IN,
 * GEN__FILL_NORMAL, 1.0, count). */
#define GEN__TENSOR(args, member, type, part, kind, size, elements)                             \
    .name = #member, .pointer_offset = offsetof(args, member), .dtype = (type), .role = (part), \
    .fill = (kind), .amount = (size), .count = (uint64_t)(elements)

#endif /* GEN_INPUTS_H */
