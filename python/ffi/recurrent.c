/* la_decode, kda_decode and its like with a gate a head, gdn_decode: steps on states. */
#include "recurrent.h"

#include <attngen/gdn_decode.h>
#include <attngen/kda_decode.h>
#include <attngen/kda_ring_advance.h>
#include <attngen/la_decode.h>
#include <inttypes.h>

int FFI_EXPORT __tvm_ffi_la_decode(void *handle, const TVMFFIAny *args, int32_t num_args,
                                   TVMFFIAny *result);
int FFI_EXPORT __tvm_ffi_kda_decode(void *handle, const TVMFFIAny *args, int32_t num_args,
                                    TVMFFIAny *result);
int FFI_EXPORT __tvm_ffi_kda_ring_advance(void *handle, const TVMFFIAny *args, int32_t num_args,
                                          TVMFFIAny *result);
int FFI_EXPORT __tvm_ffi_kda_ring_accept(void *handle, const TVMFFIAny *args, int32_t num_args,
                                         TVMFFIAny *result);
int FFI_EXPORT __tvm_ffi_gdn_decode(void *handle, const TVMFFIAny *args, int32_t num_args,
                                    TVMFFIAny *result);

void ffi_check_square(struct ffi_call *call, const char *what)
{
    const int64_t rows = ffi_dim(call, 'd'), columns = ffi_dim(call, 'e');
    if (rows != columns && !call->failed)
        ffi_fail(call, "ValueError",
                 "%s is of %" PRId64 " x %" PRId64 "; %" PRId64 " x %" PRId64 " is wanted", what,
                 rows, columns, rows, rows);
}

/* la_decode(library, flags, workspace, q, k, v, o, decay, state, slots, scale, state_v_first,
 *           zero_padding, slots_out, null_slot) */
int __tvm_ffi_la_decode(void *handle, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result)
{
    (void)handle;
    struct ffi_call call;
    if (!ffi_begin(&call, "la_decode", args, num_args, 12, result))
        return -1;
    const DLTensor *q = ffi_tensor(&call, "q", "*hd", FFI_16_BITS);
    const uint32_t same = ffi_dtype_bit(q);
    const DLTensor *k = ffi_tensor(&call, "k", "*hd", same);
    const DLTensor *v = ffi_tensor(&call, "v", "*vd", same);
    const DLTensor *o = ffi_tensor(&call, "o", "*vd", same);
    const DLTensor *decay = ffi_tensor(&call, "decay", "=m", FFI_FP32);
    const DLTensor *state = ffi_tensor(&call, "state", "svde", FFI_FP32 | FFI_16_BITS);
    const DLTensor *slots = ffi_optional(&call, "slots", "=n", FFI_INT32);
    const float scale = ffi_float(&call, "scale", ffi_usual_scale(&call));
    const bool v_first = ffi_bool(&call, "state_v_first");
    const bool zero = ffi_bool(&call, "zero_padding");
    const DLTensor *slots_out = ffi_optional(&call, "slots_out", "=n", FFI_INT32);
    const int32_t null_slot = ffi_int32(&call, "null_slot", -1, INT32_MAX - 1, -1) + 1;
    const int64_t stride = ffi_pool_stride(&call, state, "state");
    if (call.failed)
        return -1;
    const int64_t rows = ffi_dim(&call, 'b') * ffi_dim(&call, 't');
    ffi_set_dim(&call, 'r', rows, "q");
    if ((slots || slots_out) && ffi_dim(&call, 'n') != rows)
        return ffi_fail(&call, "ValueError", "%s has %d entries; %d are wanted, one a row of q",
                        slots ? "slots" : "slots_out", (int)ffi_dim(&call, 'n'), (int)rows);
    ffi_check_square(&call, "state");
    const gen_la_decode_problem problem = {
        .base = {sizeof problem, GEN_LA_DECODE, call.flags, 0},
        .batch = ffi_size(&call, 'r'),
        .num_qk_heads = ffi_size(&call, 'h'),
        .num_v_heads = ffi_size(&call, 'v'),
        .head_dim = ffi_size(&call, 'd'),
        .dtype = ffi_dtype(q),
        .state_layout = v_first ? GEN_LA_STATE_VK : GEN_LA_STATE_KV,
        .state_dtype = ffi_state_dtype(state),
        .pool = slots_out || null_slot || stride != 0,
    };
    const gen_la_decode_args a = {
        .base = {sizeof a, GEN_LA_DECODE},
        .q = ffi_data(q),
        .k = ffi_data(k),
        .v = ffi_data(v),
        .o = ffi_data(o),
        .decay = ffi_data(decay),
        .state = ffi_data(state),
        .slots = ffi_data(slots),
        .q_stride = ffi_token_stride(&call, q, "q", 2),
        .k_stride = ffi_token_stride(&call, k, "k", 2),
        .v_stride = ffi_token_stride(&call, v, "v", 2),
        .o_stride = ffi_token_stride(&call, o, "o", 2),
        .num_slots = ffi_size(&call, 's'),
        .num_decays = ffi_size(&call, 'm'),
        .scale = scale,
        .zero_padding = zero,
        .null_slot = null_slot,
        .slots_out = ffi_data(slots_out),
        .state_stride = stride,
    };
    return ffi_run(&call, &problem.base, &a.base);
}

