/*
 * The arguments of kda_decode: what is allowed, and the parameters that the
 * kernels get.
 */
#include "families/common/arguments.h"
#include "families/kda/decode.h"

#include "families/common/fastdiv.h"

#include <inttypes.h>
#include <math.h>

/* Columns of a slot table: far beyond any draft. */
#define MAX_COLUMNS 65536

static const char *family_of(const gen_kda_decode_args *a)
{
    return gen__kda_decode_name(a->base.family);
}

static enum gen_status invalid(const gen_kda_decode_args *a, const char *name, int64_t value,
                               const char *allowed)
{
    return gen__invalid(family_of(a), name, value, allowed);
}

/* What is divided by below, in case the plan was not kept well: the group is a divisor, too. */
static enum gen_status check_dims(const int32_t *dims, const gen_kda_decode_args *a)
{
    if (dims[KDA_DECODE_BATCH] >= 0 && dims[KDA_DECODE_QK_HEADS] > 0 &&
        dims[KDA_DECODE_V_HEADS] >= dims[KDA_DECODE_QK_HEADS] &&
        dims[KDA_DECODE_TOKENS] >= (dims[KDA_DECODE_RING_LEN] == 0) &&
        dims[KDA_DECODE_TOKENS] <= GEN_KDA_DECODE_MAX_TOKENS)
        return GEN_OK;
    return gen__fail(GEN_STATUS_MISMATCH,
                     "%s: the plan's batch, num_tokens, num_qk_heads, num_v_heads are "
                     "%" PRId32 ", %" PRId32 ", %" PRId32 ", %" PRId32
                     "; not what gen_select() writes",
                     family_of(a), dims[KDA_DECODE_BATCH], dims[KDA_DECODE_TOKENS],
                     dims[KDA_DECODE_QK_HEADS], dims[KDA_DECODE_V_HEADS]);
}

/* ---- pointers ---------------------------------------------------------- */

static enum gen_status check_pointers(const int32_t *dims, const gen_kda_decode_args *a)
{
    const bool scalar = gen__kda_decode_scalar(a->base.family);
    const uintptr_t gate = dims[KDA_DECODE_GATE_DTYPE] == GEN_DTYPE_FP32 ? 4 : 2;
    const bool fold = dims[KDA_DECODE_TOKENS] == 0; /* the records alone */
    const struct {
        const char *name;
        const void *pointer;
        uintptr_t alignment;
        bool optional;
    } list[] = {
        {"q", a->q, 16, fold},
        {"k", a->k, 16, fold},
        {"v", a->v, 16, fold},
        {"g", a->g, scalar ? gate : 16, fold},
        {"beta", a->beta, dims[KDA_DECODE_BETA_DTYPE] == GEN_DTYPE_FP32 ? 4 : 2, fold},
        {"o", a->o, 16, fold},
        {"A_log", a->A_log, 4, true},
        {"dt_bias", a->dt_bias, scalar ? 4 : 16, true},
        {"state", a->state, 16, false},
        {"slots", a->slots, 4, true},
        {"slots_out", a->slots_out, 4, true},
        {"accepted", a->accepted, 4, true},
        {"cu_seqlens", a->cu_seqlens, 4, true},
    };
    enum gen_status status = GEN_OK;
    for (size_t i = 0; !status && i < sizeof list / sizeof *list; i++)
        status = gen__check_pointer(family_of(a), list[i].name, list[i].pointer, list[i].alignment,
                                    list[i].optional);
    return status;
}

/* ---- tokens and their strides ------------------------------------------ */

static enum gen_status check_total(const int32_t *dims, const gen_kda_decode_args *a)
{
    if (a->cu_seqlens && a->total_tokens < 0)
        return invalid(a, "total_tokens", a->total_tokens, ">= 0");
    if (!a->cu_seqlens && a->total_tokens != 0 &&
        a->total_tokens != (int64_t)dims[KDA_DECODE_BATCH] * dims[KDA_DECODE_TOKENS])
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "%s: total_tokens = %" PRId32
                         " without cu_seqlens; allowed: 0, or batch * num_tokens = %" PRId64,
                         family_of(a), a->total_tokens,
                         (int64_t)dims[KDA_DECODE_BATCH] * dims[KDA_DECODE_TOKENS]);
    return GEN_OK;
}

