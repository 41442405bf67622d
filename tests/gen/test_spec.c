/* family.lua: every mistake is reported with its line; legality, reasons, names. */
#include "support.h"

/* A family that is right; each test breaks one thing. */
static const char good[] =
    "return family {\n"                                            /* 1 */
    "  name = \"fam\",\n"                                          /* 2 */
    "  required = {\n"                                             /* 3 */
    "    { name = \"dtype\", values = { \"bf16\", \"fp16\" } },\n" /* 4 */
    "    { name = \"dim\", values = { 64, 128 }, tag = \"d\" },\n" /* 5 */
    "  },\n"                                                       /* 6 */
    "  free = {\n"                                                 /* 7 */
    "    { name = \"tile\", values = { 4, 8 }, tag = \"t\" },\n"   /* 8 */
    "    { name = \"load\", values = { \"ld\", \"bulk\" } },\n"    /* 9 */
    "  },\n"                                                       /* 10 */
    "  legal = function(v, arch)\n"                                /* 11 */
    "    if v.load == \"bulk\" and not arch.bulk_copy then return \"no bulk\" end\n"
    "    if v.dim == 64 and v.tile == 8 then return \"too wide\" end\n"          /* 13 */
    "    return true\n"                                                          /* 14 */
    "  end,\n"                                                                   /* 15 */
    "  facts = { \"rows\" },\n"                                                  /* 16 */
    "  plan = function(v, arch)\n"                                               /* 17 */
    "    return { threads = 128, shared = 0, cluster = 1, max_registers = 64,\n" /* 18 */
    "      facts = { rows = v.dim // v.tile } }\n"                               /* 19 */
    "  end,\n"                                                                   /* 20 */
    "  template = function(v) return \"fam.cu.in\" end,\n"                       /* 21 */
    "  fallback = function(v) return v.tile == 4 and v.load == \"ld\" end,\n"    /* 22 */
    "}\n";                                                                       /* 23 */

static void reset(void)
{
    put("x/fam/family.lua", good);
    put("x/fam/fam.cu.in", "${NAME}\n");
}

static struct outcome list(const char *targets)
{
    return attngen("list", "--templates", "x", "-t", targets, "--format", "tsv", NULL);
}

/* With `old` replaced by `new` the list fails with this message. */
static void broken(const char *old, const char *new, const char *message)
{
    reset();
    edit("x/fam/family.lua", old, new);
    struct outcome o = list("sm_90a");
    assert_run(o, 1);
    assert_holds(o.err, message);
    assert_lacks(o.err, "internal");
    outcome_free(&o);
}

static void fields(void **state)
{
    (void)state;
    broken("  name = \"fam\",", "  name = \"other\",",
           "fam/family.lua:2: field name is \"other\"; allowed: \"fam\", the folder's name");
    broken("  name = \"fam\",", "  name = 3,",
           "fam/family.lua:2: field name is 3; allowed: a string");
    broken("  facts = { \"rows\" },\n", "", "fam/family.lua:1: missing field facts, a table");
    broken("  legal = ", "  legol = ",
           "fam/family.lua:11: unknown field \"legol\" (did you mean legal?); "
           "allowed: constants, coords, facts, fallback, free, legal, name, "
           "plan, required, serves, symbol, template");
    /* Fields are looked for in the file to the letter. */
    broken("  name = \"fam\",", "  name = \"fam\", [\"a[\"] = 1,",
           "fam/family.lua:1: unknown field \"a[\"; allowed: constants");
    broken("  template = function(v) return \"fam.cu.in\" end,", "  template = \"fam.cu.in\",",
           "fam/family.lua:21: field template is \"fam.cu.in\"; allowed: a function");
    broken("return family {", "return {",
           "fam/family.lua:1: the file returns a table; allowed: return "
           "family { ... }");
    broken("return family {", "family {", "the file returns nil");
    broken("return family {", "family {}\nreturn family {", "fam/family.lua:1: missing field");
    broken("return family {", "return family 3 --[[", "fam/family.lua:");
}

