/* Tuning tables: every kind of bad row and header, and expiry. */
#include "table_fixture.h"

#include <locale.h>
#include <math.h>
#include <unistd.h>

#define COLUMNS "family\trequired\tproblem\tvariant\tus\tspread\trunner_up\trunner_up_us\tdigest\n"
#define HEAD                                                                               \
    "# attngen tuning table\n# format: 1\n# class: sm90_132sm\n# compute_capability: 90\n" \
    "# num_sms: 132\n# memory_gbps: 4800\n# l2_bytes: 62914560\n"

static gen_library_info open_info(const char *text, gen_library **library)
{
    struct product *product = toy_product();
    product_table(product, "built-in", text);
    *library = toy_open(product);
    gen_library_info info = {.size = sizeof(info)};
    assert_status(gen_library_info_get(*library, &info), GEN_OK);
    return info;
}

static const char *good_row(void)
{
    static char text[256];
    char digest[17];
    toy_digest(A90, digest);
    snprintf(text, sizeof(text),
             "line\tline_bf16_d64\ttiles=16\t" A90 "\t63.4\t0.002\t" C90 "\t70.5\t%s\n", digest);
    return text;
}

static void a_good_table(void **state)
{
    (void)state;
    char text[2048];
    gen_library *library;
    snprintf(text, sizeof(text), HEAD COLUMNS "%s", good_row());
    const gen_library_info info = open_info(text, &library);
    assert_int_equal(info.num_tables, 1);
    assert_int_equal(info.num_rows, 1);
    assert_int_equal(info.num_rows_bad, 0);
    assert_explained(library, "sm90_132sm (built-in), row tiles=16");
    toy_close(library);
}

/* A row holds while the machine code stays or the source does; it expires when neither does. */
static void a_row_follows_its_machine_code(void **state)
{
    (void)state;
    char source[17], code[17];
    toy_digest(A90, source);
    snprintf(code, sizeof(code), "%016llx", ~strtoull(source, NULL, 16));
    const struct {
        const char *source, *code;
        uint32_t rows, expired, bad;
    } cases[] = {
        {source, code, 1, 0, 0},
        {"0123456789abcdef", code, 1, 0, 0},   /* of another source that compiles to the same */
        {source, "0123456789abcdef", 1, 0, 0}, /* of the same source, by another toolkit */
        {source, "-", 1, 0, 0},
        {source, "", 1, 0, 0},
        {"0123456789abcdef", "0123456789abcdef", 0, 1, 0},
        {"0123456789abcdef", "-", 0, 1, 0},
        {"0123456789abcdef", "0000000000000000", 0, 1, 0},
        {code, source, 0, 1, 0}, /* each in its own column */
        {source, "0123", 0, 0, 1},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[2048];
        gen_library *library;
        snprintf(text, sizeof(text),
                 HEAD "family\trequired\tproblem\tvariant\tus\tdigest\tcode\n"
                      "line\tline_bf16_d64\ttiles=16\t" A90 "\t63.4\t%s\t%s\n",
                 cases[i].source, cases[i].code);
        const gen_library_info info = open_info(text, &library);
        if (info.num_rows != cases[i].rows || info.num_rows_expired != cases[i].expired ||
            info.num_rows_bad != cases[i].bad)
            fail_msg("case %zu: %u rows, %u expired, %u bad", i, info.num_rows,
                     info.num_rows_expired, info.num_rows_bad);
        if (cases[i].bad)
            assert_explained(library, "the code's digest is not 16 hexadecimal digits");
        toy_close(library);
    }
}

enum { FAMILY, REQUIRED, PROBLEM, VARIANT, US, SPREAD, RUNNER_UP, RUNNER_UP_US, DIGEST, FIELDS };

/* A row that is bad in some fields, the others as they should be, and a good one behind it: the
 * first is counted, and the reason is kept. */
