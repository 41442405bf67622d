/* `attngen table check`: what is wrong with the rows of tuning tables. */
#include "cmd/table.h"
#include "options.h"
#include "spec/arch.h"
#include "util/error.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct checker {
    struct session *session;
    const struct catalog *known;
    uint32_t compute_capability;
    struct output_table rows;
    size_t errors, warnings;
};

static void found(struct checker *c, bool error, const struct tuning_row *row, const char *what)
{
    output_text(&c->rows, error ? "error" : "warning");
    output_text(&c->rows, arena_printf(&c->session->arena, "%s:%" PRIu32, row->path, row->line));
    output_text(&c->rows, what);
    c->errors += error;
    c->warnings += !error;
}

/* ---- the problem --------------------------------------------------------------------- */

static const char *coords_of(const struct session *session, const char *family)
{
    for (size_t i = 0; i < session->num_families; i++)
        if (strcmp(session->families[i].name, family) == 0)
            return session->families[i].coords;
    return NULL;
}

static int position_in(const char *names, const char *name, size_t size)
{
    for (int i = 0; *names != '\0'; i++) {
        const size_t length = strcspn(names, ",");
        if (length == size && memcmp(names, name, size) == 0)
            return i;
        names += length + (names[length] == ',');
    }
    return -1;
}

/* Takes the coordinate that `*at` begins with; what is wrong with it, or NULL. */
static const char *read_coordinate(struct checker *c, const char *names, const char **at,
                                   double values[GEN_PACK_MAX_COORDS])
{
    struct arena *arena = &c->session->arena;
    const char *text = *at, *equals = strchr(text, '=');
    const size_t size = strcspn(text, ", ");
    *at = text + size + (text[size] != '\0');
    if (equals == NULL || equals >= text + size)
        return arena_printf(arena, "the problem has '%.*s'; allowed: coordinate=value", (int)size,
                            text);
    const int i = position_in(names, text, (size_t)(equals - text));
    if (i < 0 || i >= GEN_PACK_MAX_COORDS)
        return arena_printf(arena, "coordinate %.*s; allowed: %s", (int)(equals - text), text,
                            names);
    if (values[i] > 0)
        return arena_printf(arena, "coordinate %.*s stands twice", (int)(equals - text), text);
    const struct gen__span number = {equals + 1, size - (size_t)(equals + 1 - text)};
    if (!gen__parse_number(number, &values[i]) || values[i] < 1 || values[i] > 1e12)
        return arena_printf(arena, "%.*s; allowed: a number from 1 to 1e12", (int)size, text);
    return NULL;
}

static void check_problem(struct checker *c, const struct tuning_row *row)
{
    const char *family = row->field[GEN__COLUMN_FAMILY];
    const char *names = coords_of(c->session, family), *what = NULL;
    double values[GEN_PACK_MAX_COORDS] = {0};
    int count = 0;
    if (names == NULL) {
        found(c, true, row, arena_printf(&c->session->arena, "there is no family %s", family));
        return;
    }
    for (const char *at = row->field[GEN__COLUMN_PROBLEM]; *at != '\0' && what == NULL; count++)
        what = read_coordinate(c, names, &at, values);
    for (const char *at = names; what == NULL && *at != '\0'; at += *at == ',', count--)
        at += strcspn(at, ",");
    if (what == NULL && count != 0)
        what = arena_printf(&c->session->arena, "problem %s; allowed: each of %s once",
                            row->field[GEN__COLUMN_PROBLEM], names);
    if (what != NULL)
        found(c, true, row, what);
}

/* ---- the variant --------------------------------------------------------------------- */

static void check_digests(struct checker *c, const struct tuning_row *row)
{
    const char *name = row->field[GEN__COLUMN_VARIANT];
    const enum table_state state = table_state(c->known, row);
    if (state == TABLE_EXPIRED)
        found(c, true, row,
              arena_printf(&c->session->arena, "expired: neither digest is that of %s", name));
    if (state == TABLE_OTHER)
        found(c, false, row,
              arena_printf(&c->session->arena,
                           "the source of %s has changed since; --catalog FILE tells whether its "
                           "machine code has",
                           name));
}

static void check_target(struct checker *c, const struct tuning_row *row,
                         const struct catalog_row *variant)
{
    const struct arch *arch = arch_find(variant->planned[PLANNED_TARGET]);
    const struct arch *own = arch_for_gpu((int)c->compute_capability);
    if (arch == NULL)
        return;
    const struct gen_pack_target target = {.kind = (uint32_t)arch->kind,
                                           .compute_capability = (uint32_t)arch->cc};
    if (!gen_pack_runs(&target, c->compute_capability))
        found(c, true, row,
              arena_printf(&c->session->arena, "%s is of %s, which sm_%" PRIu32 " does not run",
                           variant->name, arch->name, c->compute_capability));
    else if (arch->kind == GEN_PACK_PTX && own != NULL && own->kind != GEN_PACK_PTX)
        found(c, false, row,
              arena_printf(&c->session->arena,
                           "%s is PTX: the row is passed over where a product has machine code",
                           variant->name));
}

