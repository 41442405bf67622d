/* The reader of tables, part by part: numbers, comments and rows on both sides of each limit, in
 * text that goes on behind what is read. */
#include "test.h"

#include "format/rows.h"
#include "format/table.h"
#include "product/library.h"
#include "toy.h"

#include <math.h>
#include <stdbool.h>

/* The first `length` characters; what follows must not be looked at. */
static struct gen__span cut(const char *text, size_t length)
{
    return (struct gen__span){text, length};
}

static struct gen__span span(const char *text)
{
    return cut(text, strlen(text));
}

static void unsigned_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool good;
        uint32_t value;
    } cases[] = {{"", false, 0},           {"0", true, 0},
                 {"9", true, 9},           {"4294967295", true, UINT32_MAX},
                 {"4294967296", false, 0}, {"9999999999", false, 0},
                 {"0000000007", true, 7},  {"00000000007", false, 0},
                 {"1/", false, 0},         {"1:", false, 0},
                 {"-1", false, 0},         {"+1", false, 0},
                 {" 1", false, 0}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint32_t value = 0;
        if (gen__parse_unsigned(span(cases[i].text), &value) != cases[i].good ||
            (cases[i].good && value != cases[i].value))
            fail_msg("\"%s\": %u", cases[i].text, value);
    }
}

static void numbers(void **state)
{
    (void)state;
    static const char forty[] = "1000000000000000000000000000000000000000";
    static const char forty_one[] = "10000000000000000000000000000000000000000";
    static const struct {
        const char *text;
        bool good;
        double value;
    } cases[] = {{"0", true, 0},       {"1.5", true, 1.5},       {".5", true, 0.5},
                 {"5.", true, 5},      {"", false, 0},           {".", false, 0},
                 {"e5", false, 0},     {".e5", false, 0},        {"1e5", true, 1e5},
                 {"1E5", true, 1e5},   {"1e+5", true, 1e5},      {"1e-5", true, 1e-5},
                 {"1e005", true, 1e5}, {"1e0005", false, 0},     {"1e-005", true, 1e-5},
                 {"1e999", false, 0},  {"1e308", true, 1e308},   {"1e309", false, 0},
                 {"1e", false, 0},     {"1e+", false, 0},        {"1e--5", false, 0},
                 {"1e5x", false, 0},   {"1x", false, 0},         {"1.2.3", false, 0},
                 {"-1", false, 0},     {"+1", false, 0},         {"nan", false, 0},
                 {"inf", false, 0},    {"0.000001", true, 1e-6}, {"0.0000001", true, 1e-7},
                 {"1e-999", true, 0},  {forty, true, 1e39},      {forty_one, false, 0}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        double value = -1;
        if (gen__parse_number(span(cases[i].text), &value) != cases[i].good ||
            (cases[i].good && fabs(value - cases[i].value) > 1e-15 * cases[i].value))
            fail_msg("\"%s\": %g", cases[i].text, value);
    }
    double value;
    assert_true(gen__parse_number(cut("12e5", 2), &value) && value == 12);
    assert_true(gen__parse_number(cut("12.5", 2), &value) && value == 12);
    assert_true(gen__parse_number(cut("1e55", 3), &value) && value == 1e5);
    assert_false(gen__parse_number(cut("1e-5", 3), &value));
    assert_false(gen__parse_number(cut("1e-5", 2), &value));
}

static void digests(void **state)
{
    (void)state;
    static const char good[] = "0123456789abcdefABCDEF9";
    static const char bad[] = "/:`gG@ -";
    uint64_t digest;
    assert_true(gen__parse_digest(cut(good, 16), &digest) && digest == 0x0123456789abcdefu);
    assert_true(gen__parse_digest(cut(good + 7, 16), &digest) && digest == 0x789abcdefABCDEF9u);
    assert_false(gen__parse_digest(cut(good, 15), &digest));
    assert_false(gen__parse_digest(cut(good, 17), &digest));
    for (size_t i = 0; bad[i]; i++) {
        char text[] = "0123456789abcdef";
        text[15] = bad[i];
        assert_false(gen__parse_digest(span(text), &digest));
    }
}

