/*
 * Problems of kda_decode for the tuner, the verifier and the tests: which tensors
 * they have, and what stands in them. The other ways to pass them are in forms.c.
 *
 * By default everything is activated in the kernel, as Kimi Linear has it. One
 * token a row goes back to the row's slot; of several each one's state gets a slot
 * of its own, as speculative decoding wants it.
 */
#include "families/kda/decode.h"
#include "reference/data.h"
#include "reference/scatter.h"
#include "reference/state.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

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
/* States of 16 bits: the sum that is rounded is some 1e-6 off, so one in a thousand elements (of
 * fp16 one in a hundred) goes to the other neighbour. Cut, or rounded twice, they would be off by
 * half a unit in the last place. */
static const double bf16_state_tolerance = 0x1p-11;
static const double fp16_state_tolerance = 0x1p-13;

#define TENSOR(...) GEN__TENSOR(gen_kda_decode_args, __VA_ARGS__)

uint32_t gen__kda_decode_tensors(const gen_problem *base, struct gen__tensor *tensors)
{
    const gen_kda_decode_problem *p = (const gen_kda_decode_problem *)base;
    const enum gen_dtype dtype = (enum gen_dtype)p->dtype, index = GEN_DTYPE_INT32;
    const enum gen_dtype gate_dtype = (enum gen_dtype)p->gate_dtype;
    const enum gen_dtype beta_dtype = (enum gen_dtype)p->beta_dtype;
    const enum gen_dtype fp32 = GEN_DTYPE_FP32;
    const int64_t d = p->head_dim, tokens = gen__kda_decode_tokens(p);
    const int64_t qk_count = tokens * p->num_qk_heads * d, v_count = tokens * p->num_v_heads * d;
    const int64_t biases = p->batch ? gen__kda_decode_gates(p) : 0;
    const int64_t heads = p->batch ? p->num_v_heads : 0, named = gen__kda_decode_named(p);
    const int64_t slots = named + KDA_DECODE_EXTRA_SLOTS;
    const double s_tolerance = p->state_dtype == GEN_STATE_FP32   ? state_tolerance
                               : p->state_dtype == GEN_STATE_FP16 ? fp16_state_tolerance
                                                                  : bf16_state_tolerance;
    const double o_tolerance = dtype == GEN_DTYPE_FP16 ? fp16_tolerance : bf16_tolerance;
    const struct gen__tensor list[KDA_DECODE_RING_K] = {
        {TENSOR(q, dtype, GEN__IN, GEN__FILL_NORMAL, 1.0, qk_count), .cold = true},
        {TENSOR(k, dtype, GEN__IN, GEN__FILL_NORMAL, 1.0, qk_count), .cold = true},
        {TENSOR(v, dtype, GEN__IN, GEN__FILL_NORMAL, 1.0, v_count), .cold = true},
        {TENSOR(g, gate_dtype, GEN__IN, GEN__FILL_NORMAL, 2.0, tokens * gen__kda_decode_gates(p)),
         .cold = true},
        {TENSOR(beta, beta_dtype, GEN__IN, GEN__FILL_NORMAL, 1.0, tokens * p->num_v_heads),
         .cold = true},
        {TENSOR(o, dtype, GEN__OUT, GEN__FILL_POISON, 0.0, v_count), .tolerance = o_tolerance,
         .rounded_once = true},
        {TENSOR(A_log, fp32, GEN__IN, GEN__FILL_NORMAL, 0.5, heads), .cold = true},
        {TENSOR(dt_bias, fp32, GEN__IN, GEN__FILL_NORMAL, 1.0, biases), .cold = true},
        {TENSOR(state, gen__state_element(p->state_dtype), GEN__INOUT, GEN__FILL_NORMAL, 0.3,
                slots * p->num_v_heads * d * d),
         .tolerance = s_tolerance, .cold = true},
        {TENSOR(slots, index, GEN__IN, GEN__FILL_SLOTS, (double)slots, named), .cold = true},
        {TENSOR(accepted, index, GEN__IN, GEN__FILL_FAMILY, 0,
                p->num_tokens > 1 && !p->ring_len ? p->batch : 0),
         .cold = true},
        {TENSOR(cu_seqlens, index, GEN__IN, GEN__FILL_FAMILY, 0, 0), .cold = true},
        {TENSOR(slots_out, index, GEN__IN, GEN__FILL_FAMILY, 0, 0), .cold = true},
    };
    memcpy(tensors, list, sizeof list);
    (void)gen__kda_decode_ring_tensors(p, tensors);
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
    a->num_slots = (int32_t)gen__kda_decode_named(p) + KDA_DECODE_EXTRA_SLOTS;
    a->write = p->num_tokens <= 1 ? GEN_KDA_DECODE_WRITE_LAST
               : p->ring_len      ? GEN_KDA_DECODE_WRITE_RECORDS
                                  : GEN_KDA_DECODE_WRITE_EACH;
    a->gate_form = GEN_KDA_GATE_SOFTPLUS;
    a->beta_form = GEN_KDA_BETA_SIGMOID;
    a->qk_l2norm = 1;
    a->scale = 1.0f / sqrtf((float)p->head_dim);
}

/* ---- what stands in them ----------------------------------------------- */

