#include "product/catalog.h"
#include "cmd/commands.h"
#include "util/error.h"
#include "options.h"
#include "spec/space.h"
#include "spec/spec.h"

#include <stdio.h>
#include <string.h>

#define COLUMNS(...)                                    \
    static const char *const columns[] = {__VA_ARGS__}; \
    output_begin(rows, &session->arena, columns, sizeof columns / sizeof columns[0])

static void list_targets(struct session *session, struct output_table *rows)
{
    static const char *const kinds[] = {"exact", "major", "ptx"};
    COLUMNS("target", "compute_capability", "kind", "toolkit", "shared_per_block", "shared_per_sm",
            "registers_per_sm", "max_threads_per_sm", "features");
    for (size_t i = 0; i < session->num_targets; i++) {
        const struct arch *a = session->targets[i];
        output_text(rows, a->name);
        output_integer(rows, a->cc);
        output_text(rows, kinds[a->kind]);
        output_text(rows,
                    arena_printf(&session->arena, "%d.%d", a->toolkit / 100, a->toolkit % 100));
        output_integer(rows, a->shared_per_block);
        output_integer(rows, a->shared_per_sm);
        output_integer(rows, a->registers_per_sm);
        output_integer(rows, a->max_threads_per_sm);
        output_text(rows,
                    arena_printf(&session->arena, "%s%s%s%s%s%s", a->cp_async ? "cp_async" : "",
                                 a->fp8 ? ",fp8" : "", a->bulk_copy ? ",bulk_copy" : "",
                                 a->cluster ? ",cluster" : "", a->wgmma ? ",wgmma" : "",
                                 a->tcgen05 ? ",tcgen05" : ""));
    }
}

static void list_axes(struct session *session, struct output_table *rows)
{
    COLUMNS("family", "axis", "kind", "values");
    for (size_t f = 0; f < session->num_families; f++) {
        const struct family *family = &session->families[f];
        for (size_t i = 0; i < family->num_axes; i++) {
            const char *equals = strchr(family->axes[i], '=');
            output_text(rows, family->name);
            output_text(rows, arena_copy(&session->arena, family->axes[i],
                                         (size_t)(equals - family->axes[i])));
            output_text(rows, i < family->num_required ? "required" : "free");
            output_text(rows, equals + 1);
        }
    }
}

/* One row for each family (or required key) and target. */
static void list_counts(struct session *session, struct output_table *rows, bool keys)
{
    if (keys) {
        COLUMNS("family", "required", "values", "target", "variants", "fallback");
    } else {
        COLUMNS("family", "target", "keys", "variants", "combinations");
    }
    for (size_t f = 0; f < session->num_families; f++)
        for (size_t t = 0; t < session->num_targets; t++) {
            size_t variants = 0, groups = 0, first = 0;
            const struct variant *last = NULL, *fallback = NULL;
            for (size_t i = 0; i <= session->num_variants; i++) {
                const struct variant *v = i < session->num_variants ? session->variants[i] : NULL;
                if (v != NULL &&
                    (v->family != &session->families[f] || v->arch != session->targets[t]))
                    continue;
                if (last != NULL && (v == NULL || strcmp(v->group, last->group) != 0)) {
                    groups++;
                    if (keys) {
                        output_text(rows, last->family->name);
                        output_text(rows, last->group);
                        output_text(rows, last->group_values);
                        output_text(rows, last->arch->name);
                        output_integer(rows, (int64_t)(variants - first));
                        output_text(rows, fallback != NULL ? fallback->name : "");
                    }
                    first = variants;
                    fallback = NULL;
                }
                if (v == NULL)
                    break;
                variants++;
                last = v;
                fallback = v->fallback ? v : fallback;
            }
            if (keys)
                continue;
            output_text(rows, session->families[f].name);
            output_text(rows, session->targets[t]->name);
            output_integer(rows, (int64_t)groups);
            output_integer(rows, (int64_t)variants);
            output_integer(rows, (int64_t)session->families[f].combinations);
        }
}

static void list_variants(struct session *session, struct output_table *rows)
{
    COLUMNS("name", "family", "required", "target", "axes", "threads", "shared_dynamic", "cluster",
            "fallback");
    for (size_t i = 0; i < session->num_variants; i++) {
        const struct variant *v = session->variants[i];
        const char *planned[NUM_PLANNED];
        catalog_plan(session, v, planned);
        output_text(rows, v->name);
        for (int j = PLANNED_FAMILY; j <= PLANNED_AXES; j++)
            output_text(rows, planned[j]);
        output_integer(rows, v->threads);
        output_integer(rows, v->shared);
        output_integer(rows, v->cluster);
        output_integer(rows, v->fallback);
    }
}

int command_list(struct session *session)
{
    const struct options *options = session->options;
    const char *what = options->words.count > 0 ? options->words.items[0] : "variants";
    bool targets = strcmp(what, "targets") == 0, axes = strcmp(what, "axes") == 0;
    bool families = strcmp(what, "families") == 0, keys = strcmp(what, "keys") == 0;
    struct output_table rows;
    if (options->words.count > 1 ||
        !(targets || axes || families || keys || strcmp(what, "variants") == 0))
        fail(session, "list: '%s'; allowed: families, targets, axes, keys, variants",
             options->words.items[options->words.count - 1]);
    space_open(session, targets || families || axes);
    if (!targets && !axes) {
        /* A list may well be empty. */
        spec_enumerate(session);
        space_default(session);
        if (session->num_variants > 0)
            space_subset(session, false);
    }
    if (targets)
        list_targets(session, &rows);
    else if (axes)
        list_axes(session, &rows);
    else if (families || keys)
        list_counts(session, &rows, keys);
    else
        list_variants(session, &rows);
    output_print(&rows, options->format);
    return 0;
}