static void axes(void **state)
{
    (void)state;
    broken("{ 4, 8 }, tag", "{}, tag", "fam/family.lua:8: axis tile: values is no list");
    broken("{ 4, 8 }, tag", "7, tag", "fam/family.lua:8: axis tile: values is 7");
    broken("{ 4, 8 }, tag", "{ 4, 8, 4 }, tag",
           "fam/family.lua:8: axis tile: value 4 stands twice");
    broken("{ 4, 8 }, tag", "{ 4, \"4\" }, tag",
           "fam/family.lua:8: axis tile: value \"4\" stands twice");
    broken("{ 4, 8 }, tag", "{ 4.5 }, tag",
           "fam/family.lua:8: axis tile: a value is 4.5; allowed: strings and integers");
    broken("{ 4, 8 }, tag", "{ true }, tag", "axis tile: a value is true");
    broken("{ 4, 8 }, tag", "{ -1 }, tag",
           "fam/family.lua:8: axis tile: value -1 cannot be part of a C name");
    broken("{ 4, 8 }, tag", "{ \"a-b\" }, tag", "value \"a-b\" cannot be part of a C name");
    broken("{ 4, 8 }, tag", "{ 4, 8 }, tags",
           "fam/family.lua:8: axis tile: unknown field \"tags\"; "
           "allowed: name, tag, unspelled, values");
    broken("{ 4, 8 }, tag", "{ 4, 8 }, unspelled = 6, tag",
           "fam/family.lua:8: axis tile: unspelled is 6; allowed: one of the values");
    broken("{ 4, 8 }, tag", "{ 4, 8 }, unspelled = \"4\", tag",
           "fam/family.lua:8: axis tile: unspelled is \"4\"; allowed: one of the values");
    broken("{ 64, 128 }, tag", "{ 64, 128 }, unspelled = 32, tag",
           "fam/family.lua:5: axis dim: unspelled is 32; allowed: one of the values");
    broken("tag = \"t\"", "tag = \"-\"", "fam/family.lua:8: axis tile: tag is \"-\"");
    broken("name = \"load\"", "name = \"tile\"", "axis tile stands twice");
    broken("name = \"load\"", "name = \"dtype\"", "axis dtype stands twice");
    broken("name = \"load\"", "name = \"Load\"", "free: entry 2 has the name \"Load\"");
    broken("name = \"load\"", "nam = \"load\"", "free: entry 2 has the name nil");
    broken("{ name = \"load\", values = { \"ld\", \"bulk\" } }", "3", "free: entry 2 is 3");
    broken("  facts = { \"rows\" }", "  facts = { \"rows\", \"rows\" }",
           "fam/family.lua:16: facts: rows stands twice");
    broken("  facts = { \"rows\" }",
           "  facts = { "
           "\"a\",\"b\",\"c\",\"d\",\"e\",\"f\",\"g\",\"h\",\"i\",\"j\",\"k\",\"l\",\"m\" }",
           "fam/family.lua:16: facts holds 13 entries; allowed: a list of at most 12");
}

