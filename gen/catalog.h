/*
 * The catalog: every variant with its static facts as a text file that is
 * committed and reviewed, and the comparison of a catalog or product with what
 * the templates say now.
 */
#ifndef CATALOG_H
#define CATALOG_H

#include "model.h"

/* Appends the catalog of session->variants (built or refused). */
void catalog_make(struct session *session, const char *toolkit, struct text *out);

struct catalog_row {
    const char *name;
    uint64_t digest;
    bool seen;
};

struct catalog {
    const char *path;
    struct catalog_row *rows; /* sorted by name; refused variants too */
    size_t count;
    /* How it was chosen; NULL where it does not say. */
    const char *families, *targets, *only;
    bool partial; /* chosen by a table: missing rows are no mistake */
};

/* Damaged files are failures. */
void catalog_read(struct session *session, const char *path, struct catalog *catalog);
void catalog_read_product(struct session *session, const char *path, struct catalog *catalog);

#endif /* CATALOG_H */
