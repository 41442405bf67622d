/*
 * What the program holds: the run (struct session), the families, and their
 * variants from enumeration to packing.
 */
#ifndef MODEL_H
#define MODEL_H

#include "spec/arch.h"
#include "util/arena.h"
#include "util/hash.h"
#include "format/product.h"

#include <lua.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct expansion;
struct options;

/* A header under templates/, named as #include lines name it. */
struct header {
    const char *name; /* "lib/half.cuh" */
    const char *text;
    size_t size;
    unsigned char digest[HASH_BYTES];  /* of the text */
    unsigned char meaning[HASH_BYTES]; /* of its tokens */
    bool plain;                        /* and they are all that counts */
    const struct header **includes;    /* direct ones */
    size_t num_includes;
};

struct template
{
    const char *path; /* "la_decode/la_decode_vk.cu.in" */
    const char *text;
    size_t size;
    const char **lines; /* num_lines + 1 starts, the last one the end */
    int num_lines, num_directives;
    int chunk; /* Lua registry */
};

struct family {
    const char *name, *path; /* "la_decode", "la_decode/family.lua" */
    const char *required;    /* axis names, comma-separated */
    const char *facts;       /* likewise */
    const char *coords;      /* likewise: what tuning rows are sorted by */
    const char *const *axes; /* "tile=4,8,16": required ones, then free ones */
    size_t num_axes, num_required, num_facts;
    uint64_t combinations;
    int spec; /* Lua registry */
};

/* ptxas's report. */
struct report {
    int entries;                          /* kernels in the image */
    int registers, shared_static;         /* per thread; bytes */
    int stack, spill_stores, spill_loads; /* bytes */
    int instructions;                     /* 0: not counted */
    bool serialized;                      /* a C75xx remark */
    char entry[256];                      /* the first kernel's name */
};

enum variant_state {
    VARIANT_NEW,
    VARIANT_BUILT,   /* image and report are there and passed the gates */
    VARIANT_REFUSED, /* `reason` says why */
    VARIANT_BROKEN   /* the compiler rejected the source: `reason` is its log */
};

struct variant {
    const struct family *family;
    const struct arch *arch;
    const struct template *template;
    const char *name, *symbol, *group;
    const char *group_values;    /* "bf16,128,vk" */
    const char *required, *free; /* "dtype=bf16;head_dim=128;layout=vk" */
    int threads, shared, cluster, max_registers;
    int32_t facts[GEN_PACK_MAX_FACTS];
    bool fallback;
    bool trial; /* not measured yet: in the default space only by its family's list */
    bool extra; /* outside of the default space (default_space.h) */
    int spec;   /* Lua registry */

    /* Of the expansion. */
    const char *source;
    size_t source_size;
    const struct header **headers; /* the closure, sorted by name */
    size_t num_headers;
    uint64_t source_digest;        /* of what the compiler is given, without comments and layout */
    unsigned char key[HASH_BYTES]; /* of the cache entry: of the text itself */

    /* Of the compile. */
    enum variant_state state;
    bool cached;
    bool lost;       /* the compiler crashed or hung; not a property of the variant */
    const char *row; /* of a catalog, where that says what compiling it would: no image then */
    const char *reason;
    const char *warnings; /* the compiler's, or NULL */
    struct report report;
    double seconds; /* of CPU time it took to compile */
    const void *image;
    size_t image_size;
    uint64_t code_digest; /* digest of the machine code, or of the PTX */
};

/* A required key that a family does not serve on a target, and why. */
struct unserved {
    const struct family *family;
    const struct arch *arch;
    const char *group, *reason;
};

struct session {
    lua_State *L;
    struct arena arena;
    const struct options *options;
    const char *templates; /* folder */
    int spec;              /* the prelude's functions, Lua registry */
    int arch_specs[16];    /* as Lua sees them, Lua registry */
    uint64_t instructions; /* left before a chunk counts as endless */

    struct family *families;
    size_t num_families;
    const struct arch **targets;
    size_t num_targets;
    struct template **sources;
    size_t num_sources;
    struct header **headers;
    size_t num_headers;
    char *tokens; /* room for those of a text */
    size_t tokens_room;
    struct variant **variants; /* sorted by name */
    size_t num_variants;
    size_t num_extra; /* left out: not in the default space */
    struct unserved *unserved;
    size_t num_unserved;

    struct text output;          /* of the expansion at hand */
    struct expansion *expansion; /* NULL while no template runs */
};

#endif /* MODEL_H */
