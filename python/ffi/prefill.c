/* kda_prefill and its like with a gate a head, gdn_prefill. */
#include "recurrent.h"

#include <attngen/gdn_prefill.h>
#include <attngen/kda_prefill.h>
#include <inttypes.h>

int FFI_EXPORT __tvm_ffi_kda_prefill(void *handle, const TVMFFIAny *args, int32_t num_args,
                                     TVMFFIAny *result);
int FFI_EXPORT __tvm_ffi_gdn_prefill(void *handle, const TVMFFIAny *args, int32_t num_args,
                                     TVMFFIAny *result);

struct prefill {
    struct kda_inputs kda;
    const DLTensor *initial, *final, *states;
    const DLTensor *slots_in, *slots_out, *has_initial, *ckpt_pool, *ckpt_begin, *ckpt_token,
        *ckpt_slot;
    struct ffi_sequences sequences;
    float scale, lower_bound;
    int32_t gate_form, beta_form, segment, null_slot, ckpt_every;
    bool qk_l2norm, v_first, safe, pooled;
};

/* As many as there are sequences, or 1 more. */
static void check_list(struct ffi_call *call, const char *name, const DLTensor *list, int64_t count)
{
    if (list && !call->failed && list->shape[0] != count)
        ffi_fail(call, "ValueError", "%s has %" PRId64 " entries; %" PRId64 " are wanted", name,
                 list->shape[0], count);
}

/* States in pools and checkpoints, which come last. */
static void read_pools(struct ffi_call *call, struct prefill *in)
{
    const DLTensor *const state = in->initial ? in->initial : in->final;
    in->slots_in = ffi_optional(call, "slots_in", "=p", FFI_INT32);
    in->slots_out = ffi_optional(call, "slots_out", "=q", FFI_INT32);
    in->has_initial = ffi_optional(call, "has_initial", "=r", 0);
    if (in->has_initial && (in->has_initial->dtype.bits != 8 || in->has_initial->dtype.lanes != 1))
        ffi_fail(call, "ValueError", "has_initial has %d bits an entry; bool or uint8 is wanted",
                 in->has_initial->dtype.bits);
    in->null_slot = ffi_int32(call, "null_slot", -1, INT32_MAX - 1, -1) + 1;
    in->ckpt_pool = ffi_optional(call, "ckpt_pool", "kvde",
                                 state ? ffi_dtype_bit(state) : FFI_FP32 | FFI_16_BITS);
    in->ckpt_begin = ffi_optional(call, "ckpt_begin", "=i", FFI_INT32);
    in->ckpt_token = ffi_optional(call, "ckpt_token", "=j", FFI_INT32);
    in->ckpt_slot =
        ffi_optional(call, "ckpt_slot", ffi_next_rank(call) == 1 ? "=j" : "=gl", FFI_INT32);
    in->ckpt_every = ffi_int32(call, "ckpt_every", 0, INT32_MAX, 0);
    const DLTensor *const any = state ? state : in->ckpt_pool;
    in->pooled = in->slots_in || in->slots_out || in->has_initial || in->ckpt_pool ||
                 (any && ffi_dtype(any) != GEN_DTYPE_FP32) ||
                 ffi_pool_stride(call, in->initial, "initial_state") ||
                 ffi_pool_stride(call, in->final, "final_state");
}

static void check_pools(struct ffi_call *call, const struct prefill *in)
{
    const int64_t batch = in->sequences.batch;
    check_list(call, "slots_in", in->slots_in, batch);
    check_list(call, "slots_out", in->slots_out, batch);
    check_list(call, "has_initial", in->has_initial, batch);
    check_list(call, "ckpt_begin", in->ckpt_begin, batch + 1);
    if (!in->ckpt_begin)
        check_list(call, "ckpt_slot", in->ckpt_slot, batch);
    if (in->ckpt_slot && !call->failed && (in->ckpt_slot->ndim == 1) != (in->ckpt_begin != NULL))
        ffi_fail(call, "ValueError",
                 "ckpt_slot has %d dimensions; 1 are wanted with ckpt_begin, 2 without",
                 in->ckpt_slot->ndim);
}

