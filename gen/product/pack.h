/*
 * The product file (format/product.h) out of built variants.
 */
#ifndef PACK_H
#define PACK_H

#include "spec/model.h"

struct pack_table {
    const char *path;
    const char *name; /* "sm90_132sm" */
    const char *text;
    size_t size;
};

struct pack_tables {
    struct pack_table *items;
    size_t count;
};

/* Reads tables from files and from the *.tsv of folders, sorted by name. */
void pack_read_tables(struct session *session, const char *const *paths, size_t count,
                      struct pack_tables *tables);

/* Appends the product of `variants` (sorted by name, each VARIANT_BUILT, or, to
 * learn the size of all but the images, any). Its bytes depend on nothing else. */
void pack_make(struct session *session, struct variant *const *variants, size_t count,
               const struct pack_tables *tables, const char *toolkit, struct text *out);

#endif /* PACK_H */
