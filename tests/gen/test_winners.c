/* `attngen build --winners`: which variants of a table's rows are kept, and whose the rows become.
 */
#include "format/product.h"
#include "support.h"

/* By name: ONE, the fallback of its key, then A, X and B. */
#define ONE "tiny_fp32__sm90a_v1_w4_plain"
#define X "tiny_fp32__sm90a_v2_w4_plain"
#define A "tiny_fp32__sm90a_v4_w4_plain"
#define B "tiny_fp32__sm90a_v8_w4_plain"
#define OTHER "0123456789abcdef"
#define HEAD                                                                               \
    "# attngen tuning table\n# format: 1\n# class: sm90_132sm\n# compute_capability: 90\n" \
    "# num_sms: 132\n# memory_gbps: 4814\n# l2_bytes: 62914560\n"                          \
    "family\trequired\tproblem\tvariant\tus\trunner_up\trunner_up_us\tdigest\n"

static char catalog[8192];

static int build_once(void **state)
{
    (void)state;
    copy_fixtures("x");
    edit("x/tiny/family.lua", "  facts =", "  coords = { \"count\" },\n  facts =");
    struct outcome o = attngen("build", "--templates", "x", "-t", "sm_90a", "-q", "-o", "p.fatbin",
                               "--catalog", "c.tsv", NULL);
    assert_run(o, 0);
    outcome_free(&o);
    char *text = get(in_scratch("c.tsv"), NULL);
    assert_true(strlen(text) < sizeof catalog);
    memcpy(catalog, text, strlen(text) + 1);
    free(text);
    return 0;
}

static const char *digest_of(const char *name)
{
    static char digests[8][17];
    static int next;
    char key[128], *digest = digests[next++ % 8];
    snprintf(key, sizeof key, "\n%s\t", name);
    const char *line = strstr(catalog, key);
    assert_non_null(line);
    memcpy(digest, strchr(line + 1, '\n') - 33, 16);
    return digest;
}

static const char *row(int count, const char *variant, const char *us, const char *runner_up,
                       const char *runner_up_us, const char *digest)
{
    static char text[8][512];
    static int next;
    char *at = text[next++ % 8];
    snprintf(at, sizeof text[0], "tiny\ttiny_fp32\tcount=%d\t%s\t%s\t%s\t%s\t%s\n", count, variant,
             us, runner_up, runner_up_us, digest != NULL ? digest : digest_of(variant));
    return at;
}

static void put_rows(const char *a, const char *b, const char *c, const char *d)
{
    char text[4096];
    snprintf(text, sizeof text, HEAD "%s%s%s%s", a, b, c, d);
    put("sm90_132sm.tsv", text);
}

static struct outcome winners(const char *max_regret)
{
    return attngen("build", "--templates", "x", "-t", "sm_90a", "-o", "w.fatbin", "--winners",
                   "sm90_132sm.tsv", "--max-regret", max_regret, NULL);
}

/* ---- the product ------------------------------------------------------------------------ */

static struct {
    char *data;
    struct gen_pack_index index;
    const char *strings;
} product;

static void open_product(void)
{
    struct gen_pack_footer footer;
    size_t size;
    product.data = get(in_scratch("w.fatbin"), &size);
    memcpy(&footer, product.data + size - sizeof footer, sizeof footer);
    memcpy(&product.index, product.data + footer.index_offset, sizeof product.index);
    product.strings = product.data + product.index.strings_offset;
}

static const char *variant_name(uint32_t i)
{
    struct gen_pack_variant v;
    memcpy(&v, product.data + product.index.variants_offset + i * sizeof v, sizeof v);
    return product.strings + v.name;
}

/* The embedded table has `count` rows and none that were left out. */
static void assert_rows(uint32_t count)
{
    struct gen_pack_table table;
    assert_int_equal(product.index.num_tables, 1);
    memcpy(&table, product.data + product.index.tables_offset, sizeof table);
    assert_int_equal(table.num_rows, count);
    assert_int_equal(table.num_bad + table.num_expired, 0);
}

static void assert_row(uint32_t i, const char *name, double us)
{
    struct gen_pack_row r;
    memcpy(&r, product.data + product.index.rows_offset + i * sizeof r, sizeof r);
    assert_string_equal(variant_name(r.variant), name);
    assert_true(r.us > us * 0.99999 && r.us < us * 1.00001);
}

static void assert_variants(const char *const *names, uint32_t count)
{
    assert_int_equal(product.index.num_variants, count + 1); /* and the fallback of fp64 */
    for (uint32_t i = 0; i < count; i++)
        assert_string_equal(variant_name(i), names[i]);
}

/* ---- the tests -------------------------------------------------------------------------- */

