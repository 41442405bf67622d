#include "product/winners.h"

#include "options.h"
#include "product/tuning.h"
#include "util/error.h"
#include "util/file.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct winners_table {
    size_t packed; /* which of the pack_tables */
    struct tuning_table text;
};

/* A row as the choice sees it: variants by their index in the session, its own first, the others as
 * they are behind it. */
enum { NONE = -1, MOST_OPTIONS = 8 };
struct option {
    ptrdiff_t variant;
    const char *us;
    double regret;
};
struct choice {
    struct tuning_row *row;
    struct option options[MOST_OPTIONS];
    size_t count; /* 0: the row's variant is not at hand */
};

/* ---- the tables ---------------------------------------------------------------------- */

static const char *name_of(struct session *session, const char *word)
{
    const char *slash = strrchr(word, '/'), *base = slash != NULL ? slash + 1 : word;
    const size_t size = strlen(base), suffix = strlen(".tsv");
    const bool is_file = size > suffix && strcmp(base + size - suffix, ".tsv") == 0;
    return arena_copy(&session->arena, base, is_file ? size - suffix : size);
}

static size_t find_packed(const struct pack_tables *tables, const char *name)
{
    size_t i = 0;
    while (i < tables->count && strcmp(tables->items[i].name, name) != 0)
        i++;
    return i;
}

/* A class is a table of --tables, or one that belongs to the program. */
static void add_table(struct session *session, struct pack_tables *tables, const char *word)
{
    struct arena *arena = &session->arena;
    const char *name = name_of(session, word), *path = word;
    if (find_packed(tables, name) < tables->count)
        return;
    if (strcmp(name, word) == 0) {
        path = arena_printf(arena, "%s/../share/attngen/tuning/%s.tsv", file_program_folder(arena),
                            word);
        if (!file_exists(path))
            fail(session,
                 "--winners: there is no table of class %s among --tables, and no file %s; "
                 "allowed: a class that was tuned, such as sm90_132sm, or a file",
                 word, path);
    }
    pack_read_tables(session, &path, 1, tables);
}

static void read_tables(struct session *session, struct pack_tables *tables,
                        struct winners *winners)
{
    const struct strings *words = &session->options->winners;
    for (size_t i = 0; i < words->count; i++)
        add_table(session, tables, words->items[i]);
    winners->table = arena_alloc(&session->arena, words->count * sizeof *winners->table);
    for (size_t i = 0; i < words->count; i++) {
        const size_t packed = find_packed(tables, name_of(session, words->items[i]));
        bool there = false;
        for (size_t k = 0; k < winners->num_tables; k++)
            there = there || winners->table[k].packed == packed;
        if (there)
            continue;
        struct winners_table *table = &winners->table[winners->num_tables++];
        table->packed = packed;
        tuning_read(session, tables->items[packed].path, &table->text);
        tuning_good_rows(session, &table->text);
        winners->rows += table->text.count;
    }
}

/* ---- the candidates ------------------------------------------------------------------ */

static int by_variant(const void *key, const void *item)
{
    return strcmp(key, (*(struct variant *const *)item)->name);
}

static ptrdiff_t find(const struct session *session, const char *name)
{
    struct variant **found = NULL;
    if (session->num_variants > 0)
        found = bsearch(name, session->variants, session->num_variants, sizeof *found, by_variant);
    return found != NULL ? found - session->variants : NONE;
}

static void keep(struct session *session, const bool *wanted)
{
    size_t kept = 0;
    for (size_t i = 0; i < session->num_variants; i++)
        if (wanted[i])
            session->variants[kept++] = session->variants[i];
    session->num_variants = kept;
}

static void add_option(const struct session *session, struct choice *c, const char *name,
                       const char *text, double us)
{
    const ptrdiff_t variant = find(session, name);
    if (variant == NONE || c->count == MOST_OPTIONS || !(us > 0) ||
        strcmp(session->variants[variant]->group, c->row->field[GEN__COLUMN_REQUIRED]) != 0)
        return;
    for (size_t i = 0; i < c->count; i++)
        if (c->options[i].variant == variant)
            return;
    c->options[c->count++] = (struct option){variant, text, fmax(1, us / c->row->us)};
}

