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
    refused("setmetatable(math, {})", "undefined name \"setmetatable\"");
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
    refused("local x = setmetatable({}, { __gc = assert })", "undefined name \"setmetatable\"");
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
    refused("local x = \"x\" while true do x = x .. x end",
            "box/box.cu.in: its Lua code needs more memory");
    refused("local function f() return 1 + f() end f()", "box/box.cu.in:2: stack overflow");
}

/* Each loops in C, where no instruction is counted, or makes what no memory holds. */
static void loops_of_c_have_a_limit(void **state)
{
    (void)state;
    static const char *const reps[] = {
        "local x = (\"x\"):rep(1 << 30)",           "local x = (\"x\"):rep((1 << 26) + 1)",
        "local x = (\"\"):rep(1 << 62, \"x\")",     "local x = string.rep(1, 2.0 ^ 40)",
        "local x = (\"x\"):rep(\"1099511627776\")",
    };
    for (size_t i = 0; i < sizeof reps / sizeof reps[0]; i++)
        refused(reps[i], "box/box.cu.in:2: string.rep() would make more than 67108864 bytes");
    /* 68 elements whose border is beyond 1 << 60. */
    static const char sparse[] = "local t = { 1, 2, 3, 4, 5, [9] = 9 } "
                                 "for i = 3, 62 do t[1 << i] = 1 end assert(#t > 1 << 60) ";
    char line[256];
    snprintf(line, sizeof line, "%stable.insert(t, 1, 0)", sparse);
    refused(line, "box/box.cu.in:2: table.insert() of ");
    snprintf(line, sizeof line, "%stable.remove(t, 1)", sparse);
    refused(line, "elements; allowed: at most 16777216");
    refused("table.move({}, 1, 1 << 62, 2)", "box/box.cu.in:2: table.move() of elements 1 to");
    refused("table.move({}, math.mininteger, math.maxinteger, 2)", "table.move() of elements -9");
    refused("table.move({}, \"1\", 2.0 ^ 24 + 1, 2)", "allowed: at most 16777216");
}

static void what_is_within_the_limits_runs(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "assert(#(\"x\"):rep(1 << 26) == 1 << 26)",
        "assert((\"\"):rep(1 << 62) == \"\" and (\"\"):rep(3, \"\") == \"\")",
        "assert((\"ab\"):rep(3, \",\") == \"ab,ab,ab\" and (\"x\"):rep(-1) == \"\")",
        "table.move({}, 1, 1 << 24, 2)",
        "local t = { 1, 3 } table.insert(t, 2, 2) table.insert(t, 4) assert(#t == 4 and t[2] == 2)",
        "local t = { 1, 2 } assert(table.remove(t, 1) == 1 and table.concat(t, \",\") == \"2\")",
        "local n = 0 for w in (\"a b c\"):gmatch(\"%a\") do n = n + 1 end assert(n == 3)",
        "assert((\"a1\"):find(\"%d\") == 2 and (\"a1\"):gsub(\"%d\", \"\") == \"a\")",
        "assert(select(2, (\"k=v\"):match(\"(%w)=(%w)\")) == \"v\")",
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        struct outcome o = run(lines[i]);
        assert_run(o, 0);
        outcome_free(&o);
    }
}

/* A matcher that backtracks for years never reaches the hook. */
static void time_has_a_limit(void **state)
{
    (void)state;
    static const char *const lines[][2] = {
        {"local x = (\"a\"):rep(1000):find(\".-.-.-.-.-.-b\")",
         "box/box.cu.in:2: string.find(): it runs for more than 1 s"},
        {"local x = (\"a\"):rep(1000):match(\".-.-.-.-.-.-b\")", "string.match(): it runs for"},
        {"local x = (\"a\"):rep(1000):gsub(\".-.-.-.-.-.-b\", \"\")", "string.gsub(): it runs for"},
        {"for x in (\"a\"):rep(1000):gmatch(\".-.-.-.-.-.-b\") do end",
         "string.gmatch(): it runs for"},
        {"local t = { 1, 2, 3, 4, 5, [9] = 9 } for i = 3, 30 do t[1 << i] = 1 end table.sort(t, "
         "pcall)",
         "box/box.cu.in:2: table.sort(): it runs for"},
        /* Few instructions, each of which takes long, and whoever catches the error ends, too. */
        {"local a, b = (\"a\"):rep(1 << 25), (\"a\"):rep(1 << 25) while true do pcall(function() "
         "while a <= b do end end) end",
         "box/box.cu.in:2: it runs for more than 1 s of CPU time: an endless loop?"},
    };
    environment("ATTNGEN_LUA_SECONDS", "1");
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        refused(lines[i][0], lines[i][1]);
    environment("ATTNGEN_LUA_SECONDS", "soon");
    refused("", "ATTNGEN_LUA_SECONDS: 'soon' is no number; allowed: 1 to 1000000");
    environment("ATTNGEN_LUA_SECONDS", NULL);
}

