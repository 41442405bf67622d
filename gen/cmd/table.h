/*
 * What `attngen table` shares among its subcommands.
 */
#ifndef TABLE_H
#define TABLE_H

#include "product/catalog.h"
#include "product/tuning.h"

/* What is known of the variants that rows may name, sorted by name: of --catalog, else of the
 * templates, which know no code digests. */
void table_know(struct session *session, const struct tuning_table *tables, size_t count,
                struct catalog *known);
const struct catalog_row *table_variant(const struct catalog *known, const char *name);

enum table_state {
    TABLE_UNKNOWN, /* there is no such variant */
    TABLE_EXPIRED, /* neither digest is the variant's */
    TABLE_OTHER,   /* the source is another; the code's digest is not known here */
    TABLE_FRESH
};
enum table_state table_state(const struct catalog *known, const struct tuning_row *row);

int table_check(struct session *session);
int table_merge(struct session *session);

#endif /* TABLE_H */
