/*
 * The arguments of attn_fwd and the parameters of its launch: what is allowed,
 * where things lie, and the tensor maps of queries, keys and values.
 */
#include "families/common/arguments.h"
#include "families/attn_fwd/attn_fwd.h"
#include "families/common/tensor_map.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char family[] = "attn_fwd";

/* Of a stride, in elements: what the 40 bits of a tensor map hold. */
#define MOST_STRIDE ((INT64_C(1) << 39) - 8)
/* tanh(s / cap) is 1 - 2 / (1 + e^(2 s / cap)) in fp32, off by some 2^-24, and the score by cap
 * times that. */
#define MOST_SOFTCAP 1024.0f

static int64_t or_packed(int64_t stride, int64_t packed)
{
    return stride ? stride : packed;
}

static struct gen_attn_strides strides_of(int64_t batch, int64_t row, int64_t head, int64_t rows,
                                          int64_t heads, int64_t width)
{
    struct gen_attn_strides s;
    s.head = or_packed(head, width);
    s.row = or_packed(row, heads * width);
    s.batch = or_packed(batch, rows * heads * width);
    return s;
}

struct gen__attn_strides gen__attn_fwd_strides(const int32_t *dims, const gen_attn_fwd_args *a)
{
    const int64_t width = dims[ATTN_FWD_HEAD_DIM], q_len = dims[ATTN_FWD_Q_LEN];
    const int64_t kv_len = dims[ATTN_FWD_KV_LEN], heads = dims[ATTN_FWD_NUM_Q_HEADS];
    const int64_t kv_heads = dims[ATTN_FWD_NUM_KV_HEADS];
    const int64_t lse_rows = dims[ATTN_FWD_VARLEN] ? a->total_q : q_len;
    return (struct gen__attn_strides){
        .q = strides_of(a->q_batch_stride, a->q_row_stride, a->q_head_stride, q_len, heads, width),
        .k = strides_of(a->k_batch_stride, a->k_row_stride, a->k_head_stride, kv_len, kv_heads,
                        width),
        .v = strides_of(a->v_batch_stride, a->v_row_stride, a->v_head_stride, kv_len, kv_heads,
                        width),
        .o = strides_of(a->o_batch_stride, a->o_row_stride, a->o_head_stride, q_len, heads, width),
        .lse = {.head = or_packed(a->lse_head_stride, lse_rows),
                .row = 1,
                .batch = or_packed(a->lse_batch_stride, heads * lse_rows)},
    };
}

/* ---- checks ------------------------------------------------------------ */

/* No keys at all: k and v may be absent. */
static bool no_keys(const int32_t *dims, const gen_attn_fwd_args *a)
{
    return dims[ATTN_FWD_KV_LEN] == 0 || (dims[ATTN_FWD_VARLEN] && a->total_k == 0);
}

static bool no_queries(const int32_t *dims, const gen_attn_fwd_args *a)
{
    return dims[ATTN_FWD_VARLEN] && a->total_q == 0;
}

static enum gen_status check_descales(const int32_t *dims, const gen_attn_fwd_args *a)
{
    const float *const list[] = {a->q_descale, a->k_descale, a->v_descale};
    static const char *const names[] = {"q_descale", "k_descale", "v_descale"};
    for (int i = 0; i < 3; i++)
        if (list[i] && !gen__attn_of_8_bits(dims[ATTN_FWD_DTYPE]))
            return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                             "%s: %s = %p; allowed: NULL, as dtype has 16 bits", family, names[i],
                             (const void *)list[i]);
    return GEN_OK;
}

