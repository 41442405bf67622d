#include "compile/cache.h"
#include "product/catalog.h"
#include "cmd/commands.h"
#include "compile/estimate.h"
#include "util/error.h"
#include "util/file.h"
#include "options.h"
#include "product/pack.h"
#include "product/refusals.h"
#include "util/progress.h"
#include "spec/space.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

struct outcome {
    size_t built, refused, compiled, cached, kept, crashed;
    double cpu_seconds, cpu_seconds_total, wall_seconds;
    uint64_t bytes;
    const char *output;
};

/* A prediction is no measurement: only a clear excess stops a build before it
 * compiles; the product itself is held to the limit exactly. */
static void check_plan(struct session *session, struct context *context)
{
    const struct options *options = session->options;
    struct estimate *estimates;
    if (options->max_bytes == 0 || context->cached == session->num_variants)
        return;
    size_t count = estimate_make(session, &context->pool, &estimates);
    context_check(session, context);
    double bytes = estimates[count - 1].bytes;
    if (bytes > 1.3 * (double)options->max_bytes)
        fail(session,
             "--max-bytes: about %.0f bytes are planned; allowed: %" PRIu64
             "; --only, --families, --winners and --from-table make it less",
             bytes, options->max_bytes);
}

static void compile(struct session *session, struct context *context)
{
    size_t count = 0;
    struct variant **todo =
        arena_alloc(&session->arena, (session->num_variants + 1) * sizeof *todo);
    for (size_t i = 0; i < session->num_variants; i++)
        if (session->variants[i]->state == VARIANT_NEW)
            todo[count++] = session->variants[i];
    pool_run(session, &context->pool, todo, count);
    context_check(session, context);
}

/* The same warning comes from many variants; it is printed once. */
static void print_warnings(struct session *session)
{
    enum { MOST = 10 };
    const char *told[MOST];
    size_t count = 0;
    for (size_t i = 0; i < session->num_variants && count < MOST; i++) {
        const char *warnings = session->variants[i]->warnings;
        bool new = warnings != NULL;
        for (size_t j = 0; new &&j < count; j++)
            new = strcmp(told[j], warnings) != 0;
        if (!new)
            continue;
        told[count++] = warnings;
        fprintf(stderr, "%s\n(found in %s)\n", warnings, session->variants[i]->name);
    }
}

static void print_refused(struct session *session)
{
    enum { MOST = 10 };
    size_t count = 0;
    for (size_t i = 0; i < session->num_variants; i++) {
        const struct variant *v = session->variants[i];
        if (v->state != VARIANT_REFUSED)
            continue;
        if (count++ < MOST)
            fprintf(stderr, "refused: %s: %s\n", v->name, v->reason);
    }
    if (count > MOST)
        fprintf(stderr, "refused: %zu more; `attngen why NAME` and the catalog name each\n",
                count - MOST);
}

/* Every required key needs its fallback on every target. */
static void check_keys(struct session *session)
{
    struct text message = {0};
    for (size_t i = 0; i < session->num_variants; i++) {
        const struct variant *v = session->variants[i];
        if (!v->fallback || v->state == VARIANT_BUILT)
            continue;
        bool any = false;
        for (size_t j = 0; j < session->num_variants; j++) {
            const struct variant *w = session->variants[j];
            any = any || (w->arch == v->arch && w->state == VARIANT_BUILT &&
                          strcmp(w->group, v->group) == 0);
        }
        text_printf(&message, "%s%s: required key %s is left with no %s on %s: %s was refused: %s",
                    message.size > 0 ? "\n" : "", v->family->path, v->group,
                    any ? "fallback" : "variant", v->arch->name, v->name, v->reason);
    }
    if (message.size == 0)
        return;
    const char *text = arena_string(&session->arena, message.data);
    text_free(&message);
    fail(session, "%s", text);
}

/* The product would lack what the same build has elsewhere. */
static void check_lost(struct session *session, const struct context *context)
{
    const struct variant *first = NULL;
    for (size_t i = 0; i < session->num_variants && first == NULL; i++)
        if (session->variants[i]->lost)
            first = session->variants[i];
    if (first == NULL)
        return;
    if (!session->options->allow_lost)
        fail(session,
             "%zu variants are lost because the compiler crashed or hung; the first is %s: %s; the "
             "same command tries them again, and with --allow-lost the product is made without "
             "them",
             context->pool.crashed, first->name, first->reason);
    fprintf(stderr,
            "attngen: %zu variants are left out because the compiler crashed or hung; the same "
            "command tries them again\n",
            context->pool.crashed);
}

static struct variant **built_variants(struct session *session, size_t *count)
{
    struct variant **built =
        arena_alloc(&session->arena, (session->num_variants + 1) * sizeof *built);
    *count = 0;
    for (size_t i = 0; i < session->num_variants; i++)
        if (session->variants[i]->state == VARIANT_BUILT)
            built[(*count)++] = session->variants[i];
    return built;
}

static void write_product(struct session *session, const struct context *context,
                          const struct pack_tables *tables, struct outcome *outcome)
{
    const struct options *options = session->options;
    struct text product = {0};
    struct variant **built = built_variants(session, &outcome->built);
    pack_make(session, built, outcome->built, tables, context->toolkit.name, &product);
    outcome->bytes = product.size;
    bool fits = options->max_bytes == 0 || product.size <= options->max_bytes;
    bool ok = fits && file_write(outcome->output, product.data, product.size);
    int error = errno;
    text_free(&product);
    if (!fits)
        fail(session,
             "--max-bytes: the product has %" PRIu64 " bytes; allowed: %" PRIu64
             "; --only, --families, --winners and --from-table make it less",
             outcome->bytes, options->max_bytes);
    if (!ok)
        fail(session, "%s: cannot write it: %s", outcome->output, strerror(error));
}

