/* GEN_LOG and gen_set_log(): which lines come, how often, and where they go. */
#include "test.h"

#include "fake.h"
#include "product/library.h"
#include "toy.h"

#include <stdbool.h>
#include <unistd.h>

static struct {
    uint32_t count, explained, loaded;
    char last[2048], part[2048];
    gen_library *nested; /* to select and set the log from within */
    enum gen_status nested_status;
} seen;

static enum gen_status select_toy(gen_library *library, uint32_t family, int batch)
{
    const gen_toy_problem problem = toy_problem(family, batch);
    const gen_device device = toy_device("h200");
    gen_plan plan = {.size = sizeof(plan)};
    return gen_select(library, &device, &problem.base, &plan);
}

static void note(enum gen_log_level level, const char *text, void *user)
{
    assert_ptr_equal(user, &seen);
    seen.explained += level == GEN_LOG_EXPLAIN;
    seen.loaded += level == GEN_LOG_LOAD;
    seen.count += level == GEN_LOG_SELECT;
    if (strstr(text, "part_of=pair"))
        snprintf(seen.part, sizeof(seen.part), "%s", text);
    if (level != GEN_LOG_EXPLAIN)
        snprintf(seen.last, sizeof(seen.last), "%s", text);
    if (seen.nested) {
        assert_status(select_toy(seen.nested, GEN_LINE, 77), GEN_OK);
        seen.nested_status = gen_set_log(0, NULL, NULL);
    }
}

static void start_log(uint32_t levels)
{
    memset(&seen, 0, sizeof(seen));
    assert_status(gen_set_log(levels, note, &seen), GEN_OK);
}

static void has(const char *piece)
{
    if (!strstr(seen.last, piece))
        fail_msg("\"%s\" is not in \"%s\"", piece, seen.last);
}

/* What opening with GEN_LOG and a selection write on stderr. */
static const char *on_stderr(const char *log, uint32_t *levels)
{
    static char out[16384];
    const char *path = SCRATCH_DIR "/log_stderr.txt";
    fflush(stderr);
    const int saved = dup(2);
    assert_non_null(freopen(path, "w", stderr));
    if (log)
        setenv("GEN_LOG", log, 1);
    gen_library *library = toy_open(toy_product());
    unsetenv("GEN_LOG");
    *levels = library->log;
    const enum gen_status status = select_toy(library, GEN_LINE, 8);
    fflush(stderr);
    dup2(saved, 2);
    close(saved);
    assert_int_equal(status, GEN_OK);
    toy_close(library);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    out[fread(out, 1, sizeof(out) - 1, file)] = '\0';
    fclose(file);
    unlink(path);
    return out;
}

static void unknown_words_are_told_once(void **state)
{
    (void)state;
    uint32_t levels;
    assert_string_equal(on_stderr("load,selects,other", &levels),
                        "attngen: GEN_LOG holds \"selects\"; allowed: select, load and explain, "
                        "comma-separated\n");
    assert_int_equal(levels, GEN_LOG_LOAD);
    assert_string_equal(on_stderr("selects", &levels), "");
    assert_int_equal(levels, 0);
}

static void words_name_levels(void **state)
{
    (void)state;
    static const struct {
        const char *wish;
        uint32_t log;
    } wishes[] = {{"", 0},        {"select", 1}, {"load", 2},           {"select,load", 3},
                  {"explain", 4}, {"selec", 0},  {"load  explain,", 6}, {"loa", 0},
                  {"Select", 0},  {"selecx", 0}, {"all,load", 2},       {"abcd", 0}};
    for (size_t i = 0; i < sizeof(wishes) / sizeof(wishes[0]); i++) {
        uint32_t levels;
        (void)on_stderr(wishes[i].wish, &levels);
        if (levels != wishes[i].log)
            fail_msg("\"%s\" is %u", wishes[i].wish, levels);
    }
}

static void stderr_gets_lines(void **state)
{
    (void)state;
    uint32_t levels;
    assert_string_equal(on_stderr(NULL, &levels), "");
    assert_string_equal(on_stderr("load", &levels), "");
    const char *line = on_stderr("select", &levels);
    assert_string_equal(line,
                        "attngen: select family=line class=sm90_132sm status=OK "
                        "variant=line_bf16_d64__sm90a_big us=1.000 why=MODEL octaves=- part_of=- "
                        "flags=0 workspace_mib=0 problem=batch=8 heads=1 length=64 dtype=bf16 "
                        "dim=64\n");
    assert_non_null(strstr(on_stderr("explain", &levels), "attngen: problem   line batch=8 "));
}

