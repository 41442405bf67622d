/*
 * The arguments of la_decode: what is allowed, what is read and written, and the
 * parameters that the kernels get.
 */
#include "families/la_decode/la_decode.h"

#include "families/common/fastdiv.h"
#include "families/common/arguments.h"

#include <inttypes.h>
#include <math.h>

static enum gen_status check_stride(const char *name, int64_t stride, int64_t width, int64_t max)
{
    if (stride == 0 || (stride >= width && stride <= max && stride % 8 == 0))
        return GEN_OK;
    return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                     "la_decode: %s = %" PRId64
                     " elements; allowed: 0 (packed), or a multiple of 8 from %" PRId64
                     " (one row) to %" PRId64,
                     name, stride, width, max);
}

static enum gen_status check_pointers(const gen_la_decode_args *a)
{
    const char *const family = "la_decode";
    enum gen_status status;
    if ((status = gen__check_pointer(family, "q", a->q, 16, false)) != GEN_OK ||
        (status = gen__check_pointer(family, "k", a->k, 16, false)) != GEN_OK ||
        (status = gen__check_pointer(family, "v", a->v, 16, false)) != GEN_OK ||
        (status = gen__check_pointer(family, "o", a->o, 16, false)) != GEN_OK ||
        (status = gen__check_pointer(family, "decay", a->decay, 4, false)) != GEN_OK ||
        (status = gen__check_pointer(family, "state", a->state, 16, false)) != GEN_OK ||
        (status = gen__check_pointer(family, "slots_out", a->slots_out, 4, true)) != GEN_OK)
        return status;
    return gen__check_pointer(family, "slots", a->slots, 4, true);
}

static int64_t qk_width(const int32_t *dims)
{
    return (int64_t)dims[LA_DECODE_QK_HEADS] * dims[LA_DECODE_HEAD_DIM];
}

static int64_t v_width(const int32_t *dims)
{
    return (int64_t)dims[LA_DECODE_V_HEADS] * dims[LA_DECODE_HEAD_DIM];
}

static enum gen_status check_strides(const int32_t *dims, const gen_la_decode_args *a)
{
    const int64_t qk = qk_width(dims), v = v_width(dims);
    /* rows * stride * 2 bytes stay below 2^63. */
    const int64_t max =
        (INT64_C(1) << 62) >> (32 - __builtin_clz((uint32_t)dims[LA_DECODE_BATCH] | 1));
    enum gen_status status;
    if ((status = check_stride("q_stride", a->q_stride, qk, max)) != GEN_OK ||
        (status = check_stride("k_stride", a->k_stride, qk, max)) != GEN_OK ||
        (status = check_stride("v_stride", a->v_stride, v, max)) != GEN_OK)
        return status;
    return check_stride("o_stride", a->o_stride, v, max);
}

/* What the kernels of a packed pool do not know. */
static enum gen_status check_plain(const int32_t *dims, const gen_la_decode_args *a)
{
    const char *const name = a->state_stride ? "state_stride"
                             : a->null_slot  ? "null_slot"
                             : a->slots_out  ? "slots_out"
                                             : NULL;
    if (!name || dims[LA_DECODE_POOL] || dims[LA_DECODE_STATE_DTYPE] != GEN_STATE_FP32)
        return GEN_OK;
    return gen__fail(
        GEN_STATUS_INVALID_ARGUMENT,
        "la_decode: %s without a pool; allowed: 0 or NULL, or pool = 1 in the problem, "
        "or states of 16 bits",
        name);
}

static int64_t slot_width(const int32_t *dims)
{
    return v_width(dims) * dims[LA_DECODE_HEAD_DIM];
}

/* slots * stride * 4 bytes stay below 2^63. */
static enum gen_status check_state_stride(const int32_t *dims, const gen_la_decode_args *a)
{
    const int64_t granule = 16 / gen__la_decode_state_bytes(dims[LA_DECODE_STATE_DTYPE]);
    const int64_t packed = slot_width(dims), widest = (INT64_C(1) << 60) / a->num_slots;
    if (a->state_stride == 0 ||
        (a->state_stride >= packed && a->state_stride <= widest && a->state_stride % granule == 0))
        return GEN_OK;
    return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                     "la_decode: state_stride = %" PRId64
                     " elements; allowed: 0 (packed), or a multiple of %" PRId64 " from %" PRId64
                     " (one slot) to %" PRId64,
                     a->state_stride, granule, packed, widest);
}

static enum gen_status check_pool(const int32_t *dims, const gen_la_decode_args *a)
{
    enum gen_status status = check_plain(dims, a);
    if (status)
        return status;
    /* slots * heads * head_dim^2 * 4 bytes stay below 2^63, and the most that
     * head_dim^2 * 4 can be is 2^18. */
    const int64_t addressable =
        (INT64_C(1) << 45) >> (32 - __builtin_clz((uint32_t)dims[LA_DECODE_V_HEADS]));
    const int64_t max = addressable < INT32_MAX ? addressable : INT32_MAX;
    if (a->num_slots < 1 || a->num_slots > max)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "la_decode: num_slots = %" PRId32 "; allowed: 1 to %" PRId64, a->num_slots,
                         max);
    if ((status = check_state_stride(dims, a)) != GEN_OK)
        return status;
    if (a->null_slot < 0)
        return gen__invalid("la_decode", "null_slot", a->null_slot, "0 (none), or 1 + a slot");
    if (!a->slots && a->num_slots < dims[LA_DECODE_BATCH])
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "la_decode: num_slots = %" PRId32
                         " without slots; allowed: >= batch = %" PRId32,
                         a->num_slots, dims[LA_DECODE_BATCH]);
    return GEN_OK;
}

