/* Plans made lately, by thread. */
#include "select/memo.h"

#include <string.h>

#define NUM_ENTRIES 32                             /* a power of two */
#define DEVICE_BYTES offsetof(gen_device, ordinal) /* that selection reads */
#define PROBLEM_BYTES 96                           /* of longer problems no plan is kept */

struct gen__memo_entry {
    gen_plan plan;
    uint64_t library; /* 0: there is no plan */
    uint64_t hash;    /* of the plan's problem */
    uint64_t missed;  /* of the problem that was asked last and not found */
    unsigned char device[DEVICE_BYTES], problem[PROBLEM_BYTES];
};

static _Thread_local struct gen__memo_entry entries[NUM_ENTRIES];

/* Bytes are taken by sixteen; the last sixteen may be some that were taken before. */
typedef uint64_t two_words __attribute__((vector_size(16)));
enum { PIECE = sizeof(two_words) };
_Static_assert(DEVICE_BYTES >= PIECE && sizeof(gen_problem) >= PIECE, "a piece at least");

static inline two_words piece_of(const void *data, size_t at)
{
    two_words piece;
    memcpy(&piece, (const char *)data + at, sizeof(piece));
    return piece;
}

static inline bool same_bytes(const void *a, const void *b, size_t size)
{
    two_words differences = piece_of(a, size - PIECE) ^ piece_of(b, size - PIECE);
    for (size_t i = 0; i < size - PIECE; i += PIECE)
        differences |= piece_of(a, i) ^ piece_of(b, i);
    return !(differences[0] | differences[1]);
}

/* Of the problem alone: callers seldom have two devices of one problem. */
static inline uint64_t hash_of(const gen_problem *problem)
{
    /* With bits as random numbers have them. */
    static const uint64_t noise[PROBLEM_BYTES / 8] = {
        0x9e3779b97f4a7c15u, 0xbf58476d1ce4e5b9u, 0x94d049bb133111ebu, 0xd6e8feb86659fd93u,
        0xff51afd7ed558ccdu, 0xc4ceb9fe1a85ec53u, 0xa0761d6478bd642fu, 0xe7037ed1a0b428dbu,
        0x8ebc6af09c88c6e3u, 0x589965cc75374cc3u, 0x1d8e4e27c47d124fu, 0xd1342543de82ef95u};
    const size_t last = problem->size - PIECE;
    uint64_t words[2], hash = 0;
    for (size_t i = 0; i < last; i += PIECE) {
        memcpy(words, (const char *)problem + i, sizeof(words));
        hash += (words[0] ^ noise[i / 8]) * (words[1] ^ noise[i / 8 + 1]);
    }
    memcpy(words, (const char *)problem + last, sizeof(words));
    hash += (words[0] ^ noise[10]) * (words[1] ^ noise[11]);
    return hash ^ hash >> 32;
}

bool gen__memo_get(struct gen__memo_key *key, uint64_t library, const gen_device *device,
                   const gen_problem *problem, gen_plan *plan)
{
    *key = (struct gen__memo_key){NULL, device, problem, library, 0};
    if (problem->size < sizeof(gen_problem) || problem->size > PROBLEM_BYTES)
        return false;
    key->hash = hash_of(problem);
    key->entry = &entries[key->hash >> 24 & (NUM_ENTRIES - 1)];
    const struct gen__memo_entry *entry = key->entry;
    if (entry->hash != key->hash || entry->library != library ||
        !same_bytes(entry->problem, problem, problem->size) ||
        !same_bytes(entry->device, device, DEVICE_BYTES))
        return false;
    gen__plan_copy(plan, &entry->plan);
    return true;
}

void gen__memo_put(const struct gen__memo_key *key, const gen_plan *plan, bool at_once)
{
    struct gen__memo_entry *entry = key->entry;
    if (!entry)
        return;
    /* A copy waits for all that was just written, as long as a short search takes, so problems that
     * never come again are spared it. */
    const uint64_t missed = entry->missed;
    entry->missed = key->hash ^ key->library;
    if (missed != entry->missed && !at_once)
        return;
    entry->library = key->library;
    entry->hash = key->hash;
    memcpy(entry->device, key->device, DEVICE_BYTES);
    memcpy(entry->problem, key->problem, key->problem->size);
    gen__plan_copy(&entry->plan, plan);
}