static enum gen_status check_stride(const gen_kda_decode_args *a, const char *name, int64_t stride,
                                    int64_t width, int64_t max)
{
    if (stride == 0 || (stride >= width && stride <= max && stride % 8 == 0))
        return GEN_OK;
    return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                     "%s: %s = %" PRId64
                     " elements; allowed: 0 (packed), or a multiple of 8 from %" PRId64
                     " (one token) to %" PRId64,
                     family_of(a), name, stride, width, max);
}

/* Of a number a head: any, as beta's. */
static enum gen_status check_head_stride(const int32_t *dims, const gen_kda_decode_args *a,
                                         const char *name, int64_t stride, int64_t max)
{
    if (stride == 0 || (stride >= dims[KDA_DECODE_V_HEADS] && stride <= max))
        return GEN_OK;
    return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                     "%s: %s = %" PRId64 " elements; allowed: 0 (packed), or %" PRId32
                     " (one token) to %" PRId64,
                     family_of(a), name, stride, dims[KDA_DECODE_V_HEADS], max);
}

static enum gen_status check_gate_stride(const int32_t *dims, const gen_kda_decode_args *a,
                                         int64_t max)
{
    if (gen__kda_decode_scalar(a->base.family))
        return check_head_stride(dims, a, "g_stride", a->g_stride, max);
    return check_stride(a, "g_stride", a->g_stride, gen__kda_decode_v_width(dims), max);
}

static enum gen_status check_strides(const int32_t *dims, const gen_kda_decode_args *a)
{
    const int64_t qk = gen__kda_decode_qk_width(dims), v = gen__kda_decode_v_width(dims);
    /* tokens * stride * 4 bytes stay below 2^63. */
    const int64_t packed = (int64_t)dims[KDA_DECODE_BATCH] * dims[KDA_DECODE_TOKENS];
    const int64_t tokens = a->cu_seqlens ? a->total_tokens : packed;
    const int64_t max = (INT64_C(1) << 61) >> (64 - __builtin_clzll((uint64_t)tokens | 1));
    enum gen_status status;
    if ((status = check_stride(a, "q_stride", a->q_stride, qk, max)) != GEN_OK ||
        (status = check_stride(a, "k_stride", a->k_stride, qk, max)) != GEN_OK ||
        (status = check_stride(a, "v_stride", a->v_stride, v, max)) != GEN_OK ||
        (status = check_gate_stride(dims, a, max)) != GEN_OK ||
        (status = check_stride(a, "o_stride", a->o_stride, v, max)) != GEN_OK)
        return status;
    return check_head_stride(dims, a, "beta_stride", a->beta_stride, max);
}

/* ---- the pool ---------------------------------------------------------- */

static enum gen_status check_table_out(const gen_kda_decode_args *a, int32_t least)
{
    if (!a->slots_out && a->slots_out_stride != 0)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "%s: slots_out_stride = %" PRId32 " without slots_out; allowed: 0",
                         family_of(a), a->slots_out_stride);
    if (a->slots_out_stride == 0 ||
        (a->slots_out_stride >= least && a->slots_out_stride <= MAX_COLUMNS))
        return GEN_OK;
    return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                     "%s: slots_out_stride = %" PRId32 "; allowed: 0 (packed), or %" PRId32
                     " to %d",
                     family_of(a), a->slots_out_stride, least, MAX_COLUMNS);
}

