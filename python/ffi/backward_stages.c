/* The six stages of KDA's backward pass: the problem of the forward ones, six operators. */
#include "stages.h"

#include <attngen/kda_bwd_dav.h>
#include <attngen/kda_bwd_dhu.h>
#include <attngen/kda_bwd_intra.h>
#include <attngen/kda_bwd_wy.h>
#include <attngen/kda_gate_bwd.h>
#include <attngen/kda_qk_bwd.h>
#include <inttypes.h>

int FFI_EXPORT __tvm_ffi_kda_bwd_dav(void *handle, const TVMFFIAny *args, int32_t num_args,
                                     TVMFFIAny *result);
int FFI_EXPORT __tvm_ffi_kda_bwd_dhu(void *handle, const TVMFFIAny *args, int32_t num_args,
                                     TVMFFIAny *result);
int FFI_EXPORT __tvm_ffi_kda_bwd_wy(void *handle, const TVMFFIAny *args, int32_t num_args,
                                    TVMFFIAny *result);
int FFI_EXPORT __tvm_ffi_kda_bwd_intra(void *handle, const TVMFFIAny *args, int32_t num_args,
                                       TVMFFIAny *result);
int FFI_EXPORT __tvm_ffi_kda_gate_bwd(void *handle, const TVMFFIAny *args, int32_t num_args,
                                      TVMFFIAny *result);
int FFI_EXPORT __tvm_ffi_kda_qk_bwd(void *handle, const TVMFFIAny *args, int32_t num_args,
                                    TVMFFIAny *result);

/* A state has as many columns as rows, as the tensors before have it. */
static void square(struct ffi_call *call, const char *from)
{
    if (!call->failed)
        ffi_set_dim(call, 'e', ffi_dim(call, 'd'), from);
}

/* Chunks' states, of the sequences' own number or [batch, chunks of each]. */
static const DLTensor *chunk_states(struct ffi_call *call, const char *name, uint32_t dtypes)
{
    return ffi_tensor(call, name, ffi_next_rank(call) == 5 ? "=yzvde" : "=zvde", dtypes);
}

/* kda_bwd_dav(library, flags, workspace, v_new, d_o, a_qk, d_a_qk, d_v, cu_seqlens, max_seqlen,
 *             scale) */
int __tvm_ffi_kda_bwd_dav(void *handle, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result)
{
    (void)handle;
    struct ffi_call call;
    int64_t most;
    struct ffi_sequences s;
    if (!ffi_begin(&call, "kda_bwd_dav", args, num_args, 8, result))
        return -1;
    ffi_set_dim(&call, 'c', FFI_CHUNK, "a chunk");
    const DLTensor *v_new = ffi_tensor(&call, "v_new", "=*vd", FFI_16_BITS);
    const uint32_t same = ffi_dtype_bit(v_new);
    const DLTensor *d_o = ffi_tensor(&call, "d_o", "*vd", same);
    const DLTensor *a_qk = ffi_tensor(&call, "a_qk", "=*vc", same);
    const DLTensor *d_a_qk = ffi_tensor(&call, "d_a_qk", "=*vc", FFI_FP32);
    const DLTensor *d_v = ffi_tensor(&call, "d_v", "=*vd", same);
    const DLTensor *cu_seqlens = ffi_cu_seqlens(&call, &most);
    const float scale = ffi_float(&call, "scale", ffi_usual_scale(&call));
    if (!ffi_sequences(&call, cu_seqlens, most, &s))
        return -1;
    const gen_kda_bwd_dav_problem problem =
        ffi_stage_problem(&call, GEN_KDA_BWD_DAV, &s, ffi_dtype(v_new));
    const gen_kda_bwd_dav_args a = {
        .base = {sizeof a, GEN_KDA_BWD_DAV},
        .v_new = ffi_data(v_new),
        .d_o = ffi_data(d_o),
        .a_qk = ffi_data(a_qk),
        .cu_seqlens = s.cu_seqlens,
        .cu_seqlens_64 = s.cu_seqlens_64,
        .d_a_qk = ffi_data(d_a_qk),
        .d_v = ffi_data(d_v),
        .d_o_stride = ffi_token_stride(&call, d_o, "d_o", 2),
        .scale = scale,
    };
    return ffi_run(&call, &problem.base, &a.base);
}

