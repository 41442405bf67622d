/*
 * The arguments of mla_sparse and the parameters of its launches: what is allowed, and where things
 * lie.
 */
#include "families/mla/mla.h"
#include "families/mla_sparse/mla_sparse.h"

#include <math.h>
#include <string.h>

static const char family[] = "mla_sparse";

static int64_t or_packed(int64_t stride, int64_t packed)
{
    return stride ? stride : packed;
}

static int64_t tokens_of(const int32_t *dims)
{
    return (int64_t)dims[MLA_SPARSE_BATCH] * dims[MLA_SPARSE_Q_LEN];
}

static int64_t row_of(const int32_t *dims)
{
    return gen__mla_sparse_row(dims[MLA_SPARSE_CACHE], dims[MLA_SPARSE_ROPE_DIM]);
}

static bool has_rope(const int32_t *dims)
{
    return dims[MLA_SPARSE_ROPE_DIM] != 0;
}

static bool is_ds(const int32_t *dims)
{
    return dims[MLA_SPARSE_CACHE] == GEN_MLA_SPARSE_DS;
}

struct gen__mla_sparse_strides gen__mla_sparse_strides(const int32_t *dims,
                                                       const gen_mla_sparse_args *a)
{
    const int64_t heads = dims[MLA_SPARSE_NUM_HEADS];
    struct gen__mla_sparse_strides s = {
        .q_nope_head = or_packed(a->q_nope_head_stride, MLA_LATENT),
        .q_pe_head = or_packed(a->q_pe_head_stride, MLA_ROPE),
        .kv_row = or_packed(a->kv_row_stride, row_of(dims)),
        .o_head = or_packed(a->o_head_stride, MLA_LATENT),
        .lse_head = or_packed(a->lse_head_stride, 1),
        .indices_token = or_packed(a->indices_token_stride, dims[MLA_SPARSE_TOPK]),
    };
    s.q_nope_token = or_packed(a->q_nope_token_stride, gen__stride_outer(heads, s.q_nope_head));
    s.q_pe_token = or_packed(a->q_pe_token_stride, gen__stride_outer(heads, s.q_pe_head));
    s.kv_page =
        or_packed(a->kv_page_stride, gen__stride_outer(dims[MLA_SPARSE_PAGE_SIZE], s.kv_row));
    s.o_token = or_packed(a->o_token_stride, gen__stride_outer(heads, s.o_head));
    s.lse_token = or_packed(a->lse_token_stride, gen__stride_outer(heads, s.lse_head));
    s.indices_batch = or_packed(a->indices_batch_stride,
                                gen__stride_outer(dims[MLA_SPARSE_Q_LEN], s.indices_token));
    return s;
}

/* ---- checks ------------------------------------------------------------ */

/* What is divided by here, in case the plan was not kept well. */
static enum gen_status check_dims(const int32_t *dims)
{
    if (dims[MLA_SPARSE_BATCH] > 0 && dims[MLA_SPARSE_NUM_HEADS] > 0 &&
        dims[MLA_SPARSE_Q_LEN] > 0 && dims[MLA_SPARSE_PAGE_SIZE] > 0 && dims[MLA_SPARSE_TOPK] > 0)
        return GEN_OK;
    return gen__fail(GEN_STATUS_MISMATCH,
                     "%s: the plan's batch, num_heads, q_len, page_size, topk are %" PRId32
                     ", %" PRId32 ", %" PRId32 ", %" PRId32 ", %" PRId32
                     "; not what gen_select() writes",
                     family, dims[MLA_SPARSE_BATCH], dims[MLA_SPARSE_NUM_HEADS],
                     dims[MLA_SPARSE_Q_LEN], dims[MLA_SPARSE_PAGE_SIZE], dims[MLA_SPARSE_TOPK]);
}