static enum gen_status check_table(const int32_t *dims, const gen_kda_decode_args *a)
{
    const int32_t tokens = dims[KDA_DECODE_TOKENS];
    const bool each = a->write == GEN_KDA_DECODE_WRITE_EACH;
    const int32_t least_out = each ? tokens : 1, least = a->slots_out ? 1 : least_out;
    const enum gen_status status = check_table_out(a, least_out);
    if (status)
        return status;
    if (a->slots) {
        if (a->slots_stride == 0 || (a->slots_stride >= least && a->slots_stride <= MAX_COLUMNS))
            return GEN_OK;
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "%s: slots_stride = %" PRId32 "; allowed: 0 (packed), or %" PRId32
                         " to %d",
                         family_of(a), a->slots_stride, least, MAX_COLUMNS);
    }
    if (a->accepted)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "%s: accepted = %p without slots; allowed: NULL", family_of(a),
                         (const void *)a->accepted);
    if (a->slots_stride != 0 && a->slots_stride != 1)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "%s: slots_stride = %" PRId32 " without slots; allowed: 0, 1",
                         family_of(a), a->slots_stride);
    if (each && tokens > 1 && !a->slots_out)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "%s: write = GEN_KDA_DECODE_WRITE_EACH (1) of num_tokens = %" PRId32
                         " without slots; allowed: a table of slots, or another write",
                         family_of(a), tokens);
    if (a->num_slots < dims[KDA_DECODE_BATCH])
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "%s: num_slots = %" PRId32 " without slots; allowed: >= batch = %" PRId32,
                         family_of(a), a->num_slots, dims[KDA_DECODE_BATCH]);
    return GEN_OK;
}

/* What the kernels of a packed pool do not know. */
static enum gen_status check_plain(const int32_t *dims, const gen_kda_decode_args *a)
{
    const char *const name = a->state_stride ? "state_stride"
                             : a->null_slot  ? "null_slot"
                             : a->slots_out  ? "slots_out"
                                             : NULL;
    if (!name || gen__kda_decode_has_pool(dims))
        return GEN_OK;
    return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                     "%s: %s without a pool; allowed: 0 or NULL, or pool = 1 in the problem, or "
                     "states of 16 bits",
                     family_of(a), name);
}

/* slots * stride * 4 bytes stay below 2^63. */
static enum gen_status check_pool(const int32_t *dims, const gen_kda_decode_args *a)
{
    const enum gen_status status = check_plain(dims, a);
    if (status)
        return status;
    const int64_t packed = gen__kda_decode_v_width(dims) * dims[KDA_DECODE_HEAD_DIM];
    const int64_t granule = 16 / gen__kda_decode_state_bytes(dims);
    const int64_t addressable = (INT64_C(1) << 60) / packed;
    const int64_t max = addressable < INT32_MAX ? addressable : INT32_MAX;
    if (a->num_slots < 1 || a->num_slots > max)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "%s: num_slots = %" PRId32 "; allowed: 1 to %" PRId64, family_of(a),
                         a->num_slots, max);
    const int64_t widest = (INT64_C(1) << 60) / a->num_slots;
    if (a->state_stride != 0 &&
        (a->state_stride < packed || a->state_stride > widest || a->state_stride % granule != 0))
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "%s: state_stride = %" PRId64
                         " elements; allowed: 0 (packed), or a multiple of %" PRId64
                         " from %" PRId64 " (one slot) to %" PRId64,
                         family_of(a), a->state_stride, granule, packed, widest);
    if (a->null_slot < 0)
        return invalid(a, "null_slot", a->null_slot, "0 (none), or 1 + a slot");
    return check_table(dims, a);
}

/* ---- forms and scalars ------------------------------------------------- */

static enum gen_status check_gate(const gen_kda_decode_args *a)
{
    const bool given = a->gate_form == GEN_KDA_GATE_GIVEN;
    if (a->gate_form == GEN_KDA_GATE_SOFTPLUS && !a->A_log)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "%s: A_log is NULL with gate_form = GEN_KDA_GATE_SOFTPLUS (1)",
                         family_of(a));
    if (given && (a->A_log || a->dt_bias))
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "%s: %s = %p with gate_form = GEN_KDA_GATE_GIVEN (0); allowed: "
                         "NULL",
                         family_of(a), a->A_log ? "A_log" : "dt_bias",
                         a->A_log ? (const void *)a->A_log : (const void *)a->dt_bias);
    if (a->gate_form == GEN_KDA_GATE_LOWER_BOUND && !(a->lower_bound >= -5 && a->lower_bound < 0))
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "%s: lower_bound = %g; allowed: -5 to below 0", family_of(a),
                         (double)a->lower_bound);
    return GEN_OK;
}