static void comments(void **state)
{
    (void)state;
    struct gen__span key, value;
    assert_true(gen__table_comment(span("#  key:  a value  "), &key, &value));
    assert_true(gen__span_is(key, "key") && gen__span_is(value, "a value"));
    assert_true(gen__table_comment(span("#key:v"), &key, &value));
    assert_true(gen__span_is(key, "key") && gen__span_is(value, "v"));
    assert_false(gen__table_comment(span("# no colon"), &key, &value));
    assert_false(gen__table_comment(span("#"), &key, &value));
    /* What stands behind the line is none of it. */
    assert_false(gen__table_comment(cut("#      key: value", 3), &key, &value));
    assert_false(gen__table_comment(cut("# key: value", 5), &key, &value));
    assert_true(gen__table_comment(cut("# key:        x", 6), &key, &value));
    assert_int_equal(value.length, 0);
    assert_true(gen__table_comment(cut("# key:        x", 9), &key, &value));
    assert_int_equal(value.length, 0);
    assert_true(gen__table_comment(span("# key:"), &key, &value));
    assert_int_equal(value.length, 0);
}

static void orders(void **state)
{
    (void)state;
    static const float a[4] = {2, 3, 1, 1}, less[4] = {1, 9, 1, 1}, more[4] = {2, 4, 1, 1},
                       last[4] = {2, 3, 1, 2};
    assert_int_equal(gen_table_order_counts(a, a), 0);
    assert_true(gen_table_order_counts(less, a) < 0 && gen_table_order_counts(a, less) > 0);
    assert_true(gen_table_order_counts(more, a) < 0 && gen_table_order_counts(a, more) > 0);
    assert_true(gen_table_order_counts(last, a) < 0 && gen_table_order_counts(a, last) > 0);
    assert_int_equal(gen_table_order_keys(1, "x", 1, "x"), 0);
    assert_true(gen_table_order_keys(1, "y", 2, "x") < 0 &&
                gen_table_order_keys(2, "x", 1, "y") > 0);
    assert_true(gen_table_order_keys(1, "x", 1, "y") < 0 &&
                gen_table_order_keys(1, "y", 1, "x") > 0);
}

/* ---- tables ---------------------------------------------------------------- */

/* One variant of a family of five coordinates, which is one more than a row has room for. */
static struct gen_pack_view five_coordinates(void)
{
    static const char strings[] = "\0many\0a,b,c,d,e\0x\0many_x\0many_x__sm90a_v";
    static const struct gen_pack_family families[] = {{.name = 1, .required = 16, .coords = 6}};
    static const struct gen_pack_target targets[] = {{.compute_capability = 90}};
    static const struct gen_pack_group groups[] = {{.name = 18, .values = 16, .num_variants = 1}};
    static const struct gen_pack_variant variants[] = {{.name = 25}};
    return (struct gen_pack_view){families, targets, groups, variants, strings, 1, 1};
}

#define HEAD                                                                               \
    "# attngen tuning table\n# format: 1\n# class: sm90_132sm\n# compute_capability: 90\n" \
    "# num_sms: 132\n# memory_gbps: 4800\n# l2_bytes: 62914560\n"
#define COLUMNS "family\trequired\tproblem\tvariant\tus\tdigest\trunner_up\trunner_up_us\n"

static struct gen_table read_text(const struct gen_pack_view *view, const char *text)
{
    struct gen_table table;
    assert_int_not_equal(gen_table_read(view, text, strlen(text), &table), GEN_TABLE_NO_MEMORY);
    free(table.rows);
    table.rows = NULL;
    return table;
}

static void more_coordinates_than_a_row_has(void **state)
{
    (void)state;
    const struct gen_pack_view view = five_coordinates();
    const struct gen_table table = read_text(
        &view, HEAD COLUMNS
        "many\tmany_x\ta=1 b=2 c=3 d=4 e=5\tmany_x__sm90a_v\t9\t0000000000000000\t-\t-\n");
    assert_int_equal(table.about.num_rows, 0);
    assert_int_equal(table.about.num_bad, 1);
    assert_non_null(strstr(table.reason, "not a coordinate of many"));
}

static void headers(void **state)
{
    (void)state;
    const struct gen_pack_view view = five_coordinates();
    struct gen_table table = read_text(
        &view, "# attngen tuning table\n# num_sms: 1234567890123456789012345678901234567890123\n");
    assert_true(table.about.refused);
    assert_string_equal(table.reason, "num_sms is \"1234567890123456789012345678901234567890\", "
                                      "expected a number of at least 1");
    /* As many columns as there may be, and one more. */
    for (int more = 0; more < 2; more++) {
        char text[1024] = HEAD "family\trequired\tproblem\tvariant\tus\tdigest";
        for (int i = 6; i < GEN__TABLE_MAX_COLUMNS + more; i++)
            strcat(text, "\tx");
        strcat(text, "\n");
        table = read_text(&view, text);
        assert_int_equal(table.about.refused, more);
        assert_true(!more || strstr(table.reason, "more than 32 columns"));
    }
}

