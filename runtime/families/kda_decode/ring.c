/*
 * The ring of records of kda_decode: what is allowed, the kernels' parameters, and what stands in
 * it for the tuner, the verifier and the tests.
 */
#include "families/common/arguments.h"
#include "families/kda/decode.h"
#include "reference/scatter.h"
#include "reference/state.h"

#include <inttypes.h>
#include <math.h>

static int64_t records_of(const int32_t *dims)
{
    return gen__kda_decode_ring_size(dims[KDA_DECODE_RING_LEN], dims[KDA_DECODE_RING_SIZE]);
}

/* Bytes of an element of each. */
static int64_t gate_bytes(const int32_t *dims)
{
    return dims[KDA_DECODE_GATE_DTYPE] == GEN_DTYPE_FP32 ? 4 : 2;
}

static int64_t u_bytes(const int32_t *dims)
{
    return dims[KDA_DECODE_RING_DTYPE] == GEN_STATE_FP32 ? 4 : 2;
}

/* ---- what is allowed --------------------------------------------------- */

static const char *name_of(const gen_kda_decode_args *a)
{
    return gen__kda_decode_name(a->base.family);
}

static enum gen_status not_with(const gen_kda_decode_args *a, const char *name, const void *pointer,
                                const char *with)
{
    return gen__fail(GEN_STATUS_INVALID_ARGUMENT, "%s: %s = %p with%s a ring; allowed: NULL",
                     name_of(a), name, pointer, with);
}

static enum gen_status check_stride(const gen_kda_decode_args *a, const char *name, int64_t stride,
                                    int64_t width, int64_t element)
{
    const int64_t granule = 16 / element, widest = (INT64_C(1) << 60) / a->num_slots;
    if (stride == 0 || (stride >= width && stride <= widest && stride % granule == 0))
        return GEN_OK;
    return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                     "%s: %s = %" PRId64 " elements; allowed: 0 (packed), or a multiple of %" PRId64
                     " from %" PRId64 " (one slot) to %" PRId64,
                     name_of(a), name, stride, granule, width, widest);
}

static enum gen_status check_strides(const int32_t *dims, const gen_kda_decode_args *a)
{
    const int64_t qk = gen__kda_decode_qk_width(dims) * records_of(dims);
    const int64_t v = gen__kda_decode_v_width(dims) * records_of(dims);
    const int64_t gates = gen__kda_decode_gate_width(dims, a->base.family) * records_of(dims);
    const bool scalar = gen__kda_decode_scalar(a->base.family); /* read one by one */
    enum gen_status status;
    if ((status = check_stride(a, "ring_k_stride", a->ring_k_stride, qk, 2)) != GEN_OK ||
        (status = check_stride(a, "ring_g_stride", a->ring_g_stride, gates,
                               scalar ? 16 : gate_bytes(dims))) != GEN_OK)
        return status;
    return check_stride(a, "ring_u_stride", a->ring_u_stride, v, u_bytes(dims));
}