/* Before all that depends on them. */
static enum gen_status check_forms(const int32_t *dims, const gen_kda_decode_args *a)
{
    if (!dims[KDA_DECODE_RING_LEN] &&
        (a->write < GEN_KDA_DECODE_WRITE_LAST || a->write > GEN_KDA_DECODE_WRITE_NONE))
        return invalid(a, "write", a->write,
                       "GEN_KDA_DECODE_WRITE_LAST (0), GEN_KDA_DECODE_WRITE_EACH (1), "
                       "GEN_KDA_DECODE_WRITE_NONE (2)");
    if (a->gate_form < GEN_KDA_GATE_GIVEN || a->gate_form > GEN_KDA_GATE_LOWER_BOUND)
        return invalid(a, "gate_form", a->gate_form,
                       "GEN_KDA_GATE_GIVEN (0), GEN_KDA_GATE_SOFTPLUS (1), "
                       "GEN_KDA_GATE_LOWER_BOUND (2)");
    if (a->beta_form < GEN_KDA_BETA_GIVEN || a->beta_form > GEN_KDA_BETA_TWO_SIGMOID)
        return invalid(a, "beta_form", a->beta_form,
                       "GEN_KDA_BETA_GIVEN (0), GEN_KDA_BETA_SIGMOID (1), "
                       "GEN_KDA_BETA_TWO_SIGMOID (2)");
    if (a->qk_l2norm != 0 && a->qk_l2norm != 1)
        return invalid(a, "qk_l2norm", a->qk_l2norm, "0, 1");
    if (a->zero_padding != 0 && a->zero_padding != 1)
        return invalid(a, "zero_padding", a->zero_padding, "0, 1");
    if (!isfinite(a->scale))
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT, "%s: scale = %g; allowed: a finite number",
                         family_of(a), (double)a->scale);
    return GEN_OK;
}

/* ---- what the kernels get ---------------------------------------------- */

static void fill_params(const int32_t *dims, const gen_kda_decode_args *a,
                        struct gen_kda_decode_pool_params *k)
{
    const uint32_t qk_heads = (uint32_t)dims[KDA_DECODE_QK_HEADS];
    const uint32_t v_heads = (uint32_t)dims[KDA_DECODE_V_HEADS];
    const struct gen__kda_decode_strides strides = gen__kda_decode_strides(dims, a);
    const bool each = a->write == GEN_KDA_DECODE_WRITE_EACH;
    const struct gen__fastdiv one = {0, 0}, heads = gen__fastdiv(v_heads);
    const struct gen__fastdiv group = v_heads == qk_heads ? one : gen__fastdiv(v_heads / qk_heads);
    k->decode = (struct gen_kda_decode_params){
        .q = a->q,
        .k = a->k,
        .v = a->v,
        .gate = a->g,
        .beta = a->beta,
        .o = a->o,
        .a_log = a->A_log,
        .dt_bias = a->dt_bias,
        .state = a->state,
        .slots = a->slots,
        .accepted = a->accepted,
        .cu_seqlens = a->cu_seqlens,
        .q_stride = strides.q,
        .k_stride = strides.k,
        .v_stride = strides.v,
        .gate_stride = strides.gate,
        .beta_stride = strides.beta,
        .o_stride = strides.o,
        .num_v_heads = v_heads,
        .heads_mul = heads.mul,
        .heads_shift = heads.shift,
        .group_mul = group.mul,
        .group_shift = group.shift,
        .num_tokens = dims[KDA_DECODE_TOKENS],
        .total_tokens = a->total_tokens,
        .num_slots = (unsigned)a->num_slots,
        .slots_stride = (unsigned)strides.slots,
        .write = a->write,
        .gate_form = a->gate_form,
        .beta_form = a->beta_form,
        .qk_l2norm = a->qk_l2norm,
        .zero_padding = a->zero_padding,
        .dtype = dims[KDA_DECODE_DTYPE],
        .gate_dtype = dims[KDA_DECODE_GATE_DTYPE],
        .beta_dtype = dims[KDA_DECODE_BETA_DTYPE],
        .scale = a->scale,
        .lower_bound = a->lower_bound,
    };
    k->slots_out = a->slots_out || !each ? a->slots_out : a->slots;
    k->state_stride = strides.state;
    k->slots_out_stride = (unsigned)(a->slots_out ? strides.slots_out : strides.slots);
    k->null_slot = a->null_slot - 1;
    k->state_fp16 = dims[KDA_DECODE_STATE_DTYPE] == GEN_STATE_FP16;
    k->num_states = dims[KDA_DECODE_BATCH] * dims[KDA_DECODE_V_HEADS];
}

