#include "product/refusals.h"

#include "options.h"
#include "util/error.h"
#include "util/file.h"

#include <stdlib.h>
#include <string.h>

bool refusals_known(struct session *session, struct catalog *catalog)
{
    const char *path = session->options->expect;
    if (path == NULL) {
        path = arena_printf(&session->arena, "%s/../share/attngen/catalog.tsv",
                            file_program_folder(&session->arena));
        /* Another version's, or none, as beside a generator that was copied. */
        if (!catalog_is_current(session, path))
            return false;
    }
    catalog_read(session, path, catalog);
    return true;
}

static int by_name(const void *key, const void *item)
{
    return strcmp(key, ((const struct catalog_row *)item)->name);
}

/* An edited source may be refused for what was edited, so it does not count. */
static bool is_expected(const struct catalog *catalog, const struct variant *v)
{
    const struct catalog_row *row = NULL;
    if (catalog->count > 0)
        row = bsearch(v->name, catalog->rows, catalog->count, sizeof *row, by_name);
    return row != NULL && row->reason == NULL && row->source_digest == v->source_digest;
}

void refusals_check(struct session *session, const char *toolkit)
{
    enum { MOST = 10 };
    const size_t allowed = (size_t)session->options->allow_refused;
    struct catalog catalog;
    struct text names = {0};
    size_t count = 0;
    if (!refusals_known(session, &catalog))
        return;
    for (size_t i = 0; i < session->num_variants; i++) {
        const struct variant *v = session->variants[i];
        if (v->state != VARIANT_REFUSED || v->lost || !is_expected(&catalog, v))
            continue;
        if (count++ < MOST)
            text_printf(&names, "\n  %s: %s", v->name, v->reason);
    }
    if (count > MOST)
        text_printf(&names, "\n  and %zu more", count - MOST);
    const char *list = names.size > 0 ? arena_string(&session->arena, names.data) : "";
    text_free(&names);
    if (count > allowed)
        fail(session,
             "CUDA toolkit %s refuses %zu variants that %s has, made with toolkit %s; allowed: %zu "
             "(--allow-refused N makes the product without them):%s",
             toolkit, count, catalog.path, catalog.toolkit != NULL ? catalog.toolkit : "unknown",
             allowed, list);
}
