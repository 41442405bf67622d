/* `attngen check`: lint, and catalogs and products that are fresh, stale,
 * incomplete, left over or damaged. */
#include "format/product.h"
#include "support.h"

#include <sys/stat.h>

static int build_once(void **state)
{
    (void)state;
    copy_fixtures("x");
    struct outcome o = attngen("build", "--templates", "x", "-t", "sm_90a,sm_80", "-q", "-o",
                               "p.fatbin", "--catalog", "c.tsv", NULL);
    assert_run(o, 0);
    outcome_free(&o);
    return 0;
}

static struct outcome check(const char *option, const char *file)
{
    return attngen("check", "--templates", "x", "--format", "tsv", option, file, NULL);
}

static void a_clean_tree(void **state)
{
    (void)state;
    copy_fixtures("x");
    struct outcome o = check(NULL, NULL);
    assert_run(o, 0);
    assert_string_equal(o.out, "kind\twhere\twhat\n"
                               "warning\ttiny/tiny.cu.in\t7 of 28 lines are directives (25%); more "
                               "than 15% wants a helper\n");
    assert_holds(o.err, "check: 152 variants, 1 templates, 0 errors, 1 warnings");
    outcome_free(&o);
}

static void lint(void **state)
{
    (void)state;
    copy_fixtures("x");
    edit("x/tiny/tiny.cu.in", "// y = x / 2", "$if true");
    edit("x/tiny/family.lua", "values = { 1, 2, 4, 8 }", "values = { 1, 2, 4, 8, 16 }");
    edit("x/tiny/family.lua", "    return true\n",
         "    if v.width == 16 then return \"no\" end\n    return true\n");
    edit("x/tiny/family.lua", "{ name = \"path\"",
         "{ name = \"idle\", values = { 0, 1 } }, { name = \"path\"");
    edit("x/tiny/family.lua", "v.path == \"plain\" end", "v.path == \"plain\" and v.idle == 0 end");
    struct outcome o = check("-t", "sm_90a");
    assert_run(o, 0);
    assert_holds(
        o.out, "warning\ttiny/tiny.cu.in:1\ta line that starts with '$' but not with '$ ' is text");
    assert_holds(o.out, "warning\ttiny/family.lua\taxis value width=16 is in no legal variant");
    assert_holds(o.out, "_0_plain and ");
    assert_holds(o.out, " are the same kernel by two names");
    outcome_free(&o);
    copy_fixtures("x");
    edit("x/tiny/tiny.cu.in", "${NAME}", "${NAM}");
    o = check(NULL, NULL);
    assert_run(o, 1);
    assert_holds(o.err, "tiny/tiny.cu.in:8: undefined name \"NAM\"");
    outcome_free(&o);
}

static void fresh(void **state)
{
    (void)state;
    copy_fixtures("x");
    struct outcome o = check("--catalog", "c.tsv");
    assert_run(o, 0);
    assert_lacks(o.out, "error\t");
    /* The catalog says which targets it is for. */
    assert_holds(o.err, "check: 38 variants");
    outcome_free(&o);
    o = check("--product", "p.fatbin");
    assert_run(o, 0);
    outcome_free(&o);
}

/* A row of the catalog as one that the compiler refuses. */
static void refuse(const char *name)
{
    char key[128], digest[17] = "", line[256];
    char *text = get(in_scratch("c.tsv"), NULL);
    snprintf(key, sizeof key, "\n%s\t", name);
    char *at = strstr(text, key);
    assert_non_null(at);
    char *end = strchr(at + 1, '\n');
    memcpy(digest, end - 33, 16);
    snprintf(line, sizeof line, "# refused\t%s\t%s\tspills\n", name, digest);
    memmove(at + 1, end + 1, strlen(end + 1) + 1);
    char *changed = calloc(strlen(text) + sizeof line, 1);
    assert_non_null(changed);
    strcat(strcpy(changed, text), line);
    put("c.tsv", changed);
    free(changed);
    free(text);
}

#define V1 "tiny_fp32__sm80_v8_w4_plain"
#define V2 "tiny_fp64__sm80_v8_w4_plain"

