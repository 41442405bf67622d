/* attn_fwd and mla_decode. */
#include "ffi.h"

#include <attngen/attn_fwd.h>
#include <attngen/mla_decode.h>
#include <math.h>

int FFI_EXPORT __tvm_ffi_attn_fwd(void *handle, const TVMFFIAny *args, int32_t num_args,
                                  TVMFFIAny *result);
int FFI_EXPORT __tvm_ffi_mla_decode(void *handle, const TVMFFIAny *args, int32_t num_args,
                                    TVMFFIAny *result);

#define MOST_LEN (1 << 24)

/* A stride of a tensor that may be packed by saying 0: 1-sized dimensions have any. */
static int64_t stride(const DLTensor *t, int dim)
{
    return !t || t->shape[dim] <= 1 ? 0 : ffi_stride(t, dim);
}

/* Strides of rows, heads and, with four dimensions, batches. The last three dimensions are rows,
 * heads and columns. A dimension of size 1 is given the stride that it would have if packed behind
 * what is inside of it, which the library takes for 0 only where all is packed. */
struct strides {
    int64_t batch, row, head;
};

static struct strides strides_of(const DLTensor *t)
{
    const int rows = t->ndim - 3;
    struct strides s;
    s.head = stride(t, rows + 1) ? stride(t, rows + 1) : t->shape[rows + 2];
    s.row = stride(t, rows) ? stride(t, rows) : s.head * t->shape[rows + 1];
    s.batch = rows == 0 ? 0 : stride(t, 0) ? stride(t, 0) : s.row * t->shape[rows];
    return s;
}

/* An expanded dimension has stride 0, which the library takes for packed. */
static void refuse_expanded(struct ffi_call *call, const DLTensor *t, const char *name)
{
    for (int i = 0; t && i < t->ndim; i++)
        if (t->shape[i] > 1 && ffi_stride(t, i) <= 0)
            ffi_fail(call, "ValueError", "%s has stride %d in dimension %d; .contiguous() mends it",
                     name, (int)ffi_stride(t, i), i);
}

struct attn {
    bool varlen;
    const DLTensor *q, *k, *v, *o, *lse, *cu_q, *cu_k, *q_descale, *k_descale, *v_descale;
    int32_t most_q, most_k, left, right;
    float scale, softcap;
    bool causal;
};