static enum gen_status check_pointers(const int32_t *dims, const gen_attn_fwd_args *a)
{
    const bool varlen = dims[ATTN_FWD_VARLEN] != 0;
    const struct {
        const char *name;
        const void *pointer;
        uintptr_t alignment;
        bool optional, unused;
    } list[] = {
        {"q", a->q, 16, no_queries(dims, a), false},
        {"k", a->k, 16, no_keys(dims, a), false},
        {"v", a->v, 16, no_keys(dims, a), false},
        {"o", a->o, 16, no_queries(dims, a), false},
        {"lse", a->lse, 4, true, false},
        {"cu_seqlens_q", a->cu_seqlens_q, 4, false, !varlen},
        {"cu_seqlens_k", a->cu_seqlens_k, 4, false, !varlen},
        {"q_descale", a->q_descale, 4, true, false},
        {"k_descale", a->k_descale, 4, true, false},
        {"v_descale", a->v_descale, 4, true, false},
    };
    enum gen_status status = GEN_OK;
    for (size_t i = 0; !status && i < sizeof list / sizeof *list; i++)
        if (!list[i].unused)
            status = gen__check_pointer(family, list[i].name, list[i].pointer, list[i].alignment,
                                        list[i].optional);
    return status ? status : check_descales(dims, a);
}

/* The same of a stride with `count` steps, which stay below 2^59 elements, so that a sum of three
 * such offsets is below 2^62 bytes. */
static int64_t most_of(int64_t count)
{
    const int64_t most = (INT64_C(1) << 59) / (count > 0 ? count : 1) / 8 * 8;
    return most < MOST_STRIDE ? most : MOST_STRIDE;
}

static int64_t q_rows(const int32_t *dims, const gen_attn_fwd_args *a)
{
    return dims[ATTN_FWD_VARLEN] ? a->total_q : dims[ATTN_FWD_Q_LEN];
}

static int64_t kv_rows(const int32_t *dims, const gen_attn_fwd_args *a)
{
    return dims[ATTN_FWD_VARLEN] ? a->total_k : dims[ATTN_FWD_KV_LEN];
}

static enum gen_status check_lse_strides(const int32_t *dims, const gen_attn_fwd_args *a)
{
    const bool dense = !dims[ATTN_FWD_VARLEN];
    const int64_t lse[2] = {dense ? a->lse_batch_stride : 0, a->lse_head_stride};
    for (int i = 0; i < 2; i++) {
        if (lse[i] == 0)
            continue;
        const int64_t most = most_of(dims[i ? ATTN_FWD_NUM_Q_HEADS : ATTN_FWD_BATCH]);
        if (lse[i] < -most || lse[i] > most)
            return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                             "%s: lse_%s_stride = %" PRId64
                             " elements; allowed: 0 (packed), or -%" PRId64 " to %" PRId64,
                             family, i ? "head" : "batch", lse[i], most, most);
    }
    return GEN_OK;
}

static enum gen_status check_strides(const int32_t *dims, const gen_attn_fwd_args *a)
{
    const bool dense = !dims[ATTN_FWD_VARLEN];
    const int64_t width = dims[ATTN_FWD_HEAD_DIM], batch = dims[ATTN_FWD_BATCH];
    const int64_t q = q_rows(dims, a), heads = dims[ATTN_FWD_NUM_Q_HEADS];
    const int64_t kv = kv_rows(dims, a), kv_heads = dims[ATTN_FWD_NUM_KV_HEADS];
    const int64_t step = gen__attn_of_8_bits(dims[ATTN_FWD_DTYPE]) ? 16 : 8; /* 16 bytes */
    const struct {
        const char *name;
        int64_t stride, count;
        bool used;
    } list[] = {
        {"q_batch_stride", a->q_batch_stride, batch, dense},
        {"q_row_stride", a->q_row_stride, q, true},
        {"q_head_stride", a->q_head_stride, heads, true},
        {"k_batch_stride", a->k_batch_stride, batch, dense},
        {"k_row_stride", a->k_row_stride, kv, true},
        {"k_head_stride", a->k_head_stride, kv_heads, true},
        {"v_batch_stride", a->v_batch_stride, batch, dense},
        {"v_row_stride", a->v_row_stride, kv, true},
        {"v_head_stride", a->v_head_stride, kv_heads, true},
        {"o_batch_stride", a->o_batch_stride, batch, dense},
        {"o_row_stride", a->o_row_stride, q, true},
        {"o_head_stride", a->o_head_stride, heads, true},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        const int64_t s = list[i].stride;
        const int64_t multiple = *list[i].name == 'o' ? 8 : step; /* o has 16 bits */
        if (!list[i].used || s == 0)
            continue;
        const int64_t most = most_of(list[i].count);
        if (s < width || s > most || s % multiple)
            return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                             "%s: %s = %" PRId64 " elements; allowed: 0 (packed), or a multiple of "
                             "%" PRId64 " from %" PRId64 " to %" PRId64,
                             family, list[i].name, s, multiple, width, most);
    }
    return check_lse_strides(dims, a);
}

