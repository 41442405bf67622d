/*
 * tuning_table.h - a tuning table as the tuner reads and writes it. The runtime has
 * its own reader, which trusts nothing; this one serves to go on with a table
 * that an earlier run left.
 *
 *     # attngen tuning table
 *     # format: 1
 *     # class: sm90_132sm
 *     ...
 *     family  required  problem  variant  us  spread  runner_up  runner_up_us
 *     digest  toolkit  driver        (one line, tabs between)
 */
#ifndef BENCH_TUNING_TABLE_H
#define BENCH_TUNING_TABLE_H

#include "gpu.h"
#include "util.h"

struct table_row {
    const char *family, *required, *problem, *variant;
    double us, spread;     /* device microseconds; interquartile range over median */
    const char *runner_up; /* "-": none */
    double runner_up_us;
    char digest[17]; /* of the variant */
    const char *toolkit, *driver;
};

/* Variants that were refused, and why: comments in the file. */
struct table_failure {
    char *variant, *reason;
};

struct table {
    struct table_row *row;
    size_t num_rows, row_capacity;
    struct table_failure *failure;
    size_t num_failures, failure_capacity;
    struct gpu_identity {
        char class_name[32], gpu[64], driver[32], toolkit[16], commit[64];
        uint32_t compute_capability, num_sms, memory_gbps, l2_bytes;
    } identity;
};

/* What the header says of this GPU and this product. */
void table_identify(struct table *table, const struct gpu *gpu, const gen_library *library,
                    const char *commit);
/* Reads rows; a missing file is an empty table. Returns the number of malformed
 * lines, which are dropped. */
int table_read(struct table *table, const char *path);
void table_free(struct table *table);

/* NULL if there is none. */
struct table_row *table_find(struct table *table, const char *family, const char *required,
                             const char *problem);
/* Replaces the row of the same family, key and problem, or adds one. Copies the
 * strings. */
void table_put(struct table *table, const struct table_row *row);
void table_fail(struct table *table, const char *variant, const char *reason);

/* Sorts and writes the file atomically; false with errno set. */
bool table_write(struct table *table, const char *path);

#endif /* BENCH_TUNING_TABLE_H */