/* All that the row has times of. */
static struct choice options_of(struct session *session, struct tuning_row *row)
{
    struct choice c = {.row = row};
    struct arena *arena = &session->arena;
    const char *at = row->field[GEN__COLUMN_OTHERS];
    add_option(session, &c, row->field[GEN__COLUMN_VARIANT], row->field[GEN__COLUMN_US], row->us);
    if (c.count == 0)
        return c;
    add_option(session, &c, row->field[GEN__COLUMN_RUNNER_UP], row->field[GEN__COLUMN_RUNNER_UP_US],
               row->runner_up_us);
    while (*at != '\0') {
        const size_t size = strcspn(at, ","), name = strcspn(at, "=,");
        double us = 0;
        if (name + 1 < size) {
            const struct gen__span number = {at + name + 1, size - name - 1};
            if (gen__parse_number(number, &us))
                add_option(session, &c, arena_copy(arena, at, name),
                           arena_copy(arena, number.at, number.length), us);
        }
        at += size + (at[size] == ',');
    }
    return c;
}

void winners_open(struct session *session, struct pack_tables *tables, struct winners *winners)
{
    *winners = (struct winners){.all = session->num_variants};
    read_tables(session, tables, winners);
    bool *wanted = arena_alloc(&session->arena, session->num_variants + 1);
    for (size_t i = 0; i < session->num_variants; i++)
        wanted[i] = session->variants[i]->fallback;
    for (size_t t = 0; t < winners->num_tables; t++)
        for (size_t i = 0; i < winners->table[t].text.count; i++) {
            struct tuning_row *row = &winners->table[t].text.rows[i];
            const struct choice c = options_of(session, row);
            for (size_t k = 0; k < c.count; k++)
                wanted[c.options[k].variant] = true;
            winners->elsewhere += c.count == 0;
        }
    keep(session, wanted);
}

/* ---- the choices --------------------------------------------------------------------- */

/* Marks the variants that a row of their present source was won by: the time that such a one has
 * as a runner-up is of the kernel that is there now, too. */
static bool *measured_ones(struct session *session, const struct winners *winners)
{
    bool *measured = arena_alloc(&session->arena, session->num_variants + 1);
    for (size_t t = 0; t < winners->num_tables; t++)
        for (size_t i = 0; i < winners->table[t].text.count; i++) {
            const struct tuning_row *row = &winners->table[t].text.rows[i];
            const ptrdiff_t own = find(session, row->field[GEN__COLUMN_VARIANT]);
            if (own != NONE && session->variants[own]->source_digest == row->source)
                measured[own] = true;
        }
    return measured;
}

/* Of the options those that may stand in. */
static struct choice choice_of(struct session *session, const bool *measured,
                               struct tuning_row *row, struct winners *winners)
{
    struct choice c = options_of(session, row);
    size_t kept = 1;
    if (c.count == 0)
        return c;
    const bool stale = session->variants[c.options[0].variant]->source_digest != row->source;
    for (size_t i = 1; i < c.count && !stale; i++)
        if (measured[c.options[i].variant] &&
            c.options[i].regret <= 1 + session->options->max_regret + 1e-9)
            c.options[kept++] = c.options[i];
    c.count = kept;
    winners->single += kept == 1;
    winners->stale += stale;
    return c;
}

/* The kept option of the least regret, the row's own first of equal ones; NULL: none is kept. */
static const struct option *kept_option(const struct choice *c, const bool *kept)
{
    const struct option *best = NULL;
    for (size_t i = 0; i < c->count; i++)
        if (kept[c->options[i].variant] && (best == NULL || c->options[i].regret < best->regret))
            best = &c->options[i];
    return best;
}

static bool is_served(const struct choice *c, const bool *kept)
{
    return c->count == 0 || kept_option(c, kept) != NULL;
}

/* The variant that serves most of the rows that none serves yet; the first by name of equal ones.
 * NONE: all are served. */
static ptrdiff_t best_of(const struct session *session, const struct choice *choices, size_t count,
                         const bool *kept, size_t *serves)
{
    ptrdiff_t best = NONE;
    memset(serves, 0, session->num_variants * sizeof *serves);
    for (size_t i = 0; i < count; i++) {
        if (is_served(&choices[i], kept))
            continue;
        for (size_t k = 0; k < choices[i].count; k++)
            serves[choices[i].options[k].variant]++;
    }
    for (size_t v = 0; v < session->num_variants; v++)
        if (serves[v] > 0 && (best == NONE || serves[v] > serves[best]))
            best = (ptrdiff_t)v;
    return best;
}

