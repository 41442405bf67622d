/* What Lua code in templates and family files cannot do. */
#include "support.h"

static const char family[] =
    "return family {\n"
    "  name = \"box\", required = {}, free = { { name = \"n\", values = { 1, 2 } } },\n"
    "  legal = function(v, arch) return true end, facts = {},\n"
    "  plan = function(v, arch) return { threads = 32, shared = 0, cluster = 1, max_registers = "
    "32,\n"
    "    facts = {} } end,\n"
    "  template = function(v) return \"box.cu.in\" end,\n"
    "  fallback = function(v) return v.n == 1 end,\n"
    "}\n";

static struct outcome run(const char *line)
{
    char text[1024];
    snprintf(text, sizeof text, "a\n$ %s\n", line);
    put("x/box/family.lua", family);
    put("x/box/box.cu.in", text);
    return attngen("expand", "--templates", "x", "-t", "sm_90a", "--no-line", "box__sm90a_1", NULL);
}

static void refused(const char *line, const char *message)
{
    struct outcome o = run(line);
    assert_run(o, 1);
    assert_holds(o.err, message);
    assert_lacks(o.err, "internal");
    outcome_free(&o);
}

static void undefined(const char *name)
{
    char line[128], message[128];
    snprintf(line, sizeof line, "local x = %s", name);
    snprintf(message, sizeof message, "box/box.cu.in:2: undefined name \"%s\"", name);
    refused(line, message);
}

static void no_way_to_files_and_code(void **state)
{
    (void)state;
    const char *const names[] = {"io",         "os",        "debug",  "package",        "coroutine",
                                 "utf8",       "load",      "dofile", "loadfile",       "require",
                                 "loadstring", "print",     "_G",     "collectgarbage", "core",
                                 "family",     "_ENV.load", "warn"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strchr(names[i], '.') == NULL)
            undefined(names[i]);
    refused("_ENV.load(\"\")", "undefined name \"load\"");
    refused("local x = string.dump(assert)", "attempt to call a nil value (field 'dump')");
}

static void no_way_round_by_strings(void **state)
{
    (void)state;
    refused("local f = (\"\").dump(1)", "attempt to call a nil value (field 'dump')");
    refused("getmetatable(\"\").__index = 1", "attempt to index a boolean value");
    struct outcome o = run("assert(getmetatable(\"\") == false)");
    assert_run(o, 0);
    outcome_free(&o);
}

static void shared_tables_are_read_only(void **state)
{
    (void)state;
    refused("math.floor = nil", "attempt to set 'floor' of math, which is read-only");
    refused("string.x = 1", "attempt to set 'x' of string, which is read-only");
    refused("rawset(table, \"insert\", 1)", "rawset() of a read-only table");
    refused("setmetatable(math, {})", "cannot change a protected metatable");
    refused("getmetatable(math).x = 1", "attempt to index a boolean value");
    refused("(\"\").format = 1", "attempt to");
}

static void one_expansion_does_not_reach_another(void **state)
{
    (void)state;
    put("x/box/family.lua", family);
    put("x/box/box.cu.in", "$ assert(rawget(_ENV, \"LEFT\") == nil)\n$ LEFT = 1\n"
                           "$ pairs = nil\n$ string = { }\n// ${N}\n");
    struct outcome o =
        attngen("expand", "--templates", "x", "-t", "sm_90a", "*", "-o", "boxes", NULL);
    assert_run(o, 0);
    assert_int_equal(count_files(in_scratch("boxes")), 2);
    outcome_free(&o);
}

static void nothing_differs_from_run_to_run(void **state)
{
    (void)state;
    refused("local x = math.random()", "attempt to call a nil value (field 'random')");
    refused("local x = tostring({})", "a table has no text of its own");
    refused("local x = tostring(pairs)", "a function has no text of its own");
    refused("local x = string.format(\"%s\", {})", "a table has no text of its own");
    refused("local x = (\"%s\"):format(assert)", "a function has no text of its own");
    refused("local x = string.format(\"%5p\", \"x\")", "no %p here");
    refused("local x = setmetatable({}, { __gc = assert })", "__gc");
    refused("local x = setmetatable({}, { __mode = \"k\" })", "__mode");
    refused("for k in pairs({ [{}] = 1 }) do end", "pairs() found a key of type table");
}

static void endless_loops_end(void **state)
{
    (void)state;
    refused("while true do end", "box/box.cu.in:2: too many instructions: an endless loop?");
    refused("while true do pcall(error) end", "too many instructions");
    refused("local function f() return pcall(f) end while true do f() end",
            "too many instructions");
    refused("while true do xpcall(function() while true do end end, function() end) end",
            "too many instructions");
}

static void memory_has_a_limit(void **state)
{
    (void)state;
    refused("local x = (\"x\"):rep(1 << 30)", "box/box.cu.in: its Lua code needs more memory");
    refused("local x = (\"x\"):rep(1 << 33)", "box/box.cu.in:2: resulting string too large");
    refused("local x = \"x\" while true do x = x .. x end", "more memory");
    refused("local function f() return 1 + f() end f()", "stack overflow");
}

static void bytecode_is_no_template(void **state)
{
    (void)state;
    put("x/box/family.lua", "\x1bLua");
    put("x/box/box.cu.in", "");
    struct outcome o = attngen("list", "--templates", "x", "-t", "sm_90a", NULL);
    assert_run(o, 1);
    assert_holds(o.err, "box/family.lua");
    outcome_free(&o);
}

static void family_files_are_in_it_too(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"local f = io.open(\"/etc/passwd\")\n", "box/family.lua:1: undefined name \"io\""},
        {"\nos.execute(\"true\")\n", "box/family.lua:2: undefined name \"os\""},
        {"while true do end\n", "box/family.lua:1: too many instructions"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        put("x/box/family.lua", cases[i].text);
        struct outcome o = attngen("list", "--templates", "x", "-t", "sm_90a", NULL);
        assert_run(o, 1);
        assert_holds(o.err, cases[i].message);
        outcome_free(&o);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_way_to_files_and_code),
        cmocka_unit_test(no_way_round_by_strings),
        cmocka_unit_test(shared_tables_are_read_only),
        cmocka_unit_test(one_expansion_does_not_reach_another),
        cmocka_unit_test(nothing_differs_from_run_to_run),
        cmocka_unit_test(endless_loops_end),
        cmocka_unit_test(memory_has_a_limit),
        cmocka_unit_test(bytecode_is_no_template),
        cmocka_unit_test(family_files_are_in_it_too),
    };
    return cmocka_run_group_tests(tests, NULL, remove_scratch);
}
