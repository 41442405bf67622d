/*
 * For the generator's tests: scratch folders, files, and the program run as
 * its users run it.
 */
#ifndef SUPPORT_H
#define SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An empty folder of this test program, made anew; lives until it ends. */
const char *scratch(void);
/* cmocka's teardown of a group: removes it. */
int remove_scratch(void **state);

/* A path below scratch(). A few calls' results live at once. */
const char *in_scratch(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Writes a file below scratch(), making its folders. */
void put(const char *name, const char *text);
void put_bytes(const char *path, const void *data, size_t size);
/* The whole file, NUL-terminated; to be freed. Fails the test if it is not there. */
char *get(const char *path, size_t *size);
bool same_files(const char *a, const char *b);
/* Copies the tree of tests/gen/fixtures to scratch()/<name>. */
const char *copy_fixtures(const char *name);
/* Replaces the first `old` of a file below scratch(). */
void edit(const char *name, const char *old, const char *new);
/* How many files are below a folder. */
int count_files(const char *folder);

struct outcome {
    int status; /* exit status; 128 + signal */
    char *out, *err;
};

/* Runs attngen with these arguments (the last one NULL), in scratch(), without
 * a GPU and with the cache scratch()/cache unless `--cache` says otherwise. */
struct outcome attngen(const char *first, ...);
/* The same in the background. Returns its process. */
int attngen_start(const char *first, ...);
struct outcome attngen_wait(int process);
void outcome_free(struct outcome *outcome);
/* Another program for the runs that follow; NULL: attngen again. */
void use_program(const char *path);
/* Environment of the runs that follow; NULL value: unset. */
void environment(const char *name, const char *value);

/* Runs, checks the exit status and that stderr holds each piece of the list. */
#define assert_run(outcome, expected)                                                   \
    do {                                                                                \
        if ((outcome).status != (expected))                                             \
            fail_msg("exit status %d, expected %d\n%s%s", (outcome).status, (expected), \
                     (outcome).out, (outcome).err);                                     \
    } while (0)
#define assert_holds(text, piece)                               \
    do {                                                        \
        if (strstr((text), (piece)) == NULL)                    \
            fail_msg("\"%s\" is not in:\n%s", (piece), (text)); \
    } while (0)
#define assert_lacks(text, piece)                           \
    do {                                                    \
        if (strstr((text), (piece)) != NULL)                \
            fail_msg("\"%s\" is in:\n%s", (piece), (text)); \
    } while (0)

/* The cell of a `--format tsv` output: row `row` (0: the first after the
 * names), column by name. To be freed. */
char *cell(const char *tsv, int row, const char *column);
int count_rows(const char *tsv);

#endif /* SUPPORT_H */
