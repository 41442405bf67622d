/* The default space and --full; a catalog that is refreshed compiles what has
 * changed and nothing else. */
#include "support.h"

/* ---- the default space -------------------------------------------------------------- */

static const char listed[] = "# made by a script\n"
                             "tiny_fp32 v4_w4_ring\n"
                             "tiny_fp64 v2_w1_plain\n";

static int variants(const char *command, const char *option, const char *more)
{
    struct outcome o =
        attngen(command, "--templates", "s", "-t", "sm_90a", "--format", "tsv", option, more, NULL);
    assert_run(o, 0);
    int count = count_rows(o.out);
    outcome_free(&o);
    return count;
}

static void the_default_space_is_what_the_list_has(void **state)
{
    (void)state;
    copy_fixtures("s");
    const int all = variants("list", NULL, NULL);
    put("s/tiny/default_space.txt", listed);
    /* Two of the list, the fallbacks of two required keys. */
    assert_int_equal(variants("list", NULL, NULL), 4);
    assert_int_equal(variants("list", "--full", NULL), all);
    struct outcome o = attngen("list", "--templates", "s", "-t", "sm_90a", NULL);
    assert_holds(o.out, "tiny_fp32__sm90a_v4_w4_ring");
    assert_holds(o.out, "tiny_fp64__sm90a_v2_w1_plain");
    assert_lacks(o.out, "tiny_fp64__sm90a_v4_w4_ring");
    outcome_free(&o);
    put("s/tiny/default_space.txt", "");
    assert_int_equal(variants("list", NULL, NULL), 2);
}

/* What waits for its first measurement is behind --full, unless the family's list has it; a
 * fallback never is. */
static void trials_are_not_in_it(void **state)
{
    (void)state;
    copy_fixtures("s");
    remove(in_scratch("s/tiny/default_space.txt")); /* another test's */
    const int all = variants("list", NULL, NULL);
    edit("s/tiny/family.lua", "  fallback = function",
         "  trial = function(v) return v.path == \"ring\" or v.width == 1 end,\n  fallback = "
         "function");
    assert_int_equal(variants("list", "--full", NULL), all);
    struct outcome o = attngen("list", "--templates", "s", "-t", "sm_90a", NULL);
    assert_run(o, 0);
    assert_lacks(o.out, "_ring");
    assert_lacks(o.out, "_v1_w1_plain");
    assert_holds(o.out, "tiny_fp64__sm90a_v1_w4_plain"); /* the fallback */
    assert_holds(o.out, "tiny_fp64__sm90a_v4_w1_plain");
    outcome_free(&o);
    o = attngen("why", "tiny_fp64__sm90a_v4_w4_ring", "--templates", "s", "--format", "tsv", NULL);
    assert_run(o, 0);
    assert_holds(o.out, "default space\tno: no tuning table picks it; --full builds it\n");
    outcome_free(&o);
    put("s/tiny/default_space.txt", listed);
    o = attngen("list", "--templates", "s", "-t", "sm_90a", NULL);
    assert_run(o, 0);
    assert_holds(o.out, "tiny_fp32__sm90a_v4_w4_ring");
    outcome_free(&o);
    edit("s/tiny/family.lua", "v.path == \"ring\" or v.width == 1 end,", "3 end,");
    o = attngen("list", "--templates", "s", "-t", "sm_90a", NULL);
    assert_run(o, 1);
    assert_holds(o.err, "trial of tiny_");
    assert_holds(o.err, " is 3; allowed: true or false");
    outcome_free(&o);
}

static void names_reach_beyond_it(void **state)
{
    (void)state;
    copy_fixtures("s");
    put("s/tiny/default_space.txt", listed);
    struct outcome o =
        attngen("why", "tiny_fp64__sm90a_v4_w4_ring", "--templates", "s", "--format", "tsv", NULL);
    assert_run(o, 0);
    assert_holds(o.out, "default space\tno: no tuning table picks it; --full builds it\n");
    outcome_free(&o);
    o = attngen("why", "tiny_fp32__sm90a_v4_w4_ring", "--templates", "s", "--format", "tsv", NULL);
    assert_run(o, 0);
    assert_holds(o.out, "default space\tyes\n");
    outcome_free(&o);
    o = attngen("expand", "tiny_fp64__sm90a_v4_w4_ring", "--templates", "s", NULL);
    assert_run(o, 0);
    outcome_free(&o);
    put("pick.tsv", "family\tvariant\ntiny\ttiny_fp64__sm90a_v4_w4_ring\n");
    assert_int_equal(variants("list", "--from-table", "pick.tsv"), 1);
    assert_int_equal(variants("list", "--only", "*_v4_w4_ring"), 1);
    o = attngen("list", "--templates", "s", "-t", "sm_90a", "--only", "*_v2_w4_ring", NULL);
    assert_run(o, 1);
    assert_holds(o.err, "--only: '*_v2_w4_ring' matches none of 4 variants");
    assert_holds(o.err, "; --full adds those that no table picks");
    outcome_free(&o);
}

