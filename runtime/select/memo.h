/*
 * The plans that the calling thread has had made lately, found by the bytes that they depend on: a
 * direct-mapped table in thread-local storage, so that nothing is shared, locked or allocated. (In
 * a library that was opened by dlopen(), the first touch of a thread's storage allocates it, as for
 * gen_last_error().) Entries are of one opening of a library: its identity is in the key, and none
 * is used twice in a process.
 */
#ifndef GEN_MEMO_H
#define GEN_MEMO_H

#include "product/plan.h"

/* Where a plan is kept, between a get that found none and the put. */
struct gen__memo_key {
    struct gen__memo_entry *entry; /* NULL: nowhere */
    const gen_device *device;
    const gen_problem *problem;
    uint64_t library, hash;
};

/* The plan for a device of this library's size and for so many bytes of a problem as it says that
 * it has. False: none is there, and *plan is left alone. */
bool gen__memo_get(struct gen__memo_key *key, uint64_t library, const gen_device *device,
                   const gen_problem *problem, gen_plan *plan);
/* Keeps the plan if its problem was the last that was looked for at its place: from the second time
 * on that it comes, or `at_once`. */
void gen__memo_put(const struct gen__memo_key *key, const gen_plan *plan, bool at_once);

#endif /* GEN_MEMO_H */
