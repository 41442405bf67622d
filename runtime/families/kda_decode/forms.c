/*
 * The other ways to pass a problem of kda_decode: activations, strides, tables of
 * slots, pools, ragged rows.
 */
#include "families/kda/decode.h"

#include <math.h>

/* Columns of a table that is wider than it must be. */
#define EXTRA_COLUMNS 2
/* 16-byte granules between the states of two slots. */
#define GAP 5

/* Every gate form with and without normalisation and with every beta form:
 * form = (gate * 2 + plain) * 3 + beta. */
#define NUM_ACTIVATIONS 18
enum form {
    FORM_NO_BIAS = NUM_ACTIVATIONS,
    FORM_BARE_BOUND, /* neither a_log nor dt_bias */
    FORM_STRIDES,
    FORM_NO_SLOTS,
    FORM_PADDING, /* slots beyond the pool: about half of them */
    FORM_ZERO_PADDING,
    FORM_RAGGED,
    FORM_RAGGED_ZERO, /* and outputs of padding rows are zeroed */
    FORM_RAGGED_LAST, /* of each row the last state alone */
    FORM_NO_ACCEPTED,
    FORM_WRITE_LAST, /* to the column that was read */
    FORM_WRITE_EACH,
    FORM_WRITE_NONE,
    FORM_WIDE_TABLE,  /* more columns than tokens, and accepted counts up to them */
    FORM_ONE_COLUMN,  /* a slot a row, whatever the tokens */
    FORM_POOL_STRIDE, /* room for other things between the slots */
    FORM_SLOTS_OUT,   /* states go elsewhere than they came from */
    FORM_EACH_OUT,    /* likewise, a slot for each token's */
    FORM_NULL_SLOT,   /* slot 0 is null, and a row has it */
    FORM_POOL,        /* all of that, with a table that is wider than it must be */
    FORM_RING_STRIDE, /* room for other things between the slots' rings */
    FORM_FLUSH,       /* every third row folds */
    NUM_FORMS
};
_Static_assert(NUM_FORMS == KDA_DECODE_NUM_FORMS, "a name each");

#define ACTIVATIONS(gate)                                                                  \
#gate "-norm-given", #gate "-norm-sigmoid", #gate "-norm-twice", #gate "-plain-given", \
        #gate "-plain-sigmoid", #gate "-plain-twice"
const char *const gen__kda_decode_forms[KDA_DECODE_NUM_FORMS] = {ACTIVATIONS(given),
                                                                 ACTIVATIONS(softplus),
                                                                 ACTIVATIONS(bound),
                                                                 "no_bias",
                                                                 "bare_bound",
                                                                 "strides",
                                                                 "no_slots",
                                                                 "padding",
                                                                 "zero_padding",
                                                                 "ragged",
                                                                 "ragged_zero",
                                                                 "ragged_last",
                                                                 "no_accepted",
                                                                 "write_last",
                                                                 "write_each",
                                                                 "write_none",
                                                                 "wide_table",
                                                                 "one_column",
                                                                 "pool_stride",
                                                                 "slots_out",
                                                                 "each_out",
                                                                 "null_slot",
                                                                 "pool",
                                                                 "ring_stride",
                                                                 "flush"};
#undef ACTIVATIONS

static void give_gate(gen_kda_decode_args *a, struct gen__tensor *t)
{
    a->gate_form = GEN_KDA_GATE_GIVEN;
    t[KDA_DECODE_GATE].fill = GEN__FILL_UNIFORM;
    t[KDA_DECODE_GATE].amount = -3.0; /* from there up to 0 */
    t[KDA_DECODE_A_LOG].count = t[KDA_DECODE_DT_BIAS].count = 0;
}

static void bound_gate(gen_kda_decode_args *a)
{
    a->gate_form = GEN_KDA_GATE_LOWER_BOUND;
    a->lower_bound = -5.0f;
}

static void activation_form(const gen_kda_decode_problem *p, uint32_t index, gen_kda_decode_args *a,
                            struct gen__tensor *t)
{
    const uint32_t gate = index / 6, plain = index / 3 % 2, beta = index % 3;
    if (gate == GEN_KDA_GATE_GIVEN)
        give_gate(a, t);
    if (gate == GEN_KDA_GATE_LOWER_BOUND)
        bound_gate(a);
    a->qk_l2norm = !plain;
    if (plain) /* keys of norm 1: longer ones make the recurrence grow */
        t[KDA_DECODE_K].amount = 1 / sqrt(p->head_dim);
    a->beta_form = (int32_t)beta;
    if (beta == GEN_KDA_BETA_GIVEN) {
        t[KDA_DECODE_BETA].fill = GEN__FILL_UNIFORM;
        t[KDA_DECODE_BETA].amount = 1.0;
    }
}

static uint64_t extent(int64_t tokens, int64_t stride, int64_t width)
{
    return tokens > 0 ? (uint64_t)((tokens - 1) * stride + width) : 0;
}

