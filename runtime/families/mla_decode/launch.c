/*
 * The arguments of mla_decode and the parameters of its launches: what is
 * allowed, where things lie, and the tensor maps of the cache.
 */
#include "families/mla/mla.h"
#include "families/mla_decode/mla_decode.h"
#include "families/common/tensor_map.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char family[] = "mla_decode";

/* 2^31 tokens where the caller numbers them. */
static int64_t most_tokens(const int32_t *dims, const gen_mla_decode_args *a)
{
    return a->q_indptr ? INT64_C(1) << 31
                       : (int64_t)dims[MLA_DECODE_BATCH] * dims[MLA_DECODE_Q_LEN];
}

static int64_t most_pages(const int32_t *dims)
{
    return (dims[MLA_DECODE_MAX_KV_LEN] - 1) / dims[MLA_DECODE_PAGE_SIZE] + 1;
}

static int64_t or_packed(int64_t stride, int64_t packed)
{
    return stride ? stride : packed;
}

struct gen__mla_strides gen__mla_decode_strides(const int32_t *dims, const gen_mla_decode_args *a)
{
    const int64_t heads = dims[MLA_DECODE_NUM_HEADS], page = dims[MLA_DECODE_PAGE_SIZE];
    struct gen__mla_strides s = {
        .q_nope_head = or_packed(a->q_nope_head_stride, MLA_LATENT),
        .q_pe_head = or_packed(a->q_pe_head_stride, MLA_ROPE),
        .ckv_row = or_packed(a->ckv_row_stride, MLA_LATENT),
        .kpe_row = or_packed(a->kpe_row_stride, MLA_ROPE),
        .o_head = or_packed(a->o_head_stride, MLA_LATENT),
        .lse_head = or_packed(a->lse_head_stride, 1),
        .page_table = or_packed(a->page_table_stride, most_pages(dims)),
    };
    s.q_nope_token = or_packed(a->q_nope_token_stride, gen__stride_outer(heads, s.q_nope_head));
    s.q_pe_token = or_packed(a->q_pe_token_stride, gen__stride_outer(heads, s.q_pe_head));
    s.ckv_page = or_packed(a->ckv_page_stride, gen__stride_outer(page, s.ckv_row));
    s.kpe_page = or_packed(a->kpe_page_stride, gen__stride_outer(page, s.kpe_row));
    s.o_token = or_packed(a->o_token_stride, gen__stride_outer(heads, s.o_head));
    s.lse_token = or_packed(a->lse_token_stride, gen__stride_outer(heads, s.lse_head));
    return s;
}

/* ---- checks ------------------------------------------------------------ */

static bool has_rope(const int32_t *dims)
{
    return dims[MLA_DECODE_ROPE_DIM] != 0;
}

static bool is_e4m3(const int32_t *dims)
{
    return dims[MLA_DECODE_CACHE] != GEN_MLA_CACHE_SAME;
}

/* Bytes of an element of the queries. */
static int64_t query_bytes(const int32_t *dims)
{
    return dims[MLA_DECODE_CACHE] == GEN_MLA_CACHE_E4M3_Q ? 1 : 2;
}

/* What is divided by here, in case the plan was not kept well. */
static enum gen_status check_dims(const int32_t *dims)
{
    if (dims[MLA_DECODE_BATCH] > 0 && dims[MLA_DECODE_NUM_HEADS] > 0 &&
        dims[MLA_DECODE_Q_LEN] > 0 && dims[MLA_DECODE_PAGE_SIZE] > 0 &&
        dims[MLA_DECODE_MAX_KV_LEN] > 0)
        return GEN_OK;
    return gen__fail(
        GEN_STATUS_MISMATCH,
        "%s: the plan's batch, num_heads, q_len, page_size, max_kv_len are %" PRId32 ", %" PRId32
        ", %" PRId32 ", %" PRId32 ", %" PRId32 "; not what gen_select() writes",
        family, dims[MLA_DECODE_BATCH], dims[MLA_DECODE_NUM_HEADS], dims[MLA_DECODE_Q_LEN],
        dims[MLA_DECODE_PAGE_SIZE], dims[MLA_DECODE_MAX_KV_LEN]);
}

