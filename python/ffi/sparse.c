/* mla_sparse. */
#include "ffi.h"

#include <attngen/mla_decode.h>
#include <attngen/mla_sparse.h>

int FFI_EXPORT __tvm_ffi_mla_sparse(void *handle, const TVMFFIAny *args, int32_t num_args,
                                    TVMFFIAny *result);

enum { DS_BYTES = 656 };

struct sparse {
    const DLTensor *q_nope, *q_pe, *kv, *o, *lse, *indices, *length, *sink;
    float scale;
    bool base_2;
};

/* Of a dimension from which the next is `inner` away if all is packed; a dimension of one has that.
 */
static int64_t stride(const DLTensor *t, int dim, int64_t inner)
{
    return t->shape[dim] <= 1 ? inner : ffi_stride(t, dim);
}

static bool is_bytes(const DLTensor *kv)
{
    return kv && kv->dtype.bits == 8;
}

static void check_sparse(struct ffi_call *call, const struct sparse *in)
{
    const DLTensor *all[] = {in->q_nope, in->q_pe, in->kv, in->o, in->lse, in->indices};
    static const char *const names[] = {"q_nope", "q_pe", "kv", "o", "lse", "indices"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (int dim = 0; all[i] && dim < all[i]->ndim; dim++)
            if (all[i]->shape[dim] > 1 && ffi_stride(all[i], dim) <= 0)
                ffi_fail(call, "ValueError",
                         "%s has stride %d in dimension %d; .contiguous() mends it", names[i],
                         (int)ffi_stride(all[i], dim), dim);
    if (call->failed)
        return;
    const int64_t tokens = ffi_dim(call, 'b') * ffi_dim(call, 's');
    const int64_t width =
        is_bytes(in->kv) ? DS_BYTES : GEN_MLA_LATENT + (in->q_pe ? GEN_MLA_ROPE : 0);
    if (ffi_dim(call, 't') != tokens)
        ffi_fail(call, "ValueError", "q_nope has %d tokens, indices %d x %d; they are as many",
                 (int)ffi_dim(call, 't'), (int)ffi_dim(call, 'b'), (int)ffi_dim(call, 's'));
    else if (ffi_dim(call, 'w') != width)
        ffi_fail(call, "ValueError", "kv has rows of %d; allowed: %d %s", (int)ffi_dim(call, 'w'),
                 (int)width,
                 is_bytes(in->kv) ? "bytes"
                 : in->q_pe       ? "with q_pe"
                                  : "without q_pe");
}

static void read_sparse(struct ffi_call *call, struct sparse *in)
{
    ffi_set_dim(call, 'c', GEN_MLA_LATENT, "a latent");
    ffi_set_dim(call, 'r', GEN_MLA_ROPE, "a rotary key");
    in->q_nope = ffi_tensor(call, "q_nope", "thc", FFI_16_BITS);
    const uint32_t same = in->q_nope ? 1u << ffi_dtype(in->q_nope) : FFI_16_BITS;
    in->q_pe = ffi_optional(call, "q_pe", "thr", same);
    in->kv = ffi_tensor(call, "kv", "npw", same | FFI_UINT8 | 1u << GEN_DTYPE_E4M3);
    in->o = ffi_tensor(call, "o", "thc", same);
    in->lse = ffi_optional(call, "lse", "th", FFI_FP32);
    in->indices = ffi_tensor(call, "indices", "bsk", FFI_INT32);
    in->length =
        ffi_optional(call, "topk_length", ffi_next_rank(call) == 2 ? "=bs" : "=b", FFI_INT32);
    in->sink = ffi_optional(call, "sink", "=h", FFI_FP32);
    in->scale = ffi_float(call, "scale", 1);
    in->base_2 = ffi_bool(call, "lse_base_2");
    check_sparse(call, in);
}

static gen_mla_sparse_args sparse_args(struct ffi_call *call, const struct sparse *in)
{
    const int64_t heads = ffi_dim(call, 'h');
    const int64_t q = stride(in->q_nope, 1, GEN_MLA_LATENT), o = stride(in->o, 1, GEN_MLA_LATENT);
    const int64_t pe = in->q_pe ? stride(in->q_pe, 1, GEN_MLA_ROPE) : 0;
    const int64_t row = stride(in->kv, 1, ffi_dim(call, 'w'));
    const int64_t list = stride(in->indices, 1, ffi_dim(call, 'k'));
    return (gen_mla_sparse_args){
        .base = {sizeof(gen_mla_sparse_args), GEN_MLA_SPARSE},
        .q_nope = ffi_data(in->q_nope),
        .q_pe = ffi_data(in->q_pe),
        .kv = ffi_data(in->kv),
        .o = ffi_data(in->o),
        .lse = ffi_data(in->lse),
        .indices = ffi_data(in->indices),
        .topk_length = ffi_data(in->length),
        .sink = ffi_data(in->sink),
        .q_nope_token_stride = stride(in->q_nope, 0, q * heads),
        .q_nope_head_stride = q,
        .q_pe_token_stride = in->q_pe ? stride(in->q_pe, 0, pe * heads) : 0,
        .q_pe_head_stride = pe,
        .kv_page_stride = stride(in->kv, 0, row * ffi_dim(call, 'p')),
        .kv_row_stride = row,
        .o_token_stride = stride(in->o, 0, o * heads),
        .o_head_stride = o,
        .lse_token_stride = in->lse ? stride(in->lse, 0, heads) : 0,
        .lse_head_stride = in->lse ? stride(in->lse, 1, 1) : 0,
        .indices_batch_stride = stride(in->indices, 0, list * ffi_dim(call, 's')),
        .indices_token_stride = list,
        .num_pages = ffi_size(call, 'n'),
        .length_per_token = in->length && in->length->ndim == 2,
        .lse_base_2 = in->base_2,
        .scale = in->scale,
    };
}

/* mla_sparse(library, flags, workspace, q_nope, q_pe, kv, o, lse, indices, topk_length, sink,
 * scale, lse_base_2) */
int __tvm_ffi_mla_sparse(void *handle, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result)
{
    (void)handle;
    struct ffi_call call;
    struct sparse in;
    if (!ffi_begin(&call, "mla_sparse", args, num_args, 10, result))
        return -1;
    read_sparse(&call, &in);
    if (call.failed)
        return -1;
    const gen_mla_sparse_problem problem = {
        .base = {sizeof problem, GEN_MLA_SPARSE, call.flags, 0},
        .batch = ffi_size(&call, 'b'),
        .num_heads = ffi_size(&call, 'h'),
        .q_len = ffi_size(&call, 's'),
        .topk = ffi_size(&call, 'k'),
        .page_size = ffi_size(&call, 'p'),
        .rope_dim = in.q_pe ? GEN_MLA_ROPE : 0,
        .dtype = ffi_dtype(in.o),
        .cache = is_bytes(in.kv) ? GEN_MLA_SPARSE_DS : GEN_MLA_SPARSE_SAME,
        .sink = in.sink != NULL,
    };
    const gen_mla_sparse_args a = sparse_args(&call, &in);
    return ffi_run(&call, &problem.base, &a.base);
}