/* Room for so many tokens. */
static void set_tokens(const gen_kda_decode_problem *p, int64_t tokens,
                       const gen_kda_decode_args *a, struct gen__tensor *t)
{
    const int64_t qk = (int64_t)p->num_qk_heads * p->head_dim;
    const int64_t v = (int64_t)p->num_v_heads * p->head_dim;
    t[KDA_DECODE_Q].count = extent(tokens, a->q_stride ? a->q_stride : qk, qk);
    t[KDA_DECODE_K].count = extent(tokens, a->k_stride ? a->k_stride : qk, qk);
    t[KDA_DECODE_V].count = extent(tokens, a->v_stride ? a->v_stride : v, v);
    t[KDA_DECODE_GATE].count = extent(tokens, a->g_stride ? a->g_stride : gen__kda_decode_gates(p),
                                      gen__kda_decode_gates(p));
    t[KDA_DECODE_O].count = extent(tokens, a->o_stride ? a->o_stride : v, v);
    t[KDA_DECODE_BETA].count =
        extent(tokens, a->beta_stride ? a->beta_stride : p->num_v_heads, p->num_v_heads);
}

/* Tokens as in one buffer that holds q, k and v side by side; gaps elsewhere. */
static void stride_form(const gen_kda_decode_problem *p, gen_kda_decode_args *a,
                        struct gen__tensor *t)
{
    const int64_t qk = (int64_t)p->num_qk_heads * p->head_dim;
    const int64_t v = (int64_t)p->num_v_heads * p->head_dim;
    a->q_stride = a->k_stride = a->v_stride = 2 * qk + v;
    a->g_stride = gen__kda_decode_scalar(p->base.family) ? p->num_v_heads + 5 : v + 16;
    a->beta_stride = p->num_v_heads + 3;
    a->o_stride = v + 8;
    set_tokens(p, gen__kda_decode_tokens(p), a, t);
}

static void ragged_form(const gen_kda_decode_problem *p, gen_kda_decode_args *a,
                        struct gen__tensor *t)
{
    a->total_tokens = p->batch ? (int32_t)gen__kda_decode_tokens(p) + 1 : 0;
    t[KDA_DECODE_CU_SEQLENS].count = p->batch ? (uint64_t)p->batch + 1 : 0;
    set_tokens(p, a->total_tokens, a, t);
}

/* A pool of so many slots. */
static void pool_form(const gen_kda_decode_problem *p, int64_t slots, gen_kda_decode_args *a,
                      struct gen__tensor *t)
{
    const int64_t state = (int64_t)p->num_v_heads * p->head_dim * p->head_dim;
    a->num_slots = (int32_t)slots;
    t[KDA_DECODE_SLOTS].amount = a->num_slots;
    t[KDA_DECODE_STATE].count = extent(slots, a->state_stride ? a->state_stride : state, state);
}

static void stride_rings(const gen_kda_decode_problem *p, gen_kda_decode_args *a,
                         struct gen__tensor *t)
{
    const int64_t row = (int64_t)gen__kda_decode_ring_size(p->ring_len, p->ring_size) * p->head_dim;
    const int64_t qk = p->num_qk_heads * row, v = p->num_v_heads * row;
    a->ring_k_stride = qk + 8;
    const int64_t gates = v / p->num_v_heads / p->head_dim * gen__kda_decode_gates(p);
    a->ring_g_stride = gates + (gen__kda_decode_scalar(p->base.family) ? 5 : 16);
    a->ring_u_stride = v + 24;
    t[KDA_DECODE_RING_K].count = extent(a->num_slots, a->ring_k_stride, qk);
    t[KDA_DECODE_RING_G].count = extent(a->num_slots, a->ring_g_stride, gates);
    t[KDA_DECODE_RING_U].count = extent(a->num_slots, a->ring_u_stride, v);
}

/* A table of so many columns and a pool for it. */
static void table_form(const gen_kda_decode_problem *p, int32_t columns, gen_kda_decode_args *a,
                       struct gen__tensor *t)
{
    a->slots_stride = columns;
    t[KDA_DECODE_SLOTS].count = (uint64_t)p->batch * (uint64_t)columns;
    t[KDA_DECODE_ACCEPTED].count = columns > 1 ? (uint64_t)p->batch : 0;
    pool_form(p, (int64_t)p->batch * columns + KDA_DECODE_EXTRA_SLOTS, a, t);
}

/* Slots to write, `columns` a row, and as many more in the pool. */
static void out_form(const gen_kda_decode_problem *p, int32_t columns, gen_kda_decode_args *a,
                     struct gen__tensor *t)
{
    a->slots_out_stride = columns;
    t[KDA_DECODE_SLOTS_OUT].count = (uint64_t)p->batch * (uint64_t)columns;
    pool_form(p, a->num_slots + (int64_t)p->batch * columns, a, t);
}

static void stride_pool(const gen_kda_decode_problem *p, gen_kda_decode_args *a,
                        struct gen__tensor *t)
{
    const int32_t granule = p->state_dtype == GEN_STATE_FP32 ? 4 : 8;
    a->state_stride = (int64_t)p->num_v_heads * p->head_dim * p->head_dim + (int64_t)GAP * granule;
    pool_form(p, a->num_slots, a, t);
}

