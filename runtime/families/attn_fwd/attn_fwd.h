/*
 * What the host files of attn_fwd share: the order of the launch facts, of a
 * plan's dims and of the tensors, and where things lie.
 */
#ifndef GEN_FAMILIES_ATTN_FWD_H
#define GEN_FAMILIES_ATTN_FWD_H

#include "families/attn_fwd/api.h"
#include "attn_fwd/args.h"
#include "family/family.h"

/* The launch facts, in the order of templates/attn_fwd/family.lua. */
enum attn_fwd_fact {
    ATTN_FWD_Q_ROWS,     /* query rows of a tile */
    ATTN_FWD_KV_ROWS,    /* keys of a block of them */
    ATTN_FWD_WGMMA,      /* 1: warp groups that TMA fills tiles for: tensor maps */
    ATTN_FWD_PERSISTENT, /* 1: blocks have several tiles */
    ATTN_FWD_DEPENDENT,  /* 1: waits on the device for the kernel before it */
    ATTN_FWD_DYNAMIC,    /* 1: the next tile of a counter, which is a word of workspace */
    ATTN_FWD_RENAMED,    /* 1: only a row of a table chooses it (family.lua: symbol, probs) */
    ATTN_FWD_NUM_FACTS
};
#define ATTN_FWD_FACTS "q_rows,kv_rows,wgmma,persistent,dependent,dynamic,renamed"

/* The values of the required key `mask`. */
enum { ATTN_FWD_MASK_FULL, ATTN_FWD_MASK_CAUSAL, ATTN_FWD_MASK_ANY, ATTN_FWD_NUM_MASKS };

/* gen_plan.dims. */
enum attn_fwd_dim {
    /* The problem's fields in their order. */
    ATTN_FWD_BATCH,
    ATTN_FWD_NUM_Q_HEADS,
    ATTN_FWD_NUM_KV_HEADS,
    ATTN_FWD_Q_LEN,
    ATTN_FWD_KV_LEN,
    ATTN_FWD_HEAD_DIM,
    ATTN_FWD_DTYPE,
    ATTN_FWD_IS_CAUSAL,
    ATTN_FWD_KEYS_BEFORE, /* the windows without the query's own key, so less 1 */
    ATTN_FWD_KEYS_BEHIND,
    ATTN_FWD_VARLEN,
    ATTN_FWD_SOFTCAP,
    ATTN_FWD_O_DTYPE,
    ATTN_FWD_NUM_FIELDS,
    /* What was made of it for the variant; struct gen_attn_schedule. */
    ATTN_FWD_MAP_ROWS = ATTN_FWD_NUM_FIELDS, /* keys of a box; 0: no tensor maps */
    ATTN_FWD_ROW_TILES,
    ATTN_FWD_HEAD_UNITS,
    ATTN_FWD_PAIRED,
    ATTN_FWD_SECTION,
    ATTN_FWD_SHORT_UNITS,
    ATTN_FWD_NUM_DIMS
};
_Static_assert(ATTN_FWD_NUM_DIMS <= GEN__FAMILY_DIMS, "a plan holds the dims");

/* The tensors in the order of tensors(). */
enum attn_fwd_tensor {
    ATTN_FWD_Q,
    ATTN_FWD_K,
    ATTN_FWD_V,
    ATTN_FWD_O,
    ATTN_FWD_LSE,
    ATTN_FWD_CU_Q,
    ATTN_FWD_CU_K,
    ATTN_FWD_Q_DESCALE,
    ATTN_FWD_K_DESCALE,
    ATTN_FWD_V_DESCALE,
    ATTN_FWD_NUM_TENSORS
};

/* Elements; the packed strides spelled out. */
struct gen__attn_strides {
    struct gen_attn_strides q, k, v, o, lse;
};

/* The fewest rows of a tile that any variant has. */
enum { ATTN_FWD_LEAST_ROWS = 64 };

static inline int32_t gen__attn_tile_rows(const struct gen__facts *variant)
{
    return variant->fact[ATTN_FWD_Q_ROWS] > 0 ? variant->fact[ATTN_FWD_Q_ROWS]
                                              : ATTN_FWD_LEAST_ROWS;
}

