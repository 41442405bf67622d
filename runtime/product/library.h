/*
 * What gen_open() builds over a product so that selection is a few look-ups:
 * entries by required key, and the tuning rows of each entry by class of GPU.
 * All of it is constant once open, but for the loader.
 */
#ifndef GEN_LIBRARY_H
#define GEN_LIBRARY_H

#include "core/log.h"
#include "format/rows.h"
#include "product/nearest.h"
#include "product/pack.h"

#include <pthread.h>
#include <stdatomic.h>

/* One required key of one family, over all targets. */
struct gen__key_entry {
    uint64_t codes; /* of gen__key, as 8 bytes */
    const struct gen__family *family;
    struct gen__class_rows *classes;  /* by compute capability and number of SMs; NULL: none */
    uint32_t first_group, num_groups; /* in group_order: best target first */
};

/* A tuning table that was read, or refused. */
struct gen__table {
    char *name;            /* path, or the built-in table's name */
    struct gen_table read; /* the caller's own rows are freed with it */
    bool builtin;          /* its rows stand in the product */
    uint32_t num_used, num_shadowed;
};

struct gen__driver;

/* Kernels by variant. A kernel is published, with its attributes set, by a
 * release store; the driver pointer is set before the first of them. */
struct gen__loader {
    pthread_mutex_t lock;
    const struct gen__driver *driver;
    _Atomic(void *) *kernels; /* CUkernel; NULL: not loaded */
    void **libraries;         /* CUlibrary; under the lock */
};

/* Places of a hash table: positions counted from 1, or 0. */
#define GEN__FAMILY_PLACES 256

struct gen_library {
    struct gen__pack pack;
    uint64_t identity; /* of this opening: no other in the process has it; never 0 */
    uint8_t family_places[GEN__FAMILY_PLACES]; /* of this runtime's families, by tag */
    uint32_t *entry_places;                    /* entry_mask + 1, of entries */
    uint64_t entry_mask;
    struct gen__key_entry *entries; /* in the order of the product's groups */
    struct gen__facts *variants;
    uint32_t *group_order;
    uint32_t *group_entry; /* by group: its place among the entries, or GEN__NO_ENTRY */
    struct gen__table *tables;
    const struct gen__family **families; /* by the product's index; NULL: not known */
    uint32_t num_entries, num_rows, num_tables;
    uint32_t num_rows_bad, num_rows_expired, num_rows_ptx, num_groups_skipped;
    uint32_t log; /* enum gen_log_level: of GEN_LOG */
    struct gen__loader *loader;
};

/* Is a level logged of this library? */
static inline bool gen__logs(const gen_library *library, enum gen_log_level level)
{
    return (library->log | gen__log_now()) & (uint32_t)level;
}

static inline uint64_t gen__key_codes(const struct gen__key *key)
{
    uint64_t codes;
    _Static_assert(sizeof(codes) == GEN__MAX_REQUIRED, "codes fill a word");
    __builtin_memcpy(&codes, key->codes, sizeof(codes));
    return codes;
}

static inline uint64_t gen__key_entry_hash(const struct gen__family *family, uint64_t codes)
{
    return (codes * 0xd6e8feb86659fd93u ^ family->tag) * 0x9e3779b97f4a7c15u >> 40;
}

static inline uint32_t gen__family_hash(uint32_t tag)
{
    return tag * 0x9e3779b1u >> 24;
}

/* The family of a tag; NULL where this runtime has none. */
static inline const struct gen__family *gen__family_find(const gen_library *library, uint32_t tag)
{
    for (uint32_t i = gen__family_hash(tag);; i++) {
        const uint32_t place = library->family_places[i % GEN__FAMILY_PLACES];
        if (!place)
            return NULL;
        if (gen__families[place - 1]->tag == tag)
            return gen__families[place - 1];
    }
}

/* The entry of a key; NULL where the product has none. */
static inline const struct gen__key_entry *
gen__key_entry_find(const gen_library *library, const struct gen__family *family, uint64_t codes)
{
    for (uint64_t i = gen__key_entry_hash(family, codes);; i++) {
        const uint32_t place = library->entry_places[i & library->entry_mask];
        if (!place)
            return NULL;
        const struct gen__key_entry *entry = &library->entries[place - 1];
        if (entry->codes == codes && entry->family == family)
            return entry;
    }
}

static inline const struct gen__facts *gen__facts_of(const gen_library *library, uint32_t variant)
{
    return &library->variants[variant];
}

#define GEN__NO_ENTRY UINT32_MAX

/* The entry that a group belongs to, or NULL where its family or a value is not
 * known to this runtime. */
static inline const struct gen__key_entry *gen__key_entry_of_group(const gen_library *library,
                                                                   uint32_t group)
{
    const uint32_t entry = library->group_entry[group];
    return entry == GEN__NO_ENTRY ? NULL : &library->entries[entry];
}

/* entries.c: this runtime's families by tag, and the product's required keys with their groups, the
 * best target first. Errors: OUT_OF_MEMORY, UNSUPPORTED (too many families). */
enum gen_status gen__key_entries_build(gen_library *library);

/* cuda/launch.c: unloads every image that was loaded. */
void gen__unload_all(gen_library *library);

/* tables.c: reads the caller's tables, then the built-in ones, and gives the entries their rows.
 * Errors: IO and FORMAT for a caller's table (a built-in one that is malformed is refused and
 * noted), OUT_OF_MEMORY. */
enum gen_status gen__tables_read(gen_library *library, const char *const *paths, size_t num_paths);
void gen__tables_free(gen_library *library);

#endif /* GEN_LIBRARY_H */