/* kda_bwd_dhu(library, flags, workspace, qg, kg, w, gk, d_o, d_v, d_final_state, d_h, d_v_new,
 *             d_initial_state, cu_seqlens, max_seqlen, scale, state_v_first) */
int __tvm_ffi_kda_bwd_dhu(void *handle, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result)
{
    (void)handle;
    struct ffi_call call;
    int64_t most;
    struct ffi_sequences s;
    if (!ffi_begin(&call, "kda_bwd_dhu", args, num_args, 14, result))
        return -1;
    const DLTensor *qg = ffi_tensor(&call, "qg", "=*vd", FFI_16_BITS);
    const uint32_t same = ffi_dtype_bit(qg);
    const DLTensor *kg = ffi_tensor(&call, "kg", "=*vd", same);
    const DLTensor *w = ffi_tensor(&call, "w", "=*vd", same);
    const DLTensor *gk = ffi_tensor(&call, "gk", "=*vd", FFI_FP32);
    const DLTensor *d_o = ffi_tensor(&call, "d_o", "=*vd", same);
    const DLTensor *d_v = ffi_tensor(&call, "d_v", "=*vd", same);
    square(&call, "qg");
    const DLTensor *d_final = ffi_optional(&call, "d_final_state", "=nvde", FFI_FP32);
    const DLTensor *d_h = chunk_states(&call, "d_h", same);
    const DLTensor *d_v_new = ffi_tensor(&call, "d_v_new", "=*vd", same);
    const DLTensor *d_initial = ffi_optional(&call, "d_initial_state", "=nvde", FFI_FP32);
    const DLTensor *cu_seqlens = ffi_cu_seqlens(&call, &most);
    const float scale = ffi_float(&call, "scale", ffi_usual_scale(&call));
    const bool v_first = ffi_bool(&call, "state_v_first");
    if (!ffi_sequences(&call, cu_seqlens, most, &s))
        return -1;
    if (d_final || d_initial)
        ffi_check_states(&call, d_final ? "d_final_state" : "d_initial_state", &s);
    const gen_kda_bwd_dhu_problem problem =
        ffi_stage_problem(&call, GEN_KDA_BWD_DHU, &s, ffi_dtype(qg));
    const gen_kda_bwd_dhu_args a = {
        .base = {sizeof a, GEN_KDA_BWD_DHU},
        .qg = ffi_data(qg),
        .kg = ffi_data(kg),
        .w = ffi_data(w),
        .d_o = ffi_data(d_o),
        .d_v = ffi_data(d_v),
        .gk = ffi_data(gk),
        .d_final_state = ffi_data(d_final),
        .cu_seqlens = s.cu_seqlens,
        .cu_seqlens_64 = s.cu_seqlens_64,
        .d_h = ffi_data(d_h),
        .d_v_new = ffi_data(d_v_new),
        .d_initial_state = ffi_data(d_initial),
        .scale = scale,
        .num_chunks = ffi_chunks(&call, d_h, "d_h", &s, 3),
        .state_layout = v_first ? GEN_KDA_STATE_VK : GEN_KDA_STATE_KV,
    };
    return ffi_run(&call, &problem.base, &a.base);
}

struct wy {
    const DLTensor *q, *k, *v, *v_new, *gk, *beta, *a_kk, *h, *d_o, *d_h, *d_v_new;
    const DLTensor *d_q, *d_k, *d_v, *d_beta, *d_g, *d_a_kk;
};