/* Packed strides of an enormous problem may be beyond what is allowed, too. */
static enum gen_status check_packed(const int32_t *dims, const struct gen__attn_strides *s)
{
    const struct gen_attn_strides *const list[] = {&s->q, &s->k, &s->v, &s->o};
    static const char *const names[] = {"q", "k", "v", "o"};
    const int64_t most = most_of(dims[ATTN_FWD_BATCH]);
    if (dims[ATTN_FWD_VARLEN]) /* there are no batch strides */
        return GEN_OK;
    for (int i = 0; i < 4; i++)
        if (list[i]->batch > most)
            return gen__fail(
                GEN_STATUS_INVALID_ARGUMENT,
                "%s: the packed %s_batch_stride is %lld elements; allowed: <= %" PRId64, family,
                names[i], list[i]->batch, most);
    return GEN_OK;
}

/* Factors of the raw products, as struct gen_attn_fwd_params has them. */
static void scales_of(const int32_t *dims, const gen_attn_fwd_args *a, float *scale_log2,
                      float *cap_scale)
{
    const double log2_e = 1.4426950408889634;
    const bool cap = dims[ATTN_FWD_SOFTCAP] != 0;
    *scale_log2 = (float)(log2_e * (cap ? (double)a->softcap : (double)a->scale));
    *cap_scale = cap ? (float)(2 * log2_e * (double)a->scale / (double)a->softcap) : 0.0f;
}

static enum gen_status check_scalars(const int32_t *dims, const gen_attn_fwd_args *a)
{
    const bool cap = dims[ATTN_FWD_SOFTCAP] != 0;
    float scale_log2, cap_scale;
    if (!isfinite(a->scale) || a->scale <= 0)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "%s: scale = %g; allowed: a finite number > 0", family, (double)a->scale);
    if (cap ? !(a->softcap > 0 && a->softcap <= MOST_SOFTCAP) : a->softcap != 0)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT, "%s: softcap = %g; allowed: %s", family,
                         (double)a->softcap,
                         cap ? "> 0 and <= 1024, as the problem has a softcap"
                             : "0, as the problem has no softcap");
    scales_of(dims, a, &scale_log2, &cap_scale);
    if (!isfinite(scale_log2) || scale_log2 <= 0 || !isfinite(cap_scale) || (cap && cap_scale <= 0))
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "%s: scale, softcap = %g, %g; allowed: scale * log2(e) and, with a "
                         "softcap, 2 * log2(e) * scale / softcap that fp32 holds",
                         family, (double)a->scale, (double)a->softcap);
    if (dims[ATTN_FWD_VARLEN] && (a->total_q < 0 || a->total_k < 0))
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "%s: total_q, total_k = %" PRId32 ", %" PRId32 "; allowed: >= 0", family,
                         a->total_q, a->total_k);
    return GEN_OK;
}

