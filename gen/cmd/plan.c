#include "cmd/commands.h"
#include "compile/estimate.h"
#include "util/error.h"
#include "options.h"
#include "product/pack.h"
#include "spec/space.h"

#include <inttypes.h>
#include <stdio.h>

static void add_row(struct output_table *rows, const struct estimate *e)
{
    output_text(rows, e->family != NULL ? e->family->name : "total");
    output_text(rows, e->arch != NULL ? e->arch->name : "");
    output_integer(rows, (int64_t)e->variants);
    output_integer(rows, (int64_t)e->cached);
    output_decimal(rows, e->cpu_seconds, 1);
    output_decimal(rows, e->cpu_seconds_left, 1);
    output_integer(rows, (int64_t)e->bytes);
}

int command_plan(struct session *session)
{
    static const char *const columns[] = {"family",      "target",           "variants", "cached",
                                          "cpu_seconds", "cpu_seconds_left", "bytes"};
    const struct options *options = session->options;
    struct context context;
    struct pack_tables tables = {0};
    struct text overhead = {0};
    struct estimate *estimates;
    struct output_table rows;
    if (options->words.count > 0)
        fail(session, "plan: unexpected word '%s'; allowed: options", options->words.items[0]);
    space_open(session, false);
    space_enumerate(session);
    space_subset(session, true);
    context_expand(session, &tables);
    context_open(session, &context);
    context_check(session, &context);
    size_t count = estimate_make(session, &context.pool, &estimates);
    context_check(session, &context);
    pack_make(session, session->variants, 0, &tables, context.toolkit.name, &overhead);
    double per_variant = (double)sizeof(struct gen_pack_variant) + 80; /* and its name */
    for (size_t i = 0; i < count; i++)
        estimates[i].bytes += per_variant * (double)estimates[i].variants;
    estimates[count - 1].bytes += (double)overhead.size;
    text_free(&overhead);
    output_begin(&rows, &session->arena, columns, sizeof columns / sizeof columns[0]);
    for (size_t i = 0; i < count; i++)
        add_row(&rows, &estimates[i]);
    output_print(&rows, options->format);
    const struct estimate *total = &estimates[count - 1];
    if (options->max_bytes > 0 && total->bytes > (double)options->max_bytes)
        fail(session, "--max-bytes: about %.0f bytes are planned; allowed: %" PRIu64, total->bytes,
             options->max_bytes);
    return 0;
}