static enum gen_status check_pointers(const int32_t *dims, const gen_mla_decode_args *a)
{
    const struct {
        const char *name;
        const void *pointer;
        uintptr_t alignment;
        bool optional, unused;
    } list[] = {
        {"q_nope", a->q_nope, 16, false, false},
        {"q_pe", a->q_pe, 16, false, !has_rope(dims)},
        {"ckv", a->ckv, 16, false, false},
        {"kpe", a->kpe, 16, false, !has_rope(dims)},
        {"o", a->o, 16, false, false},
        {"lse", a->lse, 4, true, false},
        {"kv_len", a->kv_len, 4, false, false},
        {"page_indices", a->page_indices, 4, false, false},
        {"page_indptr", a->page_indptr, 4, true, false},
        {"q_indptr", a->q_indptr, 4, true, false},
    };
    enum gen_status status = GEN_OK;
    for (size_t i = 0; !status && i < sizeof list / sizeof *list; i++)
        if (!list[i].unused)
            status = gen__check_pointer(family, list[i].name, list[i].pointer, list[i].alignment,
                                        list[i].optional);
    return status;
}

static enum gen_status check_strides(const int32_t *dims, const gen_mla_decode_args *a)
{
    const int64_t tokens = most_tokens(dims, a), heads = dims[MLA_DECODE_NUM_HEADS];
    const int64_t pages = a->num_pages, rows = dims[MLA_DECODE_PAGE_SIZE];
    const int64_t cache_unit = is_e4m3(dims) ? 16 : 8, query_unit = 16 / query_bytes(dims);
    const struct {
        const char *name;
        int64_t stride, unit, width, count;
        bool unused;
    } list[] = {
        {"q_nope_token_stride", a->q_nope_token_stride, query_unit, MLA_LATENT, tokens, false},
        {"q_nope_head_stride", a->q_nope_head_stride, query_unit, MLA_LATENT, heads, false},
        {"q_pe_token_stride", a->q_pe_token_stride, query_unit, MLA_ROPE, tokens, !has_rope(dims)},
        {"q_pe_head_stride", a->q_pe_head_stride, query_unit, MLA_ROPE, heads, !has_rope(dims)},
        {"ckv_page_stride", a->ckv_page_stride, cache_unit, MLA_LATENT, pages, false},
        {"ckv_row_stride", a->ckv_row_stride, cache_unit, MLA_LATENT, rows, false},
        {"kpe_page_stride", a->kpe_page_stride, cache_unit, MLA_ROPE, pages, !has_rope(dims)},
        {"kpe_row_stride", a->kpe_row_stride, cache_unit, MLA_ROPE, rows, !has_rope(dims)},
        {"o_token_stride", a->o_token_stride, 8, MLA_LATENT, tokens, false},
        {"o_head_stride", a->o_head_stride, 8, MLA_LATENT, heads, false},
        {"page_table_stride", a->page_table_stride, 1, most_pages(dims), dims[MLA_DECODE_BATCH],
         a->page_indptr != NULL},
    };
    enum gen_status status = GEN_OK;
    for (size_t i = 0; !status && i < sizeof list / sizeof *list; i++)
        if (!list[i].unused)
            status = gen__check_stride(family, list[i].name, list[i].stride, list[i].unit,
                                       list[i].width, list[i].count);
    if (!status)
        status = gen__check_free_stride(family, "lse_token_stride", a->lse_token_stride, tokens);
    if (!status)
        status = gen__check_free_stride(family, "lse_head_stride", a->lse_head_stride, heads);
    return status;
}

static enum gen_status check_scale(const char *name, float scale)
{
    if (isfinite(scale) && scale > 0)
        return GEN_OK;
    return gen__fail(GEN_STATUS_INVALID_ARGUMENT, "%s: %s = %g; allowed: a finite number > 0",
                     family, name, (double)scale);
}

static float scale_log2_of(const int32_t *dims, const gen_mla_decode_args *a)
{
    const double log2_e = 1.4426950408889634;
    const double q_scale = query_bytes(dims) == 1 ? (double)a->q_scale : 1.0;
    return (float)((double)a->scale * log2_e * q_scale *
                   (is_e4m3(dims) ? (double)a->ckv_scale : 1.0));
}

