#include "cmd/commands.h"

#include "util/error.h"
#include "options.h"
#include "product/winners.h"
#include "spec/space.h"

#include <signal.h>
#include <stdio.h>

void context_expand(struct session *session, struct pack_tables *tables)
{
    const struct options *options = session->options;
    const bool choose = options->winners.count > 0;
    struct winners winners;
    pack_read_tables(session, options->tables.items, options->tables.count, tables);
    if (choose)
        winners_open(session, tables, &winners);
    space_expand(session);
    if (!choose)
        return;
    winners_choose(session, tables, &winners);
    if (!options->quiet)
        winners_print(session, &winners);
}

void context_open(struct session *session, struct context *context)
{
    const struct options *options = session->options;
    toolkit_find(&session->arena, &context->toolkit);
    if (context->toolkit.fatbinary == NULL)
        fail(session, "the toolkit's program fatbinary is not found; looked in: %s",
             context->toolkit.looked_for);
    context->pool = (struct pool){.toolkit = &context->toolkit,
                                  .cache = space_cache(session),
                                  .jobs = (int)options->jobs,
                                  .time_limit = (double)options->timeout,
                                  .line_info = options->line_info,
                                  .quiet = options->quiet};
    context->cached = space_look_up(session, &context->toolkit, context->pool.cache);
}

void context_check(struct session *session, struct context *context)
{
    const struct variant *broken = NULL;
    size_t num_broken = 0;
    for (size_t i = 0; i < session->num_variants; i++)
        if (session->variants[i]->state == VARIANT_BROKEN) {
            broken = broken != NULL ? broken : session->variants[i];
            num_broken++;
        }
    if (broken != NULL)
        fail(session, "%s\n(found in %s%s)", broken->reason, broken->name,
             num_broken > 1 ? " and others" : "");
    if (context->pool.interrupted == 0)
        return;
    fprintf(stderr,
            "attngen: interrupted; what was compiled is kept in %s, and the same command "
            "goes on from there\n",
            context->pool.cache);
    signal(context->pool.interrupted, SIG_DFL);
    raise(context->pool.interrupted);
}