static void read_wy(struct ffi_call *call, struct wy *in)
{
    ffi_set_dim(call, 'c', FFI_CHUNK, "a chunk");
    in->q = ffi_tensor(call, "q", "=*hd", FFI_16_BITS);
    const uint32_t same = ffi_dtype_bit(in->q);
    in->k = ffi_tensor(call, "k", "=*hd", same);
    in->v = ffi_tensor(call, "v", "=*vd", same);
    in->v_new = ffi_tensor(call, "v_new", "=*vd", same);
    in->gk = ffi_tensor(call, "gk", "=*vd", FFI_FP32);
    in->beta = ffi_tensor(call, "beta", "=*v", same | FFI_FP32);
    in->a_kk = ffi_tensor(call, "a_kk", "=*vc", same);
    square(call, "q");
    in->h = chunk_states(call, "h", same);
    in->d_o = ffi_tensor(call, "d_o", "=*vd", same);
    in->d_h = chunk_states(call, "d_h", same);
    in->d_v_new = ffi_tensor(call, "d_v_new", "=*vd", same);
    in->d_q = ffi_tensor(call, "d_q", "=*vd", FFI_FP32);
    in->d_k = ffi_tensor(call, "d_k", "=*vd", FFI_FP32);
    in->d_v = ffi_tensor(call, "d_v", "=*vd", same);
    in->d_beta = ffi_tensor(call, "d_beta", "=*v", FFI_FP32);
    in->d_g = ffi_tensor(call, "d_g", "=*vd", FFI_FP32);
    in->d_a_kk = ffi_tensor(call, "d_a_kk", "=*vc", FFI_FP32);
}

/* kda_bwd_wy(library, flags, workspace, q, k, v, v_new, gk, beta, a_kk, h, d_o, d_h, d_v_new, d_q,
 *            d_k, d_v, d_beta, d_g, d_a_kk, cu_seqlens, max_seqlen, scale, state_v_first) */
int __tvm_ffi_kda_bwd_wy(void *handle, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result)
{
    (void)handle;
    struct ffi_call call;
    int64_t most;
    struct ffi_sequences s;
    struct wy in;
    if (!ffi_begin(&call, "kda_bwd_wy", args, num_args, 21, result))
        return -1;
    read_wy(&call, &in);
    const DLTensor *cu_seqlens = ffi_cu_seqlens(&call, &most);
    const float scale = ffi_float(&call, "scale", ffi_usual_scale(&call));
    const bool v_first = ffi_bool(&call, "state_v_first");
    if (!ffi_sequences(&call, cu_seqlens, most, &s))
        return -1;
    gen_kda_bwd_wy_problem problem = ffi_stage_problem(&call, GEN_KDA_BWD_WY, &s, ffi_dtype(in.q));
    problem.beta_dtype = ffi_dtype(in.beta);
    (void)ffi_chunks(&call, in.d_h, "d_h", &s, 3); /* as many as h: they share the letters */
    const gen_kda_bwd_wy_args a = {
        .base = {sizeof a, GEN_KDA_BWD_WY},
        .q = ffi_data(in.q),
        .k = ffi_data(in.k),
        .v = ffi_data(in.v),
        .v_new = ffi_data(in.v_new),
        .gk = ffi_data(in.gk),
        .beta = ffi_data(in.beta),
        .a_kk = ffi_data(in.a_kk),
        .h = ffi_data(in.h),
        .d_o = ffi_data(in.d_o),
        .d_h = ffi_data(in.d_h),
        .d_v_new = ffi_data(in.d_v_new),
        .cu_seqlens = s.cu_seqlens,
        .cu_seqlens_64 = s.cu_seqlens_64,
        .d_q = ffi_data(in.d_q),
        .d_k = ffi_data(in.d_k),
        .d_v = ffi_data(in.d_v),
        .d_beta = ffi_data(in.d_beta),
        .d_g = ffi_data(in.d_g),
        .d_a_kk = ffi_data(in.d_a_kk),
        .scale = scale,
        .num_chunks = ffi_chunks(&call, in.h, "h", &s, 3),
        .state_layout = v_first ? GEN_KDA_STATE_VK : GEN_KDA_STATE_KV,
    };
    return ffi_run(&call, &problem.base, &a.base);
}

/* kda_bwd_intra(library, flags, workspace, q, k, gk, beta, d_a_qk, d_a_kk, d_q_states, d_k_states,
 *               d_beta_states, d_g_states, d_q, d_k, d_beta, d_g, cu_seqlens, max_seqlen,
 *               safe_gate) */
