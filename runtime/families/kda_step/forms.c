/* Other ways to pass a problem of kda_step or gdn_step, for the verifier. */
#include "families/kda/step.h"

#define D KDA_STEP_HEAD_DIM

/* Every gate form with every beta form: form = gate * 3 + beta. */
#define NUM_ACTIVATIONS 9
enum form {
    FORM_NO_BIAS = NUM_ACTIVATIONS, /* neither dt_bias nor conv_bias */
    FORM_BARE_BOUND,                /* neither A_log nor dt_bias */
    FORM_NO_NORM,
    FORM_Z_SIGMOID,
    FORM_Z_SILU,
    FORM_STRIDES,
    FORM_NO_SLOTS,
    FORM_PADDING, /* slots beyond the pool: about half of them */
    FORM_ZERO_PADDING,
    FORM_NULL_SLOT,      /* and one in the pool that is null */
    FORM_POOL_STRIDE,    /* slots lie apart */
    FORM_CHANNELS_FIRST, /* windows of a channel lie together */
    FORM_WIDTH_2,
    FORM_WIDTH_3,
    FORM_WIDTH_2_DS,
    FORM_WIDTH_3_DS,
    FORM_READ_ALONE,   /* windows stay */
    FORM_PART_WEIGHTS, /* weights as [3, width, channels of a part] */
    NUM_FORMS
};
_Static_assert(NUM_FORMS == KDA_STEP_NUM_FORMS, "a name each");

#define ACTIVATIONS(gate) #gate "-given", #gate "-sigmoid", #gate "-twice"
const char *const gen__kda_step_forms[KDA_STEP_NUM_FORMS] = {
    ACTIVATIONS(given), ACTIVATIONS(softplus),
    ACTIVATIONS(bound), "no_bias",
    "bare_bound",       "no_norm",
    "z_sigmoid",        "z_silu",
    "strides",          "no_slots",
    "padding",          "zero_padding",
    "null_slot",        "pool_stride",
    "channels_first",   "width_2",
    "width_3",          "width_2_ds",
    "width_3_ds",       "read_alone",
    "part_weights",
};
#undef ACTIVATIONS

static int64_t channels_of(const gen_kda_step_problem *p)
{
    return (2 * (int64_t)p->num_qk_heads + p->num_v_heads) * D;
}

static uint64_t extent(int64_t rows, int64_t stride, int64_t width)
{
    return rows > 0 ? (uint64_t)((rows - 1) * stride + width) : 0;
}

static void activation_form(uint32_t index, gen_kda_step_args *a, struct gen__tensor *t)
{
    a->gate_form = (int32_t)(index / 3);
    a->beta_form = (int32_t)(index % 3);
    if (a->gate_form == GEN_KDA_GATE_GIVEN) {
        t[KDA_STEP_GATE].fill = GEN__FILL_UNIFORM;
        t[KDA_STEP_GATE].amount = -3.0; /* from there up to 0 */
        t[KDA_STEP_A_LOG].count = t[KDA_STEP_DT_BIAS].count = 0;
    }
    if (a->beta_form == GEN_KDA_BETA_GIVEN) {
        t[KDA_STEP_BETA].fill = GEN__FILL_UNIFORM;
        t[KDA_STEP_BETA].amount = 1.0;
    }
}

/* Gaps between rows. */
static void stride_form(const gen_kda_step_problem *p, gen_kda_step_args *a, struct gen__tensor *t)
{
    const int64_t rows = p->batch, heads = p->num_v_heads, v = heads * D;
    const bool scalar = gen__kda_step_scalar(p->base.family);
    a->x_stride = channels_of(p) + 24;
    a->gate_stride = scalar ? heads + 5 : v + 16;
    a->beta_stride = heads + 3;
    a->z_stride = 2 * v;
    a->out_stride = v + 8;
    t[KDA_STEP_X].count = extent(rows, a->x_stride, channels_of(p));
    t[KDA_STEP_GATE].count = extent(rows, a->gate_stride, scalar ? heads : v);
    t[KDA_STEP_BETA].count = extent(rows, a->beta_stride, heads);
    t[KDA_STEP_Z].count = extent(rows, a->z_stride, v);
    t[KDA_STEP_OUT].count = extent(rows, a->out_stride, v);
}

