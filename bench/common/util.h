/*
 * util.h - what every bench program needs: options, statistics, random
 * numbers, clocks, text and files that appear whole or not at all.
 */
#ifndef BENCH_UTIL_H
#define BENCH_UTIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Prints "attngen-<program>: <message>" to stderr and exits with status 1 (bad
 * input) or 2 (internal: memory, disk). For programs only, not for helpers
 * that a test calls. */
void die(int status, const char *format, ...) __attribute__((format(printf, 2, 3), noreturn));
void warn(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Name in messages, "tune" for attngen-tune. */
void util_set_program(const char *name);

/* malloc family that dies instead of returning NULL. */
void *xmalloc(size_t size);
void *xrealloc(void *old, size_t size);
char *xstrdup(const char *text);
char *xasprintf(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- options ----------------------------------------------------------- */

enum option_kind { OPTION_FLAG, OPTION_TEXT, OPTION_INT, OPTION_REAL, OPTION_LIST };

#define OPTION_LIST_MAX 64
struct option_list {
    const char *item[OPTION_LIST_MAX];
    int count;
};

/* `value` points at a bool, const char *, long, double or struct option_list.
 * Numbers are never negative, and whole ones fit an int. */
struct option {
    const char *name; /* "--product" */
    enum option_kind kind;
    void *value;
    const char *metavar, *help;
};

/* Parses options anywhere among the words; the rest goes to `rest` (argc long).
 * "--name value" and "--name=value". --help prints `usage` and the table and
 * exits 0; anything unknown or malformed dies with status 1. Returns the number
 * of remaining words. */
int options_parse(const struct option *options, int num_options, const char *usage, int argc,
                  char **argv, const char **rest);

/* ---- statistics -------------------------------------------------------- */

/* Sort `values` and return the p-quantile (0..1), linearly interpolated. 0 for
 * no values. */
double stats_quantile(double *values, size_t count, double p);
double stats_median(double *values, size_t count);
/* Interquartile range over median: the spread that tables record. */
double stats_spread(double *values, size_t count);
double stats_geomean(const double *values, size_t count);

/* ---- random numbers: the same on every machine ------------------------- */

struct rng {
    uint64_t state;
};
void rng_seed(struct rng *rng, uint64_t seed);
uint64_t rng_next(struct rng *rng);
double rng_uniform(struct rng *rng);                 /* [0, 1) */
double rng_normal(struct rng *rng);                  /* mean 0, variance 1 */
uint32_t rng_below(struct rng *rng, uint32_t limit); /* [0, limit) */

/* ---- clock, text, files ------------------------------------------------ */

uint64_t clock_ns(void); /* monotonic */
/* "2026-01-31" in UTC. */
void date_text(char text[16]);

/* Is `text` matched by the shell pattern? NULL matches everything. */
bool glob_match(const char *pattern, const char *text);
/* By any pattern of the list; an empty list matches everything. */
bool glob_match_any(const struct option_list *patterns, const char *text);

/* Removes leading and trailing blanks in place; returns the start. */
char *text_trim(char *text);
/* Replaces whatever follows `mark` (and the mark) by nothing. */
char *text_cut(char *text, char mark);

/* A whole file with a NUL behind it, or NULL with errno set. */
char *file_read(const char *path, size_t *size);

/* A text that grows. */
struct text {
    char *data;
    size_t length, capacity;
};
void text_add(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void text_free(struct text *text);

/* Writes to "<path>.tmp.<pid>", syncs and renames, so that a reader or a crash
 * sees the old file or the new one. Makes the missing folders. False with errno
 * set. */
bool file_write(const char *path, const char *data, size_t size);

/* A file that the programs come with, as "shapes/la_decode.txt": in
 * <executable's folder>/../share/attngen/bench, as installed and as built; beside
 * the executable; in the bench folder of a source tree around it or around the
 * current folder. NULL if nowhere; else malloced. */
char *data_path(const char *name);

#endif /* BENCH_UTIL_H */
