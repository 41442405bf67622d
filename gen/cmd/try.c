#include "cmd/try.h"

#include "compile/scratch_dir.h"
#include "options.h"
#include "spec/space.h"
#include "util/error.h"
#include "util/file.h"
#include "util/glob.h"
#include "util/tsv.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is printed of a variant of one side. */
enum column {
    NAME,
    VERDICT,
    SOURCE,
    CODE,
    REGISTERS,
    SPILLS,
    STACK,
    INSTRUCTIONS,
    SHARED,
    BYTES,
    NUM_COLUMNS
};

static const char *const columns[NUM_COLUMNS] = {"name",      "verdict", "source", "code",
                                                 "registers", "spills",  "stack",  "instructions",
                                                 "shared",    "bytes"};

struct side {
    const char *(*rows)[NUM_COLUMNS]; /* sorted by name */
    size_t count;
};

/* ---- one side ---------------------------------------------------------------------------- */

static void read_words(struct trial *trial)
{
    struct session *session = trial->session;
    const struct strings *words = &session->options->words;
    const size_t most = sizeof trial->globs / sizeof trial->globs[0];
    for (size_t i = 0; i < words->count; i++) {
        const bool is_problem = strchr(words->items[i], '=') != NULL;
        size_t *count = is_problem ? &trial->num_problem : &trial->num_globs;
        if (*count == most)
            fail(session, "try: more than %zu globs or key=value", most);
        (is_problem ? trial->problem : trial->globs)[(*count)++] = words->items[i];
    }
    if (trial->num_globs == 0)
        fail(session, "try: which variants? Give names or globs; `attngen list` shows them");
}

static bool wanted(const struct trial *trial, const struct variant *variant)
{
    for (size_t i = 0; i < trial->num_globs; i++)
        if (glob_match(trial->globs[i], variant->name))
            return true;
    return false;
}

/* Leaves the variants that the globs name: none is no mistake where the other side has some. */
static void choose(struct trial *trial)
{
    struct session *session = trial->session;
    size_t kept = 0, all = session->num_variants;
    for (size_t i = 0; i < all; i++)
        if (wanted(trial, session->variants[i]))
            session->variants[kept++] = session->variants[i];
    session->num_variants = kept;
    if (kept == 0 && trial->against != NULL)
        fail(session, "try: '%s' matches none of %zu variants; `attngen why '%s'` may say why",
             trial->globs[0], all, trial->globs[0]);
}

/* Compiles what the cache does not hold, or holds from before instructions were counted. */
static void compile(struct session *session, struct context *context)
{
    size_t count = 0;
    struct variant **todo =
        arena_alloc(&session->arena, (session->num_variants + 1) * sizeof *todo);
    for (size_t i = 0; i < session->num_variants; i++) {
        struct variant *v = session->variants[i];
        if (v->state != VARIANT_NEW && v->report.instructions > 0)
            continue;
        v->state = VARIANT_NEW;
        todo[count++] = v;
    }
    pool_run(session, &context->pool, todo, count);
    context_check(session, context);
}

static const char *number(struct session *session, int64_t value)
{
    return arena_printf(&session->arena, "%" PRId64, value);
}

static void describe(struct session *session, const struct variant *v, const char **row)
{
    const struct report *r = &v->report;
    row[NAME] = v->name;
    row[VERDICT] = v->state == VARIANT_REFUSED
                       ? arena_printf(&session->arena, "refused: %s", v->reason)
                       : "built";
    row[SOURCE] = arena_printf(&session->arena, "%016" PRIx64, v->source_digest);
    row[CODE] = arena_printf(&session->arena, "%016" PRIx64, v->code_digest);
    row[REGISTERS] = number(session, r->registers);
    row[SPILLS] = number(session, r->spill_stores + r->spill_loads);
    row[STACK] = number(session, r->stack);
    row[INSTRUCTIONS] = number(session, r->instructions);
    row[SHARED] = number(session, v->shared + r->shared_static);
    row[BYTES] = number(session, (int64_t)v->image_size);
}

