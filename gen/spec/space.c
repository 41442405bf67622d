#include "spec/space.h"

#include "compile/cache.h"
#include "compile/compile.h"
#include "expand/expand.h"
#include "util/error.h"
#include "util/file.h"
#include "util/glob.h"
#include "spec/default_space.h"
#include "spec/gpu.h"
#include "format/table.h"
#include "compile/pool.h"
#include "expand/source.h"
#include "spec/spec.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- families and targets ---------------------------------------------------------- */

static const char *find_templates(struct session *session)
{
    struct arena *arena = &session->arena;
    if (session->options->templates != NULL)
        return session->options->templates;
    const char *installed =
        arena_printf(arena, "%s/../share/attngen/templates", file_program_folder(arena));
    return file_is_folder(installed) ? installed : "templates";
}

static void add_target(struct session *session, const struct arch *arch)
{
    for (size_t i = 0; i < session->num_targets; i++)
        if (session->targets[i] == arch)
            return;
    session->targets[session->num_targets++] = arch;
}

static int by_table(const void *a, const void *b)
{
    const struct arch *x = *(const struct arch *const *)a, *y = *(const struct arch *const *)b;
    return (x > y) - (x < y);
}

/* In the table's order, whatever order they were asked for or found in. */
static void sort_targets(struct session *session)
{
    qsort(session->targets, session->num_targets, sizeof *session->targets, by_table);
}

static void own_targets(struct session *session)
{
    int ccs[16];
    size_t count = gpu_query(ccs, 16);
    for (size_t i = 0; i < count; i++) {
        const struct arch *arch = arch_for_gpu(ccs[i]);
        if (arch != NULL)
            add_target(session, arch);
    }
    bool none = session->num_targets == 0;
    if (none)
        add_target(session, arch_find("sm_90a"));
    sort_targets(session);
    if (session->options->quiet)
        return;
    if (none && count > 0)
        fprintf(stderr, "attngen: no --targets: no target runs on this machine's GPU, sm_%d, so",
                ccs[0]);
    else
        fprintf(stderr, "attngen: no --targets: %s",
                none ? "no GPU found, so" : "this machine's GPU,");
    for (size_t i = 0; i < session->num_targets; i++)
        fprintf(stderr, " %s", session->targets[i]->name);
    fputc('\n', stderr);
}

/* A GPU's architecture without the letter of its target, "sm_90": the target is taken, and a line
 * says so. NULL: it is none. */
static const struct arch *target_of_gpu(struct session *session, const char *name)
{
    char *end;
    const char *digits = strncasecmp(name, "sm_", 3) == 0 ? name + 3 : name;
    const long cc = strtol(digits, &end, 10);
    for (size_t i = 0; i < num_archs; i++)
        if (end > digits && *end == '\0' && archs[i].cc == cc && archs[i].kind == GEN_PACK_EXACT) {
            if (!session->options->quiet)
                fprintf(stderr, "attngen: --targets %s: taken as %s, the target of such GPUs\n",
                        name, archs[i].name);
            return &archs[i];
        }
    return NULL;
}

static void choose_targets(struct session *session, bool all)
{
    const struct strings *names = &session->options->targets;
    session->targets = arena_alloc(&session->arena, num_archs * sizeof *session->targets);
    if (names->count == 0 && !all) {
        own_targets(session);
        return;
    }
    for (size_t i = 0; i < num_archs && names->count == 0; i++)
        add_target(session, &archs[i]);
    for (size_t i = 0; i < names->count; i++) {
        if (strcasecmp(names->items[i], "all") == 0) {
            for (size_t j = 0; j < num_archs; j++)
                add_target(session, &archs[j]);
            continue;
        }
        const struct arch *arch = arch_find(names->items[i]);
        if (arch == NULL)
            arch = target_of_gpu(session, names->items[i]);
        if (arch == NULL)
            fail(session, "--targets: unknown target '%s'; allowed: all, %s", names->items[i],
                 arch_names());
        add_target(session, arch);
    }
    sort_targets(session);
}

void space_open(struct session *session, bool all_by_default)
{
    session->templates = find_templates(session);
    spec_open(session);
    choose_targets(session, all_by_default);
    spec_load_families(session, session->options->families.items, session->options->families.count);
}

void space_default(struct session *session)
{
    const struct options *options = session->options;
    if (!options->full && options->from_tables.count == 0 && options->winners.count == 0)
        default_space_keep(session);
}

void space_enumerate(struct session *session)
{
    const enum command by_name = COMMAND_EXPAND | COMMAND_CHECK | COMMAND_WHY | COMMAND_TRY;
    spec_enumerate(session);
    if ((session->options->command & by_name) == 0)
        space_default(session);
    if (session->num_variants > 0)
        return;
    const char *reason = session->num_unserved > 0 ? session->unserved[0].reason : "none is legal";
    fail(session, "no variant at all for these families and targets: %s", reason);
}

/* ---- subsets ------------------------------------------------------------------------ */

static int by_variant(const void *key, const void *item)
{
    return strcmp(key, (*(struct variant *const *)item)->name);
}

static struct variant **find_variant(struct session *session, const char *name)
{
    return bsearch(name, session->variants, session->num_variants, sizeof *session->variants,
                   by_variant);
}

static void match_globs(struct session *session, bool *wanted)
{
    const struct strings *globs = &session->options->only;
    for (size_t g = 0; g < globs->count; g++) {
        size_t found = 0;
        for (size_t i = 0; i < session->num_variants; i++)
            if (glob_match(globs->items[g], session->variants[i]->name)) {
                wanted[i] = true;
                found++;
            }
        if (found == 0)
            fail(session, "--only: '%s' matches none of %zu variants, such as %s%s",
                 globs->items[g], session->num_variants, session->variants[0]->name,
                 session->num_extra > 0 ? "; --full adds those that no table picks" : "");
    }
}