static float kpe_factor_of(const int32_t *dims, const gen_mla_decode_args *a)
{
    return is_e4m3(dims) && has_rope(dims) ? a->kpe_scale / a->ckv_scale : 1.0f;
}

static enum gen_status check_scalars(const int32_t *dims, const gen_mla_decode_args *a)
{
    enum gen_status status = GEN_OK;
    if (a->num_pages < 1)
        return gen__invalid(family, "num_pages", a->num_pages, ">= 1");
    if (a->lse_base_2 != 0 && a->lse_base_2 != 1)
        return gen__invalid(family, "lse_base_2", a->lse_base_2, "0, 1");
    if (!isfinite(a->scale))
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT, "%s: scale = %g; allowed: a finite number",
                         family, (double)a->scale);
    if (is_e4m3(dims))
        status = check_scale("ckv_scale", a->ckv_scale);
    if (!status && is_e4m3(dims) && has_rope(dims))
        status = check_scale("kpe_scale", a->kpe_scale);
    if (!status && query_bytes(dims) == 1)
        status = check_scale("q_scale", a->q_scale);
    if (status)
        return status;
    const float factor = kpe_factor_of(dims, a);
    if (!isfinite(scale_log2_of(dims, a)) || !isfinite(factor) || factor == 0)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "%s: scale, ckv_scale, kpe_scale = %g, %g, %g; allowed: scale * ckv_scale "
                         "and kpe_scale / ckv_scale that fp32 holds",
                         family, (double)a->scale, (double)a->ckv_scale, (double)a->kpe_scale);
    return GEN_OK;
}

/* ---- tensor maps of the cache ------------------------------------------ */

/* One tensor: columns of a cell, rows, cells, pages. A cell's row has 128 bytes, or as many as
 * there are. A box of whole tiles holds up to MLA_MAP_CELLS cells, one behind the other, as the
 * kernel wants them. */
static enum gen_status encode_map(const struct gen__driver *driver, const char *name,
                                  enum gen_dtype dtype, const void *memory, uint64_t width,
                                  int64_t row_stride, int64_t page_stride, const int32_t *dims,
                                  int64_t num_pages, unsigned long long map[16])
{
    const uint32_t element = dtype == GEN_DTYPE_E4M3 ? 1 : 2;
    const uint64_t columns = width < 128 / element ? width : 128 / element, cells = width / columns;
    const uint32_t rows = (uint32_t)dims[MLA_DECODE_MAP_ROWS];
    const struct gen__boxed tensor = {
        .memory = memory,
        .extent = {columns, (uint64_t)dims[MLA_DECODE_PAGE_SIZE], cells, (uint64_t)num_pages},
        .strides = {(uint64_t)row_stride * element, columns * element,
                    (uint64_t)page_stride * element},
        .box = {(uint32_t)columns, rows, rows == MLA_BLOCK && cells > 1 ? MLA_MAP_CELLS : 1, 1},
        .type = dtype == GEN_DTYPE_E4M3   ? GEN__TENSOR_UINT8
                : dtype == GEN_DTYPE_FP16 ? GEN__TENSOR_FP16
                                          : GEN__TENSOR_BF16,
        .swizzle = columns * element == 64 ? GEN__TENSOR_SWIZZLE_64 : GEN__TENSOR_SWIZZLE_128,
    };
    const int result = gen__tensor_map(driver, &tensor, map);
    if (!result)
        return GEN_OK;
    char what[256];
    snprintf(what, sizeof what,
             "%s: %s = %p, row stride %" PRId64 ", page stride %" PRId64 " elements, %" PRId64
             " pages of %" PRId32 " rows",
             family, name, memory, row_stride, page_stride, num_pages, dims[MLA_DECODE_PAGE_SIZE]);
    return gen__driver_fail(driver, result, "cuTensorMapEncodeTiled", what);
}

