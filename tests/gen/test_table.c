/* `attngen table`: merging, checking and comparing tuning tables. */
#include "support.h"

#define ONE "tiny_fp32__sm90a_v1_w4_plain"
#define TWO "tiny_fp32__sm90a_v2_w4_plain"
#define PTX "tiny_fp32__ptx80_v1_w4_plain"
#define OTHER "0123456789abcdef"
#define HEAD                                                                               \
    "# attngen tuning table\n# format: 1\n# class: sm90_132sm\n# compute_capability: 90\n" \
    "# num_sms: 132\n# memory_gbps: 4814\n# l2_bytes: 62914560\n# rest_ms: 20\n"
#define COLUMNS                                                                               \
    "family\trequired\tproblem\tvariant\tus\tspread\trunner_up\trunner_up_us\tdigest\tcode\t" \
    "toolkit\tdriver\n"

/* Of ONE and TWO. */
static char digest[2][17], code[2][17];

static void read_digests(int i, const char *catalog, const char *name)
{
    const char *line = strstr(catalog, name);
    assert_non_null(line);
    line = strchr(line + 1, '\n');
    memcpy(code[i], line - 16, 16);
    memcpy(digest[i], line - 33, 16);
}

static int build_once(void **state)
{
    (void)state;
    copy_fixtures("x");
    edit("x/tiny/family.lua", "  facts =", "  coords = { \"count\", \"rows\" },\n  facts =");
    struct outcome o =
        attngen("build", "--templates", "x", "-t", "sm_90a,ptx", "-q", "--only",
                "tiny_fp32__*_w4_plain", "-o", "p.fatbin", "--catalog", "c.tsv", NULL);
    assert_run(o, 0);
    outcome_free(&o);
    char *text = get(in_scratch("c.tsv"), NULL);
    read_digests(0, text, "\n" ONE "\t");
    read_digests(1, text, "\n" TWO "\t");
    free(text);
    return 0;
}

struct row {
    const char *problem, *variant, *us, *spread, *runner_up, *runner_up_us, *digest, *code,
        *toolkit, *driver;
};

/* A good row of ONE; what the test is about is changed in it. */
static struct row good(const char *problem)
{
    return (struct row){problem, ONE,       "10.0",  "0.01", "-",
                        "-",     digest[0], code[0], "13.0", "580.9"};
}

static const char *text_of(struct row r)
{
    static char text[8][512];
    static int next;
    char *at = text[next++ % 8];
    snprintf(at, sizeof text[0], "tiny\ttiny_fp32\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n",
             r.problem, r.variant, r.us, r.spread, r.runner_up, r.runner_up_us, r.digest, r.code,
             r.toolkit, r.driver);
    return at;
}

static void put_table(const char *name, const char *first, const char *second, const char *comment)
{
    char text[4096];
    snprintf(text, sizeof text, HEAD COLUMNS "%s%s%s", first, second, comment);
    put(name, text);
}

/* ---- check ------------------------------------------------------------------------------ */

static void assert_finding(struct row row, int status, const char *finding)
{
    put_table("t.tsv", text_of(row), "", "");
    struct outcome o = attngen("table", "check", "t.tsv", "--templates", "x", "--catalog", "c.tsv",
                               "--format", "tsv", NULL);
    assert_run(o, status);
    if (finding[0] != '\0')
        assert_holds(o.out, finding);
    else
        assert_string_equal(o.out, "kind\twhere\twhat\n");
    outcome_free(&o);
}

static void rows_are_checked(void **state)
{
    (void)state;
    struct row r = good("count=4,rows=2");
    assert_finding(r, 0, "");
    r.code = "-";
    assert_finding(r, 0, "");
    r = good("count=4,rows=2");
    r.digest = OTHER;
    assert_finding(r, 0, ""); /* the code holds */
    r.code = OTHER;
    assert_finding(r, 1, "error\tt.tsv:10\texpired: neither digest is that of " ONE);
    r.code = "-";
    assert_finding(r, 1, "error\tt.tsv:10\texpired");
    r = good("count=4,rows=2");
    r.variant = "tiny_fp32__sm90a_v3_w4_plain";
    assert_finding(r, 1, "there is no variant tiny_fp32__sm90a_v3_w4_plain in c.tsv");
    r.variant = PTX;
    assert_finding(r, 1, "warning\tt.tsv:10\t" PTX " is PTX");
    r = good("count=4,rows=2");
    r.digest = "123";
    assert_finding(r, 1, "digest is '123'; allowed: 16 hexadecimal digits");
    r = good("count=4,rows=2");
    r.us = "0";
    assert_finding(r, 1, "us is '0'; allowed: a number above 0");
    r.us = "nan";
    assert_finding(r, 1, "us is 'nan'");
    r = good("count=4,rows=2");
    r.spread = "0.0501";
    assert_finding(r, 0, "warning\tt.tsv:10\tspread 0.0501 is above 0.05");
    r.spread = "0.05";
    assert_finding(r, 0, "");
    r.runner_up = TWO;
    r.runner_up_us = "9.95";
    assert_finding(r, 0, "");
    r.runner_up_us = "9.94";
    assert_finding(r, 0, "warning\tt.tsv:10\tthe runner-up took 9.94 us, the winner 10.0");
}