static void read_prefill(struct ffi_call *call, bool scalar, struct prefill *in)
{
    in->kda = ffi_kda_inputs(call, scalar);
    const uint32_t same = ffi_dtype_bit(in->kda.q);
    in->initial = ffi_optional(call, "initial_state", "nvde", FFI_FP32 | FFI_16_BITS);
    in->final = ffi_optional(call, "final_state", "nvde",
                             in->initial ? ffi_dtype_bit(in->initial) : FFI_FP32 | FFI_16_BITS);
    in->states = ffi_optional(call, "states", "=cvde", same);
    int64_t most;
    const DLTensor *cu_seqlens = ffi_cu_seqlens(call, &most);
    in->scale = ffi_float(call, "scale", ffi_usual_scale(call));
    in->lower_bound = ffi_float(call, "lower_bound", -5);
    in->gate_form = ffi_int32(call, "gate_form", 0, 2, 0);
    in->beta_form = ffi_int32(call, "beta_form", 0, 2, 0);
    in->qk_l2norm = ffi_bool(call, "qk_l2norm");
    in->v_first = ffi_bool(call, "state_v_first");
    in->safe = ffi_bool(call, "safe_gate");
    in->segment = ffi_int32(call, "segment_chunks", -1, 1 << 24, 0);
    read_pools(call, in);
    if (!ffi_sequences(call, cu_seqlens, most, &in->sequences))
        return;
    const struct ffi_sequences *s = &in->sequences;
    check_pools(call, in);
    if ((in->initial && !in->slots_in) || (in->final && !in->slots_out))
        ffi_check_states(call, in->initial ? "initial_state" : "final_state", s);
    if (in->initial || in->final || in->states || in->ckpt_pool)
        ffi_check_square(call, "a state");
    if (in->states && ffi_dim(call, 'c') < s->chunks)
        ffi_fail(call, "ValueError", "states has %" PRId64 " chunks; %" PRId64 " are wanted",
                 ffi_dim(call, 'c'), s->chunks);
}

static struct gen_kda_pools pools_of(struct ffi_call *call, const struct prefill *in)
{
    return (struct gen_kda_pools){
        .slots_in = ffi_data(in->slots_in),
        .slots_out = ffi_data(in->slots_out),
        .has_initial = ffi_data(in->has_initial),
        .stride_in = ffi_pool_stride(call, in->initial, "initial_state"),
        .stride_out = ffi_pool_stride(call, in->final, "final_state"),
        .num_slots = in->initial || in->final ? ffi_size(call, 'n') : 0,
        .null_slot = in->null_slot,
        .ckpt_pool = ffi_data(in->ckpt_pool),
        .ckpt_begin = ffi_data(in->ckpt_begin),
        .ckpt_token = ffi_data(in->ckpt_token),
        .ckpt_slot = ffi_data(in->ckpt_slot),
        .ckpt_state_stride = ffi_pool_stride(call, in->ckpt_pool, "ckpt_pool"),
        .num_ckpt_slots = in->ckpt_pool ? ffi_size(call, 'k') : 0,
        .num_ckpts = in->ckpt_begin && in->ckpt_slot ? ffi_size(call, 'j') : 0,
        .ckpt_every = in->ckpt_every,
        .ckpt_stride = in->ckpt_slot && !in->ckpt_begin ? ffi_size(call, 'l') : 0,
    };
}

