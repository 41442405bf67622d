/*
 * bench.h - the jobs of attngen-bench.
 */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include "common/session.h"
#include "common/util.h"

struct bench_options {
    struct session session;
    const char *results;        /* folder of results */
    const char *commit;         /* of the source */
    const char *command;        /* this run's command line */
    const char *cases;          /* glob of case names */
    const char *list;           /* another shape file */
    const char *pretend;        /* host: a device by name, in place of a GPU */
    struct option_list peers;   /* files of peers' times */
    struct option_list columns; /* NAME=GLOB */
    bool picked;                /* columns: what selection takes, too */
    bool keep;                  /* cases: rows of cases that are not measured stay */
    long check_mib;             /* problems up to this size are verified */
    long rest_ms;               /* cases, columns: idle time before a sample */
    long count;                 /* regret: problems */
    long seed;
    double seconds;  /* cases, regret: what is not begun by then is left out; 0: no limit */
    uint64_t start;  /* clock_ns() */
    size_t left_out; /* problems, for lack of time */
    bool quick;
};

/* Each writes its CSV files under results/<class>/ and returns an exit status. */
int bench_cases(struct bench_options *options);
int bench_host(struct bench_options *options);
int bench_regret(struct bench_options *options);
int bench_columns(struct bench_options *options);
int bench_numerics(struct bench_options *options);
/* Launches a case's plan a few times, for a profiler. */
int bench_profile(struct bench_options *options, const char *name);

/* Whether the time is up; counts the problem that is left out. */
bool bench_out_of_time(struct bench_options *options);
/* "# gpu: ..." lines at the head of every result file; method may be NULL. */
void bench_header(struct text *text, const struct bench_options *options, const char *method);
/* Begins a new text of results/<class>/<name>.csv, a file of blocks, each a head and the rows of
 * one family: the line of the columns, and the blocks of the families other than `family`, which an
 * earlier run measured. */
void bench_other_families(struct text *text, const struct bench_options *options, const char *name,
                          const char *columns, const char *family);
/* Writes results/<class>/<name>.csv; dies if it cannot. */
void bench_write(const struct bench_options *options, const char *name, const struct text *text);

#endif /* BENCH_BENCH_H */