static void write_catalog(struct session *session, const struct context *context)
{
    const char *path = session->options->catalog;
    struct text text = {0};
    if (path == NULL)
        return;
    catalog_make(session, context->toolkit.name, &text);
    bool ok = file_write_changed(&session->arena, path, text.data, text.size);
    int error = errno;
    text_free(&text);
    if (!ok)
        fail(session, "%s: cannot write it: %s", path, strerror(error));
}

/* An unchanged build has added nothing to the cache, and does not look at it. */
static void prune_cache(struct session *session, const struct context *context, uint64_t limit,
                        time_t start)
{
    const struct options *options = session->options;
    if (context->pool.compiled == 0 && options->cache_limit == 0)
        return;
    size_t dropped = cache_prune(&session->arena, context->pool.cache, limit, start);
    if (dropped > 0 && !options->quiet)
        fprintf(stderr,
                "attngen: %s: dropped %zu compiled variants, those used longest ago, for "
                "--cache-limit %" PRIu64 "\n",
                context->pool.cache, dropped, limit);
}

static void print_outcome(struct session *session, const struct outcome *o)
{
    static const char *const columns[] = {
        "variants",    "compiled",          "cached",       "kept",  "refused", "crashed",
        "cpu_seconds", "cpu_seconds_total", "wall_seconds", "bytes", "output"};
    const struct options *options = session->options;
    if (options->format == OUTPUT_TABLE) {
        if (!options->quiet && options->refresh)
            fprintf(stderr,
                    "%s: %zu variants; kept %zu rows, compiled %zu, cached %zu, refused %zu; %.1f "
                    "CPU-seconds, %.1f s\n",
                    o->output, o->built, o->kept, o->compiled, o->cached, o->refused,
                    o->cpu_seconds, o->wall_seconds);
        else if (!options->quiet)
            fprintf(stderr,
                    "%s: %zu variants, %" PRIu64 " bytes; compiled %zu, cached %zu, refused %zu; "
                    "%.1f CPU-seconds (the whole set: %.1f), %.1f s\n",
                    o->output, o->built, o->bytes, o->compiled, o->cached, o->refused,
                    o->cpu_seconds, o->cpu_seconds_total, o->wall_seconds);
        return;
    }
    struct output_table rows;
    output_begin(&rows, &session->arena, columns, sizeof columns / sizeof columns[0]);
    output_integer(&rows, (int64_t)o->built);
    output_integer(&rows, (int64_t)o->compiled);
    output_integer(&rows, (int64_t)o->cached);
    output_integer(&rows, (int64_t)o->kept);
    output_integer(&rows, (int64_t)o->refused);
    output_integer(&rows, (int64_t)o->crashed);
    output_decimal(&rows, o->cpu_seconds, 2);
    output_decimal(&rows, o->cpu_seconds_total, 2);
    output_decimal(&rows, o->wall_seconds, 2);
    output_integer(&rows, (int64_t)o->bytes);
    output_text(&rows, o->output);
    output_print(&rows, options->format);
}

/* Of a catalog that is there and of this format: another is made anew, of all. */
static size_t keep_rows(struct session *session, const struct context *context)
{
    struct catalog catalog;
    const char *path = session->options->catalog;
    if (!session->options->refresh || !catalog_is_current(session, path))
        return 0;
    catalog_read(session, path, &catalog);
    return catalog_keep(session, &catalog, context->toolkit.name);
}

static void check_words(struct session *session)
{
    const struct options *options = session->options;
    if (options->words.count > 0)
        fail(session, "build: unexpected word '%s'; allowed: options", options->words.items[0]);
    if (options->refresh && options->catalog == NULL)
        fail(session, "--refresh: which catalog? Give --catalog FILE");
    if (options->refresh && options->output != NULL)
        fail(session, "--refresh makes no product, found --output %s; allowed: one of them",
             options->output);
}

int command_build(struct session *session)
{
    double start = progress_clock();
    time_t start_time = time(NULL);
    uint64_t cache_limit = space_cache_limit(session);
    const struct options *options = session->options;
    struct context context;
    struct pack_tables tables = {0};
    struct outcome outcome = {.output =
                                  options->output != NULL ? options->output : "attngen.fatbin"};
    check_words(session);
    if (options->refresh)
        outcome.output = options->catalog;
    space_open(session, false);
    space_enumerate(session);
    space_subset(session, true);
    context_expand(session, &tables);
    context_open(session, &context);
    context_check(session, &context);
    outcome.kept = keep_rows(session, &context);
    check_plan(session, &context);
    compile(session, &context);
    if (!options->quiet) {
        print_warnings(session);
        print_refused(session);
    }
    check_keys(session);
    check_lost(session, &context);
    if (!options->refresh)
        refusals_check(session, context.toolkit.name);
    if (!options->refresh)
        write_product(session, &context, &tables, &outcome);
    write_catalog(session, &context);
    prune_cache(session, &context, cache_limit, start_time);
    outcome.compiled = context.pool.compiled;
    outcome.crashed = context.pool.crashed;
    outcome.cached = context.cached;
    for (size_t i = 0; i < session->num_variants; i++)
        outcome.refused += session->variants[i]->state == VARIANT_REFUSED;
    outcome.built = session->num_variants - outcome.refused;
    outcome.cpu_seconds = context.pool.cpu_seconds;
    for (size_t i = 0; i < session->num_variants; i++)
        outcome.cpu_seconds_total += session->variants[i]->seconds;
    outcome.wall_seconds = progress_clock() - start;
    print_outcome(session, &outcome);
    return 0;
}
