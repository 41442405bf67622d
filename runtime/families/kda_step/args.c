/*
 * The arguments of kda_step and gdn_step: what is allowed, and the parameters that the kernels get.
 */
#include "families/common/arguments.h"
#include "families/kda/step.h"

#include "families/common/fastdiv.h"

#include <inttypes.h>
#include <math.h>

static const char *family_of(const gen_kda_step_args *a)
{
    return gen__kda_step_name(a->base.family);
}

static enum gen_status invalid(const gen_kda_step_args *a, const char *name, int64_t value,
                               const char *allowed)
{
    return gen__invalid(family_of(a), name, value, allowed);
}

/* What is divided by below, in case the plan was not kept well. */
static enum gen_status check_dims(const int32_t *dims, const gen_kda_step_args *a)
{
    if (dims[KDA_STEP_BATCH] >= 0 && dims[KDA_STEP_QK_HEADS] > 0 &&
        dims[KDA_STEP_V_HEADS] >= dims[KDA_STEP_QK_HEADS])
        return GEN_OK;
    return gen__fail(GEN_STATUS_MISMATCH,
                     "%s: the plan's batch, num_qk_heads, num_v_heads are %" PRId32 ", %" PRId32
                     ", %" PRId32 "; not what gen_select() writes",
                     family_of(a), dims[KDA_STEP_BATCH], dims[KDA_STEP_QK_HEADS],
                     dims[KDA_STEP_V_HEADS]);
}

/* ---- pointers ---------------------------------------------------------- */

static enum gen_status check_pointers(const int32_t *dims, const gen_kda_step_args *a)
{
    const bool scalar = gen__kda_step_scalar(a->base.family);
    const uintptr_t gate = (uintptr_t)gen__kda_step_side_bytes(dims[KDA_STEP_GATE_DTYPE]);
    const uintptr_t beta = (uintptr_t)gen__kda_step_side_bytes(dims[KDA_STEP_BETA_DTYPE]);
    const struct {
        const char *name;
        const void *pointer;
        uintptr_t alignment;
        bool optional;
    } list[] = {
        {"x", a->x, 16, false},
        {"conv_w", a->conv_w, 16, false},
        {"conv_bias", a->conv_bias, 16, true},
        {"conv_state", a->conv_state, 16, false},
        {"gate", a->gate, scalar ? gate : 16, false},
        {"beta", a->beta, beta, false},
        {"A_log", a->A_log, 4, true},
        {"dt_bias", a->dt_bias, scalar ? 4 : 16, true},
        {"z", a->z, 16, true},
        {"norm_w", a->norm_w, 16, true},
        {"state", a->state, 16, false},
        {"slots", a->slots, 4, true},
        {"out", a->out, 16, false},
    };
    enum gen_status status = GEN_OK;
    for (size_t i = 0; !status && i < sizeof list / sizeof *list; i++)
        status = gen__check_pointer(family_of(a), list[i].name, list[i].pointer, list[i].alignment,
                                    list[i].optional);
    return status;
}

/* ---- strides ------------------------------------------------------------- */

static enum gen_status check_stride(const gen_kda_step_args *a, const char *name, int64_t stride,
                                    int64_t granule, int64_t least, int64_t most)
{
    if (stride == 0 || (stride >= least && stride <= most && stride % granule == 0))
        return GEN_OK;
    return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                     "%s: %s = %" PRId64 " elements; allowed: 0 (packed), or a multiple of %" PRId64
                     " from %" PRId64 " to %" PRId64,
                     family_of(a), name, stride, granule, least, most);
}

/* Distances of `count` things whose bytes stay below 2^62, whatever the type. */
static int64_t longest(int64_t count)
{
    return (INT64_C(1) << 60) >> (64 - __builtin_clzll((uint64_t)count | 1));
}