static void problems_are_checked(void **state)
{
    (void)state;
    assert_finding(good("rows=1,count=1000000000000"), 0, "");
    assert_finding(good("rows=1,count=1000000000001"), 1,
                   "count=1000000000001; allowed: a number from 1 to 1e12");
    assert_finding(good("rows=0.5,count=4"), 1, "rows=0.5; allowed: a number from 1");
    assert_finding(good("rows=,count=4"), 1, "rows=; allowed: a number from 1");
    assert_finding(good("rows=2"), 1, "problem rows=2; allowed: each of count,rows once");
    assert_finding(good("rows=2,rows=2"), 1, "coordinate rows stands twice");
    assert_finding(good("rows=2,tokens=2"), 1, "coordinate tokens; allowed: count,rows");
    assert_finding(good("rows=2,count"), 1, "the problem has 'count'; allowed: coordinate=value");
}

static void rows_of_another_key_or_class(void **state)
{
    (void)state;
    char text[1024];
    struct row r = good("count=4,rows=2");
    snprintf(text, sizeof text, HEAD COLUMNS "%s", text_of(r));
    put("t.tsv", text);
    edit("t.tsv", "tiny\ttiny_fp32\t", "tiny\ttiny_fp64\t");
    struct outcome o = attngen("table", "check", "t.tsv", "--templates", "x", NULL);
    assert_run(o, 1);
    assert_holds(o.out, "required key tiny_fp64; " ONE " is of tiny, tiny_fp32");
    outcome_free(&o);
    put("t.tsv", text);
    edit("t.tsv", "sm90_132sm", "sm100_132sm");
    edit("t.tsv", "compute_capability: 90", "compute_capability: 100");
    o = attngen("table", "check", "t.tsv", "--templates", "x", NULL);
    assert_run(o, 1);
    assert_holds(o.out, ONE " is of sm_90a, which sm_100 does not run");
    outcome_free(&o);
    edit("t.tsv", "compute_capability: 100", "compute_capability: 90");
    o = attngen("table", "check", "t.tsv", "--templates", "x", NULL);
    assert_run(o, 1);
    assert_holds(o.err, "t.tsv: class 'sm100_132sm'; allowed: sm90_132sm");
    outcome_free(&o);
}

/* Without a catalog the code's digest is not known. */
static void templates_know_the_source_alone(void **state)
{
    (void)state;
    struct row r = good("count=4,rows=2");
    r.digest = OTHER;
    r.runner_up = "gone";
    put_table("t.tsv", text_of(r), "", "");
    struct outcome o =
        attngen("table", "check", "t.tsv", "--templates", "x", "--format", "tsv", NULL);
    assert_run(o, 0);
    assert_holds(o.out, "warning\tt.tsv:10\tthe source of " ONE " has changed since; --catalog");
    assert_holds(o.out, "warning\tt.tsv:10\tthere is no runner-up gone");
    outcome_free(&o);
    r.code = "-";
    put_table("t.tsv", text_of(r), "", "");
    o = attngen("table", "check", "t.tsv", "--templates", "x", NULL);
    assert_run(o, 1);
    outcome_free(&o);
}

