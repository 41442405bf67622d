/*
 * Lists of 64-bit indices as 32 bits. For each list and i < count:
 *
 *     to[i] = from[i], or the nearest number that 32 bits hold
 *
 * Selection puts it in front of a plan whose problem says GEN_INDEX_INT64: the kernels
 * behind it read cu_seqlens of 32 bits in the workspace, and take a bad number there as
 * they take any.
 */
#ifndef GEN_INDEX32_H
#define GEN_INDEX32_H

#include "gen.h"

enum gen_index32_tag { GEN_INDEX32 = 0x49583332 /* "IX32" */ };

typedef struct gen_index32_problem {
    gen_problem base;  /* size, GEN_INDEX32, flags */
    int32_t count;     /* entries of each list; 0 is legal and launches nothing */
    int32_t num_lists; /* 1 or 2 */
} gen_index32_problem;

/* Device pointers (host pointers for the CPU backend), aligned to their types. Lists are apart. */
typedef struct gen_index32_args {
    gen_args base;         /* size, GEN_INDEX32 */
    const int64_t *from;   /* [count] */
    const int64_t *from_2; /* [count]; NULL with num_lists 1 */
    int32_t *to;           /* [count] */
    int32_t *to_2;         /* [count]; NULL with num_lists 1 */
} gen_index32_args;

#endif /* GEN_INDEX32_H */