static void what_a_product_lacks(void **state)
{
    (void)state;
    copy_fixtures("x");
    char *catalog = get(in_scratch("c.tsv"), NULL);
    static const char *const only[] = {"*_v1_*", "*_v2_*", "*_v4_*"};
    struct outcome o =
        attngen("build", "--templates", "x", "-t", "sm_80", "-q", "-o", "part.fatbin", "--only",
                only[0], "--only", only[1], "--only", only[2], NULL);
    assert_run(o, 0);
    outcome_free(&o);
    o = attngen("check", "--templates", "x", "--product", "part.fatbin", "--format", "tsv", NULL);
    assert_run(o, 1);
    assert_holds(o.out, "error\tpart.fatbin\tmissing: " V1 "\n");
    assert_holds(o.out, "error\tpart.fatbin\tmissing: " V2 "\n");
    assert_holds(o.err, " 2 errors"); /* of sm_80 alone, as the product is */
    outcome_free(&o);
    o = attngen("check", "--templates", "x", "--product", "part.fatbin", "--only", only[0],
                "--only", only[1], "--only", only[2], NULL);
    assert_run(o, 0);
    outcome_free(&o);
    /* Beside a catalog of more targets, too. */
    o = attngen("check", "--templates", "x", "--product", "part.fatbin", "--catalog", "c.tsv",
                NULL);
    assert_run(o, 1);
    assert_holds(o.err, " 2 errors");
    outcome_free(&o);
    refuse(V1);
    o = attngen("check", "--templates", "x", "--product", "part.fatbin", "--expect", "c.tsv",
                "--format", "tsv", NULL);
    assert_run(o, 1);
    assert_lacks(o.out, V1);
    assert_holds(o.out, "missing: " V2);
    outcome_free(&o);
    refuse(V2);
    o = attngen("check", "--templates", "x", "--product", "part.fatbin", "--expect", "c.tsv", NULL);
    assert_run(o, 0);
    outcome_free(&o);
    /* What is refused of another source says nothing. */
    edit("x/tiny/tiny.cu.in", "p.count)", "p.count - 0)");
    o = attngen("check", "--templates", "x", "--product", "part.fatbin", "--expect", "c.tsv", NULL);
    assert_run(o, 1);
    assert_holds(o.out, "missing: " V1);
    outcome_free(&o);
    put("c.tsv", catalog);
    free(catalog);
}

static void stale(void **state)
{
    (void)state;
    copy_fixtures("x");
    edit("x/tiny/tiny.cu.in", "p.count)", "p.count - 0)");
    static const char *const files[][2] = {{"--catalog", "c.tsv"}, {"--product", "p.fatbin"}};
    for (int i = 0; i < 2; i++) {
        struct outcome o = check(files[i][0], files[i][1]);
        char line[128];
        assert_run(o, 1);
        snprintf(line, sizeof line,
                 "error\t%s\tstale: tiny_fp32__sm90a_v2_w1_ring has changed since\n", files[i][1]);
        assert_holds(o.out, line);
        assert_holds(o.err, " 38 errors");
        outcome_free(&o);
    }
}