struct kda_inputs ffi_kda_inputs(struct ffi_call *call, bool scalar)
{
    struct kda_inputs in = {.scalar = scalar};
    in.q = ffi_tensor(call, "q", "*hd", FFI_16_BITS);
    const uint32_t same = ffi_dtype_bit(in.q);
    in.k = ffi_tensor(call, "k", "*hd", same);
    in.v = ffi_tensor(call, "v", "*vd", same);
    in.g = ffi_tensor(call, "g", scalar ? "*v" : "*vd", same | FFI_FP32);
    in.beta = ffi_tensor(call, "beta", "*v", same | FFI_FP32);
    in.o = ffi_tensor(call, "o", "*vd", same);
    in.a_log = ffi_optional(call, "A_log", "=v", FFI_FP32);
    in.dt_bias = ffi_optional(call, "dt_bias", scalar ? "=v" : "=vd", FFI_FP32);
    return in;
}

/* Columns of the table of slots. */
static int32_t slots_stride(struct ffi_call *call, const DLTensor *slots)
{
    if (!slots || slots->ndim == 1)
        return slots != NULL;
    const int64_t stride = slots->shape[0] > 1 ? ffi_stride(slots, 0) : slots->shape[1];
    if (stride < slots->shape[1] || stride > INT32_MAX)
        ffi_fail(call, "ValueError", "slots has stride %d from row to row; .contiguous() mends it",
                 (int)stride);
    return call->failed ? 0 : (int32_t)stride;
}

struct decode {
    struct kda_inputs kda;
    const DLTensor *state, *slots, *accepted, *cu_seqlens, *slots_out;
    const DLTensor *ring_k, *ring_g, *ring_u, *ring_fill, *ring_base, *flush; /* or NULL */
    float scale, lower_bound;
    int32_t gate_form, beta_form, write, null_slot, ring_len;
    bool qk_l2norm, v_first, zero;
};

/* Sets the letters r, rows; m, the most tokens of a row; a, all tokens. */
static void count_rows(struct ffi_call *call, const struct decode *in, int64_t most)
{
    if (call->failed)
        return;
    const int64_t tokens = ffi_dim(call, 'b') * ffi_dim(call, 't');
    ffi_set_dim(call, 'a', tokens, "q");
    if (in->cu_seqlens) {
        ffi_set_dim(call, 'r', ffi_elements(in->cu_seqlens) - 1, "cu_seqlens");
        ffi_set_dim(call, 'm', most == FFI_NO_INT ? GEN_KDA_DECODE_MOST_TOKENS : most,
                    "num_tokens");
    } else {
        /* [tokens, ...] is one token of each row. */
        const bool rows = in->kda.q->ndim == 4;
        ffi_set_dim(call, 'r', rows ? ffi_dim(call, 'b') : tokens, "q");
        ffi_set_dim(call, 'm', rows ? ffi_dim(call, 't') : 1, "q");
    }
    const int64_t rows = ffi_dim(call, 'r');
    if (rows < 0 || ((in->slots || in->accepted || in->slots_out) && ffi_dim(call, 'n') != rows))
        ffi_fail(call, "ValueError", "%s has %" PRId64 " rows; %" PRId64 " are wanted",
                 in->slots       ? "slots"
                 : in->accepted  ? "accepted"
                 : in->slots_out ? "slots_out"
                                 : "cu_seqlens",
                 ffi_dim(call, 'n'), rows);
}

