/* Saying why nothing fits: only ever on the failure path. */
#include "family/gpus.h"
#include "select/select.h"

#include <string.h>

#define LEAST_CAPABILITY 80u /* of the lowest target, compute_80 */
#define MOST_SHOWN 4

void gen__reject_text(struct gen__text *text, const struct gen__query *query, uint32_t variant,
                      enum gen__reject reject, const char *why)
{
    const struct gen__pack *pack = &query->library->pack;
    const struct gen_pack_variant *v = &pack->variants[variant];
    switch (reject) {
    case GEN__FITS:
        gen__text_add(text, "fits");
        return;
    case GEN__REJECT_TARGET:
        gen__text_add(text, "is made for %.32s, the device is sm_%u",
                      gen__pack_string(pack, gen__variant_target(pack, variant)->name),
                      query->device->compute_capability);
        return;
    case GEN__REJECT_SHARED:
        gen__text_add(text, "needs %llu bytes of shared memory a block, the device allows %u",
                      (unsigned long long)v->shared_dynamic + v->shared_static,
                      query->device->shared_per_block);
        return;
    case GEN__REJECT_FAMILY:
        gen__text_add(text, "does not fit: %s", why);
        return;
    case GEN__REJECT_WORKSPACE:
        gen__text_add(text, "needs more workspace than max_workspace_mib = %u allows",
                      query->problem->max_workspace_mib);
        return;
    case GEN__REJECT_PTX:
        gen__text_add(text, "is PTX, compiled by the driver at first use; %s fits", why);
        return;
    }
}

/* How many required values of an entry differ from the problem's; says them if `text` is not
 * NULL. */
static uint32_t differences(struct gen__text *text, const struct gen__query *query,
                            const struct gen__key_entry *entry)
{
    uint32_t count = 0;
    uint8_t codes[GEN__MAX_REQUIRED];
    memcpy(codes, &entry->codes, sizeof(codes));
    for (uint32_t a = 0; a < query->family->num_required; a++) {
        const struct gen__axis *axis = &query->family->required[a];
        if (codes[a] == query->key.codes[a])
            continue;
        if (text)
            gen__text_add(text, "%s%s %s, asked is %s", count ? "; " : "", axis->name,
                          axis->values[codes[a]], axis->values[query->key.codes[a]]);
        count++;
    }
    return count;
}

/* The keys that the product does have, fewest differences first. */
static void add_nearest_keys(struct gen__text *text, const struct gen__query *query)
{
    const gen_library *library = query->library;
    uint32_t shown = 0;
    for (uint32_t want = 1; want <= query->family->num_required; want++)
        for (uint32_t e = 0; e < library->num_entries && shown < MOST_SHOWN; e++) {
            const struct gen__key_entry *entry = &library->entries[e];
            if (entry->family != query->family || differences(NULL, query, entry) != want)
                continue;
            const struct gen_pack_group *group = &library->pack.groups[entry->first_group];
            gen__text_add(text, "%s\n  %.120s: has ", shown++ ? "" : "; nearest are:",
                          gen__pack_string(&library->pack, group->name));
            differences(text, query, entry);
        }
    if (!shown)
        gen__text_add(text, "; the product has no variant of %s", query->family->name);
}

/* What the groups of the problem's own key fail, one variant for each group: the one that comes
 * furthest. Is there code for the device? */
static bool add_rejections(struct gen__text *text, const struct gen__query *query)
{
    const gen_library *library = query->library;
    const struct gen__pack *pack = &library->pack;
    uint32_t shown = 0;
    bool runs = false;
    gen__text_add(text, "; nearest are:");
    for (uint32_t g = query->entry->first_group; g != GEN__NO_GROUP; g = library->next_group[g]) {
        const struct gen_pack_group *group = &pack->groups[g];
        const char *why, *reason;
        uint32_t best = group->fallback_variant;
        enum gen__reject reject = gen__eligible(query, best, &why);
        runs |= reject != GEN__REJECT_TARGET;
        if (shown++ >= MOST_SHOWN)
            continue;
        for (uint32_t v = group->first_variant, i = 0; i < group->num_variants; v++, i++) {
            const enum gen__reject r = gen__eligible(query, v, &reason);
            if (r > reject) {
                best = v;
                reject = r;
                why = reason;
            }
        }
        gen__text_add(text, "\n  %.160s ", gen__variant_name(pack, best));
        gen__reject_text(text, query, best, reject, why);
    }
    return runs;
}

void gen__unsupported_text(struct gen__text *text, const struct gen__query *query)
{
    bool runs = false;
    gen__text_add(text, "no variant of %s (", query->family->name);
    for (uint32_t a = 0; a < query->family->num_required; a++)
        gen__text_add(text, "%s%s=%s", a ? " " : "", query->family->required[a].name,
                      query->family->required[a].values[query->key.codes[a]]);
    gen__text_add(text, ") for sm_%u", query->device->compute_capability);
    if (query->entry)
        runs = add_rejections(text, query);
    else
        add_nearest_keys(text, query);
    /* Where code for the device is there, another build of it does not help. */
    if (!runs && query->device->compute_capability < LEAST_CAPABILITY)
        gen__text_add(text, "\nno build adds it: the targets run on sm_%u and later",
                      LEAST_CAPABILITY);
    else if (!runs)
        gen__text_add(text, "\nadd it with: attngen build --families %s --targets %s",
                      query->family->name, gen__target_for(query->device->compute_capability));
}
