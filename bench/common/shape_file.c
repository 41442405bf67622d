/* Problems as lines of text: the part of problems.h that reads them. */
#include "common/problems.h"
#include "core/text.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static enum gen_status unknown_control(const struct gen__family *family, enum shape_use use,
                                       const char *word, size_t length)
{
    char allowed[512];
    struct gen__text text = gen__text_over(allowed, sizeof allowed);
    gen__text_add(&text, "%s",
                  use == SHAPES_TIMED ? "@scattered, @serial, @invariant, @name=NAME"
                                      : "@pad, @nan, @poison, @tiny, @invariant, @steps=N");
    for (uint32_t i = 0; use == SHAPES_VERIFIED && family->data && i < GEN__NUM_DATA; i++)
        gen__text_add(&text, ", @data=%s", gen__data_names[i]);
    for (uint32_t i = 0; use == SHAPES_VERIFIED && i < family->num_forms; i++)
        gen__text_add(&text, ", @form=%s", family->forms[i]);
    return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                     "unknown word '%.*s' in a list of %s; allowed: %s", (int)length, word,
                     use == SHAPES_TIMED ? "shapes" : "checks", allowed);
}

static bool is_word(const char *at, size_t length, const char *word)
{
    return strlen(word) == length && memcmp(at, word, length) == 0;
}

/* "@steps=" and a number from 1 to 99,999. */
static bool is_steps(const char *at, size_t length)
{
    static const char head[] = "@steps=";
    const size_t before = sizeof head - 1;
    if (length <= before || length > before + 5 || memcmp(at, head, before) != 0)
        return false;
    for (size_t i = before; i < length; i++)
        if (at[i] < '0' || at[i] > '9' || (i == before && at[i] == '0'))
            return false;
    return true;
}

/* "@form=" or "@data=" and one of the names. */
static bool is_one_of(const char *at, size_t length, const char *head, const char *const *names,
                      uint32_t num_names)
{
    for (uint32_t i = 0; length > 6 && memcmp(at, head, 6) == 0 && i < num_names; i++)
        if (is_word(at + 6, length - 6, names[i]))
            return true;
    return false;
}

/* "@name=" and 1 to 24 letters, digits, '-', '_' and '.': what the case is called in results. */
static bool is_case_name(const char *at, size_t length)
{
    static const char head[] = "@name=";
    const size_t before = sizeof head - 1;
    if (length <= before || length > before + 24 || memcmp(at, head, before) != 0)
        return false;
    for (size_t i = before; i < length; i++)
        if (!isalnum((unsigned char)at[i]) && !strchr("-_.", at[i]))
            return false;
    return true;
}

static bool control_allowed(const struct gen__family *family, enum shape_use use, const char *at,
                            size_t length)
{
    if (is_word(at, length, "@invariant"))
        return true;
    if (use == SHAPES_TIMED)
        return is_word(at, length, "@scattered") || is_word(at, length, "@serial") ||
               is_case_name(at, length);
    if (is_one_of(at, length, "@form=", family->forms, family->num_forms) ||
        is_one_of(at, length, "@data=", gen__data_names, family->data ? GEN__NUM_DATA : 0))
        return true;
    return is_word(at, length, "@pad") || is_word(at, length, "@nan") ||
           is_word(at, length, "@poison") || is_word(at, length, "@tiny") || is_steps(at, length);
}

/* Moves the words that start with '@' from `words` to `controls`, where they are
 * known. */
static enum gen_status split_controls(const struct gen__family *family, enum shape_use use,
                                      char *words, char *controls, size_t capacity)
{
    struct gen__text kept = gen__text_over(controls, capacity);
    char *out = words;
    for (char *p = words; *p;) {
        size_t blanks = strspn(p, " \t,");
        size_t length = strcspn(p + blanks, " \t,");
        char *word = p + blanks;
        if (*word == '@') {
            if (!control_allowed(family, use, word, length))
                return unknown_control(family, use, word, length);
            gen__text_add(&kept, "%s%.*s", kept.length ? " " : "", (int)length, word);
        } else {
            memmove(out, p, blanks + length);
            out += blanks + length;
        }
        p = word + length;
    }
    *out = '\0';
    return kept.length < capacity
               ? GEN_OK
               : gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                           "words that start with '@' take %zu bytes; allowed: %zu", kept.length,
                           capacity - 1);
}

