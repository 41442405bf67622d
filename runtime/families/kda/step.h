/*
 * What the host files of kda_step and gdn_step share: the order of the launch facts, of a plan's
 * dims and of the tensors. Both are one operator with gates of different shapes; the tag of a
 * problem or of its arguments says which one it is.
 */
#ifndef GEN_FAMILIES_KDA_STEP_H
#define GEN_FAMILIES_KDA_STEP_H

#include "family/family.h"
#include "families/gdn_step/api.h"
#include "families/kda_step/api.h"
#include "kda_step/args.h"

#define KDA_STEP_HEAD_DIM 128

/* The launch facts, in the order of templates/kda_step/space.lua. */
enum kda_step_fact {
    KDA_STEP_BLOCKS,       /* of a cluster, which has a query head */
    KDA_STEP_THREAD_BYTES, /* of the state, a thread's */
    KDA_STEP_STREAMING,    /* 1: marked as used once */
    KDA_STEP_DEPENDENT,    /* 1: waits on the device for the kernel before it */
    KDA_STEP_EARLY,        /* 1: the kernel behind it is placed before it loads */
    KDA_STEP_LOOP,         /* 1: blocks stay and take one head after the other */
    KDA_STEP_NUM_FACTS
};
#define KDA_STEP_FACTS "blocks,thread_bytes,streaming,dependent,early,loop"

/* gen_plan.dims: the problem's fields, in their order. */
enum kda_step_dim {
    KDA_STEP_BATCH,
    KDA_STEP_QK_HEADS,
    KDA_STEP_V_HEADS,
    KDA_STEP_WIDTH_OF_HEAD,
    KDA_STEP_DTYPE,
    KDA_STEP_GATE_DTYPE,
    KDA_STEP_BETA_DTYPE,
    KDA_STEP_LAYOUT,
    KDA_STEP_STATE_DTYPE,
    KDA_STEP_NUM_DIMS
};
_Static_assert(KDA_STEP_NUM_DIMS <= GEN__FAMILY_DIMS, "a plan holds the dims");

/* The tensors in the order of tensors(). */
enum kda_step_tensor {
    KDA_STEP_X,
    KDA_STEP_CONV_W,
    KDA_STEP_CONV_BIAS,
    KDA_STEP_CONV_STATE,
    KDA_STEP_GATE,
    KDA_STEP_BETA,
    KDA_STEP_A_LOG,
    KDA_STEP_DT_BIAS,
    KDA_STEP_Z,
    KDA_STEP_NORM_W,
    KDA_STEP_STATE,
    KDA_STEP_SLOTS,
    KDA_STEP_OUT,
    KDA_STEP_NUM_TENSORS
};

/* The arguments' strides with the packed ones spelled out, in elements. */
struct gen__kda_step_strides {
    int64_t x, gate, beta, z, out;   /* row to row */
    int64_t conv_w_tap, conv_w_part; /* of the weights */
    int64_t conv_state, state;       /* slot to slot */
    int64_t conv_slot, state_slot;   /* what a slot holds */
};

/* A gate is a number a row and head, not one a channel. */
static inline bool gen__kda_step_scalar(uint32_t tag)
{
    return tag == GEN_GDN_STEP;
}

static inline const char *gen__kda_step_name(uint32_t tag)
{
    return gen__kda_step_scalar(tag) ? "gdn_step" : "kda_step";
}

static inline int64_t gen__kda_step_qk_width(const int32_t *dims)
{
    return (int64_t)dims[KDA_STEP_QK_HEADS] * KDA_STEP_HEAD_DIM;
}

static inline int64_t gen__kda_step_v_width(const int32_t *dims)
{
    return (int64_t)dims[KDA_STEP_V_HEADS] * KDA_STEP_HEAD_DIM;
}

/* Of the convolution. */
static inline int64_t gen__kda_step_channels(const int32_t *dims)
{
    return 2 * gen__kda_step_qk_width(dims) + gen__kda_step_v_width(dims);
}

/* Elements of a row's gates; of dt_bias, too. */
static inline int64_t gen__kda_step_gate_width(const int32_t *dims, uint32_t tag)
{
    return gen__kda_step_scalar(tag) ? dims[KDA_STEP_V_HEADS] : gen__kda_step_v_width(dims);
}

static inline int64_t gen__kda_step_side_bytes(int32_t dtype)
{
    return dtype == GEN_DTYPE_FP32 ? 4 : 2;
}

static inline int64_t gen__kda_step_state_bytes(const int32_t *dims)
{
    return dims[KDA_STEP_STATE_DTYPE] == GEN_STATE_FP32 ? 4 : 2;
}

