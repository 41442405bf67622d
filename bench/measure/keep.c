/* Rows of an earlier run that stay in a result file. */
#include "measure/keep.h"

#include <stdlib.h>
#include <string.h>

/* The line's end, or where the next one begins. */
static char *after(char *line)
{
    char *end = strchr(line, '\n');
    return end ? end + 1 : line + strlen(line);
}

/* Is there a row of this row's case in `rows`? The first column is the case. */
static bool has_case(const struct text *rows, const char *row)
{
    const size_t length = strcspn(row, ",\n") + 1;
    for (const char *line = rows->data; line && *line;) {
        if (!strncmp(line, row, length))
            return true;
        line = strchr(line, '\n');
        line = line ? line + 1 : NULL;
    }
    return false;
}

/* What stands behind "# <key>: " in a head, up to the line's end; "-" where it does not. */
static struct text head_value(const char *head, const char *key)
{
    struct text value = {0};
    char *start = xasprintf("# %s: ", key);
    const char *found = strncmp(head, start, strlen(start)) ? NULL : head;
    for (const char *line = head; !found && (line = strchr(line, '\n')) != NULL;)
        found = strncmp(++line, start, strlen(start)) ? NULL : line;
    if (found)
        text_add(&value, "%.*s", (int)strcspn(found + strlen(start), "\n"), found + strlen(start));
    else
        text_add(&value, "-");
    free(start);
    return value;
}

/* How many of its rows the file says to be of older runs. */
static uint32_t older_rows(const char *data)
{
    uint32_t count = 0;
    for (const char *line = data; line && *line == '#';) {
        if (!strncmp(line, "# kept: ", 8))
            count += (uint32_t)strtoul(line + 8, NULL, 10);
        line = strchr(line, '\n');
        line = line ? line + 1 : NULL;
    }
    return count;
}

/* Notes of peers and of older runs; a note that is there already is not repeated. */
static void keep_notes(struct text *notes, char *data)
{
    for (char *line = data, *next; *line == '#'; line = next) {
        next = after(line);
        const int length = (int)(next - line);
        if (strncmp(line, "# peer: ", 8) != 0 && strncmp(line, "# kept: ", 8) != 0)
            continue;
        char *copy = xasprintf("%.*s", length, line);
        if (!notes->length || !strstr(notes->data, copy))
            text_add(notes, "%s", copy);
        free(copy);
    }
}

void bench_keep(const struct bench_options *o, const char *name, const char *columns,
                const struct text *measured, struct text *notes, struct text *rows)
{
    char *path = xasprintf("%s/%s/%s.csv", o->results, o->session.gpu.class_name, name);
    char *data = file_read(path, NULL);
    if (!data) {
        free(path);
        return;
    }
    struct text gpu = head_value(data, "gpu"), here = {0};
    text_add(&here, "%s (%s)", o->session.gpu.device.name, o->session.gpu.class_name);
    if (strcmp(gpu.data, here.data) != 0)
        die(1, "%s is of %s, this GPU is %s; --keep takes a file of the same one", path, gpu.data,
            here.data);
    char *line = data;
    while (*line == '#')
        line = after(line);
    if (strncmp(line, columns, strlen(columns)) != 0)
        die(1, "%s has other columns than this program's; --keep cannot take its rows", path);
    uint32_t kept = 0;
    for (char *next = line = after(line); *line; line = next) {
        next = after(line);
        if (measured->length && has_case(measured, line))
            continue;
        text_add(rows, "%.*s%s", (int)(next - line), line, next[-1] == '\n' ? "" : "\n");
        kept++;
    }
    struct text commit = head_value(data, "commit"), date = head_value(data, "date");
    /* Those of older runs have their notes; of the rest some are measured anew. */
    const uint32_t older = older_rows(data);
    if (kept > older)
        text_add(
            notes,
            "# kept: %u rows of cases that this run did not measure, as they were: commit %s, %s\n",
            kept - older, commit.data, date.data);
    keep_notes(notes, data);
    text_free(&commit);
    text_free(&date);
    text_free(&gpu);
    text_free(&here);
    free(data);
    free(path);
}