/* [slots, heads, records, K]; the records' tensors are all there or none is. */
static void read_ring(struct ffi_call *call, struct decode *in)
{
    in->ring_k = ffi_optional(call, "ring_k", "shid", ffi_dtype_bit(in->kda.q));
    in->ring_g =
        ffi_optional(call, "ring_g", in->kda.scalar ? "=svi" : "svid", ffi_dtype_bit(in->kda.g));
    in->ring_u = ffi_optional(call, "ring_u", "svid", FFI_FP32 | FFI_FP16);
    in->ring_fill = ffi_optional(call, "ring_fill", "=s", FFI_INT32);
    in->ring_base = ffi_optional(call, "ring_base", "=s", FFI_INT32);
    in->flush = ffi_optional(call, "flush", "=n", FFI_UINT8);
    in->ring_len = ffi_int32(call, "ring_len", 0, 32, 0);
}

static void read_decode(struct ffi_call *call, bool scalar, struct decode *in)
{
    *in = (struct decode){0};
    in->kda = ffi_kda_inputs(call, scalar);
    in->state = ffi_tensor(call, "state", "svde", FFI_FP32 | FFI_16_BITS);
    in->slots = ffi_optional(call, "slots", ffi_next_rank(call) == 1 ? "=n" : "nc", FFI_INT32);
    in->accepted = ffi_optional(call, "accepted", "=n", FFI_INT32);
    in->cu_seqlens = ffi_index(call, "cu_seqlens", "=u");
    const int64_t most = ffi_optional_int(call, "num_tokens");
    in->scale = ffi_float(call, "scale", ffi_usual_scale(call));
    in->lower_bound = ffi_float(call, "lower_bound", 0);
    in->gate_form = ffi_int32(call, "gate_form", 0, 2, 0);
    in->beta_form = ffi_int32(call, "beta_form", 0, 2, 0);
    in->qk_l2norm = ffi_bool(call, "qk_l2norm");
    in->v_first = ffi_bool(call, "state_v_first");
    in->write = ffi_int32(call, "write", 0, 3, 0);
    in->zero = ffi_bool(call, "zero_padding");
    in->slots_out =
        ffi_optional(call, "slots_out", ffi_next_rank(call) == 1 ? "=n" : "nw", FFI_INT32);
    /* The slot's number; the library wants one more, and 0 for none. */
    in->null_slot = ffi_int32(call, "null_slot", -1, INT32_MAX - 1, -1) + 1;
    read_ring(call, in);
    ffi_check_square(call, "state");
    count_rows(call, in, most);
}

int64_t ffi_pool_stride(struct ffi_call *call, const DLTensor *pool, const char *name)
{
    if (call->failed || !pool)
        return 0;
    const int64_t head = pool->shape[2] * pool->shape[3], slot = pool->shape[1] * head;
    if ((pool->shape[2] > 1 && ffi_stride(pool, 2) != pool->shape[3]) ||
        (pool->shape[1] > 1 && ffi_stride(pool, 1) != head)) {
        ffi_fail(call, "ValueError", "%s's heads are not contiguous within a slot", name);
        return 0;
    }
    const int64_t stride = pool->shape[0] > 1 ? ffi_stride(pool, 0) : slot;
    return stride == slot ? 0 : stride;
}

int32_t ffi_state_dtype(const DLTensor *state)
{
    const int32_t dtype = ffi_dtype(state);
    return dtype == GEN_DTYPE_FP32   ? GEN_STATE_FP32
           : dtype == GEN_DTYPE_FP16 ? GEN_STATE_FP16
                                     : GEN_STATE_BF16;
}

