/*
 * The arguments of attn_paged and the parameters of its launch: what is allowed, and where things
 * lie.
 */
#include "families/attn_paged/attn_paged.h"
#include "families/common/fastdiv.h"
#include "families/common/strides.h"
#include "families/common/tensor_map.h"
#include "families/common/arguments.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char family[] = "attn_paged";

static bool is_paged(const int32_t *dims)
{
    return dims[ATTN_PAGED_PAGE_SIZE] != 0;
}

static bool is_e4m3(const int32_t *dims)
{
    return dims[ATTN_PAGED_CACHE] == GEN_ATTN_PAGED_CACHE_E4M3;
}

/* 2^31 tokens where the caller numbers them. */
static int64_t most_tokens(const int32_t *dims, const gen_attn_paged_args *a)
{
    return a->q_indptr ? INT64_C(1) << 31
                       : (int64_t)dims[ATTN_PAGED_BATCH] * dims[ATTN_PAGED_Q_LEN];
}

/* Rows of a page; not paged, those of a request. */
static int64_t page_rows(const int32_t *dims)
{
    return is_paged(dims) ? dims[ATTN_PAGED_PAGE_SIZE] : dims[ATTN_PAGED_MAX_KV_LENGTH];
}

static int64_t pages_of(const int32_t *dims, const gen_attn_paged_args *a)
{
    return is_paged(dims) ? a->num_pages : dims[ATTN_PAGED_BATCH];
}

/* Entries of a row of the page table. */
static int64_t most_pages(const int32_t *dims)
{
    return (dims[ATTN_PAGED_MAX_KV_LENGTH] - 1) / page_rows(dims) + 1;
}

static int64_t or_packed(int64_t stride, int64_t count, int64_t inner)
{
    return stride ? stride : gen__stride_outer(count, inner);
}

struct gen__attn_paged_strides gen__attn_paged_strides(const int32_t *dims,
                                                       const gen_attn_paged_args *a)
{
    const int64_t heads = dims[ATTN_PAGED_NUM_Q_HEADS], keys = dims[ATTN_PAGED_NUM_KV_HEADS];
    const int64_t width = dims[ATTN_PAGED_HEAD_DIM];
    const int64_t v_width = gen__attn_paged_v_dim(dims[ATTN_PAGED_HEAD_DIM]);
    struct gen__attn_paged_strides s = {
        .q_head = or_packed(a->q_head_stride, width, 1),
        .k_head = or_packed(a->k_head_stride, width, 1),
        .v_head = or_packed(a->v_head_stride, v_width, 1),
        .o_head = or_packed(a->o_head_stride, v_width, 1),
        .lse_head = or_packed(a->lse_head_stride, 1, 1),
        .page_table = or_packed(a->page_table_stride, most_pages(dims), 1),
    };
    s.q_token = or_packed(a->q_token_stride, heads, s.q_head);
    s.k_row = or_packed(a->k_row_stride, keys, s.k_head);
    s.v_row = or_packed(a->v_row_stride, keys, s.v_head);
    s.k_page = or_packed(a->k_page_stride, page_rows(dims), s.k_row);
    s.v_page = or_packed(a->v_page_stride, page_rows(dims), s.v_row);
    s.o_token = or_packed(a->o_token_stride, heads, s.o_head);
    s.lse_token = or_packed(a->lse_token_stride, heads, s.lse_head);
    return s;
}

/* ---- checks ------------------------------------------------------------ */

