/* The five stages of KDA's prefill: one problem, five operators. */
#include "stages.h"

#include <attngen/kda_chunk_h.h>
#include <attngen/kda_chunk_o.h>
#include <attngen/kda_gate.h>
#include <attngen/kda_recompute_wu.h>
#include <inttypes.h>
#include <math.h>

int FFI_EXPORT __tvm_ffi_kda_gate(void *handle, const TVMFFIAny *args, int32_t num_args,
                                  TVMFFIAny *result);
int FFI_EXPORT __tvm_ffi_kda_chunk_intra(void *handle, const TVMFFIAny *args, int32_t num_args,
                                         TVMFFIAny *result);
int FFI_EXPORT __tvm_ffi_kda_recompute_wu(void *handle, const TVMFFIAny *args, int32_t num_args,
                                          TVMFFIAny *result);
int FFI_EXPORT __tvm_ffi_kda_chunk_h(void *handle, const TVMFFIAny *args, int32_t num_args,
                                     TVMFFIAny *result);
int FFI_EXPORT __tvm_ffi_kda_chunk_o(void *handle, const TVMFFIAny *args, int32_t num_args,
                                     TVMFFIAny *result);

/* ---- sequences ------------------------------------------------------------- */

bool ffi_sequences(struct ffi_call *call, const DLTensor *cu_seqlens, int64_t most,
                   struct ffi_sequences *s)
{
    *s = (struct ffi_sequences){0};
    if (call->failed)
        return false;
    const int64_t batch = ffi_dim(call, 'b'), tokens = ffi_dim(call, 't');
    if (!cu_seqlens) {
        s->batch = ffi_size(call, 'b');
        s->seq_len = ffi_size(call, 't');
        s->chunks = batch * ((tokens + FFI_CHUNK - 1) / FFI_CHUNK);
        return !call->failed;
    }
    const int64_t sequences = ffi_elements(cu_seqlens) - 1;
    if (batch != 1 || sequences < 0 || sequences > INT32_MAX || tokens > INT32_MAX) {
        ffi_fail(call, "ValueError",
                 "with cu_seqlens of [sequences + 1] the batch is 1; it is %" PRId64
                 ", and cu_seqlens has %" PRId64 " entries",
                 batch, sequences + 1);
        return false;
    }
    if (most != FFI_NO_INT && (most < 0 || most > INT32_MAX)) {
        ffi_fail(call, "ValueError", "max_seqlen is %" PRId64 "; allowed: 0 to %d", most,
                 INT32_MAX);
        return false;
    }
    /* Without max_seqlen a sequence may have all tokens. */
    s->batch = (int32_t)sequences;
    s->seq_len = (int32_t)(most == FFI_NO_INT || most > tokens ? tokens : most);
    s->num_tokens = (int32_t)tokens;
    s->chunks = tokens / FFI_CHUNK + sequences;
    if (tokens) {
        s->cu_seqlens = ffi_index_32(cu_seqlens);
        s->cu_seqlens_64 = ffi_index_64(cu_seqlens);
        s->index_dtype = call->index_dtype;
    }
    return true;
}

gen_kda_stage_problem ffi_stage_problem(struct ffi_call *call, uint32_t family,
                                        const struct ffi_sequences *s, int32_t dtype)
{
    /* A stage whose tensors have no query heads takes as many as value heads. */
    const char heads = ffi_dim(call, 'h') < 0 ? 'v' : 'h';
    return (gen_kda_stage_problem){
        .base = {sizeof(gen_kda_stage_problem), family, call->flags, 0},
        .batch = s->batch,
        .seq_len = s->seq_len,
        .num_tokens = s->num_tokens,
        .num_qk_heads = ffi_size(call, heads),
        .num_v_heads = ffi_size(call, 'v'),
        .head_dim = ffi_size(call, 'd'),
        .dtype = dtype,
        .gate_dtype = GEN_DTYPE_FP32,
        .beta_dtype = GEN_DTYPE_FP32,
        .index_dtype = s->index_dtype,
    };
}

const DLTensor *ffi_cu_seqlens(struct ffi_call *call, int64_t *most)
{
    const DLTensor *cu_seqlens = ffi_index(call, "cu_seqlens", "=u");
    *most = ffi_optional_int(call, "max_seqlen");
    return cu_seqlens;
}