static gen_kda_decode_args decode_args(struct ffi_call *call, uint32_t tag, const struct decode *in)
{
    const struct kda_inputs *kda = &in->kda;
    return (gen_kda_decode_args){
        .base = {sizeof(gen_kda_decode_args), tag},
        .q = ffi_data(kda->q),
        .k = ffi_data(kda->k),
        .v = ffi_data(kda->v),
        .g = ffi_data(kda->g),
        .beta = ffi_data(kda->beta),
        .o = ffi_data(kda->o),
        .A_log = ffi_data(kda->a_log),
        .dt_bias = ffi_data(kda->dt_bias),
        .state = ffi_data(in->state),
        .slots = ffi_data(in->slots),
        .accepted = ffi_data(in->accepted),
        .cu_seqlens = ffi_index_32(in->cu_seqlens),
        .cu_seqlens_64 = ffi_index_64(in->cu_seqlens),
        .q_stride = ffi_token_stride(call, kda->q, "q", 2),
        .k_stride = ffi_token_stride(call, kda->k, "k", 2),
        .v_stride = ffi_token_stride(call, kda->v, "v", 2),
        .g_stride = ffi_token_stride(call, kda->g, "g", kda->scalar ? 1 : 2),
        .beta_stride = ffi_token_stride(call, kda->beta, "beta", 1),
        .o_stride = ffi_token_stride(call, kda->o, "o", 2),
        .total_tokens = in->cu_seqlens ? ffi_size(call, 'a') : 0,
        .num_slots = ffi_size(call, 's'),
        .slots_stride = slots_stride(call, in->slots),
        .slots_out = ffi_data(in->slots_out),
        .slots_out_stride = slots_stride(call, in->slots_out),
        .null_slot = in->null_slot,
        .state_stride = ffi_pool_stride(call, in->state, "state"),
        .write = in->write,
        .gate_form = in->gate_form,
        .beta_form = in->beta_form,
        .qk_l2norm = in->qk_l2norm,
        .zero_padding = in->zero,
        .scale = in->scale,
        .lower_bound = in->lower_bound,
        .ring_k = ffi_data(in->ring_k),
        .ring_g = ffi_data(in->ring_g),
        .ring_u = ffi_data(in->ring_u),
        .ring_fill = ffi_data(in->ring_fill),
        .ring_base = ffi_data(in->ring_base),
        .flush = ffi_data(in->flush),
        .ring_k_stride = ffi_pool_stride(call, in->ring_k, "ring_k"),
        .ring_g_stride = kda->scalar ? 0 : ffi_pool_stride(call, in->ring_g, "ring_g"),
        .ring_u_stride = ffi_pool_stride(call, in->ring_u, "ring_u"),
    };
}

/* kda_decode(library, flags, workspace, q, k, v, g, beta, o, A_log, dt_bias, state, slots,
 *            accepted, cu_seqlens, num_tokens, scale, lower_bound, gate_form, beta_form, qk_l2norm,
 *            state_v_first, write, zero_padding, slots_out, null_slot, ring_k,
 *            ring_g, ring_u, ring_fill, ring_base, flush, ring_len)
 * q is of [rows, tokens of each, ...], or with cu_seqlens of [tokens, ...], of which a row has
 * num_tokens at most. */
static int run_decode(const char *name, uint32_t tag, const TVMFFIAny *args, int32_t num_args,
                      TVMFFIAny *result)
{
    struct ffi_call call;
    struct decode in;
    if (!ffi_begin(&call, name, args, num_args, 30, result))
        return -1;
    read_decode(&call, tag == GEN_GDN_DECODE, &in);
    if (call.failed)
        return -1;
    const gen_kda_decode_problem problem = {
        .base = {sizeof problem, tag, call.flags, 0},
        .batch = ffi_size(&call, 'r'),
        .num_tokens = ffi_size(&call, 'm'),
        .num_qk_heads = ffi_size(&call, 'h'),
        .num_v_heads = ffi_size(&call, 'v'),
        .head_dim = ffi_size(&call, 'd'),
        .dtype = ffi_dtype(in.kda.q),
        .gate_dtype = ffi_dtype(in.kda.g),
        .beta_dtype = ffi_dtype(in.kda.beta),
        .state_layout = in.v_first ? GEN_KDA_STATE_VK : GEN_KDA_STATE_KV,
        .index_dtype = call.index_dtype,
        .state_dtype = ffi_state_dtype(in.state),
        .ring_len = in.ring_len,
        .ring_size = in.ring_k ? ffi_size(&call, 'i') : 0,
        .ring_dtype = in.ring_u ? ffi_state_dtype(in.ring_u) : GEN_STATE_FP32,
        .pool = in.slots_out || in.null_slot || ffi_pool_stride(&call, in.state, "state") != 0,
    };
    const gen_kda_decode_args a = decode_args(&call, tag, &in);
    if (call.failed)
        return -1;
    return ffi_run(&call, &problem.base, &a.base);
}

int __tvm_ffi_kda_decode(void *handle, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result)
{
    (void)handle;
    return run_decode("kda_decode", GEN_KDA_DECODE, args, num_args, result);
}

/* kda_ring_advance(library, flags, workspace, ring_fill, ring_base, slots, flush, null_slot,
 *                  num_tokens, ring_len, ring_size) */
