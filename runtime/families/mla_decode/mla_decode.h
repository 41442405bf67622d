/*
 * What the host files of mla_decode share: the order of the launch facts, of a
 * plan's dims and of the tensors, and where things lie.
 */
#ifndef GEN_FAMILIES_MLA_DECODE_H
#define GEN_FAMILIES_MLA_DECODE_H

#include "family/family.h"
#include "families/mla_decode/api.h"
#include "mla_decode/args.h"
#include "families/mla_merge/api.h"
#include "mla_merge/args.h"

/* The launch facts, in the order of templates/mla_decode/family.lua. */
enum mla_decode_fact {
    MLA_DECODE_Q_ROWS,     /* packed rows of a block */
    MLA_DECODE_KV_ROWS,    /* cache rows of a tile */
    MLA_DECODE_STAGES,     /* tiles in shared memory */
    MLA_DECODE_SHARD,      /* 1: the warps partition the scores of a tile */
    MLA_DECODE_TENSOR_MAP, /* 1: TMA loads boxes of pages' rows */
    MLA_DECODE_DEPENDENT,  /* 1: waits on the device for the kernel before it */
    MLA_DECODE_WGMMA,      /* 1: by the tensor cores' instructions of warp groups, 64 packed rows
                              whatever there are; 2: transposed, as many as the tile has */
    MLA_DECODE_LAST,       /* 1: the block that ends the last piece of a request adds them up */
    MLA_DECODE_NUM_FACTS
};
#define MLA_DECODE_FACTS "q_rows,kv_rows,stages,shard,tensor_map,dependent,wgmma,last"

/* gen_plan.dims. */
enum mla_decode_dim {
    /* The problem's fields in their order. */
    MLA_DECODE_BATCH,
    MLA_DECODE_NUM_HEADS,
    MLA_DECODE_Q_LEN,
    MLA_DECODE_KV_LEN,
    MLA_DECODE_MAX_KV_LEN,
    MLA_DECODE_PAGE_SIZE,
    MLA_DECODE_ROPE_DIM,
    MLA_DECODE_DTYPE,
    MLA_DECODE_CACHE,
    MLA_DECODE_CAUSAL,
    MLA_DECODE_NUM_FIELDS,
    /* What was made of it for the variant; struct gen_mla_schedule. */
    MLA_DECODE_MAP_ROWS = MLA_DECODE_NUM_FIELDS, /* rows of a box; 0: no tensor maps */
    MLA_DECODE_NUM_PARTS,
    MLA_DECODE_VISIT,
    MLA_DECODE_SNAP,
    MLA_DECODE_CHUNK,
    MLA_DECODE_MAX_CHUNKS,
    MLA_DECODE_BY_REQUEST,
    MLA_DECODE_NUM_RECORDS, /* 0: nothing is cut, nothing merged; of requests' meetings, where the
                               last block merges */
    MLA_DECODE_NUM_SLOTS,
    MLA_DECODE_NUM_DIMS
};
_Static_assert(MLA_DECODE_NUM_DIMS <= GEN__FAMILY_DIMS, "a plan holds the dims");

/* The launches of a plan. */
enum { MLA_DECODE_MAIN, MLA_DECODE_MERGE };

/* The tensors in the order of tensors(). */
enum mla_decode_tensor {
    MLA_DECODE_Q_NOPE,
    MLA_DECODE_Q_PE,
    MLA_DECODE_CKV,
    MLA_DECODE_KPE,
    MLA_DECODE_O,
    MLA_DECODE_LSE,
    MLA_DECODE_KV_LENS,
    MLA_DECODE_PAGE_INDICES,
    MLA_DECODE_PAGE_INDPTR,
    MLA_DECODE_Q_INDPTR,
    MLA_DECODE_NUM_TENSORS
};

/* Elements; the packed strides spelled out. */
struct gen__mla_strides {
    int64_t q_nope_token, q_nope_head, q_pe_token, q_pe_head;
    int64_t ckv_page, ckv_row, kpe_page, kpe_row;
    int64_t o_token, o_head, lse_token, lse_head;
    int64_t page_table;
};

/* Bytes from the workspace's start. */
struct gen__mla_workspace {
    uint64_t records, partial_rows, partial, size;
};

/* launch.c */
struct gen__mla_strides gen__mla_decode_strides(const int32_t *dims,
                                                const gen_mla_decode_args *args);
struct gen__mla_workspace gen__mla_decode_workspace(const int32_t *dims);
enum gen_status gen__mla_decode_params(const gen_plan *plan, uint32_t launch, const gen_args *args,
                                       void *workspace, void *params);
uint32_t gen__mla_decode_extents(const int32_t *dims, const gen_args *args,
                                 struct gen__extent extents[GEN__MAX_EXTENTS]);

/* inputs.c */
enum {
    MLA_DECODE_EXTRA_PAGES = 3,  /* that no request has */
    MLA_DECODE_EXTRA_ENTRIES = 1 /* of a page table, behind those that are needed */
};
int64_t gen__mla_decode_pages(const gen_mla_decode_problem *problem); /* of all requests */
uint32_t gen__mla_decode_tensors(const gen_problem *problem, struct gen__tensor *tensors);
void gen__mla_decode_default_args(const gen_problem *problem, gen_args *args);
enum gen_status gen__mla_decode_fill(const gen_problem *problem, const gen_args *args,
                                     const struct gen__tensor *tensors,
                                     const struct gen__fill_options *options, void *const *data);
void gen__mla_decode_cost(const gen_problem *problem, double *bytes, double *flops);
extern const uint8_t gen__mla_decode_grid[];
void gen__mla_decode_set_counts(gen_problem *problem, const float counts[GEN__MAX_COORDS]);
void gen__mla_decode_case_name(const gen_problem *problem, char *text, size_t capacity);

/* forms.c */
enum { MLA_DECODE_NUM_FORMS = 10 };
extern const char *const gen__mla_decode_forms[MLA_DECODE_NUM_FORMS];
bool gen__mla_decode_form(const gen_problem *problem, uint32_t index, gen_args *args,
                          struct gen__tensor *tensors);
bool gen__mla_decode_data(const gen_problem *problem, enum gen__data kind, const gen_args *args,
                          struct gen__tensor *tensors);

/* reference.c */
enum gen_status gen__mla_decode_exact(const gen_plan *plan, const gen_args *args,
                                      double *const *exact);
enum gen_status gen__mla_decode_reference(const gen_plan *plan, const gen_args *args);

#endif /* GEN_FAMILIES_MLA_DECODE_H */
