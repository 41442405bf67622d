/* attn_paged and attn_merge. */
#include "ffi.h"

#include <attngen/attn_merge.h>
#include <attngen/attn_paged.h>
#include <math.h>

int FFI_EXPORT __tvm_ffi_attn_paged(void *handle, const TVMFFIAny *args, int32_t num_args,
                                    TVMFFIAny *result);
int FFI_EXPORT __tvm_ffi_attn_merge(void *handle, const TVMFFIAny *args, int32_t num_args,
                                    TVMFFIAny *result);

#define MOST_LEN (1 << 24)

/* Of a dimension from which the next is `inner` away if all is packed; a dimension of one has that.
 */
static int64_t stride(const DLTensor *t, int dim, int64_t inner)
{
    return !t ? 0 : t->shape[dim] <= 1 ? inner : ffi_stride(t, dim);
}

struct paged {
    const DLTensor *q, *k, *v, *o, *lse, *kv_len, *pages, *page_indptr, *last_page_len, *q_indptr;
    const DLTensor *sink, *q_descale, *k_descale, *v_descale;
    int32_t q_len, mean, most, left;
    float scale, softcap;
    bool causal, base_2, lse_sink;
};

/* One scale for all, or one for each request and key head. */
static void check_scale(struct ffi_call *call, const DLTensor *t, const char *name)
{
    const int64_t batch = ffi_dim(call, 'b'), heads = ffi_dim(call, 'g');
    if (!t || call->failed || (t->shape[0] == 1 && t->shape[1] == 1) ||
        (t->shape[0] == batch && t->shape[1] == heads))
        return;
    ffi_fail(call, "ValueError", "%s is of [%d, %d]; allowed: [1, 1], [%d, %d]", name,
             (int)t->shape[0], (int)t->shape[1], (int)batch, (int)heads);
}

