/*
 * Families for the runtime's own tests, and a product of them. "line" has one
 * tuning coordinate, "toy" two; they share everything else:
 *
 *     out[i] = 2 * in[i]    for i in [0, batch * heads)
 *
 * "pair" is like line and leaves its second launch to line and, where length > 64,
 * its third to toy, each for twice the batch.
 *
 * line's and toy's problems of older callers have no dim, which is 64 then, and their arguments no
 * out.
 *
 * Facts: blocks (length must be a multiple of it), weight (the estimate in
 * tenths of a microsecond, 0: none), launches (of the plan), workspace (MiB).
 */
#ifndef TOY_H
#define TOY_H

#include "gen.h"
#include "make_product.h"

#define GEN_LINE 0x454e494cu
#define GEN_TOY 0x20594f54u
#define GEN_PAIR 0x52494150u

typedef struct gen_toy_problem {
    gen_problem base;
    int32_t batch, heads, length, dtype, dim;
} gen_toy_problem;

typedef struct gen_toy_args {
    gen_args base;
    const float *in;
    float *out;
} gen_toy_args;

struct toy_params {
    const float *in;
    float *out;
    void *workspace;
    uint32_t launch, count;
};

/* batch rows of 1 head and length 64, bf16, dim 64. */
gen_toy_problem toy_problem(uint32_t family, int32_t batch);

/*
 * line_bf16_d64   compute80 (text)  a (fallback, weight 90)
 *                 sm80 (major)      a (fallback, 50), b (40)
 *                 sm90a (exact)     a (30), b (20, blocks 128), c (fallback, 25), big (10, 100 KiB
 *                                   shared), nothing (no estimate)
 * line_fp16_d64   sm90a             a (fallback, no estimate)
 * toy_bf16_d64    sm90a             a (fallback, 30), b (20), split (workspace 2 MiB, 2 launches)
 *
 * Tables may be added before product_bytes().
 */
struct product *toy_product(void);

/*
 * pair_bf16_d64   compute80   a (fallback, 30)
 *                 sm90a       a (fallback, 30), b (20, workspace 1 MiB)
 * pair_fp16_d64   sm90a       a (fallback, 30)
 */
void toy_add_pair(struct product *product);

/* The 16 digits of a variant's digest as tables spell it. */
void toy_digest(const char *variant, char text[17]);

/* How often a family of these was asked for a launch's parameters. */
extern _Atomic unsigned toy_num_params;

/* A table's header for a class, and one row, appended to `text`. */
void toy_table_head(char *text, size_t capacity, unsigned compute_capability, unsigned num_sms,
                    unsigned gbps);
void toy_table_row(char *text, size_t capacity, const char *required, const char *problem,
                   const char *variant, const char *us);

/* Opens a product (frees the product; the bytes are freed by toy_close). */
gen_library *toy_open(struct product *product);
/* The same with user tables. */
enum gen_status toy_open_tables(struct product *product, const char *const *paths, size_t num_paths,
                                gen_library **library);
void toy_close(gen_library *library);

gen_device toy_device(const char *name);

/* The name of the plan's first variant, or "-". */
const char *toy_chosen(const gen_library *library, const gen_plan *plan);

#endif /* TOY_H */