/* What is divided by here, in case the plan was not kept well. */
static enum gen_status check_dims(const int32_t *dims)
{
    if (dims[ATTN_PAGED_BATCH] > 0 && dims[ATTN_PAGED_NUM_KV_HEADS] > 0 &&
        dims[ATTN_PAGED_NUM_Q_HEADS] >= dims[ATTN_PAGED_NUM_KV_HEADS] &&
        dims[ATTN_PAGED_Q_LEN] > 0 && dims[ATTN_PAGED_PAGE_SIZE] >= 0 &&
        dims[ATTN_PAGED_MAX_KV_LENGTH] > 0)
        return GEN_OK;
    return gen__fail(GEN_STATUS_MISMATCH,
                     "%s: the plan's batch, num_q_heads, num_kv_heads, q_len, page_size, "
                     "max_kv_len are %" PRId32 ", %" PRId32 ", %" PRId32 ", %" PRId32 ", %" PRId32
                     ", %" PRId32 "; not what gen_select() writes",
                     family, dims[ATTN_PAGED_BATCH], dims[ATTN_PAGED_NUM_Q_HEADS],
                     dims[ATTN_PAGED_NUM_KV_HEADS], dims[ATTN_PAGED_Q_LEN],
                     dims[ATTN_PAGED_PAGE_SIZE], dims[ATTN_PAGED_MAX_KV_LENGTH]);
}

static enum gen_status check_pointers(const int32_t *dims, const gen_attn_paged_args *a)
{
    const struct {
        const char *name;
        const void *pointer;
        uintptr_t alignment;
        bool optional;
    } list[] = {
        {"q", a->q, 16, false},
        {"k", a->k, 16, false},
        {"v", a->v, 16, false},
        {"o", a->o, 16, false},
        {"lse", a->lse, 4, true},
        {"kv_len", a->kv_len, 4, is_paged(dims) && a->page_indptr && a->last_page_len},
        {"page_indices", a->page_indices, 4, !is_paged(dims)},
        {"page_indptr", a->page_indptr, 4, true},
        {"last_page_len", a->last_page_len, 4, true},
        {"q_indptr", a->q_indptr, 4, true},
        {"q_descale", a->q_descale, 4, true},
        {"k_descale", a->k_descale, 4, true},
        {"v_descale", a->v_descale, 4, true},
        {"sink", a->sink, 4, !dims[ATTN_PAGED_SINK]},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        const enum gen_status status = gen__check_pointer(family, list[i].name, list[i].pointer,
                                                          list[i].alignment, list[i].optional);
        if (status)
            return status;
    }
    if (!is_paged(dims) && (a->page_indices || a->page_indptr))
        return gen__fail(
            GEN_STATUS_INVALID_ARGUMENT, "%s: %s = %p with page_size = 0, not paged; allowed: NULL",
            family, a->page_indices ? "page_indices" : "page_indptr",
            a->page_indices ? (const void *)a->page_indices : (const void *)a->page_indptr);
    return GEN_OK;
}

static enum gen_status check_strides(const int32_t *dims, const gen_attn_paged_args *a)
{
    const int64_t tokens = most_tokens(dims, a), heads = dims[ATTN_PAGED_NUM_Q_HEADS];
    const int64_t keys = dims[ATTN_PAGED_NUM_KV_HEADS], rows = page_rows(dims);
    const int64_t pages = pages_of(dims, a), width = dims[ATTN_PAGED_HEAD_DIM];
    const int64_t v_width = gen__attn_paged_v_dim(dims[ATTN_PAGED_HEAD_DIM]);
    const int64_t batch = dims[ATTN_PAGED_BATCH], unit = is_e4m3(dims) ? 16 : 8;
    const struct {
        const char *name;
        int64_t stride, unit, width, count;
    } list[] = {
        {"q_token_stride", a->q_token_stride, 8, width, tokens},
        {"q_head_stride", a->q_head_stride, 8, width, heads},
        {"k_page_stride", a->k_page_stride, unit, width, pages},
        {"k_row_stride", a->k_row_stride, unit, width, rows},
        {"k_head_stride", a->k_head_stride, unit, width, keys},
        {"v_page_stride", a->v_page_stride, unit, v_width, pages},
        {"v_row_stride", a->v_row_stride, unit, v_width, rows},
        {"v_head_stride", a->v_head_stride, unit, v_width, keys},
        {"o_token_stride", a->o_token_stride, 8, v_width, tokens},
        {"o_head_stride", a->o_head_stride, 8, v_width, heads},
    };
    const struct {
        const char *name;
        int64_t stride, count;
    } any[] = {
        {"lse_token_stride", a->lse_token_stride, tokens},
        {"lse_head_stride", a->lse_head_stride, heads},
        {"q_descale_batch_stride", a->q_descale_batch_stride, batch},
        {"q_descale_head_stride", a->q_descale_head_stride, keys},
        {"k_descale_batch_stride", a->k_descale_batch_stride, batch},
        {"k_descale_head_stride", a->k_descale_head_stride, keys},
        {"v_descale_batch_stride", a->v_descale_batch_stride, batch},
        {"v_descale_head_stride", a->v_descale_head_stride, keys},
    };
    enum gen_status status = GEN_OK;
    for (size_t i = 0; !status && i < sizeof list / sizeof *list; i++)
        status = gen__check_stride(family, list[i].name, list[i].stride, list[i].unit,
                                   list[i].width, list[i].count);
    for (size_t i = 0; !status && i < sizeof any / sizeof *any; i++)
        status = gen__check_free_stride(family, any[i].name, any[i].stride, any[i].count);
    if (!status && is_paged(dims) && !a->page_indptr)
        status = gen__check_stride(family, "page_table_stride", a->page_table_stride, 1,
                                   most_pages(dims), batch);
    return status;
}