static void a_runner_up_within_the_limit_is_enough(void **state)
{
    (void)state;
    put_rows(row(1, A, "10.0", B, "10.1", NULL), row(2, B, "5.0", A, "5.2", NULL), "", "");
    struct outcome o = winners("0.01");
    assert_run(o, 0);
    assert_holds(o.err,
                 "--winners: 3 of 24 variants (8.0 times fewer): 2 fallbacks and 1 that rows "
                 "need; regret over 2 rows: geometric mean 1.00499, worst 1.0100");
    assert_holds(o.err,
                 "1 rows go to another variant that they have a time of; 1 have no choice within");
    outcome_free(&o);
    open_product();
    assert_variants((const char *const[]){ONE, B}, 2);
    assert_rows(2);
    assert_row(0, B, 10.1);
    assert_row(1, B, 5.0);
    free(product.data);
    o = winners("0.0099"); /* 10.1 is above 10.099 */
    assert_run(o, 0);
    assert_holds(o.err, "4 of 24 variants");
    assert_holds(o.err, "geometric mean 1.00000, worst 1.0000");
    outcome_free(&o);
    open_product();
    assert_variants((const char *const[]){ONE, A, B}, 3);
    assert_row(0, A, 10.0);
    free(product.data);
}

/* A time counts where a row says that it is of the kernel that is there now. */
static void times_of_other_kernels_do_not_count(void **state)
{
    (void)state;
    put_rows(row(1, A, "10.0", B, "10.1", NULL), row(2, B, "5.0", "-", "-", OTHER), "", "");
    struct outcome o = winners("0.01");
    assert_run(o, 0);
    assert_holds(o.err, "4 of 24 variants");
    assert_holds(o.err, "2 have no choice within --max-regret 0.01, because they have too "
                        "few times or, 1 of them, is of another source");
    outcome_free(&o);
    put_rows(row(1, A, "10.0", B, "10.1", OTHER), row(2, B, "5.0", "-", "-", NULL), "", "");
    o = winners("0.01");
    assert_run(o, 0);
    assert_holds(o.err, "4 of 24 variants");
    outcome_free(&o);
}

static void a_fallback_serves_for_nothing(void **state)
{
    (void)state;
    put_rows(row(1, A, "10.0", ONE, "10.05", NULL), row(2, ONE, "5.0", "-", "-", NULL), "", "");
    struct outcome o = winners("0.01");
    assert_run(o, 0);
    assert_holds(o.err, "2 of 24 variants");
    outcome_free(&o);
    open_product();
    assert_variants((const char *const[]){ONE}, 1);
    assert_row(0, ONE, 10.05);
    free(product.data);
}

/* X stands first by name and serves two rows as others do, but A and B are needed anyhow. */
static void what_others_make_needless_goes(void **state)
{
    (void)state;
    put_rows(row(1, X, "10.0", A, "10.01", NULL), row(2, X, "10.0", B, "10.02", NULL),
             row(3, A, "3.0", "-", "-", NULL), row(4, B, "4.0", "-", "-", NULL));
    struct outcome o = winners("0.01");
    assert_run(o, 0);
    assert_holds(o.err, "worst 1.0020");
    outcome_free(&o);
    open_product();
    assert_variants((const char *const[]){ONE, A, B}, 3);
    assert_rows(4);
    assert_row(0, A, 10.01);
    assert_row(1, B, 10.02);
    free(product.data);
}

static void rows_of_other_targets_are_counted(void **state)
{
    (void)state;
    put_rows(row(1, A, "10.0", "-", "-", NULL), row(2, "gone", "1.0", A, "1.001", OTHER), "", "");
    struct outcome o = winners("0.01");
    assert_run(o, 0);
    assert_holds(o.err, "3 of 24 variants");
    assert_holds(o.err, "regret over 1 rows");
    assert_holds(o.err, "--winners: 1 rows name no variant of these families and targets");
    outcome_free(&o);
    put_rows(row(2, "gone", "1.0", "-", "-", OTHER), "", "", "");
    o = winners("0.01");
    assert_run(o, 0); /* as a wheel for GPUs that were never tuned */
    assert_holds(o.err, "--winners: none of 1 rows names a variant of these families and targets: "
                        "the 2 fallbacks alone are kept, of 24 variants\n");
    assert_lacks(o.err, "regret");
    outcome_free(&o);
}