static void a_repeated_problem_is_told_once(void **state)
{
    (void)state;
    gen_library *library = toy_open(toy_product());
    for (int i = 0; i < 3; i++)
        assert_status(select_toy(library, GEN_LINE, 8), GEN_OK);
    start_log(GEN_LOG_SELECT); /* a plan that the thread keeps is logged nevertheless */
    for (int i = 0; i < 5; i++)
        assert_status(select_toy(library, GEN_LINE, 8), GEN_OK);
    assert_int_equal(seen.count, 1);
    assert_status(select_toy(library, GEN_LINE, 9), GEN_OK);
    assert_int_equal(seen.count, 2);
    assert_int_equal(seen.explained, 0);
    start_log(GEN_LOG_EXPLAIN);
    assert_status(select_toy(library, GEN_LINE, 8), GEN_OK);
    assert_int_equal(seen.count, 0);
    assert_int_equal(seen.explained, 1);
    start_log(0);
    assert_status(select_toy(library, GEN_LINE, 10), GEN_OK);
    assert_int_equal(seen.count + seen.explained, 0);
    toy_close(library);
}

static void what_a_line_says(void **state)
{
    (void)state;
    char table[4096] = "";
    toy_table_head(table, sizeof(table), 90, 132, 4800);
    toy_table_row(table, sizeof(table), "line_bf16_d64", "tiles=16", "line_bf16_d64__sm90a_a", "9");
    struct product *product = toy_product();
    toy_add_pair(product);
    product_table(product, "sm90_132sm", table);
    gen_library *library = toy_open(product);
    gen_toy_problem problem = toy_problem(GEN_LINE, 32);
    gen_device device = toy_device("h200");
    gen_plan plan = {.size = sizeof(plan)};
    start_log(GEN_LOG_SELECT);
    problem.base.flags = GEN_SERIAL_LAUNCH | GEN_BATCH_INVARIANT | GEN_DETERMINISTIC;
    problem.base.max_workspace_mib = 3;
    assert_status(gen_select(library, &device, &problem.base, &plan), GEN_OK);
    has(" why=TABLE octaves=1.00 part_of=- flags=0x7 workspace_mib=3 problem=batch=32 ");
    has(" dim=64 @serial @invariant");
    assert_status(select_toy(library, GEN_PAIR, 4), GEN_OK); /* two launches, one of line's */
    assert_int_equal(seen.count, 3);
    has("select family=pair ");
    problem = toy_problem(GEN_LINE, 32);
    problem.length = 65; /* not a multiple of what c and others take */
    problem.dim = 128;
    assert_status(gen_select(library, &device, &problem.base, &plan), GEN_STATUS_UNSUPPORTED);
    has(" status=UNSUPPORTED variant=- us=- why=- octaves=- ");
    device = toy_device("cpu");
    problem = toy_problem(GEN_LINE, 32);
    assert_status(gen_select(library, &device, &problem.base, &plan), GEN_OK);
    has("family=line class=cpu status=OK variant=- us=- why=REFERENCE ");
    start_log(0);
    toy_close(library);
}

static void parts_are_told(void **state)
{
    (void)state;
    struct product *product = toy_product();
    toy_add_pair(product);
    gen_library *library = toy_open(product);
    start_log(GEN_LOG_SELECT);
    assert_status(select_toy(library, GEN_PAIR, 4), GEN_OK);
    assert_int_equal(seen.count, 2);
    assert_non_null(strstr(seen.part, "select family=line "));
    assert_non_null(strstr(seen.part, " us=- why=MODEL octaves=- part_of=pair flags=0"));
    start_log(0);
    toy_close(library);
}

static void the_callback_is_not_entered_again(void **state)
{
    (void)state;
    gen_library *library = toy_open(toy_product());
    start_log(GEN_LOG_SELECT);
    seen.nested = library;
    assert_status(select_toy(library, GEN_LINE, 3), GEN_OK);
    assert_int_equal(seen.count, 1);
    assert_int_equal(seen.nested_status, GEN_STATUS_INVALID_ARGUMENT);
    assert_message("called by the log's callback");
    assert_status(gen_set_log(8, NULL, NULL), GEN_STATUS_INVALID_ARGUMENT);
    assert_message("levels is 0x8, allowed are the bits of enum gen_log_level (0x7)");
    start_log(0);
    toy_close(library);
}

static void loads_are_told(void **state)
{
    (void)state;
    fake_start();
    gen_library *library = toy_open(toy_product());
    const gen_toy_problem problem = toy_problem(GEN_LINE, 8);
    const gen_device device = toy_device("h200");
    gen_plan plan = {.size = sizeof(plan)};
    assert_status(gen_select(library, &device, &problem.base, &plan), GEN_OK);
    start_log(GEN_LOG_LOAD);
    assert_status(gen_preload(library, &plan), GEN_OK);
    assert_status(gen_preload(library, &plan), GEN_OK);
    assert_int_equal(seen.loaded, 1);
    has("load variant=line_bf16_d64__sm90a_big bytes=");
    start_log(0);
    toy_close(library);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unknown_words_are_told_once),
        cmocka_unit_test(words_name_levels),
        cmocka_unit_test(stderr_gets_lines),
        cmocka_unit_test(a_repeated_problem_is_told_once),
        cmocka_unit_test(what_a_line_says),
        cmocka_unit_test(parts_are_told),
        cmocka_unit_test(the_callback_is_not_entered_again),
        cmocka_unit_test(loads_are_told),
    };
    return cmocka_run_group_tests_name("log", tests, fake_open, NULL);
}
