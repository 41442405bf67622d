/* Plans made lately, by thread. */
#include "select/memo.h"

#include <string.h>

#define NUM_ENTRIES 32                                                  /* a power of two */
#define DEVICE_WORDS (offsetof(gen_device, ordinal) / sizeof(uint64_t)) /* that selection reads */
#define PROBLEM_WORDS 12 /* of longer problems no plan is kept */
_Static_assert(DEVICE_WORDS == 4 && offsetof(gen_device, ordinal) % sizeof(uint64_t) == 0,
               "whole words");

struct gen__memo_entry {
    gen_plan plan;
    uint64_t library; /* 0: there is no plan */
    uint64_t hash;    /* of the plan's problem */
    uint64_t missed;  /* of the problem that was asked last and not found */
    uint64_t device[DEVICE_WORDS], problem[PROBLEM_WORDS];
};

static _Thread_local struct gen__memo_entry entries[NUM_ENTRIES];

/* ---- keys -------------------------------------------------------------- */

static inline uint64_t word_of(const void *data, size_t i)
{
    uint64_t word;
    memcpy(&word, (const char *)data + 8 * i, 8);
    return word;
}

/* What is left of a struct whose size is no multiple of eight, but of four; 0 where it is. */
static inline uint64_t last_half(const void *data, size_t size)
{
    uint32_t half = 0;
    if (size % 8)
        memcpy(&half, (const char *)data + size / 8 * 8, 4);
    return half;
}

/* Of the problem alone: callers seldom have two devices of one problem. */
static uint64_t hash_of(const gen_problem *problem)
{
    /* With bits as random numbers have them. */
    static const uint64_t noise[PROBLEM_WORDS] = {
        0x9e3779b97f4a7c15u, 0xbf58476d1ce4e5b9u, 0x94d049bb133111ebu, 0xd6e8feb86659fd93u,
        0xff51afd7ed558ccdu, 0xc4ceb9fe1a85ec53u, 0xa0761d6478bd642fu, 0xe7037ed1a0b428dbu,
        0x8ebc6af09c88c6e3u, 0x589965cc75374cc3u, 0x1d8e4e27c47d124fu, 0xd1342543de82ef95u};
    const size_t size = problem->size;
    uint64_t hash = last_half(problem, size) * noise[size / 8];
    for (size_t i = 0; i < size / 8; i++)
        hash += word_of(problem, i) * noise[i];
    return hash ^ hash >> 32;
}

static bool same_key(const struct gen__memo_entry *entry, const struct gen__memo_key *key)
{
    const size_t size = key->problem->size;
    if (entry->hash != key->hash || entry->library != key->library)
        return false;
    uint64_t differences = entry->problem[size / 8] ^ last_half(key->problem, size);
    for (size_t i = 0; i < DEVICE_WORDS; i++)
        differences |= entry->device[i] ^ word_of(key->device, i);
    for (size_t i = 0; i < size / 8; i++)
        differences |= entry->problem[i] ^ word_of(key->problem, i);
    return !differences;
}

bool gen__memo_get(struct gen__memo_key *key, uint64_t library, const gen_device *device,
                   const gen_problem *problem, gen_plan *plan)
{
    *key = (struct gen__memo_key){NULL, device, problem, library, 0};
    if (problem->size >= PROBLEM_WORDS * 8 || problem->size % 4)
        return false;
    key->hash = hash_of(problem);
    key->entry = &entries[key->hash >> 24 & (NUM_ENTRIES - 1)];
    if (!same_key(key->entry, key))
        return false;
    gen__plan_copy(plan, &key->entry->plan);
    return true;
}

void gen__memo_put(const struct gen__memo_key *key, const gen_plan *plan)
{
    struct gen__memo_entry *entry = key->entry;
    const size_t size = key->problem->size;
    if (!entry)
        return;
    /* A copy waits for all that was just written, as long as a short search takes, so problems that
     * never come again are spared it. */
    if (entry->missed != (key->hash ^ key->library)) {
        entry->missed = key->hash ^ key->library;
        return;
    }
    entry->library = key->library;
    entry->hash = key->hash;
    for (size_t i = 0; i < DEVICE_WORDS; i++)
        entry->device[i] = word_of(key->device, i);
    for (size_t i = 0; i < size / 8; i++)
        entry->problem[i] = word_of(key->problem, i);
    entry->problem[size / 8] = last_half(key->problem, size);
    gen__plan_copy(&entry->plan, plan);
}
