/*
 * The product file attngen.fatbin: what the generator writes and the runtime
 * maps. This header is the one thing both sides share.
 *
 *     [image 0] [image 1] ...   each a standard CUDA fatbin of one kernel, as
 *                               cuLibraryLoadData takes it, filled up with
 *                               zeros to a multiple of 16 bytes
 *     [index]                   struct gen_pack_index and what it points at:
 *                               families, targets, groups, variants, tuning
 *                               tables and their rows, strings
 *     [footer]                  struct gen_pack_footer, the file's last bytes
 *
 * Little-endian, every struct and offset 8-byte aligned. Offsets named
 * `*_offset` in the index count from the start of the file. A string is a
 * uint32_t offset into the string area, NUL-terminated; offset 0 is "".
 * Variants are sorted by name (strcmp order), so the variants of a group (one
 * family, required key and target) are neighbours; groups are in the order of
 * their first variant. Images stand in the order of variants, without a gap
 * from the file's first byte to the index, so every byte of the file belongs
 * to an image, the index or the footer, and a hash covers each of them.
 */
#ifndef GEN_PACK_FORMAT_H
#define GEN_PACK_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define GEN_PACK_MAGIC "ATTNGEN\n"
#define GEN_PACK_VERSION 5u
#define GEN_PACK_IMAGE_ALIGNMENT 16u
#define GEN_PACK_MAX_FACTS 12
#define GEN_PACK_MAX_COORDS 4

struct gen_pack_footer {
    char magic[8];
    uint32_t version;
    uint32_t reserved;
    uint64_t index_offset;
    uint64_t index_size;
    uint64_t hash;           /* gen_pack_seal(): of the index and of this footer */
    uint64_t product_digest; /* of the families, targets, groups and variants: of
                                what a plan depends on, but not of the tables */
};

struct gen_pack_index {
    uint32_t num_families, num_targets, num_groups, num_variants, num_tables;
    uint32_t num_rows;
    uint32_t toolkit; /* string, "13.0" */
    uint32_t reserved;
    uint64_t families_offset; /* struct gen_pack_family[] */
    uint64_t targets_offset;
    uint64_t groups_offset;
    uint64_t variants_offset;
    uint64_t tables_offset;
    uint64_t rows_offset; /* struct gen_pack_row[] */
    uint64_t strings_offset;
    uint64_t strings_size;
};

struct gen_pack_family {
    uint32_t name;     /* string */
    uint32_t required; /* string: axis names, comma-separated, in order */
    uint32_t facts;    /* string: names of the launch facts, likewise */
    uint32_t coords;   /* string: names of the tuning coordinates, likewise */
};

enum gen_pack_target_kind {
    GEN_PACK_EXACT = 0, /* machine code for this compute capability alone */
    GEN_PACK_MAJOR = 1, /* machine code for it and later minors of its major */
    GEN_PACK_PTX = 2    /* text for it and everything later */
};

struct gen_pack_target {
    uint32_t name;               /* string: "sm_90a", "compute_80" */
    uint32_t compute_capability; /* 90 */
    uint32_t kind;
    uint32_t reserved;
};

struct gen_pack_group {
    uint32_t name;   /* string: "la_decode_bf16_d128_vk" */
    uint32_t values; /* string: required values in the family's axis order,
                        comma-separated: "bf16,128,vk" */
    uint32_t family; /* index */
    uint32_t target; /* index */
    uint32_t first_variant;
    uint32_t num_variants;
    uint32_t fallback_variant;
    uint32_t lacks_rows; /* 1: rows of the product's tables name variants of it that are left out */
};

struct gen_pack_variant {
    uint32_t name;   /* string */
    uint32_t symbol; /* string: the kernel in the image */
    uint32_t group;  /* index */
    uint32_t threads;
    uint32_t shared_dynamic, shared_static; /* bytes */
    uint32_t registers;
    uint32_t cluster;       /* blocks, >= 1 */
    uint64_t source_digest; /* of the source without comments and layout, and the options */
    uint64_t code_digest;   /* of the machine code, or of PTX; 0: not known */
    uint64_t image_offset;
    uint64_t image_size;               /* without the zeros behind it */
    uint64_t image_hash;               /* gen_pack_hash() of gen_pack_room(image_size) bytes */
    int32_t facts[GEN_PACK_MAX_FACTS]; /* in the order of the family's names */
};

/* A tuning table: what its header says, what reading it found, and its good rows. */
struct gen_pack_table {
    uint32_t name;       /* string: of the file */
    uint32_t class_name; /* string: "sm90_132sm" */
    uint32_t compute_capability, num_sms, memory_gbps, l2_bytes;
    uint32_t first_row, num_rows;
    uint32_t num_bad, num_expired, num_ptx; /* rows that were left out */
    uint32_t refused;                       /* 1: the header is malformed, no row was read */
    uint32_t reason;                        /* string: of the refusal or the first bad row */
    uint32_t reason_line;
};

