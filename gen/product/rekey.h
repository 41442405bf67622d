/*
 * The digests in committed tuning tables, brought up to date from a catalog.
 */
#ifndef REKEY_H
#define REKEY_H

#include "product/catalog.h"

struct rekey_counts {
    size_t current;       /* both digests are the catalog's */
    size_t given_code;    /* rows that knew the source alone */
    size_t given_source;  /* rows whose code is the catalog's, of another source */
    size_t other_toolkit; /* rows of the catalog's source that another toolkit compiled */
    size_t expired;       /* neither digest is the catalog's */
    size_t unknown;       /* the catalog has no such variant */
};

/* The text of a table with what the catalog knows, after counting its rows by what became of them.
 * A measured time is never touched. Fails where the text is no tuning table. */
void rekey_table(struct session *session, const struct catalog *catalog, const char *path,
                 const char *text, size_t size, struct text *out, struct rekey_counts *counts);

#endif /* REKEY_H */
