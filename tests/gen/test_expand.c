/* Template expansion as `attngen expand` shows it: what passes to the letter,
 * what is substituted, every error with its line, and #line. */
#include "support.h"

static const char family[] =
    "return family {\n"
    "  name = \"fam\",\n"
    "  required = { { name = \"dtype\", values = { \"fp32\" } } },\n"
    "  free = { { name = \"tile\", values = { 4 }, tag = \"t\" } },\n"
    "  legal = function(v, arch) return true end,\n"
    "  facts = {},\n"
    "  plan = function(v, arch) return { threads = 64, shared = 128, cluster = 1, max_registers = "
    "32, facts = {} } end,\n"
    "  template = function(v) return \"fam.cu.in\" end,\n"
    "  constants = function(v, arch) return { HALF = 0.5, LIST = { 1, 2 }, YES = true } end,\n"
    "  fallback = function(v) return true end,\n"
    "}\n";

#define NAME "fam_fp32__sm90a_t4"

static struct outcome expand(const char *template, const char *option)
{
    put("x/fam/family.lua", family);
    put("x/fam/fam.cu.in", template);
    return attngen("expand", "--templates", "x", "-t", "sm_90a", NAME, option, NULL);
}

static void gives(const char *template, const char *expected)
{
    struct outcome o = expand(template, "--no-line");
    assert_run(o, 0);
    assert_string_equal(o.out, expected);
    outcome_free(&o);
}

static void fails(const char *template, const char *message)
{
    struct outcome o = expand(template, NULL);
    assert_run(o, 1);
    assert_string_equal(o.out, "");
    assert_holds(o.err, message);
    assert_lacks(o.err, "internal");
    assert_lacks(o.err, "traceback");
    outcome_free(&o);
}

static void text_passes_to_the_letter(void **state)
{
    (void)state;
    static const char text[] =
        "asm volatile(\"{\\n\\t.reg .pred p;\\n\\tsetp.ne.b32 p, %0, 0;\\n}\" :: \"r\"(x));\n"
        "#define TWO(x) \\\n"
        "    { x; \\\n"
        "      x; }\n"
        "a % b; 100%; {% if %} {{ x }} <%= y %> @z `q` 'c' \"s\\\"t\"; ]] --[[ ]==] \\\\ \\\n"
        "\n"
        "\t$dollar $ { x } $$ }{ $(x) \xc3\xa9 \x01\n"
        "no newline at the end";
    char expected[sizeof text + 1];
    snprintf(expected, sizeof expected, "%s\n", text);
    gives(text, expected);
    gives("", "");
    gives("\r\nx\r\n", "\r\nx\r\n");
}

static void names_that_a_template_sees(void **state)
{
    (void)state;
    gives("${NAME} ${DTYPE} ${TILE} ${THREADS} ${SHARED} ${CLUSTER} ${MAX_REGISTERS}\n",
          NAME " fp32 4 64 128 1 32\n");
    gives("${ARCH.name} ${ARCH.cc} ${ARCH.shared_per_block} ${tostring(ARCH.wgmma)}\n",
          "sm_90a 90 232448 true\n");
    gives("${f32(HALF)} ${f32(1)} ${f32(0.1)} ${f32(-2.5e-8)} ${f32(1/3)} ${f32(1e30)}\n",
          "0.5f 1.0f 0.1f -2.5e-08f 0.33333334f 1e+30f\n");
}

static void expressions_match_braces(void **state)
{
    (void)state;
    gives("a${({ 7, 8 })[2]}b${\"}\"}c${'{'}d${\"\\\"}\"}e\n", "a8b}c{d\"}e\n");
    gives("${[[}]]} ${[==[ ]] } ]==]}|\n", "}  ]] } |\n");
    gives("${TILE}${TILE * 2}$${TILE}{${TILE}}\n", "48$4{4}\n");
    gives("${(\"x\"):rep(3)} ${#LIST} ${LIST[1]}\n", "xxx 2 1\n");
    gives("${(\"a\\\\n\"):upper()}|\n", "A\\N|\n");
    /* A value is text: it is not expanded again, whatever it holds. */
    gives("${\"${TILE} %1 \\\\1\"}\n", "${TILE} %1 \\1\n");
}

