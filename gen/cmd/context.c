#include "cmd/commands.h"

#include "util/error.h"
#include "options.h"
#include "spec/space.h"

#include <signal.h>
#include <stdio.h>

void workshop_open(struct session *session, struct workshop *shop)
{
    const struct options *options = session->options;
    toolkit_find(&session->arena, &shop->toolkit);
    if (shop->toolkit.fatbinary == NULL)
        fail(session, "the toolkit's program fatbinary is not found; looked in: %s",
             shop->toolkit.looked_for);
    shop->pool = (struct pool){.toolkit = &shop->toolkit,
                               .cache = space_cache(session),
                               .jobs = (int)options->jobs,
                               .time_limit = (double)options->timeout,
                               .line_info = options->line_info,
                               .quiet = options->quiet};
    shop->cached = space_look_up(session, &shop->toolkit, shop->pool.cache);
}

void workshop_check(struct session *session, struct workshop *shop)
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
    if (shop->pool.interrupted == 0)
        return;
    fprintf(stderr,
            "attngen: interrupted; what was compiled is kept in %s, and the same command "
            "goes on from there\n",
            shop->pool.cache);
    signal(shop->pool.interrupted, SIG_DFL);
    raise(shop->pool.interrupted);
}
