/* Saying why nothing fits: only ever on the failure path. */
#include "family/gpus.h"
#include "select/select.h"
#include "core/text.h"

#include <stdio.h>
#include <string.h>

/* Of the lowest target, compute_80. */
#define GEN__LEAST_CAPABILITY 80u

void gen__reject_text(const struct gen__ask *ask, uint32_t variant, enum gen__reject reject,
                      const char *why, char *text, size_t capacity)
{
    const struct gen__pack *pack = &ask->library->pack;
    const struct gen_pack_variant *v = &pack->variants[variant];
    switch (reject) {
    case GEN__FITS:
        snprintf(text, capacity, "fits");
        return;
    case GEN__REJECT_TARGET:
        snprintf(text, capacity, "is made for %.32s, the device is sm_%u",
                 gen__pack_string(pack, gen__variant_target(pack, variant)->name),
                 ask->device->compute_capability);
        return;
    case GEN__REJECT_SHARED:
        snprintf(text, capacity, "needs %llu bytes of shared memory a block, the device allows %u",
                 (unsigned long long)v->shared_dynamic + v->shared_static,
                 ask->device->shared_per_block);
        return;
    case GEN__REJECT_FAMILY:
        snprintf(text, capacity, "does not fit: %s", why ? why : "the family refuses it");
        return;
    case GEN__REJECT_WORKSPACE:
        snprintf(text, capacity, "needs more workspace than max_workspace_mib = %u allows",
                 ask->problem->max_workspace_mib);
        return;
    case GEN__REJECT_PTX:
        snprintf(text, capacity, "is PTX, compiled by the driver at first use; %s fits", why);
        return;
    }
}

/* Names the problem's required values: "dtype=bf16 head_dim=128 layout=vk". */
static void add_key(struct gen__text *text, const struct gen__ask *ask)
{
    for (uint32_t a = 0; a < ask->family->num_required; a++) {
        const struct gen__axis *axis = &ask->family->required[a];
        const uint8_t code = ask->key.codes[a];
        gen__text_add(text, "%s%s=%s", a ? " " : "", axis->name,
                      code < axis->num_values ? axis->values[code] : "?");
    }
}

/* How many required values of an entry differ from the problem's. */
static uint32_t differences(const struct gen__ask *ask, const struct gen__key_entry *entry)
{
    uint32_t count = 0;
    uint8_t codes[GEN__MAX_REQUIRED];
    memcpy(codes, &entry->codes, sizeof(codes));
    for (uint32_t a = 0; a < ask->family->num_required; a++)
        count += codes[a] != ask->key.codes[a];
    return count;
}

static void add_entry(struct gen__text *text, const struct gen__ask *ask,
                      const struct gen__key_entry *entry)
{
    const gen_library *library = ask->library;
    const uint32_t group = library->group_order[entry->first_group];
    uint8_t codes[GEN__MAX_REQUIRED];
    memcpy(codes, &entry->codes, sizeof(codes));
    gen__text_add(text, "\n  %.120s: has ",
                  gen__pack_string(&library->pack, library->pack.groups[group].name));
    const char *separator = "";
    for (uint32_t a = 0; a < ask->family->num_required; a++) {
        const struct gen__axis *axis = &ask->family->required[a];
        if (codes[a] == ask->key.codes[a])
            continue;
        gen__text_add(text, "%s%s %s, asked is %s", separator, axis->name, axis->values[codes[a]],
                      axis->values[ask->key.codes[a]]);
        separator = "; ";
    }
}

/* The keys that the product does have, fewest differences first, at most 4. */
static void add_nearest_keys(struct gen__text *text, const struct gen__ask *ask)
{
    const gen_library *library = ask->library;
    uint32_t shown = 0;
    for (uint32_t want = 1; want <= ask->family->num_required && shown < 4; want++) {
        for (uint32_t e = 0; e < library->num_entries && shown < 4; e++) {
            const struct gen__key_entry *entry = &library->entries[e];
            if (entry->family == ask->family && differences(ask, entry) == want) {
                gen__text_add(text, "%s", shown ? "" : "; nearest are:");
                add_entry(text, ask, entry);
                shown++;
            }
        }
    }
    if (!shown)
        gen__text_add(text, "; the product has no variant of %s", ask->family->name);
}

/* What the groups of the problem's own key fail, one variant for each group:
 * the one that comes furthest. */
static void add_rejections(struct gen__text *text, const struct gen__ask *ask)
{
    const gen_library *library = ask->library;
    const struct gen__pack *pack = &library->pack;
    const uint32_t *order = library->group_order + ask->entry->first_group;
    gen__text_add(text, "; nearest are:");
    for (uint32_t i = 0; i < ask->entry->num_groups && i < 4; i++) {
        const struct gen_pack_group *group = &pack->groups[order[i]];
        uint32_t best = group->fallback_variant;
        const char *why = NULL;
        enum gen__reject reject = gen__eligible(ask, best, &why);
        for (uint32_t v = group->first_variant; v < group->first_variant + group->num_variants;
             v++) {
            const char *reason = NULL;
            const enum gen__reject r = gen__eligible(ask, v, &reason);
            if (r > reject) {
                best = v;
                reject = r;
                why = reason;
            }
        }
        char line[256];
        gen__reject_text(ask, best, reject, why, line, sizeof(line));
        gen__text_add(text, "\n  %.160s %s", gen__variant_name(pack, best), line);
    }
}

void gen__unsupported_text(const struct gen__ask *ask, struct gen__text *text)
{
    bool runs = false;
    gen__text_add(text, "no variant of %s (", ask->family->name);
    add_key(text, ask);
    gen__text_add(text, ") for sm_%u", ask->device->compute_capability);
    if (!ask->entry) {
        add_nearest_keys(text, ask);
    } else {
        add_rejections(text, ask);
        const struct gen__pack *pack = &ask->library->pack;
        for (uint32_t i = 0; i < ask->entry->num_groups; i++) {
            const uint32_t group = ask->library->group_order[ask->entry->first_group + i];
            runs |= gen__target_runs(&pack->targets[pack->groups[group].target],
                                     ask->device->compute_capability);
        }
    }
    /* Where code for the device is there, another build of it does not help. */
    if (!runs && ask->device->compute_capability < GEN__LEAST_CAPABILITY)
        gen__text_add(text, "\nno build adds it: the targets run on sm_%u and later",
                      GEN__LEAST_CAPABILITY);
    else if (!runs)
        gen__text_add(text, "\nadd it with: attngen build --families %s --targets %s",
                      ask->family->name, gen__target_for(ask->device->compute_capability));
}

enum gen_status gen__unsupported(const struct gen__ask *ask)
{
    char message[1600];
    struct gen__text text = gen__text_over(message, sizeof(message));
    gen__unsupported_text(ask, &text);
    return gen__fail(GEN_STATUS_UNSUPPORTED, "%s", message);
}