static void order_and_duplicates(void **state)
{
    (void)state;
    put_table("t.tsv", text_of(good("count=10,rows=2")), text_of(good("count=9,rows=2")), "");
    struct outcome o = attngen("table", "check", "t.tsv", "--templates", "x", NULL);
    assert_run(o, 1);
    assert_holds(o.out, "t.tsv:11");
    assert_holds(o.out, "not sorted");
    outcome_free(&o);
    /* By value, not by text. */
    put_table("t.tsv", text_of(good("count=9,rows=2")), text_of(good("count=10,rows=2")), "");
    o = attngen("table", "check", "t.tsv", "--templates", "x", NULL);
    assert_run(o, 0);
    outcome_free(&o);
    put_table("t.tsv", text_of(good("count=9,rows=2")), text_of(good("count=9,rows=2")), "");
    o = attngen("table", "check", "t.tsv", "--templates", "x", NULL);
    assert_run(o, 1);
    assert_holds(o.out, "the same bucket as line 10");
    outcome_free(&o);
}

/* ---- merge ------------------------------------------------------------------------------ */

/* The winning row of one bucket that both tables have. */
static void assert_merged(struct row a, struct row b, struct row winner, bool with_catalog)
{
    char expected[4096];
    put_table("a.tsv", text_of(a), "", "");
    put_table("b.tsv", text_of(b), "", "");
    struct outcome o = with_catalog
                           ? attngen("table", "merge", "a.tsv", "b.tsv", "--templates", "x",
                                     "--catalog", "c.tsv", NULL)
                           : attngen("table", "merge", "a.tsv", "b.tsv", "--templates", "x", NULL);
    assert_run(o, 0);
    snprintf(expected, sizeof expected, HEAD COLUMNS "%s", text_of(winner));
    assert_string_equal(o.out, expected);
    outcome_free(&o);
}

static void of_two_rows_the_better_stays(void **state)
{
    (void)state;
    struct row a = good("count=4,rows=2"), b = a;
    b.us = "11.0";
    assert_merged(a, b, a, false); /* they are equal: A's */
    assert_merged(b, a, b, false);
    b.spread = "0.009";
    assert_merged(a, b, b, false);
    assert_merged(b, a, b, false);
    a.toolkit = "13.1";
    assert_merged(a, b, a, false);
    assert_merged(b, a, a, false);
    b.driver = "580.10"; /* by value: 10 is above 9 */
    assert_merged(a, b, b, false);
    assert_merged(b, a, b, false);
    b.digest = b.code = OTHER; /* expired: the catalog has the other one */
    assert_merged(a, b, a, true);
    assert_merged(b, a, a, true);
}

static void two_kernels_of_one_name(void **state)
{
    (void)state;
    struct row a = good("count=4,rows=2"), b = good("count=8,rows=2");
    b.digest = b.code = OTHER;
    put_table("a.tsv", text_of(a), "", "");
    put_table("b.tsv", text_of(b), "", "");
    struct outcome o = attngen("table", "merge", "a.tsv", "b.tsv", "-o", "m.tsv", NULL);
    assert_run(o, 1);
    assert_holds(o.err, "a.tsv:10 and b.tsv:10 measured two kernels of the name " ONE);
    assert_int_equal(count_files(in_scratch("m.tsv")), 0);
    outcome_free(&o);
}

static void rows_join_and_failures_count(void **state)
{
    (void)state;
    char expected[4096];
    struct row two = good("count=16,rows=2");
    two.variant = TWO;
    two.digest = digest[1];
    two.code = code[1];
    put_table("a.tsv", text_of(good("count=10,rows=2")), text_of(two), "");
    put_table("b.tsv", text_of(good("count=9,rows=2")), "", "# failed: " TWO ": wrong by 1\n");
    struct outcome o = attngen("table", "merge", "a.tsv", "b.tsv", "-o", "a.tsv", NULL);
    assert_run(o, 0);
    assert_holds(o.err, "2 rows: 1 and 1 of one table alone, 0 equal, 0 and 0 that won over the "
                        "other's; 1 left out");
    outcome_free(&o);
    snprintf(expected, sizeof expected, HEAD COLUMNS "%s%s# failed: " TWO ": wrong by 1\n",
             text_of(good("count=9,rows=2")), text_of(good("count=10,rows=2")));
    char *found = get(in_scratch("a.tsv"), NULL);
    assert_string_equal(found, expected);
    free(found);
}

