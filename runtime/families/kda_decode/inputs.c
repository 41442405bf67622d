/*
 * Problems of kda_decode for the tuner, the verifier and the tests: which tensors
 * they have, what stands in them, and the other ways to pass them.
 *
 * By default everything is activated in the kernel, as Kimi Linear has it. One
 * token a row goes back to the row's slot; of several each one's state gets a slot
 * of its own, as speculative decoding wants it.
 */
#include "families/kda/decode.h"
#include "reference/data.h"
#include "reference/scatter.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Slots of default_args() beyond those that are named: a test sees there whether
 * a kernel strays. */
#define EXTRA_SLOTS 3
/* Columns of a table that is wider than it must be. */
#define EXTRA_COLUMNS 2

static int64_t all_tokens(const gen_kda_decode_problem *p)
{
    return (int64_t)p->batch * p->num_tokens;
}

/* Gates of a token; numbers of dt_bias, too. */
static int64_t gates_of(const gen_kda_decode_problem *p)
{
    const int64_t heads = p->num_v_heads;
    return gen__kda_decode_scalar(p->base.family) ? heads : heads * p->head_dim;
}

/* ---- tensors ----------------------------------------------------------- */

/* Greatest relative Frobenius errors.
 *
 * Output: one rounding to nearest with p significant bits is off by at most 2^-p
 * of the value, p = 8 for bf16 and 11 for fp16; what fp32 adds before it is some
 * 1e-6 of the row (the verifier's slack for outputs that are rounded once).
 *
 * State: sums of 128 terms and the activations in fp32. Where exponentials are the
 * C library's (tests/emul) the verify list stays below 1e-6; a GPU's are off by two
 * units in the last place, of the gate's, the sigmoid's and the decay's.
 */
static const double bf16_tolerance = 0x1p-8;
static const double fp16_tolerance = 0x1p-11;
static const double state_tolerance = 4e-6;

#define TENSOR(...) GEN__TENSOR(gen_kda_decode_args, __VA_ARGS__)

uint32_t gen__kda_decode_tensors(const gen_problem *base, struct gen__tensor *tensors)
{
    const gen_kda_decode_problem *p = (const gen_kda_decode_problem *)base;
    const enum gen_dtype dtype = (enum gen_dtype)p->dtype, index = GEN_DTYPE_INT32;
    const enum gen_dtype gate_dtype = (enum gen_dtype)p->gate_dtype;
    const enum gen_dtype beta_dtype = (enum gen_dtype)p->beta_dtype;
    const enum gen_dtype fp32 = GEN_DTYPE_FP32;
    const int64_t d = p->head_dim, tokens = all_tokens(p);
    const int64_t qk_count = tokens * p->num_qk_heads * d, v_count = tokens * p->num_v_heads * d;
    const int64_t heads = p->batch ? p->num_v_heads : 0, biases = p->batch ? gates_of(p) : 0;
    const int64_t slots = tokens + EXTRA_SLOTS;
    const double o_tolerance = dtype == GEN_DTYPE_FP16 ? fp16_tolerance : bf16_tolerance;
    const struct gen__tensor list[KDA_DECODE_NUM_TENSORS] = {
        {TENSOR(q, dtype, GEN__IN, GEN__FILL_NORMAL, 1.0, qk_count), .cold = true},
        {TENSOR(k, dtype, GEN__IN, GEN__FILL_NORMAL, 1.0, qk_count), .cold = true},
        {TENSOR(v, dtype, GEN__IN, GEN__FILL_NORMAL, 1.0, v_count), .cold = true},
        {TENSOR(g, gate_dtype, GEN__IN, GEN__FILL_NORMAL, 2.0, tokens * gates_of(p)), .cold = true},
        {TENSOR(beta, beta_dtype, GEN__IN, GEN__FILL_NORMAL, 1.0, tokens * p->num_v_heads),
         .cold = true},
        {TENSOR(o, dtype, GEN__OUT, GEN__FILL_POISON, 0.0, v_count), .tolerance = o_tolerance,
         .rounded_once = true},
        {TENSOR(A_log, fp32, GEN__IN, GEN__FILL_NORMAL, 0.5, heads), .cold = true},
        {TENSOR(dt_bias, fp32, GEN__IN, GEN__FILL_NORMAL, 1.0, biases), .cold = true},
        {TENSOR(state, fp32, GEN__INOUT, GEN__FILL_NORMAL, 0.3, slots * p->num_v_heads * d * d),
         .tolerance = state_tolerance, .cold = true},
        {TENSOR(slots, index, GEN__IN, GEN__FILL_SLOTS, (double)slots, tokens), .cold = true},
        {TENSOR(accepted, index, GEN__IN, GEN__FILL_FAMILY, 0, p->num_tokens > 1 ? p->batch : 0),
         .cold = true},
        {TENSOR(cu_seqlens, index, GEN__IN, GEN__FILL_FAMILY, 0, 0), .cold = true},
    };
    memcpy(tensors, list, sizeof list);
    return KDA_DECODE_NUM_TENSORS;
}

