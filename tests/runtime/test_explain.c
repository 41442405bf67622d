/* gen_explain(): what it says, and that what is too long is cut. */
#include "test.h"

#include "toy.h"

#include <unistd.h>

static char text[16384];

static const char *explain(const gen_library *library, const char *device_name,
                           const gen_toy_problem *problem)
{
    const gen_device device = toy_device(device_name);
    size_t needed = 0;
    assert_status(gen_explain(library, &device, &problem->base, text, sizeof(text), &needed),
                  GEN_OK);
    assert_int_equal(needed, strlen(text));
    return text;
}

static void has(const char *piece)
{
    if (!strstr(text, piece))
        fail_msg("\"%s\" is not in:\n%s", piece, text);
}

/* a stands before b. */
static void in_order(const char *a, const char *b)
{
    has(a);
    has(b);
    assert_true(strstr(text, a) < strstr(text, b));
}

static void by_model(void **state)
{
    (void)state;
    gen_library *library = toy_open(toy_product());
    const gen_toy_problem problem = toy_problem(GEN_LINE, 8);
    explain(library, "h200", &problem);
    has("problem   line batch=8 heads=1 length=64 dtype=bf16 dim=64\n");
    has("NVIDIA H200: sm_90, 132 SMs, 4800 GB/s, 60.0 MiB L2, 232448 bytes shared a block\n");
    has("tuned by  tiles=8\n");
    has("rule      analytic model\n");
    has("*        1.000 estimate  line_bf16_d64__sm90a_big\n");
    has("         2.500 estimate  line_bf16_d64__sm90a_c\n");
    has("             - unknown   line_bf16_d64__sm90a_nothing\n");
    in_order("sm90a_c\n", "sm90a_a\n");
    in_order("sm90a_a\n", "sm90a_nothing\n");
    in_order("sm90a_nothing\n", "rejected:\n");
    has("  line_bf16_d64__sm90a_b does not fit: length is not a multiple of blocks\n");
    in_order("rejected:\n", "sm90a_b does not fit");
    has("  line_bf16_d64__compute80_a is PTX, compiled by the driver at first use; sm_90a fits\n");
    in_order("rejected:\n", "compute80_a is PTX");
    explain(library, "a100", &problem);
    has("  line_bf16_d64__sm90a_a is made for sm_90a, the device is sm_80\n");
    has("  line_bf16_d64__compute80_a is PTX, compiled by the driver at first use; sm_80 fits\n");
    explain(library, "b200", &problem);
    has("*        9.000 estimate  line_bf16_d64__compute80_a\n");
    toy_close(library);
}

static void by_table(void **state)
{
    (void)state;
    char table[4096] = "", digest[17];
    toy_digest("line_bf16_d64__sm90a_a", digest);
    toy_table_head(table, sizeof(table), 90, 132, 4800);
    const size_t length = strlen(table);
    snprintf(table + length, sizeof(table) - length,
             "line\tline_bf16_d64\ttiles=8\tline_bf16_d64__sm90a_a\t20\t0\tline_bf16_d64__sm90a_c"
             "\t22\t%s\t13.0\t1\n",
             digest);
    struct product *product = toy_product();
    product_table(product, "sm90_132sm", table);
    gen_library *library = toy_open(product);
    gen_toy_problem problem = toy_problem(GEN_LINE, 16);
    problem.base.flags = GEN_DETERMINISTIC | GEN_BATCH_INVARIANT | GEN_SERIAL_LAUNCH;
    problem.base.max_workspace_mib = 4;
    explain(library, "h200", &problem);
    has("deterministic\n");
    has("batch-invariant\n");
    has("serial launch\n");
    has("limit     4 MiB of workspace\n");
    has("rule      measured on this class of GPU: sm90_132sm (sm90_132sm), row tiles=8, 1.00 "
        "octaves away\n");
    has("*       40.000 measured  line_bf16_d64__sm90a_a\n");
    has("        44.000 measured  line_bf16_d64__sm90a_c\n");
    explain(library, "h20", &problem);
    has("rule      measured on the nearest class of GPU, scaled: sm90_132sm");
    toy_close(library);
}