static void functions(void **state)
{
    (void)state;
    broken("    return true\n", "    return 1\n",
           "fam/family.lua:11: legal() returned 1 for dtype=bf16;dim=64;tile=4;load=ld on sm_90a; "
           "allowed: true, or a sentence");
    broken("    return true\n", "", "fam/family.lua:11: legal() returned nil for");
    broken("v.dim == 64 and", "v.dimm == 64 and",
           "fam/family.lua:13: there is no axis \"dimm\"; allowed: dtype, dim, tile, load (for "
           "dtype=bf16;dim=64;tile=4;load=ld on sm_90a)");
    broken("arch.bulk_copy", "arch.bulk",
           "fam/family.lua:12: arch has no field \"bulk\"; allowed: ");
    broken("    return true\n", "    v.tile = 3\n    return true\n",
           "fam/family.lua:14: attempt to set 'tile' of v, which is read-only");
    broken("threads = 128", "threads = 100",
           "fam/family.lua:17: plan of fam_bf16_d64__sm90a_t4_ld: threads is 100; allowed: a "
           "multiple of 32");
    broken("threads = 128", "threads = 2048",
           "threads is 2048; allowed: an integer from 1 to 1024");
    broken("threads = 128", "threads = 128.0",
           "threads is 128.0; allowed: an integer from 1 to 1024");
    broken("threads = 128, ", "", "threads is nil; allowed: an integer");
    broken("shared = 0", "shared = 300000", "shared is 300000; allowed on sm_90a: at most 232448");
    broken("max_registers = 64", "max_registers = 256",
           "max_registers is 256; allowed: an integer from 1 to 255");
    broken("cluster = 1", "cluster = 0", "cluster is 0; allowed: an integer from 1 to 16");
    broken("cluster = 1", "clusters = 1",
           "unknown field \"clusters\"; allowed: cluster, facts, max_registers, shared, threads");
    broken("rows = v.dim // v.tile", "rows = v.dim / v.tile",
           "fam/family.lua:17: plan of fam_bf16_d64__sm90a_t4_ld: fact rows is 16.0; allowed: an "
           "integer");
    broken("rows = v.dim // v.tile", "row = 1", "fact rows is nil");
    broken("rows = v.dim // v.tile", "rows = 1, more = 2",
           "unknown fact \"more\"; allowed, as the field "
           "facts lists them: rows");
    broken("rows = v.dim // v.tile", "rows = 1 << 31", "fact rows is 2147483648");
    broken("return \"fam.cu.in\"", "return \"../fam.cu.in\"",
           "fam/family.lua:21: template of fam_bf16_d64__sm90a_t4_ld is \"../fam.cu.in\"");
    broken("return \"fam.cu.in\"", "return \"none.cu.in\"",
           "fam/family.lua: the template x/fam/none.cu.in, which it names, cannot be read");
    broken("return v.tile == 4 and", "return v.tile == 4 and 5 or",
           "fam/family.lua:22: fallback of fam_bf16_d64__sm90a_t4_ld is 5; allowed: true or false");
    broken("  facts = {", "  symbol = function(v) return \"a-\" end,\n  facts = {",
           "fam/family.lua:16: symbol of fam_bf16_d64__sm90a_t4_ld is \"a-\"; allowed: the start "
           "of a C name");
}

static void cluster_needs_hardware(void **state)
{
    (void)state;
    reset();
    edit("x/fam/family.lua", "cluster = 1", "cluster = 2");
    struct outcome o = list("sm_80");
    assert_run(o, 1);
    assert_holds(o.err, "cluster is 2; allowed on sm_80: 1");
    outcome_free(&o);
}

static void fallbacks(void **state)
{
    (void)state;
    broken(
        "v.tile == 4 and v.load == \"ld\"", "false",
        "fam/family.lua:22: fam_bf16_d64 on sm_90a has 0 fallback variants; allowed: exactly one");
    broken("v.tile == 4 and v.load == \"ld\"", "v.tile == 4",
           "fam/family.lua:22: fam_bf16_d64 on sm_90a has 2 fallback variants "
           "(fam_bf16_d64__sm90a_t4_ld, fam_bf16_d64__sm90a_t4_bulk, ...); allowed: exactly one");
    broken("v.dim == 64 and v.tile == 8", "v.dim == 128",
           "fam/family.lua:11: legal() leaves fam_bf16_d128 with no variant on sm_90a; most often: "
           "too wide");
}