static enum gen_status check_rows(const int32_t *dims, const gen_kda_step_args *a)
{
    const int64_t channels = gen__kda_step_channels(dims), v = gen__kda_step_v_width(dims);
    const int64_t heads = dims[KDA_STEP_V_HEADS], most = longest(dims[KDA_STEP_BATCH]);
    const bool scalar = gen__kda_step_scalar(a->base.family);
    enum gen_status status;
    if ((status = check_stride(a, "x_stride", a->x_stride, 8, channels, most)) != GEN_OK ||
        (status = check_stride(a, "gate_stride", a->gate_stride, scalar ? 1 : 8, scalar ? heads : v,
                               most)) != GEN_OK ||
        (status = check_stride(a, "beta_stride", a->beta_stride, 1, heads, most)) != GEN_OK ||
        (status = check_stride(a, "z_stride", a->z_stride, 8, v, most)) != GEN_OK ||
        (status = check_stride(a, "out_stride", a->out_stride, 8, v, most)) != GEN_OK)
        return status;
    return GEN_OK;
}

static enum gen_status check_weights(const int32_t *dims, const gen_kda_step_args *a)
{
    const int64_t qk = gen__kda_step_qk_width(dims), v = gen__kda_step_v_width(dims);
    const int64_t most = longest(GEN_KDA_STEP_MAX_WIDTH);
    enum gen_status status =
        check_stride(a, "conv_w_tap_stride", a->conv_w_tap_stride, 4, qk > v ? qk : v, most);
    if (!status)
        status = check_stride(a, "conv_w_part_stride", a->conv_w_part_stride, 4, qk, most);
    return status;
}

/* ---- the pools ----------------------------------------------------------- */

static enum gen_status check_pools(const int32_t *dims, const gen_kda_step_args *a)
{
    const struct gen__kda_step_strides s = gen__kda_step_strides(dims, a);
    /* A packed pool's bytes stay below 2^62, too. */
    const int64_t slots = longest(s.state_slot > s.conv_slot ? s.state_slot : s.conv_slot);
    const int64_t most = slots < INT32_MAX ? slots : INT32_MAX;
    if (a->num_slots < 1 || a->num_slots > most)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "%s: num_slots = %" PRId32 "; allowed: 1 to %" PRId64, family_of(a),
                         a->num_slots, most);
    if (!a->slots && a->num_slots < dims[KDA_STEP_BATCH])
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "%s: num_slots = %" PRId32 " without slots; allowed: >= batch = %" PRId32,
                         family_of(a), a->num_slots, dims[KDA_STEP_BATCH]);
    if (a->null_slot < 0)
        return invalid(a, "null_slot", a->null_slot, "0 (none), or 1 + a slot");
    const int64_t granule = 16 / gen__kda_step_state_bytes(dims);
    const enum gen_status status = check_stride(a, "state_stride", a->state_stride, granule,
                                                s.state_slot, longest(a->num_slots));
    return status ? status
                  : check_stride(a, "conv_state_stride", a->conv_state_stride, 8, s.conv_slot,
                                 longest(a->num_slots));
}

/* ---- forms and scalars ------------------------------------------------- */

static enum gen_status check_gate(const gen_kda_step_args *a)
{
    if (a->gate_form < GEN_KDA_GATE_GIVEN || a->gate_form > GEN_KDA_GATE_LOWER_BOUND)
        return invalid(a, "gate_form", a->gate_form,
                       "GEN_KDA_GATE_GIVEN (0), GEN_KDA_GATE_SOFTPLUS (1), "
                       "GEN_KDA_GATE_LOWER_BOUND (2)");
    if (a->gate_form == GEN_KDA_GATE_SOFTPLUS && !a->A_log)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "%s: A_log is NULL with gate_form = GEN_KDA_GATE_SOFTPLUS (1)",
                         family_of(a));
    if (a->gate_form == GEN_KDA_GATE_GIVEN && (a->A_log || a->dt_bias))
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "%s: %s = %p with gate_form = GEN_KDA_GATE_GIVEN (0); allowed: NULL",
                         family_of(a), a->A_log ? "A_log" : "dt_bias",
                         a->A_log ? (const void *)a->A_log : (const void *)a->dt_bias);
    if (a->gate_form == GEN_KDA_GATE_LOWER_BOUND && !(a->lower_bound >= -5 && a->lower_bound < 0))
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "%s: lower_bound = %g; allowed: -5 to below 0", family_of(a),
                         (double)a->lower_bound);
    return GEN_OK;
}

