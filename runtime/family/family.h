/*
 * What a family says to the runtime, the tuner, the verifier and the tests about
 * itself. runtime/families/<family>/family.c defines one
 *
 *     const struct gen__family gen__family_<family> = {...};
 *
 * and the build collects them from the folders' names; no list is kept by
 * hand. Everything outside that folder treats families alike.
 */
#ifndef GEN_FAMILY_H
#define GEN_FAMILY_H

#include "core/status.h"
#include "family/overlap.h"
#include "gen.h"
#include "reference/inputs.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

/* Something just written, read by itself. Compilers join reads of neighbours into a wide one, which
 * waits until the narrow stores before it have left the core: as long as a short search takes. */
#define GEN__FRESH(x) (*(const volatile __typeof__(x) *)&(x))

/* A required axis: its name in family.lua and the values this runtime knows.
 * A value's position is its code. */
struct gen__axis {
    const char *name;
    const char *const *values;
    uint32_t num_values;
};

#define GEN__MAX_REQUIRED 8
#define GEN__MAX_COORDS 4
#define GEN__MAX_FACTS 12
#define GEN__MAX_PARAMS 1024
#define GEN__PARAMS_ALIGNMENT 64 /* as tensor maps have it */
#define GEN__MAX_PART_PROBLEM 128
/* Bytes of structs of callers that have others than this library's. */
#define GEN__MAX_PROBLEM 256
#define GEN__MAX_ARGS 1024

/* A field of the problem struct as text names it: "batch=64 dtype=bf16". */
struct gen__field {
    const char *name;
    uint32_t offset;           /* of an int32_t in the problem struct */
    const char *const *values; /* names of 0, 1, ...; NULL: a number */
    uint32_t num_values;
    int32_t preset; /* where the text does not name it */
};

/* A preset: the value of the field before (num_v_heads of num_qk_heads). */
#define GEN__PRESET_SAME INT32_MIN

/* A preset: a bound that text has less 1, -1 for none, where the struct has 0 for none. */
#define GEN__PRESET_UNBOUNDED (INT32_MIN + 1)

/* What the struct has more than text. */
static inline int32_t gen__field_more(const struct gen__field *field)
{
    return field->preset == GEN__PRESET_UNBOUNDED;
}

/* A field's value as text has it. What no struct can hold wraps around. */
static inline int32_t gen__field_get(const struct gen__field *field, const gen_problem *problem)
{
    uint32_t value;
    memcpy(&value, (const char *)problem + field->offset, sizeof value);
    return (int32_t)(value - (uint32_t)gen__field_more(field));
}

static inline void gen__field_set(const struct gen__field *field, gen_problem *problem,
                                  int32_t value)
{
    const uint32_t held = (uint32_t)value + (uint32_t)gen__field_more(field);
    memcpy((char *)problem + field->offset, &held, sizeof held);
}

/* gen_plan.dims that are the families' to use. Of the others one says which variant of index32 the
 * plan begins with, its number + 1 (on the CPU 1), and one whether as a dependent launch. */
#define GEN__FAMILY_DIMS 22
#define GEN__DIM_INDEX_DEPENDENT 22
#define GEN__DIM_INDEX 23
_Static_assert(GEN__DIM_INDEX < GEN_PLAN_MAX_DIMS, "a plan holds them");

/* A list of indices, of batch + 1 entries: where its pointer stands in the argument struct, with 32
 * bits and with 64 (`name`_64). dims[0] of a plan is the batch. */
struct gen__index {
    const char *name;
    uint32_t narrow, wide;
};
#define GEN__INDEX(args, member)                                     \
    {                                                                \
#member, offsetof(args, member), offsetof(args, member##_64) \
    }