float ffi_usual_scale(const struct ffi_call *call)
{
    return ffi_dim(call, 'd') > 0 ? 1 / sqrtf((float)ffi_dim(call, 'd')) : 1;
}

uint32_t ffi_dtype_bit(const DLTensor *t)
{
    return t ? 1u << ffi_dtype(t) : FFI_16_BITS;
}

/* ---- stages ---------------------------------------------------------------- */

/* kda_gate(library, flags, workspace, g, gk, A_log, dt_bias, q, k, q_norm, k_norm, q_rstd, k_rstd,
 *          cu_seqlens, max_seqlen, gate_form, lower_bound) */
int __tvm_ffi_kda_gate(void *handle, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result)
{
    (void)handle;
    struct ffi_call call;
    int64_t most;
    struct ffi_sequences s;
    if (!ffi_begin(&call, "kda_gate", args, num_args, 14, result))
        return -1;
    const DLTensor *g = ffi_tensor(&call, "g", "*vd", FFI_16_BITS | FFI_FP32);
    const DLTensor *gk = ffi_tensor(&call, "gk", "=*vd", FFI_FP32);
    const DLTensor *a_log = ffi_optional(&call, "A_log", "=v", FFI_FP32);
    const DLTensor *dt_bias = ffi_optional(&call, "dt_bias", "=vd", FFI_FP32);
    const uint32_t dtypes = g && ffi_dtype(g) != GEN_DTYPE_FP32 ? ffi_dtype_bit(g) : FFI_16_BITS;
    const DLTensor *q = ffi_optional(&call, "q", "*hd", dtypes);
    const DLTensor *k = ffi_optional(&call, "k", "*hd", ffi_dtype_bit(q));
    const DLTensor *q_norm = ffi_optional(&call, "q_norm", "=*hd", ffi_dtype_bit(q));
    const DLTensor *k_norm = ffi_optional(&call, "k_norm", "=*hd", ffi_dtype_bit(q));
    const DLTensor *q_rstd = ffi_optional(&call, "q_rstd", "=*h", FFI_FP32);
    const DLTensor *k_rstd = ffi_optional(&call, "k_rstd", "=*h", FFI_FP32);
    const DLTensor *cu_seqlens = ffi_cu_seqlens(&call, &most);
    const int32_t gate_form = ffi_int32(&call, "gate_form", 0, 2, 0);
    const float lower_bound = ffi_float(&call, "lower_bound", -5);
    if (!ffi_sequences(&call, cu_seqlens, most, &s))
        return -1;
    const int32_t dtype = q                                ? ffi_dtype(q)
                          : ffi_dtype(g) == GEN_DTYPE_FP32 ? GEN_DTYPE_BF16
                                                           : ffi_dtype(g);
    gen_kda_gate_problem problem = ffi_stage_problem(&call, GEN_KDA_GATE, &s, dtype);
    problem.gate_dtype = ffi_dtype(g);
    const gen_kda_gate_args a = {
        .base = {sizeof a, GEN_KDA_GATE},
        .g = ffi_data(g),
        .A_log = ffi_data(a_log),
        .dt_bias = ffi_data(dt_bias),
        .q = ffi_data(q),
        .k = ffi_data(k),
        .cu_seqlens = s.cu_seqlens,
        .cu_seqlens_64 = s.cu_seqlens_64,
        .gk = ffi_data(gk),
        .q_norm = ffi_data(q_norm),
        .k_norm = ffi_data(k_norm),
        .q_rstd = ffi_data(q_rstd),
        .k_rstd = ffi_data(k_rstd),
        .g_stride = ffi_token_stride(&call, g, "g", 2),
        .q_stride = ffi_token_stride(&call, q, "q", 2),
        .k_stride = ffi_token_stride(&call, k, "k", 2),
        .lower_bound = lower_bound,
        .gate_form = gate_form,
    };
    return ffi_run(&call, &problem.base, &a.base);
}

/* kda_chunk_intra(library, flags, workspace, q, k, v, gk, beta, a_qk, a_kk, w, u, kg, qg,
 *                 cu_seqlens, max_seqlen, scale, safe_gate) */