static void measure(struct trial *trial, struct side *side)
{
    struct session *session = trial->session;
    struct context context;
    space_open(session, false);
    space_enumerate(session);
    choose(trial);
    space_expand(session);
    context_open(session, &context);
    compile(session, &context);
    side->count = session->num_variants;
    side->rows = arena_alloc(&session->arena, (side->count + 1) * sizeof *side->rows);
    for (size_t i = 0; i < side->count; i++)
        describe(session, session->variants[i], side->rows[i]);
}

/* ---- the other side: this program on the commit's templates -------------------------------- */

static void check_out(struct trial *trial)
{
    struct session *session = trial->session;
    struct arena *arena = &session->arena;
    const char *tar = arena_printf(arena, "%s/templates.tar", trial->folder);
    trial->old_templates = arena_printf(arena, "%s/templates", trial->folder);
    if (!file_make_folder(trial->old_templates))
        fail(session, "%s: cannot make it: %s", trial->old_templates, strerror(errno));
    const char *const archive[] = {"git",      "-C", session->templates, "archive",
                                   "--output", tar,  trial->against,     NULL};
    const char *const unpack[] = {"tar", "-xf", tar, "-C", trial->old_templates, NULL};
    if (try_program(trial, archive, NULL) != 0 || try_program(trial, unpack, NULL) != 0)
        fail(
            session,
            "try: git has no templates of '%s' in %s; allowed: --against with a commit of the work "
            "tree that they are in, or --against none",
            trial->against, session->templates);
}

static void read_side(struct trial *trial, const char *path, struct side *side)
{
    struct session *session = trial->session;
    size_t size, capacity = 0;
    struct tsv lines = {.rest = file_read(&session->arena, path, &size)};
    *side = (struct side){0};
    for (char *line; (line = tsv_next(&lines)) != NULL;) {
        char *fields[NUM_COLUMNS];
        if (lines.number == 1 || tsv_split(line, fields, NUM_COLUMNS) != NUM_COLUMNS)
            continue;
        if (side->count == capacity) {
            capacity = capacity > 0 ? 2 * capacity : 64;
            side->rows =
                arena_grow(&session->arena, side->rows, side->count, capacity, sizeof *side->rows);
        }
        memcpy(side->rows[side->count++], fields, sizeof fields);
    }
}

static void measure_other(struct trial *trial, struct side *side)
{
    struct session *session = trial->session;
    const struct options *options = session->options;
    struct arena *arena = &session->arena;
    enum { MOST = 24 + sizeof trial->globs / sizeof trial->globs[0] };
    const char *words[MOST] = {try_own_path(trial), "try"};
    const char *rows = arena_printf(arena, "%s/rows.tsv", trial->folder);
    size_t n = 2;
    for (size_t i = 0; i < trial->num_globs; i++)
        words[n++] = trial->globs[i];
    const char *const fixed[] = {"--against",   "none",
                                 "--format",    "tsv",
                                 "--templates", trial->old_templates,
                                 "--targets",   trial->targets,
                                 "--cache",     space_cache(session),
                                 "--timeout",   number(session, options->timeout),
                                 "-q"};
    for (size_t i = 0; i < sizeof fixed / sizeof fixed[0]; i++)
        words[n++] = fixed[i];
    if (options->jobs > 0) {
        words[n++] = "--jobs";
        words[n++] = number(session, options->jobs);
    }
    if (try_program(trial, words, rows) != 0)
        fail(session, "try: the templates of '%s' do not build; --against none leaves them out",
             trial->against);
    read_side(trial, rows, side);
}

/* ---- side by side -------------------------------------------------------------------------- */

