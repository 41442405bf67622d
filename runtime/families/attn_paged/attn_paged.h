/* What the host files of attn_paged share. */
#ifndef GEN_FAMILIES_ATTN_PAGED_H
#define GEN_FAMILIES_ATTN_PAGED_H

#include "attn_paged/args.h"
#include "families/attn_paged/api.h"
#include "family/family.h"

#define ATTN_PAGED_MAX_BATCH (1 << 20)
#define ATTN_PAGED_MAX_HEADS 1024
#define ATTN_PAGED_MAX_Q_LEN (1 << 17)
#define ATTN_PAGED_MAX_KV_LEN (1 << 24)
#define ATTN_PAGED_MAX_PAGE_SIZE (1 << 16)

/* The launch facts, in the order of templates/attn_paged/family.lua. */
enum attn_paged_fact {
    ATTN_PAGED_ROWS,      /* packed rows of a tile */
    ATTN_PAGED_KEYS,      /* keys of a tile */
    ATTN_PAGED_STAGES,    /* tiles of a team's ring */
    ATTN_PAGED_TEAMS,     /* of a block, each with keys of its own */
    ATTN_PAGED_DEPENDENT, /* 1: waits on the device for the kernel before it */
    ATTN_PAGED_WGMMA,     /* by warpgroups, keys and values by TMA for so many CTAs; 0: not so */
    ATTN_PAGED_DIRECT,    /* 1: units are cut alike, each a fixed number of blocks' */
    ATTN_PAGED_NUM_FACTS
};
#define ATTN_PAGED_FACTS "rows,keys,stages,teams,dependent,wgmma,direct"

/* gen_plan.dims. */
enum attn_paged_dim {
    /* The problem's fields in their order. */
    ATTN_PAGED_BATCH,
    ATTN_PAGED_NUM_Q_HEADS,
    ATTN_PAGED_NUM_KV_HEADS,
    ATTN_PAGED_Q_LEN,
    ATTN_PAGED_KV_LEN,
    ATTN_PAGED_MAX_KV_LENGTH,
    ATTN_PAGED_PAGE_SIZE,
    ATTN_PAGED_HEAD_DIM,
    ATTN_PAGED_DTYPE,
    ATTN_PAGED_CACHE,
    ATTN_PAGED_CAUSAL,
    ATTN_PAGED_LEFT_WINDOW,
    ATTN_PAGED_SOFTCAP,
    ATTN_PAGED_SINK,
    ATTN_PAGED_TOTAL_TOKENS,
    ATTN_PAGED_NUM_FIELDS,
    /* What was made of it for the variant; struct gen_attn_paged_line. */
    ATTN_PAGED_NUM_PARTS = ATTN_PAGED_NUM_FIELDS, /* 0 on the CPU */
    ATTN_PAGED_VISIT,                             /* of a direct kernel pieces of a unit */
    ATTN_PAGED_WHOLE,                             /* one of these */
    ATTN_PAGED_TILE_ROWS,
    ATTN_PAGED_TENSOR_MAPS, /* TMA loads keys and values, for so many CTAs at once; 0: it does not
                             */
    ATTN_PAGED_MAP_ROWS,    /* of a box; without, whether tiles of keys lie in one page each */
    ATTN_PAGED_NUM_DIMS
};
_Static_assert(ATTN_PAGED_NUM_DIMS <= GEN__FAMILY_DIMS, "a plan holds the dims");

/* dims[ATTN_PAGED_WHOLE]: is the line cut anywhere, or are units whole; or a direct kernel's
 * pieces, added up in clusters, or in clusters and then by the last of a unit's to arrive. */
enum attn_paged_cut {
    ATTN_PAGED_CUT,
    ATTN_PAGED_UNCUT,
    ATTN_PAGED_DIRECT_CLUSTER,
    ATTN_PAGED_DIRECT_CLUSTERS
};

/* The tensors in the order of tensors(). */
enum attn_paged_tensor {
    ATTN_PAGED_Q,
    ATTN_PAGED_K,
    ATTN_PAGED_V,
    ATTN_PAGED_O,
    ATTN_PAGED_LSE,
    ATTN_PAGED_KV_LENS,
    ATTN_PAGED_PAGE_INDICES,
    ATTN_PAGED_PAGE_INDPTR,
    ATTN_PAGED_LAST_PAGE_LEN,
    ATTN_PAGED_Q_INDPTR,
    ATTN_PAGED_Q_DESCALE,
    ATTN_PAGED_K_DESCALE,
    ATTN_PAGED_V_DESCALE,
    ATTN_PAGED_SINKS,
    ATTN_PAGED_NUM_TENSORS
};

/* Columns of values and outputs: those of keys, of 192 128. */
static inline int32_t gen__attn_paged_v_dim(int32_t head_dim)
{
    return head_dim == 192 ? 128 : head_dim;
}

/* Elements; the packed strides spelled out. */
struct gen__attn_paged_strides {
    int64_t q_token, q_head, k_page, k_row, k_head, v_page, v_row, v_head;
    int64_t o_token, o_head, lse_token, lse_head, page_table;
};

/* Bytes from the workspace's start. */
struct gen__attn_paged_workspace {
    uint64_t partial_lse, partial, size;
};

/* launch.c */
struct gen__attn_paged_strides gen__attn_paged_strides(const int32_t *dims,
                                                       const gen_attn_paged_args *args);
struct gen__attn_paged_workspace gen__attn_paged_workspace(const int32_t *dims);
enum gen_status gen__attn_paged_params(const gen_plan *plan, uint32_t launch, const gen_args *args,
                                       void *workspace, void *params);
uint32_t gen__attn_paged_extents(const int32_t *dims, const gen_args *args,
                                 struct gen__extent extents[GEN__MAX_EXTENTS]);

/* inputs.c */
enum {
    ATTN_PAGED_EXTRA_PAGES = 3,  /* that no request has */
    ATTN_PAGED_EXTRA_ENTRIES = 1 /* of a page table, behind those that are needed */
};
int64_t gen__attn_paged_pages(const gen_attn_paged_problem *problem); /* of all requests */
uint32_t gen__attn_paged_tensors(const gen_problem *problem, struct gen__tensor *tensors);
void gen__attn_paged_default_args(const gen_problem *problem, gen_args *args);
enum gen_status gen__attn_paged_fill(const gen_problem *problem, const gen_args *args,
                                     const struct gen__tensor *tensors,
                                     const struct gen__fill_options *options, void *const *data);
void gen__attn_paged_cost(const gen_problem *problem, double *bytes, double *flops);
void gen__attn_paged_case_name(const gen_problem *problem, char *text, size_t capacity);

/* forms.c */
enum { ATTN_PAGED_NUM_FORMS = 11 };
extern const char *const gen__attn_paged_forms[ATTN_PAGED_NUM_FORMS];
bool gen__attn_paged_form(const gen_problem *problem, uint32_t index, gen_args *args,
                          struct gen__tensor *tensors);
bool gen__attn_paged_data(const gen_problem *problem, enum gen__data kind, const gen_args *args,
                          struct gen__tensor *tensors);

/* reference.c */
enum gen_status gen__attn_paged_exact(const gen_plan *plan, const gen_args *args,
                                      double *const *exact);
enum gen_status gen__attn_paged_reference(const gen_plan *plan, const gen_args *args);

#endif /* GEN_FAMILIES_ATTN_PAGED_H */
