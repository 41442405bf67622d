/* Which #include lines are found, and that none is missed: what a compiler follows and the
 * digest does not know would leave stale kernels in the cache. */
#include "support.h"

#include "expand/includes.h"

/* The names found, a comma behind each; a refusal as "LINE!REASON". */
static const char *scan(const char *text)
{
    static char result[512];
    struct includes includes;
    struct include found;
    /* Without a NUL behind it, so that a read beyond is seen. */
    size_t size = strlen(text);
    char *copy = malloc(size > 0 ? size : 1);
    assert_non_null(copy);
    memcpy(copy, text, size);
    result[0] = '\0';
    includes_begin(&includes, copy, size);
    while (includes_next(&includes, &found)) {
        size_t used = strlen(result);
        if (found.refusal != NULL) {
            snprintf(result + used, sizeof result - used, "%d!%s", found.line, found.refusal);
            break;
        }
        snprintf(result + used, sizeof result - used, "%.*s,", (int)found.name_size, found.name);
    }
    free(copy);
    return result;
}

static void plain_lines_are_found(void **state)
{
    (void)state;
    static const struct {
        const char *text, *names;
    } cases[] = {
        {"", ""},
        {"#", ""},
        {"\\", ""},
        {"#include", "1!its file is not named in it"},
        {"#include \"lib/a.cuh\"\n", "lib/a.cuh,"},
        {"#include \"lib/a.cuh\"", "lib/a.cuh,"},
        {"  #\tinclude\"a\"\r\n#include <b.h> // why\n# include \"c\" /* why */\n", "a,b.h,c,"},
        {"int x;\n#if 0\n#include \"a\"\n#endif\n", "a,"},
        /* A comment that is over: its lines are taken for what they may be. */
        {"/*\n#include \"a\"\n*/\n", "a,"},
        {"// #include \"a\"\n/* #include \"b\" */\n * #include \"c\"\n", ""},
        {"x #include \"a\"\n\"#include\" #y\n", ""},
        {"#define S(x) #x\n#define M(include) \\\n    x #include\n", ""},
        {"#define A \\\n  b \\\n  c\n#include \"a\"\n", "a,"},
        {"#pragma unroll\n#error it's /* odd\n#include \"a\"\n", "a,"},
        {"#including \"a\"\n#includex\n", ""},
        {"#if __has_feature(x)\n#endif\n", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (strcmp(scan(cases[i].text), cases[i].names) != 0)
            fail_msg("%s: found %s, expected %s", cases[i].text, scan(cases[i].text),
                     cases[i].names);
    }
}

static void other_spellings_are_refused(void **state)
{
    (void)state;
    static const struct {
        int line;
        const char *text;
    } cases[] = {
        {1, "#/**/include \"a\"\n"},
        {1, "/**/#include \"a\"\n"},
        {1, "/**/ /* x */ # include \"a\"\n"},
        {2, "/*\n*/ #include \"a\"\n"},
        {2, "/*\n/*/#include \"a\"\n"},
        {2, "/*\n// */ #include \"a\"\n"},
        {1, "#/*\n*/include \"a\"\n"},
        {1, "#include/**/\"a\"\n"},
        {1, "#include /*\n*/ \"a\"\n"},
        {1, "%:include \"a\"\n"},
        {3, "\n\n  %: include \"a\"\n"},
        {1, "?\?=include \"a\"\n"},
        {1, "#include MACRO\n"},
        {1, "#include \"a\n"},
        {1, "#include <a\n"},
        {1, "#include \"\"\n"},
        {1, "#include\n"},
        {1, "#inc\\\nlude \"a\"\n"},
        {1, "#inc\\\r\nlude \"a\"\n"},
        {1, "#inc\\ \nlude \"a\"\n"},
        {1, "#inc?\?/\nlude \"a\"\n"},
        {1, "#\\\ninclude \"a\"\n"},
        {1, "#include \\\n\"a\"\n"},
        {1, "#include \"a\\\nb\"\n"},
        {1, "\\\n#include \"a\"\n"},
        {1, "%\\\n:include \"a\"\n"},
        {1, "/\\\n**/#include \"a\"\n"},
        {1, "#include \"a\" */ #include \"b\"\n"},
        {1, "#include_next \"a\"\n"},
        {1, "#import \"a\"\n"},
        {1, "#embed \"a\"\n"},
        {2, "\n#if __has_include(\"a\")\n"},
        {1, "#if defined(x) && __has_include_next(<a>)\n"},
        {1, "#if __has_embed(\"a\")\n"},
        {1, "#if __has_\\\ninclude(\"a\")\n"},
        {1, "#define H __has_inc\\\nlude\n"},
        /* As the expansion numbers lines. */
        {41, "x\n#line 40 \"/attngen/templates/a.cu.in\"\nx\n#include MACRO\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *result = scan(cases[i].text);
        if (strchr(result, '!') == NULL || atoi(result) != cases[i].line)
            fail_msg("%s: found '%s', expected a refusal of line %d", cases[i].text, result,
                     cases[i].line);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_lines_are_found),
        cmocka_unit_test(other_spellings_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, remove_scratch);
}