static int64_t columns_of(const gen_kda_decode_problem *p, const gen_kda_decode_args *a)
{
    const bool own = a->write == GEN_KDA_DECODE_WRITE_EACH && !a->slots_out;
    const int32_t packed = own ? p->num_tokens : 1;
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

/* The null slot is some row's. */
static void name_null_slot(const gen_kda_decode_problem *p, const gen_kda_decode_args *a,
                           int32_t *slots)
{
    const int64_t named = p->batch * columns_of(p, a);
    for (int64_t i = 0; i < named; i++)
        if (slots[i] == a->null_slot - 1)
            return;
    if (named)
        slots[named - 1] = a->null_slot - 1;
}

/* Marks the slots of a table that are in the pool and not null. */
static void mark_slots(const gen_kda_decode_args *a, const int32_t *slots, int64_t named,
                       uint8_t *used)
{
    for (int64_t i = 0; i < named; i++) {
        const int64_t slot = slots ? slots[i] : i;
        if (slot >= 0 && slot < a->num_slots && slot != a->null_slot - INT64_C(1))
            used[slot] = 1;
    }
}

/* Which slots rows are read from; NULL without memory. */
static uint8_t *read_slots(const gen_kda_decode_problem *p, const gen_kda_decode_args *a,
                           const int32_t *slots)
{
    uint8_t *used = calloc((size_t)a->num_slots, 1);
    if (used)
        mark_slots(a, slots, slots ? p->batch * columns_of(p, a) : p->batch, used);
    return used;
}

/* Slots that nothing is read from, from the last on; every fifth drops its state, and where each
 * row has one the third row's is the slot it came from. */
static bool fill_slots_out(const gen_kda_decode_problem *p, const gen_kda_decode_args *a,
                           const int32_t *slots, int32_t *slots_out)
{
    uint8_t *used = read_slots(p, a, slots);
    if (!used)
        return false;
    int32_t next = a->num_slots - 1;
    for (int64_t i = 0; i < p->batch * (int64_t)a->slots_out_stride; i++) {
        while (next >= 0 && used[next])
            next--;
        slots_out[i] = i % 5 == 4 ? -1 : next--;
    }
    if (slots && a->slots_out_stride == 1 && columns_of(p, a) == 1 && p->batch > 2)
        slots_out[2] = slots[2];
    free(used);
    return true;
}

/* NaN in the slots that are not read, finite numbers in the others. */
static bool poison_unused(const gen_kda_decode_problem *p, const gen_kda_decode_args *a,
                          const int32_t *slots, void *state)
{
    const int64_t width = (int64_t)p->num_v_heads * p->head_dim * p->head_dim;
    const int64_t stride = a->state_stride ? a->state_stride : width;
    uint8_t *used = read_slots(p, a, slots);
    if (!used)
        return false;
    for (int64_t slot = 0; slot < a->num_slots; slot++)
        for (int64_t i = slot * stride; i < slot * stride + width; i++)
            if (!used[slot])
                gen__state_put(p->state_dtype, state, i, (double)NAN);
            else if (!isfinite(gen__state_get(p->state_dtype, state, i)))
                gen__state_put(p->state_dtype, state, i, 0.25);
    free(used);
    return true;
}

/* NaN in the first head of every state that the first request's slots name. */
static void poison_first(const gen_kda_decode_problem *p, const gen_kda_decode_args *a,
                         const int32_t *slots, void *state)
{
    const int64_t head = (int64_t)p->head_dim * p->head_dim;
    const int64_t stride = a->state_stride ? a->state_stride : p->num_v_heads * head;
    const int64_t columns = slots ? columns_of(p, a) : 1;
    for (int64_t i = 0; i < columns && p->batch; i++) {
        const int64_t slot = slots ? slots[i] : 0;
        for (int64_t j = 0; j < head && slot >= 0 && slot < a->num_slots; j++)
            gen__state_put(p->state_dtype, state, slot * stride + j, (double)NAN);
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
    if (data[KDA_DECODE_SLOTS] && a->null_slot > 0)
        name_null_slot(p, a, data[KDA_DECODE_SLOTS]);
    if (data[KDA_DECODE_SLOTS_OUT] &&
        !fill_slots_out(p, a, data[KDA_DECODE_SLOTS], data[KDA_DECODE_SLOTS_OUT]))
        return gen__fail(GEN_STATUS_OUT_OF_MEMORY, "%s: no memory to mark %" PRId32 " slots",
                         gen__kda_decode_name(a->base.family), a->num_slots);
    gen__kda_decode_ring_fill(p, a, options, data);
    if (options->poisoned && data[KDA_DECODE_STATE])
        poison_first(p, a, data[KDA_DECODE_SLOTS], data[KDA_DECODE_STATE]);
    if (options->non_finite && data[KDA_DECODE_STATE] &&
        !poison_unused(p, a, data[KDA_DECODE_SLOTS], data[KDA_DECODE_STATE]))
        return gen__fail(GEN_STATUS_OUT_OF_MEMORY, "%s: no memory to mark %" PRId32 " slots",
                         gen__kda_decode_name(a->base.family), a->num_slots);
    return GEN_OK;
}
/* ---- inputs that hurt --------------------------------------------------- */

bool gen__kda_decode_data(const gen_problem *base, enum gen__data kind, const gen_args *args,
                          struct gen__tensor *t)
{
    const gen_kda_decode_problem *p = (const gen_kda_decode_problem *)base;
    (void)args;
    gen__data_queries(kind, &t[KDA_DECODE_Q], t[KDA_DECODE_K].dtype, p->head_dim);
    gen__data_keys(kind, &t[KDA_DECODE_K], p->head_dim);
    gen__data_values(kind, &t[KDA_DECODE_V], p->head_dim, false);
    gen__data_gates(kind, &t[KDA_DECODE_GATE], &t[KDA_DECODE_BETA]);
    gen__kda_decode_same_gates(t);
    return true;
}