static enum gen_status check_scalars(const int32_t *dims, const gen_attn_paged_args *a)
{
    if (is_paged(dims) && a->num_pages < 1)
        return gen__invalid(family, "num_pages", a->num_pages, ">= 1");
    if (a->lse_base_2 != 0 && a->lse_base_2 != 1)
        return gen__invalid(family, "lse_base_2", a->lse_base_2, "0, 1");
    if (a->lse_sink != 0 && a->lse_sink != 1)
        return gen__invalid(family, "lse_sink", a->lse_sink, "0, 1");
    if (!isfinite(a->scale))
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT, "%s: scale = %g; allowed: a finite number",
                         family, (double)a->scale);
    if (dims[ATTN_PAGED_SOFTCAP] && !(isfinite(a->softcap) && a->softcap > 0))
        return gen__fail(
            GEN_STATUS_INVALID_ARGUMENT,
            "%s: softcap = %g; allowed: a finite number > 0, for the problem's softcap "
            "is 1",
            family, (double)a->softcap);
    return GEN_OK;
}

/* ---- parameters -------------------------------------------------------- */

struct gen__attn_paged_workspace gen__attn_paged_workspace(const int32_t *dims)
{
    const uint64_t parts = (uint64_t)dims[ATTN_PAGED_NUM_PARTS];
    const uint64_t rows = 2 * parts * (uint64_t)dims[ATTN_PAGED_TILE_ROWS];
    struct gen__attn_paged_workspace w = {0};
    if (dims[ATTN_PAGED_WHOLE] == ATTN_PAGED_DIRECT_CLUSTERS) {
        /* A float4 for each two outputs of a block, of which a cluster's blocks, two at least, have
         * parts. */
        w.partial = (parts * sizeof(uint64_t) + 255) / 256 * 256;
        w.size = w.partial + rows / 2 * (uint64_t)dims[ATTN_PAGED_HEAD_DIM] * sizeof(float);
        return w;
    }
    if (dims[ATTN_PAGED_WHOLE] || !parts)
        return w;
    const uint64_t shares =
        dims[ATTN_PAGED_TENSOR_MAPS] > 1 ? (uint64_t)dims[ATTN_PAGED_TENSOR_MAPS] : 1;
    w.partial_lse = (GEN_ATTN_PAGED_LEVELS * shares * parts * sizeof(uint64_t) + 255) / 256 * 256;
    w.partial = w.partial_lse + (rows * sizeof(float) + 255) / 256 * 256;
    w.size = w.partial +
             rows * (uint64_t)gen__attn_paged_v_dim(dims[ATTN_PAGED_HEAD_DIM]) * sizeof(float);
    return w;
}