static void keys_that_a_target_does_not_serve(void **state)
{
    (void)state;
    static const char serves[] =
        "  serves = function(v, arch)\n"
        "    if v.dim == 128 and arch.cc < 90 then return \"128 needs sm_90\" end\n"
        "    return true\n"
        "  end,\n"
        "  facts = {";
    reset();
    edit("x/fam/family.lua", "  facts = {", serves);
    struct outcome o = attngen("list", "families", "--templates", "x", "-t", "sm_80,sm_90a",
                               "--format", "tsv", NULL);
    assert_run(o, 0);
    assert_string_equal(o.out, "family\ttarget\tkeys\tvariants\tcombinations\n"
                               "fam\tsm_80\t2\t2\t16\n"
                               "fam\tsm_90a\t4\t12\t16\n");
    outcome_free(&o);
    o = attngen("why", "dim=128", "--templates", "x", "-t", "sm_80", "--format", "tsv", NULL);
    assert_run(o, 0);
    assert_holds(o.out, "fam\tsm_80\t2\t128 needs sm_90\n");
    outcome_free(&o);
    /* A name that such a target would have is asked for like any other. */
    o = attngen("why", "fam_bf16_d128__sm80_t4_ld", "--templates", "x", "--format", "tsv", NULL);
    assert_run(o, 0);
    assert_string_equal(o.out, "family\ttarget\tcombinations\twhy\n"
                               "fam\tsm_80\t1\t128 needs sm_90\n");
    outcome_free(&o);
    broken("  facts = {", "  serves = function(v) return v.tile end,\n  facts = {",
           "there is no axis \"tile\"; allowed: dtype, dim");
}

static void the_list(void **state)
{
    (void)state;
    reset();
    struct outcome o = list("90a");
    assert_run(o, 0);
    assert_int_equal(count_rows(o.out), 12);
    assert_holds(o.out, "\nfam_bf16_d128__sm90a_t8_bulk\tfam\tfam_bf16_d128\tsm_90a\t"
                        "dtype=bf16;dim=128;tile=8;load=bulk\t128\t0\t1\t0\n");
    assert_holds(o.out, "\nfam_fp16_d64__sm90a_t4_ld\tfam\tfam_fp16_d64\tsm_90a\t"
                        "dtype=fp16;dim=64;tile=4;load=ld\t128\t0\t1\t1\n");
    outcome_free(&o);
    o = list("80,ptx");
    assert_run(o, 0);
    assert_int_equal(count_rows(o.out), 12);
    assert_holds(o.out, "fam_bf16_d128__ptx80_t8_ld\tfam\tfam_bf16_d128\tcompute_80");
    assert_lacks(o.out, "bulk");
    outcome_free(&o);
    o = attngen("list", "--templates", "x", "-t", "all", "--only", "*d64__*", "--only", "*_t8_ld",
                "--format", "tsv", NULL);
    assert_run(o, 0);
    /* 8 targets x 2 types x (t4_ld of 64, and t8_ld of 128), and bulk of 64 on four. */
    assert_int_equal(count_rows(o.out), 8 * 2 * 2 + 4 * 2);
    outcome_free(&o);
}

static void tables_of_the_family(void **state)
{
    (void)state;
    reset();
    struct outcome o = attngen("list", "axes", "--templates", "x", "--format", "json", NULL);
    assert_run(o, 0);
    assert_holds(o.out, "{\"family\": \"fam\", \"axis\": \"dim\", \"kind\": \"required\", "
                        "\"values\": \"64,128\"}");
    outcome_free(&o);
    o = attngen("list", "keys", "--templates", "x", "-t", "sm_90a", "--format", "tsv", NULL);
    assert_run(o, 0);
    assert_holds(o.out, "fam\tfam_bf16_d64\tbf16,64\tsm_90a\t2\tfam_bf16_d64__sm90a_t4_ld\n");
    outcome_free(&o);
}