/* What is divided by on the device, in case the plan was not kept well. */
static enum gen_status check_dims(const int32_t *dims, bool launch)
{
    if (dims[ATTN_FWD_BATCH] > 0 && dims[ATTN_FWD_NUM_KV_HEADS] > 0 &&
        dims[ATTN_FWD_NUM_Q_HEADS] >= dims[ATTN_FWD_NUM_KV_HEADS] && dims[ATTN_FWD_Q_LEN] > 0 &&
        (!launch ||
         (dims[ATTN_FWD_ROW_TILES] > 0 && dims[ATTN_FWD_SHORT_UNITS] >= 0 &&
          dims[ATTN_FWD_HEAD_UNITS] > dims[ATTN_FWD_SHORT_UNITS] && dims[ATTN_FWD_SECTION] > 0)))
        return GEN_OK;
    return gen__fail(GEN_STATUS_MISMATCH,
                     "%s: the plan's batch, num_q_heads, num_kv_heads, q_len, row tiles, head "
                     "units, section, short units are %" PRId32 ", %" PRId32 ", %" PRId32
                     ", %" PRId32 ", %" PRId32 ", %" PRId32 ", %" PRId32 ", %" PRId32
                     "; not what gen_select() writes",
                     family, dims[ATTN_FWD_BATCH], dims[ATTN_FWD_NUM_Q_HEADS],
                     dims[ATTN_FWD_NUM_KV_HEADS], dims[ATTN_FWD_Q_LEN], dims[ATTN_FWD_ROW_TILES],
                     dims[ATTN_FWD_HEAD_UNITS], dims[ATTN_FWD_SECTION], dims[ATTN_FWD_SHORT_UNITS]);
}

/* ---- tensor maps -------------------------------------------------------- */

/* The type and the swizzle of a tensor's boxes, which are as wide as what is swizzled, and its
 * columns: 128 bytes, or 64 where a row has no more. */
struct box_form {
    int type, swizzle;
    uint32_t columns, element; /* element: bytes */
};

static struct box_form form_of(const int32_t *dims)
{
    const int32_t dtype = dims[ATTN_FWD_DTYPE];
    if (!gen__attn_of_8_bits(dtype))
        return (struct box_form){dtype == GEN_DTYPE_FP16 ? GEN__TENSOR_FP16 : GEN__TENSOR_BF16,
                                 GEN__TENSOR_SWIZZLE_128, 64, 2};
    if (dims[ATTN_FWD_HEAD_DIM] < 128)
        return (struct box_form){GEN__TENSOR_UINT8, GEN__TENSOR_SWIZZLE_64, 64, 1};
    return (struct box_form){GEN__TENSOR_UINT8, GEN__TENSOR_SWIZZLE_128, 128, 1};
}

/* One tensor: head_dim, rows, heads, requests. Rows that do not exist are zeros. */
static enum gen_status encode_map(const struct gen__driver *driver, const char *name,
                                  const void *memory, const struct gen_attn_strides *s,
                                  const int32_t *dims, int64_t rows, int32_t heads,
                                  uint32_t box_rows, unsigned long long map[16])
{
    if (!memory) { /* and never asked for */
        memset(map, 0, sizeof(unsigned long long[16]));
        return GEN_OK;
    }
    const bool varlen = dims[ATTN_FWD_VARLEN] != 0;
    const struct box_form form = form_of(dims);
    const struct gen__boxed tensor = {
        .memory = memory,
        .extent = {(uint64_t)dims[ATTN_FWD_HEAD_DIM], rows > 0 ? (uint64_t)rows : 1,
                   (uint64_t)heads, varlen ? 1 : (uint64_t)dims[ATTN_FWD_BATCH]},
        .strides = {form.element * (uint64_t)s->row, form.element * (uint64_t)s->head,
                    form.element * (uint64_t)(varlen ? s->row : s->batch)},
        .box = {form.columns, box_rows, 1, 1},
        .type = form.type,
        .swizzle = form.swizzle,
    };
    const int result = gen__tensor_map(driver, &tensor, map);
    if (!result)
        return GEN_OK;
    char what[256];
    snprintf(what, sizeof what,
             "%s: %s = %p, strides %lld, %lld, %lld elements, %" PRId64 " rows, %" PRId32 " heads",
             family, name, memory, s->batch, s->row, s->head, rows, heads);
    return gen__driver_fail(driver, result, "cuTensorMapEncodeTiled", what);
}