static void classes_and_numbers(void **state)
{
    (void)state;
    put_rows(row(1, A, "10.0", "-", "-", NULL), "", "", "");
    /* A class of --tables; that table is embedded once. */
    struct outcome o = attngen("build", "--templates", "x", "-t", "sm_90a", "-o", "w.fatbin",
                               "--tables", "sm90_132sm.tsv", "--winners", "sm90_132sm", NULL);
    assert_run(o, 0);
    outcome_free(&o);
    open_product();
    assert_rows(1);
    free(product.data);
    o = attngen("plan", "--templates", "x", "-t", "sm_90a", "--winners", "sm90_132sm.tsv",
                "--format", "tsv", NULL);
    assert_run(o, 0);
    assert_holds(o.out, "total\t\t3\t");
    outcome_free(&o);
    o = attngen("build", "--templates", "x", "--winners", "sm99_1sm", NULL);
    assert_run(o, 1);
    assert_holds(o.err, "--winners: there is no table of class sm99_1sm among --tables");
    outcome_free(&o);
    o = attngen("build", "--templates", "x", "--max-regret", "0.1", NULL);
    assert_run(o, 1);
    assert_holds(o.err, "--max-regret: of which tables? Give --winners CLASS");
    outcome_free(&o);
    static const char *const numbers[] = {"-0.1", "10.1", "nan", "1%"};
    for (size_t i = 0; i < 4; i++) {
        o = winners(numbers[i]);
        assert_run(o, 1);
        assert_holds(o.err, "is no number; allowed: 0 to 10");
        outcome_free(&o);
    }
    o = attngen("build", "--templates", "x", "--winners", "sm90_132sm.tsv", "--from-table",
                "sm90_132sm.tsv", NULL);
    assert_run(o, 1);
    assert_holds(o.err, "--winners and --from-table exclude each other");
    outcome_free(&o);
}

/* Further times of a row: of B it has one within the limit, and of what is not there or malformed
 * none that counts. */
static void other_times_of_a_row(void **state)
{
    (void)state;
    static const struct {
        const char *others;
        const char *first; /* whose the first row becomes */
    } cases[] = {{X "=10.2," B "=10.05", B},
                 {B "=10.05", B},
                 {B "=10.2", A},
                 {"-", A},
                 {"gone=1.0," B "=x," B, A},
                 {"gone=1.0," B "=10.0", B},
                 {B "=," A "=1", A}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[2048], *end;
        snprintf(text, sizeof text, HEAD);
        end = text + strlen(text) - 1;
        snprintf(end, (size_t)(text + sizeof text - end),
                 "\tothers\ntiny\ttiny_fp32\tcount=1\t" A "\t10.0\t" X "\t10.02\t%s\t%s\n"
                 "tiny\ttiny_fp32\tcount=2\t" B "\t5.0\t-\t-\t%s\t-\n",
                 digest_of(A), cases[i].others, digest_of(B));
        put("sm90_132sm.tsv", text);
        struct outcome o = winners("0.01");
        assert_run(o, 0);
        outcome_free(&o);
        open_product();
        assert_rows(2);
        assert_row(0, cases[i].first, strcmp(cases[i].first, A) == 0 || i == 5 ? 10.0 : 10.05);
        assert_row(1, B, 5.0);
        assert_int_equal(product.index.num_variants, strcmp(cases[i].first, A) == 0 ? 4 : 3);
        free(product.data);
    }
}

/* Groups of the fp32 key, by whether they say that the product lacks variants of rows. */
static int groups_with_holes(const char *table, const char *only)
{
    int count = 0;
    struct outcome o = attngen("build", "--templates", "x", "-t", "sm_90a,sm_80", "-q", "-o",
                               "w.fatbin", "--tables", table, "--only", only, NULL);
    assert_run(o, 0);
    outcome_free(&o);
    open_product();
    for (uint32_t i = 0; i < product.index.num_groups; i++) {
        struct gen_pack_group group;
        struct gen_pack_target target;
        memcpy(&group, product.data + product.index.groups_offset + i * sizeof group, sizeof group);
        memcpy(&target, product.data + product.index.targets_offset + group.target * sizeof target,
               sizeof target);
        if (group.lacks_rows) {
            assert_string_equal(product.strings + group.name, "tiny_fp32");
            assert_int_equal(target.compute_capability, 90);
            count++;
        }
    }
    free(product.data);
    return count;
}

/* A product of some variants says where rows of others stood, for what runs on the table's class.
 */
static void a_part_of_a_table_says_so(void **state)
{
    (void)state;
    put_rows(row(1, A, "10.0", B, "10.01", NULL), row(2, B, "5.0", "-", "-", NULL), "", "");
    assert_int_equal(groups_with_holes("sm90_132sm.tsv", "*_v4_*"), 1);
    assert_int_equal(groups_with_holes("sm90_132sm.tsv", "*"), 0);
    struct outcome o = winners("0.01"); /* the row is moved, so there is no hole */
    assert_run(o, 0);
    outcome_free(&o);
    open_product();
    for (uint32_t i = 0; i < product.index.num_groups; i++) {
        struct gen_pack_group group;
        memcpy(&group, product.data + product.index.groups_offset + i * sizeof group, sizeof group);
        assert_int_equal(group.lacks_rows, 0);
    }
    free(product.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_runner_up_within_the_limit_is_enough),
        cmocka_unit_test(times_of_other_kernels_do_not_count),
        cmocka_unit_test(a_fallback_serves_for_nothing),
        cmocka_unit_test(what_others_make_needless_goes),
        cmocka_unit_test(rows_of_other_targets_are_counted),
        cmocka_unit_test(classes_and_numbers),
        cmocka_unit_test(other_times_of_a_row),
        cmocka_unit_test(a_part_of_a_table_says_so),
    };
    return cmocka_run_group_tests(tests, build_once, remove_scratch);
}
