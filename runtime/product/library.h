/*
 * What gen_open() builds over a product so that selection is a few look-ups:
 * entries by required key, and the tuning rows of each entry by class of GPU.
 * All of it is constant once open, but for the loader.
 */
#ifndef GEN_LIBRARY_H
#define GEN_LIBRARY_H

#include "product/pack.h"

#include <pthread.h>
#include <stdatomic.h>

/* What is read together stands in one cache line. */
#define GEN__LINE 64

/* A variant as selection sees it. */
struct gen__variant {
    _Alignas(GEN__LINE) struct gen__facts facts;
    bool fits_all; /* of rows' variants: the family need not be asked whether a problem fits */
};

/* A tuning row. Rows of a range are sorted by their coordinates. */
struct gen__row {
    float counts[GEN__MAX_COORDS]; /* the coordinates */
    float logs[GEN__MAX_COORDS];   /* in doublings */
    float us, log2_us;
    float runner_up_us;
    uint32_t runner_up; /* num_variants: not told */
    const struct gen__facts *facts;
    uint64_t shared; /* bytes a block; GEN__NEVER: the code does not run on the row's class */
};

#define GEN__NEVER UINT64_MAX

/*
 * A row of a range with one coordinate, with all that selection reads of it in
 * one cache line: it is the nearest row from where the one before ends to
 * `upto`, and there x takes
 *
 *     us + d * (slope + d * curve)    where d = x - count,
 *
 * [0] below the row's own coordinate, [1] above it. A slope that is no number
 * says that no such curve is near enough to us * (x / count) ^ power. Where a
 * range has several coordinates, its only spot is one that no problem fits.
 */
struct gen__spot {
    _Alignas(GEN__LINE) float upto;
    float count;
    float us;
    float slope[2], curve[2];
    uint32_t row; /* of the range */
    uint64_t shared;
    const struct gen__facts *facts;
    float power[2];
    bool fits_all; /* the family need not be asked whether a problem fits */
};

/* An eighth (linearly) of a doubling. */
struct gen__cell {
    float upto;    /* of that spot */
    uint32_t spot; /* the first that reaches into the cell */
};

/* Where a grid (grid.h) is and where in it the steps of the coordinates are: what selection reads
 * of it first. */
struct gen__place {
    const unsigned char *at; /* NULL: none was built */
    int16_t low[4], high[4]; /* the first and last step of each coordinate */
    uint16_t steps[4];       /* in steps from `at` */
};

/* The rows of one entry for one class of GPU. What every selection reads comes first. */
struct gen__range {
    _Alignas(GEN__LINE) uint32_t compute_capability;
    uint32_t num_sms;
    /* From the end of the first spot to behind the beginning of the last. */
    const struct gen__cell *cells;
    const struct gen__spot *spots;
    uint32_t first_cell, last_cell;
    uint32_t memory_gbps;       /* of the table */
    uint32_t table;             /* that the rows come from */
    double sms, gbps, l2_bytes; /* of the table */
    uint32_t first_row, num_rows;
    uint32_t first_key; /* into keys: the first coordinate of the first row */
    uint32_t num_spots;
    const struct gen__row *rows;    /* the first */
    struct gen__place place;        /* several coordinates */
    const struct gen__slots *slots; /* where it has a grid */
    const struct gen__range *plain; /* plain.c; NULL: none, or without a grid */
};

/* The variants of a group, and what its code was made for. */
struct gen__group {
    const struct gen__variant *variants;
    uint32_t num_variants, compute_capability;
};

/* One required key of one family, over all targets: a place in an
 * open-addressing table, free where `family` is NULL. */
struct gen__entry {
    _Alignas(GEN__LINE) uint64_t codes; /* of gen__key, as 8 bytes */
    const struct gen__family *family;
    const struct gen__range *ranges; /* sorted by class */
    uint32_t num_ranges;
    uint32_t first_group, num_groups; /* in group_order: best target first */
    uint32_t order;                   /* of the product's keys */
    struct gen__group best;           /* the first of them */
    /* A copy of the range of the largest class, which is found with the entry; of no class where
     * there is none. */
    struct gen__range largest;
};

