/* Opening and closing a product, and what can be asked about it. */
#include "product/library.h"
#include "family/occupancy.h"

#include <stdlib.h>
#include <string.h>

/* Is `text` these names, separated by commas? */
static bool same_names(const char *text, const char *const *names, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const size_t length = strlen(names[i]);
        if (strncmp(text, names[i], length) != 0 || text[length] != (i + 1 < count ? ',' : '\0'))
            return false;
        text += length + (i + 1 < count);
    }
    return *text == '\0';
}

static bool same_axes(const char *text, const struct gen__family *family)
{
    const char *names[GEN__MAX_REQUIRED];
    for (uint32_t a = 0; a < family->num_required; a++)
        names[a] = family->required[a].name;
    return same_names(text, names, family->num_required);
}

/* The product's families against this runtime's: the lists of axes, facts and coordinates must be
 * the same, or codes, facts and rows would be misread. */
static enum gen_status match_families(gen_library *library, const char *label)
{
    const struct gen__pack *pack = &library->pack;
    for (uint32_t i = 0; i < pack->index->num_families; i++) {
        const struct gen_pack_family *packed = &pack->families[i];
        const char *name = gen__pack_string(pack, packed->name);
        const struct gen__family *family = gen__family_by_name(name);
        library->families[i] = family;
        if (!family)
            continue;
        const char *axes = gen__pack_string(pack, packed->required);
        const char *facts = gen__pack_string(pack, packed->facts);
        const char *coords = gen__pack_string(pack, packed->coords);
        if (!same_axes(axes, family) || strcmp(facts, family->facts) != 0 ||
            !same_names(coords, family->coords, family->num_coords))
            return gen__fail(
                GEN_STATUS_FORMAT,
                "%s: family %s has required axes \"%.200s\", facts \"%.200s\" and coordinates "
                "\"%.200s\", this runtime (%s) has facts \"%.200s\", axes and coordinates of its "
                "own version; rebuild the product with the attngen of this version",
                label, name, axes, facts, coords, gen_version(), family->facts);
    }
    return GEN_OK;
}

/* Copies what selection asks of the variants: the index has it among much else, and without the
 * divisions done. */
static void build_variants(gen_library *library)
{
    for (uint32_t i = 0; i < library->pack.index->num_variants; i++) {
        const struct gen_pack_variant *v = &library->pack.variants[i];
        struct gen__facts *out = &library->variants[i];
        *out = (struct gen__facts){.index = i,
                                   .threads = v->threads,
                                   .shared_dynamic = v->shared_dynamic,
                                   .shared_static = v->shared_static,
                                   .cluster = v->cluster,
                                   .registers = v->registers};
        _Static_assert(sizeof(out->fact) == sizeof(v->facts), "as many facts");
        memcpy(out->fact, v->facts, sizeof(v->facts));
        out->occupancy = gen__occupancy(out);
    }
}

static bool allocate(gen_library *library)
{
    const struct gen_pack_index *index = library->pack.index;
    const size_t groups = index->num_groups + 1u, variants = index->num_variants + 1u;
    uint64_t places = 16;
    while (places < 2 * (uint64_t)index->num_groups)
        places *= 2;
    library->entry_mask = places - 1;
    library->entry_places = calloc(places, sizeof(*library->entry_places));
    library->entries = calloc(groups, sizeof(*library->entries));
    library->group_entry = calloc(groups, sizeof(*library->group_entry));
    library->next_group = calloc(groups, sizeof(*library->next_group));
    library->variants = malloc(variants * sizeof(*library->variants));
    library->families = calloc(index->num_families + 1u, sizeof(*library->families));
    library->loader =
        calloc(1, sizeof(*library->loader) + variants * sizeof(library->loader->variants[0]));
    if (library->loader)
        pthread_mutex_init(&library->loader->lock, NULL);
    return library->entry_places && library->entries && library->group_entry &&
           library->next_group && library->variants && library->families && library->loader;
}

static enum gen_status check_options(const gen_open_options *options, gen_library **library)
{
    if (!options || !library)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT, "%s is NULL",
                         options ? "library" : "options");
    if (options->size != sizeof(*options))
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "options->size is %u, expected %zu (sizeof(gen_open_options))",
                         options->size, sizeof(*options));
    if (options->flags)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT, "options->flags is %#x, allowed is 0",
                         options->flags);
    if (!options->path == !options->data)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "options has %s of path and data, exactly one is needed",
                         options->path ? "both" : "none");
    for (size_t i = 0; i < options->num_table_paths; i++)
        if (!options->table_paths || !options->table_paths[i])
            return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                             "options->table_paths has no path %zu, and num_table_paths is %zu", i,
                             options->num_table_paths);
    return GEN_OK;
}