/* A tuning table: '#' lines, a line of column names, rows. */
static void match_table(struct session *session, const char *path, bool *wanted)
{
    struct gen__span line, fields[GEN__TABLE_MAX_COLUMNS];
    size_t size, found = 0, unknown = 0;
    int column = -1;
    const char *at = file_read(&session->arena, path, &size);
    if (at == NULL)
        fail(session, "--from-table: %s: cannot read it: %s", path, strerror(errno));
    struct gen__table_text text = {at, at + size, 0};
    while (gen__table_line(&text, &line)) {
        if (line.length == 0 || line.at[0] == '#')
            continue;
        const uint32_t count = gen__table_fields(line, fields);
        if (column < 0) {
            column = gen__table_column(fields, count, GEN__COLUMN_VARIANT);
            if (column < 0)
                fail(session, "%s:%u: no column 'variant' in the line of column names", path,
                     text.line);
            continue;
        }
        const char *name = column < (int)count
                               ? arena_printf(&session->arena, "%.*s", (int)fields[column].length,
                                              fields[column].at)
                               : NULL;
        struct variant **variant = name ? find_variant(session, name) : NULL;
        if (variant != NULL)
            wanted[variant - session->variants] = true;
        found += variant != NULL;
        unknown += variant == NULL;
    }
    if (found == 0)
        fail(session, "%s: none of its %zu rows names a variant of these families and targets",
             path, unknown);
    if (unknown > 0 && !session->options->quiet)
        fprintf(stderr, "attngen: %s: %zu rows name no variant of these families and targets\n",
                path, unknown);
}

void space_subset(struct session *session, bool keep_fallbacks)
{
    const struct options *options = session->options;
    if (options->only.count == 0 && options->from_tables.count == 0)
        return;
    size_t count = session->num_variants, kept = 0;
    bool *by_glob = arena_alloc(&session->arena, count),
         *by_row = arena_alloc(&session->arena, count);
    memset(by_glob, options->only.count == 0, count);
    memset(by_row, options->from_tables.count == 0, count);
    match_globs(session, by_glob);
    for (size_t i = 0; i < options->from_tables.count; i++)
        match_table(session, options->from_tables.items[i], by_row);
    for (size_t i = 0, end; i < count; i = end) {
        const struct variant *first = session->variants[i];
        bool any = false;
        for (end = i; end < count && session->variants[end]->arch == first->arch &&
                      strcmp(session->variants[end]->group, first->group) == 0;
             end++)
            any = any || by_glob[end];
        for (size_t j = i; j < end; j++)
            if ((by_glob[j] && by_row[j]) ||
                (keep_fallbacks && any && session->variants[j]->fallback))
                session->variants[kept++] = session->variants[j];
    }
    session->num_variants = kept;
    if (kept == 0)
        fail(session, "--only and --from-table have no variant in common");
}

/* ---- sources and cache ------------------------------------------------------------------ */

void space_expand(struct session *session)
{
    for (size_t i = 0; i < session->num_variants; i++) {
        struct variant *variant = session->variants[i];
        expand_variant(session, variant, true);
        source_digest(session, variant,
                      compile_options(&session->arena, variant->arch, session->options->line_info));
    }
}

const char *space_cache(struct session *session)
{
    struct arena *arena = &session->arena;
    const char *folder = session->options->cache, *value;
    if (folder == NULL && (value = getenv("ATTNGEN_CACHE")) != NULL && value[0] != '\0')
        folder = value;
    if (folder == NULL && (value = getenv("XDG_CACHE_HOME")) != NULL && value[0] != '\0')
        folder = arena_printf(arena, "%s/attngen", value);
    if (folder == NULL && (value = getenv("HOME")) != NULL && value[0] != '\0')
        folder = arena_printf(arena, "%s/.cache/attngen", value);
    if (folder == NULL)
        fail(session, "no place for the cache: give --cache DIR or set ATTNGEN_CACHE");
    if (!file_make_folder(folder) || !file_is_folder(folder))
        fail(session, "%s: cannot make the cache folder: %s", folder, strerror(errno));
    char *real = realpath(folder, NULL);
    if (real == NULL)
        fail(session, "%s: cannot use the cache folder: %s", folder, strerror(errno));
    folder = arena_string(arena, real);
    free(real);
    return folder;
}

uint64_t space_cache_limit(struct session *session)
{
    const char *value = getenv("ATTNGEN_CACHE_LIMIT");
    if (session->options->cache_limit > 0)
        return session->options->cache_limit;
    if (value == NULL || value[0] == '\0')
        value = CACHE_LIMIT;
    return options_bytes(session, "ATTNGEN_CACHE_LIMIT", value);
}

size_t space_look_up(struct session *session, const struct toolkit *toolkit, const char *cache)
{
    size_t found = 0;
    for (size_t i = 0; i < session->num_variants; i++) {
        struct variant *variant = session->variants[i];
        struct hash hash;
        if (toolkit->version < variant->arch->toolkit)
            fail(session, "target %s needs CUDA toolkit %d.%d; this program was linked with %s",
                 variant->arch->name, variant->arch->toolkit / 100, variant->arch->toolkit % 100,
                 toolkit->name);
        hash_begin(&hash);
        hash_add(&hash, variant->key, HASH_BYTES);
        hash_string(&hash, toolkit->identity);
        hash_string(&hash, CACHE_FORMAT);
        hash_end(&hash, variant->key);
        variant->cached = pool_from_cache(session, cache, variant);
        found += variant->cached;
    }
    return found;
}