int __tvm_ffi_kda_bwd_intra(void *handle, const TVMFFIAny *args, int32_t num_args,
                            TVMFFIAny *result)
{
    (void)handle;
    struct ffi_call call;
    int64_t most;
    struct ffi_sequences s;
    if (!ffi_begin(&call, "kda_bwd_intra", args, num_args, 17, result))
        return -1;
    ffi_set_dim(&call, 'c', FFI_CHUNK, "a chunk");
    const DLTensor *q = ffi_tensor(&call, "q", "=*hd", FFI_16_BITS);
    const uint32_t same = ffi_dtype_bit(q);
    const DLTensor *k = ffi_tensor(&call, "k", "=*hd", same);
    const DLTensor *gk = ffi_tensor(&call, "gk", "=*vd", FFI_FP32);
    const DLTensor *beta = ffi_tensor(&call, "beta", "=*v", same | FFI_FP32);
    const DLTensor *d_a_qk = ffi_tensor(&call, "d_a_qk", "=*vc", FFI_FP32);
    const DLTensor *d_a_kk = ffi_tensor(&call, "d_a_kk", "=*vc", FFI_FP32);
    const DLTensor *d_q_states = ffi_tensor(&call, "d_q_states", "=*vd", FFI_FP32);
    const DLTensor *d_k_states = ffi_tensor(&call, "d_k_states", "=*vd", FFI_FP32);
    const DLTensor *d_beta_states = ffi_tensor(&call, "d_beta_states", "=*v", FFI_FP32);
    const DLTensor *d_g_states = ffi_tensor(&call, "d_g_states", "=*vd", FFI_FP32);
    const DLTensor *d_q = ffi_tensor(&call, "d_q", "=*vd", FFI_FP32);
    const DLTensor *d_k = ffi_tensor(&call, "d_k", "=*vd", FFI_FP32);
    const DLTensor *d_beta = ffi_tensor(&call, "d_beta", "=*v", FFI_FP32);
    const DLTensor *d_g = ffi_tensor(&call, "d_g", "=*vd", FFI_FP32);
    const DLTensor *cu_seqlens = ffi_cu_seqlens(&call, &most);
    const bool safe = ffi_bool(&call, "safe_gate");
    if (!ffi_sequences(&call, cu_seqlens, most, &s))
        return -1;
    gen_kda_bwd_intra_problem problem =
        ffi_stage_problem(&call, GEN_KDA_BWD_INTRA, &s, ffi_dtype(q));
    problem.beta_dtype = ffi_dtype(beta);
    problem.safe_gate = safe;
    const gen_kda_bwd_intra_args a = {
        .base = {sizeof a, GEN_KDA_BWD_INTRA},
        .q = ffi_data(q),
        .k = ffi_data(k),
        .gk = ffi_data(gk),
        .beta = ffi_data(beta),
        .d_a_qk = ffi_data(d_a_qk),
        .d_a_kk = ffi_data(d_a_kk),
        .d_q_states = ffi_data(d_q_states),
        .d_k_states = ffi_data(d_k_states),
        .d_beta_states = ffi_data(d_beta_states),
        .d_g_states = ffi_data(d_g_states),
        .cu_seqlens = s.cu_seqlens,
        .cu_seqlens_64 = s.cu_seqlens_64,
        .d_q = ffi_data(d_q),
        .d_k = ffi_data(d_k),
        .d_beta = ffi_data(d_beta),
        .d_g = ffi_data(d_g),
    };
    return ffi_run(&call, &problem.base, &a.base);
}

/* Is there room for the sums of chunks? */
static void check_partials(struct ffi_call *call, const DLTensor *partials,
                           const struct ffi_sequences *s)
{
    const int64_t wanted =
        GEN_KDA_GATE_BWD_PARTIALS(s->chunks, ffi_dim(call, 'v'), ffi_dim(call, 'd'));
    if (partials && ffi_elements(partials) * 4 < wanted && !call->failed)
        ffi_fail(call, "ValueError", "partials has %" PRId64 " bytes; %" PRId64 " are wanted",
                 ffi_elements(partials) * 4, wanted);
}

/* kda_gate_bwd(library, flags, workspace, g, d_gk, d_g, A_log, dt_bias, d_A_log, d_dt_bias,
 *              partials, cu_seqlens, max_seqlen, gate_form, lower_bound, suffix_sum) */