static enum gen_status encode_maps(const int32_t *dims, const gen_mla_decode_args *a,
                                   const struct gen__mla_strides *s,
                                   struct gen_mla_decode_params *k)
{
    const struct gen__driver *driver;
    enum gen_status status = gen__tensor_maps_open(family, &driver);
    if (status)
        return status;
    const enum gen_dtype dtype =
        is_e4m3(dims) ? GEN_DTYPE_E4M3 : (enum gen_dtype)dims[MLA_DECODE_DTYPE];
    status = encode_map(driver, "ckv", dtype, a->ckv, MLA_LATENT, s->ckv_row, s->ckv_page, dims,
                        a->num_pages, k->ckv_map);
    if (!has_rope(dims))
        memset(k->kpe_map, 0, sizeof k->kpe_map);
    else if (!status)
        status = encode_map(driver, "kpe", dtype, a->kpe, MLA_ROPE, s->kpe_row, s->kpe_page, dims,
                            a->num_pages, k->kpe_map);
    return status;
}

/* ---- parameters -------------------------------------------------------- */

struct gen__mla_workspace gen__mla_decode_workspace(const int32_t *dims)
{
    const uint64_t rows = (uint64_t)dims[MLA_DECODE_Q_LEN] * (uint64_t)dims[MLA_DECODE_NUM_HEADS];
    const uint64_t slot_rows = (uint64_t)dims[MLA_DECODE_NUM_SLOTS] * rows;
    const uint64_t records = (uint64_t)dims[MLA_DECODE_NUM_RECORDS];
    struct gen__mla_workspace w = {0};
    if (!records)
        return w;
    w.partial_rows = (records * sizeof(struct gen_mla_record) + 255) / 256 * 256;
    w.partial = w.partial_rows + (slot_rows * sizeof(struct gen_mla_partial_row) + 255) / 256 * 256;
    w.size = w.partial + slot_rows * MLA_LATENT * sizeof(uint16_t);
    return w;
}

static void set_divisors(const int32_t *dims, struct gen_mla_decode_params *k)
{
    const uint32_t page = (uint32_t)dims[MLA_DECODE_PAGE_SIZE];
    const struct gen__fastdiv heads = gen__fastdiv((uint32_t)dims[MLA_DECODE_NUM_HEADS]);
    const struct gen__fastdiv any = gen__fastdiv(page);
    const bool shift_alone = (page & (page - 1)) == 0;
    k->heads_mul = heads.mul;
    k->heads_shift = heads.shift;
    k->page_mul = shift_alone ? 0 : any.mul;
    k->page_shift = shift_alone ? 31u - (unsigned)__builtin_clz(page) : any.shift;
}

static struct gen_mla_schedule schedule_of(const int32_t *dims)
{
    const struct gen__fastdiv parts = gen__fastdiv((uint32_t)dims[MLA_DECODE_NUM_PARTS]);
    return (struct gen_mla_schedule){
        .parts_mul = parts.mul,
        .parts_shift = parts.shift,
        .batch = dims[MLA_DECODE_BATCH],
        .num_parts = dims[MLA_DECODE_NUM_PARTS],
        .visit = dims[MLA_DECODE_VISIT],
        .snap = dims[MLA_DECODE_SNAP],
        .chunk = dims[MLA_DECODE_CHUNK],
        .max_chunks = dims[MLA_DECODE_MAX_CHUNKS],
        .max_kv_len = dims[MLA_DECODE_MAX_KV_LEN],
        .by_request = dims[MLA_DECODE_BY_REQUEST],
    };
}