static void check_bad_row(size_t number, const char *const *fields, const char *reason)
{
    char digest[17], text[2048] = HEAD COLUMNS;
    toy_digest(A90, digest);
    const char *const good[FIELDS] = {"line", "line_bf16_d64", "tiles=1", A90, "9", "0", "-",
                                      "-",    digest};
    for (int f = 0; f < FIELDS; f++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%s", f ? "\t" : "",
                 fields[f] ? fields[f] : good[f]);
    snprintf(text + strlen(text), sizeof(text) - strlen(text), "\n%s", good_row());
    gen_library *library;
    const gen_library_info info = open_info(text, &library);
    if (info.num_rows != 1 || info.num_rows_bad != 1 || info.num_rows_expired != 0)
        fail_msg("row %zu: %u rows, %u bad, %u expired", number, info.num_rows, info.num_rows_bad,
                 info.num_rows_expired);
    assert_explained(library, reason);
    assert_explained(library, "the first: line 9:");
    toy_close(library);
}

static void bad_rows_are_skipped_and_counted(void **state)
{
    (void)state;
    static const struct {
        const char *fields[FIELDS]; /* NULL: as it should be */
        const char *reason;
    } rows[] = {
        {{[FAMILY] = "nofamily"}, "is of family line"},
        {{[FAMILY] = "toy"}, "is of family line"},
        {{[REQUIRED] = "line_fp16_d64"}, "not the required key"},
        {{[REQUIRED] = ""}, "not the required key"},
        {{[PROBLEM] = "states=1"}, "not a coordinate of line"},
        {{[PROBLEM] = "tiles"}, "expected coordinate=value"},
        {{[PROBLEM] = ""}, "is missing"},
        {{[PROBLEM] = "tiles=1,tiles=2"}, "twice"},
        {{[PROBLEM] = "tiles=1,length=2"}, "not a coordinate of line"},
        {{[PROBLEM] = "tiles=0"}, "not a number > 0"},
        {{[PROBLEM] = "tiles=-1"}, "not a number > 0"},
        {{[PROBLEM] = "tiles=x"}, "not a number > 0"},
        {{[PROBLEM] = "tiles=1e999"}, "not a number > 0"},
        {{[VARIANT] = "line_bf16_d64__sm90a_"}, "no such variant"},
        {{[VARIANT] = ""}, "no such variant"},
        {{[VARIANT] = "line_bf16_d64__sm80_a"}, "its code does not run on the class"},
        {{[US] = "0"}, "microseconds"},
        {{[US] = "-3"}, "microseconds"},
        {{[US] = "nan"}, "microseconds"},
        {{[US] = "inf"}, "microseconds"},
        {{[US] = "1e300"}, "microseconds"},
        {{[US] = "1e-300"}, "microseconds"},
        {{[US] = "9us"}, "microseconds"},
        {{[US] = "9,5"}, "microseconds"},
        {{[US] = "1e"}, "microseconds"},
        {{[US] = "1.2.3"}, "microseconds"},
        {{[US] = ""}, "microseconds"},
        {{[SPREAD] = "low"}, "spread"},
        {{[RUNNER_UP] = C90, [RUNNER_UP_US] = "fast"}, "microseconds"},
        {{[DIGEST] = "0123"}, "16 hexadecimal"},
        {{[DIGEST] = "0123456789abcdeg"}, "16 hexadecimal"},
        {{[DIGEST] = ""}, "16 hexadecimal"},
    };
    for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++)
        check_bad_row(r, rows[r].fields, rows[r].reason);
}

static void rows_of_the_wrong_shape(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "line\n",
        "\t\n",
        "line\tline_bf16_d64\ttiles=1\t" A90 "\t9\t0\t-\t-\n",
        "line\tline_bf16_d64\ttiles=1\t" A90 "\t9\t0\t-\t-\t0123456789abcdef\tmore\n",
        "line line_bf16_d64 tiles=1 " A90 " 9 0 - - 0123456789abcdef\n",
    };
    for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++) {
        char text[2048];
        snprintf(text, sizeof(text), HEAD COLUMNS "%s%s", rows[r], good_row());
        gen_library *library;
        const gen_library_info info = open_info(text, &library);
        assert_int_equal(info.num_rows, 1);
        assert_int_equal(info.num_rows_bad, 1);
        assert_explained(library, "fields, expected 9");
        toy_close(library);
    }
}

