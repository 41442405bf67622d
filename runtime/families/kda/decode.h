/*
 * What the host files of kda_decode and gdn_decode share: the order of the launch facts, of a
 * plan's dims and of the tensors. Both are one operator with gates of different shapes; the tag of
 * a problem or of its arguments says which one it is.
 */
#ifndef GEN_FAMILIES_KDA_DECODE_H
#define GEN_FAMILIES_KDA_DECODE_H

#include "family/family.h"
#include "families/gdn_decode/api.h"
#include "families/kda_decode/api.h"
#include "kda_decode/args.h"

_Static_assert(GEN_KDA_DECODE_MOST_TOKENS == GEN_KDA_DECODE_MAX_TOKENS, "same on both sides");

/* The launch facts, in the order of templates/kda_decode/family.lua. */
enum kda_decode_fact {
    KDA_DECODE_BLOCKS,       /* blocks per state */
    KDA_DECODE_TOKEN_BYTES,  /* shared memory of a token */
    KDA_DECODE_THREAD_BYTES, /* of the state, a thread's */
    KDA_DECODE_STREAMING,    /* 1: marked as used once */
    KDA_DECODE_DEPENDENT,    /* 1: waits on the device for the kernel before it */
    KDA_DECODE_NUM_FACTS
};
#define KDA_DECODE_FACTS "blocks,token_bytes,thread_bytes,streaming,dependent"

/* gen_plan.dims: the problem's fields, in their order. */
enum kda_decode_dim {
    KDA_DECODE_BATCH,
    KDA_DECODE_TOKENS,
    KDA_DECODE_QK_HEADS,
    KDA_DECODE_V_HEADS,
    KDA_DECODE_HEAD_DIM,
    KDA_DECODE_DTYPE,
    KDA_DECODE_GATE_DTYPE,
    KDA_DECODE_BETA_DTYPE,
    KDA_DECODE_LAYOUT,
    KDA_DECODE_INDEX_DTYPE,
    KDA_DECODE_STATE_DTYPE,
    KDA_DECODE_RING_LEN,
    KDA_DECODE_RING_SIZE,
    KDA_DECODE_RING_DTYPE,
    KDA_DECODE_POOL,
    KDA_DECODE_NUM_DIMS
};
_Static_assert(KDA_DECODE_NUM_DIMS <= GEN__FAMILY_DIMS, "a plan holds the dims");

/* The tensors in the order of tensors(). */
enum kda_decode_tensor {
    KDA_DECODE_Q,
    KDA_DECODE_K,
    KDA_DECODE_V,
    KDA_DECODE_GATE,
    KDA_DECODE_BETA,
    KDA_DECODE_O,
    KDA_DECODE_A_LOG,
    KDA_DECODE_DT_BIAS,
    KDA_DECODE_STATE,
    KDA_DECODE_SLOTS,
    KDA_DECODE_ACCEPTED,
    KDA_DECODE_CU_SEQLENS,
    KDA_DECODE_SLOTS_OUT,
    KDA_DECODE_RING_K,
    KDA_DECODE_RING_G,
    KDA_DECODE_RING_U,
    KDA_DECODE_RING_FILL,
    KDA_DECODE_RING_BASE,
    KDA_DECODE_FLUSH,
    KDA_DECODE_NUM_TENSORS
};

/* An argument with its packed strides and columns spelled out. */
struct gen__kda_decode_strides {
    int64_t q, k, v, gate, beta, o; /* elements, token to token */
    int64_t slots, slots_out;       /* columns */
    int64_t state;                  /* elements, slot to slot */
    int64_t ring_k, ring_g, ring_u; /* likewise */
};

/* Records that a ring holds. */
static inline int32_t gen__kda_decode_ring_size(int32_t ring_len, int32_t ring_size)
{
    return ring_size ? ring_size : ring_len;
}

/* Slots have a stride, a null one, and states may go to others than they came from. */
static inline bool gen__kda_decode_has_pool(const int32_t *dims)
{
    return dims[KDA_DECODE_POOL] || dims[KDA_DECODE_RING_LEN] ||
           dims[KDA_DECODE_STATE_DTYPE] != GEN_STATE_FP32 ||
           dims[KDA_DECODE_TOKENS] > GEN_KDA_DECODE_PLAIN_TOKENS;
}

/* Bytes of an element of a state. */
static inline int64_t gen__kda_decode_state_bytes(const int32_t *dims)
{
    return dims[KDA_DECODE_STATE_DTYPE] == GEN_STATE_FP32 ? 4 : 2;
}

static inline int64_t gen__kda_decode_qk_width(const int32_t *dims)
{
    return (int64_t)dims[KDA_DECODE_QK_HEADS] * dims[KDA_DECODE_HEAD_DIM];
}