/* What a family with one list says of it; callers of before have structs that end in front. */
#define GEN__INDEX_FAMILY(name_, first)                            \
    .problem_least = offsetof(gen_##name_##_problem, index_dtype), \
    .args_least = offsetof(gen_##name_##_args, first##_64),        \
    .index_dtype = offsetof(gen_##name_##_problem, index_dtype)
#define GEN__ONE_INDEX(name_, member)                                                          \
    GEN__INDEX_FAMILY(name_, member), .num_indices = 1, .indices = (const struct gen__index[]) \
    {                                                                                          \
        GEN__INDEX(gen_##name_##_args, member)                                                 \
    }
#define GEN__TWO_INDICES(name_, member, other)                                                 \
    GEN__INDEX_FAMILY(name_, member), .num_indices = 2, .indices = (const struct gen__index[]) \
    {                                                                                          \
        GEN__INDEX(gen_##name_##_args, member), GEN__INDEX(gen_##name_##_args, other)          \
    }

/* The field of a problem that says which of the two, for text, which leaves int32 out: texts that
 * are kept are older than the field. */
extern const char *const gen__index_names[]; /* int32, int64 */
#define GEN__INDEX_FIELD(problem)                                                     \
    {                                                                                 \
        "index", offsetof(problem, index_dtype), gen__index_names, 2, GEN_INDEX_INT32 \
    }

/* What check() finds out about a problem. */
struct gen__key {
    uint8_t codes[GEN__MAX_REQUIRED]; /* required values, in axis order */
    float counts[GEN__MAX_COORDS];    /* the tuning coordinates, > 0 unless empty */
    bool empty;                       /* nothing to launch */
};

/* What a variant takes of an SM: most of gen__blocks_per_sm(), done ahead. */
struct gen__occupancy {
    uint32_t shared;   /* bytes a block is charged */
    uint8_t blocks[4]; /* by threads and registers, for each kind of SM */
};

/* A variant as plan(), predict() and params() see it. */
struct gen__facts {
    uint32_t index; /* in the library */
    uint32_t threads, shared_dynamic, shared_static, cluster, registers;
    struct gen__occupancy occupancy; /* by gen__occupancy() */
    int32_t fact[GEN__MAX_FACTS];    /* in the order of gen__family.facts */
};

/* A launch of a plan that is left to another family: the merge behind a split
 * attention, say. */
struct gen__part {
    uint32_t launch; /* its place among the plan's */
    union {
        gen_problem base; /* names the family */
        int32_t fields[GEN__MAX_PART_PROBLEM / 4];
    } problem;
};

#define GEN__ANY_DISTANCE INFINITY

struct gen__family {
    const char *name;
    uint32_t tag;                                  /* GEN_<FAMILY> */
    uint32_t problem_size, args_size, params_size; /* bytes */
    /* The least sizes that callers' structs may have: those of version 0.2, or where the family is
     * younger of its first. What is behind is 0, which each field since means its default by. 0:
     * the structs have no more fields than they began with. */
    uint32_t problem_least, args_least;
    const struct gen__axis *required;
    uint32_t num_required;
    const char *facts;         /* launch facts by name, comma-separated, as family.lua
                                  declares them */
    const char *const *coords; /* tuning coordinates by name: "states". The first
                                  counts the work that SMs share: it alone is
                                  scaled for rows of another number of SMs */
    uint32_t num_coords;
    /* How far from a tuning row a problem may be, in octaves, for the row to decide: beyond, the
     * estimate knows better. GEN__ANY_DISTANCE: there is no limit. */
    float max_distance;
    /* Lists of indices that may come with 64 bits, GEN_INDEX32_LISTS at most (family/index.h), and
     * where the problem's index_dtype stands. */
    const struct gen__index *indices;
    uint32_t num_indices, index_dtype;
    const struct gen__field *fields; /* of the problem, for text */
    uint32_t num_fields;

    /* Is every field allowed? Size, family and flags were checked. On GEN_OK all of key->codes,
     * the family's coordinates and key->empty are set; else the message is. */
    enum gen_status (*check)(const gen_problem *problem, struct gen__key *key);
    /* Can this variant run this problem on this device? NULL, or the reason
     * why not. Required axes, target and resources are checked by the caller. */
    const char *(*fits)(const gen_problem *problem, const gen_device *device,
                        const struct gen__facts *variant);
    /* Analytic estimate in microseconds. */
    float (*predict)(const gen_problem *problem, const gen_device *device,
                     const struct gen__facts *variant);
    /* Fills launches, dims and workspace_bytes, which come zeroed, for the
     * picked variant. For the reference on the CPU `variant` is NULL: dims and workspace_bytes
     * alone, and one launch without geometry unless the problem is empty. */
    void (*plan)(const gen_problem *problem, const gen_device *device,
                 const struct gen__facts *variant, gen_plan *plan);
    /* Launches that other families' variants do, or NULL. plan() counts them in
     * num_launches and leaves them zero; parts() gives for each its place and the problem, which
     * its family allows and which is not empty, and returns their number. Selection fills them with
     * the one launch that this family's plan() gives for the best variant, by the rules that hold
     * for gen_select(). That family has no parts itself and wants no workspace: workspace,
     * arguments and the parameters of every launch are this family's affair. */
    uint32_t (*parts)(const gen_problem *problem, const gen_device *device,
                      const struct gen__facts *variant, const gen_plan *plan,
                      struct gen__part parts[GEN_PLAN_MAX_LAUNCHES]);
    const uint32_t *part_families; /* every tag that parts() may name */
    uint32_t num_part_families;
    /* Checks the arguments, whose size and family were checked, for a plan that is not empty: at
     * launch 0, which is asked for before the others, those of all. Where `params` is not NULL,
     * also fills launch `launch`'s kernel parameters (params_size bytes, passed by value), aligned
     * to GEN__PARAMS_ALIGNMENT. */
    enum gen_status (*params)(const gen_plan *plan, uint32_t launch, const gen_args *args,
                              void *workspace, void *params);
    /* Where the launches read and write, for arguments that params() found right; their number.
     * What the host does not know the size of may be given by its first element. NULL: not checked.
     */
    uint32_t (*extents)(const int32_t *dims, const gen_args *args,
                        struct gen__extent extents[GEN__MAX_EXTENTS]);
    /* The operator on host memory, accumulating in double. Arguments were
     * checked. Defined in the family's reference.c. */
    enum gen_status (*reference)(const gen_plan *plan, const gen_args *args);
    /* The same, and the outputs before their rounding too: exact[t], where not
     * NULL, gets tensor t of tensors() (role OUT), element for element; what the
     * reference leaves alone stays. NULL: the verifier compares with the rounded
     * outputs. */
    enum gen_status (*exact)(const gen_plan *plan, const gen_args *args, double *const *exact);

    /* For the tuner, the verifier and the tests: the tensors of a problem, in a
     * fixed order, and the argument struct without its pointers. */
    uint32_t (*tensors)(const gen_problem *problem, struct gen__tensor tensors[GEN__MAX_TENSORS]);
    void (*default_args)(const gen_problem *problem, gen_args *args);
    /* Writes the tensors of GEN__FILL_FAMILY, and what depends on them in the others, which were
     * filled before. data[t] is tensor t on the host: NULL where it is not there, being empty or on
     * a device alone. The same for the same options. NULL: the family has no such tensors. */
    enum gen_status (*fill)(const gen_problem *problem, const gen_args *args,
                            const struct gen__tensor *tensors,
                            const struct gen__fill_options *options, void *const *data);
    /* Bytes that must move and floating-point operations that must be done. */
    void (*cost)(const gen_problem *problem, double *bytes, double *flops);
    /* "B64-H64-K128-V128-vk": the case name in result files. */
    void (*case_name)(const gen_problem *problem, char *text, size_t capacity);
    /* The result file of its cases, without ".csv", where families share one: their cases' names
     * differ then. NULL: the family's name. */
    const char *results;

    /* The tuner's grid: half octaves between its problems along each coordinate, for the required
     * keys that the shape file has. NULL: 1 each, and all keys. */
    const uint8_t *grid_steps;
    /* Gives a copy of a problem of the shape file other counts (as in gen__key), as nearly as its
     * fields can. NULL: the tuner finds the field that each depends on. */
    void (*set_counts)(gen_problem *problem, const float counts[GEN__MAX_COORDS]);

    /* Other legal ways to pass the same problem (strides, shorter forms), for
     * the verifier: form(i) adjusts what tensors() and default_args() gave, and
     * returns false where this problem has no such form. */
    const char *const *forms; /* names; NULL where there are none */
    uint32_t num_forms;
    bool (*form)(const gen_problem *problem, uint32_t index, gen_args *args,
                 struct gen__tensor *tensors);
    /* Data that hurts: adjusts how tensors are filled, and tolerances, after form(); counts stay.
     * Returns false where the family has no data of this kind. NULL: it has none. */
    bool (*data)(const gen_problem *problem, enum gen__data kind, const gen_args *args,
                 struct gen__tensor *tensors);
};

/* Every family this runtime was built with, sorted by name. */
extern const struct gen__family *const gen__families[];
extern const uint32_t gen__num_families;

/* A caller's struct of `size` bytes, at most `most`, as this library's of `full` bytes, which
 * begins with its size: zeros take the place of fields that an older caller lacks, from `least`
 * bytes on (0: full), and where a newer caller's has more it must have zeros there. False: it is
 * none of these. */
bool gen__struct_fit(void *to, uint32_t full, uint32_t least, const void *from, uint32_t size,
                     uint32_t most);

/* NULL if unknown. */
const struct gen__family *gen__family_by_name(const char *name);

/* "batch=64 num_qk_heads=8 dtype=bf16": every field. */
void gen__problem_format(const struct gen__family *family, const gen_problem *problem, char *text,
                         size_t capacity);

#endif /* GEN_FAMILY_H */
