#include "cmd/commands.h"
#include "util/error.h"
#include "options.h"
#include "spec/space.h"
#include "spec/spec.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void field(struct output_table *rows, const char *name, const char *value)
{
    output_text(rows, name);
    output_text(rows, value);
}

static void number(struct session *session, struct output_table *rows, const char *name,
                   int64_t value)
{
    field(rows, name, arena_printf(&session->arena, "%" PRId64, value));
}

static void add_facts(struct session *session, struct output_table *rows, const struct variant *v)
{
    const char *name = v->family->facts;
    for (size_t i = 0; i < v->family->num_facts; i++) {
        size_t size = strcspn(name, ",");
        number(session, rows, arena_printf(&session->arena, "fact %.*s", (int)size, name),
               v->facts[i]);
        name += size + (name[size] == ',');
    }
}

static void add_compiled(struct session *session, struct output_table *rows,
                         const struct variant *v)
{
    if (v->state == VARIANT_NEW) {
        field(rows, "compiled", "no: not in the cache");
        return;
    }
    field(rows, "compiled", v->state == VARIANT_BUILT ? "yes, in the cache" : "refused");
    if (v->state != VARIANT_BUILT)
        field(rows, "reason", v->reason);
    field(rows, "code digest", arena_printf(&session->arena, "%016" PRIx64, v->code_digest));
    number(session, rows, "registers", v->report.registers);
    number(session, rows, "shared static", v->report.shared_static);
    number(session, rows, "image bytes", (int64_t)v->image_size);
    field(rows, "CPU-seconds", arena_printf(&session->arena, "%.3f", v->seconds));
}

/* Everything about one variant. */
static void print_variant(struct session *session, struct variant *v)
{
    static const char *const columns[] = {"what", "value"};
    struct output_table rows;
    struct context context;
    session->variants[0] = v;
    session->num_variants = 1;
    space_expand(session);
    context_open(session, &context);
    output_begin(&rows, &session->arena, columns, 2);
    field(&rows, "name", v->name);
    field(&rows, "symbol", v->symbol);
    field(&rows, "family", v->family->name);
    field(&rows, "target", v->arch->name);
    field(&rows, "required", v->required);
    field(&rows, "free", v->free);
    field(&rows, "fallback", v->fallback ? "yes" : "no");
    field(&rows, "default space",
          v->extra ? "no: no tuning table picks it; --full builds it" : "yes");
    field(&rows, "template", v->template->path);
    field(&rows, "digest", arena_printf(&session->arena, "%016" PRIx64, v->source_digest));
    number(session, &rows, "threads", v->threads);
    number(session, &rows, "shared dynamic", v->shared);
    number(session, &rows, "cluster", v->cluster);
    number(session, &rows, "max registers", v->max_registers);
    add_facts(session, &rows, v);
    add_compiled(session, &rows, v);
    output_print(&rows, session->options->format);
}

struct question {
    const char *glob;
    struct condition *conditions;
    size_t num_conditions;
    const char *what; /* as asked */
};

static void read_question(struct session *session, struct question *question)
{
    const struct strings *words = &session->options->words;
    *question = (struct question){.what = ""};
    if (words->count == 0)
        fail(session, "why: which variant? Give a name, a glob, or axis=value ...");
    question->conditions =
        arena_alloc(&session->arena, words->count * sizeof *question->conditions);
    for (size_t i = 0; i < words->count; i++) {
        const char *word = words->items[i], *equals = strchr(word, '=');
        question->what =
            arena_printf(&session->arena, "%s%s%s", question->what, i > 0 ? " " : "", word);
        if (equals == NULL && words->count > 1)
            fail(session, "why: '%s'; allowed: one name or glob, or only axis=value", word);
        if (equals == NULL) {
            question->glob = word;
            return;
        }
        question->conditions[question->num_conditions++] =
            (struct condition){.axis = arena_copy(&session->arena, word, (size_t)(equals - word)),
                               .value = equals + 1};
    }
}

struct tally {
    size_t total, legal, families;
    const char *one_legal, *message;
    const struct family *family; /* of one_legal */
    const struct arch *arch;
};

static void add_answer(struct output_table *rows, const struct family *family,
                       const struct arch *arch, const struct why_answer *answer)
{
    if (answer->num_legal > 0) {
        output_text(rows, family->name);
        output_text(rows, arch->name);
        output_integer(rows, (int64_t)answer->num_legal);
        output_text(rows, answer->num_legal == 1 ? answer->legal[0] : "legal");
    }
    for (size_t i = 0; i < answer->num_reasons; i++) {
        output_text(rows, family->name);
        output_text(rows, arch->name);
        output_integer(rows, (int64_t)answer->reasons[i].count);
        output_text(rows, answer->reasons[i].reason);
    }
}

static void ask(struct session *session, const struct question *question, struct output_table *rows,
                struct tally *tally)
{
    for (size_t f = 0; f < session->num_families; f++) {
        const struct family *family = &session->families[f];
        for (size_t t = 0; t < session->num_targets; t++) {
            struct why_answer answer;
            if (!spec_why(session, family, session->targets[t], question->glob,
                          question->conditions, question->num_conditions, &answer, &tally->message))
                break;
            tally->families += t == 0;
            tally->total += answer.total;
            tally->legal += answer.num_legal;
            if (answer.num_legal > 0) {
                tally->one_legal = answer.legal[0];
                tally->family = family;
                tally->arch = session->targets[t];
            }
            add_answer(rows, family, session->targets[t], &answer);
        }
    }
}

static struct variant *find(struct session *session, const struct tally *tally)
{
    /* Only that family and target: the rest need not be enumerated. */
    session->families[0] = *tally->family;
    session->num_families = 1;
    session->targets[0] = tally->arch;
    session->num_targets = 1;
    space_enumerate(session);
    for (size_t i = 0; i < session->num_variants; i++)
        if (strcmp(session->variants[i]->name, tally->one_legal) == 0)
            return session->variants[i];
    return NULL;
}

int command_why(struct session *session)
{
    static const char *const columns[] = {"family", "target", "combinations", "why"};
    struct question question;
    struct tally tally = {0};
    struct output_table rows;
    read_question(session, &question);
    /* A name says its target. */
    space_open(session, question.glob != NULL);
    output_begin(&rows, &session->arena, columns, sizeof columns / sizeof columns[0]);
    ask(session, &question, &rows, &tally);
    if (tally.families == 0)
        fail(session, "why: %s", tally.message);
    if (tally.total == 0)
        fail(session,
             "why: '%s' matches no combination of axis values, legal or not; `attngen list "
             "axes` shows them",
             question.what);
    struct variant *variant = tally.total == 1 && tally.legal == 1 ? find(session, &tally) : NULL;
    if (variant != NULL)
        print_variant(session, variant);
    else
        output_print(&rows, session->options->format);
    return 0;
}