int __tvm_ffi_kda_chunk_intra(void *handle, const TVMFFIAny *args, int32_t num_args,
                              TVMFFIAny *result)
{
    (void)handle;
    struct ffi_call call;
    int64_t most;
    struct ffi_sequences s;
    if (!ffi_begin(&call, "kda_chunk_intra", args, num_args, 15, result))
        return -1;
    ffi_set_dim(&call, 'c', FFI_CHUNK, "a chunk");
    const DLTensor *q = ffi_tensor(&call, "q", "*hd", FFI_16_BITS);
    const uint32_t same = ffi_dtype_bit(q);
    const DLTensor *k = ffi_tensor(&call, "k", "*hd", same);
    const DLTensor *v = ffi_optional(&call, "v", "*vd", same);
    const DLTensor *gk = ffi_tensor(&call, "gk", "=*vd", FFI_FP32);
    const DLTensor *beta = ffi_tensor(&call, "beta", "*v", same | FFI_FP32);
    const DLTensor *a_qk = ffi_tensor(&call, "a_qk", "=*vc", same);
    const DLTensor *a_kk = ffi_tensor(&call, "a_kk", "=*vc", same);
    const DLTensor *w = ffi_optional(&call, "w", "=*vd", same);
    const DLTensor *u = ffi_optional(&call, "u", "=*vd", same);
    const DLTensor *kg = ffi_optional(&call, "kg", "=*vd", same);
    const DLTensor *qg = ffi_optional(&call, "qg", "=*vd", same);
    const DLTensor *cu_seqlens = ffi_cu_seqlens(&call, &most);
    const float scale = ffi_float(&call, "scale", ffi_usual_scale(&call));
    const bool safe = ffi_bool(&call, "safe_gate");
    if (!ffi_sequences(&call, cu_seqlens, most, &s))
        return -1;
    gen_kda_chunk_intra_problem problem =
        ffi_stage_problem(&call, GEN_KDA_CHUNK_INTRA, &s, ffi_dtype(q));
    problem.beta_dtype = ffi_dtype(beta);
    problem.safe_gate = safe;
    const gen_kda_chunk_intra_args a = {
        .base = {sizeof a, GEN_KDA_CHUNK_INTRA},
        .q = ffi_data(q),
        .k = ffi_data(k),
        .v = ffi_data(v),
        .gk = ffi_data(gk),
        .beta = ffi_data(beta),
        .cu_seqlens = s.cu_seqlens,
        .cu_seqlens_64 = s.cu_seqlens_64,
        .a_qk = ffi_data(a_qk),
        .a_kk = ffi_data(a_kk),
        .w = ffi_data(w),
        .u = ffi_data(u),
        .kg = ffi_data(kg),
        .qg = ffi_data(qg),
        .q_stride = ffi_token_stride(&call, q, "q", 2),
        .k_stride = ffi_token_stride(&call, k, "k", 2),
        .v_stride = ffi_token_stride(&call, v, "v", 2),
        .beta_stride = ffi_token_stride(&call, beta, "beta", 1),
        .scale = scale,
    };
    return ffi_run(&call, &problem.base, &a.base);
}

/* kda_recompute_wu(library, flags, workspace, q, k, v, gk, beta, a_kk, w, u, kg, qg, cu_seqlens,
 *                  max_seqlen) */