static bool pools_form(const gen_kda_decode_problem *p, enum form form, gen_kda_decode_args *a,
                       struct gen__tensor *t)
{
    if (!p->pool && p->state_dtype == GEN_STATE_FP32)
        return false;
    switch (form) {
    case FORM_POOL_STRIDE:
        stride_pool(p, a, t);
        return true;
    case FORM_SLOTS_OUT:
        table_form(p, 1, a, t);
        a->write = GEN_KDA_DECODE_WRITE_LAST;
        out_form(p, 1, a, t);
        return true;
    case FORM_EACH_OUT:
        table_form(p, 1, a, t);
        a->write = GEN_KDA_DECODE_WRITE_EACH;
        out_form(p, p->num_tokens, a, t);
        return true;
    case FORM_NULL_SLOT:
        a->null_slot = 1;
        return true;
    case FORM_POOL:
        a->null_slot = 1;
        a->write = GEN_KDA_DECODE_WRITE_EACH;
        stride_pool(p, a, t);
        table_form(p, p->num_tokens + EXTRA_COLUMNS, a, t);
        out_form(p, p->num_tokens + EXTRA_COLUMNS, a, t);
        return true;
    default:
        return false;
    }
}

static bool slot_form(const gen_kda_decode_problem *p, enum form form, gen_kda_decode_args *a,
                      struct gen__tensor *t)
{
    switch (form) {
    case FORM_NO_SLOTS: /* a tensor without elements is passed as NULL */
        t[KDA_DECODE_SLOTS].count = t[KDA_DECODE_ACCEPTED].count = 0;
        a->write = GEN_KDA_DECODE_WRITE_LAST;
        return true;
    case FORM_NO_ACCEPTED:
        t[KDA_DECODE_ACCEPTED].count = 0;
        return p->num_tokens > 1;
    case FORM_WRITE_LAST:
        a->slots_stride = p->num_tokens;
        a->write = GEN_KDA_DECODE_WRITE_LAST;
        return p->num_tokens > 1;
    case FORM_WRITE_EACH:
        a->write = GEN_KDA_DECODE_WRITE_EACH;
        return true;
    case FORM_WRITE_NONE:
        a->slots_stride = p->num_tokens;
        a->write = GEN_KDA_DECODE_WRITE_NONE;
        return true;
    case FORM_WIDE_TABLE:
        a->write = GEN_KDA_DECODE_WRITE_EACH;
        table_form(p, p->num_tokens + EXTRA_COLUMNS, a, t);
        return true;
    case FORM_ONE_COLUMN:
        a->write = GEN_KDA_DECODE_WRITE_LAST;
        table_form(p, 1, a, t);
        return p->num_tokens > 1;
    default:
        return pools_form(p, form, a, t);
    }
}

/* The forms of a ring, whose states are written where they were read. */
static bool ring_form(const gen_kda_decode_problem *p, enum form form, gen_kda_decode_args *a,
                      struct gen__tensor *t)
{
    switch (form) {
    case FORM_NO_SLOTS:
        t[KDA_DECODE_SLOTS].count = 0;
        return true;
    case FORM_POOL_STRIDE:
        stride_pool(p, a, t);
        return true;
    case FORM_NULL_SLOT:
        a->null_slot = 1;
        return true;
    case FORM_RING_STRIDE:
        stride_rings(p, a, t);
        return true;
    case FORM_FLUSH:
        t[KDA_DECODE_FLUSH].count = (uint64_t)p->batch;
        return true;
    default:
        return false;
    }
}

bool gen__kda_decode_form(const gen_problem *base, uint32_t index, gen_args *args,
                          struct gen__tensor *t)
{
    const gen_kda_decode_problem *p = (const gen_kda_decode_problem *)base;
    gen_kda_decode_args *a = (gen_kda_decode_args *)args;
    if (index < NUM_ACTIVATIONS) {
        activation_form(p, index, a, t);
        gen__kda_decode_same_gates(t);
        return true;
    }
    switch ((enum form)index) {
    case FORM_NO_BIAS:
        t[KDA_DECODE_DT_BIAS].count = 0;
        return true;
    case FORM_BARE_BOUND:
        bound_gate(a);
        t[KDA_DECODE_A_LOG].count = t[KDA_DECODE_DT_BIAS].count = 0;
        return true;
    case FORM_STRIDES:
        stride_form(p, a, t);
        return true;
    case FORM_PADDING:
    case FORM_ZERO_PADDING:
        t[KDA_DECODE_SLOTS].amount *= 2;
        a->zero_padding = index == FORM_ZERO_PADDING;
        return true;
    case FORM_RAGGED:
    case FORM_RAGGED_ZERO:
        ragged_form(p, a, t);
        a->zero_padding = index == FORM_RAGGED_ZERO;
        return true;
    case FORM_RAGGED_LAST:
        if (p->ring_len)
            return false;
        ragged_form(p, a, t);
        return slot_form(p, FORM_ONE_COLUMN, a, t);
    default:
        if (p->ring_len)
            return ring_form(p, (enum form)index, a, t);
        return slot_form(p, (enum form)index, a, t);
    }
}
