/* The look-ups that a selection begins with: families by tag, entries by required key. */
#include "product/library.h"

#include <string.h>

/* The codes of "bf16,128,vk"; false where this runtime does not know one. */
static bool parse_values(const struct gen__family *family, const char *text, uint64_t *codes)
{
    struct gen__key key = {0};
    for (uint32_t a = 0; a < family->num_required; a++) {
        const struct gen__axis *axis = &family->required[a];
        const size_t length = strcspn(text, ",");
        uint32_t code = 0;
        while (code < axis->num_values && (strlen(axis->values[code]) != length ||
                                           strncmp(axis->values[code], text, length) != 0))
            code++;
        if (code == axis->num_values || code > UINT8_MAX)
            return false;
        key.codes[a] = (uint8_t)code;
        text += length;
        if (*text != (a + 1 < family->num_required ? ',' : '\0'))
            return false;
        text += *text == ',';
    }
    *codes = gen__key_codes(&key);
    return *text == '\0';
}

/* Machine code for one compute capability before machine code for a line of them before text; later
 * architectures first; then as the product has them. */
static bool better_target(const struct gen__pack *pack, uint32_t a, uint32_t b)
{
    const struct gen_pack_target *x = &pack->targets[pack->groups[a].target];
    const struct gen_pack_target *y = &pack->targets[pack->groups[b].target];
    if (x->kind != y->kind)
        return x->kind < y->kind;
    return x->compute_capability > y->compute_capability;
}

/* The entry of the key, a new one where it has none. */
static struct gen__key_entry *entry_of(gen_library *library, const struct gen__family *family,
                                       uint64_t codes)
{
    struct gen__key_entry **place = gen__key_place(library, family, codes);
    if (!*place) {
        *place = &library->entries[library->num_entries++];
        **place =
            (struct gen__key_entry){.codes = codes, .family = family, .first_group = GEN__NO_GROUP};
    }
    return *place;
}

void gen__key_entries_build(gen_library *library)
{
    const struct gen__pack *pack = &library->pack;
    for (uint32_t f = 0; f < gen__num_families; f++) {
        uint32_t i = gen__families[f]->tag * 0x9e3779b1u >> 24;
        while (library->family_places[i % GEN__FAMILY_PLACES])
            i++;
        library->family_places[i % GEN__FAMILY_PLACES] = gen__families[f];
    }
    for (uint32_t g = 0; g < pack->index->num_groups; g++) {
        const struct gen__family *family = library->families[pack->groups[g].family];
        uint64_t codes;
        if (!family || !parse_values(family, pack->strings + pack->groups[g].values, &codes)) {
            library->info.num_groups_skipped++;
            continue;
        }
        struct gen__key_entry *entry = entry_of(library, family, codes);
        uint32_t *at = &entry->first_group;
        while (*at != GEN__NO_GROUP && !better_target(pack, g, *at))
            at = &library->next_group[*at];
        library->next_group[g] = *at;
        *at = g;
        entry->num_variants += pack->groups[g].num_variants;
        library->group_entry[g] = entry;
    }
}