static enum gen_status open_library(gen_library *library, const gen_open_options *options)
{
    const char *label = options->path ? options->path : "(product in memory)";
    struct gen__source *source = &library->pack.source;
    *source = (struct gen__source){options->data, options->data_size, -1};
    enum gen_status status = options->path ? gen__source_open(options->path, source) : GEN_OK;
    if (!status)
        status = gen__pack_open(label, &library->pack);
    if (status)
        return status;
    if (!allocate(library))
        return gen__fail(GEN_STATUS_OUT_OF_MEMORY, "%s: no memory to open it", label);
    status = match_families(library, label);
    if (status)
        return status;
    gen__key_entries_build(library);
    build_variants(library);
    library->info.size = sizeof(library->info);
    library->info.num_variants = library->pack.index->num_variants;
    library->info.num_families = gen__num_families;
    library->info.digest = library->pack.digest;
    library->info.toolkit = gen__pack_string(&library->pack, library->pack.index->toolkit);
    library->log = gen__log_levels_of_environment();
    static _Atomic(uint64_t) last_identity;
    library->identity = atomic_fetch_add_explicit(&last_identity, 1, memory_order_relaxed) + 1;
    return gen__tables_read(library, options->table_paths, options->num_table_paths);
}

/* Without a library there is no selection: what it is compiled for is asked here. */
static enum gen_status check_processor(void)
{
#if defined(__SSE4_1__)
    if (!__builtin_cpu_supports("sse4.1"))
        return gen__fail(GEN_STATUS_UNSUPPORTED,
                         "this processor has no SSE 4.1, which libattngen was compiled for");
#endif
    return GEN_OK;
}

enum gen_status gen_open(const gen_open_options *options, gen_library **library)
{
    enum gen_status status = check_options(options, library);
    if (!status)
        status = check_processor();
    if (status)
        return status;
    gen_library *opened = calloc(1, sizeof(*opened));
    if (!opened)
        return gen__fail(GEN_STATUS_OUT_OF_MEMORY, "no memory to open a library");
    status = open_library(opened, options);
    if (status) {
        gen_close(opened);
        return status;
    }
    *library = opened;
    return GEN_OK;
}

void gen_close(gen_library *library)
{
    if (!library)
        return;
    if (library->loader) {
        gen__unload_all(library);
        pthread_mutex_destroy(&library->loader->lock);
        free(library->loader);
    }
    gen__tables_free(library);
    free(library->variants);
    free(library->entries);
    free(library->entry_places);
    free(library->group_entry);
    free(library->next_group);
    free(library->families);
    gen__pack_close(&library->pack);
    free(library);
}

enum gen_status gen_library_info_get(const gen_library *library, gen_library_info *info)
{
    if (!library)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT, "library is NULL");
    const enum gen_status status = GEN__CHECK_STRUCT(info, gen_library_info);
    if (!status)
        *info = library->info;
    return status;
}

enum gen_status gen_variant_get(const gen_library *library, uint32_t index, gen_variant_info *info)
{
    if (!library)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT, "library is NULL");
    const enum gen_status status = GEN__CHECK_STRUCT(info, gen_variant_info);
    if (status)
        return status;
    const struct gen__pack *pack = &library->pack;
    if (index >= pack->index->num_variants)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "variant index %u, the library has variants 0 to %lld", index,
                         (long long)pack->index->num_variants - 1);
    const struct gen_pack_variant *v = &pack->variants[index];
    const struct gen_pack_group *g = &pack->groups[v->group];
    *info = (gen_variant_info){
        .size = sizeof(*info),
        .name = gen__pack_string(pack, v->name),
        .family = gen__pack_string(pack, pack->families[g->family].name),
        .required = gen__pack_string(pack, g->name),
        .target = gen__pack_string(pack, pack->targets[g->target].name),
        .threads = v->threads,
        .shared_dynamic = v->shared_dynamic,
        .shared_static = v->shared_static,
        .registers = v->registers,
        .cluster = v->cluster,
        .is_fallback = g->fallback_variant == index,
        .digest = v->source_digest,
        .code_digest = v->code_digest,
    };
    return GEN_OK;
}
