#include "cmd/commands.h"
#include "options.h"
#include "product/pack.h"
#include "product/rekey.h"
#include "util/error.h"
#include "util/file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void rekey_file(struct session *session, const struct catalog *catalog,
                       const struct pack_table *table, struct output_table *rows)
{
    struct text text = {0};
    struct rekey_counts n;
    rekey_table(session, catalog, table->path, table->text, table->size, &text, &n);
    bool ok = file_write_changed(&session->arena, table->path, text.data, text.size);
    int error = errno;
    text_free(&text);
    if (!ok)
        fail(session, "%s: cannot write it: %s", table->path, strerror(error));
    output_text(rows, table->path);
    output_integer(rows, (int64_t)n.current);
    output_integer(rows, (int64_t)n.given_code);
    output_integer(rows, (int64_t)n.given_source);
    output_integer(rows, (int64_t)n.other_toolkit);
    output_integer(rows, (int64_t)n.expired);
    output_integer(rows, (int64_t)n.unknown);
}

int command_rekey(struct session *session)
{
    static const char *const columns[] = {"table",         "current", "given_code", "given_source",
                                          "other_toolkit", "expired", "unknown"};
    const struct options *options = session->options;
    struct pack_tables tables = {0};
    struct catalog catalog;
    struct output_table rows;
    if (options->words.count > 0)
        fail(session, "rekey: unexpected word '%s'; allowed: options", options->words.items[0]);
    if (options->catalog == NULL || options->tables.count == 0)
        fail(session, "rekey: %s is not given; --catalog FILE and --tables PATH are needed",
             options->catalog == NULL ? "--catalog" : "--tables");
    catalog_read(session, options->catalog, &catalog);
    pack_read_tables(session, options->tables.items, options->tables.count, &tables);
    output_begin(&rows, &session->arena, columns, sizeof columns / sizeof columns[0]);
    for (size_t i = 0; i < tables.count; i++)
        rekey_file(session, &catalog, &tables.items[i], &rows);
    output_print(&rows, options->format);
    return 0;
}