int __tvm_ffi_kda_recompute_wu(void *handle, const TVMFFIAny *args, int32_t num_args,
                               TVMFFIAny *result)
{
    (void)handle;
    struct ffi_call call;
    int64_t most;
    struct ffi_sequences s;
    if (!ffi_begin(&call, "kda_recompute_wu", args, num_args, 12, result))
        return -1;
    ffi_set_dim(&call, 'c', FFI_CHUNK, "a chunk");
    const DLTensor *q = ffi_optional(&call, "q", "*hd", FFI_16_BITS);
    const DLTensor *k = ffi_tensor(&call, "k", "*hd", ffi_dtype_bit(q));
    const uint32_t same = ffi_dtype_bit(k);
    const DLTensor *v = ffi_tensor(&call, "v", "*vd", same);
    const DLTensor *gk = ffi_tensor(&call, "gk", "=*vd", FFI_FP32);
    const DLTensor *beta = ffi_tensor(&call, "beta", "*v", same | FFI_FP32);
    const DLTensor *a_kk = ffi_tensor(&call, "a_kk", "=*vc", same);
    const DLTensor *w = ffi_tensor(&call, "w", "=*vd", same);
    const DLTensor *u = ffi_tensor(&call, "u", "=*vd", same);
    const DLTensor *kg = ffi_optional(&call, "kg", "=*vd", same);
    const DLTensor *qg = ffi_optional(&call, "qg", "=*vd", same);
    const DLTensor *cu_seqlens = ffi_cu_seqlens(&call, &most);
    if (!ffi_sequences(&call, cu_seqlens, most, &s))
        return -1;
    gen_kda_recompute_wu_problem problem =
        ffi_stage_problem(&call, GEN_KDA_RECOMPUTE_WU, &s, ffi_dtype(k));
    problem.beta_dtype = ffi_dtype(beta);
    const gen_kda_recompute_wu_args a = {
        .base = {sizeof a, GEN_KDA_RECOMPUTE_WU},
        .q = ffi_data(q),
        .k = ffi_data(k),
        .v = ffi_data(v),
        .gk = ffi_data(gk),
        .beta = ffi_data(beta),
        .a_kk = ffi_data(a_kk),
        .cu_seqlens = s.cu_seqlens,
        .cu_seqlens_64 = s.cu_seqlens_64,
        .w = ffi_data(w),
        .u = ffi_data(u),
        .kg = ffi_data(kg),
        .qg = ffi_data(qg),
        .q_stride = ffi_token_stride(&call, q, "q", 2),
        .k_stride = ffi_token_stride(&call, k, "k", 2),
        .v_stride = ffi_token_stride(&call, v, "v", 2),
        .beta_stride = ffi_token_stride(&call, beta, "beta", 1),
    };
    return ffi_run(&call, &problem.base, &a.base);
}

int32_t ffi_chunks(struct ffi_call *call, const DLTensor *h, const char *name,
                   const struct ffi_sequences *s, int rank)
{
    if (call->failed)
        return 0;
    int64_t chunks = 1;
    for (int i = 0; i < h->ndim - rank; i++)
        chunks *= h->shape[i];
    const bool packed = s->cu_seqlens || s->cu_seqlens_64;
    if (packed ? chunks == 0 : chunks < s->chunks)
        ffi_fail(call, "ValueError", "%s has %" PRId64 " chunks; wanted are %s%" PRId64, name,
                 chunks, packed ? "those of all sequences, at most " : "", s->chunks);
    else if (chunks > INT32_MAX)
        ffi_fail(call, "ValueError", "%s has %" PRId64 " chunks; allowed: 0 to %d", name, chunks,
                 INT32_MAX);
    return call->failed ? 0 : (int32_t)chunks;
}

void ffi_check_states(struct ffi_call *call, const char *name, const struct ffi_sequences *s)
{
    if (ffi_dim(call, 'n') != s->batch && !call->failed)
        ffi_fail(call, "ValueError", "%s has %d states; %d are wanted, one a sequence", name,
                 (int)ffi_dim(call, 'n'), s->batch);
}

/* kda_chunk_h(library, flags, workspace, kg, w, u, gk, initial_state, h, v_new, final_state,
 *             cu_seqlens, max_seqlen, state_v_first) */