static void names_are_unique(void **state)
{
    (void)state;
    broken(
        "{ name = \"load\", values = { \"ld\", \"bulk\" } }",
        "{ name = \"load\", values = { \"ld\" } }, { name = \"a\", values = { \"x\", \"x_y\" } }, "
        "{ name = \"b\", values = { \"y_z\", \"z\" } }",
        "has 4 fallback variants");
    reset();
    edit("x/fam/family.lua", "{ name = \"load\", values = { \"ld\", \"bulk\" } }",
         "{ name = \"load\", values = { \"ld\" } }, { name = \"a\", values = { \"x\", \"x_y\" } }, "
         "{ name = \"b\", values = { \"y_z\", \"z\" } }");
    edit("x/fam/family.lua", "v.load == \"ld\"",
         "v.load == \"ld\" and v.a == \"x\" and v.b == \"z\"");
    struct outcome o = list("sm_90a");
    assert_run(o, 1);
    assert_holds(o.err,
                 "fam/family.lua: two variants spell the name fam_bf16_d128__sm90a_t4_ld_x_y_z");
    outcome_free(&o);
}

static void constants_are_checked(void **state)
{
    (void)state;
    static const struct {
        const char *constants, *message;
    } cases[] = {
        {"return 3",
         "fam/family.lua:16: constants of fam_bf16_d64__sm90a_t4_ld is 3; allowed: a table"},
        {"return { TILE = 3 }",
         "fam/family.lua:16: constants of fam_bf16_d64__sm90a_t4_ld: TILE is already"},
        {"return { NAME = 3 }", "NAME is already the name of something else"},
        {"return { pairs = 3 }", "pairs is already the name of something else"},
        {"return { [\"a b\"] = 3 }", "\"a b\" is no name"},
        {"return { A = v.tyle }", "fam/family.lua:16: there is no axis \"tyle\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[256];
        snprintf(text, sizeof text, "  constants = function(v) %s end,\n  facts = {",
                 cases[i].constants);
        reset();
        edit("x/fam/family.lua", "  facts = {", text);
        struct outcome o = attngen("expand", "fam_bf16_d64__sm90a_t4_ld", "--templates", "x", NULL);
        assert_run(o, 1);
        assert_holds(o.err, cases[i].message);
        outcome_free(&o);
    }
}

static void symbol_has_a_prefix(void **state)
{
    (void)state;
    reset();
    edit("x/fam/family.lua", "  facts = {",
         "  symbol = function(v) return v.tile == 8 and \"cutlass_\" or \"\" end,\n  facts = {");
    struct outcome o =
        attngen("expand", "fam_bf16_d128__sm90a_t8_ld", "--templates", "x", "--no-line", NULL);
    assert_run(o, 0);
    assert_string_equal(o.out, "cutlass_fam_bf16_d128__sm90a_t8_ld\n");
    outcome_free(&o);
}

/* One value of an axis may stand for the usual thing, which names need not say. */
static void a_value_is_not_spelled(void **state)
{
    (void)state;
    reset();
    edit("x/fam/family.lua", "values = { 4, 8 }, tag", "values = { 4, 8 }, unspelled = 4, tag");
    struct outcome o =
        attngen("expand", "fam_bf16_d128__sm90a_ld", "--templates", "x", "--no-line", NULL);
    assert_run(o, 0);
    assert_string_equal(o.out, "fam_bf16_d128__sm90a_ld\n");
    outcome_free(&o);
    edit("x/fam/family.lua", "{ 64, 128 }, tag",
         "{ 64, 128 }, unspelled = 128, tag"); /* required */
    o = attngen("expand", "fam_bf16__sm90a_ld", "--templates", "x", "--no-line", NULL);
    assert_run(o, 0);
    assert_string_equal(o.out, "fam_bf16__sm90a_ld\n");
    outcome_free(&o);
    edit("x/fam/family.lua", "unspelled = 128, ", "");
    o = attngen("expand", "fam_bf16_d128__sm90a_t8_ld", "--templates", "x", "--no-line", NULL);
    assert_run(o, 0);
    assert_string_equal(o.out, "fam_bf16_d128__sm90a_t8_ld\n");
    outcome_free(&o);
}

static void why(void **state)
{
    (void)state;
    reset();
    struct outcome o =
        attngen("why", "fam_bf16_d64__sm90a_t8_ld", "--templates", "x", "--format", "tsv", NULL);
    assert_run(o, 0);
    assert_holds(o.out, "fam\tsm_90a\t1\ttoo wide\n");
    outcome_free(&o);
    o = attngen("why", "*", "--templates", "x", "-t", "sm_80", "--format", "tsv", NULL);
    assert_run(o, 0);
    assert_string_equal(o.out, "family\ttarget\tcombinations\twhy\n"
                               "fam\tsm_80\t6\tlegal\n"
                               "fam\tsm_80\t8\tno bulk\n"
                               "fam\tsm_80\t2\ttoo wide\n");
    outcome_free(&o);
    o = attngen("why", "dim=64", "tile=8", "--templates", "x", "-t", "sm_90a", "--format", "tsv",
                NULL);
    assert_run(o, 0);
    assert_string_equal(o.out, "family\ttarget\tcombinations\twhy\nfam\tsm_90a\t4\ttoo wide\n");
    outcome_free(&o);
    o = attngen("why", "fam_bf16_d128__sm90a_t4_ld", "--templates", "x", NULL);
    assert_run(o, 0);
    assert_holds(o.out, "fact rows");
    assert_holds(o.out, "no: not in the cache");
    outcome_free(&o);
}

static void why_refuses_nonsense(void **state)
{
    (void)state;
    static const struct {
        const char *a, *b, *message;
    } cases[] = {
        {"tyle=4", NULL, "why: family fam has no axis \"tyle\"; allowed: dtype, dim, tile, load"},
        {"tile=5", NULL, "why: axis tile of family fam has no value \"5\"; allowed: 4, 8"},
        {"nothing*", NULL, "matches no combination of axis values"},
        {"tile=4", "name", "allowed: one name or glob, or only axis=value"},
        {NULL, NULL, "why: which variant?"},
    };
    reset();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct outcome o =
            attngen("why", "--templates", "x", "-t", "sm_90a", cases[i].a, cases[i].b, NULL);
        assert_run(o, 1);
        assert_holds(o.err, cases[i].message);
        outcome_free(&o);
    }
}