static void output_has_a_limit(void **state)
{
    (void)state;
    refused("while true do _line_(1, (\"x\"):rep(1000000)) end",
            "box/box.cu.in:1: the source has more than 16777216 bytes");
    refused("while true do _text_(1, 1) end", "the source has more than 16777216 bytes");
    /* Whoever catches the error gets no more out. */
    struct outcome o =
        run("local s = (\"x\"):rep(1000000) for i = 1, 100 do pcall(_line_, 1, s) end");
    assert_run(o, 0);
    assert_int_equal(strlen(o.out), 2 + 16 * 1000001);
    outcome_free(&o);
    /* The greatest: "a\n" before it, a newline behind it. */
    o = run("_line_(1, (\"x\"):rep((1 << 24) - 3))");
    assert_run(o, 0);
    assert_int_equal(strlen(o.out), 1 << 24);
    outcome_free(&o);
    refused("_line_(1, (\"x\"):rep((1 << 24) - 2))", "the source has more than");
}

/* The functions that write lines are within reach; the template has two lines. */
static void lines_that_are_not_there(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "_text_(0, 1)",    "_text_(-5, 1)",      "_text_(1, 3)",
        "_text_(2, 1)",    "_text_(1, 1 << 40)", "_text_(1 << 32, 1 << 32)",
        "_line_(0, \"\")", "_line_(3, \"\")",    "_line_(1 << 40, \"\")",
        "_line_(-1, {})",
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        refused(lines[i], " is written; allowed: ");
    refused("_line_(1, \"\", {})", "box/box.cu.in:1: ${?} is a table");
    refused("_line_(2, {})", "box/box.cu.in:2: ${?} is a table");
    refused("_text_()", "bad argument #1");
}

/* A family that keeps a template's function must not write where no template runs. */
static void a_kept_function_writes_nothing(void **state)
{
    (void)state;
    put("x/box/family.lua",
        "local kept = {}\n"
        "return family {\n"
        "  name = \"box\", required = {}, free = { { name = \"n\", values = { 1, 2 } } },\n"
        "  legal = function(v, arch) return true end, facts = {},\n"
        "  plan = function(v, arch) return { threads = 32, shared = 0, cluster = 1,\n"
        "    max_registers = 32, facts = {} } end,\n"
        "  template = function(v) return \"box.cu.in\" end,\n"
        "  constants = function(v) if kept.text then kept.text(1, 1) end return { KEPT = kept } "
        "end,\n"
        "  fallback = function(v) return v.n == 1 end,\n"
        "}\n");
    put("x/box/box.cu.in", "a\n$ KEPT.text = _text_\n");
    struct outcome o = attngen("expand", "--templates", "x", "-t", "sm_90a", "*", "-o", "k", NULL);
    assert_run(o, 1);
    assert_holds(o.err, "box/family.lua:8: a line of a template is written while no template is "
                        "expanded");
    outcome_free(&o);
}

/* A failure that is caught is no table that could be changed. */
static void failures_stay_what_they_are(void **state)
{
    (void)state;
    refused("local ok, e = pcall(_line_, 1, {}) rawset(e, \"message\", nil)", "rawset");
    refused("local ok, e = pcall(_line_, 1, {}) e.message = 1", "attempt to index a failure value");
    refused("local ok, e = pcall(_line_, 1, {}) getmetatable(e).__index = 1",
            "attempt to index a boolean value");
    refused("local ok, e = pcall(_line_, 1, {}) error(e)", "box/box.cu.in:1: ${?} is a table");
    refused("local ok, e = pcall(_line_, 1, {}) error(e, 0)", "box/box.cu.in:1: ${?} is a table");
}