static gen_kda_prefill_args prefill_args(struct ffi_call *call, uint32_t tag,
                                         const struct prefill *in)
{
    const struct kda_inputs *kda = &in->kda;
    return (gen_kda_prefill_args){
        .base = {sizeof(gen_kda_prefill_args), tag},
        .q = ffi_data(kda->q),
        .k = ffi_data(kda->k),
        .v = ffi_data(kda->v),
        .g = ffi_data(kda->g),
        .beta = ffi_data(kda->beta),
        .A_log = ffi_data(kda->a_log),
        .dt_bias = ffi_data(kda->dt_bias),
        .cu_seqlens = in->sequences.cu_seqlens,
        .cu_seqlens_64 = in->sequences.cu_seqlens_64,
        .initial_state = ffi_data(in->initial),
        .final_state = ffi_data(in->final),
        .o = ffi_data(kda->o),
        .states = ffi_data(in->states),
        .q_stride = ffi_token_stride(call, kda->q, "q", 2),
        .k_stride = ffi_token_stride(call, kda->k, "k", 2),
        .v_stride = ffi_token_stride(call, kda->v, "v", 2),
        .g_stride = ffi_token_stride(call, kda->g, "g", kda->scalar ? 1 : 2),
        .beta_stride = ffi_token_stride(call, kda->beta, "beta", 1),
        .o_stride = ffi_token_stride(call, kda->o, "o", 2),
        .scale = in->scale,
        .lower_bound = in->lower_bound,
        .gate_form = in->gate_form,
        .beta_form = in->beta_form,
        .qk_l2norm = in->qk_l2norm,
        .state_layout = in->v_first ? GEN_KDA_STATE_VK : GEN_KDA_STATE_KV,
        .pools = in->pooled ? pools_of(call, in) : (struct gen_kda_pools){0},
    };
}

static int32_t prefill_state_dtype(const struct prefill *in)
{
    const DLTensor *const state = in->initial ? in->initial : in->final;
    return ffi_state_dtype(state ? state : in->ckpt_pool);
}

/* kda_prefill(library, flags, workspace, q, k, v, g, beta, o, A_log, dt_bias, initial_state,
 *             final_state, states, cu_seqlens, max_seqlen, scale, lower_bound, gate_form,
 *             beta_form, qk_l2norm, state_v_first, safe_gate, segment_chunks, slots_in, slots_out,
 *             has_initial, null_slot, ckpt_pool, ckpt_begin, ckpt_token, ckpt_slot, ckpt_every) */
static int run_prefill(const char *name, uint32_t tag, const TVMFFIAny *args, int32_t num_args,
                       TVMFFIAny *result)
{
    struct ffi_call call;
    struct prefill in;
    if (!ffi_begin(&call, name, args, num_args, 30, result))
        return -1;
    read_prefill(&call, tag == GEN_GDN_PREFILL, &in);
    if (call.failed)
        return -1;
    const gen_kda_prefill_problem problem = {
        .base = {sizeof problem, tag, call.flags, 0},
        .batch = in.sequences.batch,
        .seq_len = in.sequences.seq_len,
        .num_tokens = in.sequences.num_tokens,
        .num_qk_heads = ffi_size(&call, 'h'),
        .num_v_heads = ffi_size(&call, 'v'),
        .head_dim = ffi_size(&call, 'd'),
        .dtype = ffi_dtype(in.kda.q),
        .gate_dtype = ffi_dtype(in.kda.g),
        .beta_dtype = ffi_dtype(in.kda.beta),
        .safe_gate = in.safe,
        .segment_chunks = in.segment,
        .index_dtype = in.sequences.index_dtype,
        .state_pool = in.pooled,
        .state_dtype = in.pooled ? prefill_state_dtype(&in) : GEN_STATE_FP32,
    };
    const gen_kda_prefill_args a = prefill_args(&call, tag, &in);
    if (call.failed)
        return -1;
    return ffi_run(&call, &problem.base, &a.base);
}

int __tvm_ffi_kda_prefill(void *handle, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result)
{
    (void)handle;
    return run_prefill("kda_prefill", GEN_KDA_PREFILL, args, num_args, result);
}

/* The same, g of [batch, tokens, heads], dt_bias of [heads]. */
int __tvm_ffi_gdn_prefill(void *handle, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result)
{
    (void)handle;
    return run_prefill("gdn_prefill", GEN_GDN_PREFILL, args, num_args, result);
}