static void directives(void **state)
{
    (void)state;
    gives("$ for i = 1, 3 do\n  x${i};\n$ end\n", "  x1;\n  x2;\n  x3;\n");
    gives("  $ if TILE == 4 then\nyes\n  $ else\nno\n\t$\tend\n$\n$ -- a comment\n", "yes\n");
    gives("$ local function twice(x)\n<${x}${x}>\n$ end\n$ twice(1)\n$ twice(\"a\")\n",
          "<11>\n<aa>\n");
    gives("$ local t = {\n$   4, 5,\n$ }\n${t[2]}\n", "5\n");
    gives("$ HERE = 3 -- a global of this expansion\n${HERE}\n", "3\n");
}

static void order_is_sorted(void **state)
{
    (void)state;
    gives("$ local t = { b = 1, a = 2, [10] = 3, [9] = 4, c = 5 }\n"
          "$ for k, v in pairs(t) do\n${k}=${v}\n$ end\n",
          "9=4\n10=3\na=2\nb=1\nc=5\n");
    gives("$ local k, v = next({ b = 1, a = 2 })\n${k}${v}\n", "a2\n");
}

static void errors_cite_the_line(void **state)
{
    (void)state;
    fails("x\n\n${WARP}\n", "fam/fam.cu.in:3: undefined name \"WARP\"");
    fails("${TILES}\n", "did you mean \"TILE\"?");
    fails("a\n$ local x = TYLE\n", "fam/fam.cu.in:2: undefined name \"TYLE\"");
    fails("a\n${TILE / 2}\n",
          "fam/fam.cu.in:2: ${TILE / 2} is the float 2.0; allowed: strings and integers: use // "
          "for a whole quotient, f32(x) for a float literal");
    fails("x ${TILE} ${HALF}\n", "fam/fam.cu.in:1: ${HALF} is the float 0.5");
    fails("${YES}\n", "fam/fam.cu.in:1: ${YES} is a boolean; allowed: strings and integers");
    fails("${LIST}\n", "fam/fam.cu.in:1: ${LIST} is a table");
    fails("${nil}\n", "fam/fam.cu.in:1: ${nil} is a nil");
    fails("a\nb\n${x\n}\n", "fam/fam.cu.in:3: '${' without its '}' on the same line");
    fails("${\"}\n", "fam/fam.cu.in:1: '${' without its '}'");
    fails("a\n${}\n", "fam/fam.cu.in:2: ${} is empty");
    fails("a\n${  }\n", "fam/fam.cu.in:2: ${} is empty");
    fails("a\n${1 +}\n", "fam/fam.cu.in:2: ${1 +} is no Lua expression: unexpected symbol");
    fails("${1)..(2}\n", "fam/fam.cu.in:1: ${1)..(2} is no Lua expression");
    fails("${1 -- one}\n", "fam/fam.cu.in:1: ${1 -- one} is no Lua expression");
    fails("a\n$ if TILE then\nb\n", "fam/fam.cu.in:4: 'end' expected (to close 'if' at line 2)");
    fails("a\n$ x = = 1\n", "fam/fam.cu.in:2: unexpected symbol near '='");
    fails("$ x = 1 +\ntext\n", "fam/fam.cu.in:2: unexpected symbol near ';'");
    fails("a\nb\n$ error(\"too bad\")\n", "fam/fam.cu.in:3: too bad");
    fails("a\n$ assert(TILE == 5, \"TILE must be 5\")\n", "fam/fam.cu.in:2: TILE must be 5");
    fails("a\n$ assert(false)\n", "fam/fam.cu.in:2: assertion failed");
    fails("a\n$ local n = nil + 1\n",
          "fam/fam.cu.in:2: attempt to perform arithmetic on a nil value");
    fails("$ error({})\n", "an error that is no text was raised: a table");
    fails("${f32(\"x\")}\n", "fam/fam.cu.in:1: f32() wants a number, not a string");
    fails("${f32(1/0)}\n", "fam/fam.cu.in:1: f32() wants a finite number");
    fails("${f32(1e39)}\n", "fam/fam.cu.in:1: f32(1e+39) is too large");
    fails("${ARCH.tensor}\n", "fam/fam.cu.in:1: arch has no field \"tensor\"; allowed: ");
    fails("$ ARCH.cc = 1\n", "fam/fam.cu.in:1: attempt to set 'cc' of arch, which is read-only");
    fails("a\n${\"\\0\"}\n", "fam/fam.cu.in:2: a value holds a NUL byte");
}