static enum gen_status check_pointers(const int32_t *dims, const gen_mla_sparse_args *a)
{
    const bool sink = dims[MLA_SPARSE_SINK] != 0;
    const struct {
        const char *name;
        const void *pointer;
        uintptr_t alignment;
        bool optional, unused;
    } list[] = {
        {"q_nope", a->q_nope, 16, false, false},
        {"q_pe", a->q_pe, 16, false, !has_rope(dims)},
        {"kv", a->kv, 16, false, false},
        {"o", a->o, 16, false, false},
        {"lse", a->lse, 4, true, false},
        {"indices", a->indices, 4, false, false},
        {"topk_length", a->topk_length, 4, true, false},
        {"sink", a->sink, 4, false, !sink},
    };
    enum gen_status status = GEN_OK;
    for (size_t i = 0; !status && i < sizeof list / sizeof *list; i++)
        if (!list[i].unused)
            status = gen__check_pointer(family, list[i].name, list[i].pointer, list[i].alignment,
                                        list[i].optional);
    if (!status && !sink && a->sink)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "%s: sink = %p; allowed: NULL where the problem's sink is 0", family,
                         (const void *)a->sink);
    return status;
}

static enum gen_status check_strides(const int32_t *dims, const gen_mla_sparse_args *a)
{
    const int64_t tokens = tokens_of(dims), heads = dims[MLA_SPARSE_NUM_HEADS];
    const int64_t pages = a->num_pages, rows = dims[MLA_SPARSE_PAGE_SIZE];
    const int64_t row = row_of(dims), unit = is_ds(dims) ? 16 : 8;
    const bool no_rope = !has_rope(dims);
    const struct {
        const char *name;
        int64_t stride, unit, width, count;
        bool unused;
    } list[] = {
        {"q_nope_token_stride", a->q_nope_token_stride, 8, MLA_LATENT, tokens, false},
        {"q_nope_head_stride", a->q_nope_head_stride, 8, MLA_LATENT, heads, false},
        {"q_pe_token_stride", a->q_pe_token_stride, 8, MLA_ROPE, tokens, no_rope},
        {"q_pe_head_stride", a->q_pe_head_stride, 8, MLA_ROPE, heads, no_rope},
        {"kv_page_stride", a->kv_page_stride, unit, row, pages, false},
        {"kv_row_stride", a->kv_row_stride, unit, row, rows, false},
        {"o_token_stride", a->o_token_stride, 8, MLA_LATENT, tokens, false},
        {"o_head_stride", a->o_head_stride, 8, MLA_LATENT, heads, false},
        {"indices_batch_stride", a->indices_batch_stride, 1, dims[MLA_SPARSE_TOPK],
         dims[MLA_SPARSE_BATCH], false},
        {"indices_token_stride", a->indices_token_stride, 1, dims[MLA_SPARSE_TOPK],
         dims[MLA_SPARSE_Q_LEN], false},
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

/* Kernels keep where a row of 656 bytes begins as a number of 16 bytes, in 32 bits. */
static enum gen_status check_extent(const int32_t *dims, const gen_mla_sparse_args *a)
{
    const int64_t most = INT64_C(1) << 36;
    const int64_t page = gen__mla_sparse_strides(dims, a).kv_page;
    if (!is_ds(dims) || page <= most / a->num_pages)
        return GEN_OK;
    return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                     "%s: num_pages * kv_page_stride = %" PRId32 " * %" PRId64
                     "; allowed with 656-byte rows: <= %" PRId64,
                     family, a->num_pages, page, most);
}

static float scale_log2_of(const gen_mla_sparse_args *a)
{
    return (float)((double)a->scale * 1.4426950408889634);
}

static enum gen_status check_scalars(const gen_mla_sparse_args *a)
{
    if (a->num_pages < 1)
        return gen__invalid(family, "num_pages", a->num_pages, ">= 1");
    if (a->length_per_token != 0 && a->length_per_token != 1)
        return gen__invalid(family, "length_per_token", a->length_per_token, "0, 1");
    if (a->lse_base_2 != 0 && a->lse_base_2 != 1)
        return gen__invalid(family, "lse_base_2", a->lse_base_2, "0, 1");
    if (!isfinite(a->scale) || !isfinite(scale_log2_of(a)))
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "%s: scale = %g; allowed: a number that fp32 holds times log2 e", family,
                         (double)a->scale);
    return GEN_OK;
}

