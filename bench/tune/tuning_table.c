#define _GNU_SOURCE
#include "tune/tuning_table.h"

#include "format/table.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The columns in the order in which they are written. */
static const enum gen__column columns[] = {
    GEN__COLUMN_FAMILY, GEN__COLUMN_REQUIRED, GEN__COLUMN_PROBLEM,   GEN__COLUMN_VARIANT,
    GEN__COLUMN_US,     GEN__COLUMN_SPREAD,   GEN__COLUMN_RUNNER_UP, GEN__COLUMN_RUNNER_UP_US,
    GEN__COLUMN_DIGEST, GEN__COLUMN_CODE,     GEN__COLUMN_TOOLKIT,   GEN__COLUMN_DRIVER,
    GEN__COLUMN_OTHERS};
#define NUM_COLUMNS (sizeof columns / sizeof *columns)

/* Where a file has each column; -1: nowhere. */
struct layout {
    uint32_t count; /* 0: not read yet */
    int at[GEN__NUM_COLUMNS];
};

void table_identify(struct table *table, const struct gpu *gpu, const gen_library *library,
                    const char *commit)
{
    struct gpu_identity *id = &table->identity;
    gen_library_info info = {.size = sizeof info};
    (void)gen_library_info_get(library, &info);
    snprintf(id->class_name, sizeof id->class_name, "%s", gpu->class_name);
    snprintf(id->gpu, sizeof id->gpu, "%s", gpu->device.name);
    snprintf(id->driver, sizeof id->driver, "%s",
             strcmp(gpu->driver_version, "-") ? gpu->driver_version : gpu->cuda_version);
    snprintf(id->toolkit, sizeof id->toolkit, "%s", info.toolkit ? info.toolkit : "-");
    snprintf(id->commit, sizeof id->commit, "%s", commit && *commit ? commit : "-");
    id->compute_capability = gpu->device.compute_capability;
    id->num_sms = gpu->device.num_sms;
    id->memory_gbps = gpu->device.memory_gbps;
    id->l2_bytes = gpu->device.l2_bytes;
}

/* ---- rows -------------------------------------------------------------- */

/* The table's own copies are malloced. */
static void row_free(struct table_row *row)
{
    free((void *)(uintptr_t)row->family);
    free((void *)(uintptr_t)row->required);
    free((void *)(uintptr_t)row->problem);
    free((void *)(uintptr_t)row->variant);
    free((void *)(uintptr_t)row->runner_up);
    free((void *)(uintptr_t)row->toolkit);
    free((void *)(uintptr_t)row->driver);
    free((void *)(uintptr_t)row->others);
}

static struct table_row row_copy(const struct table_row *row)
{
    struct table_row copy = *row;
    copy.family = xstrdup(row->family);
    copy.required = xstrdup(row->required);
    copy.problem = xstrdup(row->problem);
    copy.variant = xstrdup(row->variant);
    copy.runner_up = xstrdup(row->runner_up);
    copy.toolkit = xstrdup(row->toolkit);
    copy.driver = xstrdup(row->driver);
    copy.others = xstrdup(row->others ? row->others : "-");
    return copy;
}

void table_free(struct table *table)
{
    for (size_t i = 0; i < table->num_rows; i++)
        row_free(&table->row[i]);
    for (size_t i = 0; i < table->num_failures; i++) {
        free(table->failure[i].variant);
        free(table->failure[i].reason);
    }
    free(table->row);
    free(table->failure);
    memset(table, 0, sizeof *table);
}

struct table_row *table_find(struct table *table, const char *family, const char *required,
                             const char *problem)
{
    for (size_t i = 0; i < table->num_rows; i++) {
        struct table_row *row = &table->row[i];
        if (strcmp(row->problem, problem) == 0 && strcmp(row->required, required) == 0 &&
            strcmp(row->family, family) == 0)
            return row;
    }
    return NULL;
}

void table_put(struct table *table, const struct table_row *row)
{
    struct table_row *old = table_find(table, row->family, row->required, row->problem);
    struct table_row copy = row_copy(row);
    if (old) {
        row_free(old);
        *old = copy;
        return;
    }
    if (table->num_rows == table->row_capacity) {
        table->row_capacity = table->row_capacity ? 2 * table->row_capacity : 64;
        table->row = xrealloc(table->row, table->row_capacity * sizeof *table->row);
    }
    table->row[table->num_rows++] = copy;
}

static void drop_rows_of(struct table *table, const char *variant)
{
    size_t kept = 0;
    for (size_t i = 0; i < table->num_rows; i++) {
        if (strcmp(table->row[i].variant, variant) == 0)
            row_free(&table->row[i]);
        else
            table->row[kept++] = table->row[i];
    }
    table->num_rows = kept;
}

