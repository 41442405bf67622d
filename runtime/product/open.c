/* Opening and closing a product, and what can be asked about it. */
#include "product/library.h"
#include "family/occupancy.h"
#include "product/installed.h"

#include <stdlib.h>
#include <string.h>

/* Bytes of the options of callers that have more than this library's. */
#define GEN__MAX_OPTIONS 256

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
static enum gen_status check_families(const struct gen__pack *pack, const char *label)
{
    for (uint32_t i = 0; i < pack->index->num_families; i++) {
        const struct gen_pack_family *packed = &pack->families[i];
        const char *name = gen__pack_string(pack, packed->name);
        const struct gen__family *family = gen__family_by_name(name);
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

static enum gen_status check_paths(const char *name, const char *const *paths, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!paths || !paths[i])
            return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                             "options->%s has no path %zu, and num_%s is %zu", name, i, name,
                             count);
    return GEN_OK;
}

/* The options as this library's struct, an older caller's, or NULL for all defaults. */
static enum gen_status read_options(const gen_open_options *from, gen_open_options *options)
{
    *options = (gen_open_options){.size = sizeof(*options)};
    if (from && !gen__struct_fit(options, sizeof(*options), offsetof(gen_open_options, more_paths),
                                 from, from->size, GEN__MAX_OPTIONS))
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "options->size is %u, expected %zu (sizeof(gen_open_options))", from->size,
                         sizeof(*options));
    if (options->flags)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT, "options->flags is %#x, allowed is 0",
                         options->flags);
    if (options->path && options->data)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "options has both of path and data, one at most is allowed");
    const enum gen_status status =
        check_paths("table_paths", options->table_paths, options->num_table_paths);
    return status ? status
                  : check_paths("more_paths", options->more_paths, options->num_more_paths);
}

static enum gen_status open_pack(const char *label, struct gen__pack *pack)
{
    const enum gen_status status = gen__pack_open(label, pack);
    return status ? status : check_families(pack, label);
}

/* Opens a file as the library's product, or adds it to what the library has. */
static enum gen_status add_product(gen_library *library, const char *path)
{
    struct gen__pack pack = {.source.file = -1};
    enum gen_status status = gen__source_open(path, &pack.source);
    if (!status)
        status = open_pack(path, &pack);
    if (!status && library->pack.index)
        status = gen__pack_add(&library->pack, path, &pack);
    else if (!status) {
        library->pack = pack;
        return GEN_OK;
    }
    gen__pack_close(&pack);
    return status;
}

static enum gen_status add_installed(gen_library *library)
{
    struct gen__paths paths;
    enum gen_status status = gen__installed_products(&paths);
    for (size_t i = 0; !status && i < paths.count; i++)
        status = add_product(library, paths.at[i]);
    gen__paths_free(&paths);
    return status;
}

static enum gen_status open_products(gen_library *library, const gen_open_options *options)
{
    enum gen_status status;
    if (options->data) {
        library->pack.source = (struct gen__source){options->data, options->data_size, -1};
        status = open_pack("(product in memory)", &library->pack);
    } else {
        status = options->path ? add_product(library, options->path) : add_installed(library);
    }
    for (size_t i = 0; !status && i < options->num_more_paths; i++)
        status = add_product(library, options->more_paths[i]);
    return status;
}

static enum gen_status open_library(gen_library *library, const gen_open_options *options)
{
    enum gen_status status = open_products(library, options);
    if (status)
        return status;
    if (!allocate(library))
        return gen__fail(GEN_STATUS_OUT_OF_MEMORY, "no memory to open a product of %u variants",
                         library->pack.index->num_variants);
    for (uint32_t i = 0; i < library->pack.index->num_families; i++)
        library->families[i] =
            gen__family_by_name(gen__pack_string(&library->pack, library->pack.families[i].name));
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

enum gen_status gen_open(const gen_open_options *asked, gen_library **library)
{
    gen_open_options options;
    if (!library)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT, "library is NULL");
    enum gen_status status = read_options(asked, &options);
    if (!status)
        status = check_processor();
    if (status)
        return status;
    gen_library *opened = calloc(1, sizeof(*opened));
    if (!opened)
        return gen__fail(GEN_STATUS_OUT_OF_MEMORY, "no memory to open a library");
    opened->pack.source.file = -1;
    status = open_library(opened, &options);
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
        gen__give(info, &library->info, sizeof(library->info));
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
    const gen_variant_info known = {
        .size = sizeof(known),
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
    gen__give(info, &known, sizeof(known));
    return GEN_OK;
}