static enum gen_status check_args(const int32_t *dims, const gen_mla_sparse_args *a)
{
    enum gen_status status = check_dims(dims);
    if (!status)
        status = check_pointers(dims, a);
    if (!status)
        status = check_scalars(a);
    if (!status)
        status = check_strides(dims, a);
    return status ? status : check_extent(dims, a);
}

/* ---- parameters -------------------------------------------------------- */

struct gen__mla_sparse_workspace gen__mla_sparse_workspace(const int32_t *dims)
{
    const uint64_t slot_rows =
        (uint64_t)dims[MLA_SPARSE_NUM_SLOTS] * (uint64_t)dims[MLA_SPARSE_NUM_HEADS];
    const uint64_t records = (uint64_t)dims[MLA_SPARSE_NUM_RECORDS];
    struct gen__mla_sparse_workspace w = {0};
    if (!records)
        return w;
    w.partial_rows = (records * sizeof(struct gen_mla_record) + 255) / 256 * 256;
    w.partial = w.partial_rows + (slot_rows * sizeof(struct gen_mla_partial_row) + 255) / 256 * 256;
    w.size = w.partial + slot_rows * MLA_LATENT * sizeof(uint16_t);
    return w;
}

/* How an entry is taken apart: where rows are evenly spaced, not at all. */
static void set_pages(const int32_t *dims, const struct gen__mla_sparse_strides *s,
                      struct gen_mla_decode_params *k)
{
    const int32_t rows = dims[MLA_SPARSE_PAGE_SIZE];
    const struct gen__fastdiv page = gen__fastdiv((uint32_t)rows);
    const bool even = s->kv_page == gen__stride_outer(rows, s->kv_row);
    const bool shift_alone = (rows & (rows - 1)) == 0;
    k->page_size = even ? 1 : rows;
    k->page_mul = even || shift_alone ? 0 : page.mul;
    k->page_shift = even          ? 0
                    : shift_alone ? 31u - (unsigned)__builtin_clz((unsigned)rows)
                                  : page.shift;
    k->ckv_page_stride = even ? s->kv_row : s->kv_page;
    k->ckv_row_stride = s->kv_row;
}

static struct gen_mla_schedule schedule_of(const int32_t *dims)
{
    const struct gen__fastdiv parts = gen__fastdiv((uint32_t)dims[MLA_SPARSE_NUM_PARTS]);
    return (struct gen_mla_schedule){
        .parts_mul = parts.mul,
        .parts_shift = parts.shift,
        .batch = (int32_t)tokens_of(dims),
        .num_parts = dims[MLA_SPARSE_NUM_PARTS],
        .visit = MLA_SPARSE_VISIT,
        .snap = dims[MLA_SPARSE_SNAP],
        .chunk = dims[MLA_SPARSE_CHUNK],
        .max_chunks = dims[MLA_SPARSE_MAX_CHUNKS],
        .max_kv_len = dims[MLA_SPARSE_TOPK],
        .by_request = dims[MLA_SPARSE_BY_REQUEST],
    };
}

