/* A result file of an earlier run, of which another run measures some cases anew. */
#ifndef BENCH_KEEP_H
#define BENCH_KEEP_H

#include "measure/bench.h"

/* Adds to `notes` and `rows` what results/<class>/<name>.csv has of cases that `measured`, the rows
 * of this run, does not have: a note of whose run they are, its peers' notes, the rows. Dies where
 * the file is of another GPU or has other columns. A file that is not there adds nothing. */
void bench_keep(const struct bench_options *options, const char *name, const char *columns,
                const struct text *measured, struct text *notes, struct text *rows);

#endif /* BENCH_KEEP_H */
