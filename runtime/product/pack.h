/* The index of a product file, or of several as one, in memory, with every offset checked. */
#ifndef GEN_PACK_H
#define GEN_PACK_H

#include "format/product.h"
#include "family/family.h"
#include "product/source.h"

struct gen__pack {
    struct gen__source source; /* that gen__pack_close() closes */
    struct gen__source *more;  /* of the products that were added, likewise */
    uint32_t num_more;
    const uint32_t *source_of; /* by variant: 0: source, i: more[i - 1]; NULL: all are in source */
    uint64_t digest;           /* of the product */
    void *owned;               /* the index, where it was read from a file or put together */
    const struct gen_pack_index *index;
    const struct gen_pack_family *families;
    const struct gen_pack_target *targets;
    const struct gen_pack_group *groups;
    const struct gen_pack_variant *variants;
    const struct gen_pack_table *tables;
    const struct gen_pack_row *rows;
    const char *strings;
};

/* Checks the index of pack->source (8-byte aligned where it is in memory) and points into it;
 * `label` names the file in messages. After GEN_OK every index and string of the pack may be
 * followed without a check. The images themselves are looked at when they are loaded, so that
 * opening costs the same whatever their number of bytes. Errors: FORMAT, INVALID_ARGUMENT, IO,
 * OUT_OF_MEMORY. */
enum gen_status gen__pack_open(const char *label, struct gen__pack *pack);
void gen__pack_close(struct gen__pack *pack);

/* merge.c: makes `pack` the union of itself and `more`, which is one product of its own and empty
 * afterwards. Of variants of one name the one that was there first stays, and with it the fallback
 * of its group; rows of a table of `more` that were measured on another kernel of that name are
 * counted as expired, rows of PTX beside machine code as such. `label` names `more` in messages. On
 * failure both are as they were. Errors: FORMAT, OUT_OF_MEMORY. */
enum gen_status gen__pack_add(struct gen__pack *pack, const char *label, struct gen__pack *more);

/* The variant's image, after its hash was checked; *owned is to be freed, also after a failure.
 * Errors: FORMAT, IO, OUT_OF_MEMORY. */
enum gen_status gen__pack_image(const struct gen__pack *pack, uint32_t variant, const void **image,
                                void **owned);

static inline const char *gen__pack_string(const struct gen__pack *pack, uint32_t offset)
{
    return pack->strings + offset;
}

static inline const char *gen__variant_name(const struct gen__pack *pack, uint32_t variant)
{
    return pack->strings + pack->variants[variant].name;
}

static inline const struct gen_pack_target *gen__variant_target(const struct gen__pack *pack,
                                                                uint32_t variant)
{
    return &pack->targets[pack->groups[pack->variants[variant].group].target];
}

static inline struct gen_pack_view gen__pack_view(const struct gen__pack *pack)
{
    return (struct gen_pack_view){.families = pack->families,
                                  .targets = pack->targets,
                                  .groups = pack->groups,
                                  .variants = pack->variants,
                                  .strings = pack->strings,
                                  .num_groups = pack->index->num_groups,
                                  .num_variants = pack->index->num_variants};
}

#endif /* GEN_PACK_H */
