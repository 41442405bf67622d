/* include() of Lua files, in family files and in templates. */
#include "support.h"

static const char family[] =
    "local space = include(\"shared/space.lua\")\n"
    "return family {\n"
    "  name = \"fam\",\n"
    "  required = {},\n"
    "  free = { { name = \"tile\", values = { 4, 8 }, tag = \"t\" } },\n"
    "  legal = space.legal,\n"
    "  facts = {},\n"
    "  plan = function(v, arch)\n"
    "    return { threads = 32, shared = 0, cluster = 1, max_registers = 64, facts = {} }\n"
    "  end,\n"
    "  template = function(v) return \"fam.cu.in\" end,\n"
    "  fallback = function(v) return v.tile == 4 end,\n"
    "}\n";

static const char space[] = "local space = {}\n"
                            "\n"
                            "function space.legal(v, arch)\n"
                            "  if v.tile > 8 then return \"too wide\" end\n"
                            "  return true\n"
                            "end\n"
                            "return space\n";

static void reset(void)
{
    put("x/fam/family.lua", family);
    put("x/fam/fam.cu.in",
        "$ local words = include(\"shared/words.lua\")\n"
        "// ${words.greeting} ${TILE}, again ${include(\"shared/words.lua\").greeting}\n"
        "extern \"C\" __global__ void ${NAME}() {}\n");
    put("x/shared/space.lua", space);
    put("x/shared/words.lua", "return { greeting = \"tile \" .. TILE .. \" of\" }\n");
}

static struct outcome expand(void)
{
    return attngen("expand", "fam__sm90a_t8", "--templates", "x", "--no-line", NULL);
}

/* With `old` replaced by `new` in a file the expansion fails with this message. */
static void broken(const char *file, const char *old, const char *new, const char *message)
{
    reset();
    edit(file, old, new);
    struct outcome o = expand();
    assert_run(o, 1);
    assert_holds(o.err, message);
    assert_lacks(o.err, "internal");
    outcome_free(&o);
}

/* A file runs in the environment of the one that asks, and once for each variant. */
static void a_file_is_shared(void **state)
{
    (void)state;
    reset();
    struct outcome o = expand();
    assert_run(o, 0);
    assert_holds(o.out, "// tile 8 of 8, again tile 8 of\n");
    outcome_free(&o);
    edit("x/shared/space.lua", "v.tile > 8", "v.tile > 4");
    o = attngen("why", "tile=8", "--templates", "x", "-t", "sm_90a", NULL);
    assert_run(o, 0);
    assert_holds(o.out, "too wide");
    outcome_free(&o);
}

static char *digest_of(void)
{
    struct outcome o = attngen("why", "fam__sm90a_t8", "--templates", "x", "--format", "tsv", NULL);
    assert_run(o, 0);
    const char *line = strstr(o.out, "\ndigest\t");
    assert_non_null(line);
    char *digest = strndup(line + 8, 16);
    outcome_free(&o);
    return digest;
}

/* What an included file puts into the source is in the source's digest. */
static void what_it_writes_counts(void **state)
{
    (void)state;
    reset();
    edit("x/fam/fam.cu.in", "// ${words.greeting}", "__constant__ int ${words.greeting}; //");
    edit("x/shared/words.lua", "\"tile \" .. TILE .. \" of\"", "\"first\"");
    char *first = digest_of();
    edit("x/shared/words.lua", "\"first\"", "\"second\"");
    char *second = digest_of();
    assert_string_not_equal(first, second);
    free(first);
    free(second);
}

static void mistakes_are_cited(void **state)
{
    (void)state;
    const char *own = "x/fam/family.lua", *shared = "x/shared/space.lua";
    broken(own, "shared/space.lua", "shared/none.lua",
           "fam/family.lua:1: include(\"shared/none.lua\"): No such file or directory; allowed: a "
           "Lua file below the templates folder");
    broken(own, "shared/space.lua", "../x/shared/space.lua",
           "fam/family.lua:1: include(\"../x/shared/space.lua\"): its path leads out of the "
           "templates folder");
    broken(own, "shared/space.lua", "/etc/passwd", "its path leads out of the templates folder");
    broken(own, "shared/space.lua", "fam/fam.cu.in", "it is no file that ends in .lua");
    broken(own, "\"shared/space.lua\"", "7", "fam/family.lua:1: include() wants a file's name");
    broken(own, "\"shared/space.lua\"", "\"fam/family.lua\"",
           "fam/family.lua:1: include(\"fam/family.lua\") is within itself");
    broken(shared, "local space = {}", "local space = include(\"shared/space.lua\")",
           "shared/space.lua:1: include(\"shared/space.lua\") is within itself");
    broken(shared, "local space = {}", "local space = = 1", "shared/space.lua:1: ");
    broken(shared, "local space = {}", "local space = {}; undefined_name()",
           "shared/space.lua:1: undefined name \"undefined_name\"");
    broken(shared, "  return true\n", "  return 3\n",
           "shared/space.lua:3: legal() returned 3 for ");
    broken("x/shared/words.lua", "TILE", "TILES",
           "shared/words.lua:1: undefined name \"TILES\", did you mean \"TILE\"?");
    broken("x/shared/words.lua", "return {", "os.exit() return {", "undefined name \"os\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_is_shared),
        cmocka_unit_test(what_it_writes_counts),
        cmocka_unit_test(mistakes_are_cited),
    };
    return cmocka_run_group_tests(tests, NULL, remove_scratch);
}