int __tvm_ffi_kda_gate_bwd(void *handle, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result)
{
    (void)handle;
    struct ffi_call call;
    int64_t most;
    struct ffi_sequences s;
    if (!ffi_begin(&call, "kda_gate_bwd", args, num_args, 13, result))
        return -1;
    const DLTensor *g = ffi_optional(&call, "g", "*vd", FFI_16_BITS | FFI_FP32);
    const DLTensor *d_gk = ffi_tensor(&call, "d_gk", "=*vd", FFI_FP32);
    const uint32_t gate = g ? 1u << ffi_dtype(g) : FFI_16_BITS | FFI_FP32;
    const DLTensor *d_g = ffi_tensor(&call, "d_g", "*vd", gate);
    const DLTensor *a_log = ffi_optional(&call, "A_log", "=v", FFI_FP32);
    const DLTensor *dt_bias = ffi_optional(&call, "dt_bias", "=vd", FFI_FP32);
    const DLTensor *d_a_log = ffi_optional(&call, "d_A_log", "=v", FFI_FP32);
    const DLTensor *d_dt_bias = ffi_optional(&call, "d_dt_bias", "=vd", FFI_FP32);
    const DLTensor *partials = ffi_optional(&call, "partials", "=p", FFI_FP32);
    const DLTensor *cu_seqlens = ffi_cu_seqlens(&call, &most);
    const int32_t gate_form = ffi_int32(&call, "gate_form", 0, 2, 0);
    const float lower_bound = ffi_float(&call, "lower_bound", -5);
    const bool suffix_sum = ffi_bool(&call, "suffix_sum");
    if (!ffi_sequences(&call, cu_seqlens, most, &s))
        return -1;
    check_partials(&call, partials, &s);
    const int32_t dtype = ffi_dtype(d_g);
    gen_kda_gate_bwd_problem problem = ffi_stage_problem(
        &call, GEN_KDA_GATE_BWD, &s, dtype == GEN_DTYPE_FP32 ? GEN_DTYPE_BF16 : dtype);
    problem.gate_dtype = dtype;
    const gen_kda_gate_bwd_args a = {
        .base = {sizeof a, GEN_KDA_GATE_BWD},
        .g = ffi_data(g),
        .A_log = ffi_data(a_log),
        .dt_bias = ffi_data(dt_bias),
        .d_gk = ffi_data(d_gk),
        .cu_seqlens = s.cu_seqlens,
        .cu_seqlens_64 = s.cu_seqlens_64,
        .d_g = ffi_data(d_g),
        .d_A_log = ffi_data(d_a_log),
        .d_dt_bias = ffi_data(d_dt_bias),
        .partials = ffi_data(partials),
        .g_stride = ffi_token_stride(&call, g, "g", 2),
        .d_g_stride = ffi_token_stride(&call, d_g, "d_g", 2),
        .lower_bound = lower_bound,
        .gate_form = gate_form,
        .suffix_sum = suffix_sum,
    };
    return ffi_run(&call, &problem.base, &a.base);
}

struct qk {
    const DLTensor *q, *k, *q_rstd, *k_rstd, *beta, *d_q_heads, *d_k_heads, *d_beta_heads;
    const DLTensor *d_q, *d_k, *d_beta;
};