void table_fail(struct table *table, const char *variant, const char *reason)
{
    drop_rows_of(table, variant);
    for (size_t i = 0; i < table->num_failures; i++)
        if (strcmp(table->failure[i].variant, variant) == 0)
            return;
    if (table->num_failures == table->failure_capacity) {
        table->failure_capacity = table->failure_capacity ? 2 * table->failure_capacity : 16;
        table->failure = xrealloc(table->failure, table->failure_capacity * sizeof *table->failure);
    }
    struct table_failure *f = &table->failure[table->num_failures++];
    f->variant = xstrdup(variant);
    f->reason = xstrdup(reason);
    for (char *p = f->reason; *p; p++)
        if (*p == '\n' || *p == '\t')
            *p = ' ';
}

void table_pass(struct table *table, const char *variant)
{
    for (size_t i = 0; i < table->num_failures; i++) {
        struct table_failure *f = &table->failure[i];
        if (strcmp(f->variant, variant) != 0)
            continue;
        free(f->variant);
        free(f->reason);
        *f = table->failure[--table->num_failures];
        return;
    }
}

/* ---- the file ---------------------------------------------------------- */

/* Ends a piece of the text that was read, which is ours to write. */
static char *terminated(struct gen__span span)
{
    char *at = (char *)(uintptr_t)span.at;
    at[span.length] = '\0';
    return at;
}

/* Every column but those of codes and others must be there: tables of before have none. */
static bool read_columns(struct layout *layout, struct gen__span line)
{
    struct gen__span field[GEN__TABLE_MAX_COLUMNS];
    uint32_t count = gen__table_fields(line, field);
    if (count > GEN__TABLE_MAX_COLUMNS)
        return false;
    for (enum gen__column c = 0; c < GEN__NUM_COLUMNS; c++) {
        layout->at[c] = gen__table_column(field, count, c);
        if (layout->at[c] < 0 && c != GEN__COLUMN_CODE && c != GEN__COLUMN_OTHERS)
            return false;
    }
    layout->count = count;
    return true;
}

static bool read_row(struct table *table, const struct layout *layout, struct gen__span line)
{
    struct gen__span found[GEN__TABLE_MAX_COLUMNS], field[GEN__NUM_COLUMNS];
    struct table_row row = {.code = "-"};
    uint64_t digest;
    if (gen__table_fields(line, found) != layout->count)
        return false;
    for (int c = 0; c < GEN__NUM_COLUMNS; c++)
        field[c] = layout->at[c] >= 0 ? found[layout->at[c]] : (struct gen__span){"", 0};
    const bool has_code = !gen__span_absent(field[GEN__COLUMN_CODE]);
    if (!gen__parse_number(field[GEN__COLUMN_US], &row.us) ||
        !gen__parse_number(field[GEN__COLUMN_SPREAD], &row.spread) ||
        !gen__parse_number(field[GEN__COLUMN_RUNNER_UP_US], &row.runner_up_us) ||
        !gen__parse_digest(field[GEN__COLUMN_DIGEST], &digest) ||
        (has_code && !gen__parse_digest(field[GEN__COLUMN_CODE], &digest)))
        return false;
    row.family = terminated(field[GEN__COLUMN_FAMILY]);
    row.required = terminated(field[GEN__COLUMN_REQUIRED]);
    row.problem = terminated(field[GEN__COLUMN_PROBLEM]);
    row.variant = terminated(field[GEN__COLUMN_VARIANT]);
    row.runner_up = terminated(field[GEN__COLUMN_RUNNER_UP]);
    memcpy(row.digest, terminated(field[GEN__COLUMN_DIGEST]), sizeof row.digest);
    if (has_code)
        memcpy(row.code, terminated(field[GEN__COLUMN_CODE]), sizeof row.code);
    row.toolkit = terminated(field[GEN__COLUMN_TOOLKIT]);
    row.driver = terminated(field[GEN__COLUMN_DRIVER]);
    if (!gen__span_absent(field[GEN__COLUMN_OTHERS]))
        row.others = terminated(field[GEN__COLUMN_OTHERS]);
    table_put(table, &row);
    return true;
}