/* What a control changes in the problem or for the benchmark, and the case name
 * that says so. */
static void apply_controls(struct shape *s)
{
    const char *name = strstr(s->controls, "@name=");
    if (name)
        snprintf(s->name, sizeof s->name, "%.*s", (int)strcspn(name + 6, " "), name + 6);
    const size_t length = strlen(s->name);
    const bool scattered = strstr(s->controls, "@scattered") != NULL;
    const bool serial = strstr(s->controls, "@serial") != NULL;
    const bool invariant = strstr(s->controls, "@invariant") != NULL;
    if (serial)
        s->problem->flags |= GEN_SERIAL_LAUNCH;
    if (invariant)
        s->problem->flags |= GEN_BATCH_INVARIANT;
    (void)s->family->check(s->problem, &s->key); /* the coordinates depend on it */
    snprintf(s->name + length, sizeof s->name - length, "%s%s%s", scattered ? "-scattered" : "",
             serial ? "-serial" : "", invariant ? "-invariant" : "");
}

bool shapes_parse(struct shape_list *list, const struct gen__family *family, enum shape_use use,
                  const char *words)
{
    char *copy = xstrdup(words);
    char controls[64];
    gen_problem *problem = xmalloc(family->problem_size);
    memset(problem, 0, family->problem_size);
    struct gen__key key = {0};
    bool ok = split_controls(family, use, copy, controls, sizeof controls) == GEN_OK &&
              gen__problem_parse(family, copy, problem) == GEN_OK &&
              family->check(problem, &key) == GEN_OK;
    if (ok) {
        struct shape *s = shapes_add(list, family, problem);
        memcpy(s->controls, controls, sizeof controls);
        apply_controls(s);
    }
    free(problem);
    free(copy);
    return ok;
}

int shapes_read(struct shape_list *list, const struct gen__family *family, enum shape_use use,
                const char *path)
{
    char *data = file_read(path, NULL);
    if (!data)
        return -1;
    int bad = 0, line_number = 0;
    for (char *line = data, *next; line; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        line_number++;
        char *hash = strchr(line, '#');
        char *note = hash ? text_trim(hash + 1) : "";
        if (hash)
            *hash = '\0';
        line = text_trim(line);
        if (!*line)
            continue;
        if (shapes_parse(list, family, use, line)) {
            struct shape *s = &list->item[list->count - 1];
            snprintf(s->note, sizeof s->note, "%s", note);
            snprintf(s->where, sizeof s->where, "%.140s:%d", path, line_number);
        } else {
            warn("%s:%d: %s", path, line_number, gen_last_error());
            bad++;
        }
    }
    free(data);
    return bad;
}

int shapes_read_default(struct shape_list *list, const struct gen__family *family,
                        enum shape_use use)
{
    char name[128];
    snprintf(name, sizeof name, "shapes/%s%s.txt", family->name,
             use == SHAPES_TIMED ? "" : "_verify");
    char *path = data_path(name);
    int bad = path ? shapes_read(list, family, use, path) : -1;
    free(path);
    return bad;
}

void shapes_load(struct shape_list *list, const struct gen__family *family, enum shape_use use,
                 const char *path)
{
    const size_t before = list->count;
    const char *kind = use == SHAPES_TIMED ? "shape file" : "verify list";
    int bad = path ? shapes_read(list, family, use, path) : shapes_read_default(list, family, use);
    if (!bad && list->count > before)
        return;
    die(1, "%s's %s%s%s %s", family->name, kind, path ? " " : "", path ? path : "",
        bad < 0 ? "is not readable"
        : bad   ? "is malformed"
                : "holds no problem");
}