static void set_divisors(const int32_t *dims, struct gen_attn_paged_params *k)
{
    const uint32_t page = is_paged(dims) ? (uint32_t)dims[ATTN_PAGED_PAGE_SIZE] : 1;
    const struct gen__fastdiv any = gen__fastdiv(page);
    const struct gen__fastdiv group = gen__fastdiv((uint32_t)k->group);
    const struct gen__fastdiv parts = gen__fastdiv((uint32_t)k->line.num_parts);
    const bool shift_alone = (page & (page - 1)) == 0;
    k->group_mul = group.mul;
    k->group_shift = group.shift;
    k->line.parts_mul = parts.mul;
    k->line.parts_shift = parts.shift;
    k->page_mul = shift_alone ? 0 : any.mul;
    k->page_shift = shift_alone ? 31u - (unsigned)__builtin_clz(page) : any.shift;
}

static void set_workspace(const int32_t *dims, char *workspace, struct gen_attn_paged_params *k)
{
    const struct gen__attn_paged_workspace w = gen__attn_paged_workspace(dims);
    if (!w.size)
        return;
    k->tickets = (unsigned long long *)(void *)workspace;
    k->partial_lse = (float *)(void *)(workspace + w.partial_lse);
    k->partial = (float *)(void *)(workspace + w.partial);
}

/* Columns, rows of a page, key heads, pages; a box is map_rows rows of 64 columns. */
static enum gen_status encode_map(const struct gen__driver *driver, const char *name,
                                  const void *memory, int32_t width, int64_t row, int64_t head,
                                  int64_t page, const int32_t *dims, int64_t num_pages,
                                  unsigned long long map[16])
{
    const struct gen__boxed tensor = {
        .memory = memory,
        .extent = {(uint64_t)width, (uint64_t)page_rows(dims),
                   (uint64_t)dims[ATTN_PAGED_NUM_KV_HEADS], (uint64_t)num_pages},
        .strides = {(uint64_t)row * 2, (uint64_t)head * 2, (uint64_t)page * 2},
        .box = {64, (uint32_t)dims[ATTN_PAGED_MAP_ROWS], 1, 1},
        .type = dims[ATTN_PAGED_DTYPE] == GEN_DTYPE_FP16 ? GEN__TENSOR_FP16 : GEN__TENSOR_BF16,
        .swizzle = GEN__TENSOR_SWIZZLE_128,
    };
    const int result = gen__tensor_map(driver, &tensor, map);
    if (!result)
        return GEN_OK;
    char what[256];
    snprintf(what, sizeof what,
             "%s: %s = %p, strides of rows, heads, pages %" PRId64 ", %" PRId64 ", %" PRId64
             " elements, %" PRId64 " pages of %" PRId64 " rows",
             family, name, memory, row, head, page, num_pages, page_rows(dims));
    return gen__driver_fail(driver, result, "cuTensorMapEncodeTiled", what);
}

static enum gen_status encode_maps(const int32_t *dims, const gen_attn_paged_args *a,
                                   const struct gen__attn_paged_strides *s,
                                   struct gen_attn_paged_params *k)
{
    const struct gen__driver *driver;
    enum gen_status status = gen__tensor_maps_open(family, &driver);
    if (!status)
        status = encode_map(driver, "k", a->k, dims[ATTN_PAGED_HEAD_DIM], s->k_row, s->k_head,
                            s->k_page, dims, pages_of(dims, a), k->k_map);
    if (!status)
        status = encode_map(driver, "v", a->v, gen__attn_paged_v_dim(dims[ATTN_PAGED_HEAD_DIM]),
                            s->v_row, s->v_head, s->v_page, dims, pages_of(dims, a), k->v_map);
    return status;
}