/* A good row. A table's rows are sorted by required key (family, then the text of the values) and
 * then by coordinates: the first upwards, the others downwards. */
struct gen_pack_row {
    float counts[GEN_PACK_MAX_COORDS]; /* the coordinates, normal numbers > 0; 1 for those that
                                          the family lacks */
    float us, runner_up_us;            /* runner_up_us 0: not known */
    uint32_t variant;
    uint32_t runner_up; /* num_variants: none */
};

/* The parts of an index by which names are found. */
struct gen_pack_view {
    const struct gen_pack_family *families;
    const struct gen_pack_target *targets;
    const struct gen_pack_group *groups;
    const struct gen_pack_variant *variants;
    const char *strings;
    uint32_t num_groups, num_variants;
};

/* The variant of this name, or num_variants. `length` counts no NUL. */
static inline uint32_t gen_pack_find(const struct gen_pack_view *view, const char *name,
                                     size_t length)
{
    uint32_t low = 0, high = view->num_variants;
    /* Names hold no NUL; the text of a table may, and must not match up to there. */
    if (memchr(name, '\0', length))
        return view->num_variants;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        const char *found = view->strings + view->variants[middle].name;
        int order = strncmp(found, name, length);
        if (order == 0 && found[length] == '\0')
            return middle;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return view->num_variants;
}

/* Can the target's code run on this compute capability? */
static inline bool gen_pack_runs(const struct gen_pack_target *target, uint32_t compute_capability)
{
    if (target->compute_capability == compute_capability)
        return true;
    if (target->kind == GEN_PACK_EXACT || target->compute_capability > compute_capability)
        return false;
    return target->kind == GEN_PACK_PTX ||
           target->compute_capability / 10 == compute_capability / 10;
}

static inline uint64_t gen_pack_mix(uint64_t h, uint64_t word)
{
    h = (h ^ word) * 0xff51afd7ed558ccdull;
    return h ^ h >> 32;
}

/* A 64-bit mix over 8-byte words (the tail padded with zeros), seeded with the
 * size, of four words at a time as far as there are as many: fast enough to check
 * an index of a megabyte at every open. Detects accidents, not attacks. The words
 * are little-endian, as hosts here are. */
static inline uint64_t gen_pack_hash(const void *data, uint64_t size)
{
    const unsigned char *p = (const unsigned char *)data;
    uint64_t h = 0x9e3779b97f4a7c15ull ^ size, four[4] = {h, h + 1, h + 2, h + 3}, i = 0;
    for (; size - i >= sizeof(four); i += sizeof(four))
        for (uint64_t k = 0; k < 4; k++) {
            uint64_t w;
            memcpy(&w, p + i + 8 * k, 8);
            four[k] = gen_pack_mix(four[k], w);
        }
    for (int k = 0; k < 4 && i; k++)
        h = gen_pack_mix(h, four[k]);
    for (; i < size; i += 8) {
        uint64_t w = 0;
        memcpy(&w, p + i, size - i < 8 ? (size_t)(size - i) : 8);
        h = gen_pack_mix(h, w);
    }
    return h;
}

/* The bytes that an image takes in the file. */
static inline uint64_t gen_pack_room(uint64_t image_size)
{
    return (image_size + GEN_PACK_IMAGE_ALIGNMENT - 1) / GEN_PACK_IMAGE_ALIGNMENT *
           GEN_PACK_IMAGE_ALIGNMENT;
}

/* Does the variant's image begin at *at, where the one before it ends, and end in front of `end`,
 * the index? Then *at becomes its own end. */
static inline bool gen_pack_image_follows(const struct gen_pack_variant *variant, uint64_t end,
                                          uint64_t *at)
{
    if (variant->image_offset != *at || *at > end || variant->image_size > end - *at ||
        gen_pack_room(variant->image_size) > end - *at)
        return false;
    *at += gen_pack_room(variant->image_size);
    return true;
}

/* What the footer's `hash` must be, for the index that it names. */
static inline uint64_t gen_pack_seal(const struct gen_pack_footer *footer, const void *index)
{
    uint64_t h = gen_pack_hash(index, footer->index_size);
    h = gen_pack_mix(h, footer->version | (uint64_t)footer->reserved << 32);
    h = gen_pack_mix(h, footer->index_offset);
    return gen_pack_mix(h, footer->product_digest);
}

#endif /* GEN_PACK_FORMAT_H */