static void a_damaged_list(void **state)
{
    (void)state;
    copy_fixtures("s");
    static const char *const damages[] = {"tiny_fp32__sm90a_v4_w4_ring\n", "other_fp32 v4\n",
                                          "tiny_fp32 v4_w4_ring 2\n"};
    for (int i = 0; i < 3; i++) {
        put("s/tiny/default_space.txt", damages[i]);
        struct outcome o = attngen("list", "--templates", "s", "-t", "sm_90a", NULL);
        assert_run(o, 1);
        assert_holds(o.err, "s/tiny/default_space.txt:1: found '");
        assert_holds(o.err, "'; allowed: 'tiny_<required> <free axes>', as names spell them");
        outcome_free(&o);
    }
}

/* ---- refreshing a catalog ------------------------------------------------------------ */

#define REFRESH(cache)                                                                        \
    attngen("build", "--templates", "s", "-t", "sm_90a", "--cache", cache, "--format", "tsv", \
            "--catalog", "c.tsv", "--refresh", NULL)

static int number(const struct outcome *o, const char *column)
{
    char *text = cell(o->out, 0, column);
    int value = atoi(text);
    free(text);
    return value;
}

static void expect(const struct outcome *o, int kept, int compiled)
{
    assert_run(*o, 0);
    assert_int_equal(number(o, "kept"), kept);
    assert_int_equal(number(o, "compiled"), compiled);
}

static void a_refresh_compiles_what_changed(void **state)
{
    (void)state;
    copy_fixtures("s");
    put("s/tiny/default_space.txt", listed);
    struct outcome o = REFRESH("cache1");
    expect(&o, 0, 4);
    outcome_free(&o);
    size_t size;
    char *first = get(in_scratch("c.tsv"), &size);
    /* Nothing has changed, and no cache has anything. */
    o = REFRESH("cache2");
    expect(&o, 4, 0);
    outcome_free(&o);
    char *again = get(in_scratch("c.tsv"), &size);
    assert_string_equal(first, again);
    /* One template line of the ring's variant alone. */
    edit("s/tiny/family.lua", "v.path == \"ring\" and threads * v.width * 8 or 0",
         "v.path == \"ring\" and threads * v.width * 8 + 16 or 0");
    o = REFRESH("cache3");
    expect(&o, 3, 1);
    outcome_free(&o);
    o = attngen("check", "--templates", "s", "--catalog", "c.tsv", NULL);
    assert_run(o, 0);
    outcome_free(&o);
    /* A catalog of another format is made anew. */
    edit("c.tsv", "# attngen catalog ", "# attngen catalog 0");
    o = REFRESH("cache7");
    expect(&o, 0, 4);
    outcome_free(&o);
    /* Another toolkit may compile anything differently. */
    edit("c.tsv", "with CUDA toolkit ", "with CUDA toolkit 1");
    o = REFRESH("cache4");
    expect(&o, 0, 4);
    outcome_free(&o);
    free(first);
    free(again);
}

static void a_refresh_keeps_refusals(void **state)
{
    (void)state;
    copy_fixtures("s");
    put("s/tiny/default_space.txt", listed);
    edit("s/tiny/family.lua", "max_registers = 64", "max_registers = v.width == 4 and 2 or 64");
    struct outcome o = REFRESH("cache5");
    assert_run(o, 0);
    assert_int_equal(number(&o, "refused"), 1);
    outcome_free(&o);
    o = REFRESH("cache6");
    expect(&o, 4, 0);
    assert_int_equal(number(&o, "refused"), 1);
    outcome_free(&o);
}

static void a_refresh_needs_a_catalog(void **state)
{
    (void)state;
    struct outcome o = attngen("build", "--templates", FIXTURES, "--refresh", NULL);
    assert_run(o, 1);
    assert_holds(o.err, "--refresh: which catalog? Give --catalog FILE");
    outcome_free(&o);
    o = attngen("build", "--templates", FIXTURES, "--refresh", "--catalog", "n.tsv", "-o", "x",
                NULL);
    assert_run(o, 1);
    assert_holds(o.err, "--refresh makes no product, found --output x");
    outcome_free(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_default_space_is_what_the_list_has),
        cmocka_unit_test(trials_are_not_in_it),
        cmocka_unit_test(names_reach_beyond_it),
        cmocka_unit_test(a_damaged_list),
        cmocka_unit_test(a_refresh_compiles_what_changed),
        cmocka_unit_test(a_refresh_keeps_refusals),
        cmocka_unit_test(a_refresh_needs_a_catalog),
    };
    return cmocka_run_group_tests(tests, NULL, remove_scratch);
}