#undef TENSOR

void gen__kda_decode_default_args(const gen_problem *base, gen_args *args)
{
    const gen_kda_decode_problem *p = (const gen_kda_decode_problem *)base;
    gen_kda_decode_args *a = (gen_kda_decode_args *)args;
    memset(a, 0, sizeof *a);
    a->base.size = sizeof *a;
    a->base.family = p->base.family;
    a->num_slots = (int32_t)all_tokens(p) + EXTRA_SLOTS;
    a->write = p->num_tokens > 1 ? GEN_KDA_DECODE_WRITE_EACH : GEN_KDA_DECODE_WRITE_LAST;
    a->gate_form = GEN_KDA_GATE_SOFTPLUS;
    a->beta_form = GEN_KDA_BETA_SIGMOID;
    a->qk_l2norm = 1;
    a->scale = 1.0f / sqrtf((float)p->head_dim);
}

/* ---- what stands in them ----------------------------------------------- */

static int64_t columns_of(const gen_kda_decode_problem *p, const gen_kda_decode_args *a)
{
    const int32_t packed = a->write == GEN_KDA_DECODE_WRITE_EACH ? p->num_tokens : 1;
    return a->slots_stride ? a->slots_stride : packed;
}

/* 1 up to the table's columns; with padding every third names none. */
static void fill_accepted(const gen_kda_decode_problem *p, const gen_kda_decode_args *a,
                          const struct gen__fill_options *options, int32_t *accepted)
{
    const int32_t columns = (int32_t)columns_of(p, a);
    const int32_t bad[] = {0, columns + 1, -1, INT32_MIN, INT32_MAX};
    for (int64_t b = 0; b < p->batch; b++) {
        accepted[b] = 1 + (int32_t)(gen__scatter(options->seed, b) * columns);
        if (options->padding && b % 3 == 2)
            accepted[b] = bad[b / 3 % (int64_t)(sizeof bad / sizeof *bad)];
    }
}

/* Rows of all tokens, of none, of any; with padding the third has a token too
 * many, and the last one's end lies outside. */
static void fill_cu_seqlens(const gen_kda_decode_problem *p, const gen_kda_decode_args *a,
                            const struct gen__fill_options *options, int32_t *cu_seqlens)
{
    cu_seqlens[0] = 0;
    for (int64_t b = 0; b < p->batch; b++) {
        int32_t count = (int32_t)(gen__scatter(options->seed + 1, b) * (p->num_tokens + 1));
        if (b < 2)
            count = b == 0 ? p->num_tokens : 0;
        else if (options->padding && b == 2)
            count = p->num_tokens + 1;
        cu_seqlens[b + 1] = cu_seqlens[b] + count;
    }
    if (options->padding && p->batch > 3)
        cu_seqlens[p->batch] = a->total_tokens + 1;
}