static enum gen_status encode_maps(const int32_t *dims, const gen_attn_fwd_args *a,
                                   const struct gen__attn_strides *s, struct gen_attn_fwd_params *k)
{
    const struct gen__driver *driver;
    enum gen_status status = gen__tensor_maps_open(family, &driver);
    if (status)
        return status;
    const int64_t rows = kv_rows(dims, a);
    const int32_t kv_heads = dims[ATTN_FWD_NUM_KV_HEADS];
    const uint32_t box_rows = (uint32_t)dims[ATTN_FWD_MAP_ROWS];
    status = encode_map(driver, "q", a->q, &s->q, dims, q_rows(dims, a), dims[ATTN_FWD_NUM_Q_HEADS],
                        64, k->q_map);
    if (!status)
        status = encode_map(driver, "k", a->k, &s->k, dims, rows, kv_heads, box_rows, k->k_map);
    if (!status)
        status = encode_map(driver, "v", a->v, &s->v, dims, rows, kv_heads, box_rows, k->v_map);
    return status;
}

/* ---- parameters -------------------------------------------------------- */

static enum gen_status make_params(const int32_t *dims, const gen_attn_fwd_args *a,
                                   const struct gen__attn_strides *s, void *workspace,
                                   struct gen_attn_fwd_params *k)
{
    const bool varlen = dims[ATTN_FWD_VARLEN] != 0;
    const int32_t all_heads = dims[ATTN_FWD_BATCH] * dims[ATTN_FWD_NUM_Q_HEADS];
    k->q = a->q;
    k->k = a->k;
    k->v = a->v;
    k->o = a->o;
    k->lse = a->lse;
    k->cu_q = varlen ? a->cu_seqlens_q : NULL;
    k->cu_k = varlen ? a->cu_seqlens_k : NULL;
    k->q_stride = s->q;
    k->k_stride = s->k;
    k->v_stride = s->v;
    k->o_stride = s->o;
    k->lse_stride = s->lse;
    k->schedule = (struct gen_attn_schedule){.num_units = all_heads * dims[ATTN_FWD_HEAD_UNITS],
                                             .head_units = dims[ATTN_FWD_HEAD_UNITS],
                                             .row_tiles = dims[ATTN_FWD_ROW_TILES],
                                             .all_heads = all_heads,
                                             .section = dims[ATTN_FWD_SECTION],
                                             .descending = dims[ATTN_FWD_IS_CAUSAL],
                                             .paired = dims[ATTN_FWD_PAIRED] != 0,
                                             .short_units = dims[ATTN_FWD_SHORT_UNITS]};
    k->q_len = dims[ATTN_FWD_Q_LEN];
    k->kv_len = dims[ATTN_FWD_KV_LEN];
    k->total_q = varlen ? a->total_q : 0;
    k->total_k = varlen ? a->total_k : 0;
    k->num_q_heads = dims[ATTN_FWD_NUM_Q_HEADS];
    k->group = dims[ATTN_FWD_NUM_Q_HEADS] / dims[ATTN_FWD_NUM_KV_HEADS];
    k->left = gen__attn_left(dims);
    k->right = gen__attn_right(dims);
    k->q_descale = a->q_descale;
    k->k_descale = a->k_descale;
    k->v_descale = a->v_descale;
    k->tickets = workspace;
    k->o_fp16 = gen__attn_output(dims[ATTN_FWD_DTYPE], dims[ATTN_FWD_O_DTYPE]) == GEN_DTYPE_FP16;
    scales_of(dims, a, &k->scale_log2, &k->cap_scale);
    if (dims[ATTN_FWD_MAP_ROWS])
        return encode_maps(dims, a, s, k);
    memset(k->q_map, 0, sizeof k->q_map);
    memset(k->k_map, 0, sizeof k->k_map);
    memset(k->v_map, 0, sizeof k->v_map);
    return GEN_OK;
}