/* A family of this runtime, found by its tag, with what gen_select() needs of it first: a place in
 * an open-addressing table, free where `family` is NULL. */
struct gen__known {
    uint32_t tag, problem_size;
    const struct gen__family *family;
    enum gen_status (*select)(const gen_library *library, const gen_device *device,
                              const gen_problem *problem, gen_plan *plan);
    bool (*launch)(const gen_library *library, const gen_device *device, const gen_problem *problem,
                   gen_plan_launch *launch);
};

#define GEN__KNOWN_BITS 7
#define GEN__MAX_FAMILIES 100 /* of a runtime: some places stay free */

/* A tuning table that was read, or refused. */
struct gen__table {
    char *name;          /* path, or the built-in table's name */
    char class_name[32]; /* "sm90_132sm" */
    char reason[128];    /* why it was refused, or the first bad row; "" if neither */
    uint32_t reason_line;
    uint32_t compute_capability, num_sms, memory_gbps, l2_bytes;
    uint32_t num_used, num_bad, num_expired, num_ptx, num_shadowed;
    uint32_t same_as; /* of a caller's table with the same text, and 1; 0: there is none */
    bool refused;
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

enum gen__log { GEN__LOG_SELECT = 1, GEN__LOG_LOAD = 2 };

struct gen_library {
    struct gen__pack pack;
    struct gen__known *known; /* 1 << GEN__KNOWN_BITS places */
    uint32_t known_factor;    /* of the hash, chosen so that few tags collide */
    uint64_t entry_mask;
    uint64_t entry_factor;      /* of the hash, chosen so that few keys collide */
    struct gen__entry *entries; /* entry_mask + 1 */
    struct gen__variant *variants;
    struct gen__range *ranges;
    struct gen__row *rows;
    struct gen__range *plain; /* plain.c: one for each range */
    struct gen__row *plain_rows;
    float *keys; /* rows.h */
    struct gen__spot *spots;
    struct gen__cell *cells;
    struct gen__grid *grids; /* of several coordinates: grid.h */
    unsigned char *slots;    /* likewise */
    unsigned char *prepared; /* grids that the product brought: prepared.h */
    uint32_t *group_order;
    uint32_t *group_entry; /* by group: its place among the entries, or GEN__NO_ENTRY */
    struct gen__table *tables;
    const struct gen__family **families; /* by the product's index; NULL: not known */
    uint32_t num_entries, num_ranges, num_rows, num_tables;
    uint32_t num_rows_bad, num_rows_expired, num_rows_ptx, num_groups_skipped;
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

static inline uint64_t gen__entry_hash(uint64_t factor, const struct gen__family *family,
                                       uint64_t codes)
{
    return (codes ^ family->tag) * factor >> 40;
}

static inline uint32_t gen__known_hash(uint32_t factor, uint32_t tag)
{
    return tag * factor >> (32 - GEN__KNOWN_BITS);
}

/* The family of a tag; NULL where this runtime has none. */
static inline const struct gen__known *gen__known_find(const gen_library *library, uint32_t tag)
{
    const uint32_t mask = (1u << GEN__KNOWN_BITS) - 1;
    for (uint32_t i = gen__known_hash(library->known_factor, tag);; i++) {
        const struct gen__known *known = &library->known[i & mask];
        if (__builtin_expect(known->tag == tag && known->family, 1))
            return known;
        if (!known->family)
            return NULL;
    }
}

/* The entry of a key; NULL where the product has none. */
static inline const struct gen__entry *
gen__entry_find(const gen_library *library, const struct gen__family *family, uint64_t codes)
{
    for (uint64_t i = gen__entry_hash(library->entry_factor, family, codes);; i++) {
        const struct gen__entry *entry = &library->entries[i & library->entry_mask];
        if (__builtin_expect(entry->family == family && entry->codes == codes, 1))
            return entry;
        if (!entry->family)
            return NULL;
    }
}

/* Does every problem of the row's family fit its variant? */
static inline bool gen__row_fits_all(const struct gen__row *row)
{
    _Static_assert(offsetof(struct gen__variant, facts) == 0, "a variant begins with its facts");
    return ((const struct gen__variant *)(const void *)row->facts)->fits_all;
}

static inline const struct gen__facts *gen__facts_of(const gen_library *library, uint32_t variant)
{
    return &library->variants[variant].facts;
}

static inline struct gen__group gen__group_of(const gen_library *library, uint32_t group)
{
    const struct gen_pack_group *g = &library->pack.groups[group];
    return (struct gen__group){&library->variants[g->first_variant], g->num_variants,
                               library->pack.targets[g->target].compute_capability};
}

/* Is the variant of the entry PTX, where the entry has machine code that runs on this compute
 * capability? Then no row may name it, and selection does not take it while any of that machine
 * code is eligible: the driver would compile it when it is first used. The best target comes
 * first, text last. */
static inline bool gen__is_passed_over(const gen_library *library, const struct gen__entry *entry,
                                       uint32_t variant, uint32_t compute_capability)
{
    const struct gen__pack *pack = &library->pack;
    if (gen__variant_target(pack, variant)->kind != GEN_PACK_PTX)
        return false;
    for (uint32_t i = 0; i < entry->num_groups; i++) {
        const uint32_t group = library->group_order[entry->first_group + i];
        const struct gen_pack_target *target = &pack->targets[pack->groups[group].target];
        if (gen__target_runs(target, compute_capability))
            return target->kind != GEN_PACK_PTX;
    }
    return false;
}

#define GEN__NO_ENTRY UINT32_MAX

/* The entry that a group belongs to, or NULL where its family or a value is not
 * known to this runtime. */
static inline const struct gen__entry *gen__entry_of_group(const gen_library *library,
                                                           uint32_t group)
{
    const uint32_t entry = library->group_entry[group];
    return entry == GEN__NO_ENTRY ? NULL : &library->entries[entry];
}

/* The family of a range, which has rows. */
static inline const struct gen__family *gen__family_of_range(const gen_library *library,
                                                             const struct gen__range *range)
{
    const struct gen__pack *pack = &library->pack;
    const uint32_t variant = library->rows[range->first_row].facts->index;
    return library->families[pack->groups[pack->variants[variant].group].family];
}

/* calloc() for the structs that want a cache line. */
void *gen__calloc_lines(size_t count, size_t size);

/* gen_open() that reads, of the built-in tables, one alone or all. */
#define GEN__ALL_TABLES UINT32_MAX
enum gen_status gen__open_only(const gen_open_options *options, uint32_t only_table,
                               gen_library **library);

/* entries.c: `known`, of all families of this runtime. Errors: OUT_OF_MEMORY, UNSUPPORTED (too
 * many). */
enum gen_status gen__known_build(gen_library *library);
/* entries.c: fills the entries with the product's required keys and gives each its groups, the best
 * target first. False: out of memory. */
bool gen__entries_build(gen_library *library);

/* cuda/launch.c: unloads every image that was loaded. */
void gen__unload_all(gen_library *library);

/* plain.c: gives ranges of families with choosy variants their plain ones, of which `place` is set
 * where it was prepared. False: out of memory. */
bool gen__plain_build(gen_library *library);
/* Is it a row of those? */
static inline bool gen__is_plain(const struct gen__family *family, const struct gen__facts *facts)
{
    return !family->choosy(facts);
}

/* tables.c: reads the caller's tables, then the built-in ones, into `tables`,
 * `rows` and `ranges`. Errors: IO and FORMAT for a caller's table (a built-in
 * one that is malformed is refused and noted) and for a damaged prepared one, OUT_OF_MEMORY. */
enum gen_status gen__tables_read(gen_library *library, const char *const *paths, size_t num_paths,
                                 uint32_t only_table);

#endif /* GEN_LIBRARY_H */