/* NaN in the slots that nobody names, finite numbers in the others. */
static bool poison_unused(const gen_kda_decode_problem *p, const gen_kda_decode_args *a,
                          const int32_t *slots, float *state)
{
    const size_t floats = (size_t)p->num_v_heads * (size_t)p->head_dim * (size_t)p->head_dim;
    const int64_t named = slots ? p->batch * columns_of(p, a) : p->batch;
    uint8_t *used = calloc((size_t)a->num_slots, 1);
    if (!used)
        return false;
    for (int64_t i = 0; i < named; i++) {
        const int64_t slot = slots ? slots[i] : i;
        if (slot >= 0 && slot < a->num_slots)
            used[slot] = 1;
    }
    for (int64_t slot = 0; slot < a->num_slots; slot++) {
        float *s = state + (size_t)slot * floats;
        for (size_t i = 0; i < floats; i++)
            s[i] = !used[slot] ? NAN : isfinite(s[i]) ? s[i] : 0.25f;
    }
    free(used);
    return true;
}

/* NaN in the first head of every state that the first request's slots name. */
static void poison_first(const gen_kda_decode_problem *p, const gen_kda_decode_args *a,
                         const int32_t *slots, float *state)
{
    const int64_t floats = (int64_t)p->head_dim * p->head_dim;
    const int64_t columns = slots ? columns_of(p, a) : 1;
    for (int64_t i = 0; i < columns && p->batch; i++) {
        const int64_t slot = slots ? slots[i] : 0;
        for (int64_t j = 0; j < floats && slot >= 0 && slot < a->num_slots; j++)
            state[slot * p->num_v_heads * floats + j] = NAN;
    }
}

enum gen_status gen__kda_decode_fill(const gen_problem *base, const gen_args *args,
                                     const struct gen__tensor *tensors,
                                     const struct gen__fill_options *options, void *const *data)
{
    const gen_kda_decode_problem *p = (const gen_kda_decode_problem *)base;
    const gen_kda_decode_args *a = (const gen_kda_decode_args *)args;
    (void)tensors;
    if (data[KDA_DECODE_ACCEPTED])
        fill_accepted(p, a, options, data[KDA_DECODE_ACCEPTED]);
    if (data[KDA_DECODE_CU_SEQLENS])
        fill_cu_seqlens(p, a, options, data[KDA_DECODE_CU_SEQLENS]);
    if (options->poisoned && data[KDA_DECODE_STATE])
        poison_first(p, a, data[KDA_DECODE_SLOTS], data[KDA_DECODE_STATE]);
    if (options->non_finite && data[KDA_DECODE_STATE] &&
        !poison_unused(p, a, data[KDA_DECODE_SLOTS], data[KDA_DECODE_STATE]))
        return gen__fail(GEN_STATUS_OUT_OF_MEMORY, "%s: no memory to mark %" PRId32 " slots",
                         gen__kda_decode_name(a->base.family), a->num_slots);
    return GEN_OK;
}

/* ---- other ways to pass the same problem ------------------------------- */

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
    FORM_WIDE_TABLE, /* more columns than tokens, and accepted counts up to them */
    FORM_ONE_COLUMN, /* a slot a row, whatever the tokens */
    NUM_FORMS
};
_Static_assert(NUM_FORMS == KDA_DECODE_NUM_FORMS, "a name each");

#define ACTIVATIONS(gate)                                                                  \
#gate "-norm-given", #gate "-norm-sigmoid", #gate "-norm-twice", #gate "-plain-given", \
        #gate "-plain-sigmoid", #gate "-plain-twice"
const char *const gen__kda_decode_forms[KDA_DECODE_NUM_FORMS] = {
    ACTIVATIONS(given), ACTIVATIONS(softplus),
    ACTIVATIONS(bound), "no_bias",
    "bare_bound",       "strides",
    "no_slots",         "padding",
    "zero_padding",     "ragged",
    "ragged_zero",      "ragged_last",
    "no_accepted",      "write_last",
    "write_each",       "write_none",
    "wide_table",       "one_column"};
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
    t[KDA_DECODE_GATE].count = extent(tokens, a->g_stride ? a->g_stride : gates_of(p), gates_of(p));
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
    set_tokens(p, all_tokens(p), a, t);
}

static void ragged_form(const gen_kda_decode_problem *p, gen_kda_decode_args *a,
                        struct gen__tensor *t)
{
    a->total_tokens = p->batch ? (int32_t)all_tokens(p) + 1 : 0;
    t[KDA_DECODE_CU_SEQLENS].count = p->batch ? (uint64_t)p->batch + 1 : 0;
    set_tokens(p, a->total_tokens, a, t);
}

