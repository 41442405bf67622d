/* Reading one tuning table: text in, sorted rows of a product out. The generator does it when it
 * packs a product, the runtime for the tables that a caller brings. */
#ifndef GEN_FORMAT_ROWS_H
#define GEN_FORMAT_ROWS_H

#include "format/product.h"

enum gen_table_result {
    GEN_TABLE_READ,
    GEN_TABLE_REFUSED, /* the header is malformed: the reason says how */
    GEN_TABLE_NO_MEMORY
};

struct gen_table {
    struct gen_pack_table about; /* but for its strings and the place of its rows */
    char class_name[32];         /* "sm90_132sm" */
    char reason[128];            /* why it was refused, or the first bad row; "" if neither */
    struct gen_pack_row *rows;   /* sorted as in a product; to be freed */
};

/* Reads `size` bytes of text, naming variants by `view`. A bad row is skipped and counted. */
enum gen_table_result gen_table_read(const struct gen_pack_view *view, const char *text,
                                     size_t size, struct gen_table *table);

/* Are they of one family and required key? The index of several products may name a family twice.
 */
bool gen_table_same_key(const struct gen_pack_view *view, const struct gen_pack_group *a,
                        const struct gen_pack_group *b);
/* Is the group PTX where the product has machine code for its key and the compute capability? Then
 * rows that name its variants are left out. */
bool gen_table_passes_over(const struct gen_pack_view *view, const struct gen_pack_group *group,
                           uint32_t compute_capability);

/* The order of rows: by required key, and within one by coordinates. Of equally near rows the first
 * counts. What was tuned for more serves fewer better than the other way round, because tiles for
 * fewer rows read again what these share. */
int gen_table_order_keys(uint32_t family_a, const char *values_a, uint32_t family_b,
                         const char *values_b);
int gen_table_order_counts(const float *a, const float *b);

#endif /* GEN_FORMAT_ROWS_H */