/* Comments that say something to a run that goes on; false if one is malformed. */
static bool read_comment(struct table *table, struct gen__span line)
{
    struct gen__span key, value;
    if (!gen__table_comment(line, &key, &value))
        return true;
    if (gen__span_is(key, "class"))
        snprintf(table->identity.class_name, sizeof table->identity.class_name, "%.*s",
                 (int)value.length, value.at);
    if (gen__span_is(key, "seconds_per_bucket")) {
        const char *text = terminated(value);
        const double seconds = strtod(text, NULL);
        if (isfinite(seconds) && seconds > 0)
            table->identity.seconds_per_bucket = seconds;
    }
    if (!gen__span_is(key, "failed"))
        return true;
    char *failed = terminated(value), *reason = strstr(failed, ": ");
    if (!reason || reason == failed)
        return false;
    *reason = '\0';
    table_fail(table, failed, reason + 2);
    return true;
}

int table_read(struct table *table, const char *path)
{
    size_t size;
    char *data = file_read(path, &size);
    int bad = 0;
    struct layout layout = {0};
    if (!data)
        return errno == ENOENT ? 0 : -1;
    table->found = *data != '\0';
    struct gen__table_text text = {data, data + size, 0};
    for (struct gen__span line; gen__table_line(&text, &line);) {
        if (!line.length)
            continue;
        if (line.at[0] == '#')
            bad += !read_comment(table, line);
        else if (!layout.count && read_columns(&layout, line))
            continue;
        else if (!layout.count || !read_row(table, &layout, line))
            bad++;
    }
    free(data);
    return bad;
}

const char *table_refusal(const struct table *table, const char *class_name, char *text,
                          size_t capacity)
{
    const char *found = table->identity.class_name;
    if (strcmp(found, class_name) == 0)
        return NULL;
    if (*found)
        snprintf(text, capacity, "is a table of class %s, this GPU's is %s", found, class_name);
    else
        snprintf(text, capacity, "has no line \"# class: %s\": no tuning table", class_name);
    return text;
}

static int compare_rows(const void *a, const void *b)
{
    const struct table_row *x = a, *y = b;
    int order = strcmp(x->family, y->family);
    if (!order)
        order = strverscmp(x->required, y->required);
    return order ? order : strverscmp(x->problem, y->problem);
}

static int compare_failures(const void *a, const void *b)
{
    return strcmp(((const struct table_failure *)a)->variant,
                  ((const struct table_failure *)b)->variant);
}

static void add_header(struct text *text, const struct gpu_identity *id, size_t num_columns)
{
    text_add(text, "# attngen tuning table\n# format: 1\n");
    text_add(text, "# class: %s\n", id->class_name);
    text_add(text, "# compute_capability: %" PRIu32 "\n", id->compute_capability);
    text_add(text, "# num_sms: %" PRIu32 "\n", id->num_sms);
    text_add(text, "# memory_gbps: %" PRIu32 "\n", id->memory_gbps);
    text_add(text, "# l2_bytes: %" PRIu32 "\n", id->l2_bytes);
    text_add(text, "# gpu: %s\n", id->gpu);
    text_add(text, "# driver: %s\n", id->driver);
    text_add(text, "# toolkit: %s\n", id->toolkit);
    text_add(text, "# commit: %s\n", id->commit);
    text_add(text, "# rest_ms: %ld\n", id->rest_ms);
    if (id->seconds_per_bucket > 0)
        text_add(text, "# seconds_per_bucket: %.3f\n", id->seconds_per_bucket);
    for (size_t i = 0; i < num_columns; i++)
        text_add(text, "%s%c", gen__table_columns[columns[i]], i + 1 < num_columns ? '\t' : '\n');
}

bool table_write(struct table *table, const char *path)
{
    struct text text = {0};
    bool has_others = false;
    if (table->num_rows)
        qsort(table->row, table->num_rows, sizeof *table->row, compare_rows);
    if (table->num_failures)
        qsort(table->failure, table->num_failures, sizeof *table->failure, compare_failures);
    for (size_t i = 0; i < table->num_rows; i++)
        has_others |= strcmp(table->row[i].others, "-") != 0;
    add_header(&text, &table->identity, has_others ? NUM_COLUMNS : NUM_COLUMNS - 1);
    for (size_t i = 0; i < table->num_rows; i++) {
        const struct table_row *r = &table->row[i];
        text_add(&text, "%s\t%s\t%s\t%s\t%.3f\t%.4f\t%s\t%.3f\t%s\t%s\t%s\t%s%s%s\n", r->family,
                 r->required, r->problem, r->variant, r->us, r->spread, r->runner_up,
                 r->runner_up_us, r->digest, *r->code ? r->code : "-", r->toolkit, r->driver,
                 has_others ? "\t" : "", has_others ? r->others : "");
    }
    for (size_t i = 0; i < table->num_failures; i++)
        text_add(&text, "# failed: %s: %s\n", table->failure[i].variant, table->failure[i].reason);
    bool ok = file_write(path, text.data, text.length);
    int error = errno;
    text_free(&text);
    errno = error;
    return ok;
}