static const char *verdict(struct session *session, const char *const *now, const char *const *was)
{
    if (now == NULL)
        return "gone";
    if (was == NULL || strcmp(now[VERDICT], "built") != 0)
        return was == NULL ? arena_printf(&session->arena, "new, %s", now[VERDICT]) : now[VERDICT];
    if (strcmp(was[VERDICT], "built") != 0)
        return arena_printf(&session->arena, "built, was %s", was[VERDICT]);
    if (strcmp(now[SOURCE], was[SOURCE]) == 0)
        return "same source";
    return strcmp(now[CODE], was[CODE]) == 0 ? "same code" : "changed";
}

static void add_cells(struct session *session, struct output_table *rows, const char *name,
                      const char *const *now, const char *const *was)
{
    output_text(rows, name);
    output_text(rows, verdict(session, now, was));
    for (int i = REGISTERS; i < NUM_COLUMNS; i++) {
        const char *before = was != NULL ? was[i] : "-", *after = now != NULL ? now[i] : "-";
        if (session->options->format != OUTPUT_TABLE) {
            output_text(rows, before);
            output_text(rows, after);
        } else if (strcmp(before, after) == 0) {
            output_text(rows, after);
        } else {
            output_text(rows, arena_printf(&session->arena, "%s -> %s", before, after));
        }
    }
}

static void print_both(struct session *session, const struct side *now, const struct side *was)
{
    const char *names[2 * NUM_COLUMNS] = {"name", "verdict"};
    struct output_table rows;
    size_t n = 2;
    for (int i = REGISTERS; i < NUM_COLUMNS; i++) {
        if (session->options->format != OUTPUT_TABLE)
            names[n++] = arena_printf(&session->arena, "%s_was", columns[i]);
        names[n++] = columns[i];
    }
    output_begin(&rows, &session->arena, names, n);
    for (size_t i = 0, j = 0; i < now->count || j < was->count;) {
        int order = i == now->count   ? 1
                    : j == was->count ? -1
                                      : strcmp(now->rows[i][NAME], was->rows[j][NAME]);
        add_cells(session, &rows, order <= 0 ? now->rows[i][NAME] : was->rows[j][NAME],
                  order <= 0 ? now->rows[i] : NULL, order >= 0 ? was->rows[j] : NULL);
        i += order <= 0;
        j += order >= 0;
    }
    output_print(&rows, session->options->format);
}

static void print_one(struct session *session, const struct side *side)
{
    struct output_table rows;
    output_begin(&rows, &session->arena, columns, NUM_COLUMNS);
    for (size_t i = 0; i < side->count; i++)
        for (int j = 0; j < NUM_COLUMNS; j++)
            output_text(&rows, side->rows[i][j]);
    output_print(&rows, session->options->format);
}

static const char *target_list(struct session *session)
{
    const char *list = "";
    for (size_t i = 0; i < session->num_targets; i++)
        list = arena_printf(&session->arena, "%s%s%s", list, i > 0 ? "," : "",
                            session->targets[i]->name);
    return list;
}

int command_try(struct session *session)
{
    const struct options *options = session->options;
    const char *against = options->against != NULL ? options->against : "HEAD";
    struct trial trial = {.session = session};
    struct side now, was;
    struct scratch_dir place;
    int status = 0;
    read_words(&trial);
    trial.against = strcmp(against, "none") == 0 ? NULL : against;
    measure(&trial, &now);
    trial.targets = target_list(session);
    if (!scratch_dir_open(&session->arena, space_cache(session), &place))
        fail(session, "%s: cannot make a folder in it: %s", space_cache(session), strerror(errno));
    trial.folder = place.folder;
    if (trial.against != NULL) {
        check_out(&trial);
        measure_other(&trial, &was);
        print_both(session, &now, &was);
        trial.both = was.count > 0;
    } else {
        print_one(session, &now);
    }
    /* The program that another `try` runs on a commit's templates says its rows alone. */
    if (!options->no_run && options->format == OUTPUT_TABLE)
        status = try_run(&trial);
    scratch_dir_close(&session->arena, &place);
    return status;
}