static void nul_in_a_template(void **state)
{
    (void)state;
    put("x/fam/family.lua", family);
    put_bytes(in_scratch("x/fam/fam.cu.in"), "a\nb\0c\n", 6);
    struct outcome o = attngen("expand", "--templates", "x", "-t", "sm_90a", NAME, NULL);
    assert_run(o, 1);
    assert_holds(o.err, "fam/fam.cu.in:2: a NUL byte");
    outcome_free(&o);
}

/* Lua shortens chunk names beyond 59 characters; messages keep them whole. */
static void long_paths_stay_whole(void **state)
{
    (void)state;
    char name[64], file[256], text[sizeof family + 128], message[256];
    memset(name, 'f', 60);
    name[60] = '\0';
    snprintf(text, sizeof text, "%s", family);
    char *at = strstr(text, "\"fam\"");
    snprintf(at, sizeof text - (size_t)(at - text), "\"%s\",\n%s", name,
             strstr(family, "  required"));
    snprintf(file, sizeof file, "long/%s/family.lua", name);
    put(file, text);
    const char *const bad[] = {"a\n$ error(\"here\")\n", "a\n$ x = = 1\n", "a\n${NOTHING}\n"};
    for (int i = 0; i < 3; i++) {
        snprintf(file, sizeof file, "long/%s/fam.cu.in", name);
        put(file, bad[i]);
        struct outcome o = attngen("expand", "--templates", "long", "-t", "sm_90a", "*", NULL);
        assert_run(o, 1);
        snprintf(message, sizeof message, "attngen: %s/fam.cu.in:2: ", name);
        assert_holds(o.err, message);
        outcome_free(&o);
    }
}

/* Reads #line directives as a compiler does and checks that every line of the
 * output that says `at N` stands on line N. */
static void check_lines(const char *output)
{
    int line = 1, checked = 0;
    for (const char *p = output; *p != '\0';) {
        const char *end = strchr(p, '\n');
        int stated, next;
        if (sscanf(p, "#line %d", &next) == 1) {
            assert_int_equal(strncmp(strchr(p, '"'), "\"/attngen/templates/fam/fam.cu.in\"", 34),
                             0);
            line = next;
        } else {
            const char *mark = strstr(p, "at ");
            if (mark != NULL && mark < end && sscanf(mark, "at %d", &stated) == 1) {
                if (stated != line)
                    fail_msg("line %d is taken for %d in:\n%s", stated, line, output);
                checked++;
            }
            line++;
        }
        p = end + 1;
    }
    assert_true(checked > 0);
}

static void line_directives(void **state)
{
    (void)state;
    static const char *const templates[] = {
        "at 1\nat 2\n",
        "$ -- head\nat 2\n$ if TILE == 4 then\nat 4\nat 5 ${TILE}\n$ end\nat 7\n",
        "$ for i = 1, 3 do\nat 2\nat 3 ${i}\n$ end\nat 5\n",
        "at 1\n$ for i = 1, 2 do\nat 3\n$ end\n$ for i = 1, 2 do\nat 6 ${i}\n$ end\nat 8\n",
        "at 1\n// ${\"two\\nlines\"}\nat 3\nat 4\n",
        "$ local function f()\nat 2\n$ end\n$ f()\nat 5\n$ f()\n$ f()\nat 8\n",
    };
    for (size_t i = 0; i < sizeof templates / sizeof templates[0]; i++) {
        struct outcome o = expand(templates[i], NULL);
        assert_run(o, 0);
        check_lines(o.out);
        outcome_free(&o);
    }
}

