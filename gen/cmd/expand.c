#include "cmd/commands.h"
#include "expand/expand.h"
#include "util/error.h"
#include "util/file.h"
#include "util/glob.h"
#include "options.h"
#include "spec/space.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void write_one(struct session *session, struct variant *variant)
{
    const struct options *options = session->options;
    expand_variant(session, variant, !options->no_line);
    if (options->output == NULL) {
        fwrite(variant->source, 1, variant->source_size, stdout);
        return;
    }
    const char *path = arena_printf(&session->arena, "%s/%s.cu", options->output, variant->name);
    if (!file_write_changed(&session->arena, path, variant->source, variant->source_size))
        fail(session, "%s: cannot write it: %s", path, strerror(errno));
}

static bool wanted(const struct options *options, const struct variant *variant)
{
    for (size_t i = 0; i < options->words.count; i++)
        if (glob_match(options->words.items[i], variant->name))
            return true;
    return options->words.count == 0;
}

/* Every word names something, or it is misspelt. */
static void check_words(struct session *session)
{
    const struct strings *words = &session->options->words;
    for (size_t i = 0; i < words->count; i++) {
        bool any = false;
        for (size_t j = 0; j < session->num_variants && !any; j++)
            any = glob_match(words->items[i], session->variants[j]->name);
        if (!any)
            fail(session,
                 "expand: '%s' matches none of %zu variants; `attngen why '%s'` may say why",
                 words->items[i], session->num_variants, words->items[i]);
    }
}

int command_expand(struct session *session)
{
    const struct options *options = session->options;
    /* A name says its target. */
    space_open(session, true);
    space_enumerate(session);
    space_subset(session, false);
    if (options->words.count == 0 && options->only.count == 0 && options->from_tables.count == 0)
        fail(session, "expand: which variants? Give names or globs; `attngen list` shows them");
    check_words(session);
    size_t count = 0;
    for (size_t i = 0; i < session->num_variants; i++)
        count += wanted(options, session->variants[i]);
    if (count > 1 && options->output == NULL)
        fail(session, "expand: %zu variants match; standard output takes one, --output DIR all",
             count);
    for (size_t i = 0; i < session->num_variants; i++)
        if (wanted(options, session->variants[i]))
            write_one(session, session->variants[i]);
    return 0;
}
