/*
 * log_file.h - the problems of a service: what GEN_LOG=select wrote (runtime/gen.h, enum
 * gen_log_level), as a list of problems to tune.
 */
#ifndef BENCH_LOG_FILE_H
#define BENCH_LOG_FILE_H

#include "common/problems.h"

struct log_counts {
    size_t selections;  /* lines of one */
    size_t other;       /* of families that are not asked for */
    size_t unsupported; /* that no variant fits, so that nothing can be tuned */
    size_t bad;         /* warned about with file and line */
};

/* Appends the problems of the file's selections by the parser of shape files. A line may begin with
 * what a logger puts in front; a line without a selection is passed over. False, with errno
 * set, if the file cannot be read. */
bool log_read(struct shape_list *list, const struct gen__family *const *families,
              uint32_t num_families, const char *path, struct log_counts *counts);

#endif /* BENCH_LOG_FILE_H */
