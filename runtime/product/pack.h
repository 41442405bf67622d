/* A product file in memory, every offset of its index checked. */
#ifndef GEN_PACK_H
#define GEN_PACK_H

#include "format/product.h"
#include "family/family.h"

struct gen__pack {
    const unsigned char *data; /* the file */
    uint64_t size;
    uint64_t digest; /* of the product */
    const struct gen_pack_index *index;
    const struct gen_pack_family *families;
    const struct gen_pack_target *targets;
    const struct gen_pack_group *groups;
    const struct gen_pack_variant *variants;
    const struct gen_pack_table *tables;
    const struct gen_pack_row *rows;
    const char *strings;
};

/* Checks `size` bytes at `data` (8-byte aligned) and points into them; `label`
 * names the file in messages. After GEN_OK every index and string of the pack
 * may be followed without a check. The images themselves are looked at when
 * they are loaded, so that opening costs the same whatever their number of
 * bytes. Errors: FORMAT, INVALID_ARGUMENT. */
enum gen_status gen__pack_open(const void *data, uint64_t size, const char *label,
                               struct gen__pack *pack);

/* Is the variant's image a CUDA fatbin of the size that the index gives? */
bool gen__pack_image_ok(const struct gen__pack *pack, uint32_t variant);

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

static inline bool gen__target_runs(const struct gen_pack_target *target,
                                    uint32_t compute_capability)
{
    return gen_pack_code_runs(target->kind, target->compute_capability, compute_capability);
}

#endif /* GEN_PACK_H */