static void read_qk(struct ffi_call *call, struct qk *in)
{
    in->q = ffi_optional(call, "q", "*hd", FFI_16_BITS);
    in->k = ffi_optional(call, "k", "*hd", ffi_dtype_bit(in->q));
    in->q_rstd = ffi_optional(call, "q_rstd", "=*h", FFI_FP32);
    in->k_rstd = ffi_optional(call, "k_rstd", "=*h", FFI_FP32);
    in->beta = ffi_optional(call, "beta", "*v", FFI_16_BITS | FFI_FP32);
    in->d_q_heads = ffi_optional(call, "d_q_heads", "=*vd", FFI_FP32);
    in->d_k_heads = ffi_optional(call, "d_k_heads", "=*vd", FFI_FP32);
    in->d_beta_heads = ffi_optional(call, "d_beta_heads", "=*v", FFI_FP32);
    const DLTensor *const raw = in->q ? in->q : in->k;
    in->d_q = ffi_optional(call, "d_q", "*hd", ffi_dtype_bit(raw));
    in->d_k = ffi_optional(call, "d_k", "*hd", ffi_dtype_bit(raw ? raw : in->d_q));
    const uint32_t step = in->beta ? 1u << ffi_dtype(in->beta) : FFI_16_BITS | FFI_FP32;
    in->d_beta = ffi_optional(call, "d_beta", "*v", step);
    if (!in->d_q && !in->d_k && !in->d_beta && !call->failed)
        ffi_fail(call, "ValueError",
                 "none of d_q, d_k and d_beta is given; one at least is wanted");
    if (ffi_dim(call, 'd') < 0) /* betas alone have no channels */
        ffi_set_dim(call, 'd', FFI_CHUNK, "d_beta");
}

/* kda_qk_bwd(library, flags, workspace, q, k, q_rstd, k_rstd, beta, d_q_heads, d_k_heads,
 *            d_beta_heads, d_q, d_k, d_beta, cu_seqlens, max_seqlen, qk_l2norm, beta_form) */
int __tvm_ffi_kda_qk_bwd(void *handle, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result)
{
    (void)handle;
    struct ffi_call call;
    int64_t most;
    struct ffi_sequences s;
    struct qk in;
    if (!ffi_begin(&call, "kda_qk_bwd", args, num_args, 15, result))
        return -1;
    read_qk(&call, &in);
    const DLTensor *cu_seqlens = ffi_cu_seqlens(&call, &most);
    const bool qk_l2norm = ffi_bool(&call, "qk_l2norm");
    const int32_t beta_form = ffi_int32(&call, "beta_form", 0, 2, 0);
    if (!ffi_sequences(&call, cu_seqlens, most, &s))
        return -1;
    if (ffi_dim(&call, 'v') < 0)
        return ffi_fail(&call, "ValueError",
                        "d_q_heads, d_k_heads and d_beta_heads are None, so num_v_heads is "
                        "unknown; allowed: one of them or more");
    const int32_t step = in.d_beta ? ffi_dtype(in.d_beta) : GEN_DTYPE_FP32;
    const int32_t dtype = in.d_q                   ? ffi_dtype(in.d_q)
                          : in.d_k                 ? ffi_dtype(in.d_k)
                          : step == GEN_DTYPE_FP32 ? GEN_DTYPE_BF16
                                                   : step;
    gen_kda_qk_bwd_problem problem = ffi_stage_problem(&call, GEN_KDA_QK_BWD, &s, dtype);
    problem.beta_dtype = step;
    const gen_kda_qk_bwd_args a = {
        .base = {sizeof a, GEN_KDA_QK_BWD},
        .q = ffi_data(in.q),
        .k = ffi_data(in.k),
        .q_rstd = ffi_data(in.q_rstd),
        .k_rstd = ffi_data(in.k_rstd),
        .beta = ffi_data(in.beta),
        .d_q_heads = ffi_data(in.d_q_heads),
        .d_k_heads = ffi_data(in.d_k_heads),
        .d_beta_heads = ffi_data(in.d_beta_heads),
        .cu_seqlens = s.cu_seqlens,
        .cu_seqlens_64 = s.cu_seqlens_64,
        .d_q = ffi_data(in.d_q),
        .d_k = ffi_data(in.d_k),
        .d_beta = ffi_data(in.d_beta),
        .q_stride = ffi_token_stride(&call, in.q, "q", 2),
        .k_stride = ffi_token_stride(&call, in.k, "k", 2),
        .beta_stride = ffi_token_stride(&call, in.beta, "beta", 1),
        .d_q_stride = ffi_token_stride(&call, in.d_q, "d_q", 2),
        .d_k_stride = ffi_token_stride(&call, in.d_k, "d_k", 2),
        .d_beta_stride = ffi_token_stride(&call, in.d_beta, "d_beta", 1),
        .qk_l2norm = qk_l2norm,
        .beta_form = beta_form,
    };
    return ffi_run(&call, &problem.base, &a.base);
}
