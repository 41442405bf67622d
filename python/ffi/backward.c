/* kda_bwd: KDA's backward pass from raw inputs. */
#include "stages.h"

#include <attngen/kda_bwd.h>
#include <inttypes.h>
#include <math.h>

int FFI_EXPORT __tvm_ffi_kda_bwd(void *handle, const TVMFFIAny *args, int32_t num_args,
                                 TVMFFIAny *result);

struct backward {
    const DLTensor *q, *k, *v, *g, *beta, *d_o, *a_log, *dt_bias, *initial, *states, *d_final;
    const DLTensor *d_q, *d_k, *d_v, *d_g, *d_beta, *d_a_log, *d_dt_bias, *d_initial;
    struct ffi_sequences sequences;
    float scale, lower_bound;
    int32_t gate_form, beta_form;
    bool qk_l2norm, v_first, safe;
};

static void read_inputs(struct ffi_call *call, struct backward *in)
{
    in->q = ffi_tensor(call, "q", "*hd", FFI_16_BITS);
    const uint32_t same = ffi_dtype_bit(in->q);
    in->k = ffi_tensor(call, "k", "*hd", same);
    in->v = ffi_tensor(call, "v", "*vd", same);
    in->g = ffi_tensor(call, "g", "*vd", same | FFI_FP32);
    in->beta = ffi_tensor(call, "beta", "*v", same | FFI_FP32);
    in->d_o = ffi_tensor(call, "d_o", "*vd", same);
    in->a_log = ffi_optional(call, "A_log", "=v", FFI_FP32);
    in->dt_bias = ffi_optional(call, "dt_bias", "=vd", FFI_FP32);
    in->initial = ffi_optional(call, "initial_state", "=nvde", FFI_FP32);
    in->states = ffi_optional(call, "states", "=cvde", same);
    in->d_final = ffi_optional(call, "d_final_state", "=nvde", FFI_FP32);
}

static void read_outputs(struct ffi_call *call, struct backward *in)
{
    const uint32_t same = ffi_dtype_bit(in->q);
    in->d_q = ffi_tensor(call, "d_q", "=*hd", same);
    in->d_k = ffi_tensor(call, "d_k", "=*hd", same);
    in->d_v = ffi_tensor(call, "d_v", "=*vd", same);
    in->d_g = ffi_tensor(call, "d_g", "=*vd", in->g ? 1u << ffi_dtype(in->g) : same);
    in->d_beta = ffi_tensor(call, "d_beta", "=*v", in->beta ? 1u << ffi_dtype(in->beta) : same);
    in->d_a_log = ffi_optional(call, "d_A_log", "=v", FFI_FP32);
    in->d_dt_bias = ffi_optional(call, "d_dt_bias", "=vd", FFI_FP32);
    in->d_initial = ffi_optional(call, "d_initial_state", "=nvde", FFI_FP32);
}

static void read_numbers(struct ffi_call *call, struct backward *in)
{
    int64_t most;
    const DLTensor *cu_seqlens = ffi_cu_seqlens(call, &most);
    in->scale = ffi_float(call, "scale", ffi_usual_scale(call));
    in->lower_bound = ffi_float(call, "lower_bound", -5);
    in->gate_form = ffi_int32(call, "gate_form", 0, 2, 0);
    in->beta_form = ffi_int32(call, "beta_form", 0, 2, 0);
    in->qk_l2norm = ffi_bool(call, "qk_l2norm");
    in->v_first = ffi_bool(call, "state_v_first");
    in->safe = ffi_bool(call, "safe_gate");
    ffi_sequences(call, cu_seqlens, most, &in->sequences);
}

static void check_states(struct ffi_call *call, const struct backward *in)
{
    const struct ffi_sequences *s = &in->sequences;
    const bool sequences = in->initial || in->d_final || in->d_initial;
    if (sequences)
        ffi_check_states(call,
                         in->initial   ? "initial_state"
                         : in->d_final ? "d_final_state"
                                       : "d_initial_state",
                         s);
    const int64_t rows = ffi_dim(call, 'd'), columns = ffi_dim(call, 'e');
    if ((sequences || in->states) && rows != columns && !call->failed)
        ffi_fail(call, "ValueError",
                 "a state is of %" PRId64 " x %" PRId64 "; %" PRId64 " x %" PRId64 " is wanted",
                 rows, columns, rows, rows);
    /* As many as the library allows sequences to have. */
    const int64_t most = (int64_t)s->batch * ((s->seq_len + FFI_CHUNK - 1) / FFI_CHUNK);
    const int64_t wanted = most < s->chunks ? most : s->chunks;
    if (in->states && ffi_dim(call, 'c') < wanted && !call->failed)
        ffi_fail(call, "ValueError", "states has %" PRId64 " chunks; %" PRId64 " are wanted",
                 ffi_dim(call, 'c'), wanted);
}

