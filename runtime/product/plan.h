/* A plan is the caller's data, and what its fields say is believed: a launch and the reference go
 * as far in the arguments' memory as they say. So gen_select() seals it, and who takes a plan asks
 * first whether it is still as it was made. */
#ifndef GEN_PLAN_H
#define GEN_PLAN_H

#include "format/product.h"
#include "gen.h"

#define GEN__PLAN_WORDS (offsetof(gen_plan, seal) / sizeof(uint64_t))
_Static_assert(offsetof(gen_plan, seal) % (4 * sizeof(uint64_t)) == 0, "whole words, in fours");
_Static_assert(offsetof(gen_plan, seal) + 16 == sizeof(gen_plan), "all but the seal is sealed");

static inline uint64_t gen__plan_word(const gen_plan *plan, size_t i)
{
    uint64_t word;
    memcpy(&word, (const unsigned char *)plan + sizeof(word) * i, sizeof(word));
    return word;
}

/* Of all other bytes. One changed word always changes it; several go unnoticed once in 2^64. Four
 * chains, because each multiplication waits for the one before it. */
static inline void gen__plan_sum(const gen_plan *plan, uint64_t seal[2])
{
    uint64_t a = 0x9e3779b97f4a7c15u, b = 0xbf58476d1ce4e5b9u, c = 0x94d049bb133111ebu,
             d = 0xd6e8feb86659fd93u;
#pragma GCC unroll 16
    for (size_t i = 0; i < GEN__PLAN_WORDS; i += 4) {
        a = gen_pack_mix(a, gen__plan_word(plan, i));
        b = gen_pack_mix(b, gen__plan_word(plan, i + 1));
        c = gen_pack_mix(c, gen__plan_word(plan, i + 2));
        d = gen_pack_mix(d, gen__plan_word(plan, i + 3));
    }
    seal[0] = gen_pack_mix(a, b);
    seal[1] = gen_pack_mix(c, d);
}

static inline void gen__plan_seal(gen_plan *plan)
{
    gen__plan_sum(plan, plan->seal);
}

static inline bool gen__plan_sealed(const gen_plan *plan)
{
    uint64_t seal[2];
    gen__plan_sum(plan, seal);
    return ((seal[0] ^ plan->seal[0]) | (seal[1] ^ plan->seal[1])) == 0;
}

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

#endif /* GEN_PLAN_H */
