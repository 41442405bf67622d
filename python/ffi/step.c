/* kda_step and gdn_step: a decode step of a layer in one launch. */
#include "stages.h"

#include <attngen/gdn_step.h>
#include <attngen/kda_step.h>
#include <inttypes.h>

int FFI_EXPORT __tvm_ffi_kda_step(void *handle, const TVMFFIAny *args, int32_t num_args,
                                  TVMFFIAny *result);
int FFI_EXPORT __tvm_ffi_gdn_step(void *handle, const TVMFFIAny *args, int32_t num_args,
                                  TVMFFIAny *result);

#define HEAD_DIM 128

struct step {
    const DLTensor *x, *conv_w, *conv_bias, *conv_state, *gate, *beta, *a_log, *dt_bias, *z,
        *norm_w, *state, *slots, *out;
    float scale, lower_bound, eps;
    int32_t gate_form, beta_form, z_form, null_slot;
    bool scalar, update, zero;
};

/* Sets the letters h, query heads, and r, rows. x has 2 h + v heads of 128 channels. */
static void count_heads(struct ffi_call *call, const struct step *in)
{
    if (call->failed)
        return;
    const int64_t channels = ffi_dim(call, 'c'), heads = ffi_dim(call, 'v');
    const int64_t qk = channels - heads * HEAD_DIM, rows = ffi_dim(call, 'b') * ffi_dim(call, 't');
    if (ffi_dim(call, 'd') != HEAD_DIM || ffi_dim(call, 'e') != HEAD_DIM) {
        ffi_fail(call, "ValueError", "state is of %" PRId64 " x %" PRId64 "; 128 x 128 is wanted",
                 ffi_dim(call, 'd'), ffi_dim(call, 'e'));
    } else if (qk <= 0 || qk % (2 * HEAD_DIM)) {
        ffi_fail(call, "ValueError",
                 "x has %" PRId64 " channels; (2 query heads + %" PRId64 " value heads) * 128 are "
                 "wanted",
                 channels, heads);
    } else if (in->slots && ffi_dim(call, 'n') != rows) {
        ffi_fail(call, "ValueError", "slots has %" PRId64 " entries; %" PRId64 " are wanted",
                 ffi_dim(call, 'n'), rows);
    }
    ffi_set_dim(call, 'h', qk / (2 * HEAD_DIM), "x");
    ffi_set_dim(call, 'r', rows, "x");
}

static void read_step(struct ffi_call *call, bool scalar, struct step *in)
{
    in->scalar = scalar;
    in->x = ffi_tensor(call, "x", "*c", FFI_16_BITS);
    const uint32_t same = ffi_dtype_bit(in->x);
    in->conv_w = ffi_tensor(call, "conv_w", ffi_next_rank(call) == 2 ? "wc" : "pwm", FFI_FP32);
    in->conv_bias = ffi_optional(call, "conv_bias", "=c", FFI_FP32);
    in->conv_state = ffi_tensor(call, "conv_state", "sij", same);
    in->gate = ffi_tensor(call, "gate", scalar ? "*v" : "*vd", same | FFI_FP32);
    in->beta = ffi_tensor(call, "beta", "*v", same | FFI_FP32);
    in->a_log = ffi_optional(call, "A_log", "=v", FFI_FP32);
    in->dt_bias = ffi_optional(call, "dt_bias", scalar ? "=v" : "=vd", FFI_FP32);
    in->z = ffi_optional(call, "z", "*vd", same);
    in->norm_w = ffi_optional(call, "norm_w", "=d", FFI_FP32);
    in->state = ffi_tensor(call, "state", "svde", FFI_FP32 | FFI_16_BITS);
    in->slots = ffi_optional(call, "slots", "=n", FFI_INT32);
    in->out = ffi_tensor(call, "out", "*vd", same);
    in->scale = ffi_float(call, "scale", 0.08838834764831845f);
    in->lower_bound = ffi_float(call, "lower_bound", 0);
    in->eps = ffi_float(call, "eps", 1e-5f);
    in->gate_form = ffi_int32(call, "gate_form", 0, 2, 0);
    in->beta_form = ffi_int32(call, "beta_form", 0, 2, 0);
    in->z_form = ffi_int32(call, "z_form", 0, 1, 0);
    in->update = ffi_bool(call, "conv_state_update");
    /* The slot's number; the library wants one more, and 0 for none. */
    in->null_slot = ffi_int32(call, "null_slot", -1, INT32_MAX - 1, -1) + 1;
    in->zero = ffi_bool(call, "zero_padding");
    count_heads(call, in);
}

/* From slot to slot of a pool, whose slots may be apart. */
static int64_t slot_stride(struct ffi_call *call, const DLTensor *pool, const char *name)
{
    int64_t within = 1;
    for (int i = pool->ndim - 1; i > 0; i--) {
        if (pool->shape[i] > 1 && ffi_stride(pool, i) != within) {
            ffi_fail(call, "ValueError", "%s is not contiguous within a slot", name);
            return 0;
        }
        within *= pool->shape[i];
    }
    const int64_t stride = pool->shape[0] > 1 ? ffi_stride(pool, 0) : within;
    return stride == within ? 0 : stride;
}

/* Weights of [taps, channels] or of [3, taps, channels of a part]; windows of [slots, taps - 1,
 * channels] or [slots, channels, taps - 1]. */