static struct gen_attn_paged_params params_of(const int32_t *dims, const gen_attn_paged_args *a,
                                              const struct gen__attn_paged_strides *s)
{
    const double log2_e = 1.4426950408889634;
    const bool capped = dims[ATTN_PAGED_SOFTCAP] != 0;
    return (struct gen_attn_paged_params){
        .q = a->q,
        .k = a->k,
        .v = a->v,
        .o = a->o,
        .lse = a->lse,
        .kv_len = a->kv_len,
        .page_indices = a->page_indices,
        .page_indptr = a->page_indptr,
        .last_page_len = a->last_page_len,
        .q_indptr = a->q_indptr,
        .q_descale = a->q_descale,
        .k_descale = a->k_descale,
        .v_descale = a->v_descale,
        .sink = dims[ATTN_PAGED_SINK] ? a->sink : NULL,
        .q_token = s->q_token,
        .q_head = s->q_head,
        .k_page = s->k_page,
        .k_row = s->k_row,
        .k_head = s->k_head,
        .v_page = s->v_page,
        .v_row = s->v_row,
        .v_head = s->v_head,
        .o_token = s->o_token,
        .o_head = s->o_head,
        .lse_token = s->lse_token,
        .lse_head = s->lse_head,
        .page_table = s->page_table,
        .q_descale_batch = a->q_descale_batch_stride,
        .q_descale_head = a->q_descale_head_stride,
        .k_descale_batch = a->k_descale_batch_stride,
        .k_descale_head = a->k_descale_head_stride,
        .v_descale_batch = a->v_descale_batch_stride,
        .v_descale_head = a->v_descale_head_stride,
        .line = {.batch = dims[ATTN_PAGED_BATCH],
                 .num_parts =
                     dims[dims[ATTN_PAGED_WHOLE] < ATTN_PAGED_DIRECT_CLUSTER ? ATTN_PAGED_NUM_PARTS
                                                                             : ATTN_PAGED_VISIT],
                 .visit = dims[ATTN_PAGED_VISIT],
                 .whole = dims[ATTN_PAGED_WHOLE]},
        .num_kv_heads = dims[ATTN_PAGED_NUM_KV_HEADS],
        .group = dims[ATTN_PAGED_NUM_Q_HEADS] / dims[ATTN_PAGED_NUM_KV_HEADS],
        .q_len = dims[ATTN_PAGED_Q_LEN],
        .max_kv_len = dims[ATTN_PAGED_MAX_KV_LENGTH],
        .page_size = dims[ATTN_PAGED_PAGE_SIZE],
        .num_pages = (int)pages_of(dims, a),
        .causal = dims[ATTN_PAGED_CAUSAL],
        .left_window = dims[ATTN_PAGED_LEFT_WINDOW],
        .lse_base_2 = a->lse_base_2,
        .lse_sink = a->lse_sink,
        .map_rows = dims[ATTN_PAGED_MAP_ROWS],
        .scale_log2 = (float)((double)a->scale * log2_e * (capped ? 2 / (double)a->softcap : 1.0)),
        .cap_log2 = capped ? (float)((double)a->softcap * log2_e) : 0.0f,
    };
}

enum gen_status gen__attn_paged_params(const gen_plan *plan, uint32_t launch, const gen_args *base,
                                       void *workspace, void *out)
{
    const gen_attn_paged_args *a = (const gen_attn_paged_args *)base;
    const int32_t *dims = plan->dims;
    enum gen_status status;
    (void)launch;
    if ((status = check_dims(dims)) != GEN_OK || (status = check_pointers(dims, a)) != GEN_OK ||
        (status = check_scalars(dims, a)) != GEN_OK || (status = check_strides(dims, a)) != GEN_OK)
        return status;
    if (!out)
        return GEN_OK;
    if (dims[ATTN_PAGED_NUM_PARTS] < 1 ||
        (dims[ATTN_PAGED_WHOLE] >= ATTN_PAGED_DIRECT_CLUSTER && dims[ATTN_PAGED_VISIT] < 1))
        return gen__fail(GEN_STATUS_MISMATCH,
                         "%s: the plan's num_parts is %" PRId32 "; not what gen_select() writes",
                         family, dims[ATTN_PAGED_NUM_PARTS]);
    const struct gen__attn_paged_strides s = gen__attn_paged_strides(dims, a);
    struct gen_attn_paged_params k = params_of(dims, a, &s);
    set_divisors(dims, &k);
    set_workspace(dims, workspace, &k);
    if (dims[ATTN_PAGED_TENSOR_MAPS] && (status = encode_maps(dims, a, &s, &k)) != GEN_OK)
        return status;
    memcpy(out, &k, sizeof k);
    return GEN_OK;
}

