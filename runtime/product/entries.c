/* The look-ups that a selection begins with: families by tag, entries by required key. */
#include "product/library.h"

#include <string.h>

/* ---- the families ------------------------------------------------------ */

static enum gen_status place_families(gen_library *library)
{
    if (gen__num_families > GEN__FAMILY_PLACES / 2)
        return gen__fail(GEN_STATUS_UNSUPPORTED, "%u families; allowed: %u", gen__num_families,
                         GEN__FAMILY_PLACES / 2);
    for (uint32_t f = 0; f < gen__num_families; f++) {
        uint32_t i = gen__family_hash(gen__families[f]->tag);
        while (library->family_places[i % GEN__FAMILY_PLACES])
            i++;
        library->family_places[i % GEN__FAMILY_PLACES] = (uint8_t)(f + 1);
    }
    return GEN_OK;
}

/* ---- the required keys ------------------------------------------------- */

/* The codes of "bf16,128,vk"; false where this runtime does not know one. */
static bool parse_values(const struct gen__family *family, const char *text, uint64_t *codes)
{
    struct gen__key key = {0};
    for (uint32_t a = 0; a < family->num_required; a++) {
        const struct gen__axis *axis = &family->required[a];
        size_t length = strcspn(text, ",");
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

/* Machine code for one compute capability before machine code for a line of
 * them before text; later architectures first; then as the product has them. */
static bool better_target(const struct gen__pack *pack, uint32_t a, uint32_t b)
{
    const struct gen_pack_target *x = &pack->targets[pack->groups[a].target];
    const struct gen_pack_target *y = &pack->targets[pack->groups[b].target];
    if (x->kind != y->kind)
        return x->kind < y->kind;
    if (x->compute_capability != y->compute_capability)
        return x->compute_capability > y->compute_capability;
    return a < b;
}

/* The entry of the key, a new one where it has none. */
static uint32_t entry_of(gen_library *library, const struct gen__family *family, uint64_t codes)
{
    const struct gen__key_entry *found = gen__key_entry_find(library, family, codes);
    if (found)
        return (uint32_t)(found - library->entries);
    uint64_t i = gen__key_entry_hash(family, codes);
    while (library->entry_places[i & library->entry_mask])
        i++;
    library->entries[library->num_entries] =
        (struct gen__key_entry){.codes = codes, .family = family};
    library->entry_places[i & library->entry_mask] = ++library->num_entries;
    return library->num_entries - 1;
}

/* The groups of each entry, in group_order. */
static void order_groups(gen_library *library)
{
    uint32_t first = 0;
    for (uint32_t e = 0; e < library->num_entries; e++) {
        library->entries[e].first_group = first;
        first += library->entries[e].num_groups;
        library->entries[e].num_groups = 0;
    }
    for (uint32_t g = 0; g < library->pack.index->num_groups; g++) {
        if (library->group_entry[g] == GEN__NO_ENTRY)
            continue;
        struct gen__key_entry *entry = &library->entries[library->group_entry[g]];
        uint32_t *order = library->group_order + entry->first_group;
        uint32_t at = entry->num_groups++;
        for (; at > 0 && better_target(&library->pack, g, order[at - 1]); at--)
            order[at] = order[at - 1];
        order[at] = g;
    }
}

enum gen_status gen__key_entries_build(gen_library *library)
{
    const struct gen__pack *pack = &library->pack;
    const enum gen_status status = place_families(library);
    if (status)
        return status;
    for (uint32_t g = 0; g < pack->index->num_groups; g++) {
        const struct gen__family *family = library->families[pack->groups[g].family];
        uint64_t codes;
        library->group_entry[g] = GEN__NO_ENTRY;
        if (!family ||
            !parse_values(family, gen__pack_string(pack, pack->groups[g].values), &codes)) {
            library->num_groups_skipped++;
            continue;
        }
        library->group_entry[g] = entry_of(library, family, codes);
        library->entries[library->group_entry[g]].num_groups++;
    }
    order_groups(library);
    return GEN_OK;
}
