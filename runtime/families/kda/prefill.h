/*
 * What the host files of kda_prefill and gdn_prefill share: choices that go by the shape, and what
 * the tuner, the verifier and the tests need (inputs.c). Both are one operator with gates of
 * different shapes; the tag of a problem or of its arguments says which one it is.
 */
#ifndef GEN_FAMILIES_KDA_PREFILL_H
#define GEN_FAMILIES_KDA_PREFILL_H

#include "families/kda/pools.h"
#include "families/kda/segments.h"
#include "families/gdn_prefill/api.h"
#include "families/kda_prefill/api.h"

/* The problem's fields, which are the dims. */
static inline const int32_t *gen__kda_prefill_dims(const gen_problem *base)
{
    return (const int32_t *)(const void *)((const char *)base +
                                           offsetof(gen_kda_prefill_problem, batch));
}

/* What is asked for: chunks of a segment, -1: none, 0: as estimated. */
static inline int32_t gen__kda_prefill_wanted(const gen_problem *base)
{
    return ((const gen_kda_prefill_problem *)base)->segment_chunks;
}

/* The dims behind the problem's that say how states are kept. */
static inline void gen__kda_prefill_state_dims(const gen_problem *base, int32_t *dims)
{
    const gen_kda_prefill_problem *p = (const gen_kda_prefill_problem *)base;
    dims[KDA_STATE_POOL] = p->state_pool;
    dims[KDA_STATE_DTYPE] = p->state_dtype;
}

/* A gate is a number a token and head, not one a channel. */
static inline bool gen__kda_prefill_scalar(uint32_t tag)
{
    return tag == GEN_GDN_PREFILL;
}

/* kda_prefill's launch facts begin as kda_inter's do; then: the variant is the whole operator in
 * one launch. A plan's dims say so, too. */
enum kda_prefill_fact { KDA_PREFILL_ONE = KDA_INTER_DEPENDENT + 1 };
enum { KDA_ONE_LAUNCH = KDA_ALL_DIMS };

/* Gates of a token; numbers of dt_bias, too. */
static inline int64_t gen__kda_prefill_gates(const int32_t *dims, uint32_t tag)
{
    const int64_t heads = dims[KDA_V_HEADS];
    return gen__kda_prefill_scalar(tag) ? heads : heads * dims[KDA_HEAD_DIM];
}

/* Tensors in the order of tensors(). */
enum kda_prefill_tensor {
    KDA_PREFILL_Q,
    KDA_PREFILL_K,
    KDA_PREFILL_V,
    KDA_PREFILL_G,
    KDA_PREFILL_BETA,
    KDA_PREFILL_A_LOG,
    KDA_PREFILL_DT_BIAS,
    KDA_PREFILL_CU_SEQLENS,
    KDA_PREFILL_INITIAL_STATE,
    KDA_PREFILL_FINAL_STATE,
    KDA_PREFILL_O,
    KDA_PREFILL_STATES,
    KDA_PREFILL_CKPT_POOL, /* and the others of pools */
    KDA_PREFILL_NUM_TENSORS = KDA_PREFILL_CKPT_POOL + GEN__KDA_POOL_NUM_TENSORS
};

/* family.c */
enum { KDA_PREFILL_NUM_FIELDS = 14, KDA_PREFILL_NUM_COORDS = 2 };
extern const struct gen__field gen__kda_prefill_fields[KDA_PREFILL_NUM_FIELDS];
extern const char *const gen__kda_prefill_coords[KDA_PREFILL_NUM_COORDS];
enum gen_status gen__kda_prefill_check(const gen_problem *base, struct gen__key *key);
int32_t gen__kda_prefill_cut(const gen_problem *base, const int32_t *dims, const gen_device *device,
                             const struct gen__facts *variant, float *us);
enum gen_status gen__kda_prefill_check_plan(const char *family, const gen_plan *plan);
gen_kda_inter_args gen__kda_prefill_inter(const gen_kda_prefill_args *a);
uint32_t gen__kda_prefill_extents(const int32_t *dims, const gen_args *base,
                                  struct gen__extent list[GEN__MAX_EXTENTS]);

/* gdn_prefill/cut.c: as gen__kda_inter_us(), gen__kda_segments_us(), gen__kda_cut() */
float gen__gdn_whole_us(const int32_t *dims, const gen_device *device,
                        const struct gen__facts *variant);
float gen__gdn_segments_us(const int32_t *dims, int32_t segment, const gen_device *device,
                           const struct gen__facts *variant);
int32_t gen__gdn_cut(const int32_t *dims, const gen_device *device,
                     const struct gen__facts *variant, float *us);

/* inputs.c */
uint32_t gen__kda_prefill_tensors(const gen_problem *base,
                                  struct gen__tensor tensors[GEN__MAX_TENSORS]);
void gen__kda_prefill_default_args(const gen_problem *base, gen_args *args);
enum gen_status gen__kda_prefill_fill(const gen_problem *base, const gen_args *args,
                                      const struct gen__tensor *list,
                                      const struct gen__fill_options *options, void *const *data);
void gen__kda_prefill_cost(const gen_problem *base, double *bytes, double *flops);
void gen__kda_prefill_case_name(const gen_problem *base, char *text, size_t capacity);
void gen__kda_prefill_set_counts(gen_problem *base, const float counts[GEN__MAX_COORDS]);

enum { GEN__KDA_PREFILL_NUM_FORMS = 23 };
extern const char *const gen__kda_prefill_forms[GEN__KDA_PREFILL_NUM_FORMS];
bool gen__kda_prefill_form(const gen_problem *base, uint32_t index, gen_args *args,
                           struct gen__tensor *t);
bool gen__kda_prefill_data(const gen_problem *problem, enum gen__data kind, const gen_args *args,
                           struct gen__tensor *tensors);

#endif /* GEN_FAMILIES_KDA_PREFILL_H */