static inline struct gen__kda_step_strides gen__kda_step_strides(const int32_t *dims,
                                                                 const gen_kda_step_args *a)
{
    const int64_t v = gen__kda_step_v_width(dims), channels = gen__kda_step_channels(dims);
    const int64_t conv_slot = channels * (a->conv_width - 1), state_slot = v * KDA_STEP_HEAD_DIM;
    return (struct gen__kda_step_strides){
        .x = a->x_stride ? a->x_stride : channels,
        .gate = a->gate_stride ? a->gate_stride : gen__kda_step_gate_width(dims, a->base.family),
        .beta = a->beta_stride ? a->beta_stride : dims[KDA_STEP_V_HEADS],
        .z = a->z_stride ? a->z_stride : v,
        .out = a->out_stride ? a->out_stride : v,
        .conv_w_tap = a->conv_w_tap_stride ? a->conv_w_tap_stride : channels,
        .conv_w_part = a->conv_w_part_stride ? a->conv_w_part_stride : gen__kda_step_qk_width(dims),
        .conv_state = a->conv_state_stride ? a->conv_state_stride : conv_slot,
        .state = a->state_stride ? a->state_stride : state_slot,
        .conv_slot = conv_slot,
        .state_slot = state_slot,
    };
}

/* family.c */
enum gen_status gen__kda_step_check(const gen_problem *base, struct gen__key *key);
float gen__kda_step_predict(const gen_problem *base, const gen_device *device,
                            const struct gen__facts *variant);
void gen__kda_step_plan(const gen_problem *base, const gen_device *device,
                        const struct gen__facts *variant, gen_plan *plan);
const char *gen__kda_step_fits(const gen_problem *base, const gen_device *device,
                               const struct gen__facts *variant);
enum { KDA_STEP_NUM_REQUIRED = 3, KDA_STEP_NUM_COORDS = 1, KDA_STEP_NUM_FIELDS = 9 };
extern const struct gen__axis gen__kda_step_required[KDA_STEP_NUM_REQUIRED];
extern const char *const gen__kda_step_coords[KDA_STEP_NUM_COORDS];
extern const struct gen__field gen__kda_step_fields[KDA_STEP_NUM_FIELDS];

/* args.c */
enum gen_status gen__kda_step_params(const gen_plan *plan, uint32_t launch, const gen_args *args,
                                     void *workspace, void *params);
uint32_t gen__kda_step_extents(const int32_t *dims, const gen_args *args,
                               struct gen__extent extents[GEN__MAX_EXTENTS]);

/* inputs.c */
uint32_t gen__kda_step_tensors(const gen_problem *problem, struct gen__tensor *tensors);
void gen__kda_step_default_args(const gen_problem *problem, gen_args *args);
enum gen_status gen__kda_step_fill(const gen_problem *problem, const gen_args *args,
                                   const struct gen__tensor *tensors,
                                   const struct gen__fill_options *options, void *const *data);
void gen__kda_step_cost(const gen_problem *problem, double *bytes, double *flops);
void gen__kda_step_case_name(const gen_problem *problem, char *text, size_t capacity);
bool gen__kda_step_data(const gen_problem *problem, enum gen__data kind, const gen_args *args,
                        struct gen__tensor *tensors);

/* forms.c */
#define KDA_STEP_NUM_FORMS 27
extern const char *const gen__kda_step_forms[KDA_STEP_NUM_FORMS];
bool gen__kda_step_form(const gen_problem *problem, uint32_t index, gen_args *args,
                        struct gen__tensor *tensors);

/* reference.c */
enum gen_status gen__kda_step_exact(const gen_plan *plan, const gen_args *args,
                                    double *const *exact);
enum gen_status gen__kda_step_reference(const gen_plan *plan, const gen_args *args);

/* All of a struct gen__family but name and tag. */
#define GEN__KDA_STEP_FAMILY                                                                      \
    .problem_size = sizeof(gen_kda_step_problem), .args_size = sizeof(gen_kda_step_args),         \
    .params_size = sizeof(struct gen_kda_step_params), .required = gen__kda_step_required,        \
    .num_required = KDA_STEP_NUM_REQUIRED, .facts = KDA_STEP_FACTS,                               \
    .coords = gen__kda_step_coords, .num_coords = KDA_STEP_NUM_COORDS,                            \
    .max_distance = GEN__ANY_DISTANCE, .fields = gen__kda_step_fields,                            \
    .num_fields = KDA_STEP_NUM_FIELDS, .check = gen__kda_step_check, .fits = gen__kda_step_fits,  \
    .predict = gen__kda_step_predict, .plan = gen__kda_step_plan, .params = gen__kda_step_params, \
    .extents = gen__kda_step_extents, .reference = gen__kda_step_reference,                       \
    .exact = gen__kda_step_exact, .tensors = gen__kda_step_tensors,                               \
    .default_args = gen__kda_step_default_args, .fill = gen__kda_step_fill,                       \
    .cost = gen__kda_step_cost, .case_name = gen__kda_step_case_name,                             \
    .forms = gen__kda_step_forms, .num_forms = KDA_STEP_NUM_FORMS, .form = gen__kda_step_form,    \
    .data = gen__kda_step_data

#endif /* GEN_FAMILIES_KDA_STEP_H */