int __tvm_ffi_kda_ring_advance(void *handle, const TVMFFIAny *args, int32_t num_args,
                               TVMFFIAny *result)
{
    struct ffi_call call;
    (void)handle;
    if (!ffi_begin(&call, "kda_ring_advance", args, num_args, 8, result))
        return -1;
    const DLTensor *fill = ffi_tensor(&call, "ring_fill", "=s", FFI_INT32);
    const DLTensor *base = ffi_tensor(&call, "ring_base", "=s", FFI_INT32);
    const DLTensor *slots = ffi_optional(&call, "slots", "=n", FFI_INT32);
    const DLTensor *flush = ffi_optional(&call, "flush", "=n", FFI_UINT8);
    const int32_t null_slot = ffi_int32(&call, "null_slot", -1, INT32_MAX - 1, -1) + 1;
    const int32_t num_tokens = ffi_int32(&call, "num_tokens", 0, 1, 1);
    const int32_t ring_len = ffi_int32(&call, "ring_len", 2, 32, 2);
    const int32_t ring_size = ffi_int32(&call, "ring_size", 0, 32, 0);
    if (call.failed)
        return -1;
    const gen_kda_ring_advance_problem problem = {
        .base = {sizeof problem, GEN_KDA_RING_ADVANCE, call.flags, 0},
        .batch = ffi_size(&call, slots || flush ? 'n' : 's'),
        .num_tokens = num_tokens,
        .ring_len = ring_len,
        .ring_size = ring_size,
    };
    const gen_kda_ring_advance_args a = {
        .base = {sizeof a, GEN_KDA_RING_ADVANCE},
        .slots = ffi_data(slots),
        .flush = ffi_data(flush),
        .ring_base = ffi_data(base),
        .ring_fill = ffi_data(fill),
        .num_slots = ffi_size(&call, 's'),
        .null_slot = null_slot,
    };
    return call.failed ? -1 : ffi_run(&call, &problem.base, &a.base);
}

/* The same as kda_decode, g of [rows, tokens of each, heads], dt_bias of [heads]. */
int __tvm_ffi_gdn_decode(void *handle, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result)
{
    (void)handle;
    return run_decode("gdn_decode", GEN_GDN_DECODE, args, num_args, result);
}

/* kda_ring_accept(library, flags, workspace, ring_fill, ring_base, slots, flush, null_slot,
 *                 num_tokens, ring_size, accepted): kda_ring_advance behind several tokens */
int __tvm_ffi_kda_ring_accept(void *handle, const TVMFFIAny *args, int32_t num_args,
                              TVMFFIAny *result)
{
    struct ffi_call call;
    (void)handle;
    if (!ffi_begin(&call, "kda_ring_accept", args, num_args, 8, result))
        return -1;
    const DLTensor *fill = ffi_tensor(&call, "ring_fill", "=s", FFI_INT32);
    const DLTensor *base = ffi_tensor(&call, "ring_base", "=s", FFI_INT32);
    const DLTensor *slots = ffi_optional(&call, "slots", "=n", FFI_INT32);
    const DLTensor *flush = ffi_optional(&call, "flush", "=n", FFI_UINT8);
    const int32_t null_slot = ffi_int32(&call, "null_slot", -1, INT32_MAX - 1, -1) + 1;
    const int32_t num_tokens = ffi_int32(&call, "num_tokens", 2, 16, 2);
    const int32_t ring_size = ffi_int32(&call, "ring_size", 4, 32, 4);
    const DLTensor *accepted = ffi_optional(&call, "accepted", "=n", FFI_INT32);
    if (call.failed)
        return -1;
    const gen_kda_ring_advance_problem problem = {
        .base = {sizeof problem, GEN_KDA_RING_ADVANCE, call.flags, 0},
        .batch = ffi_size(&call, slots || flush || accepted ? 'n' : 's'),
        .num_tokens = num_tokens,
        .ring_len = ring_size,
    };
    const gen_kda_ring_advance_args a = {
        .base = {sizeof a, GEN_KDA_RING_ADVANCE},
        .slots = ffi_data(slots),
        .flush = ffi_data(flush),
        .ring_base = ffi_data(base),
        .ring_fill = ffi_data(fill),
        .num_slots = ffi_size(&call, 's'),
        .null_slot = null_slot,
        .accepted = ffi_data(accepted),
    };
    return call.failed ? -1 : ffi_run(&call, &problem.base, &a.base);
}
