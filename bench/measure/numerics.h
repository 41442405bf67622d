/*
 * numerics.h - hard cases: inputs on which a kernel that keeps its sums in too few
 * bits is seen to be wrong, and how far a result is off on them. A list is a file
 * "<family>_numerics.txt" of lines
 *
 *     e4m3-D128-N4096-ones: head_dim=128 dtype=e4m3 kv_len=4096 @data=ones
 *
 * the name in the results, and the problem as in a verify list. Two more words may
 * stand there:
 *   @every      every variant that runs the problem, and the worst of them counts
 *   @unrounded  the result is compared with that of the same numbers rounded to fp16
 *               instead of to the problem's 8 bits
 */
#ifndef BENCH_NUMERICS_H
#define BENCH_NUMERICS_H

#include "common/problems.h"
#include "common/util.h"
#include "verify/verify.h"

struct hard_case {
    char name[64];
    bool every;
    bool is_reference; /* no row: the next one's results are compared with this one's */
};

/* hard[i] says what problems.item[i] is. */
struct hard_list {
    struct shape_list problems;
    struct hard_case *hard;
};

/* Reads a family's list (path NULL: its file of the shapes folder, and no case where there is
 * none). Returns the number of bad lines, each warned about; -1 if it cannot be read. */
int hard_list_read(struct hard_list *list, const struct gen__family *family, const char *path);
void hard_list_free(struct hard_list *list);

/* A sum of the inputs' bytes, each plus one, times the random numbers of seed 0 in turn, modulo
 * 2^64: other programs prove by it that their inputs are these. */
uint64_t numerics_checksum(const struct verify_case *c);

/* Are the inputs of `c` the numbers of `exact`, but for the rounding to 8 bits? */
bool numerics_same_inputs(const struct verify_case *c, const struct verify_case *exact);

/* The greatest relative Frobenius error of an output of `c`, as it stands in c->actual, against
 * what `reference` expects: `c` itself, or the same problem of another dtype. Infinite where an
 * element is finite in one alone. Outputs that are held to an absolute tolerance (logarithms of
 * sums) do not count. */
double numerics_error(const struct verify_case *c, const struct verify_case *reference);

#endif /* BENCH_NUMERICS_H */