static void set_conv(struct ffi_call *call, const struct step *in, gen_kda_step_args *a)
{
    const int64_t taps = ffi_dim(call, 'w'), channels = ffi_dim(call, 'c');
    const int64_t rows = ffi_dim(call, 'i'), columns = ffi_dim(call, 'j');
    a->conv_width = (int32_t)(taps < 8 ? taps : 8);
    a->conv_w_tap_stride = ffi_stride(in->conv_w, in->conv_w->ndim - 2);
    if (in->conv_w->ndim == 3) {
        a->conv_w_part_stride = ffi_stride(in->conv_w, 0);
        if (ffi_dim(call, 'p') != 3 || ffi_dim(call, 'm') * 3 != channels)
            ffi_fail(call, "ValueError",
                     "conv_w has parts of %" PRId64 " channels; 3 of %" PRId64 " are wanted",
                     ffi_dim(call, 'm'), channels / 3);
    }
    if ((rows == channels) == (columns == channels) ||
        (rows == channels ? columns : rows) != taps - 1)
        ffi_fail(call, "ValueError",
                 "conv_state has %" PRId64 " x %" PRId64 " a slot; %" PRId64 " x %" PRId64
                 " or %" PRId64 " x %" PRId64 " is wanted",
                 rows, columns, taps - 1, channels, channels, taps - 1);
    a->conv_layout = rows == channels ? GEN_KDA_CONV_DS : GEN_KDA_CONV_SD;
    a->conv_state_stride = slot_stride(call, in->conv_state, "conv_state");
}

static int32_t state_dtype(const DLTensor *state)
{
    const int32_t dtype = ffi_dtype(state);
    return dtype == GEN_DTYPE_FP32   ? GEN_STATE_FP32
           : dtype == GEN_DTYPE_FP16 ? GEN_STATE_FP16
                                     : GEN_STATE_BF16;
}

static gen_kda_step_args step_args(struct ffi_call *call, uint32_t tag, const struct step *in)
{
    gen_kda_step_args a = {
        .base = {sizeof(gen_kda_step_args), tag},
        .x = ffi_data(in->x),
        .conv_w = ffi_data(in->conv_w),
        .conv_bias = ffi_data(in->conv_bias),
        .conv_state = ffi_data(in->conv_state),
        .gate = ffi_data(in->gate),
        .beta = ffi_data(in->beta),
        .A_log = ffi_data(in->a_log),
        .dt_bias = ffi_data(in->dt_bias),
        .z = ffi_data(in->z),
        .norm_w = ffi_data(in->norm_w),
        .state = ffi_data(in->state),
        .slots = ffi_data(in->slots),
        .out = ffi_data(in->out),
        .x_stride = ffi_token_stride(call, in->x, "x", 1),
        .gate_stride = ffi_token_stride(call, in->gate, "gate", in->scalar ? 1 : 2),
        .beta_stride = ffi_token_stride(call, in->beta, "beta", 1),
        .z_stride = in->z ? ffi_token_stride(call, in->z, "z", 2) : 0,
        .out_stride = ffi_token_stride(call, in->out, "out", 2),
        .state_stride = slot_stride(call, in->state, "state"),
        .num_slots = ffi_size(call, 's'),
        .null_slot = in->null_slot,
        .conv_state_update = in->update,
        .gate_form = in->gate_form,
        .beta_form = in->beta_form,
        .z_form = in->z_form,
        .zero_padding = in->zero,
        .scale = in->scale,
        .lower_bound = in->lower_bound,
        .eps = in->eps,
    };
    set_conv(call, in, &a);
    return a;
}

/* kda_step(library, flags, workspace, x, conv_w, conv_bias, conv_state, gate, beta, A_log, dt_bias,
 *          z, norm_w, state, slots, out, scale, lower_bound, eps, gate_form, beta_form, z_form,
 *          conv_state_update, null_slot, zero_padding) */
static int run_step(const char *name, uint32_t tag, const TVMFFIAny *args, int32_t num_args,
                    TVMFFIAny *result)
{
    struct ffi_call call;
    struct step in;
    if (!ffi_begin(&call, name, args, num_args, 22, result))
        return -1;
    read_step(&call, tag == GEN_GDN_STEP, &in);
    if (call.failed)
        return -1;
    const gen_kda_step_problem problem = {
        .base = {sizeof problem, tag, call.flags, 0},
        .batch = ffi_size(&call, 'r'),
        .num_qk_heads = ffi_size(&call, 'h'),
        .num_v_heads = ffi_size(&call, 'v'),
        .head_dim = HEAD_DIM,
        .dtype = ffi_dtype(in.x),
        .gate_dtype = ffi_dtype(in.gate),
        .beta_dtype = ffi_dtype(in.beta),
        .state_layout = GEN_KDA_STATE_VK,
        .state_dtype = state_dtype(in.state),
    };
    const gen_kda_step_args a = step_args(&call, tag, &in);
    return call.failed ? -1 : ffi_run(&call, &problem.base, &a.base);
}

int __tvm_ffi_kda_step(void *handle, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result)
{
    (void)handle;
    return run_step("kda_step", GEN_KDA_STEP, args, num_args, result);
}

/* The same, gate of [rows, heads], dt_bias of [heads]. */
int __tvm_ffi_gdn_step(void *handle, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result)
{
    (void)handle;
    return run_step("gdn_step", GEN_GDN_STEP, args, num_args, result);
}
