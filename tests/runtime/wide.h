/*
 * Families of two, three and four tuning coordinates, for tests of selection and for
 * its bench: "wide2", "wide3" and "wide4" beside la_decode, each with eight required
 * keys. What is checked and planned is about as much as an attention does for a
 * batch of requests.
 *
 * Facts: multiple (counts[1] must be one of it; below 2: any), rows (of a tile of
 * counts[0]).
 */
#ifndef WIDE_H
#define WIDE_H

#include "gen.h"
#include "make_product.h"

#define GEN_WIDE(num_coords) (0x65646977u + (num_coords))
#define WIDE_KEYS 8
#define WIDE_VARIANTS 8 /* of a key */

typedef struct gen_wide_problem {
    gen_problem base;
    int32_t counts[4];
    int32_t dtype, cache, rope; /* 0, 1 */
} gen_wide_problem;

/* Text that grows. */
struct wide_text {
    char *at;
    size_t length, capacity;
};

void wide_add(struct wide_text *text, const char *line);
/* The head of a tuning table, and a row of it: `counts` of a key, for a variant. */
void wide_head(struct wide_text *text, unsigned num_sms);
void wide_row(struct wide_text *text, unsigned num_coords, unsigned key, const double counts[4],
              unsigned variant, double us);

/* A product of the three families for sm_90a. Of each key's variants, numbers 5 and 6 want a
 * multiple of 3, and 7 wants 200 KiB of shared memory; tables may be added. */
struct product *wide_product(void);

gen_wide_problem wide_problem(unsigned num_coords, unsigned key);

#endif /* WIDE_H */
