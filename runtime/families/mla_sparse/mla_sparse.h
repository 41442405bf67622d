/*
 * What the host files of mla_sparse share: the order of the launch facts, of a plan's dims and of
 * the tensors, and where things lie.
 */
#ifndef GEN_FAMILIES_MLA_SPARSE_H
#define GEN_FAMILIES_MLA_SPARSE_H

#include "family/family.h"
#include "families/mla_merge/api.h"
#include "families/mla_sparse/api.h"
#include "mla_merge/args.h"
#include "mla_sparse/args.h"

/* The launch facts, in the order of templates/mla_sparse/family.lua. */
enum mla_sparse_fact {
    MLA_SPARSE_Q_ROWS,    /* packed rows of a block */
    MLA_SPARSE_KV_ROWS,   /* entries of a tile */
    MLA_SPARSE_STAGES,    /* tiles in shared memory */
    MLA_SPARSE_SHARD,     /* 1: the warps partition the scores of a tile */
    MLA_SPARSE_DEPENDENT, /* 1: waits on the device for the kernel before it */
    MLA_SPARSE_WGMMA,     /* 1: by the tensor cores' instructions of warp groups */
    MLA_SPARSE_NUM_FACTS
};
#define MLA_SPARSE_FACTS "q_rows,kv_rows,stages,shard,dependent,wgmma"

/* gen_plan.dims. */
enum mla_sparse_dim {
    /* The problem's fields in their order. */
    MLA_SPARSE_BATCH,
    MLA_SPARSE_NUM_HEADS,
    MLA_SPARSE_Q_LEN,
    MLA_SPARSE_TOPK,
    MLA_SPARSE_PAGE_SIZE,
    MLA_SPARSE_ROPE_DIM,
    MLA_SPARSE_DTYPE,
    MLA_SPARSE_CACHE,
    MLA_SPARSE_SINK,
    MLA_SPARSE_NUM_FIELDS,
    /* What was made of it for the variant; struct gen_mla_schedule. */
    MLA_SPARSE_NUM_PARTS = MLA_SPARSE_NUM_FIELDS,
    MLA_SPARSE_SNAP,
    MLA_SPARSE_CHUNK,
    MLA_SPARSE_MAX_CHUNKS,
    MLA_SPARSE_BY_REQUEST,
    MLA_SPARSE_NUM_RECORDS, /* 0: nothing is cut, nothing merged */
    MLA_SPARSE_NUM_SLOTS,
    MLA_SPARSE_NUM_DIMS
};
_Static_assert(MLA_SPARSE_NUM_DIMS <= GEN__FAMILY_DIMS, "a plan holds the dims");

/* The launches of a plan. */
enum { MLA_SPARSE_MAIN, MLA_SPARSE_MERGE };

/* Blocks that a piece of a list costs beside its own. */
enum { MLA_SPARSE_VISIT = 1 };

/* The tensors in the order of tensors(). */
enum mla_sparse_tensor {
    MLA_SPARSE_T_Q_NOPE,
    MLA_SPARSE_T_Q_PE,
    MLA_SPARSE_T_KV,
    MLA_SPARSE_T_O,
    MLA_SPARSE_T_LSE,
    MLA_SPARSE_T_INDICES,
    MLA_SPARSE_T_LENGTH,
    MLA_SPARSE_T_SINK,
    MLA_SPARSE_NUM_TENSORS
};

/* Elements, of 656-byte rows bytes; the packed strides spelled out. */
struct gen__mla_sparse_strides {
    int64_t q_nope_token, q_nope_head, q_pe_token, q_pe_head;
    int64_t kv_page, kv_row;
    int64_t o_token, o_head, lse_token, lse_head;
    int64_t indices_batch, indices_token;
};

/* Bytes from the workspace's start. */
struct gen__mla_sparse_workspace {
    uint64_t records, partial_rows, partial, size;
};

static inline int32_t gen__mla_sparse_blocks(int32_t topk)
{
    return (topk - 1) / MLA_BLOCK + 1;
}

/* Elements of a row, or of 656-byte rows bytes. */
static inline int64_t gen__mla_sparse_row(int32_t cache, int32_t rope_dim)
{
    return cache == GEN_MLA_SPARSE_DS ? MLA_SPARSE_ROW_BYTES : MLA_LATENT + rope_dim;
}

/* launch.c */
struct gen__mla_sparse_strides gen__mla_sparse_strides(const int32_t *dims,
                                                       const gen_mla_sparse_args *args);
struct gen__mla_sparse_workspace gen__mla_sparse_workspace(const int32_t *dims);
enum gen_status gen__mla_sparse_params(const gen_plan *plan, uint32_t launch, const gen_args *args,
                                       void *workspace, void *params);
uint32_t gen__mla_sparse_extents(const int32_t *dims, const gen_args *args,
                                 struct gen__extent extents[GEN__MAX_EXTENTS]);

/* inputs.c */
enum { MLA_SPARSE_EXTRA_PAGES = 3 };                                    /* that no list names */
int64_t gen__mla_sparse_context(const gen_mla_sparse_problem *problem); /* pages of a request */
uint32_t gen__mla_sparse_tensors(const gen_problem *problem, struct gen__tensor *tensors);
void gen__mla_sparse_default_args(const gen_problem *problem, gen_args *args);
enum gen_status gen__mla_sparse_fill(const gen_problem *problem, const gen_args *args,
                                     const struct gen__tensor *tensors,
                                     const struct gen__fill_options *options, void *const *data);
void gen__mla_sparse_cost(const gen_problem *problem, double *bytes, double *flops);
extern const uint8_t gen__mla_sparse_grid[];
void gen__mla_sparse_set_counts(gen_problem *problem, const float counts[GEN__MAX_COORDS]);
void gen__mla_sparse_case_name(const gen_problem *problem, char *text, size_t capacity);

/* forms.c */
enum { MLA_SPARSE_NUM_FORMS = 8 };
extern const char *const gen__mla_sparse_forms[MLA_SPARSE_NUM_FORMS];
bool gen__mla_sparse_form(const gen_problem *problem, uint32_t index, gen_args *args,
                          struct gen__tensor *tensors);
bool gen__mla_sparse_data(const gen_problem *problem, enum gen__data kind, const gen_args *args,
                          struct gen__tensor *tensors);

/* reference.c */
enum gen_status gen__mla_sparse_exact(const gen_plan *plan, const gen_args *args,
                                      double *const *exact);
enum gen_status gen__mla_sparse_reference(const gen_plan *plan, const gen_args *args);

#endif /* GEN_FAMILIES_MLA_SPARSE_H */
