/*
 * What gen_open() builds over a product so that selection is a few look-ups:
 * entries by required key, and the tuning rows of each entry by class of GPU.
 * All of it is constant once open, but for the loader.
 */
#ifndef GEN_LIBRARY_H
#define GEN_LIBRARY_H

#include "driver.h"
#include "pack.h"

#include <pthread.h>
#include <stdatomic.h>

/* A tuning row. Rows of a range are sorted by their coordinates. */
struct gen__row {
    float coords[GEN__MAX_COORDS]; /* log2 */
    float log2_us;
    float runner_up_us;
    uint32_t runner_up; /* num_variants: not told */
    /* Of the row's variant, so that selection need not follow it further. */
    uint32_t target_cc, target_kind;
    uint64_t shared; /* bytes a block; GEN__NEVER: the code does not run on the row's class */
    struct gen__facts facts;
};

#define GEN__NEVER UINT64_MAX

/* Between two rows, log2 of the time is log2_us + slope * (x - coord). */
struct gen__knot {
    float coord, log2_us, slope;
    float left, right; /* first coordinates around; infinite at the ends */
    uint32_t side[2];  /* the rows there, of the range; at the ends the only one there is */
};

/* A range with one coordinate knows for every eighth of a doubling, from 1 to
 * 2^32, how many rows are below it; the first cell begins at -infinity, and a
 * last number tells all rows. */
#define GEN__CELLS_PER_DOUBLING 8
#define GEN__NUM_CELLS 256

/* The rows of one entry for one class of GPU. */
struct gen__range {
    uint32_t compute_capability, num_sms;
    uint32_t table; /* that the rows come from */
    uint32_t first_row, num_rows;
    uint32_t first_key;   /* into keys: the first coordinate of the first row */
    uint32_t first_knot;  /* into knots: num_rows + 1 */
    uint32_t first_cell;  /* into cells: GEN__NUM_CELLS + 1 */
    uint32_t memory_gbps; /* of the table */
};

/* One required key of one family, over all targets. */
struct gen__entry {
    uint32_t first_group, num_groups; /* in group_order: best target first */
    uint32_t first_range, num_ranges; /* sorted by class */
};

/* A tuning table that was read, or refused. */
struct gen__table {
    char *name;          /* path, or the built-in table's name */
    char class_name[32]; /* "sm90_132sm" */
    char reason[128];    /* why it was refused, or the first bad row; "" if neither */
    uint32_t reason_line;
    uint32_t compute_capability, num_sms, memory_gbps, l2_bytes;
    float log2_sms;
    uint32_t num_used, num_bad, num_expired, num_shadowed;
    bool refused;
};

/* An open-addressing slot; `family` NULL where free. */
struct gen__slot {
    uint64_t codes; /* of gen__key, as 8 bytes */
    const struct gen__family *family;
    uint32_t entry;
};

/* Kernels by variant. A kernel is published, with its attributes set, by a
 * release store; the driver pointer is set before the first of them. */
struct gen__loader {
    pthread_mutex_t lock;
    const struct gen__driver *driver;
    _Atomic(void *) *kernels; /* CUkernel; NULL: not loaded */
    void **libraries;         /* CUlibrary; under the lock */
};

enum gen__log { GEN__LOG_SELECT = 1, GEN__LOG_LOAD = 2 };

struct gen_library {
    struct gen__pack pack;
    uint64_t slot_mask;
    uint64_t slot_factor; /* of the hash, chosen so that few keys collide */
    struct gen__slot *slots;
    struct gen__entry *entries;
    struct gen__range *ranges;
    struct gen__row *rows;
    float *keys; /* rows.h */
    struct gen__knot *knots;
    uint32_t *cells;
    uint32_t *group_order;
    struct gen__table *tables;
    const struct gen__family **families; /* by the product's index; NULL: not known */
    uint32_t num_entries, num_ranges, num_rows, num_tables;
    uint32_t num_rows_bad, num_rows_expired, num_groups_skipped;
    uint32_t log; /* enum gen__log */
    struct gen__loader *loader;
    void *mapping; /* of the file, or NULL */
    size_t mapping_size;
};

static inline uint64_t gen__key_codes(const struct gen__key *key)
{
    uint64_t codes;
    _Static_assert(sizeof(codes) == GEN__MAX_REQUIRED, "codes fill a word");
    __builtin_memcpy(&codes, key->codes, sizeof(codes));
    return codes;
}

static inline uint64_t gen__slot_hash(uint64_t factor, const struct gen__family *family,
                                      uint64_t codes)
{
    const uint64_t h = (codes ^ (uint64_t)family->tag << 32) * factor;
    return h >> 40;
}

/* The entry of a key; NULL where the product has none. */
static inline const struct gen__entry *
gen__entry_find(const gen_library *library, const struct gen__family *family, uint64_t codes)
{
    for (uint64_t i = gen__slot_hash(library->slot_factor, family, codes);; i++) {
        const struct gen__slot *slot = &library->slots[i & library->slot_mask];
        if (__builtin_expect(slot->family == family && slot->codes == codes, 1))
            return &library->entries[slot->entry];
        if (!slot->family)
            return NULL;
    }
}

static inline void gen__facts_get(const gen_library *library, uint32_t variant,
                                  struct gen__facts *facts)
{
    const struct gen_pack_variant *v = &library->pack.variants[variant];
    facts->index = variant;
    facts->threads = v->threads;
    facts->shared_dynamic = v->shared_dynamic;
    facts->shared_static = v->shared_static;
    facts->cluster = v->cluster;
    facts->registers = v->registers;
    facts->fact = v->facts;
}

/* The entry that a group belongs to, or num_entries where its family or a
 * value is not known to this runtime. */
uint32_t gen__entry_of_group(const gen_library *library, uint32_t group);

/* tables.c: reads the caller's tables, then the built-in ones, into `tables`,
 * `rows` and `ranges`. Errors: IO and FORMAT for a caller's table (a built-in
 * one that is malformed is refused and noted), OUT_OF_MEMORY. */
enum gen_status gen__tables_read(gen_library *library, const char *const *paths, size_t num_paths);

#endif /* GEN_LIBRARY_H */