static void folders(void **state)
{
    (void)state;
    struct outcome o = attngen("list", "--templates", "nowhere", NULL);
    assert_run(o, 1);
    assert_holds(o.err, "nowhere: cannot read the templates folder: No such file");
    outcome_free(&o);
    put("empty/lib/x.cuh", "");
    o = attngen("list", "--templates", "empty", NULL);
    assert_run(o, 1);
    assert_holds(o.err, "empty: no family in it");
    outcome_free(&o);
    reset();
    o = attngen("list", "--templates", "x", "-f", "fam,mla", NULL);
    assert_run(o, 1);
    assert_holds(o.err, "there is no family 'mla' in x; allowed: fam");
    outcome_free(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fields),
        cmocka_unit_test(axes),
        cmocka_unit_test(functions),
        cmocka_unit_test(cluster_needs_hardware),
        cmocka_unit_test(fallbacks),
        cmocka_unit_test(keys_that_a_target_does_not_serve),
        cmocka_unit_test(the_list),
        cmocka_unit_test(tables_of_the_family),
        cmocka_unit_test(names_are_unique),
        cmocka_unit_test(constants_are_checked),
        cmocka_unit_test(symbol_has_a_prefix),
        cmocka_unit_test(a_value_is_not_spelled),
        cmocka_unit_test(why),
        cmocka_unit_test(why_refuses_nonsense),
        cmocka_unit_test(folders),
    };
    return cmocka_run_group_tests(tests, NULL, remove_scratch);
}