static void check_paged(struct ffi_call *call, const struct paged *in)
{
    const DLTensor *all[] = {in->q, in->k, in->v, in->o, in->lse};
    static const char *const names[] = {"q", "k", "v", "o", "lse"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (int dim = 0; all[i] && dim < all[i]->ndim; dim++)
            if (all[i]->shape[dim] > 1 && ffi_stride(all[i], dim) <= 0)
                ffi_fail(call, "ValueError",
                         "%s has stride %d in dimension %d; .contiguous() mends it", names[i],
                         (int)ffi_stride(all[i], dim), dim);
    if (call->failed)
        return;
    const int64_t batch = ffi_dim(call, 'b');
    if (!in->kv_len && !(in->page_indptr && in->last_page_len))
        ffi_fail(call, "ValueError",
                 "kv_len is None; it is wanted without page_indptr and last_page_len");
    else if (!in->pages && ffi_dim(call, 'n') != batch)
        ffi_fail(call, "ValueError",
                 "k is of %d requests, kv_len of %d; without page_indices they are the same",
                 (int)ffi_dim(call, 'n'), (int)batch);
    else if (in->page_indptr && ffi_dim(call, 'i') != batch + 1)
        ffi_fail(call, "ValueError", "page_indptr has %d entries; %d are wanted",
                 (int)ffi_dim(call, 'i'), (int)batch + 1);
    else if (in->q_indptr ? ffi_dim(call, 'j') != batch + 1
                          : ffi_dim(call, 't') != batch * in->q_len)
        ffi_fail(call, "ValueError",
                 "q has %d tokens, of %d requests with q_len %d; without q_indptr of [batch + 1] "
                 "that many times q_len are wanted",
                 (int)ffi_dim(call, 't'), (int)batch, in->q_len);
    check_scale(call, in->q_descale, "q_descale");
    check_scale(call, in->k_descale, "k_descale");
    check_scale(call, in->v_descale, "v_descale");
}

static void read_paged(struct ffi_call *call, struct paged *in)
{
    in->q = ffi_tensor(call, "q", "thd", FFI_16_BITS);
    const uint32_t same = in->q ? 1u << ffi_dtype(in->q) : FFI_16_BITS;
    in->k = ffi_tensor(call, "k", "npgd", same | 1u << GEN_DTYPE_E4M3);
    const uint32_t cache = in->k ? 1u << ffi_dtype(in->k) : same;
    const bool narrow =
        in->k && in->k->shape[in->k->ndim - 1] == 192; /* values and outputs have 128 columns */
    if (narrow)
        ffi_set_dim(call, 'e', 128, "keys of 192 columns");
    in->v = ffi_tensor(call, "v", narrow ? "npge" : "npgd", cache);
    in->o = ffi_tensor(call, "o", narrow ? "the" : "thd", same);
    in->lse = ffi_optional(call, "lse", "~th", FFI_FP32);
    in->kv_len = ffi_optional(call, "kv_len", "=b", FFI_INT32);
    /* With page_indptr, the next argument but one, pages are in one list. */
    const bool listed = call->args[call->next + 1].type_index != kTVMFFINone;
    in->pages = ffi_optional(call, "page_indices", listed ? "=l" : "bm", FFI_INT32);
    in->page_indptr = ffi_optional(call, "page_indptr", "=i", FFI_INT32);
    in->last_page_len = ffi_optional(call, "last_page_len", "=b", FFI_INT32);
    in->q_indptr = ffi_optional(call, "q_indptr", "=j", FFI_INT32);
    in->q_len = ffi_int32(call, "q_len", 1, 1 << 17, 1);
    in->mean = ffi_int32(call, "mean_kv_len", 0, MOST_LEN, 0);
    in->most = ffi_int32(call, "max_kv_len", 1, MOST_LEN, 1);
    const int64_t width = ffi_dim(call, 'd');
    in->scale = ffi_float(call, "scale", width > 0 ? 1 / sqrtf((float)width) : 1);
    in->causal = ffi_bool(call, "causal");
    in->left = ffi_int32(call, "window_left", -1, MOST_LEN, -1);
    in->softcap = ffi_float(call, "softcap", 0);
    in->sink = ffi_optional(call, "sink", "=h", FFI_FP32);
    in->q_descale = ffi_optional(call, "q_descale", "uv", FFI_FP32);
    in->k_descale = ffi_optional(call, "k_descale", "xy", FFI_FP32);
    in->v_descale = ffi_optional(call, "v_descale", "rs", FFI_FP32);
    in->base_2 = ffi_bool(call, "lse_base_2");
    in->lse_sink = ffi_bool(call, "lse_sink");
    check_paged(call, in);
}

static int64_t scale_batch(const DLTensor *t)
{
    return t && t->shape[0] * t->shape[1] > 1 ? stride(t, 0, t->shape[1]) : 0;
}

static int64_t scale_head(const DLTensor *t)
{
    return t && t->shape[0] * t->shape[1] > 1 ? 1 : 0;
}

struct cache_strides {
    int64_t page, row, head;
};

/* The packed strides stand in for those of dimensions of one. */
static struct cache_strides cache_strides(const DLTensor *t)
{
    struct cache_strides s;
    s.head = stride(t, 2, t->shape[3]);
    s.row = stride(t, 1, s.head * t->shape[2]);
    s.page = stride(t, 0, s.row * t->shape[1]);
    return s;
}

static gen_attn_paged_args paged_args(struct ffi_call *call, const struct paged *in)
{
    const struct cache_strides k = cache_strides(in->k), v = cache_strides(in->v);
    const int64_t q_head = stride(in->q, 1, in->q->shape[2]);
    const int64_t o_head = stride(in->o, 1, in->o->shape[2]);
    const int64_t lse_head = stride(in->lse, 1, 1);
    return (gen_attn_paged_args){
        .base = {sizeof(gen_attn_paged_args), GEN_ATTN_PAGED},
        .q = ffi_data(in->q),
        .k = ffi_data(in->k),
        .v = ffi_data(in->v),
        .o = ffi_data(in->o),
        .lse = ffi_data(in->lse),
        .kv_len = ffi_data(in->kv_len),
        .page_indices = ffi_data(in->pages),
        .page_indptr = ffi_data(in->page_indptr),
        .last_page_len = ffi_data(in->last_page_len),
        .q_indptr = ffi_data(in->q_indptr),
        .q_descale = ffi_data(in->q_descale),
        .k_descale = ffi_data(in->k_descale),
        .v_descale = ffi_data(in->v_descale),
        .sink = ffi_data(in->sink),
        .q_token_stride = stride(in->q, 0, q_head * in->q->shape[1]),
        .q_head_stride = q_head,
        .k_page_stride = k.page,
        .k_row_stride = k.row,
        .k_head_stride = k.head,
        .v_page_stride = v.page,
        .v_row_stride = v.row,
        .v_head_stride = v.head,
        .o_token_stride = stride(in->o, 0, o_head * in->o->shape[1]),
        .o_head_stride = o_head,
        .lse_token_stride = in->lse ? stride(in->lse, 0, lse_head * in->lse->shape[1]) : 0,
        .lse_head_stride = lse_head,
        .page_table_stride = in->pages && !in->page_indptr ? ffi_stride(in->pages, 0) : 0,
        .q_descale_batch_stride = scale_batch(in->q_descale),
        .q_descale_head_stride = scale_head(in->q_descale),
        .k_descale_batch_stride = scale_batch(in->k_descale),
        .k_descale_head_stride = scale_head(in->k_descale),
        .v_descale_batch_stride = scale_batch(in->v_descale),
        .v_descale_head_stride = scale_head(in->v_descale),
        .num_pages = ffi_size(call, 'n'),
        .lse_base_2 = in->base_2,
        .lse_sink = in->lse_sink,
        .scale = in->scale,
        .softcap = in->softcap,
    };
}

/* attn_paged(library, flags, workspace, q, k, v, o, lse, kv_len, page_indices, page_indptr,
 *            last_page_len, q_indptr, q_len, mean_kv_len, max_kv_len, scale, causal, window_left,
 *            softcap, sink, q_descale, k_descale, v_descale, lse_base_2, lse_sink) */
int __tvm_ffi_attn_paged(void *handle, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result)
{
    (void)handle;
    struct ffi_call call;
    struct paged in;
    if (!ffi_begin(&call, "attn_paged", args, num_args, 23, result))
        return -1;
    read_paged(&call, &in);
    if (call.failed)
        return -1;
    const gen_attn_paged_problem problem = {
        .base = {sizeof problem, GEN_ATTN_PAGED, call.flags, 0},
        .batch = ffi_size(&call, 'b'),
        .num_q_heads = ffi_size(&call, 'h'),
        .num_kv_heads = ffi_size(&call, 'g'),
        .q_len = in.q_len,
        .kv_len = in.mean,
        .max_kv_len = in.most,
        .page_size = in.pages ? ffi_size(&call, 'p') : 0,
        .head_dim = ffi_size(&call, 'd'),
        .dtype = ffi_dtype(in.q),
        .cache = ffi_dtype(in.k) == GEN_DTYPE_E4M3 ? GEN_ATTN_PAGED_CACHE_E4M3
                                                   : GEN_ATTN_PAGED_CACHE_SAME,
        .causal = in.causal,
        .left_window = in.left + 1,
        .softcap = in.softcap > 0 || in.softcap < 0,
        .sink = in.sink != NULL,
        .total_tokens = in.q_indptr ? ffi_size(&call, 't') : 0,
    };
    const gen_attn_paged_args a = paged_args(&call, &in);
    return ffi_run(&call, &problem.base, &a.base);
}

struct merge {
    const DLTensor *v, *lse, *v_2, *lse_2, *o, *o_lse;
    bool base_2;
};

static gen_attn_merge_args merge_args(const struct merge *in)
{
    const bool two = in->v_2 != NULL;
    const int heads = two ? 1 : 2; /* the dimension of them; states are before */
    const int64_t v_head = stride(in->v, heads, in->v->shape[heads + 1]);
    const int64_t lse_head = stride(in->lse, heads, 1);
    const int64_t v_state = two ? 0 : stride(in->v, 1, v_head * in->v->shape[2]);
    const int64_t lse_state = two ? 0 : stride(in->lse, 1, lse_head * in->lse->shape[2]);
    const int64_t v_inner = two ? v_head * in->v->shape[1] : v_state * in->v->shape[1];
    const int64_t lse_inner = two ? lse_head * in->lse->shape[1] : lse_state * in->lse->shape[1];
    return (gen_attn_merge_args){
        .base = {sizeof(gen_attn_merge_args), GEN_ATTN_MERGE},
        .v = ffi_data(in->v),
        .lse = ffi_data(in->lse),
        .v_2 = ffi_data(in->v_2),
        .lse_2 = ffi_data(in->lse_2),
        .o = ffi_data(in->o),
        .o_lse = ffi_data(in->o_lse),
        .v_row_stride = stride(in->v, 0, v_inner),
        .v_state_stride = v_state,
        .v_head_stride = v_head,
        .lse_row_stride = stride(in->lse, 0, lse_inner),
        .lse_state_stride = lse_state,
        .lse_head_stride = lse_head,
        .v_2_row_stride = two ? stride(in->v_2, 0, 0) : 0,
        .v_2_head_stride = two ? stride(in->v_2, 1, 0) : 0,
        .lse_2_row_stride = two ? stride(in->lse_2, 0, 0) : 0,
        .lse_2_head_stride = two ? stride(in->lse_2, 1, 0) : 0,
        .o_row_stride = stride(in->o, 0, 0),
        .o_head_stride = stride(in->o, 1, 0),
        .o_lse_row_stride = stride(in->o_lse, 0, 0),
        .o_lse_head_stride = stride(in->o_lse, 1, 0),
        .lse_base_2 = in->base_2,
    };
}

/* attn_merge(library, flags, workspace, v, lse, v_2, lse_2, o, o_lse, lse_base_2) */
int __tvm_ffi_attn_merge(void *handle, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result)
{
    (void)handle;
    const uint32_t any = FFI_16_BITS | FFI_FP32;
    struct ffi_call call;
    struct merge in;
    if (!ffi_begin(&call, "attn_merge", args, num_args, 7, result))
        return -1;
    /* The third argument from here says: two tensors, without a dimension of states. */
    const bool two = args[call.next + 2].type_index != kTVMFFINone;
    in.v = ffi_tensor(&call, "v", two ? "rhd" : "rshd", any);
    in.lse = ffi_tensor(&call, "lse", two ? "~rh" : "~rsh", FFI_FP32);
    const uint32_t same = in.v ? 1u << ffi_dtype(in.v) : any;
    in.v_2 = ffi_optional(&call, "v_2", "rhd", same);
    in.lse_2 = ffi_optional(&call, "lse_2", "~rh", FFI_FP32);
    in.o = ffi_tensor(&call, "o", "rhd", any);
    in.o_lse = ffi_optional(&call, "o_lse", "~rh", FFI_FP32);
    in.base_2 = ffi_bool(&call, "lse_base_2");
    if (!call.failed && !in.v_2 != !in.lse_2)
        ffi_fail(&call, "ValueError", "v_2 and lse_2 are given together or not at all");
    if (call.failed)
        return -1;
    const gen_attn_merge_problem problem = {
        .base = {sizeof problem, GEN_ATTN_MERGE, call.flags, 0},
        .num_rows = ffi_size(&call, 'r'),
        .num_heads = ffi_size(&call, 'h'),
        .num_states = two ? 2 : ffi_size(&call, 's'),
        .head_dim = ffi_size(&call, 'd'),
        .dtype = ffi_dtype(in.v),
        .o_dtype = ffi_dtype(in.o),
    };
    const gen_attn_merge_args a = merge_args(&in);
    return ffi_run(&call, &problem.base, &a.base);
}
