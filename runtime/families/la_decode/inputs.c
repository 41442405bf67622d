/*
 * Lightning Attention decode for the tuner, the verifier and the tests: its tensors, their
 * tolerances, and other ways to pass a problem.
 */
#include "families/la_decode/la_decode.h"

#include "reference/data.h"
#include "reference/state.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Slots of default_args() beyond one for each row: a test sees there whether a
 * kernel strays. */
#define EXTRA_SLOTS 3
/* 16-byte granules between the states of two slots. */
#define GAP 5

/* Greatest relative Frobenius errors.
 *
 * Output: the reference rounds the exact sum to the output type, and so does a
 * kernel whose fp32 sum is off by about 1e-7. One rounding to nearest with p
 * significant bits is off by at most 2^-p of the value, p = 8 for bf16 and 11
 * for fp16, so that bounds either result against the exact one (typically
 * 0.4 * 2^-p: the error is uniform within an ulp, the value anywhere in its
 * binade). The two results differ only where the fp32 error crosses a tie, by
 * an ulp of 2^(1-p): one such element among the least, 64, stays below.
 *
 * State: one fp32 multiply and one fused multiply-add, 2 * 2^-24, plus the
 * error of lam, of which -decay * log2(e), |.| < 5.8, has 2^-24 relative. */
static const double bf16_tolerance = 0x1p-8;
static const double fp16_tolerance = 0x1p-11;
static const double state_tolerance = 1e-6;
/* States of 16 bits: the sum that is rounded is some 1e-7 off, so few elements go to the other
 * neighbour. Cut, or rounded twice, they would be off by half a unit in the last place. */
static const double bf16_state_tolerance = 0x1p-11;
static const double fp16_state_tolerance = 0x1p-13;

#define TENSOR(...) GEN__TENSOR(gen_la_decode_args, __VA_ARGS__)

uint32_t gen__la_decode_tensors(const gen_problem *base, struct gen__tensor *tensors)
{
    const gen_la_decode_problem *p = (const gen_la_decode_problem *)base;
    const enum gen_dtype dtype = (enum gen_dtype)p->dtype;
    const uint64_t batch = (uint64_t)p->batch, d = (uint64_t)p->head_dim;
    const uint64_t slots = batch + EXTRA_SLOTS;
    const uint64_t qk_count = batch * (uint64_t)p->num_qk_heads * d;
    const uint64_t v_count = batch * (uint64_t)p->num_v_heads * d;
    const uint64_t pool_count = slots * (uint64_t)p->num_v_heads * d * d;
    const uint64_t decays = (uint64_t)p->num_qk_heads;
    const double o_tolerance = dtype == GEN_DTYPE_FP16 ? fp16_tolerance : bf16_tolerance;
    const double s_tolerance = p->state_dtype == GEN_STATE_FP32   ? state_tolerance
                               : p->state_dtype == GEN_STATE_FP16 ? fp16_state_tolerance
                                                                  : bf16_state_tolerance;
    const struct gen__tensor list[LA_DECODE_NUM_TENSORS] = {
        {TENSOR(q, dtype, GEN__IN, GEN__FILL_NORMAL, 1.0, qk_count), .cold = true},
        {TENSOR(k, dtype, GEN__IN, GEN__FILL_NORMAL, 1.0, qk_count), .cold = true},
        {TENSOR(v, dtype, GEN__IN, GEN__FILL_NORMAL, 1.0, v_count), .cold = true},
        {TENSOR(o, dtype, GEN__OUT, GEN__FILL_POISON, 0.0, v_count), .tolerance = o_tolerance,
         .rounded_once = true},
        /* As the published schedule: between 0 and 4, one for each q, k head. */
        {TENSOR(decay, GEN_DTYPE_FP32, GEN__IN, GEN__FILL_UNIFORM, 4.0, decays), .cold = true},
        {TENSOR(state, gen__state_element(p->state_dtype), GEN__INOUT, GEN__FILL_NORMAL, 0.1,
                pool_count),
         .tolerance = s_tolerance, .cold = true},
        {TENSOR(slots, GEN_DTYPE_INT32, GEN__IN, GEN__FILL_SLOTS, (double)slots, batch),
         .cold = true},
        {TENSOR(slots_out, GEN_DTYPE_INT32, GEN__IN, GEN__FILL_FAMILY, 0, 0), .cold = true},
    };
    memcpy(tensors, list, sizeof list);
    return LA_DECODE_NUM_TENSORS;
}

#undef TENSOR

void gen__la_decode_default_args(const gen_problem *base, gen_args *args)
{
    const gen_la_decode_problem *p = (const gen_la_decode_problem *)base;
    gen_la_decode_args *a = (gen_la_decode_args *)args;
    memset(a, 0, sizeof *a);
    a->base.size = sizeof *a;
    a->base.family = GEN_LA_DECODE;
    a->num_slots = p->batch + EXTRA_SLOTS;
    a->num_decays = p->num_qk_heads;
    a->scale = 1.0f / sqrtf((float)p->head_dim);
}

