/*
 * What the tests of tuning tables share.
 */
#ifndef TEST_TABLE_FIXTURE_H
#define TEST_TABLE_FIXTURE_H

#include "test.h"

#include "toy.h"

#define A90 "line_bf16_d64__sm90a_a"
#define C90 "line_bf16_d64__sm90a_c"
#define BIG90 "line_bf16_d64__sm90a_big"

/* gen_explain() of a problem on the H200. */
static inline const char *explained(const gen_library *library)
{
    static char text[8192];
    const gen_device device = toy_device("h200");
    const gen_toy_problem problem = toy_problem(GEN_LINE, 16);
    assert_status(gen_explain(library, &device, &problem.base, text, sizeof(text), NULL), GEN_OK);
    return text;
}

static inline void assert_explained(const gen_library *library, const char *piece)
{
    if (!strstr(explained(library), piece))
        fail_msg("\"%s\" is not in:\n%s", piece, explained(library));
}

static inline void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fwrite(text, 1, strlen(text), file);
    fclose(file);
}

#endif