static void read_attn(struct ffi_call *call, struct attn *in)
{
    /* With cu_seqlens, the sixth argument from here, rows are packed. */
    const bool varlen = call->args[call->next + 5].type_index != kTVMFFINone;
    const uint32_t any = FFI_16_BITS | FFI_8_BITS;
    in->varlen = varlen;
    in->q = ffi_tensor(call, "q", varlen ? "thd" : "bthd", any);
    const uint32_t same = in->q ? 1u << ffi_dtype(in->q) : any;
    in->k = ffi_tensor(call, "k", varlen ? "sgd" : "bsgd", same);
    in->v = ffi_tensor(call, "v", varlen ? "sgd" : "bsgd", same);
    in->o = ffi_tensor(call, "o", varlen ? "thd" : "bthd",
                       in->q && same & FFI_16_BITS ? same : FFI_16_BITS);
    in->lse = ffi_optional(call, "lse", varlen ? "ht" : "bht", FFI_FP32);
    in->cu_q = ffi_index(call, "cu_seqlens_q", "=n");
    in->cu_k = ffi_index(call, "cu_seqlens_k", "=n");
    in->most_q = ffi_int32(call, "max_seqlen_q", 0, MOST_LEN, 0);
    in->most_k = ffi_int32(call, "max_seqlen_k", 0, MOST_LEN, 0);
    const int64_t width = ffi_dim(call, 'd');
    in->scale = ffi_float(call, "scale", width > 0 ? 1 / sqrtf((float)width) : 1);
    in->causal = ffi_bool(call, "causal");
    in->left = ffi_int32(call, "window_left", -1, MOST_LEN, -1);
    in->right = ffi_int32(call, "window_right", -1, MOST_LEN, -1);
    in->softcap = ffi_float(call, "softcap", 0);
    if (in->cu_q)
        ffi_set_dim(call, 'm', ffi_dim(call, 'n') - 1, "cu_seqlens_q");
    in->q_descale = ffi_optional(call, "q_descale", varlen ? "=mg" : "=bg", FFI_FP32);
    in->k_descale = ffi_optional(call, "k_descale", varlen ? "=mg" : "=bg", FFI_FP32);
    in->v_descale = ffi_optional(call, "v_descale", varlen ? "=mg" : "=bg", FFI_FP32);
    if (!in->cu_q != !in->cu_k || (in->cu_q && ffi_dim(call, 'n') < 1))
        ffi_fail(call, "ValueError",
                 "cu_seqlens_q and cu_seqlens_k go together, each of [requests + 1]");
    const DLTensor *all[] = {in->q, in->k, in->v, in->o, in->lse};
    static const char *const names[] = {"q", "k", "v", "o", "lse"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        refuse_expanded(call, all[i], names[i]);
}

static gen_attn_fwd_args attn_args(struct ffi_call *call, const struct attn *in)
{
    const struct strides q = strides_of(in->q), k = strides_of(in->k), v = strides_of(in->v),
                         o = strides_of(in->o);
    return (gen_attn_fwd_args){
        .base = {sizeof(gen_attn_fwd_args), GEN_ATTN_FWD},
        .q = ffi_data(in->q),
        .k = ffi_data(in->k),
        .v = ffi_data(in->v),
        .o = ffi_data(in->o),
        .lse = ffi_data(in->lse),
        .cu_seqlens_q = ffi_index_32(in->cu_q),
        .cu_seqlens_q_64 = ffi_index_64(in->cu_q),
        .cu_seqlens_k = ffi_index_32(in->cu_k),
        .cu_seqlens_k_64 = ffi_index_64(in->cu_k),
        .q_batch_stride = q.batch,
        .q_row_stride = q.row,
        .q_head_stride = q.head,
        .k_batch_stride = k.batch,
        .k_row_stride = k.row,
        .k_head_stride = k.head,
        .v_batch_stride = v.batch,
        .v_row_stride = v.row,
        .v_head_stride = v.head,
        .o_batch_stride = o.batch,
        .o_row_stride = o.row,
        .o_head_stride = o.head,
        .lse_batch_stride = in->varlen ? 0 : stride(in->lse, 0),
        .lse_head_stride = stride(in->lse, in->varlen ? 0 : 1),
        .total_q = in->varlen ? ffi_size(call, 't') : 0,
        .total_k = in->varlen ? ffi_size(call, 's') : 0,
        .scale = in->scale,
        .softcap = in->softcap,
        .q_descale = ffi_data(in->q_descale),
        .k_descale = ffi_data(in->k_descale),
        .v_descale = ffi_data(in->v_descale),
    };
}

/* attn_fwd(library, flags, workspace, q, k, v, o, lse, cu_seqlens_q, cu_seqlens_k, max_seqlen_q,
 *          max_seqlen_k, scale, causal, window_left, window_right, softcap, q_descale, k_descale,
 *          v_descale) */
int __tvm_ffi_attn_fwd(void *handle, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result)
{
    (void)handle;
    struct ffi_call call;
    struct attn in;
    if (!ffi_begin(&call, "attn_fwd", args, num_args, 17, result))
        return -1;
    read_attn(&call, &in);
    if (call.failed)
        return -1;
    const gen_attn_fwd_problem problem = {
        .base = {sizeof problem, GEN_ATTN_FWD, call.flags, 0},
        .batch = ffi_size(&call, in.varlen ? 'm' : 'b'),
        .num_q_heads = ffi_size(&call, 'h'),
        .num_kv_heads = ffi_size(&call, 'g'),
        .q_len = in.varlen ? in.most_q : ffi_size(&call, 't'),
        .kv_len = in.varlen ? in.most_k : ffi_size(&call, 's'),
        .head_dim = ffi_size(&call, 'd'),
        .dtype = ffi_dtype(in.q),
        .causal = in.causal,
        .left_window = in.left + 1,
        .right_window = in.right + 1,
        .varlen = in.varlen,
        .softcap = in.softcap > 0 || in.softcap < 0,
        .o_dtype = ffi_dtype(in.o),
        .index_dtype = call.index_dtype,
    };
    const gen_attn_fwd_args a = attn_args(&call, &in);
    return ffi_run(&call, &problem.base, &a.base);
}

struct mla {
    const DLTensor *q_nope, *q_pe, *ckv, *kpe, *o, *lse, *kv_len, *pages, *page_indptr, *q_indptr;
    int32_t q_len, mean, most;
    float scale, ckv_scale, kpe_scale, q_scale;
    bool causal, base_2;
};

static void check_mla(struct ffi_call *call, const struct mla *in)
{
    const DLTensor *all[] = {in->q_nope, in->q_pe, in->ckv, in->kpe, in->o, in->lse};
    static const char *const names[] = {"q_nope", "q_pe", "ckv", "kpe", "o", "lse"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        refuse_expanded(call, all[i], names[i]);
    if (call->failed)
        return;
    const int64_t batch = ffi_dim(call, 'b');
    if (!in->q_pe != !in->kpe)
        ffi_fail(call, "ValueError", "q_pe and kpe are given together or not at all");
    if (in->page_indptr && ffi_dim(call, 'i') != batch + 1)
        ffi_fail(call, "ValueError", "page_indptr has %d entries; %d are wanted",
                 (int)ffi_dim(call, 'i'), (int)batch + 1);
    if (in->q_indptr ? ffi_dim(call, 'j') != batch + 1 : ffi_dim(call, 't') != batch * in->q_len)
        ffi_fail(call, "ValueError",
                 "q_nope has %d tokens, of %d requests with q_len %d; without q_indptr of "
                 "[batch + 1] that many times q_len are wanted",
                 (int)ffi_dim(call, 't'), (int)batch, in->q_len);
}

static void read_mla(struct ffi_call *call, struct mla *in)
{
    ffi_set_dim(call, 'c', GEN_MLA_LATENT, "a latent");
    ffi_set_dim(call, 'r', GEN_MLA_ROPE, "a rotary key");
    const uint32_t e4m3 = 1u << GEN_DTYPE_E4M3;
    in->q_nope = ffi_tensor(call, "q_nope", "thc", FFI_16_BITS | e4m3);
    const uint32_t same = in->q_nope ? 1u << ffi_dtype(in->q_nope) : FFI_16_BITS;
    in->q_pe = ffi_optional(call, "q_pe", "thr", same);
    in->ckv = ffi_tensor(call, "ckv", "npc", same | e4m3);
    const uint32_t cache = in->ckv ? 1u << ffi_dtype(in->ckv) : same;
    in->kpe = ffi_optional(call, "kpe", "npr", cache);
    in->o = ffi_tensor(call, "o", "thc", same == e4m3 ? FFI_16_BITS : same);
    in->lse = ffi_optional(call, "lse", "th", FFI_FP32);
    in->kv_len = ffi_tensor(call, "kv_len", "=b", FFI_INT32);
    /* With page_indptr, the next argument but one, pages are in one list. */
    const bool listed = call->args[call->next + 1].type_index != kTVMFFINone;
    in->pages = ffi_tensor(call, "page_indices", listed ? "=l" : "bw", FFI_INT32);
    in->page_indptr = ffi_index(call, "page_indptr", "=i");
    in->q_indptr = ffi_index(call, "q_indptr", "=j");
    in->q_len = ffi_int32(call, "q_len", 1, 1024, 1);
    in->mean = ffi_int32(call, "mean_kv_len", 0, MOST_LEN, 0);
    in->most = ffi_int32(call, "max_kv_len", 1, MOST_LEN, 1);
    in->scale = ffi_float(call, "scale", 1);
    in->causal = ffi_bool(call, "causal");
    in->base_2 = ffi_bool(call, "lse_base_2");
    in->ckv_scale = ffi_float(call, "ckv_scale", 1);
    in->kpe_scale = ffi_float(call, "kpe_scale", 1);
    in->q_scale = ffi_float(call, "q_scale", 1);
    check_mla(call, in);
}

static gen_mla_decode_args mla_args(struct ffi_call *call, const struct mla *in)
{
    const struct strides q = strides_of(in->q_nope), ckv = strides_of(in->ckv),
                         o = strides_of(in->o);
    const struct strides none = {0}, q_pe = in->q_pe ? strides_of(in->q_pe) : none,
                         kpe = in->kpe ? strides_of(in->kpe) : none;
    return (gen_mla_decode_args){
        .base = {sizeof(gen_mla_decode_args), GEN_MLA_DECODE},
        .q_nope = ffi_data(in->q_nope),
        .q_pe = ffi_data(in->q_pe),
        .ckv = ffi_data(in->ckv),
        .kpe = ffi_data(in->kpe),
        .o = ffi_data(in->o),
        .lse = ffi_data(in->lse),
        .kv_len = ffi_data(in->kv_len),
        .page_indices = ffi_data(in->pages),
        .page_indptr = ffi_index_32(in->page_indptr),
        .page_indptr_64 = ffi_index_64(in->page_indptr),
        .q_indptr = ffi_index_32(in->q_indptr),
        .q_indptr_64 = ffi_index_64(in->q_indptr),
        .q_nope_token_stride = q.row,
        .q_nope_head_stride = q.head,
        .q_pe_token_stride = q_pe.row,
        .q_pe_head_stride = q_pe.head,
        .ckv_page_stride = ckv.row,
        .ckv_row_stride = ckv.head,
        .kpe_page_stride = kpe.row,
        .kpe_row_stride = kpe.head,
        .o_token_stride = o.row,
        .o_head_stride = o.head,
        .lse_token_stride = stride(in->lse, 0),
        .lse_head_stride = stride(in->lse, 1),
        .page_table_stride = in->page_indptr ? 0 : ffi_stride(in->pages, 0),
        .num_pages = ffi_size(call, 'n'),
        .lse_base_2 = in->base_2,
        .scale = in->scale,
        .ckv_scale = in->ckv_scale,
        .kpe_scale = in->kpe_scale,
        .q_scale = in->q_scale,
    };
}

/* mla_decode(library, flags, workspace, q_nope, q_pe, ckv, kpe, o, lse, kv_len, page_indices,
 *            page_indptr, q_indptr, q_len, mean_kv_len, max_kv_len, scale, causal, lse_base_2,
 *            ckv_scale, kpe_scale, q_scale) */
int __tvm_ffi_mla_decode(void *handle, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result)
{
    (void)handle;
    struct ffi_call call;
    struct mla in;
    if (!ffi_begin(&call, "mla_decode", args, num_args, 19, result))
        return -1;
    read_mla(&call, &in);
    if (call.failed)
        return -1;
    const gen_mla_decode_problem problem = {
        .base = {sizeof problem, GEN_MLA_DECODE, call.flags, 0},
        .batch = ffi_size(&call, 'b'),
        .num_heads = ffi_size(&call, 'h'),
        .q_len = in.q_len,
        .kv_len = in.mean,
        .max_kv_len = in.most,
        .page_size = ffi_size(&call, 'p'),
        .rope_dim = in.q_pe ? GEN_MLA_ROPE : 0,
        .dtype = ffi_dtype(in.o),
        .cache = ffi_dtype(in.q_nope) == GEN_DTYPE_E4M3 ? GEN_MLA_CACHE_E4M3_Q
                 : ffi_dtype(in.ckv) == GEN_DTYPE_E4M3  ? GEN_MLA_CACHE_E4M3
                                                        : GEN_MLA_CACHE_SAME,
        .causal = in.causal,
        .index_dtype = call.index_dtype,
    };
    const gen_mla_decode_args a = mla_args(&call, &in);
    return ffi_run(&call, &problem.base, &a.base);
}