static void check_variant(struct checker *c, const struct tuning_row *row)
{
    struct arena *arena = &c->session->arena;
    const char *name = row->field[GEN__COLUMN_VARIANT];
    const struct catalog_row *variant = table_variant(c->known, name);
    if (variant == NULL) {
        found(c, true, row,
              arena_printf(arena, "there is no variant %s in %s", name, c->known->path));
        return;
    }
    if (variant->reason != NULL) {
        found(c, true, row, arena_printf(arena, "%s is refused: %s", name, variant->reason));
        return;
    }
    const char *family = variant->planned[PLANNED_FAMILY];
    const char *required = variant->planned[PLANNED_REQUIRED];
    if (strcmp(family, row->field[GEN__COLUMN_FAMILY]) != 0 ||
        strcmp(required, row->field[GEN__COLUMN_REQUIRED]) != 0)
        found(c, true, row,
              arena_printf(arena, "family %s, required key %s; %s is of %s, %s",
                           row->field[GEN__COLUMN_FAMILY], row->field[GEN__COLUMN_REQUIRED], name,
                           family, required));
    check_target(c, row, variant);
    check_digests(c, row);
}

/* The tuner lets a variant win that is at most half a percent behind the fastest. */
static void check_runner_up(struct checker *c, const struct tuning_row *row)
{
    const double band = 0.995 - 1e-9, busy = 0.05;
    struct arena *arena = &c->session->arena;
    const char *name = row->field[GEN__COLUMN_RUNNER_UP];
    if (row->spread > busy)
        found(c, false, row,
              arena_printf(arena, "spread %s is above %.2f: the machine was busy",
                           row->field[GEN__COLUMN_SPREAD], busy));
    if (strcmp(name, "-") == 0 || name[0] == '\0')
        return;
    /* A catalog lacks what is outside of the default space, where runners-up may be. */
    if (c->session->options->catalog == NULL && table_variant(c->known, name) == NULL)
        found(c, false, row, arena_printf(arena, "there is no runner-up %s", name));
    if (row->runner_up_us > 0 && row->runner_up_us < band * row->us)
        found(c, false, row,
              arena_printf(arena, "the runner-up took %s us, the winner %s",
                           row->field[GEN__COLUMN_RUNNER_UP_US], row->field[GEN__COLUMN_US]));
}

/* ---- the file ------------------------------------------------------------------------ */

static int rows_in_order(const void *a, const void *b)
{
    const struct tuning_row *x = a, *y = b;
    const int order = tuning_order(x, y);
    return order != 0 ? order : (x->line > y->line) - (x->line < y->line);
}

/* Sorts the rows. */
static void check_order(struct checker *c, struct tuning_table *table)
{
    const char *where = "the rows from here on are not sorted; `attngen table merge FILE FILE` "
                        "sorts them";
    for (size_t i = 1; i < table->count; i++)
        if (tuning_order(&table->rows[i - 1], &table->rows[i]) > 0) {
            found(c, true, &table->rows[i], where);
            break;
        }
    if (table->count > 0)
        qsort(table->rows, table->count, sizeof *table->rows, rows_in_order);
    for (size_t i = 1; i < table->count; i++)
        if (tuning_order(&table->rows[i - 1], &table->rows[i]) == 0)
            found(c, true, &table->rows[i],
                  arena_printf(&c->session->arena, "the same bucket as line %" PRIu32,
                               table->rows[i - 1].line));
}

static void check_table(struct checker *c, struct tuning_table *table)
{
    c->compute_capability = tuning_number(c->session, table, "compute_capability");
    for (size_t i = 0; i < table->count; i++) {
        const struct tuning_row *row = &table->rows[i];
        if (row->bad != NULL) {
            found(c, true, row, row->bad);
            continue;
        }
        check_variant(c, row);
        check_problem(c, row);
        check_runner_up(c, row);
    }
    check_order(c, table);
}

int table_check(struct session *session)
{
    static const char *const columns[] = {"kind", "where", "what"};
    const struct strings *words = &session->options->words;
    const size_t count = words->count - 1;
    struct tuning_table *tables = arena_alloc(&session->arena, (count + 1) * sizeof *tables);
    struct catalog known = {0};
    struct checker c = {.session = session, .known = &known};
    size_t num_rows = 0;
    if (count == 0)
        fail(session, "table check: no file; allowed: one or more");
    for (size_t i = 0; i < count; i++) {
        tuning_read(session, words->items[1 + i], &tables[i]);
        num_rows += tables[i].count;
    }
    table_know(session, tables, count, &known);
    output_begin(&c.rows, &session->arena, columns, sizeof columns / sizeof columns[0]);
    for (size_t i = 0; i < count; i++)
        check_table(&c, &tables[i]);
    output_print(&c.rows, session->options->format);
    fprintf(stderr, "attngen: table check: %zu rows of %zu tables, %zu errors, %zu warnings\n",
            num_rows, count, c.errors, c.warnings);
    return c.errors > 0 ? 1 : 0;
}