static void width_form(const gen_kda_step_problem *p, int32_t width, gen_kda_step_args *a,
                       struct gen__tensor *t)
{
    a->conv_width = width;
    t[KDA_STEP_CONV_W].count = p->batch ? (uint64_t)(width * channels_of(p)) : 0;
    t[KDA_STEP_CONV_STATE].count =
        (uint64_t)a->num_slots * (uint64_t)(width - 1) * (uint64_t)channels_of(p);
}

static void pool_form(const gen_kda_step_problem *p, gen_kda_step_args *a, struct gen__tensor *t)
{
    const int64_t state = (int64_t)p->num_v_heads * D * D, conv = 3 * channels_of(p);
    a->state_stride = state + 40;
    a->conv_state_stride = conv + 8;
    t[KDA_STEP_STATE].count = extent(a->num_slots, a->state_stride, state);
    t[KDA_STEP_CONV_STATE].count = extent(a->num_slots, a->conv_state_stride, conv);
}

/* The greatest part's rows have room for each. */
static void weight_form(const gen_kda_step_problem *p, gen_kda_step_args *a, struct gen__tensor *t)
{
    a->conv_w_tap_stride = (int64_t)p->num_v_heads * D;
    a->conv_w_part_stride = a->conv_width * a->conv_w_tap_stride;
    t[KDA_STEP_CONV_W].count = p->batch ? (uint64_t)(3 * a->conv_w_part_stride) : 0;
}

static bool pool_of_form(const gen_kda_step_problem *p, enum form form, gen_kda_step_args *a,
                         struct gen__tensor *t)
{
    switch (form) {
    case FORM_STRIDES:
        stride_form(p, a, t);
        return true;
    case FORM_NO_SLOTS: /* a tensor without elements is passed as NULL */
        t[KDA_STEP_SLOTS].count = 0;
        return true;
    case FORM_PADDING:
    case FORM_ZERO_PADDING:
        t[KDA_STEP_SLOTS].amount *= 2;
        a->zero_padding = form == FORM_ZERO_PADDING;
        return true;
    case FORM_NULL_SLOT:
        a->null_slot = 2;
        return true;
    case FORM_POOL_STRIDE:
        pool_form(p, a, t);
        return true;
    default:
        return false;
    }
}

static bool conv_form(const gen_kda_step_problem *p, enum form form, gen_kda_step_args *a,
                      struct gen__tensor *t)
{
    switch (form) {
    case FORM_CHANNELS_FIRST:
        a->conv_layout = GEN_KDA_CONV_DS;
        return true;
    case FORM_WIDTH_2_DS:
    case FORM_WIDTH_3_DS:
        a->conv_layout = GEN_KDA_CONV_DS;
        width_form(p, form == FORM_WIDTH_2_DS ? 2 : 3, a, t);
        return true;
    case FORM_WIDTH_2:
    case FORM_WIDTH_3:
        width_form(p, form == FORM_WIDTH_2 ? 2 : 3, a, t);
        return true;
    case FORM_READ_ALONE:
        a->conv_state_update = 0;
        return true;
    case FORM_PART_WEIGHTS:
        weight_form(p, a, t);
        return true;
    default:
        return pool_of_form(p, form, a, t);
    }
}

bool gen__kda_step_form(const gen_problem *base, uint32_t index, gen_args *args,
                        struct gen__tensor *t)
{
    const gen_kda_step_problem *p = (const gen_kda_step_problem *)base;
    gen_kda_step_args *a = (gen_kda_step_args *)args;
    if (index < NUM_ACTIVATIONS) {
        activation_form(index, a, t);
        return true;
    }
    switch ((enum form)index) {
    case FORM_NO_BIAS:
        t[KDA_STEP_DT_BIAS].count = t[KDA_STEP_CONV_BIAS].count = 0;
        return true;
    case FORM_BARE_BOUND:
        a->gate_form = GEN_KDA_GATE_LOWER_BOUND;
        t[KDA_STEP_A_LOG].count = t[KDA_STEP_DT_BIAS].count = 0;
        return true;
    case FORM_NO_NORM:
        t[KDA_STEP_Z].count = t[KDA_STEP_NORM_W].count = 0;
        return true;
    case FORM_Z_SIGMOID:
    case FORM_Z_SILU:
        a->z_form = index == FORM_Z_SILU ? GEN_KDA_Z_SILU : GEN_KDA_Z_SIGMOID;
        return true;
    default:
        return conv_form(p, (enum form)index, a, t);
    }
}