void gen__la_decode_cost(const gen_problem *base, double *bytes, double *flops)
{
    const gen_la_decode_problem *p = (const gen_la_decode_problem *)base;
    const double d = p->head_dim;
    const double states = (double)p->batch * p->num_v_heads;
    const double qk_rows = (double)p->batch * p->num_qk_heads;
    /* The state read and written, v and o; q and k once for a group. */
    *bytes = states * (2 * gen__la_decode_state_bytes(p->state_dtype) * d * d + 2 * 2 * d) +
             qk_rows * (2 * 2 * d);
    /* An element: a multiply and two multiply-adds. */
    *flops = states * 5 * d * d;
}

void gen__la_decode_case_name(const gen_problem *base, char *text, size_t capacity)
{
    const gen_la_decode_problem *p = (const gen_la_decode_problem *)base;
    static const char *const states[] = {"", "-state-bf16", "-state-fp16"};
    char group[16] = "";
    if (p->num_v_heads != p->num_qk_heads)
        snprintf(group, sizeof group, "-HV%" PRId32, p->num_v_heads);
    snprintf(text, capacity, "B%" PRId32 "-H%" PRId32 "%s-K%" PRId32 "-V%" PRId32 "-%s%s%s",
             p->batch, p->num_qk_heads, group, p->head_dim, p->head_dim,
             p->state_layout == GEN_LA_STATE_KV ? "kv" : "vk",
             p->dtype == GEN_DTYPE_FP16 ? "-fp16" : "",
             p->pool && p->state_dtype == GEN_STATE_FP32 ? "-pool" : states[p->state_dtype]);
}

/* ---- what stands in tables and pools --------------------------------------- */

/* The null slot is some row's. */
static void name_null_slot(int32_t null_slot, int32_t batch, int32_t *slots)
{
    for (int32_t b = 0; b < batch; b++)
        if (slots[b] == null_slot)
            return;
    if (batch)
        slots[batch - 1] = null_slot;
}

/* Slots that no row is read from, from the last on. Every fifth row drops its state, and the
 * third's goes back to where it came from. */
static bool fill_slots_out(const gen_la_decode_problem *p, const gen_la_decode_args *a,
                           const int32_t *slots, int32_t *slots_out)
{
    uint8_t *used = calloc((size_t)a->num_slots, 1);
    if (!used)
        return false;
    for (int32_t b = 0; b < p->batch; b++) {
        const int32_t slot = slots ? slots[b] : b;
        if (slot >= 0 && slot < a->num_slots)
            used[slot] = 1;
    }
    int32_t next = a->num_slots - 1;
    for (int32_t b = 0; b < p->batch; b++) {
        while (next >= 0 && used[next])
            next--;
        slots_out[b] = b % 5 == 4 ? -1 : next--;
    }
    if (slots && p->batch > 2)
        slots_out[2] = slots[2];
    free(used);
    return true;
}

/* NaN in the null slot's states: no kernel may read there. */
static void poison_null_slot(const gen_la_decode_problem *p, const gen_la_decode_args *a,
                             void *state)
{
    const int64_t width = (int64_t)p->num_v_heads * p->head_dim * p->head_dim;
    const int64_t first = (a->null_slot - 1) * (a->state_stride ? a->state_stride : width);
    for (int64_t i = first; i < first + width; i++)
        gen__state_put(p->state_dtype, state, i, (double)NAN);
}

enum gen_status gen__la_decode_fill(const gen_problem *base, const gen_args *args,
                                    const struct gen__tensor *tensors,
                                    const struct gen__fill_options *options, void *const *data)
{
    const gen_la_decode_problem *p = (const gen_la_decode_problem *)base;
    const gen_la_decode_args *a = (const gen_la_decode_args *)args;
    (void)tensors, (void)options;
    if (a->null_slot > 0 && data[LA_DECODE_SLOTS])
        name_null_slot(a->null_slot - 1, p->batch, data[LA_DECODE_SLOTS]);
    if (a->null_slot > 0 && data[LA_DECODE_STATE])
        poison_null_slot(p, a, data[LA_DECODE_STATE]);
    if (data[LA_DECODE_SLOTS_OUT] &&
        !fill_slots_out(p, a, data[LA_DECODE_SLOTS], data[LA_DECODE_SLOTS_OUT]))
        return gen__fail(GEN_STATUS_OUT_OF_MEMORY, "la_decode: no memory to mark %" PRId32 " slots",
                         a->num_slots);
    return GEN_OK;
}