/* Raised in a function of C, or without a place. */
static void every_error_has_a_line(void **state)
{
    (void)state;
    refused("local function f() return (\"x\"):gsub(\".\", f) end f()",
            "box/box.cu.in:2: C stack overflow");
    refused("local function f(a, b) table.sort({ 1, 2, 3 }, f) return a < b end f(1, 2)",
            "box/box.cu.in:2: ");
    refused("error(\"no place\", 0)", "box/box.cu.in:2: no place");
    refused("error({})", "box/box.cu.in:2: an error that is no text was raised: a table");
    refused("local x = (\"x\"):find(\"[\")", "box/box.cu.in:2: malformed pattern");
    refused("local x = table.concat({ {} })", "box/box.cu.in:2: ");
}

/* The parser recurses, and says no line where that is too deep. */
static void deep_nesting_has_a_line(void **state)
{
    (void)state;
    char open[301], close[301], text[2048];
    memset(open, '(', 300);
    memset(close, ')', 300);
    open[300] = close[300] = '\0';
    static const struct {
        const char *format, *message;
    } cases[] = {
        {"a\n$ local x = %s1%s\nb\n", "box/box.cu.in:2: brackets or blocks are nested too deeply"},
        {"a\nb\n$ local x = {\n$ %s1\n$ %s}\n",
         "box/box.cu.in:4: brackets or blocks are nested too deeply (C stack overflow)"},
        {"a\n${%s1%s}\n", "is no Lua expression: C stack overflow"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        put("x/box/family.lua", family);
        snprintf(text, sizeof text, cases[i].format, open, close);
        put("x/box/box.cu.in", text);
        struct outcome o =
            attngen("expand", "--templates", "x", "-t", "sm_90a", "box__sm90a_1", NULL);
        assert_run(o, 1);
        assert_holds(o.err, cases[i].message);
        assert_lacks(o.err, "traceback");
        outcome_free(&o);
    }
    snprintf(text, sizeof text, "\n\nlocal x = %s1%s\n", open, close);
    put("x/box/family.lua", text);
    struct outcome o = attngen("list", "--templates", "x", "-t", "sm_90a", NULL);
    assert_run(o, 1);
    assert_holds(o.err, "box/family.lua:3: brackets or blocks are nested too deeply");
    outcome_free(&o);
}

static void axes_have_a_limit(void **state)
{
    (void)state;
    char text[4096] = "return family { name = \"box\", free = {}, required = {\n";
    for (int i = 0; i < 8; i++) {
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used,
                 "{ name = \"a%d\", values = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 } },\n", i);
    }
    strcat(text, "} }\n");
    put("x/box/family.lua", text);
    edit("x/box/family.lua", "name = \"box\",",
         "name = \"box\", facts = {}, legal = error, plan = error, template = error, fallback = "
         "error,");
    struct outcome o = attngen("list", "--templates", "x", "-t", "sm_90a", NULL);
    assert_run(o, 1);
    assert_holds(o.err, "box/family.lua:9: axis a7: with it there are 100000000 combinations; "
                        "allowed: at most 10000000");
    outcome_free(&o);
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
        cmocka_unit_test(loops_of_c_have_a_limit),
        cmocka_unit_test(what_is_within_the_limits_runs),
        cmocka_unit_test(time_has_a_limit),
        cmocka_unit_test(output_has_a_limit),
        cmocka_unit_test(lines_that_are_not_there),
        cmocka_unit_test(a_kept_function_writes_nothing),
        cmocka_unit_test(failures_stay_what_they_are),
        cmocka_unit_test(every_error_has_a_line),
        cmocka_unit_test(deep_nesting_has_a_line),
        cmocka_unit_test(axes_have_a_limit),
        cmocka_unit_test(bytecode_is_no_template),
        cmocka_unit_test(family_files_are_in_it_too),
    };
    return cmocka_run_group_tests(tests, NULL, remove_scratch);
}