static void changed_kernels_expire_their_rows(void **state)
{
    (void)state;
    char text[2048];
    gen_library *library;
    snprintf(text, sizeof(text),
             HEAD COLUMNS "line\tline_bf16_d64\ttiles=16\t" BIG90
                          "\t1.5\t0.002\t-\t-\t0123456789abcdef\n%s",
             good_row());
    const gen_library_info info = open_info(text, &library);
    assert_int_equal(info.num_rows, 1);
    assert_int_equal(info.num_rows_bad, 0);
    assert_int_equal(info.num_rows_expired, 1);
    const gen_device device = toy_device("h200");
    const gen_toy_problem problem = toy_problem(GEN_LINE, 16);
    gen_plan plan = {.size = sizeof(plan)};
    assert_status(gen_select(library, &device, &problem.base, &plan), GEN_OK);
    assert_string_equal(toy_chosen(library, &plan), A90);
    toy_close(library);
}

/* Counted by themselves, and no fault. One whose kernel has changed is expired like any other. */
static void rows_of_ptx_are_counted(void **state)
{
    (void)state;
    char text[2048], digest[17];
    gen_library *library;
    toy_digest("line_bf16_d64__compute80_a", digest);
    snprintf(text, sizeof(text),
             HEAD COLUMNS
             "line\tline_bf16_d64\ttiles=1\tline_bf16_d64__compute80_a\t9\t0\t-\t-\t%s\n"
             "line\tline_bf16_d64\ttiles=2\tline_bf16_d64__compute80_a\t9\t0\t-\t-"
             "\t0123456789abcdef\n%s",
             digest, good_row());
    const gen_library_info info = open_info(text, &library);
    assert_int_equal(info.num_rows, 1);
    assert_int_equal(info.num_rows_ptx, 1);
    assert_int_equal(info.num_rows_expired, 1);
    assert_int_equal(info.num_rows_bad, 0);
    assert_explained(library, "1 rows in use, 0 behind another table, 1 expired, 0 bad, 1 of PTX "
                              "beside machine code\n");
    toy_close(library);
}

static const struct {
    const char *text, *line, *reason;
} bad_headers[] = {
    {"", "0", "the first line is not"},
    {"\n" HEAD COLUMNS, "1", "the first line is not"},
    {"family\n", "1", "the first line is not"},
    {HEAD, "7", "ends before the line of column names"},
    {"# attngen tuning table\n# format: 2\n" COLUMNS, "3", "table format 2, this runtime reads"},
    {"# attngen tuning table\n" COLUMNS, "2", "table format 0"},
    {"# attngen tuning table\n# format: one\n", "2", "format is \"one\", expected a number"},
    {"# attngen tuning table\n# format: 1\n# num_sms: 0\n", "3", "num_sms is \"0\""},
    {"# attngen tuning table\n# format: 1\n# num_sms: 99999999999\n", "3", "num_sms is"},
    {"# attngen tuning table\n# format: 1\n# num_sms: 132\n# memory_gbps: 1\n# l2_bytes: 1\n"
     "# class: sm90_132sm\n" COLUMNS,
     "7", "no \"# compute_capability: ...\" line"},
    {"# attngen tuning table\n# format: 1\n# compute_capability: 90\n# memory_gbps: 1\n"
     "# l2_bytes: 1\n# class: sm90_132sm\n" COLUMNS,
     "7", "no \"# num_sms: ...\" line"},
    {"# attngen tuning table\n# format: 1\n# compute_capability: 90\n# num_sms: 132\n"
     "# l2_bytes: 1\n# class: sm90_132sm\n" COLUMNS,
     "7", "no \"# memory_gbps: ...\" line"},
    {"# attngen tuning table\n# format: 1\n# compute_capability: 90\n# num_sms: 132\n"
     "# memory_gbps: 1\n# class: sm90_132sm\n" COLUMNS,
     "7", "no \"# l2_bytes: ...\" line"},
    {"# attngen tuning table\n# format: 1\n# compute_capability: 90\n# num_sms: 132\n"
     "# memory_gbps: 1\n# l2_bytes: 1\n" COLUMNS,
     "7", "no \"# class: ...\" line"},
    {"# attngen tuning table\n# format: 1\n# compute_capability: 90\n# num_sms: 80\n"
     "# memory_gbps: 1\n# l2_bytes: 1\n# class: sm90_132sm\n" COLUMNS,
     "8", "the class is \"sm90_132sm\", but compute_capability and num_sms say \"sm90_80sm\""},
    {HEAD "family\trequired\tproblem\tvariant\tus\n", "8", "has no \"digest\""},
    {HEAD "family,required,problem,variant,us,digest\n", "8", "has no \"family\""},
    {HEAD "a\tb\tc\td\te\tf\tg\ta\tb\tc\td\te\tf\tg\ta\tb\tc\td\te\tf\tg\ta\tb\tc\td\te\tf\tg\ta\tb"
          "\tc\td\te\tf\tg\n",
     "8", "more than 32 columns"},
};