/* A table of so many columns and a pool for it. */
static void table_form(const gen_kda_decode_problem *p, int32_t columns, gen_kda_decode_args *a,
                       struct gen__tensor *t)
{
    const int64_t state = (int64_t)p->num_v_heads * p->head_dim * p->head_dim;
    a->slots_stride = columns;
    a->num_slots = p->batch * columns + EXTRA_SLOTS;
    t[KDA_DECODE_SLOTS].count = (uint64_t)p->batch * (uint64_t)columns;
    t[KDA_DECODE_SLOTS].amount = a->num_slots;
    t[KDA_DECODE_STATE].count = (uint64_t)(a->num_slots * state);
    t[KDA_DECODE_ACCEPTED].count = columns > 1 ? (uint64_t)p->batch : 0;
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
        ragged_form(p, a, t);
        return slot_form(p, FORM_ONE_COLUMN, a, t);
    default:
        return slot_form(p, (enum form)index, a, t);
    }
}

bool gen__kda_decode_data(const gen_problem *base, enum gen__data kind, const gen_args *args,
                          struct gen__tensor *t)
{
    const gen_kda_decode_problem *p = (const gen_kda_decode_problem *)base;
    (void)args;
    gen__data_queries(kind, &t[KDA_DECODE_Q], t[KDA_DECODE_K].dtype, p->head_dim);
    gen__data_keys(kind, &t[KDA_DECODE_K], p->head_dim);
    gen__data_values(kind, &t[KDA_DECODE_V], p->head_dim, false);
    gen__data_gates(kind, &t[KDA_DECODE_GATE], &t[KDA_DECODE_BETA]);
    return true;
}

/* ---- what it costs, what it is called ---------------------------------- */

/* A state read, and written once a token; gate, v, o and beta once; q and k once
 * for a group. */
void gen__kda_decode_cost(const gen_problem *base, double *bytes, double *flops)
{
    const gen_kda_decode_problem *p = (const gen_kda_decode_problem *)base;
    const double d = p->head_dim, tokens = p->num_tokens, heads = p->num_v_heads;
    const double states = (double)p->batch * heads;
    const double gate = p->gate_dtype == GEN_DTYPE_FP32 ? 4 : 2;
    const double beta = p->beta_dtype == GEN_DTYPE_FP32 ? 4 : 2;
    const double qk_rows = (double)p->batch * tokens * p->num_qk_heads;
    const double gates = (double)gates_of(p);
    *bytes = states * (1 + tokens) * 4 * d * d + states * tokens * ((2 + 2) * d + beta) +
             (double)p->batch * tokens * gates * gate + qk_rows * 2 * 2 * d +
             (p->batch ? 4 * (gates + heads) : 0);
    /* An element: the decay, two dot products, the update. */
    *flops = states * tokens * 7 * d * d;
}

/* "N64-H32-HV32-vk". What is not said there adds a word, so that no case is taken
 * for another. */
void gen__kda_decode_case_name(const gen_problem *base, char *text, size_t capacity)
{
    const gen_kda_decode_problem *p = (const gen_kda_decode_problem *)base;
    char tokens[16] = "", width[16] = "";
    if (p->num_tokens > 1)
        snprintf(tokens, sizeof tokens, "-T%" PRId32, p->num_tokens);
    if (p->head_dim != 128)
        snprintf(width, sizeof width, "-D%" PRId32, p->head_dim);
    snprintf(text, capacity, "N%" PRId32 "-H%" PRId32 "-HV%" PRId32 "-%s%s%s%s%s%s", p->batch,
             p->num_qk_heads, p->num_v_heads, p->state_layout == GEN_KDA_STATE_KV ? "kv" : "vk",
             tokens, width, p->dtype == GEN_DTYPE_FP16 ? "-fp16" : "",
             p->gate_dtype == GEN_DTYPE_FP32 ? "-g32" : "",
             p->beta_dtype == GEN_DTYPE_FP32 ? "-b32" : "");
}
