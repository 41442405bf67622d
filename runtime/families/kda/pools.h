/*
 * States in pools (kda/public.h), for problems whose dims have KDA_STATE_POOL and KDA_STATE_DTYPE:
 * where they lie, checks, and what the kernels get.
 */
#ifndef GEN_FAMILIES_KDA_POOLS_H
#define GEN_FAMILIES_KDA_POOLS_H

#include "families/kda/chunk.h"

/* Elements of a slot. */
static inline int64_t gen__kda_state_size(const int32_t *dims)
{
    return (int64_t)dims[KDA_V_HEADS] * dims[KDA_HEAD_DIM] * dims[KDA_HEAD_DIM];
}

static inline int64_t gen__kda_state_bytes(const int32_t *dims)
{
    return dims[KDA_STATE_DTYPE] == GEN_STATE_FP32 ? 4 : 2;
}

/* Slots of initial_state and final_state; without pools one a sequence. */
static inline int64_t gen__kda_num_slots(const int32_t *dims, const struct gen_kda_pools *p)
{
    return p->num_slots ? p->num_slots : dims[KDA_BATCH];
}

/* -1 where it is null. */
static inline int64_t gen__kda_valid_slot(const struct gen_kda_pools *p, int64_t slot,
                                          int64_t slots)
{
    return slot >= 0 && slot < slots && slot != p->null_slot - 1 ? slot : -1;
}

/* The slot that sequence n begins in, and ends in; -1: none. */
static inline int64_t gen__kda_slot_in(const int32_t *dims, const struct gen_kda_pools *p,
                                       int64_t n)
{
    if (p->has_initial && !p->has_initial[n])
        return -1;
    return gen__kda_valid_slot(p, p->slots_in ? p->slots_in[n] : n, gen__kda_num_slots(dims, p));
}

static inline int64_t gen__kda_slot_out(const int32_t *dims, const struct gen_kda_pools *p,
                                        int64_t n)
{
    return gen__kda_valid_slot(p, p->slots_out ? p->slots_out[n] : n, gen__kda_num_slots(dims, p));
}

/* The slot that the state behind so many tokens of sequence n goes to, -1: none. */
int64_t gen__kda_checkpoint_slot(const struct gen_kda_pools *p, int64_t n, int64_t tokens);

/* Without pools all of them must be 0. */
enum gen_status gen__kda_check_pools(const char *family, const int32_t *dims,
                                     const struct gen_kda_pools *p, const void *initial_state,
                                     const void *final_state);
void gen__kda_pool_params(const int32_t *dims, const struct gen_kda_pools *p,
                          struct gen_kda_pool_params *k);
/* kda_inter's and kda_scan's, with the pools behind, which kernels without pools do not take. */
void gen__kda_inter_pool_params(const int32_t *dims, const gen_kda_inter_args *a,
                                struct gen_kda_inter_pool_params *k);
void gen__kda_scan_pool_params(const int32_t *dims, const gen_kda_scan_args *a,
                               struct gen_kda_inter_pool_params *k);
/* Is what a problem says of states allowed? */
enum gen_status gen__kda_check_state_fields(const char *family, int32_t state_pool,
                                            int32_t state_dtype);
/* Of initial and final states, in pools or not, at list[0] and list[1], and what else there is;
 * their number. */
uint32_t gen__kda_pool_extents(const int32_t *dims, const struct gen_kda_pools *p,
                               const void *initial_state, const void *final_state,
                               struct gen__extent *list);

/* ---- for references ---------------------------------------------------- */

/* An element of a head's state in slot `slot`, whose slots are `stride` apart, 0: packed. */
static inline int64_t gen__kda_pool_at(const int32_t *dims, int32_t layout, int64_t slot,
                                       int64_t stride, int64_t head, int64_t k, int64_t v)
{
    const int64_t d = dims[KDA_HEAD_DIM];
    return slot * (stride ? stride : gen__kda_state_size(dims)) + head * d * d +
           (layout == GEN_KDA_STATE_VK ? v * d + k : k * d + v);
}

/* ---- for the verifier (pool_inputs.c) ---------------------------------- */

/* Tensors of pools, in this order wherever they are. */
enum gen__kda_pool_tensor {
    GEN__KDA_POOL_CKPT_POOL,
    GEN__KDA_POOL_SLOTS_IN,
    GEN__KDA_POOL_SLOTS_OUT,
    GEN__KDA_POOL_HAS_INITIAL,
    GEN__KDA_POOL_CKPT_BEGIN,
    GEN__KDA_POOL_CKPT_TOKEN,
    GEN__KDA_POOL_CKPT_SLOT,
    GEN__KDA_POOL_NUM_TENSORS
};
/* Of args whose member `pools` they are in; nothing is asked for. */
#define GEN__KDA_POOL_TENSORS(args, state_dtype, error)                                          \
    {GEN__TENSOR(args, pools.ckpt_pool, state_dtype, GEN__OUT, GEN__FILL_POISON, 0, 0),          \
     .tolerance = (error)},                                                                      \
        {GEN__TENSOR(args, pools.slots_in, GEN_DTYPE_INT32, GEN__IN, GEN__FILL_FAMILY, 0, 0)},   \
        {GEN__TENSOR(args, pools.slots_out, GEN_DTYPE_INT32, GEN__IN, GEN__FILL_FAMILY, 0, 0)},  \
        {GEN__TENSOR(args, pools.has_initial, GEN_DTYPE_E4M3 /* bytes */, GEN__IN,               \
                     GEN__FILL_FAMILY, 0, 0)},                                                   \
        {GEN__TENSOR(args, pools.ckpt_begin, GEN_DTYPE_INT32, GEN__IN, GEN__FILL_FAMILY, 0, 0)}, \
        {GEN__TENSOR(args, pools.ckpt_token, GEN_DTYPE_INT32, GEN__IN, GEN__FILL_FAMILY, 0, 0)}, \
    {                                                                                            \
        GEN__TENSOR(args, pools.ckpt_slot, GEN_DTYPE_INT32, GEN__IN, GEN__FILL_FAMILY, 0, 0)     \
    }

/* Where a family has those, the first of them, and the others that they go with. */
struct gen__kda_pool_places {
    uint32_t initial, final, cu_seqlens, first;
};

enum gen__kda_pool_form {
    GEN__KDA_POOL_SLOTS,       /* slots alone */
    GEN__KDA_POOL_CHECKPOINTS, /* and a list of checkpoints */
    GEN__KDA_POOL_IN_PLACE,    /* the same, states go where they came from */
    GEN__KDA_POOL_REGULAR,     /* checkpoints in regular distances, states without slots */
    GEN__KDA_POOL_NUM_FORMS
};
#define GEN__KDA_POOL_FORM_NAMES "slots", "checkpoints", "in_place", "regular"
/* Of a problem whose state_pool is 1. */
void gen__kda_pool_form(const int32_t *dims, enum gen__kda_pool_form form,
                        const struct gen__kda_pool_places *at, struct gen_kda_pools *p,
                        struct gen__tensor *t);
void gen__kda_fill_pools(const int32_t *dims, const struct gen__kda_pool_places *at,
                         const struct gen_kda_pools *p, const struct gen__tensor *list,
                         const struct gen__fill_options *options, void *const *data);

#endif /* GEN_FAMILIES_KDA_POOLS_H */
