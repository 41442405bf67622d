/* `attngen rekey`: which rows of a tuning table get which digest. */
#include "support.h"

/* The digests of the variant that the rows name. */
static char digest[17], code[17], toolkit[16];
static const char variant[] = "tiny_fp32__sm90a_v1_w4_plain";

static int build_once(void **state)
{
    (void)state;
    copy_fixtures("x");
    struct outcome o = attngen("build", "--templates", "x", "-t", "sm_90a", "-q", "--only", variant,
                               "-o", "p.fatbin", "--catalog", "c.tsv", NULL);
    assert_run(o, 0);
    outcome_free(&o);
    char *text = get(in_scratch("c.tsv"), NULL),
         *line = strstr(text, "\ntiny_fp32__sm90a_v1_w4_plain\t");
    assert_non_null(line);
    const char *by = strstr(text, " with CUDA toolkit ");
    assert_non_null(by);
    assert_int_equal(sscanf(by, " with CUDA toolkit %15[^:]", toolkit), 1);
    line = strchr(line + 1, '\n');
    memcpy(code, line - 16, 16);
    memcpy(digest, line - 33, 16);
    free(text);
    return 0;
}

static struct outcome rekey(void)
{
    return attngen("rekey", "--catalog", "c.tsv", "--tables", "t.tsv", "--format", "tsv", NULL);
}

#define HEAD "# attngen tuning table\n# class: sm90_132sm\n"
#define OLD_COLUMNS "variant\tus\tdigest\ttoolkit\n"
#define COLUMNS "variant\tus\tdigest\tcode\ttoolkit\n"

static void put_table(const char *columns, const char *rows)
{
    char text[2048];
    snprintf(text, sizeof text, HEAD "%s%s# failed: another: why\n", columns, rows);
    put("t.tsv", text);
}

/* Rows of one table, and what becomes of them. */
static void assert_rekeyed(const char *columns, const char *rows, const char *expected,
                           const char *counts)
{
    char text[2048];
    put_table(columns, rows);
    struct outcome o = rekey();
    assert_run(o, 0);
    assert_holds(o.out, counts);
    outcome_free(&o);
    snprintf(text, sizeof text, HEAD COLUMNS "%s# failed: another: why\n", expected);
    char *found = get(in_scratch("t.tsv"), NULL);
    assert_string_equal(found, text);
    free(found);
}

/* A row as the tables of before have it, and one with both digests. */
static const char *old_row(const char *name, const char *source, const char *by)
{
    static char text[4][256];
    static int next;
    char *row = text[next++ % 4];
    snprintf(row, sizeof text[0], "%s\t1.5\t%s\t%s\n", name, source, by);
    return row;
}

static const char *new_row(const char *source, const char *machine, const char *by)
{
    static char text[4][256];
    static int next;
    char *row = text[next++ % 4];
    snprintf(row, sizeof text[0], "%s\t1.5\t%s\t%s\t%s\n", variant, source, machine, by);
    return row;
}

#define OTHER "0123456789abcdef"

/* Only what the catalog's toolkit made of the same source gets its code. */
static void rows_of_the_source_get_the_code(void **state)
{
    (void)state;
    assert_rekeyed(OLD_COLUMNS, old_row(variant, digest, toolkit), new_row(digest, code, toolkit),
                   "t.tsv\t0\t1\t0\t0\t0\t0\n");
    assert_rekeyed(OLD_COLUMNS, old_row(variant, digest, "11.0"), new_row(digest, "-", "11.0"),
                   "t.tsv\t0\t0\t0\t1\t0\t0\n");
    assert_rekeyed(OLD_COLUMNS, old_row(variant, OTHER, toolkit), new_row(OTHER, "-", toolkit),
                   "t.tsv\t0\t0\t0\t0\t1\t0\n");
    assert_rekeyed(OLD_COLUMNS, old_row("gone", OTHER, "13.0"), "gone\t1.5\t" OTHER "\t-\t13.0\n",
                   "t.tsv\t0\t0\t0\t0\t0\t1\n");
}

