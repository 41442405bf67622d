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
 *     digest  code  toolkit  driver  others    (one line, tabs between; others where a row has
 * some)
 */
#ifndef BENCH_TUNING_TABLE_H
#define BENCH_TUNING_TABLE_H

#include "common/gpu.h"
#include "common/util.h"

struct table_row {
    const char *family, *required, *problem, *variant;
    double us, spread;     /* device microseconds; interquartile range over median */
    const char *runner_up; /* "-": none */
    double runner_up_us;
    char digest[17]; /* of the variant's source */
    char code[17];   /* of its machine code; "-": the row is older than this column */
    const char *toolkit, *driver;
    const char *others; /* "variant=us,...": further ones of the last pass; "-": none */
};

/* Variants that were refused, and why: comments in the file, "# failed: <variant>:
 * <reason>". */
struct table_failure {
    char *variant, *reason;
};

struct table {
    struct table_row *row;
    size_t num_rows, row_capacity;
    struct table_failure *failure;
    size_t num_failures, failure_capacity;
    bool found; /* table_read() found a file that is not empty */
    struct gpu_identity {
        char class_name[32], gpu[64], driver[32], toolkit[16], commit[64];
        uint32_t compute_capability, num_sms, memory_gbps, l2_bytes;
        long rest_ms;              /* of the run that wrote the file */
        double seconds_per_bucket; /* of the last run that measured; 0: the file does not say */
    } identity;
};

/* What the header says of this GPU and this product. */
void table_identify(struct table *table, const struct gpu *gpu, const gen_library *library,
                    const char *commit);
/* Reads rows, failures, the class (identity.class_name, "" where no line names it) and the seconds
 * a bucket took; a missing file is an empty table. Returns the number of malformed lines,
 * which are dropped; -1, with errno set, if the file is there and cannot be read. */
int table_read(struct table *table, const char *path);
/* Why a table just read is not one to go on with on a GPU of such a class, after
 * the path; NULL if it is. */
const char *table_refusal(const struct table *table, const char *class_name, char *text,
                          size_t capacity);
void table_free(struct table *table);

/* NULL if there is none. */
struct table_row *table_find(struct table *table, const char *family, const char *required,
                             const char *problem);
/* Replaces the row of the same family, key and problem, or adds one. Copies the
 * strings. */
void table_put(struct table *table, const struct table_row *row);
/* Notes the first reason for which a variant is refused. Rows that it had won go:
 * the runtime would pick it. */
void table_fail(struct table *table, const char *variant, const char *reason);
/* The variant does what it should: takes back an earlier run's failure. */
void table_pass(struct table *table, const char *variant);

/* Sorts and writes the file atomically; false with errno set. */
bool table_write(struct table *table, const char *path);

#endif /* BENCH_TUNING_TABLE_H */