int __tvm_ffi_kda_chunk_h(void *handle, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result)
{
    (void)handle;
    struct ffi_call call;
    int64_t most;
    struct ffi_sequences s;
    if (!ffi_begin(&call, "kda_chunk_h", args, num_args, 11, result))
        return -1;
    const DLTensor *kg = ffi_tensor(&call, "kg", "=*vd", FFI_16_BITS);
    const uint32_t same = ffi_dtype_bit(kg);
    const DLTensor *w = ffi_tensor(&call, "w", "=*vd", same);
    const DLTensor *u = ffi_tensor(&call, "u", "=*vd", same);
    const DLTensor *gk = ffi_tensor(&call, "gk", "=*vd", FFI_FP32);
    if (!call.failed)
        ffi_set_dim(&call, 'e', ffi_dim(&call, 'd'), "kg");
    const DLTensor *initial = ffi_optional(&call, "initial_state", "=nvde", FFI_FP32);
    const DLTensor *h =
        ffi_tensor(&call, "h", ffi_next_rank(&call) == 5 ? "=yzvde" : "=zvde", same);
    const DLTensor *v_new = ffi_tensor(&call, "v_new", "=*vd", same);
    const DLTensor *final = ffi_optional(&call, "final_state", "=nvde", FFI_FP32);
    const DLTensor *cu_seqlens = ffi_cu_seqlens(&call, &most);
    const bool v_first = ffi_bool(&call, "state_v_first");
    if (!ffi_sequences(&call, cu_seqlens, most, &s))
        return -1;
    if (initial || final)
        ffi_check_states(&call, initial ? "initial_state" : "final_state", &s);
    if (call.failed)
        return -1;
    const gen_kda_chunk_h_problem problem =
        ffi_stage_problem(&call, GEN_KDA_CHUNK_H, &s, ffi_dtype(kg));
    const gen_kda_chunk_h_args a = {
        .base = {sizeof a, GEN_KDA_CHUNK_H},
        .kg = ffi_data(kg),
        .w = ffi_data(w),
        .u = ffi_data(u),
        .gk = ffi_data(gk),
        .initial_state = ffi_data(initial),
        .cu_seqlens = s.cu_seqlens,
        .cu_seqlens_64 = s.cu_seqlens_64,
        .h = ffi_data(h),
        .v_new = ffi_data(v_new),
        .final_state = ffi_data(final),
        .num_chunks = ffi_chunks(&call, h, "h", &s, 3),
        .state_layout = v_first ? GEN_KDA_STATE_VK : GEN_KDA_STATE_KV,
    };
    return ffi_run(&call, &problem.base, &a.base);
}

/* kda_chunk_o(library, flags, workspace, q, v_new, gk, a_qk, h, o, cu_seqlens, max_seqlen, scale,
 *             state_v_first) */
int __tvm_ffi_kda_chunk_o(void *handle, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result)
{
    (void)handle;
    struct ffi_call call;
    int64_t most;
    struct ffi_sequences s;
    if (!ffi_begin(&call, "kda_chunk_o", args, num_args, 10, result))
        return -1;
    ffi_set_dim(&call, 'c', FFI_CHUNK, "a chunk");
    const DLTensor *q = ffi_tensor(&call, "q", "*hd", FFI_16_BITS);
    const uint32_t same = ffi_dtype_bit(q);
    const DLTensor *v_new = ffi_tensor(&call, "v_new", "=*vd", same);
    const DLTensor *gk = ffi_tensor(&call, "gk", "=*vd", FFI_FP32);
    const DLTensor *a_qk = ffi_tensor(&call, "a_qk", "=*vc", same);
    if (!call.failed)
        ffi_set_dim(&call, 'e', ffi_dim(&call, 'd'), "q");
    const DLTensor *h =
        ffi_tensor(&call, "h", ffi_next_rank(&call) == 5 ? "=yzvde" : "=zvde", same);
    const DLTensor *o = ffi_tensor(&call, "o", "*vd", same);
    const DLTensor *cu_seqlens = ffi_cu_seqlens(&call, &most);
    const float scale = ffi_float(&call, "scale", ffi_usual_scale(&call));
    const bool v_first = ffi_bool(&call, "state_v_first");
    if (!ffi_sequences(&call, cu_seqlens, most, &s))
        return -1;
    const gen_kda_chunk_o_problem problem =
        ffi_stage_problem(&call, GEN_KDA_CHUNK_O, &s, ffi_dtype(q));
    const gen_kda_chunk_o_args a = {
        .base = {sizeof a, GEN_KDA_CHUNK_O},
        .q = ffi_data(q),
        .v_new = ffi_data(v_new),
        .gk = ffi_data(gk),
        .a_qk = ffi_data(a_qk),
        .h = ffi_data(h),
        .cu_seqlens = s.cu_seqlens,
        .cu_seqlens_64 = s.cu_seqlens_64,
        .o = ffi_data(o),
        .q_stride = ffi_token_stride(&call, q, "q", 2),
        .o_stride = ffi_token_stride(&call, o, "o", 2),
        .scale = scale,
        .num_chunks = ffi_chunks(&call, h, "h", &s, 3),
        .state_layout = v_first ? GEN_KDA_STATE_VK : GEN_KDA_STATE_KV,
    };
    return ffi_run(&call, &problem.base, &a.base);
}