/* A coordinate outside of what rows have, no row at all, and rows that were left out. */
static void hints_where_nobody_measured(void **state)
{
    (void)state;
    char table[4096] = "";
    toy_table_head(table, sizeof(table), 90, 132, 4800);
    toy_table_row(table, sizeof(table), "line_bf16_d64", "tiles=8", "line_bf16_d64__sm90a_a", "20");
    toy_table_row(table, sizeof(table), "line_bf16_d64", "tiles=64", "line_bf16_d64__sm90a_a",
                  "90");
    static const struct {
        int batch;
        const char *hint; /* NULL: none */
    } cases[] = {{7, "hint      tiles=7 was never measured, rows have 8 to 64\n"},
                 {8, NULL},
                 {20, NULL},
                 {64, NULL},
                 {65, "hint      tiles=65 was never measured, rows have 8 to 64\n"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct product *product = toy_product();
        product_table(product, "sm90_132sm", table);
        gen_library *library = toy_open(product);
        const gen_toy_problem problem = toy_problem(GEN_LINE, cases[i].batch);
        explain(library, "h200", &problem);
        if (cases[i].hint)
            has(cases[i].hint);
        else
            assert_null(strstr(text, "hint"));
        explain(library, "a100", &problem); /* measured on another architecture */
        assert_null(strstr(text, "hint"));
        toy_close(library);
    }
    struct product *product = toy_product();
    product_lacks_rows(product, 2);
    product_table(product, "sm90_132sm", table);
    gen_library *library = toy_open(product);
    gen_toy_problem problem = toy_problem(GEN_LINE, 1024);
    explain(library, "h200", &problem);
    has("rule      analytic model\nhint      the product lacks variants of rows near by\n");
    toy_close(library);
    library = toy_open(toy_product());
    explain(library, "h200", &problem);
    has("hint      no problem of this required key was measured\n");
    toy_close(library);
}

static void without_a_variant(void **state)
{
    (void)state;
    gen_library *library = toy_open(toy_product());
    gen_toy_problem problem = toy_problem(GEN_LINE, 8);
    problem.dim = 128;
    explain(library, "h200", &problem);
    has("rule      none: no variant of line (dtype=bf16 dim=128)");
    problem.batch = 0;
    explain(library, "h200", &problem);
    has("rule      the problem is empty: nothing to launch\n");
    explain(library, "cpu", &problem);
    has("rule      the reference on the CPU\n");
    toy_close(library);
}

/* A success says nothing in gen_last_error(), though it may have a failure to
 * select: what the thread had last stays. */
static void a_success_leaves_the_last_message(void **state)
{
    (void)state;
    gen_library *library = toy_open(toy_product());
    gen_toy_problem problem = toy_problem(GEN_LINE, 8);
    const int32_t dims[] = {64, 128};
    assert_status(gen_open(NULL, NULL), GEN_STATUS_INVALID_ARGUMENT);
    assert_string_equal(gen_last_error(), "library is NULL");
    for (size_t i = 0; i < 2; i++) {
        problem.dim = dims[i];
        explain(library, "h200", &problem);
        has(i ? "rule      none: no variant of line" : "rule      analytic model");
        assert_string_equal(gen_last_error(), "library is NULL");
    }
    toy_close(library);
}

static void what_is_too_long_is_cut(void **state)
{
    (void)state;
    gen_library *library = toy_open(toy_product());
    const gen_toy_problem problem = toy_problem(GEN_LINE, 8);
    const gen_device device = toy_device("h200");
    explain(library, "h200", &problem);
    const size_t length = strlen(text);
    for (size_t capacity = 0; capacity <= length + 2; capacity++) {
        char *part = malloc(capacity + 1);
        assert_non_null(part);
        memset(part, 0x5a, capacity + 1);
        size_t needed = 0;
        assert_status(gen_explain(library, &device, &problem.base, part, capacity, &needed),
                      GEN_OK);
        assert_int_equal(needed, length);
        assert_int_equal(part[capacity], 0x5a);
        if (capacity) {
            const size_t kept = capacity - 1 < length ? capacity - 1 : length;
            assert_int_equal(strlen(part), kept);
            assert_memory_equal(part, text, kept);
        }
        free(part);
    }
    size_t needed = 0;
    assert_status(gen_explain(library, &device, &problem.base, NULL, 0, &needed), GEN_OK);
    assert_int_equal(needed, length);
    assert_status(gen_explain(library, &device, &problem.base, NULL, 8, &needed),
                  GEN_STATUS_INVALID_ARGUMENT);
    assert_status(gen_explain(NULL, &device, &problem.base, text, 8, &needed),
                  GEN_STATUS_INVALID_ARGUMENT);
    assert_status(gen_explain(library, NULL, &problem.base, text, 8, &needed),
                  GEN_STATUS_INVALID_ARGUMENT);
    assert_status(gen_explain(library, &device, NULL, text, 8, &needed),
                  GEN_STATUS_INVALID_ARGUMENT);
    toy_close(library);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_model),
        cmocka_unit_test(by_table),
        cmocka_unit_test(hints_where_nobody_measured),
        cmocka_unit_test(without_a_variant),
        cmocka_unit_test(a_success_leaves_the_last_message),
        cmocka_unit_test(what_is_too_long_is_cut),
    };
    return cmocka_run_group_tests_name("explain", tests, NULL, NULL);
}