/* Greedy set cover, then those go again that later choices have made needless. */
static void cover(struct session *session, const struct choice *choices, size_t count, bool *kept)
{
    size_t *serves = arena_alloc(&session->arena, (session->num_variants + 1) * sizeof *serves);
    for (ptrdiff_t v; (v = best_of(session, choices, count, kept, serves)) != NONE;)
        kept[v] = true;
    for (size_t v = 0; v < session->num_variants; v++) {
        if (!kept[v] || session->variants[v]->fallback)
            continue;
        kept[v] = false;
        for (size_t i = 0; i < count && !kept[v]; i++)
            kept[v] = !is_served(&choices[i], kept);
    }
}

/* The row becomes that variant's. */
static void move_row(struct session *session, const struct choice *c, const struct option *to)
{
    const struct variant *v = session->variants[to->variant];
    const char **field = c->row->field;
    field[GEN__COLUMN_VARIANT] = v->name;
    field[GEN__COLUMN_US] = to->us;
    field[GEN__COLUMN_RUNNER_UP] = field[GEN__COLUMN_RUNNER_UP_US] = "-";
    field[GEN__COLUMN_SPREAD] = field[GEN__COLUMN_CODE] = field[GEN__COLUMN_OTHERS] = "-";
    field[GEN__COLUMN_DIGEST] = arena_printf(&session->arena, "%016" PRIx64, v->source_digest);
}

static void assign(struct session *session, const struct choice *choices, size_t count,
                   const bool *kept, struct winners *winners)
{
    double logs = 0;
    size_t here = 0;
    winners->worst = 1;
    for (size_t i = 0; i < count; i++) {
        const struct choice *c = &choices[i];
        const struct option *to = kept_option(c, kept);
        here += to != NULL;
        if (to == NULL || to == &c->options[0])
            continue;
        move_row(session, c, to);
        winners->moved++;
        winners->worst = fmax(winners->worst, to->regret);
        logs += log(to->regret);
    }
    winners->geomean = here > 0 ? exp(logs / (double)here) : 1;
}

void winners_choose(struct session *session, struct pack_tables *tables, struct winners *winners)
{
    struct choice *choices = arena_alloc(&session->arena, (winners->rows + 1) * sizeof *choices);
    bool *kept = arena_alloc(&session->arena, session->num_variants + 1);
    const bool *measured = measured_ones(session, winners);
    size_t count = 0;
    for (size_t v = 0; v < session->num_variants; v++)
        winners->num_fallbacks += kept[v] = session->variants[v]->fallback;
    for (size_t t = 0; t < winners->num_tables; t++)
        for (size_t i = 0; i < winners->table[t].text.count; i++)
            choices[count++] =
                choice_of(session, measured, &winners->table[t].text.rows[i], winners);
    cover(session, choices, count, kept);
    assign(session, choices, count, kept, winners);
    keep(session, kept);
    winners->kept = session->num_variants;
    for (size_t t = 0; t < winners->num_tables; t++) {
        struct text text = {0};
        struct pack_table *packed = &tables->items[winners->table[t].packed];
        tuning_write(&winners->table[t].text, &text);
        packed->text = arena_copy(&session->arena, text.data, text.size);
        packed->size = text.size;
        text_free(&text);
    }
}

void winners_print(const struct session *session, const struct winners *w)
{
    if (w->elsewhere == w->rows) {
        fprintf(stderr,
                "attngen: --winners: none of %zu rows names a variant of these families and "
                "targets: the %zu fallbacks alone are kept, of %zu variants\n",
                w->rows, w->kept, w->all);
        return;
    }
    fprintf(
        stderr,
        "attngen: --winners: %zu of %zu variants (%.1f times fewer): %zu fallbacks and %zu that "
        "rows need; regret over %zu rows: geometric mean %.5f, worst %.4f\n",
        w->kept, w->all, (double)w->all / (double)w->kept, w->num_fallbacks,
        w->kept - w->num_fallbacks, w->rows - w->elsewhere, w->geomean, w->worst);
    fprintf(
        stderr,
        "attngen: --winners: %zu rows go to another variant that they have a time of; %zu have no "
        "choice within --max-regret %g, because they have too few times%s",
        w->moved, w->single, session->options->max_regret, w->stale > 0 ? "" : "\n");
    if (w->stale > 0)
        fprintf(stderr, " or, %zu of them, is of another source\n", w->stale);
    if (w->elsewhere > 0)
        fprintf(stderr,
                "attngen: --winners: %zu rows name no variant of these families and targets\n",
                w->elsewhere);
}