static gen_kda_bwd_args args_of(struct ffi_call *call, const struct backward *in)
{
    return (gen_kda_bwd_args){
        .base = {sizeof(gen_kda_bwd_args), GEN_KDA_BWD},
        .q = ffi_data(in->q),
        .k = ffi_data(in->k),
        .v = ffi_data(in->v),
        .g = ffi_data(in->g),
        .beta = ffi_data(in->beta),
        .A_log = ffi_data(in->a_log),
        .dt_bias = ffi_data(in->dt_bias),
        .cu_seqlens = in->sequences.cu_seqlens,
        .cu_seqlens_64 = in->sequences.cu_seqlens_64,
        .initial_state = ffi_data(in->initial),
        .states = ffi_data(in->states),
        .d_o = ffi_data(in->d_o),
        .d_final_state = ffi_data(in->d_final),
        .d_q = ffi_data(in->d_q),
        .d_k = ffi_data(in->d_k),
        .d_v = ffi_data(in->d_v),
        .d_g = ffi_data(in->d_g),
        .d_beta = ffi_data(in->d_beta),
        .d_A_log = ffi_data(in->d_a_log),
        .d_dt_bias = ffi_data(in->d_dt_bias),
        .d_initial_state = ffi_data(in->d_initial),
        .q_stride = ffi_token_stride(call, in->q, "q", 2),
        .k_stride = ffi_token_stride(call, in->k, "k", 2),
        .v_stride = ffi_token_stride(call, in->v, "v", 2),
        .g_stride = ffi_token_stride(call, in->g, "g", 2),
        .beta_stride = ffi_token_stride(call, in->beta, "beta", 1),
        .d_o_stride = ffi_token_stride(call, in->d_o, "d_o", 2),
        .scale = in->scale,
        .lower_bound = in->lower_bound,
        .gate_form = in->gate_form,
        .beta_form = in->beta_form,
        .qk_l2norm = in->qk_l2norm,
        .state_layout = in->v_first ? GEN_KDA_STATE_VK : GEN_KDA_STATE_KV,
    };
}

/* kda_bwd(library, flags, workspace, q, k, v, g, beta, d_o, A_log, dt_bias, initial_state, states,
 *         d_final_state, d_q, d_k, d_v, d_g, d_beta, d_A_log, d_dt_bias, d_initial_state,
 *         cu_seqlens, max_seqlen, scale, lower_bound, gate_form, beta_form, qk_l2norm,
 *         state_v_first, safe_gate) */
int __tvm_ffi_kda_bwd(void *handle, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result)
{
    (void)handle;
    struct ffi_call call;
    struct backward in;
    if (!ffi_begin(&call, "kda_bwd", args, num_args, 28, result))
        return -1;
    read_inputs(&call, &in);
    read_outputs(&call, &in);
    read_numbers(&call, &in);
    check_states(&call, &in);
    if (call.failed)
        return -1;
    const gen_kda_bwd_problem problem = {
        .base = {sizeof problem, GEN_KDA_BWD, call.flags, 0},
        .batch = in.sequences.batch,
        .seq_len = in.sequences.seq_len,
        .num_tokens = in.sequences.num_tokens,
        .num_qk_heads = ffi_size(&call, 'h'),
        .num_v_heads = ffi_size(&call, 'v'),
        .head_dim = ffi_size(&call, 'd'),
        .dtype = ffi_dtype(in.q),
        .gate_dtype = ffi_dtype(in.g),
        .beta_dtype = ffi_dtype(in.beta),
        .safe_gate = in.safe,
        .keep = in.states != NULL,
        .index_dtype = in.sequences.index_dtype,
    };
    const gen_kda_bwd_args a = args_of(&call, &in);
    return ffi_run(&call, &problem.base, &a.base);
}