/* What mla_decode's kernels take, too. */
static void set_decode(const int32_t *dims, const gen_mla_sparse_args *a,
                       const struct gen__mla_sparse_strides *s, char *workspace,
                       struct gen_mla_decode_params *k)
{
    const struct gen__mla_sparse_workspace w = gen__mla_sparse_workspace(dims);
    const struct gen__fastdiv heads = gen__fastdiv((uint32_t)dims[MLA_SPARSE_NUM_HEADS]);
    const bool cut = dims[MLA_SPARSE_NUM_RECORDS] > 0;
    k->q_nope = a->q_nope;
    k->q_pe = has_rope(dims) ? a->q_pe : NULL;
    k->ckv = a->kv;
    k->o = a->o;
    k->lse = a->lse;
    k->partial = cut ? (uint16_t *)(void *)(workspace + w.partial) : NULL;
    k->partial_rows =
        cut ? (struct gen_mla_partial_row *)(void *)(workspace + w.partial_rows) : NULL;
    k->records = cut ? (struct gen_mla_record *)(void *)(workspace + w.records) : NULL;
    k->q_nope_token_stride = s->q_nope_token;
    k->q_nope_head_stride = s->q_nope_head;
    k->q_pe_token_stride = s->q_pe_token;
    k->q_pe_head_stride = s->q_pe_head;
    k->o_token_stride = s->o_token;
    k->o_head_stride = s->o_head;
    k->lse_token_stride = s->lse_token;
    k->lse_head_stride = s->lse_head;
    k->schedule = schedule_of(dims);
    k->num_heads = dims[MLA_SPARSE_NUM_HEADS];
    k->q_len = 1;
    k->lse_base_2 = a->lse_base_2;
    k->heads_mul = heads.mul;
    k->heads_shift = heads.shift;
    k->num_pages = a->num_pages;
    k->scale_log2 = scale_log2_of(a);
    k->kpe_factor = k->out_scale = 1.0f;
    set_pages(dims, s, k);
}

static void main_params(const int32_t *dims, const gen_mla_sparse_args *a,
                        const struct gen__mla_sparse_strides *s, char *workspace,
                        struct gen_mla_sparse_params *k)
{
    const struct gen__fastdiv q_len = gen__fastdiv((uint32_t)dims[MLA_SPARSE_Q_LEN]);
    const int64_t rows = (int64_t)a->num_pages * dims[MLA_SPARSE_PAGE_SIZE];
    memset(k, 0, sizeof *k);
    set_decode(dims, a, s, workspace, &k->decode);
    k->indices = a->indices;
    k->topk_length = a->topk_length;
    k->sink = dims[MLA_SPARSE_SINK] ? a->sink : NULL;
    k->indices_batch_stride = s->indices_batch;
    k->indices_token_stride = s->indices_token;
    k->tokens_mul = q_len.mul;
    k->tokens_shift = q_len.shift;
    k->length_mul = a->length_per_token ? 0 : q_len.mul;
    k->length_shift = a->length_per_token ? 0 : q_len.shift;
    k->num_rows = rows > INT32_MAX ? (uint32_t)INT32_MAX + 1 : (uint32_t)rows;
    k->q_len = dims[MLA_SPARSE_Q_LEN];
    k->blocks = gen__mla_sparse_blocks(dims[MLA_SPARSE_TOPK]);
}

/* Of the main launch's workspace. */
static void merge_params(const int32_t *dims, const gen_mla_sparse_args *a,
                         const struct gen__mla_sparse_strides *s, char *workspace,
                         struct gen_mla_merge_params *k)
{
    const struct gen__mla_sparse_workspace w = gen__mla_sparse_workspace(dims);
    const struct gen__fastdiv heads = gen__fastdiv((uint32_t)dims[MLA_SPARSE_NUM_HEADS]);
    *k = (struct gen_mla_merge_params){
        .partial = (const uint16_t *)(void *)(workspace + w.partial),
        .partial_rows = (const struct gen_mla_partial_row *)(void *)(workspace + w.partial_rows),
        .records = (const struct gen_mla_record *)(void *)(workspace + w.records),
        .o = a->o,
        .lse = a->lse,
        .o_token_stride = s->o_token,
        .o_head_stride = s->o_head,
        .lse_token_stride = s->lse_token,
        .lse_head_stride = s->lse_head,
        .num_heads = dims[MLA_SPARSE_NUM_HEADS],
        .q_len = 1,
        .chunked = dims[MLA_SPARSE_CHUNK] > 0,
        .lse_base_2 = a->lse_base_2,
        .heads_mul = heads.mul,
        .heads_shift = heads.shift,
        .out_scale = 1.0f,
        .num_slots = dims[MLA_SPARSE_NUM_SLOTS],
    };
}