static enum gen_status main_params(const int32_t *dims, const gen_mla_decode_args *a,
                                   const struct gen__mla_strides *s, char *workspace,
                                   struct gen_mla_decode_params *k)
{
    const struct gen__mla_workspace w = gen__mla_decode_workspace(dims);
    const bool cut = dims[MLA_DECODE_NUM_RECORDS] > 0;
    /* One by one: an initializer clears all of it before, the maps too. */
    k->q_nope = a->q_nope;
    k->q_pe = has_rope(dims) ? a->q_pe : NULL;
    k->ckv = a->ckv;
    k->kpe = has_rope(dims) ? a->kpe : NULL;
    k->o = a->o;
    k->lse = a->lse;
    k->kv_len = a->kv_len;
    k->page_indices = a->page_indices;
    k->page_indptr = a->page_indptr;
    k->q_indptr = a->q_indptr;
    k->partial = cut ? (uint16_t *)(void *)(workspace + w.partial) : NULL;
    k->partial_rows =
        cut ? (struct gen_mla_partial_row *)(void *)(workspace + w.partial_rows) : NULL;
    k->records = cut ? (struct gen_mla_record *)(void *)(workspace + w.records) : NULL;
    k->q_nope_token_stride = s->q_nope_token;
    k->q_nope_head_stride = s->q_nope_head;
    k->q_pe_token_stride = s->q_pe_token;
    k->q_pe_head_stride = s->q_pe_head;
    k->ckv_page_stride = s->ckv_page;
    k->ckv_row_stride = s->ckv_row;
    k->kpe_page_stride = s->kpe_page;
    k->kpe_row_stride = s->kpe_row;
    k->o_token_stride = s->o_token;
    k->o_head_stride = s->o_head;
    k->lse_token_stride = s->lse_token;
    k->lse_head_stride = s->lse_head;
    k->page_table_stride = s->page_table;
    k->schedule = schedule_of(dims);
    k->num_heads = dims[MLA_DECODE_NUM_HEADS];
    k->q_len = dims[MLA_DECODE_Q_LEN];
    k->causal = dims[MLA_DECODE_CAUSAL];
    k->lse_base_2 = a->lse_base_2;
    k->page_size = dims[MLA_DECODE_PAGE_SIZE];
    k->num_pages = a->num_pages;
    k->map_rows = dims[MLA_DECODE_MAP_ROWS];
    k->scale_log2 = scale_log2_of(dims, a);
    k->kpe_factor = kpe_factor_of(dims, a);
    k->out_scale = is_e4m3(dims) ? a->ckv_scale : 1.0f;
    set_divisors(dims, k);
    if (dims[MLA_DECODE_MAP_ROWS])
        return encode_maps(dims, a, s, k);
    memset(k->ckv_map, 0, sizeof k->ckv_map);
    memset(k->kpe_map, 0, sizeof k->kpe_map);
    return GEN_OK;
}

/* Of the main launch's workspace, where partial results are in units of an e4m3
 * cache's scale. */
static void merge_params(const int32_t *dims, const gen_mla_decode_args *a,
                         const struct gen__mla_strides *s, char *workspace,
                         struct gen_mla_merge_params *k)
{
    const struct gen__mla_workspace w = gen__mla_decode_workspace(dims);
    const struct gen__fastdiv heads = gen__fastdiv((uint32_t)dims[MLA_DECODE_NUM_HEADS]);
    *k = (struct gen_mla_merge_params){
        .partial = (const uint16_t *)(void *)(workspace + w.partial),
        .partial_rows = (const struct gen_mla_partial_row *)(void *)(workspace + w.partial_rows),
        .records = (const struct gen_mla_record *)(void *)(workspace + w.records),
        .q_indptr = a->q_indptr,
        .o = a->o,
        .lse = a->lse,
        .o_token_stride = s->o_token,
        .o_head_stride = s->o_head,
        .lse_token_stride = s->lse_token,
        .lse_head_stride = s->lse_head,
        .num_heads = dims[MLA_DECODE_NUM_HEADS],
        .q_len = dims[MLA_DECODE_Q_LEN],
        .chunked = dims[MLA_DECODE_CHUNK] > 0,
        .lse_base_2 = a->lse_base_2,
        .heads_mul = heads.mul,
        .heads_shift = heads.shift,
        .out_scale = is_e4m3(dims) ? a->ckv_scale : 1.0f,
        .num_slots = dims[MLA_DECODE_NUM_SLOTS],
    };
}

static enum gen_status check_args(const int32_t *dims, const gen_mla_decode_args *a)
{
    enum gen_status status = check_dims(dims);
    if (!status)
        status = check_pointers(dims, a);
    if (!status)
        status = check_scalars(dims, a);
    return status ? status : check_strides(dims, a);
}