/* What is planned beside the source: it may change while every digest stays. */
static void stale_plans(void **state)
{
    (void)state;
    static const struct {
        const char *old, *new, *catalog, *product; /* NULL: that file does not hold it */
    } cases[] = {
        {"shared = v.path == \"ring\" and threads * v.width * 8 or 0", "shared = 64",
         "tiny_fp32__sm80_v1_w4_plain: shared_dynamic is 0, planned is 64\n",
         "tiny_fp32__sm80_v1_w4_plain: shared_dynamic is 0, planned is 64\n"},
        {"v.width == 1 and v.warps == 4", "v.width == 2 and v.warps == 4",
         "tiny_fp32__sm80_v1_w4_plain: fallback is 1, planned is 0\n",
         "tiny_fp32__sm80_v2_w4_plain: fallback is 0, planned is 1\n"},
        {"elements = threads * v.width,", "elements = threads,", NULL,
         "tiny_fp32__sm80_v8_w4_plain: facts is elements,ring:1024,0, planned is "
         "elements,ring:128,0\n"},
        {"fallback = function", "symbol = function(v) return \"x_\" end,\n  fallback = function",
         NULL, "symbol is tiny_fp32__sm80_v8_w4_plain, planned is x_tiny_fp32__sm80_v8_w4_plain\n"},
        {"{ name = \"warps\"", "{ name = \"crew\"",
         "axes is dtype=fp32;width=8;warps=4;path=plain, planned is "
         "dtype=fp32;width=8;crew=4;path=plain\n",
         NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        copy_fixtures("x");
        edit("x/tiny/family.lua", cases[i].old, cases[i].new);
        for (int j = 0; j < 3 && strstr(cases[i].new, "crew") != NULL; j++)
            edit("x/tiny/family.lua", "v.warps", "v.crew");
        struct outcome o = check("--catalog", "c.tsv");
        if (cases[i].catalog != NULL) {
            assert_run(o, 1);
            assert_holds(o.out, cases[i].catalog);
            assert_holds(o.out, "error\tc.tsv\tstale: ");
        }
        outcome_free(&o);
        o = check("--product", "p.fatbin");
        if (cases[i].product != NULL) {
            assert_run(o, 1);
            assert_holds(o.out, cases[i].product);
            assert_holds(o.out, "error\tp.fatbin\tstale: ");
        }
        outcome_free(&o);
    }
}

static void missing_and_orphans(void **state)
{
    (void)state;
    copy_fixtures("x");
    edit("x/tiny/family.lua", "{ 1, 4 }", "{ 2, 4 }");
    struct outcome o = check("--catalog", "c.tsv");
    assert_run(o, 1);
    assert_holds(o.out, "error\tc.tsv\tmissing: tiny_fp32__sm90a_v2_w2_ring\n");
    assert_holds(o.out, "error\tc.tsv\torphan: there is no variant tiny_fp32__sm90a_v2_w1_ring\n");
    assert_lacks(o.out, "stale");
    outcome_free(&o);
    copy_fixtures("x");
    /* With other targets asked for: those are missing, the rest are orphans. */
    o = attngen("check", "--templates", "x", "--format", "tsv", "--catalog", "c.tsv", "-t",
                "sm_80,sm_86", NULL);
    assert_run(o, 1);
    assert_holds(o.out, "missing: tiny_fp32__sm86_v1_w4_plain");
    assert_holds(o.out, "orphan: there is no variant tiny_fp32__sm90a_v1_w4_plain");
    outcome_free(&o);
}

static void refused_variants_are_no_holes(void **state)
{
    (void)state;
    copy_fixtures("x");
    edit("x/tiny/family.lua", "max_registers = 64", "max_registers = v.width == 8 and 10 or 64");
    struct outcome o = attngen("build", "--templates", "x", "-t", "sm_90a", "-q", "-o", "r.fatbin",
                               "--catalog", "r.tsv", NULL);
    assert_run(o, 0);
    outcome_free(&o);
    char *text = get(in_scratch("r.tsv"), NULL);
    assert_holds(text, "\n# refused\ttiny_fp32__sm90a_v8_w4_plain\t");
    free(text);
    o = check("--catalog", "r.tsv");
    assert_run(o, 0);
    outcome_free(&o);
}

static void damaged(const char *text, const char *message)
{
    put("bad.tsv", text);
    struct outcome o = check("--catalog", "bad.tsv");
    assert_run(o, 1);
    assert_holds(o.err, message);
    outcome_free(&o);
}

#define HEAD "# attngen catalog 2\n"
#define COLUMNS                                                                                 \
    "name\tfamily\trequired\ttarget\taxes\tthreads\tshared_dynamic\tshared_static\tregisters\t" \
    "cluster\tfallback\tdigest\tcode\n"

static void damaged_catalogs(void **state)
{
    (void)state;
    copy_fixtures("x");
    damaged("", "bad.tsv: no column names: it is cut short");
    damaged("name\tfamily\n", "bad.tsv:1: found 'name\tfamily'; allowed: '# attngen catalog 2'");
    damaged(HEAD, "bad.tsv: no column names: it is cut short");
    damaged(HEAD "name\tdigest\n", "bad.tsv:2: not the column names of a catalog");
    damaged(HEAD COLUMNS "a\tb\n", "bad.tsv:3: 2 fields; allowed: 13");
    damaged(HEAD COLUMNS "a\tb\tc\td\te\t1\t2\t3\t4\t5\t6\txyz\t0123456789abcdef\n",
            "bad.tsv:3: digest 'xyz'; allowed: 16 hexadecimal digits");
    damaged(HEAD COLUMNS "a\tb\tc\td\te\t1\t2\t3\t4\t5\t6\t0123456789abcdef\t0x12\n",
            "bad.tsv:3: digest '0x12'; allowed: 16 hexadecimal digits");
#define ROW "a\tb\tc\td\te\t1\t2\t3\t4\t5\t6\t0123456789abcdef\t0123456789abcdef\n"
    damaged(HEAD COLUMNS ROW ROW, "bad.tsv: a stands twice");
    damaged(HEAD "# refused\ta\n" COLUMNS, "bad.tsv:2: 2 fields; allowed: 4");
    struct outcome o = check("--catalog", "none.tsv");
    assert_run(o, 1);
    assert_holds(o.err, "none.tsv: cannot read it: No such file");
    outcome_free(&o);
}

/* A flipped bit is noticed wherever it is: in the images, in what fills them up, in the index and
 * in the footer. */
static void damaged_products(void **state)
{
    (void)state;
    copy_fixtures("x");
    size_t size;
    char *data = get(in_scratch("p.fatbin"), &size);
    struct gen_pack_footer footer;
    size_t foot = size - sizeof footer;
    memcpy(&footer, data + foot, sizeof footer);
    uint64_t random = 2023;
    for (size_t i = 0; i < 80 + sizeof footer; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        size_t at = i < 40 ? footer.index_offset + i * footer.index_size / 40
                           : (random >> 16) % footer.index_offset;
        if (i >= 80)
            at = foot + i - 80;
        const char bit = (char)(1 << (random >> 61));
        data[at] ^= bit;
        put_bytes(in_scratch("bad.fatbin"), data, size);
        data[at] ^= bit;
        struct outcome o = check("--product", "bad.fatbin");
        assert_run(o, 1);
        assert_holds(o.err, "attngen: bad.fatbin: ");
        outcome_free(&o);
    }
    static const size_t cuts[] = {0, 1, 47, 48, 1000};
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
        put_bytes(in_scratch("bad.fatbin"), data, cuts[i]);
        struct outcome o = check("--product", "bad.fatbin");
        assert_run(o, 1);
        assert_holds(o.err, "bad.fatbin: no product of attngen");
        outcome_free(&o);
    }
    free(data);
}