static void tables_that_do_not_mix(void **state)
{
    (void)state;
    put_table("a.tsv", text_of(good("count=4,rows=2")), "", "");
    put_table("b.tsv", text_of(good("count=4,rows=2")), "", "");
    edit("b.tsv", "memory_gbps: 4814", "memory_gbps: 3352");
    struct outcome o = attngen("table", "merge", "a.tsv", "b.tsv", NULL);
    assert_run(o, 1);
    assert_holds(o.err, "memory_gbps is 4814 in a.tsv and 3352 in b.tsv");
    assert_string_equal(o.out, "");
    outcome_free(&o);
    put_table("b.tsv", text_of(good("count=4,rows=2")), "", "");
    edit("b.tsv", "rest_ms: 20", "rest_ms: 0");
    o = attngen("table", "merge", "a.tsv", "b.tsv", NULL);
    assert_run(o, 0);
    assert_holds(o.err, "rest_ms is 20 in a.tsv and 0 in b.tsv");
    outcome_free(&o);
    put_table("b.tsv", text_of(good("count=4,rows=2")), text_of(good("count=4,rows=2")), "");
    o = attngen("table", "merge", "a.tsv", "b.tsv", NULL);
    assert_run(o, 1);
    assert_holds(o.err, "b.tsv: lines 10 and 11 are rows of one bucket");
    outcome_free(&o);
    put_table("b.tsv", "a\tb\n", "", "");
    o = attngen("table", "merge", "a.tsv", "b.tsv", NULL);
    assert_run(o, 1);
    assert_holds(o.err, "b.tsv:10: 2 fields; allowed: 12");
    outcome_free(&o);
}

/* ---- diff and the rest ------------------------------------------------------------------ */

static void differences(void **state)
{
    (void)state;
    struct row slow = good("count=8,rows=2"), two = slow;
    two.variant = TWO;
    two.us = "5.0";
    put_table("a.tsv", text_of(good("count=4,rows=2")), text_of(slow), "");
    put_table("b.tsv", text_of(two), text_of(good("count=16,rows=2")), "");
    struct outcome o = attngen("table", "diff", "a.tsv", "b.tsv", "--format", "tsv", NULL);
    assert_run(o, 0);
    assert_string_equal(o.out,
                        "what\trequired\tproblem\tvariant_a\tus_a\tvariant_b\tus_b\tratio\n"
                        "gone\ttiny_fp32\tcount=4,rows=2\t" ONE "\t10.0\t-\t-\tnull\n"
                        "winner\ttiny_fp32\tcount=8,rows=2\t" ONE "\t10.0\t" TWO "\t5.0\t0.500\n"
                        "added\ttiny_fp32\tcount=16,rows=2\t-\t-\t" ONE "\t10.0\tnull\n");
    assert_holds(o.err, "1 rows added, 1 gone, 1 of another winner, 0 of the same (0 of another "
                        "digest); times of shared rows: 0.500");
    outcome_free(&o);
}

static void words(void **state)
{
    (void)state;
    struct outcome o = attngen("table", NULL);
    assert_run(o, 1);
    assert_holds(o.err, "table: found ''; allowed: merge A B, check FILE..., diff A B");
    outcome_free(&o);
    o = attngen("table", "merge", "a.tsv", NULL);
    assert_run(o, 1);
    assert_holds(o.err, "table merge: 1 files; allowed: two");
    outcome_free(&o);
    o = attngen("table", "check", NULL);
    assert_run(o, 1);
    assert_holds(o.err, "table check: no file; allowed: one or more");
    outcome_free(&o);
    o = attngen("table", "diff", "a.tsv", "b.tsv", "-o", "c.tsv", NULL);
    assert_run(o, 1);
    assert_holds(o.err, "table diff: --output is of merge alone");
    outcome_free(&o);
    put("n.tsv", "notes\n");
    o = attngen("table", "check", "n.tsv", NULL);
    assert_run(o, 1);
    assert_holds(o.err, "n.tsv: the first line is not \"# attngen tuning table\"");
    outcome_free(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_checked),
        cmocka_unit_test(problems_are_checked),
        cmocka_unit_test(rows_of_another_key_or_class),
        cmocka_unit_test(templates_know_the_source_alone),
        cmocka_unit_test(order_and_duplicates),
        cmocka_unit_test(of_two_rows_the_better_stays),
        cmocka_unit_test(two_kernels_of_one_name),
        cmocka_unit_test(rows_join_and_failures_count),
        cmocka_unit_test(tables_that_do_not_mix),
        cmocka_unit_test(differences),
        cmocka_unit_test(words),
    };
    return cmocka_run_group_tests(tests, build_once, remove_scratch);
}