enum gen_status gen__mla_decode_params(const gen_plan *plan, uint32_t launch, const gen_args *base,
                                       void *workspace, void *out)
{
    const gen_mla_decode_args *a = (const gen_mla_decode_args *)base;
    const int32_t *dims = plan->dims;
    const enum gen_status status = launch == MLA_DECODE_MAIN ? check_args(dims, a) : GEN_OK;
    if (status || !out)
        return status;
    const struct gen__mla_strides s = gen__mla_decode_strides(dims, a);
    if (launch == MLA_DECODE_MERGE) {
        merge_params(dims, a, &s, workspace, out);
        return GEN_OK;
    }
    if (dims[MLA_DECODE_NUM_PARTS] < 1) /* divided by, too; the reference has none */
        return gen__fail(GEN_STATUS_MISMATCH,
                         "%s: the plan's num_parts is %" PRId32 "; not what gen_select() writes",
                         family, dims[MLA_DECODE_NUM_PARTS]);
    return main_params(dims, a, &s, workspace, out);
}

/* ---- what is read and written -------------------------------------------- */

static inline __attribute__((always_inline)) void
tell(struct gen__extent *e, bool written, const char *name, const void *at, int64_t outer,
     int64_t outer_stride, int64_t inner, int64_t inner_stride, int64_t width)
{
    gen__extent(e, written, name, at, width);
    gen__extent_repeat(e, inner, inner_stride);
    gen__extent_repeat(e, outer, outer_stride);
}

uint32_t gen__mla_decode_extents(const int32_t *dims, const gen_args *base,
                                 struct gen__extent list[GEN__MAX_EXTENTS])
{
    const gen_mla_decode_args *a = (const gen_mla_decode_args *)base;
    const struct gen__mla_strides s = gen__mla_decode_strides(dims, a);
    const int64_t batch = dims[MLA_DECODE_BATCH], heads = dims[MLA_DECODE_NUM_HEADS];
    const int64_t rows = dims[MLA_DECODE_PAGE_SIZE], cache = is_e4m3(dims) ? 1 : 2,
                  query = query_bytes(dims);
    /* Of tokens that q_indptr numbers and of pages that page_indptr does, the host knows one. */
    const int64_t tokens = a->q_indptr ? 1 : most_tokens(dims, a);
    tell(&list[0], false, "q_nope", a->q_nope, tokens, gen__stride_bytes(s.q_nope_token, query),
         heads, gen__stride_bytes(s.q_nope_head, query), MLA_LATENT * query);
    tell(&list[1], false, "q_pe", has_rope(dims) ? a->q_pe : NULL, tokens,
         gen__stride_bytes(s.q_pe_token, query), heads, gen__stride_bytes(s.q_pe_head, query),
         MLA_ROPE * query);
    tell(&list[2], false, "ckv", a->ckv, a->num_pages, gen__stride_bytes(s.ckv_page, cache), rows,
         gen__stride_bytes(s.ckv_row, cache), MLA_LATENT * cache);
    tell(&list[3], false, "kpe", has_rope(dims) ? a->kpe : NULL, a->num_pages,
         gen__stride_bytes(s.kpe_page, cache), rows, gen__stride_bytes(s.kpe_row, cache),
         MLA_ROPE * cache);
    tell(&list[4], true, "o", a->o, tokens, gen__stride_bytes(s.o_token, 2), heads,
         gen__stride_bytes(s.o_head, 2), MLA_LATENT * INT64_C(2));
    tell(&list[5], true, "lse", a->lse, tokens, gen__stride_bytes(s.lse_token, 4), heads,
         gen__stride_bytes(s.lse_head, 4), 4);
    gen__reads(&list[6], "kv_len", a->kv_len, batch * 4);
    gen__reads_rows(&list[7], "page_indices", a->page_indices,
                    a->page_indptr ? 4 : most_pages(dims) * INT64_C(4), a->page_indptr ? 1 : batch,
                    gen__stride_bytes(s.page_table, 4));
    gen__reads(&list[8], "page_indptr", a->page_indptr, (batch + 1) * 4);
    gen__reads(&list[9], "q_indptr", a->q_indptr, (batch + 1) * 4);
    return 10;
}