static void older_products(void **state)
{
    (void)state;
    size_t size;
    char *data = get(in_scratch("p.fatbin"), &size);
    struct gen_pack_footer footer;
    memcpy(&footer, data + size - sizeof footer, sizeof footer);
    footer.version = 3;
    memcpy(data + size - sizeof footer, &footer, sizeof footer);
    put_bytes(in_scratch("old.fatbin"), data, size);
    struct outcome o = check("--product", "old.fatbin");
    assert_run(o, 1);
    assert_holds(o.err, "old.fatbin: product format 3; allowed: 5; `attngen build` makes it anew");
    outcome_free(&o);
    free(data);
}

/* Whoever waits for a FIFO's writer waits for ever. */
static void no_regular_files(void **state)
{
    (void)state;
    assert_int_equal(mkfifo(in_scratch("fifo"), 0666), 0);
    static const char *const options[] = {"--product", "--catalog"};
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        struct outcome o = check(options[i], "fifo");
        assert_run(o, 1);
        assert_holds(o.err, "fifo: cannot read it: Invalid argument");
        outcome_free(&o);
        o = check(options[i], "x");
        assert_run(o, 1);
        assert_holds(o.err, "x: cannot read it: Is a directory");
        outcome_free(&o);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_clean_tree),
        cmocka_unit_test(lint),
        cmocka_unit_test(fresh),
        cmocka_unit_test(what_a_product_lacks),
        cmocka_unit_test(stale),
        cmocka_unit_test(stale_plans),
        cmocka_unit_test(missing_and_orphans),
        cmocka_unit_test(refused_variants_are_no_holes),
        cmocka_unit_test(damaged_catalogs),
        cmocka_unit_test(damaged_products),
        cmocka_unit_test(older_products),
        cmocka_unit_test(no_regular_files),
    };
    return cmocka_run_group_tests(tests, build_once, remove_scratch);
}