/* Other ways to pass the same problem. */
enum form {
    FORM_V_DECAYS,
    FORM_STRIDES,
    FORM_NO_SLOTS,
    FORM_PADDING,
    FORM_ZERO_PADDING,
    FORM_POOL_STRIDE, /* room for other things between the slots */
    FORM_SLOTS_OUT,   /* states go elsewhere than they came from */
    FORM_NULL_SLOT,   /* slot 0 is null, and a row has it */
    FORM_POOL         /* all of that */
};
const char *const gen__la_decode_forms[LA_DECODE_NUM_FORMS] = {
    "v_decays",    "strides",   "no_slots",  "padding", "zero_padding",
    "pool_stride", "slots_out", "null_slot", "pool"};

static uint64_t strided_count(int64_t batch, int64_t stride, int64_t width)
{
    return batch ? (uint64_t)((batch - 1) * stride + width) : 0;
}

/* Rows as in one buffer that holds q, k and v side by side, and rows of o that
 * are 8 elements apart. */
static void stride_form(const gen_la_decode_problem *p, gen_la_decode_args *a,
                        struct gen__tensor *tensors)
{
    const int64_t qk_width = (int64_t)p->num_qk_heads * p->head_dim;
    const int64_t v_width = (int64_t)p->num_v_heads * p->head_dim;
    a->q_stride = a->k_stride = a->v_stride = 2 * qk_width + v_width;
    a->o_stride = v_width + 8;
    tensors[LA_DECODE_Q].count = tensors[LA_DECODE_K].count =
        strided_count(p->batch, a->q_stride, qk_width);
    tensors[LA_DECODE_V].count = strided_count(p->batch, a->v_stride, v_width);
    tensors[LA_DECODE_O].count = strided_count(p->batch, a->o_stride, v_width);
}

static bool pool_form(const gen_la_decode_problem *p, enum form form, gen_la_decode_args *a,
                      struct gen__tensor *tensors)
{
    const int64_t width = (int64_t)p->num_v_heads * p->head_dim * p->head_dim;
    const int32_t granule = 16 / gen__la_decode_state_bytes(p->state_dtype);
    if (!p->pool && p->state_dtype == GEN_STATE_FP32)
        return false;
    if (form == FORM_NULL_SLOT || form == FORM_POOL)
        a->null_slot = 1;
    if (form == FORM_POOL_STRIDE || form == FORM_POOL)
        a->state_stride = width + (int64_t)GAP * granule;
    if (form == FORM_SLOTS_OUT || form == FORM_POOL) {
        a->num_slots += p->batch;
        tensors[LA_DECODE_SLOTS].amount = a->num_slots;
        tensors[LA_DECODE_SLOTS_OUT].count = (uint64_t)p->batch;
    }
    tensors[LA_DECODE_STATE].count =
        strided_count(a->num_slots, a->state_stride ? a->state_stride : width, width);
    return true;
}

bool gen__la_decode_form(const gen_problem *base, uint32_t index, gen_args *args,
                         struct gen__tensor *tensors)
{
    const gen_la_decode_problem *p = (const gen_la_decode_problem *)base;
    gen_la_decode_args *a = (gen_la_decode_args *)args;
    switch ((enum form)index) {
    case FORM_V_DECAYS:
        a->num_decays = p->num_v_heads;
        tensors[LA_DECODE_DECAY].count = (uint64_t)p->num_v_heads;
        return p->num_v_heads != p->num_qk_heads;
    case FORM_STRIDES:
        stride_form(p, a, tensors);
        return true;
    case FORM_NO_SLOTS: /* a tensor without elements is passed as NULL */
        tensors[LA_DECODE_SLOTS].count = 0;
        return true;
    case FORM_PADDING: /* slots beyond the pool: about half of the rows */
    case FORM_ZERO_PADDING:
        tensors[LA_DECODE_SLOTS].amount *= 2;
        a->zero_padding = index == FORM_ZERO_PADDING;
        return true;
    case FORM_POOL_STRIDE:
    case FORM_SLOTS_OUT:
    case FORM_NULL_SLOT:
    case FORM_POOL:
        return pool_form(p, (enum form)index, a, tensors);
    }
    return false;
}

bool gen__la_decode_data(const gen_problem *base, enum gen__data kind, const gen_args *args,
                         struct gen__tensor *tensors)
{
    const gen_la_decode_problem *p = (const gen_la_decode_problem *)base;
    (void)args;
    gen__data_queries(kind, &tensors[LA_DECODE_Q], tensors[LA_DECODE_K].dtype, p->head_dim);
    gen__data_keys(kind, &tensors[LA_DECODE_K], p->head_dim);
    gen__data_values(kind, &tensors[LA_DECODE_V], p->head_dim, false);
    gen__data_gates(kind, &tensors[LA_DECODE_DECAY], NULL);
    return true;
}