static enum gen_status check_scalars(const int32_t *dims, const gen_la_decode_args *a)
{
    if (a->num_decays != dims[LA_DECODE_QK_HEADS] && a->num_decays != dims[LA_DECODE_V_HEADS])
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "la_decode: num_decays = %" PRId32
                         "; allowed: one of the head counts num_qk_heads = %" PRId32
                         ", num_v_heads = %" PRId32,
                         a->num_decays, dims[LA_DECODE_QK_HEADS], dims[LA_DECODE_V_HEADS]);
    if (!isfinite(a->scale))
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "la_decode: scale = %g; allowed: a finite number", (double)a->scale);
    if (a->zero_padding != 0 && a->zero_padding != 1)
        return gen__invalid("la_decode", "zero_padding", a->zero_padding, "0, 1");
    return GEN_OK;
}

/* What is divided by below, in case the plan was not kept well: the group is a divisor, too. */
static enum gen_status check_dims(const int32_t *dims)
{
    if (dims[LA_DECODE_BATCH] >= 0 && dims[LA_DECODE_QK_HEADS] > 0 &&
        dims[LA_DECODE_V_HEADS] >= dims[LA_DECODE_QK_HEADS])
        return GEN_OK;
    return gen__fail(GEN_STATUS_MISMATCH,
                     "la_decode: the plan's batch, num_qk_heads, num_v_heads are %" PRId32
                     ", %" PRId32 ", %" PRId32 "; not what gen_select() writes",
                     dims[LA_DECODE_BATCH], dims[LA_DECODE_QK_HEADS], dims[LA_DECODE_V_HEADS]);
}

uint32_t gen__la_decode_extents(const int32_t *dims, const gen_args *base,
                                struct gen__extent list[GEN__MAX_EXTENTS])
{
    const gen_la_decode_args *a = (const gen_la_decode_args *)base;
    const int64_t rows = dims[LA_DECODE_BATCH], qk = qk_width(dims) * 2, v = v_width(dims) * 2;
    const int64_t element = gen__la_decode_state_bytes(dims[LA_DECODE_STATE_DTYPE]);
    gen__reads_rows(&list[0], "q", a->q, qk, rows, gen__stride_bytes(a->q_stride, 2));
    gen__reads_rows(&list[1], "k", a->k, qk, rows, gen__stride_bytes(a->k_stride, 2));
    gen__reads_rows(&list[2], "v", a->v, v, rows, gen__stride_bytes(a->v_stride, 2));
    gen__writes_rows(&list[3], "o", a->o, v, rows, gen__stride_bytes(a->o_stride, 2));
    gen__reads(&list[4], "decay", a->decay, a->num_decays * INT64_C(4));
    gen__writes_rows(&list[5], "state", a->state, slot_width(dims) * element, a->num_slots,
                     gen__stride_bytes(a->state_stride, element));
    gen__reads(&list[6], "slots", a->slots, rows * 4);
    gen__reads(&list[7], "slots_out", a->slots_out, rows * 4);
    return 8;
}

enum gen_status gen__la_decode_params(const gen_plan *plan, uint32_t launch, const gen_args *base,
                                      void *workspace, void *out)
{
    (void)launch;
    (void)workspace;
    const gen_la_decode_args *a = (const gen_la_decode_args *)base;
    const int32_t *dims = plan->dims;
    enum gen_status status;
    if ((status = check_dims(dims)) != GEN_OK || (status = check_pointers(a)) != GEN_OK ||
        (status = check_strides(dims, a)) != GEN_OK || (status = check_pool(dims, a)) != GEN_OK ||
        (status = check_scalars(dims, a)) != GEN_OK || !out)
        return status;

    const int64_t qk = qk_width(dims), v = v_width(dims);
    const uint32_t qk_heads = (uint32_t)dims[LA_DECODE_QK_HEADS];
    const uint32_t v_heads = (uint32_t)dims[LA_DECODE_V_HEADS];
    const struct gen__fastdiv one = {0, 0}, heads = gen__fastdiv(v_heads);
    const struct gen__fastdiv group = v_heads == qk_heads ? one : gen__fastdiv(v_heads / qk_heads);
    const struct gen__fastdiv decay = a->num_decays == dims[LA_DECODE_V_HEADS] ? one : group;

    struct gen_la_decode_pool_params *k = out; /* other kernels take the first part alone */
    k->decode = (struct gen_la_decode_params){
        .q = a->q,
        .k = a->k,
        .v = a->v,
        .o = a->o,
        .decay = a->decay,
        .state = a->state,
        .slots = a->slots,
        .q_stride = a->q_stride ? a->q_stride : qk,
        .k_stride = a->k_stride ? a->k_stride : qk,
        .v_stride = a->v_stride ? a->v_stride : v,
        .o_stride = a->o_stride ? a->o_stride : v,
        .num_states = (unsigned)dims[LA_DECODE_BATCH] * v_heads,
        .num_v_heads = v_heads,
        .heads_mul = heads.mul,
        .heads_shift = heads.shift,
        .group_mul = group.mul,
        .group_shift = group.shift,
        .decay_mul = decay.mul,
        .decay_shift = decay.shift,
        .num_slots = (unsigned)a->num_slots,
        .zero_padding = a->zero_padding,
        .scale = a->scale,
    };
    k->slots_out = a->slots_out;
    k->state_stride = a->state_stride ? a->state_stride : slot_width(dims);
    k->null_slot = a->null_slot - 1;
    k->state_fp16 = dims[LA_DECODE_STATE_DTYPE] == GEN_STATE_FP16;
    return GEN_OK;
}