enum gen_status gen__kda_decode_params(const gen_plan *plan, uint32_t launch, const gen_args *base,
                                       void *workspace, void *params)
{
    (void)launch;
    (void)workspace;
    const gen_kda_decode_args *a = (const gen_kda_decode_args *)base;
    const int32_t *dims = plan->dims;
    enum gen_status status;
    if ((status = check_dims(dims, a)) != GEN_OK || (status = check_pointers(dims, a)) != GEN_OK ||
        (status = check_forms(dims, a)) != GEN_OK || (status = check_gate(a)) != GEN_OK ||
        (status = check_total(dims, a)) != GEN_OK || (status = check_strides(dims, a)) != GEN_OK ||
        (status = check_pool(dims, a)) != GEN_OK ||
        (status = gen__kda_decode_check_ring(dims, a)) != GEN_OK || !params)
        return status;
    struct gen_kda_decode_replay_params *const out = params;
    fill_params(dims, a, &out->pool);
    if (dims[KDA_DECODE_RING_LEN]) /* other kernels take the first part alone */
        gen__kda_decode_ring_params(dims, a, out);
    return GEN_OK;
}

/* ---- what is read and written -------------------------------------------- */

uint32_t gen__kda_decode_extents(const int32_t *dims, const gen_args *base,
                                 struct gen__extent list[GEN__MAX_EXTENTS])
{
    const gen_kda_decode_args *a = (const gen_kda_decode_args *)base;
    const int64_t rows = dims[KDA_DECODE_BATCH], heads = dims[KDA_DECODE_V_HEADS];
    const int64_t tokens = a->cu_seqlens ? a->total_tokens : rows * dims[KDA_DECODE_TOKENS];
    const int64_t qk = gen__kda_decode_qk_width(dims) * 2, v = gen__kda_decode_v_width(dims) * 2;
    const int64_t g = dims[KDA_DECODE_GATE_DTYPE] == GEN_DTYPE_FP32 ? 4 : 2;
    const int64_t beta = dims[KDA_DECODE_BETA_DTYPE] == GEN_DTYPE_FP32 ? 4 : 2;
    const int64_t gates = gen__kda_decode_gate_width(dims, a->base.family);
    const struct gen__kda_decode_strides strides = gen__kda_decode_strides(dims, a);
    const int64_t element = gen__kda_decode_state_bytes(dims);
    const int64_t state = v / 2 * dims[KDA_DECODE_HEAD_DIM] * element;
    gen__reads_rows(&list[0], "q", a->q, qk, tokens, gen__stride_bytes(a->q_stride, 2));
    gen__reads_rows(&list[1], "k", a->k, qk, tokens, gen__stride_bytes(a->k_stride, 2));
    gen__reads_rows(&list[2], "v", a->v, v, tokens, gen__stride_bytes(a->v_stride, 2));
    gen__reads_rows(&list[3], "g", a->g, gates * g, tokens, gen__stride_bytes(a->g_stride, g));
    gen__reads_rows(&list[4], "beta", a->beta, heads * beta, tokens,
                    gen__stride_bytes(a->beta_stride, beta));
    gen__writes_rows(&list[5], "o", a->o, v, tokens, gen__stride_bytes(a->o_stride, 2));
    gen__reads(&list[6], "A_log", a->A_log, heads * 4);
    gen__reads(&list[7], "dt_bias", a->dt_bias, gates * 4);
    gen__writes_rows(&list[8], "state", a->state, state, a->num_slots,
                     gen__stride_bytes(a->state_stride, element));
    gen__reads(&list[9], "slots", a->slots, rows * strides.slots * 4);
    gen__reads(&list[10], "accepted", a->accepted, rows * 4);
    gen__reads(&list[11], "cu_seqlens", a->cu_seqlens, (rows + 1) * 4);
    gen__reads(&list[12], "slots_out", a->slots_out, rows * strides.slots_out * 4);
    return 13 + gen__kda_decode_ring_extents(dims, a, list + 13);
}