/* A row of a variant of the toys, in a table of a class. */
static struct gen_table one_row(unsigned compute_capability, const char *required,
                                const char *problem, const char *variant, const char *us,
                                const char *runner_up, const char *runner_up_us,
                                struct gen_pack_row *row)
{
    struct product *product = toy_product();
    toy_add_pair(product);
    gen_library *library = toy_open(product);
    char text[2048], digest[17], family[16];
    toy_digest(variant, digest);
    snprintf(family, sizeof(family), "%.4s", required);
    family[strcspn(family, "_")] = '\0';
    snprintf(text, sizeof(text),
             "# attngen tuning table\n# format: 1\n# class: sm%u_10sm\n# compute_capability: %u\n"
             "# num_sms: 10\n# memory_gbps: 100\n# l2_bytes: 1000\n" COLUMNS
             "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n",
             compute_capability, compute_capability, family, required, problem, variant, us, digest,
             runner_up, runner_up_us);
    const struct gen_pack_view view = gen__pack_view(&library->pack);
    struct gen_table table;
    assert_int_equal(gen_table_read(&view, text, strlen(text), &table), GEN_TABLE_READ);
    if (table.about.num_rows && row)
        *row = table.rows[0];
    free(table.rows);
    table.rows = NULL;
    toy_close(library);
    return table;
}

static void ptx_beside_machine_code(void **state)
{
    (void)state;
    static const struct {
        unsigned compute_capability;
        const char *required, *variant;
        unsigned passed_over;
    } cases[] = {
        {90, "line_bf16_d64", "line_bf16_d64__compute80_a", 1},
        {80, "line_bf16_d64", "line_bf16_d64__compute80_a", 1},
        {100, "line_bf16_d64", "line_bf16_d64__compute80_a", 0},
        {90, "line_bf16_d64", "line_bf16_d64__sm90a_a", 0},
        {90, "pair_bf16_d64", "pair_bf16_d64__compute80_a", 1},
        {80, "pair_bf16_d64", "pair_bf16_d64__compute80_a", 0}, /* other families have code */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct gen_table table = one_row(cases[i].compute_capability, cases[i].required,
                                               "tiles=1", cases[i].variant, "9", "-", "-", NULL);
        if (table.about.num_ptx != cases[i].passed_over ||
            table.about.num_rows + table.about.num_ptx != 1)
            fail_msg("case %zu: %u rows, %u of PTX, %u bad: %s", i, table.about.num_rows,
                     table.about.num_ptx, table.about.num_bad, table.reason);
    }
}

static void rows(void **state)
{
    (void)state;
    static const char a90[] = "line_bf16_d64__sm90a_a", b90[] = "line_bf16_d64__sm90a_b";
    struct gen_pack_row row;
    assert_int_equal(
        one_row(90, "line_bf16_d64", "tiles=1e-45", a90, "9", "-", "-", NULL).about.num_bad, 1);
    assert_int_equal(
        one_row(90, "line_bf16_d64", "tiles=1e300", a90, "9", "-", "-", NULL).about.num_bad, 1);
    assert_int_equal(
        one_row(90, "line_bf16_d64", "tiles=1e-37", a90, "9", "-", "-", NULL).about.num_bad, 0);
    /* A time of no runner-up is none. */
    assert_int_equal(
        one_row(90, "line_bf16_d64", "tiles=1", a90, "9", "-", "5", &row).about.num_bad, 0);
    assert_true(row.runner_up_us == 0.0f);
    assert_int_equal(
        one_row(90, "line_bf16_d64", "tiles=1", a90, "9", b90, "5", &row).about.num_bad, 0);
    assert_true(row.runner_up_us == 5.0f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unsigned_numbers),
        cmocka_unit_test(numbers),
        cmocka_unit_test(digests),
        cmocka_unit_test(comments),
        cmocka_unit_test(orders),
        cmocka_unit_test(more_coordinates_than_a_row_has),
        cmocka_unit_test(headers),
        cmocka_unit_test(ptx_beside_machine_code),
        cmocka_unit_test(rows),
    };
    return cmocka_run_group_tests_name("table text", tests, NULL, NULL);
}
