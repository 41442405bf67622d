#include "product/rekey.h"

#include "format/table.h"
#include "util/error.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct table {
    struct session *session;
    const struct catalog *catalog;
    const char *path;
    uint32_t num_columns;
    int variant, digest, code, toolkit; /* columns; -1: none */
    struct rekey_counts *counts;
};

static int by_name(const void *key, const void *item)
{
    return strcmp(key, ((const struct catalog_row *)item)->name);
}

static const struct catalog_row *find(const struct table *t, struct gen__span name)
{
    char text[512];
    if (name.length >= sizeof text || t->catalog->count == 0)
        return NULL;
    memcpy(text, name.at, name.length);
    text[name.length] = '\0';
    return bsearch(text, t->catalog->rows, t->catalog->count, sizeof *t->catalog->rows, by_name);
}

static const char *digits(struct session *session, uint64_t digest)
{
    return arena_printf(&session->arena, "%016" PRIx64, digest);
}

/* The digests of a row as they should stand. A time belongs to the code that was measured: that is
 * known where the catalog's toolkit is the row's and the source the same, because one toolkit makes
 * one code of one source. A row whose code the catalog has is of whatever source makes it today. */
static void judge(const struct table *t, const struct gen__span *fields, const char **digest,
                  const char **code)
{
    const struct catalog_row *row = find(t, fields[t->variant]);
    struct gen__span old_code = t->code >= 0 ? fields[t->code] : (struct gen__span){"", 0};
    uint64_t had_source = 0, had_code = 0;
    if (row == NULL) {
        t->counts->unknown++;
        return;
    }
    bool knows_source = gen__parse_digest(fields[t->digest], &had_source);
    bool same_source = knows_source && had_source == row->source_digest;
    bool knows_code = gen__parse_digest(old_code, &had_code);
    bool same_code = knows_code && had_code == row->code_digest && row->code_digest != 0;
    bool same_toolkit = t->catalog->toolkit != NULL && t->toolkit >= 0 &&
                        gen__span_is(fields[t->toolkit], t->catalog->toolkit);
    if (same_source && same_code) {
        t->counts->current++;
    } else if (same_code) {
        *digest = digits(t->session, row->source_digest);
        t->counts->given_source++;
    } else if (same_source && !knows_code && same_toolkit && row->code_digest != 0) {
        *code = digits(t->session, row->code_digest);
        t->counts->given_code++;
    } else if (same_source) {
        t->counts->other_toolkit++;
    } else {
        t->counts->expired++;
    }
}

static void read_columns(struct table *t, struct gen__span line)
{
    struct gen__span names[GEN__TABLE_MAX_COLUMNS];
    t->num_columns = gen__table_fields(line, names);
    if (t->num_columns > GEN__TABLE_MAX_COLUMNS)
        fail(t->session, "%s: more than %d columns", t->path, GEN__TABLE_MAX_COLUMNS);
    t->variant = gen__table_column(names, t->num_columns, GEN__COLUMN_VARIANT);
    t->digest = gen__table_column(names, t->num_columns, GEN__COLUMN_DIGEST);
    t->code = gen__table_column(names, t->num_columns, GEN__COLUMN_CODE);
    t->toolkit = gen__table_column(names, t->num_columns, GEN__COLUMN_TOOLKIT);
    if (t->variant < 0 || t->digest < 0)
        fail(t->session, "%s: no column \"%s\"; allowed: a tuning table", t->path,
             gen__table_columns[t->variant < 0 ? GEN__COLUMN_VARIANT : GEN__COLUMN_DIGEST]);
}

/* A table without the column of codes gets one behind the other digests. */
static void write_row(const struct table *t, const struct gen__span *fields, const char *digest,
                      const char *code, struct text *out)
{
    for (int i = 0; i < (int)t->num_columns; i++) {
        const char *instead = i == t->digest ? digest : i == t->code ? code : NULL;
        text_string(out, i > 0 ? "\t" : "");
        if (instead != NULL)
            text_string(out, instead);
        else
            text_add(out, fields[i].at, fields[i].length);
        if (i == t->digest && t->code < 0)
            text_printf(out, "\t%s", code != NULL ? code : "-");
    }
    text_string(out, "\n");
}

static void take_row(struct table *t, struct gen__span line, struct text *out)
{
    struct gen__span fields[GEN__TABLE_MAX_COLUMNS];
    uint32_t count = gen__table_fields(line, fields);
    const char *digest = NULL, *code = NULL;
    if (t->num_columns == 0) {
        read_columns(t, line);
        write_row(t, fields, NULL, gen__table_columns[GEN__COLUMN_CODE], out);
        return;
    }
    if (count != t->num_columns)
        fail(t->session, "%s: a row has %u fields; allowed: %u, as many as there are columns",
             t->path, count, t->num_columns);
    judge(t, fields, &digest, &code);
    write_row(t, fields, digest, code, out);
}

void rekey_table(struct session *session, const struct catalog *catalog, const char *path,
                 const char *text, size_t size, struct text *out, struct rekey_counts *counts)
{
    struct table table = {.session = session, .catalog = catalog, .path = path, .counts = counts};
    struct gen__table_text lines = {text, text + size, 0};
    struct gen__span line;
    *counts = (struct rekey_counts){0};
    if (!gen__table_line(&lines, &line) || !gen__span_is(line, GEN__TABLE_MAGIC))
        fail(session, "%s: the first line is not \"%s\"; allowed: a tuning table", path,
             GEN__TABLE_MAGIC);
    text_string(out, GEN__TABLE_MAGIC "\n");
    while (gen__table_line(&lines, &line)) {
        if (line.length > 0 && line.at[0] != '#') {
            take_row(&table, line, out);
            continue;
        }
        text_add(out, line.at, line.length);
        text_string(out, "\n");
    }
    if (table.num_columns == 0)
        fail(session, "%s: no line of column names: it is cut short", path);
}