static void write_bytes(const char *path, const char *bytes, size_t size)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    fclose(file);
}

/* A NUL is a byte like any other: it ends neither the table nor a name, number or
 * digest before it. */
static void a_nul_ends_nothing(void **state)
{
    (void)state;
    const char *path = SCRATCH_DIR "/nul.tsv";
    char text[2048], row[256];
    snprintf(row, sizeof(row), "%s", good_row());
    const int head = snprintf(text, sizeof(text), HEAD COLUMNS "# a comment\n%s%s", row, row);
    const size_t size = (size_t)head;
    const size_t first = size - 2 * strlen(row);
    const size_t runner_up = first + (size_t)(strstr(row, C90) - row);
    /* Over each byte behind the comment's # and of the first row, but their newlines. */
    for (size_t at = first - strlen(" a comment\n"); at < size - strlen(row) - 1; at++) {
        if (text[at] == '\n')
            continue;
        const char before = text[at];
        text[at] = '\0';
        write_bytes(path, text, size);
        text[at] = before;
        gen_library *library = NULL;
        gen_library_info info = {.size = sizeof(info)};
        assert_status(toy_open_tables(toy_product(), &path, 1, &library), GEN_OK);
        assert_status(gen_library_info_get(library, &info), GEN_OK);
        /* A runner-up that the product lacks is no fault. */
        const int harmless = at < first || (at >= runner_up && at < runner_up + strlen(C90));
        const uint32_t bad = harmless ? 0 : 1;
        if (info.num_rows != 2 - bad || info.num_rows_bad != bad)
            fail_msg("a NUL at %zu: %u rows, %u bad", at, info.num_rows, info.num_rows_bad);
        toy_close(library);
    }
    unlink(path);
}

static void a_bad_header_refuses_the_whole_table(void **state)
{
    (void)state;
    const char *path = SCRATCH_DIR "/bad_header.tsv";
    for (size_t i = 0; i < sizeof(bad_headers) / sizeof(bad_headers[0]); i++) {
        /* A built-in one: the library opens without it. */
        gen_library *library;
        const gen_library_info info = open_info(bad_headers[i].text, &library);
        char piece[256];
        assert_int_equal(info.num_tables, 0);
        assert_int_equal(info.num_rows, 0);
        assert_int_equal(info.num_rows_bad, 1);
        snprintf(piece, sizeof(piece), "built-in refused: line %s: ", bad_headers[i].line);
        assert_explained(library, piece);
        assert_explained(library, bad_headers[i].reason);
        toy_close(library);
        /* The caller's: the library does not open. */
        write_text(path, bad_headers[i].text);
        library = NULL;
        assert_status(toy_open_tables(toy_product(), &path, 1, &library), GEN_STATUS_FORMAT);
        assert_null(library);
        snprintf(piece, sizeof(piece), "%s:%s: ", path, bad_headers[i].line);
        assert_message(piece);
        assert_message(bad_headers[i].reason);
    }
    unlink(path);
}

static void a_missing_table_is_an_error(void **state)
{
    (void)state;
    const char *path = SCRATCH_DIR "/missing.tsv";
    gen_library *library = NULL;
    assert_status(toy_open_tables(toy_product(), &path, 1, &library), GEN_STATUS_IO);
    assert_message("missing.tsv: cannot be opened");
    path = SCRATCH_DIR;
    assert_status(toy_open_tables(toy_product(), &path, 1, &library), GEN_STATUS_IO);
    assert_message("not a regular file");
    assert_null(library);
}