/* ---- what is read and written -------------------------------------------- */

static void tell(struct gen__extent *e, bool written, const char *name, const void *at,
                 int64_t width, const int64_t counts[3], const int64_t strides[3])
{
    gen__extent(e, written, name, at, width);
    for (int i = 0; i < 3; i++)
        if (counts[i] != 1)
            gen__extent_repeat(e, counts[i], strides[i]);
}

uint32_t gen__attn_paged_extents(const int32_t *dims, const gen_args *base,
                                 struct gen__extent list[GEN__MAX_EXTENTS])
{
    const gen_attn_paged_args *a = (const gen_attn_paged_args *)base;
    const struct gen__attn_paged_strides s = gen__attn_paged_strides(dims, a);
    const int64_t batch = dims[ATTN_PAGED_BATCH], width = dims[ATTN_PAGED_HEAD_DIM];
    const int64_t heads = dims[ATTN_PAGED_NUM_Q_HEADS], keys = dims[ATTN_PAGED_NUM_KV_HEADS];
    const int64_t v_width = gen__attn_paged_v_dim(dims[ATTN_PAGED_HEAD_DIM]);
    const int64_t bytes = is_e4m3(dims) ? 1 : 2;
    /* Of tokens that q_indptr numbers and of pages that page_indptr does, the host knows one. */
    const int64_t tokens = a->q_indptr ? 1 : most_tokens(dims, a);
    const int64_t rows[3] = {heads, tokens, 1};
    const int64_t cache[3] = {keys, page_rows(dims), pages_of(dims, a)};
#define BY(stride, size) gen__stride_bytes(stride, size)
    tell(&list[0], false, "q", a->q, width * 2, rows,
         (const int64_t[3]){BY(s.q_head, 2), BY(s.q_token, 2), 0});
    tell(&list[1], false, "k", a->k, width * bytes, cache,
         (const int64_t[3]){BY(s.k_head, bytes), BY(s.k_row, bytes), BY(s.k_page, bytes)});
    tell(&list[2], false, "v", a->v, v_width * bytes, cache,
         (const int64_t[3]){BY(s.v_head, bytes), BY(s.v_row, bytes), BY(s.v_page, bytes)});
    tell(&list[3], true, "o", a->o, v_width * 2, rows,
         (const int64_t[3]){BY(s.o_head, 2), BY(s.o_token, 2), 0});
    tell(&list[4], true, "lse", a->lse, 4, rows,
         (const int64_t[3]){BY(s.lse_head, 4), BY(s.lse_token, 4), 0});
    gen__reads(&list[5], "kv_len", a->kv_len, batch * 4);
    gen__reads_rows(&list[6], "page_indices", a->page_indices,
                    a->page_indptr ? 4 : most_pages(dims) * INT64_C(4), a->page_indptr ? 1 : batch,
                    BY(s.page_table, 4));
    gen__reads(&list[7], "page_indptr", a->page_indptr, (batch + 1) * 4);
    gen__reads(&list[8], "last_page_len", a->kv_len ? NULL : a->last_page_len, batch * 4);
    gen__reads(&list[9], "q_indptr", a->q_indptr, (batch + 1) * 4);
    const struct {
        const char *name;
        const float *at;
        int64_t batch, head;
    } scales[] = {
        {"q_descale", a->q_descale, a->q_descale_batch_stride, a->q_descale_head_stride},
        {"k_descale", a->k_descale, a->k_descale_batch_stride, a->k_descale_head_stride},
        {"v_descale", a->v_descale, a->v_descale_batch_stride, a->v_descale_head_stride},
    };
    for (int i = 0; i < 3; i++)
        tell(&list[10 + i], false, scales[i].name, scales[i].at, 4,
             (const int64_t[3]){scales[i].batch ? batch : 1, scales[i].head ? keys : 1, 1},
             (const int64_t[3]){BY(scales[i].batch, 4), BY(scales[i].head, 4), 0});
    gen__reads(&list[13], "sink", dims[ATTN_PAGED_SINK] ? a->sink : NULL, heads * 4);
#undef BY
    return 14;
}
