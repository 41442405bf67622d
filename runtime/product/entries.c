/* The look-ups that a selection begins with: families by tag, entries by required key. */
#include "product/library.h"

#include <stdlib.h>
#include <string.h>

/* ---- the families ------------------------------------------------------ */

/* Puts the families among the places under one factor; how many were taken on the way. */
static uint32_t insert_known(struct gen__known *known, uint32_t factor)
{
    const uint32_t mask = (1u << GEN__KNOWN_BITS) - 1;
    uint32_t collisions = 0;
    memset(known, 0, ((size_t)mask + 1) * sizeof(*known));
    for (uint32_t f = 0; f < gen__num_families; f++) {
        const struct gen__family *family = gen__families[f];
        uint32_t i = gen__known_hash(factor, family->tag);
        for (; known[i & mask].family; i++)
            collisions++;
        known[i & mask] = (struct gen__known){.tag = family->tag,
                                              .problem_size = family->problem_size,
                                              .family = family,
                                              .select = family->select,
                                              .launch = family->launch};
    }
    return collisions;
}

enum gen_status gen__known_build(gen_library *library)
{
    struct gen__known *known =
        gen__calloc_lines((size_t)1 << GEN__KNOWN_BITS, sizeof(struct gen__known));
    library->known = known;
    if (!known)
        return gen__fail(GEN_STATUS_OUT_OF_MEMORY, "no memory for the families");
    if (gen__num_families > GEN__MAX_FAMILIES)
        return gen__fail(GEN_STATUS_UNSUPPORTED, "%u families; allowed: %u", gen__num_families,
                         GEN__MAX_FAMILIES);
    uint32_t factor = 0x9e3779b1u, best = factor, least = UINT32_MAX;
    for (int attempt = 0; attempt < 64 && least > 0; attempt++) {
        const uint32_t collisions = insert_known(known, factor);
        if (collisions < least) {
            least = collisions;
            best = factor;
        }
        factor = factor * 0x915f77f5u + 2; /* stays odd */
    }
    if (least > 0)
        insert_known(known, best);
    library->known_factor = best;
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

/* A group's key; `family` is NULL where this runtime does not know it. */
struct group_key {
    const struct gen__family *family;
    uint64_t codes;
};

static void read_keys(const gen_library *library, struct group_key *keys)
{
    const struct gen__pack *pack = &library->pack;
    for (uint32_t g = 0; g < pack->index->num_groups; g++) {
        const struct gen__family *family = library->families[pack->groups[g].family];
        const char *values = gen__pack_string(pack, pack->groups[g].values);
        if (family && parse_values(family, values, &keys[g].codes))
            keys[g].family = family;
    }
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

static bool same_key(const struct group_key *a, const struct group_key *b)
{
    return a->family == b->family && a->codes == b->codes;
}

/* Puts the keys among `places` under one factor: of each the first group that has it, counted from
 * 1, or 0. How many were taken on the way; goes no further where that is `enough`. */
static uint32_t place_keys(const gen_library *library, const struct group_key *keys,
                           uint64_t factor, uint32_t enough, uint32_t *places)
{
    uint32_t collisions = 0;
    memset(places, 0, (library->entry_mask + 1) * sizeof(*places));
    for (uint32_t g = 0; g < library->pack.index->num_groups && collisions < enough; g++) {
        if (!keys[g].family)
            continue;
        uint64_t i = gen__entry_hash(factor, keys[g].family, keys[g].codes) & library->entry_mask;
        for (; places[i] && !same_key(&keys[places[i] - 1], &keys[g]); collisions++)
            i = (i + 1) & library->entry_mask;
        places[i] = places[i] ? places[i] : g + 1;
    }
    return collisions;
}

/* Under a factor that gives every key an entry of its own, if one is found soon. */
static void choose_places(gen_library *library, const struct group_key *keys, uint32_t *places)
{
    uint64_t factor = 0x9e3779b97f4a7c15ull;
    uint64_t best = factor;
    uint32_t least = UINT32_MAX;
    for (int attempt = 0; attempt < 16 && least > 0; attempt++) {
        const uint32_t collisions = place_keys(library, keys, factor, least, places);
        if (collisions < least) {
            least = collisions;
            best = factor;
        }
        factor = factor * 0xd1342543de82ef95ull + 2; /* stays odd */
    }
    library->entry_factor = best;
}

/* Fills the entries with all keys, in the order of the product's. */
static void insert_keys(gen_library *library, const struct group_key *keys)
{
    for (uint32_t g = 0; g < library->pack.index->num_groups; g++) {
        if (!keys[g].family) {
            library->num_groups_skipped++;
            library->group_entry[g] = GEN__NO_ENTRY;
            continue;
        }
        uint64_t i = gen__entry_hash(library->entry_factor, keys[g].family, keys[g].codes);
        struct gen__entry *entry = &library->entries[i & library->entry_mask];
        while (entry->family && (entry->family != keys[g].family || entry->codes != keys[g].codes))
            entry = &library->entries[++i & library->entry_mask];
        if (!entry->family) {
            entry->family = keys[g].family;
            entry->codes = keys[g].codes;
            entry->order = library->num_entries++;
        }
        library->group_entry[g] = (uint32_t)(entry - library->entries);
    }
}

/* The entry of a group, to be written. */
static struct gen__entry *entry_of(gen_library *library, uint32_t group)
{
    const uint32_t entry = library->group_entry[group];
    return entry == GEN__NO_ENTRY ? NULL : &library->entries[entry];
}

bool gen__entries_build(gen_library *library)
{
    const struct gen__pack *pack = &library->pack;
    const uint32_t num_groups = pack->index->num_groups;
    struct group_key *keys = calloc(num_groups + 1u, sizeof(*keys));
    uint32_t *places = malloc((library->entry_mask + 1) * sizeof(*places));
    const bool good = keys && places;
    if (good) {
        read_keys(library, keys);
        choose_places(library, keys, places);
        insert_keys(library, keys);
    }
    free(keys);
    free(places);
    if (!good)
        return false;
    for (uint32_t g = 0; g < num_groups; g++) {
        struct gen__entry *entry = entry_of(library, g);
        if (entry)
            entry->num_groups++;
    }
    uint32_t first = 0;
    for (uint64_t e = 0; e <= library->entry_mask; e++) {
        library->entries[e].first_group = first;
        first += library->entries[e].num_groups;
        library->entries[e].num_groups = 0;
    }
    for (uint32_t g = 0; g < num_groups; g++) {
        struct gen__entry *entry = entry_of(library, g);
        if (!entry)
            continue;
        uint32_t *order = library->group_order + entry->first_group;
        uint32_t at = entry->num_groups++;
        for (; at > 0 && better_target(pack, g, order[at - 1]); at--)
            order[at] = order[at - 1];
        order[at] = g;
        entry->best = gen__group_of(library, order[0]);
    }
    return true;
}