static void columns_in_any_order_and_line_ends_of_any_kind(void **state)
{
    (void)state;
    char text[2048], digest[17];
    toy_digest(A90, digest);
    gen_library *library;
    snprintf(text, sizeof(text),
             "# attngen tuning table\r\n#format:1\r\n#   class:   sm90_132sm   \r\n"
             "# compute_capability: 90\r\n# num_sms: 132\r\n# memory_gbps: 4800\r\n"
             "# l2_bytes: 1\r\n# gpu: x\r\n#\r\n\r\n"
             "digest\tus\tlater\tvariant\tproblem\trequired\tfamily\r\n"
             "# a comment between rows\r\n\r\n"
             "%s\t6.34e+1\twhatever\t" A90 "\ttiles=1.6e1\tline_bf16_d64\tline\r\n"
             "%s\t634000E-4\t\t" A90 "\ttiles=.5\tline_bf16_d64\tline",
             digest, digest);
    const gen_library_info info = open_info(text, &library);
    assert_int_equal(info.num_rows_bad, 0);
    assert_int_equal(info.num_rows, 2);
    const gen_device device = toy_device("h200");
    const gen_toy_problem problem = toy_problem(GEN_LINE, 16);
    gen_plan plan = {.size = sizeof(plan)};
    assert_status(gen_select(library, &device, &problem.base, &plan), GEN_OK);
    assert_true(fabsf(plan.predicted_us - 63.4f) < 1e-3f);
    toy_close(library);
}

static void numbers_do_not_depend_on_the_locale(void **state)
{
    (void)state;
    static const char *const names[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "C.UTF-8"};
    for (size_t i = 0; i < 3; i++)
        if (setlocale(LC_ALL, names[i]))
            break;
    char text[2048];
    gen_library *library;
    snprintf(text, sizeof(text), HEAD COLUMNS "%s", good_row());
    assert_int_equal(open_info(text, &library).num_rows, 1);
    toy_close(library);
    setlocale(LC_ALL, "C");
}

static void an_unknown_runner_up_is_no_fault(void **state)
{
    (void)state;
    char text[2048], digest[17];
    toy_digest(A90, digest);
    gen_library *library;
    snprintf(text, sizeof(text),
             HEAD COLUMNS "line\tline_bf16_d64\ttiles=16\t" A90 "\t63.4\t0.002\tgone\t70.5\t%s\n",
             digest);
    const gen_library_info info = open_info(text, &library);
    assert_int_equal(info.num_rows, 1);
    assert_int_equal(info.num_rows_bad, 0);
    toy_close(library);
}

/* Any byte of a table may be anything: rows are lost, never more. */
static void flipped_bytes(void **state)
{
    (void)state;
    char text[2048];
    snprintf(text, sizeof(text), HEAD COLUMNS "%s%s", good_row(), good_row());
    static const char others[] = {'\n', '\t', '#', '9', '=', '\x7f', (char)0xff};
    for (size_t i = 0; text[i]; i++) {
        for (size_t o = 0; o < sizeof(others); o++) {
            const char before = text[i];
            text[i] = others[o];
            gen_library *library;
            const gen_library_info info = open_info(text, &library);
            assert_true(info.num_rows + info.num_rows_bad + info.num_rows_expired <= 3);
            (void)explained(library);
            toy_close(library);
            text[i] = before;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_good_table),
        cmocka_unit_test(a_row_follows_its_machine_code),
        cmocka_unit_test(bad_rows_are_skipped_and_counted),
        cmocka_unit_test(rows_of_the_wrong_shape),
        cmocka_unit_test(changed_kernels_expire_their_rows),
        cmocka_unit_test(rows_of_ptx_are_counted),
        cmocka_unit_test(a_bad_header_refuses_the_whole_table),
        cmocka_unit_test(a_nul_ends_nothing),
        cmocka_unit_test(a_missing_table_is_an_error),
        cmocka_unit_test(columns_in_any_order_and_line_ends_of_any_kind),
        cmocka_unit_test(numbers_do_not_depend_on_the_locale),
        cmocka_unit_test(an_unknown_runner_up_is_no_fault),
        cmocka_unit_test(flipped_bytes),
    };
    return cmocka_run_group_tests_name("table", tests, NULL, NULL);
}