static void no_line_inside_a_macro(void **state)
{
    (void)state;
    struct outcome o = expand("#define M(x) \\\n"
                              "$ if TILE == 4 then\n"
                              "    f(x); \\\n"
                              "$ end\n"
                              "    g(x); \\\n"
                              "    h(${TILE})\n"
                              "at 7\n",
                              NULL);
    assert_run(o, 0);
    assert_holds(o.out, "#define M(x) \\\n    f(x); \\\n    g(x); \\\n    h(4)\n");
    check_lines(o.out);
    outcome_free(&o);
}

static void no_line_when_nothing_diverges(void **state)
{
    (void)state;
    struct outcome o = expand("a\nb ${TILE}\nc\n", NULL);
    assert_run(o, 0);
    assert_string_equal(o.out, "#line 1 \"/attngen/templates/fam/fam.cu.in\"\na\nb 4\nc\n");
    outcome_free(&o);
}

/* The whole way: the compiler's own message names the template's line. */
static void compiler_cites_the_template(void **state)
{
    (void)state;
    put("x/fam/family.lua", family);
    put("x/fam/fam.cu.in", "$ local unused = 1\n"
                           "extern \"C\" __global__ void ${NAME}(float *x)\n"
                           "{\n"
                           "$ for i = 1, 3 do\n"
                           "    x[${i}] = 1.f;\n"
                           "$ end\n"
                           "    *x = nonsense;\n"
                           "}\n");
    struct outcome o =
        attngen("build", "--templates", "x", "-t", "sm_90a", "-o", "bad.fatbin", NULL);
    assert_run(o, 1);
    assert_holds(o.err, "attngen: fam/fam.cu.in:7: error: identifier \"nonsense\" is undefined");
    assert_holds(o.err, "(found in " NAME ")");
    outcome_free(&o);
    put("x/fam/common.cuh", "\n__device__ int broken() { return missing; }\n");
    put("x/fam/fam.cu.in", "#include \"fam/common.cuh\"\n"
                           "extern \"C\" __global__ void ${NAME}(float *x) { *x = 1.f; }\n");
    o = attngen("build", "--templates", "x", "-t", "sm_90a", "-o", "bad.fatbin", NULL);
    assert_run(o, 1);
    assert_holds(o.err, "fam/common.cuh:2: error: identifier \"missing\" is undefined");
    outcome_free(&o);
}

static void one_kernel_by_the_right_name(void **state)
{
    (void)state;
    static const struct {
        const char *template, *message;
    } cases[] = {
        {"extern \"C\" __global__ void wrong(float *x) { *x = 1.f; }\n",
         "makes 1 kernels, the first named wrong; allowed: exactly one, named ${NAME}"},
        {"extern \"C\" __global__ void ${NAME}(float *x) { *x = 1.f; }\n"
         "extern \"C\" __global__ void more(float *x) { *x = 2.f; }\n",
         "makes 2 kernels"},
        {"__device__ int nothing;\n", "makes 0 kernels"},
    };
    put("x/fam/family.lua", family);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        put("x/fam/fam.cu.in", cases[i].template);
        struct outcome o =
            attngen("build", "--templates", "x", "-t", "sm_90a", "-o", "bad.fatbin", NULL);
        assert_run(o, 1);
        assert_holds(o.err, cases[i].message);
        outcome_free(&o);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_passes_to_the_letter),
        cmocka_unit_test(names_that_a_template_sees),
        cmocka_unit_test(expressions_match_braces),
        cmocka_unit_test(directives),
        cmocka_unit_test(order_is_sorted),
        cmocka_unit_test(errors_cite_the_line),
        cmocka_unit_test(nul_in_a_template),
        cmocka_unit_test(long_paths_stay_whole),
        cmocka_unit_test(line_directives),
        cmocka_unit_test(no_line_inside_a_macro),
        cmocka_unit_test(no_line_when_nothing_diverges),
        cmocka_unit_test(compiler_cites_the_template),
        cmocka_unit_test(one_kernel_by_the_right_name),
    };
    return cmocka_run_group_tests(tests, NULL, remove_scratch);
}
