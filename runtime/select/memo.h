/*
 * The plans that the calling thread has had made lately, found by the bytes that they depend on: a
 * direct-mapped table in thread-local storage, so that nothing is shared, locked or allocated. (In
 * a library that was opened by dlopen(), the first touch of a thread's storage allocates it, as for
 * gen_last_error().) Entries are of one opening of a library: its identity is in the key, and none
 * is used twice in a process.
 */
#ifndef GEN_MEMO_H
#define GEN_MEMO_H

#include "family/family.h"

/* Where a plan is kept, between a get that found none and the put. */
struct gen__memo_key {
    struct gen__memo_entry *entry; /* NULL: nowhere */
    const gen_device *device;
    const gen_problem *problem;
    uint64_t library, hash;
};

/* The plan for a device and a problem whose sizes were checked. False: none is there, and *plan is
 * left alone. */
bool gen__memo_get(struct gen__memo_key *key, uint64_t library, const gen_device *device,
                   const gen_problem *problem, gen_plan *plan);
/* Keeps the plan if its problem was the last that was looked for at its place: from the second time
 * on that it comes. */
void gen__memo_put(const struct gen__memo_key *key, const gen_plan *plan);

/* In vectors, written out: gcc turns a memcpy of this size into a call or `rep movs`, which takes
 * longer than all the rest of a plan. */
typedef uint64_t gen__plan_words __attribute__((vector_size(16)));
_Static_assert(sizeof(gen_plan) % sizeof(gen__plan_words) == 0, "whole vectors");

static inline void gen__plan_copy(gen_plan *to, const gen_plan *from)
{
#pragma GCC unroll 64
    for (size_t i = 0; i < sizeof(*to); i += sizeof(gen__plan_words)) {
        gen__plan_words words;
        memcpy(&words, (const unsigned char *)from + i, sizeof(words));
        memcpy((unsigned char *)to + i, &words, sizeof(words));
    }
}

static inline void gen__plan_clear(gen_plan *plan)
{
    const gen__plan_words zero = {0, 0};
#pragma GCC unroll 64
    for (size_t i = 0; i < sizeof(*plan); i += sizeof(zero))
        memcpy((unsigned char *)plan + i, &zero, sizeof(zero));
}

#endif /* GEN_MEMO_H */