static inline int32_t gen__attn_row_tiles(const gen_attn_fwd_problem *p,
                                          const struct gen__facts *variant)
{
    const int32_t rows = gen__attn_tile_rows(variant);
    return (p->q_len + rows - 1) / rows;
}

/* Rows that a head's short tile lacks, in groups of 64: with causality the first one, else the
 * last; attn_missing_rows() in tiles.cuh. */
static inline int32_t gen__attn_missing_rows(const gen_attn_fwd_problem *p,
                                             const struct gen__facts *variant)
{
    const int32_t rows = gen__attn_tile_rows(variant);
    return (int32_t)((rows - ((int64_t)p->q_len + 63) / 64 * 64 % rows) % rows);
}

/* Microseconds that a launch of the variant takes; `mask`: the problem's ATTN_FWD_MASK_. */
float gen__attn_fwd_predict(const gen_attn_fwd_problem *p, const gen_device *device,
                            const struct gen__facts *variant, int mask);

/* q, k and v are fp8. */
static inline bool gen__attn_of_8_bits(int32_t dtype)
{
    return dtype == GEN_DTYPE_E4M3 || dtype == GEN_DTYPE_E5M2;
}

/* The type of o. */
static inline enum gen_dtype gen__attn_output(int32_t dtype, int32_t o_dtype)
{
    return (enum gen_dtype)(gen__attn_of_8_bits(dtype) ? o_dtype : dtype);
}

/* Keys before and behind i' that count, causality included: ATTN_NO_BOUND where there is no bound.
 */
static inline int32_t gen__attn_left(const int32_t *dims)
{
    const int32_t left = dims[ATTN_FWD_KEYS_BEFORE];
    return left < 0 ? ATTN_NO_BOUND : left;
}

static inline int32_t gen__attn_right(const int32_t *dims)
{
    const int32_t right = dims[ATTN_FWD_KEYS_BEHIND];
    return dims[ATTN_FWD_IS_CAUSAL] ? 0 : right < 0 ? ATTN_NO_BOUND : right;
}

/* launch.c */
struct gen__attn_strides gen__attn_fwd_strides(const int32_t *dims, const gen_attn_fwd_args *args);
enum gen_status gen__attn_fwd_params(const gen_plan *plan, uint32_t launch, const gen_args *args,
                                     void *workspace, void *params);
uint32_t gen__attn_fwd_extents(const int32_t *dims, const gen_args *args,
                               struct gen__extent extents[GEN__MAX_EXTENTS]);

/* inputs.c */
enum { ATTN_FWD_NUM_FORMS = 7 };
extern const char *const gen__attn_fwd_forms[ATTN_FWD_NUM_FORMS];
uint32_t gen__attn_fwd_tensors(const gen_problem *problem, struct gen__tensor *tensors);
void gen__attn_fwd_default_args(const gen_problem *problem, gen_args *args);
enum gen_status gen__attn_fwd_fill(const gen_problem *problem, const gen_args *args,
                                   const struct gen__tensor *tensors,
                                   const struct gen__fill_options *options, void *const *data);
bool gen__attn_fwd_form(const gen_problem *problem, uint32_t index, gen_args *args,
                        struct gen__tensor *tensors);
bool gen__attn_fwd_data(const gen_problem *problem, enum gen__data kind, const gen_args *args,
                        struct gen__tensor *tensors);
void gen__attn_fwd_cost(const gen_problem *problem, double *bytes, double *flops);
extern const uint8_t gen__attn_fwd_grid[];
void gen__attn_fwd_set_counts(gen_problem *problem, const float counts[GEN__MAX_COORDS]);
void gen__attn_fwd_case_name(const gen_problem *problem, char *text, size_t capacity);

/* reference.c */
enum gen_status gen__attn_fwd_exact(const gen_plan *plan, const gen_args *args,
                                    double *const *exact);
enum gen_status gen__attn_fwd_reference(const gen_plan *plan, const gen_args *args);

#endif /* GEN_FAMILIES_ATTN_FWD_H */
