/*
 * What gen_open() builds over a product so that selection is a few look-ups: entries by required
 * key, and the tuning rows of each entry by class of GPU. All of it is constant once open, but for
 * the loader.
 */
#ifndef GEN_LIBRARY_H
#define GEN_LIBRARY_H

#include "core/log.h"
#include "format/rows.h"
#include "product/nearest.h"
#include "product/pack.h"

#include <pthread.h>
#include <stdatomic.h>

#define GEN__NO_GROUP UINT32_MAX

/* One required key of one family, over all targets. */
struct gen__key_entry {
    uint64_t codes; /* of gen__key, as 8 bytes */
    const struct gen__family *family;
    struct gen__class_rows *classes; /* by compute capability and number of SMs; NULL: none */
    uint32_t first_group;            /* of the best target; the others by next_group */
    uint32_t num_variants;
};

/* A tuning table that was read, or refused. */
struct gen__table {
    const char *name; /* path, or the built-in table's name */
    struct gen_table read;
    bool builtin; /* its name and its rows stand in the product */
    uint32_t num_used, num_shadowed;
};

struct gen__driver;

/* Kernels by variant. A kernel is published, with its attributes set, by a release store; the
 * driver pointer is set before the first of them. */
struct gen__loader {
    pthread_mutex_t lock;
    const struct gen__driver *driver;
    struct gen__loaded {
        _Atomic(void *) kernel; /* CUkernel; NULL: not loaded */
        void *library;          /* CUlibrary; under the lock */
    } variants[];
};

#define GEN__FAMILY_PLACES 256u

struct gen_library {
    struct gen__pack pack;
    uint64_t identity; /* of this opening: no other in the process has it; never 0 */
    gen_library_info info;
    const struct gen__family *family_places[GEN__FAMILY_PLACES]; /* a hash table by tag */
    struct gen__key_entry **entry_places; /* a hash table of entry_mask + 1 places */
    uint64_t entry_mask;
    struct gen__key_entry *entries; /* in the order of the product's groups */
    uint32_t num_entries, num_tables;
    struct gen__key_entry **group_entry; /* by group; NULL: not known to this runtime */
    uint32_t *next_group;                /* by group: the next best of its entry */
    struct gen__facts *variants;
    struct gen__table *tables;
    const struct gen__family **families; /* by the product's index; NULL: not known */
    uint32_t log;                        /* enum gen_log_level: of GEN_LOG */
    struct gen__loader *loader;
};

/* Is one of these levels logged of this library? */
static inline bool gen__logs(const gen_library *library, uint32_t levels)
{
    return (library->log | gen__log_now()) & levels;
}

static inline uint64_t gen__key_codes(const struct gen__key *key)
{
    uint64_t codes;
    _Static_assert(sizeof(codes) == GEN__MAX_REQUIRED, "codes fill a word");
    __builtin_memcpy(&codes, key->codes, sizeof(codes));
    return codes;
}

/* The family of a tag; NULL where this runtime has none. */
static inline const struct gen__family *gen__family_find(const gen_library *library, uint32_t tag)
{
    for (uint32_t i = tag * 0x9e3779b1u >> 24;; i++) {
        const struct gen__family *family = library->family_places[i % GEN__FAMILY_PLACES];
        if (!family || family->tag == tag)
            return family;
    }
}

/* Where the entry of a key is; NULL stands there if the product has none. */
static inline struct gen__key_entry **
gen__key_place(const gen_library *library, const struct gen__family *family, uint64_t codes)
{
    uint64_t i = (codes * 0xd6e8feb86659fd93u ^ family->tag) * 0x9e3779b97f4a7c15u >> 40;
    for (;; i++) {
        struct gen__key_entry **place = &library->entry_places[i & library->entry_mask];
        if (!*place || ((*place)->codes == codes && (*place)->family == family))
            return place;
    }
}

/* entries.c: this runtime's families by tag, and the product's required keys with their groups. */
void gen__key_entries_build(gen_library *library);

/* cuda/launch.c: unloads every image that was loaded. */
void gen__unload_all(gen_library *library);

/* tables.c: reads the caller's tables, then the built-in ones, and gives the entries their rows.
 * Errors: IO and FORMAT for a caller's table (a built-in one that is malformed is refused and
 * noted), OUT_OF_MEMORY. */
enum gen_status gen__tables_read(gen_library *library, const char *const *paths, size_t num_paths);
void gen__tables_free(gen_library *library);

#endif /* GEN_LIBRARY_H */
