/*
 * Lightning Attention decode in plain C: what the kernels are compared with,
 * what the maths is, and the backend where there is no GPU.
 *
 * For every row b and value head hv, with qh = hv / (num_v_heads / num_qk_heads):
 *
 *     lam    = exp(-decay[head])
 *     h[k,v] = lam * h[k,v] + k[b,qh,k] * v[b,hv,v]
 *     o[v]   = sum over k of scale * q[b,qh,k] * h[k,v]
 *
 * Everything between load and store is double, so each result is rounded once:
 * the state to its type, the output to the type of q, k and v.
 */
#include "families/la_decode/la_decode.h"
#include "reference/half.h"
#include "reference/state.h"

#include <math.h>
#include <string.h>

#define MAX_HEAD_DIM 256

/* The shape of one call, with packed strides spelled out. */
struct shape {
    int64_t batch, num_qk_heads, num_v_heads, head_dim;
    int64_t q_stride, k_stride, v_stride, o_stride, state_stride; /* elements */
    int32_t state_dtype;
    bool fp16, vk;
};

static struct shape shape_of(const gen_plan *plan, const gen_la_decode_args *args)
{
    struct shape s = {
        .batch = plan->dims[LA_DECODE_BATCH],
        .num_qk_heads = plan->dims[LA_DECODE_QK_HEADS],
        .num_v_heads = plan->dims[LA_DECODE_V_HEADS],
        .head_dim = plan->dims[LA_DECODE_HEAD_DIM],
        .fp16 = plan->dims[LA_DECODE_DTYPE] == GEN_DTYPE_FP16,
        .state_dtype = plan->dims[LA_DECODE_STATE_DTYPE],
        .vk = plan->dims[LA_DECODE_LAYOUT] == GEN_LA_STATE_VK,
    };
    s.q_stride = args->q_stride ? args->q_stride : s.num_qk_heads * s.head_dim;
    s.k_stride = args->k_stride ? args->k_stride : s.num_qk_heads * s.head_dim;
    s.v_stride = args->v_stride ? args->v_stride : s.num_v_heads * s.head_dim;
    s.o_stride = args->o_stride ? args->o_stride : s.num_v_heads * s.head_dim;
    s.state_stride =
        args->state_stride ? args->state_stride : s.num_v_heads * s.head_dim * s.head_dim;
    return s;
}

static bool in_pool(const gen_la_decode_args *args, int64_t slot)
{
    return slot >= 0 && slot < args->num_slots && slot != args->null_slot - INT64_C(1);
}

/* `count` elements from `offset` on. */
static void load(bool fp16, const void *tensor, int64_t offset, int64_t count, double *x)
{
    const uint16_t *codes = (const uint16_t *)tensor + offset;
    for (int64_t i = 0; i < count; i++)
        x[i] = fp16 ? gen__fp16_to_double(codes[i]) : gen__bf16_to_double(codes[i]);
}

static void store(bool fp16, const double *x, int64_t count, void *tensor, int64_t offset)
{
    uint16_t *codes = (uint16_t *)tensor + offset;
    for (int64_t i = 0; i < count; i++)
        codes[i] = fp16 ? gen__fp16_from_double(x[i]) : gen__bf16_from_double(x[i]);
}

/* Reads one head_dim x head_dim state from element `from` on, writes the new one from `to` on, if
 * that is not negative, and adds up o. The state is walked in memory order: a row of the matrix is
 * one v in layout VK, one k in layout KV. `q` is scaled. */
static void step(const struct shape *s, void *state, int64_t from, int64_t to, double lam,
                 const double *q, const double *k, const double *v, double *o)
{
    const int64_t d = s->head_dim;
    for (int64_t i = 0; i < d; i++)
        o[i] = 0.0;
    for (int64_t i = 0; i < d * d; i++) {
        const int64_t row = i / d, column = i % d;
        const int64_t ik = s->vk ? column : row;
        const int64_t iv = s->vk ? row : column;
        const double h_new = lam * gen__state_get(s->state_dtype, state, from + i) + k[ik] * v[iv];
        o[iv] += q[ik] * h_new;
        if (to >= 0)
            gen__state_put(s->state_dtype, state, to + i, h_new);
    }
}

static void zero_row(const struct shape *s, const gen_la_decode_args *args, double *exact,
                     int64_t b)
{
    const int64_t first = b * s->o_stride;
    for (int64_t i = first; i < first + s->num_v_heads * s->head_dim; i++) {
        ((uint16_t *)args->o)[i] = 0;
        if (exact)
            exact[i] = 0.0;
    }
}

static void decode_row(const struct shape *s, const gen_la_decode_args *args, double *exact,
                       int64_t b, int64_t slot, int64_t slot_out)
{
    const int64_t d = s->head_dim;
    const int64_t heads_per_qk = s->num_v_heads / s->num_qk_heads;
    const int64_t heads_per_decay = s->num_v_heads / args->num_decays;
    double q[MAX_HEAD_DIM], k[MAX_HEAD_DIM], v[MAX_HEAD_DIM], o[MAX_HEAD_DIM];

    for (int64_t hv = 0; hv < s->num_v_heads; hv++) {
        const int64_t qh = hv / heads_per_qk;
        load(s->fp16, args->q, b * s->q_stride + qh * d, d, q);
        load(s->fp16, args->k, b * s->k_stride + qh * d, d, k);
        load(s->fp16, args->v, b * s->v_stride + hv * d, d, v);
        for (int64_t i = 0; i < d; i++)
            q[i] *= (double)args->scale;

        const double lam = exp(-(double)args->decay[hv / heads_per_decay]);
        const int64_t from = slot * s->state_stride + hv * d * d;
        const int64_t to = in_pool(args, slot_out) ? slot_out * s->state_stride + hv * d * d : -1;
        step(s, args->state, from, to, lam, q, k, v, o);
        const int64_t at = b * s->o_stride + hv * d;
        store(s->fp16, o, d, args->o, at);
        if (exact)
            memcpy(exact + at, o, (size_t)d * sizeof *o);
    }
}

enum gen_status gen__la_decode_exact(const gen_plan *plan, const gen_args *base,
                                     double *const *exact)
{
    const gen_la_decode_args *args = (const gen_la_decode_args *)base;
    const struct shape s = shape_of(plan, args);

    for (int64_t b = 0; b < s.batch; b++) {
        const int64_t slot = args->slots ? args->slots[b] : b;
        if (in_pool(args, slot))
            decode_row(&s, args, exact[LA_DECODE_O], b, slot,
                       args->slots_out ? args->slots_out[b] : slot);
        else if (args->zero_padding)
            zero_row(&s, args, exact[LA_DECODE_O], b);
    }
    return GEN_OK;
}

enum gen_status gen__la_decode_reference(const gen_plan *plan, const gen_args *base)
{
    double *const none[LA_DECODE_NUM_TENSORS] = {NULL};
    return gen__la_decode_exact(plan, base, none);
}