static enum gen_status check_norm(const gen_kda_step_args *a)
{
    if (!a->z != !a->norm_w)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "%s: %s is NULL and %s is not; allowed: both (no norm), or none",
                         family_of(a), a->z ? "norm_w" : "z", a->z ? "z" : "norm_w");
    if (a->norm_w && !(a->eps >= 0 && isfinite(a->eps)))
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT, "%s: eps = %g; allowed: a finite number >= 0",
                         family_of(a), (double)a->eps);
    if (a->z_form < GEN_KDA_Z_SIGMOID || a->z_form > GEN_KDA_Z_SILU)
        return invalid(a, "z_form", a->z_form, "GEN_KDA_Z_SIGMOID (0), GEN_KDA_Z_SILU (1)");
    return GEN_OK;
}

/* Before all that depends on them. */
static enum gen_status check_forms(const gen_kda_step_args *a)
{
    if (a->conv_width < 2 || a->conv_width > GEN_KDA_STEP_MAX_WIDTH)
        return invalid(a, "conv_width", a->conv_width, "2, 3, 4");
    if (a->conv_layout < GEN_KDA_CONV_SD || a->conv_layout > GEN_KDA_CONV_DS)
        return invalid(a, "conv_layout", a->conv_layout,
                       "GEN_KDA_CONV_SD (0), GEN_KDA_CONV_DS (1)");
    if (a->conv_state_update != 0 && a->conv_state_update != 1)
        return invalid(a, "conv_state_update", a->conv_state_update, "0, 1");
    if (a->beta_form < GEN_KDA_BETA_GIVEN || a->beta_form > GEN_KDA_BETA_TWO_SIGMOID)
        return invalid(a, "beta_form", a->beta_form,
                       "GEN_KDA_BETA_GIVEN (0), GEN_KDA_BETA_SIGMOID (1), "
                       "GEN_KDA_BETA_TWO_SIGMOID (2)");
    if (a->zero_padding != 0 && a->zero_padding != 1)
        return invalid(a, "zero_padding", a->zero_padding, "0, 1");
    if (!isfinite(a->scale))
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT, "%s: scale = %g; allowed: a finite number",
                         family_of(a), (double)a->scale);
    return GEN_OK;
}

/* ---- what the kernels get ---------------------------------------------- */

static void fill_params(const int32_t *dims, const gen_kda_step_args *a,
                        struct gen_kda_step_params *k)
{
    const uint32_t qk_heads = (uint32_t)dims[KDA_STEP_QK_HEADS];
    const struct gen__kda_step_strides strides = gen__kda_step_strides(dims, a);
    const struct gen__fastdiv heads = gen__fastdiv(qk_heads);
    *k = (struct gen_kda_step_params){
        .conv_w = a->conv_w,
        .conv_bias = a->conv_bias,
        .norm_w = a->norm_w,
        .a_log = a->A_log,
        .dt_bias = a->dt_bias,
        .conv_w_tap = strides.conv_w_tap,
        .conv_w_part = strides.conv_w_part,
        .num_qk_heads = qk_heads,
        .group = (uint32_t)dims[KDA_STEP_V_HEADS] / qk_heads,
        .channels = (uint32_t)gen__kda_step_channels(dims),
        .heads_mul = heads.mul,
        .heads_shift = heads.shift,
        .conv_width = a->conv_width,
        .slots = a->slots,
        .x = a->x,
        .gate = a->gate,
        .beta = a->beta,
        .z = a->z,
        .conv_state = a->conv_state,
        .state = a->state,
        .out = a->out,
        .x_stride = strides.x,
        .gate_stride = strides.gate,
        .beta_stride = strides.beta,
        .z_stride = strides.z,
        .out_stride = strides.out,
        .conv_stride = strides.conv_state,
        .state_stride = strides.state,
        .num_slots = (unsigned)a->num_slots,
        .null_slot = a->null_slot - 1,
        .conv_layout = a->conv_layout,
        .conv_update = a->conv_state_update,
        .gate_form = a->gate_form,
        .beta_form = a->beta_form,
        .z_form = a->z_form,
        .zero_padding = a->zero_padding,
        .dtype = dims[KDA_STEP_DTYPE],
        .gate_dtype = dims[KDA_STEP_GATE_DTYPE],
        .beta_dtype = dims[KDA_STEP_BETA_DTYPE],
        .state_fp16 = dims[KDA_STEP_STATE_DTYPE] == GEN_STATE_FP16,
        .scale = a->scale,
        .lower_bound = a->lower_bound,
        .eps = a->eps,
        .units = (uint32_t)dims[KDA_STEP_BATCH] * qk_heads,
    };
}