static inline int64_t gen__kda_decode_v_width(const int32_t *dims)
{
    return (int64_t)dims[KDA_DECODE_V_HEADS] * dims[KDA_DECODE_HEAD_DIM];
}

/* A gate is a number a token and head, not one a channel. */
static inline bool gen__kda_decode_scalar(uint32_t tag)
{
    return tag == GEN_GDN_DECODE;
}

static inline const char *gen__kda_decode_name(uint32_t tag)
{
    return gen__kda_decode_scalar(tag) ? "gdn_decode" : "kda_decode";
}

/* Elements of a token's gates; of dt_bias, too. */
static inline int64_t gen__kda_decode_gate_width(const int32_t *dims, uint32_t tag)
{
    return gen__kda_decode_scalar(tag) ? dims[KDA_DECODE_V_HEADS] : gen__kda_decode_v_width(dims);
}

static inline struct gen__kda_decode_strides gen__kda_decode_strides(const int32_t *dims,
                                                                     const gen_kda_decode_args *a)
{
    const int64_t qk = gen__kda_decode_qk_width(dims), v = gen__kda_decode_v_width(dims);
    const int64_t records =
        gen__kda_decode_ring_size(dims[KDA_DECODE_RING_LEN], dims[KDA_DECODE_RING_SIZE]);
    const int64_t columns = a->write == GEN_KDA_DECODE_WRITE_EACH ? dims[KDA_DECODE_TOKENS] : 1;
    return (struct gen__kda_decode_strides){
        .q = a->q_stride ? a->q_stride : qk,
        .k = a->k_stride ? a->k_stride : qk,
        .v = a->v_stride ? a->v_stride : v,
        .gate = a->g_stride ? a->g_stride : gen__kda_decode_gate_width(dims, a->base.family),
        .beta = a->beta_stride ? a->beta_stride : dims[KDA_DECODE_V_HEADS],
        .o = a->o_stride ? a->o_stride : v,
        .slots = a->slots_stride ? a->slots_stride
                 : a->slots_out  ? 1
                                 : columns,
        .slots_out = a->slots_out_stride ? a->slots_out_stride : columns,
        .ring_k = a->ring_k_stride ? a->ring_k_stride : qk * records,
        .ring_g = a->ring_g_stride ? a->ring_g_stride
                                   : gen__kda_decode_gate_width(dims, a->base.family) * records,
        .ring_u = a->ring_u_stride ? a->ring_u_stride : v * records,
        .state = a->state_stride ? a->state_stride : v * dims[KDA_DECODE_HEAD_DIM],
    };
}

/* Slots of default_args() beyond those that are named: a test sees there whether
 * a kernel strays. */
#define KDA_DECODE_EXTRA_SLOTS 3

/* Gates of records are like the tokens'. */
static inline void gen__kda_decode_same_gates(struct gen__tensor *t)
{
    const struct gen__tensor *const gate = &t[KDA_DECODE_GATE];
    struct gen__tensor *const ring = &t[KDA_DECODE_RING_G];
    ring->fill = gate->fill;
    ring->amount = gate->amount;
    ring->mean = gate->mean;
    ring->common = gate->common;
    ring->width = gate->width;
}

/* Gates of a token; numbers of dt_bias, too. */
static inline int64_t gen__kda_decode_gates(const gen_kda_decode_problem *p)
{
    const int64_t heads = p->num_v_heads;
    return gen__kda_decode_scalar(p->base.family) ? heads : heads * p->head_dim;
}

static inline int64_t gen__kda_decode_tokens(const gen_kda_decode_problem *p)
{
    return (int64_t)p->batch * p->num_tokens;
}

/* Slots that default_args() names: a token's each, or where there are no tokens or records a row's.
 */
static inline int64_t gen__kda_decode_named(const gen_kda_decode_problem *p)
{
    return p->num_tokens && !p->ring_len ? gen__kda_decode_tokens(p) : p->batch;
}

/* family.c */
enum gen_status gen__kda_decode_check(const gen_problem *base, struct gen__key *key);
const char *gen__kda_decode_fits(const gen_problem *base, const gen_device *device,
                                 const struct gen__facts *variant);
float gen__kda_decode_predict(const gen_problem *base, const gen_device *device,
                              const struct gen__facts *variant);
void gen__kda_decode_plan(const gen_problem *base, const gen_device *device,
                          const struct gen__facts *variant, gen_plan *plan);
