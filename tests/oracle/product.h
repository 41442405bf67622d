/* The recorded product: every variant of a full build with its launch traits, both tuning tables
 * and the seeds of the questions, as text (README.md says how it is made). */
#ifndef ORACLE_PRODUCT_H
#define ORACLE_PRODUCT_H

#include "family/family.h"

struct seed {
    const struct gen__family *family;
    char *text; /* a problem, as gen__problem_parse() reads it */
};

struct recorded {
    void *bytes; /* of the product file, dummy images included */
    size_t size;
    struct seed *seeds;
    size_t num_seeds;
    /* Those that have seeds: a family that came later is not asked about. */
    const struct gen__family **families;
    uint32_t num_families;
};

/* Reads a gzip file. Exits with a message where it cannot be read. */
void recorded_read(const char *path, struct recorded *recorded);
void recorded_free(struct recorded *recorded);

/* The whole output of `gzip -dc path`, NUL-terminated, to be freed. Exits where that fails. */
char *gunzip(const char *path, size_t *size);

#endif /* ORACLE_PRODUCT_H */