/* Arguments that only a ring has. */
static enum gen_status check_none(const gen_kda_decode_args *a)
{
    const struct {
        const char *name;
        const void *pointer;
    } list[] = {{"ring_k", a->ring_k},       {"ring_g", a->ring_g},       {"ring_u", a->ring_u},
                {"ring_fill", a->ring_fill}, {"ring_base", a->ring_base}, {"flush", a->flush}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (list[i].pointer)
            return not_with(a, list[i].name, list[i].pointer, "out");
    return GEN_OK;
}

enum gen_status gen__kda_decode_check_ring(const int32_t *dims, const gen_kda_decode_args *a)
{
    if (!dims[KDA_DECODE_RING_LEN])
        return check_none(a);
    const struct {
        const char *name;
        const void *pointer;
        uintptr_t alignment;
    } list[] = {{"ring_k", a->ring_k, 16},
                {"ring_g", a->ring_g, 16},
                {"ring_u", a->ring_u, 16},
                {"ring_fill", a->ring_fill, 4},
                {"ring_base", a->ring_base, 4}};
    enum gen_status status = GEN_OK;
    for (size_t i = 0; !status && i < sizeof list / sizeof *list; i++)
        status =
            gen__check_pointer(name_of(a), list[i].name, list[i].pointer, list[i].alignment, false);
    if (status)
        return status;
    if (a->slots_out)
        return not_with(a, "slots_out", a->slots_out, "");
    if (a->accepted)
        return not_with(a, "accepted", a->accepted, "");
    const bool several = dims[KDA_DECODE_TOKENS] > 1;
    if (a->write != (several ? GEN_KDA_DECODE_WRITE_RECORDS : GEN_KDA_DECODE_WRITE_LAST))
        return gen__fail(
            GEN_STATUS_INVALID_ARGUMENT, "%s: write = %" PRId32 " with a ring%s; allowed: %s",
            name_of(a), a->write, several ? " and several tokens" : "",
            several ? "GEN_KDA_DECODE_WRITE_RECORDS (3)" : "GEN_KDA_DECODE_WRITE_LAST (0)");
    return check_strides(dims, a);
}

/* ---- what the kernels get ---------------------------------------------- */

void gen__kda_decode_ring_params(const int32_t *dims, const gen_kda_decode_args *a,
                                 struct gen_kda_decode_replay_params *k)
{
    const struct gen__kda_decode_strides strides = gen__kda_decode_strides(dims, a);
    k->ring_k = a->ring_k;
    k->ring_g = a->ring_g;
    k->ring_u = a->ring_u;
    k->ring_fill = a->ring_fill;
    k->ring_base = a->ring_base;
    k->flush = a->flush;
    k->ring_k_stride = strides.ring_k;
    k->ring_g_stride = strides.ring_g;
    k->ring_u_stride = strides.ring_u;
    k->ring_size = (int)records_of(dims);
    k->ring_len = dims[KDA_DECODE_RING_LEN];
    k->ring_fp16 = dims[KDA_DECODE_RING_DTYPE] == GEN_STATE_FP16;
    k->buffers = k->places = k->active = k->ahead = k->pad_of_ring = 0;
}

uint32_t gen__kda_decode_ring_extents(const int32_t *dims, const gen_kda_decode_args *a,
                                      struct gen__extent *list)
{
    if (!dims[KDA_DECODE_RING_LEN])
        return 0;
    const int64_t qk = gen__kda_decode_qk_width(dims) * records_of(dims);
    const int64_t v = gen__kda_decode_v_width(dims) * records_of(dims);
    const int64_t gate = gate_bytes(dims), u = u_bytes(dims);
    gen__writes_rows(&list[0], "ring_k", a->ring_k, qk * 2, a->num_slots,
                     gen__stride_bytes(a->ring_k_stride, 2));
    const int64_t gates = gen__kda_decode_gate_width(dims, a->base.family) * records_of(dims);
    gen__writes_rows(&list[1], "ring_g", a->ring_g, gates * gate, a->num_slots,
                     gen__stride_bytes(a->ring_g_stride, gate));
    gen__writes_rows(&list[2], "ring_u", a->ring_u, v * u, a->num_slots,
                     gen__stride_bytes(a->ring_u_stride, u));
    gen__reads(&list[3], "ring_fill", a->ring_fill, a->num_slots * INT64_C(4));
    gen__reads(&list[4], "ring_base", a->ring_base, a->num_slots * INT64_C(4));
    gen__reads(&list[5], "flush", a->flush, dims[KDA_DECODE_BATCH]);
    return 6;
}

/* ---- tensors ----------------------------------------------------------- */

/* Keys are rounded once they are normalised, and where fp32 and double fall on two sides of a tie,
 * an element of k is a unit in the last place off: of a head's 128 perhaps one in a hundred
 * launches. Of the state that is 1e-4 at most, of u (and its own rounding to fp16) 2^-11. */
static const double ring_tolerance = 0x1p-10;
static const double ring_state_tolerance = 0x1p-12;

#define TENSOR(...) GEN__TENSOR(gen_kda_decode_args, __VA_ARGS__)

/* Those of the ring, from KDA_DECODE_RING_K on; their number. */
uint32_t gen__kda_decode_ring_tensors(const gen_kda_decode_problem *p, struct gen__tensor *tensors)
{
    const int64_t slots = p->ring_len ? gen__kda_decode_named(p) + KDA_DECODE_EXTRA_SLOTS : 0;
    const int64_t row = (int64_t)gen__kda_decode_ring_size(p->ring_len, p->ring_size) * p->head_dim;
    const enum gen_dtype index = GEN_DTYPE_INT32, gate = (enum gen_dtype)p->gate_dtype;
    const enum gen_dtype u = gen__state_element(p->ring_dtype), dtype = (enum gen_dtype)p->dtype;
    const struct gen__tensor list[] = {
        {TENSOR(ring_k, dtype, GEN__INOUT, GEN__FILL_NORMAL, 1 / sqrt(p->head_dim),
                slots * p->num_qk_heads * row),
         .tolerance = ring_tolerance, .cold = true},
        {TENSOR(ring_g, gate, GEN__INOUT, GEN__FILL_NORMAL, 2.0,
                slots * gen__kda_decode_gates(p) * (row / p->head_dim)),
         .tolerance = 1e-12, .cold = true},
        {TENSOR(ring_u, u, GEN__INOUT, GEN__FILL_NORMAL, 0.5, slots * p->num_v_heads * row),
         .tolerance = ring_tolerance, .cold = true},
        {TENSOR(ring_fill, index, GEN__IN, GEN__FILL_FAMILY, 0, slots), .cold = true},
        {TENSOR(ring_base, index, GEN__IN, GEN__FILL_FAMILY, 0, slots), .cold = true},
        {TENSOR(flush, GEN_DTYPE_E4M3, GEN__IN, GEN__FILL_FAMILY, 0, 0), .cold = true}, /* bytes */
    };
    for (uint32_t i = 0; i < sizeof list / sizeof *list; i++)
        tensors[KDA_DECODE_RING_K + i] = list[i];
    if (p->ring_len) {
        tensors[KDA_DECODE_O].rounded_once = false;
        tensors[KDA_DECODE_STATE].tolerance =
            fmax(tensors[KDA_DECODE_STATE].tolerance, ring_state_tolerance);
    }
    return sizeof list / sizeof *list;
}

#undef TENSOR

/* ---- what stands in them ----------------------------------------------- */

/* Slots at every place of the cycle, as when requests came one after another: each launch folds one
 * state in ring_len. With padding some counters are out of their range. */
static void fill_counters(const gen_kda_decode_problem *p, const gen_kda_decode_args *a,
                          const struct gen__fill_options *options, int32_t *fill, int32_t *base)
{
    const int32_t size = gen__kda_decode_ring_size(p->ring_len, p->ring_size);
    const int32_t most = p->num_tokens > 1 ? size - p->num_tokens : size;
    const int32_t bad[] = {-1, most + 1, INT32_MIN, INT32_MAX};
    for (int32_t slot = 0; slot < a->num_slots; slot++) {
        fill[slot] = slot % (p->num_tokens > 1 ? most + 1 : p->ring_len);
        base[slot] = (int32_t)(gen__scatter(options->seed + 2, slot) * size);
        if (options->padding && slot % 9 == 4)
            fill[slot] = bad[slot / 9 % 4];
        if (options->padding && slot % 9 == 7)
            base[slot] = slot % 2 ? size : -1;
    }
}

static void put_nan(enum gen_dtype dtype, void *data, int64_t first, int64_t count)
{
    for (int64_t i = first; i < first + count; i++)
        if (dtype == GEN_DTYPE_FP32)
            ((float *)data)[i] = NAN;
        else
            ((uint16_t *)data)[i] = dtype == GEN_DTYPE_FP16 ? 0x7e00 : 0x7fc0;
}

/* A record has finite numbers. */
static void put_finite(enum gen_dtype dtype, void *data, int64_t first, int64_t count)
{
    for (int64_t i = first; i < first + count; i++)
        if (dtype == GEN_DTYPE_FP32 && !isfinite(((float *)data)[i]))
            ((float *)data)[i] = 0.25f;
        else if (dtype == GEN_DTYPE_FP16 && !isfinite(gen__fp16_to_double(((uint16_t *)data)[i])))
            ((uint16_t *)data)[i] = 0x3400;
        else if (dtype == GEN_DTYPE_BF16 && !isfinite(gen__bf16_to_double(((uint16_t *)data)[i])))
            ((uint16_t *)data)[i] = 0x3e80;
}

/* NaN in what is no record. */
static void poison_ring(const gen_kda_decode_problem *p, const gen_kda_decode_args *a,
                        const struct gen__tensor *tensor, int64_t heads, int64_t d, int64_t stride,
                        void *data, const int32_t *fill, const int32_t *base)
{
    const int32_t size = gen__kda_decode_ring_size(p->ring_len, p->ring_size);
    const int64_t width = heads * size * d;
    for (int32_t slot = 0; slot < a->num_slots; slot++)
        for (int64_t row = 0; row < heads * size; row++) {
            const int64_t at = slot * (stride ? stride : width) + row * d;
            if ((row % size - base[slot] + size) % size >= fill[slot])
                put_nan(tensor->dtype, data, at, d);
            else
                put_finite(tensor->dtype, data, at, d);
        }
}

void gen__kda_decode_ring_fill(const gen_kda_decode_problem *p, const gen_kda_decode_args *a,
                               const struct gen__fill_options *options, void *const *data)
{
    int32_t *const fill = data[KDA_DECODE_RING_FILL], *const base = data[KDA_DECODE_RING_BASE];
    uint8_t *const flush = data[KDA_DECODE_FLUSH];
    const int64_t d = p->head_dim;
    struct gen__tensor t[GEN__MAX_TENSORS];
    if (fill && base)
        fill_counters(p, a, options, fill, base);
    for (int64_t b = 0; flush && b < p->batch; b++)
        flush[b] = b % 3 == 1;
    if (!options->non_finite || !fill || !base)
        return;
    gen__kda_decode_ring_tensors(p, t);
    if (data[KDA_DECODE_RING_K])
        poison_ring(p, a, &t[KDA_DECODE_RING_K], p->num_qk_heads, d, a->ring_k_stride,
                    data[KDA_DECODE_RING_K], fill, base);
    if (data[KDA_DECODE_RING_G])
        poison_ring(p, a, &t[KDA_DECODE_RING_G], p->num_v_heads,
                    gen__kda_decode_gates(p) / p->num_v_heads, a->ring_g_stride,
                    data[KDA_DECODE_RING_G], fill, base);
    if (data[KDA_DECODE_RING_U])
        poison_ring(p, a, &t[KDA_DECODE_RING_U], p->num_v_heads, d, a->ring_u_stride,
                    data[KDA_DECODE_RING_U], fill, base);
}
