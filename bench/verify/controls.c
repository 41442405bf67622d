#include "verify/controls.h"
#include "common/problem_text.h"

#include <stdlib.h>
#include <string.h>

static int form_named(const struct gen__family *family, const char *name, size_t length)
{
    for (uint32_t i = 0; i < family->num_forms; i++)
        if (strlen(family->forms[i]) == length && memcmp(family->forms[i], name, length) == 0)
            return (int)i;
    die(1, "%s has no form '%.*s' of its arguments", family->name, (int)length, name);
}

static enum gen__data data_named(const char *name, size_t length)
{
    for (int i = 0; i < GEN__NUM_DATA; i++)
        if (strlen(gen__data_names[i]) == length && memcmp(gen__data_names[i], name, length) == 0)
            return (enum gen__data)i;
    die(1, "no data is called '%.*s'", (int)length, name);
}

/* Words for the caller: cheap enough to run under a sanitizer, a flag of the problem. */
static bool is_others(const char *word, size_t length)
{
    return (length == 5 && memcmp(word, "@tiny", 5) == 0) ||
           (length == 10 && memcmp(word, "@invariant", 10) == 0);
}

struct controls controls_read(const struct gen__family *family, const char *controls,
                              struct fill_options *fill)
{
    struct controls c = {BUFFERS_DEFAULT_FORM, GEN__DATA_NORMAL, 1};
    for (const char *p = controls; *p;) {
        p += strspn(p, " ");
        size_t length = strcspn(p, " ");
        if (length == 4 && memcmp(p, "@pad", 4) == 0)
            fill->padding = true;
        else if (length == 4 && memcmp(p, "@nan", 4) == 0)
            fill->non_finite = true;
        else if (length == 7 && memcmp(p, "@poison", 7) == 0)
            fill->poisoned = true;
        else if (length > 6 && memcmp(p, "@form=", 6) == 0)
            c.form = form_named(family, p + 6, length - 6);
        else if (length > 6 && memcmp(p, "@data=", 6) == 0)
            c.data = data_named(p + 6, length - 6);
        else if (length > 7 && memcmp(p, "@steps=", 7) == 0)
            c.steps =
                (int)strtol(p + 7, NULL, 10); /* from 1, or the list would have been refused */
        else if (length && !is_others(p, length))
            die(1,
                "unknown control '%.*s'; allowed: @pad, @nan, @poison, @tiny, @invariant, "
                "@form=NAME, @data=KIND, @steps=N",
                (int)length, p);
        p += length;
    }
    return c;
}