enum { KDA_DECODE_NUM_REQUIRED = 3, KDA_DECODE_NUM_COORDS = 2, KDA_DECODE_NUM_FIELDS = 15 };
extern const struct gen__axis gen__kda_decode_required[KDA_DECODE_NUM_REQUIRED];
extern const struct gen__axis gen__gdn_decode_required[KDA_DECODE_NUM_REQUIRED]; /* no "verify" */
extern const char *const gen__kda_decode_coords[KDA_DECODE_NUM_COORDS];
extern const struct gen__field gen__kda_decode_fields[KDA_DECODE_NUM_FIELDS];
extern const uint8_t gen__kda_decode_grid[KDA_DECODE_NUM_COORDS];

/* args.c */
enum gen_status gen__kda_decode_params(const gen_plan *plan, uint32_t launch, const gen_args *args,
                                       void *workspace, void *params);
uint32_t gen__kda_decode_extents(const int32_t *dims, const gen_args *args,
                                 struct gen__extent extents[GEN__MAX_EXTENTS]);

/* ring.c */
enum gen_status gen__kda_decode_check_ring(const int32_t *dims, const gen_kda_decode_args *args);
void gen__kda_decode_ring_params(const int32_t *dims, const gen_kda_decode_args *args,
                                 struct gen_kda_decode_replay_params *params);
uint32_t gen__kda_decode_ring_extents(const int32_t *dims, const gen_kda_decode_args *args,
                                      struct gen__extent *extents);
uint32_t gen__kda_decode_ring_tensors(const gen_kda_decode_problem *problem,
                                      struct gen__tensor *tensors);
void gen__kda_decode_ring_fill(const gen_kda_decode_problem *problem,
                               const gen_kda_decode_args *args,
                               const struct gen__fill_options *options, void *const *data);

/* inputs.c */
uint32_t gen__kda_decode_tensors(const gen_problem *problem, struct gen__tensor *tensors);
void gen__kda_decode_default_args(const gen_problem *problem, gen_args *args);
enum gen_status gen__kda_decode_fill(const gen_problem *problem, const gen_args *args,
                                     const struct gen__tensor *tensors,
                                     const struct gen__fill_options *options, void *const *data);
bool gen__kda_decode_data(const gen_problem *problem, enum gen__data kind, const gen_args *args,
                          struct gen__tensor *tensors);

/* forms.c */
#define KDA_DECODE_NUM_FORMS 40
extern const char *const gen__kda_decode_forms[KDA_DECODE_NUM_FORMS];
bool gen__kda_decode_form(const gen_problem *problem, uint32_t index, gen_args *args,
                          struct gen__tensor *tensors);

/* cost.c */
void gen__kda_decode_cost(const gen_problem *problem, double *bytes, double *flops);
void gen__kda_decode_case_name(const gen_problem *problem, char *text, size_t capacity);

/* reference.c */
enum gen_status gen__kda_decode_exact(const gen_plan *plan, const gen_args *args,
                                      double *const *exact);
enum gen_status gen__kda_decode_reference(const gen_plan *plan, const gen_args *args);

/* All of a struct gen__family but name and tag; `keys` are its required axes. */
#define GEN__KDA_DECODE_FAMILY(keys)                                                          \
    .problem_size = sizeof(gen_kda_decode_problem), .args_size = sizeof(gen_kda_decode_args), \
    GEN__ONE_INDEX(kda_decode, cu_seqlens),                                                   \
    .params_size = sizeof(struct gen_kda_decode_replay_params), .required = (keys),           \
    .num_required = KDA_DECODE_NUM_REQUIRED, .facts = KDA_DECODE_FACTS,                       \
    .coords = gen__kda_decode_coords, .num_coords = KDA_DECODE_NUM_COORDS,                    \
    .max_distance = GEN__ANY_DISTANCE, .fields = gen__kda_decode_fields,                      \
    .num_fields = KDA_DECODE_NUM_FIELDS, .check = gen__kda_decode_check,                      \
    .fits = gen__kda_decode_fits, .predict = gen__kda_decode_predict,                         \
    .plan = gen__kda_decode_plan, .params = gen__kda_decode_params,                           \
    .extents = gen__kda_decode_extents, .reference = gen__kda_decode_reference,               \
    .exact = gen__kda_decode_exact, .tensors = gen__kda_decode_tensors,                       \
    .default_args = gen__kda_decode_default_args, .fill = gen__kda_decode_fill,               \
    .cost = gen__kda_decode_cost, .case_name = gen__kda_decode_case_name,                     \
    .grid_steps = gen__kda_decode_grid, .forms = gen__kda_decode_forms,                       \
    .num_forms = KDA_DECODE_NUM_FORMS, .form = gen__kda_decode_form, .data = gen__kda_decode_data

#endif /* GEN_FAMILIES_KDA_DECODE_H */