enum gen_status gen__attn_fwd_params(const gen_plan *plan, uint32_t launch, const gen_args *base,
                                     void *workspace, void *out)
{
    const gen_attn_fwd_args *a = (const gen_attn_fwd_args *)base;
    const int32_t *dims = plan->dims;
    enum gen_status status;
    (void)launch;
    if ((status = check_dims(dims, out != NULL)) != GEN_OK ||
        (status = check_scalars(dims, a)) != GEN_OK ||
        (status = check_pointers(dims, a)) != GEN_OK || (status = check_strides(dims, a)) != GEN_OK)
        return status;
    const struct gen__attn_strides s = gen__attn_fwd_strides(dims, a);
    if ((status = check_packed(dims, &s)) != GEN_OK || !out)
        return status;
    return make_params(dims, a, &s, workspace, out);
}

/* ---- what is read and written -------------------------------------------- */

/* Rows of a tensor and heads of them, of each request unless these lie one behind the other. */
static inline __attribute__((always_inline)) void
tell(struct gen__extent *e, bool written, const char *name, const void *at, const int32_t *dims,
     const struct gen_attn_strides *s, int64_t rows, int64_t heads, int64_t width, int64_t element)
{
    gen__extent(e, written, name, at, width * element);
    gen__extent_repeat(e, rows, gen__stride_bytes(s->row, element));
    gen__extent_repeat(e, heads, gen__stride_bytes(s->head, element));
    if (!dims[ATTN_FWD_VARLEN])
        gen__extent_repeat(e, dims[ATTN_FWD_BATCH], gen__stride_bytes(s->batch, element));
}

uint32_t gen__attn_fwd_extents(const int32_t *dims, const gen_args *base,
                               struct gen__extent list[GEN__MAX_EXTENTS])
{
    const gen_attn_fwd_args *a = (const gen_attn_fwd_args *)base;
    const struct gen__attn_strides s = gen__attn_fwd_strides(dims, a);
    const int64_t width = dims[ATTN_FWD_HEAD_DIM], queries = q_rows(dims, a);
    const int64_t keys = kv_rows(dims, a), heads = dims[ATTN_FWD_NUM_Q_HEADS];
    const int64_t kv_heads = dims[ATTN_FWD_NUM_KV_HEADS], batch = dims[ATTN_FWD_BATCH];
    const int64_t element = gen__attn_of_8_bits(dims[ATTN_FWD_DTYPE]) ? 1 : 2;
    const bool varlen = dims[ATTN_FWD_VARLEN] != 0;
    tell(&list[0], false, "q", a->q, dims, &s.q, queries, heads, width, element);
    tell(&list[1], false, "k", a->k, dims, &s.k, keys, kv_heads, width, element);
    tell(&list[2], false, "v", a->v, dims, &s.v, keys, kv_heads, width, element);
    tell(&list[3], true, "o", a->o, dims, &s.o, queries, heads, width, 2);
    tell(&list[4], true, "lse", a->lse, dims, &s.lse, queries, heads, 1, 4);
    gen__reads(&list[5], "cu_seqlens_q", varlen ? a->cu_seqlens_q : NULL, (batch + 1) * 4);
    gen__reads(&list[6], "cu_seqlens_k", varlen ? a->cu_seqlens_k : NULL, (batch + 1) * 4);
    gen__reads(&list[7], "q_descale", a->q_descale, batch * kv_heads * 4);
    gen__reads(&list[8], "k_descale", a->k_descale, batch * kv_heads * 4);
    gen__reads(&list[9], "v_descale", a->v_descale, batch * kv_heads * 4);
    return 10;
}