enum gen_status gen__kda_step_params(const gen_plan *plan, uint32_t launch, const gen_args *base,
                                     void *workspace, void *params)
{
    (void)launch;
    (void)workspace;
    const gen_kda_step_args *a = (const gen_kda_step_args *)base;
    const int32_t *dims = plan->dims;
    enum gen_status status;
    if ((status = check_dims(dims, a)) != GEN_OK || (status = check_pointers(dims, a)) != GEN_OK ||
        (status = check_forms(a)) != GEN_OK || (status = check_gate(a)) != GEN_OK ||
        (status = check_norm(a)) != GEN_OK || (status = check_rows(dims, a)) != GEN_OK ||
        (status = check_weights(dims, a)) != GEN_OK || (status = check_pools(dims, a)) != GEN_OK ||
        !params)
        return status;
    fill_params(dims, a, params);
    return GEN_OK;
}

/* ---- what is read and written -------------------------------------------- */

uint32_t gen__kda_step_extents(const int32_t *dims, const gen_args *base,
                               struct gen__extent list[GEN__MAX_EXTENTS])
{
    const gen_kda_step_args *a = (const gen_kda_step_args *)base;
    const struct gen__kda_step_strides s = gen__kda_step_strides(dims, a);
    const int64_t rows = dims[KDA_STEP_BATCH], heads = dims[KDA_STEP_V_HEADS];
    const int64_t channels = gen__kda_step_channels(dims), v = gen__kda_step_v_width(dims);
    const int64_t qk = gen__kda_step_qk_width(dims), slots = a->num_slots;
    const int64_t gate = gen__kda_step_side_bytes(dims[KDA_STEP_GATE_DTYPE]);
    const int64_t beta = gen__kda_step_side_bytes(dims[KDA_STEP_BETA_DTYPE]);
    const int64_t gates = gen__kda_step_gate_width(dims, a->base.family);
    const int64_t element = gen__kda_step_state_bytes(dims);
    const int64_t part = gen__stride_bytes(s.conv_w_part, 4);
    gen__reads_rows(&list[0], "x", a->x, channels * 2, rows, gen__stride_bytes(s.x, 2));
    /* Parts that adjoin are rows of all channels; others are as wide as the widest. */
    const bool adjoin = s.conv_w_part == qk;
    gen__reads_rows(&list[1], "conv_w", a->conv_w, (adjoin ? channels : v) * 4, adjoin ? 1 : 3,
                    part);
    gen__extent_repeat(&list[1], a->conv_width, gen__stride_bytes(s.conv_w_tap, 4));
    gen__reads(&list[2], "conv_bias", a->conv_bias, channels * 4);
    gen__writes_rows(&list[3], "conv_state", a->conv_state, s.conv_slot * 2, slots,
                     gen__stride_bytes(s.conv_state, 2));
    gen__reads_rows(&list[4], "gate", a->gate, gates * gate, rows, gen__stride_bytes(s.gate, gate));
    gen__reads_rows(&list[5], "beta", a->beta, heads * beta, rows, gen__stride_bytes(s.beta, beta));
    gen__reads(&list[6], "A_log", a->A_log, heads * 4);
    gen__reads(&list[7], "dt_bias", a->dt_bias, gates * 4);
    gen__reads_rows(&list[8], "z", a->z, v * 2, rows, gen__stride_bytes(s.z, 2));
    gen__reads(&list[9], "norm_w", a->norm_w, KDA_STEP_HEAD_DIM * INT64_C(4));
    gen__writes_rows(&list[10], "state", a->state, s.state_slot * element, slots,
                     gen__stride_bytes(s.state, element));
    gen__reads(&list[11], "slots", a->slots, rows * 4);
    gen__writes_rows(&list[12], "out", a->out, v * 2, rows, gen__stride_bytes(s.out, 2));
    return 13;
}