/* The code stayed and the source did not: the row is of today's source. */
static void rows_of_the_code_get_the_source(void **state)
{
    (void)state;
    assert_rekeyed(COLUMNS, new_row(OTHER, code, toolkit), new_row(digest, code, toolkit),
                   "t.tsv\t0\t0\t1\t0\t0\t0\n");
    assert_rekeyed(COLUMNS, new_row(OTHER, code, "11.0"), new_row(digest, code, "11.0"),
                   "t.tsv\t0\t0\t1\t0\t0\t0\n");
    assert_rekeyed(COLUMNS, new_row(digest, code, toolkit), new_row(digest, code, toolkit),
                   "t.tsv\t1\t0\t0\t0\t0\t0\n");
    /* Measured on another compiler's code of the source: not this code. */
    assert_rekeyed(COLUMNS, new_row(digest, OTHER, toolkit), new_row(digest, OTHER, toolkit),
                   "t.tsv\t0\t0\t0\t1\t0\t0\n");
    assert_rekeyed(COLUMNS, new_row(OTHER, OTHER, toolkit), new_row(OTHER, OTHER, toolkit),
                   "t.tsv\t0\t0\t0\t0\t1\t0\n");
}

/* A row of the catalog may lack its code: then only the source says it, and it gives none. */
static void a_catalog_may_lack_codes(void **state)
{
    (void)state;
    size_t size;
    char *text = get(in_scratch("c.tsv"), &size), *whole = strdup(text);
    assert_non_null(whole);
    char *at = strstr(text, code);
    assert_non_null(at);
    memmove(at + 1, at + 16, strlen(at + 16) + 1);
    *at = '-';
    put("c.tsv", text);
    assert_rekeyed(OLD_COLUMNS, old_row(variant, digest, toolkit), new_row(digest, "-", toolkit),
                   "t.tsv\t0\t0\t0\t1\t0\t0\n");
    assert_rekeyed(COLUMNS, new_row(OTHER, "0000000000000000", toolkit),
                   new_row(OTHER, "0000000000000000", toolkit), "t.tsv\t0\t0\t0\t0\t1\t0\n");
    put("c.tsv", whole);
    free(text);
    free(whole);
}

static void refused(const char *text, const char *message)
{
    put("t.tsv", text);
    struct outcome o = rekey();
    assert_run(o, 1);
    assert_holds(o.err, message);
    outcome_free(&o);
    char *found = get(in_scratch("t.tsv"), NULL);
    assert_string_equal(found, text);
    free(found);
}

static void what_is_no_table_is_left_alone(void **state)
{
    (void)state;
    refused("", "t.tsv: the first line is not \"# attngen tuning table\"");
    refused("notes\n", "t.tsv: the first line is not \"# attngen tuning table\"");
    refused(HEAD, "t.tsv: no line of column names: it is cut short");
    refused(HEAD "us\tdigest\n", "t.tsv: no column \"variant\"; allowed: a tuning table");
    refused(HEAD "variant\tus\n", "t.tsv: no column \"digest\"; allowed: a tuning table");
    refused(HEAD COLUMNS "a\tb\n", "t.tsv: a row has 2 fields; allowed: 5");
    struct outcome o = attngen("rekey", "--tables", "t.tsv", NULL);
    assert_run(o, 1);
    assert_holds(o.err,
                 "rekey: --catalog is not given; --catalog FILE and --tables PATH are needed");
    outcome_free(&o);
    o = attngen("rekey", "--catalog", "c.tsv", NULL);
    assert_run(o, 1);
    assert_holds(o.err, "rekey: --tables is not given");
    outcome_free(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_the_source_get_the_code),
        cmocka_unit_test(rows_of_the_code_get_the_source),
        cmocka_unit_test(a_catalog_may_lack_codes),
        cmocka_unit_test(what_is_no_table_is_left_alone),
    };
    return cmocka_run_group_tests(tests, build_once, remove_scratch);
}
