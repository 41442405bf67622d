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
/* Of initial and final states, in pools or not, at list[0] and list[1], and what else there is;
 * their number. */
uint32_t gen__kda_pool_extents(const int32_t *dims, const struct gen_kda_pools *p,
                               const void *initial_state, const void *final_state,
                               struct gen__extent *list);

#endif /* GEN_FAMILIES_KDA_POOLS_H */