enum gen_status gen__mla_sparse_params(const gen_plan *plan, uint32_t launch, const gen_args *base,
                                       void *workspace, void *out)
{
    const gen_mla_sparse_args *a = (const gen_mla_sparse_args *)base;
    const int32_t *dims = plan->dims;
    const enum gen_status status = launch == MLA_SPARSE_MAIN ? check_args(dims, a) : GEN_OK;
    if (status || !out)
        return status;
    const struct gen__mla_sparse_strides s = gen__mla_sparse_strides(dims, a);
    if (launch == MLA_SPARSE_MERGE) {
        merge_params(dims, a, &s, workspace, out);
        return GEN_OK;
    }
    if (dims[MLA_SPARSE_NUM_PARTS] < 1) /* divided by, too; the reference has none */
        return gen__fail(GEN_STATUS_MISMATCH,
                         "%s: the plan's num_parts is %" PRId32 "; not what gen_select() writes",
                         family, dims[MLA_SPARSE_NUM_PARTS]);
    main_params(dims, a, &s, workspace, out);
    return GEN_OK;
}

/* ---- what is read and written -------------------------------------------- */

static void tell(struct gen__extent *e, bool written, const char *name, const void *at,
                 int64_t outer, int64_t outer_stride, int64_t inner, int64_t inner_stride,
                 int64_t width)
{
    gen__extent(e, written, name, at, width);
    gen__extent_repeat(e, inner, inner_stride);
    gen__extent_repeat(e, outer, outer_stride);
}

uint32_t gen__mla_sparse_extents(const int32_t *dims, const gen_args *base,
                                 struct gen__extent list[GEN__MAX_EXTENTS])
{
    const gen_mla_sparse_args *a = (const gen_mla_sparse_args *)base;
    const struct gen__mla_sparse_strides s = gen__mla_sparse_strides(dims, a);
    const int64_t tokens = tokens_of(dims), heads = dims[MLA_SPARSE_NUM_HEADS];
    const int64_t batch = dims[MLA_SPARSE_BATCH], q_len = dims[MLA_SPARSE_Q_LEN];
    const int64_t unit = is_ds(dims) ? 1 : 2;
    tell(&list[0], false, "q_nope", a->q_nope, tokens, gen__stride_bytes(s.q_nope_token, 2), heads,
         gen__stride_bytes(s.q_nope_head, 2), MLA_LATENT * INT64_C(2));
    tell(&list[1], false, "q_pe", has_rope(dims) ? a->q_pe : NULL, tokens,
         gen__stride_bytes(s.q_pe_token, 2), heads, gen__stride_bytes(s.q_pe_head, 2),
         MLA_ROPE * INT64_C(2));
    tell(&list[2], false, "kv", a->kv, a->num_pages, gen__stride_bytes(s.kv_page, unit),
         dims[MLA_SPARSE_PAGE_SIZE], gen__stride_bytes(s.kv_row, unit), row_of(dims) * unit);
    tell(&list[3], true, "o", a->o, tokens, gen__stride_bytes(s.o_token, 2), heads,
         gen__stride_bytes(s.o_head, 2), MLA_LATENT * INT64_C(2));
    tell(&list[4], true, "lse", a->lse, tokens, gen__stride_bytes(s.lse_token, 4), heads,
         gen__stride_bytes(s.lse_head, 4), 4);
    tell(&list[5], false, "indices", a->indices, batch, gen__stride_bytes(s.indices_batch, 4),
         q_len, gen__stride_bytes(s.indices_token, 4), dims[MLA_SPARSE_TOPK] * INT64_C(4));
    gen__reads(&list[6], "topk_length", a->topk_length, (a->length_per_token ? tokens : batch) * 4);
    gen__reads(&list[7], "sink", dims[MLA_SPARSE_SINK] ? a->sink : NULL, heads * 4);
    return 8;
}
