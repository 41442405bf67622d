/*
 * MLA merge on the host: which problems are allowed, the geometry of a launch, its
 * parameters, an estimate of its time, and what the tuner and the tests need.
 */
#include "families/mla_merge.h"
#include "families/mla.h"

#include "occupancy.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MAX_RECORDS (1 << 24)
#define MAX_PIECES (1 << 16)
#define MAX_GRID_Y 65535
/* Records that a batch-invariant choice is made for, and the pieces of each: num_pieces is the mean
 * of the batch. */
#define INVARIANT_RECORDS 64
#define INVARIANT_PIECES 16

static const char family[] = "mla_merge";

static const char *const dtype_names[] = {"bf16", "fp16"};
static const struct gen__axis required[] = {{"dtype", dtype_names, 2}};
/* rows: of all records. */
static const char *const coords[] = {"rows", "pieces"};

#define FIELD(name) #name, offsetof(gen_mla_merge_problem, name)
static const struct gen__field fields[] = {
    {FIELD(num_records), NULL, 0, 1},
    {FIELD(num_heads), NULL, 0, 16},
    {FIELD(q_len), NULL, 0, 1},
    {FIELD(num_pieces), NULL, 0, 2},
    {FIELD(dtype), dtype_names, 2, GEN_DTYPE_BF16},
};
#undef FIELD

/* ---- the problem ------------------------------------------------------- */

static int64_t rows_of(const gen_mla_merge_problem *p)
{
    return (int64_t)p->q_len * p->num_heads;
}

static int64_t usual_records(const gen_mla_merge_problem *p)
{
    return p->base.flags & GEN_BATCH_INVARIANT ? INVARIANT_RECORDS : p->num_records;
}

static int32_t usual_pieces(const gen_mla_merge_problem *p)
{
    return p->base.flags & GEN_BATCH_INVARIANT ? INVARIANT_PIECES : p->num_pieces;
}

/* Which field of a problem that check() refuses is wrong. */
__attribute__((noinline, cold)) static enum gen_status refuse(const gen_mla_merge_problem *p)
{
    if (p->num_records < 0 || p->num_records > MAX_RECORDS)
        return gen__invalid(family, "num_records", p->num_records, "0 to 16777216");
    if (p->num_heads < 1 || p->num_heads > MLA_MAX_HEADS)
        return gen__invalid(family, "head count num_heads", p->num_heads, "1 to 128");
    if (p->q_len < 1 || p->q_len > MLA_MAX_Q_LEN)
        return gen__invalid(family, "q_len", p->q_len, "1 to 1024");
    if (p->num_pieces < 1 || p->num_pieces > MAX_PIECES)
        return gen__invalid(family, "num_pieces", p->num_pieces, "1 to 65536");
    return gen__invalid(family, "dtype", p->dtype, "GEN_DTYPE_BF16 (0), GEN_DTYPE_FP16 (1)");
}

/* In few comparisons; refuse() tells them apart. */
static enum gen_status check(const gen_problem *base, struct gen__key *key)
{
    const gen_mla_merge_problem *p = (const gen_mla_merge_problem *)base;
    const uint32_t dtype = (uint32_t)p->dtype;
    const uint32_t above = gen__mla_above(p->num_heads, MLA_MAX_HEADS) |
                           gen__mla_above(p->q_len, MLA_MAX_Q_LEN) |
                           gen__mla_above(p->num_pieces, MAX_PIECES) | dtype >> 1;
    if (above || (uint32_t)p->num_records > MAX_RECORDS)
        return refuse(p);
    gen__set_codes(key, dtype, 0, 0);
    key->empty = p->num_records == 0;
    key->counts[0] = (float)(key->empty ? 1 : usual_records(p) * rows_of(p));
    key->counts[1] = (float)usual_pieces(p);
    return GEN_OK;
}

static uint32_t block_rows(const struct gen__facts *variant)
{
    return variant->fact[MLA_MERGE_ROWS] > 1 ? (uint32_t)variant->fact[MLA_MERGE_ROWS] : 1;
}

static uint32_t row_blocks(const gen_mla_merge_problem *p, const struct gen__facts *variant)
{
    return ((uint32_t)rows_of(p) - 1) / block_rows(variant) + 1;
}

static int32_t slices(const struct gen__facts *variant)
{
    const int32_t columns = variant->fact[MLA_MERGE_SLICE];
    return columns > 0 && columns < MLA_LATENT ? MLA_LATENT / columns : 1;
}

static const char *fits(const gen_problem *base, const gen_device *device,
                        const struct gen__facts *variant)
{
    const gen_mla_merge_problem *p = (const gen_mla_merge_problem *)base;
    (void)device;
    if (rows_of(p) > (int64_t)MAX_GRID_Y * block_rows(variant))
        return "q_len * num_heads / rows of a block is more than a grid's second dimension holds "
               "(65535)";
    return NULL;
}

/* An estimate that orders the variants on a GPU nobody has tuned on: launch, then
 * rounds of as many blocks as the GPU holds, each of which finds its record, waits
 * once for each round of loads and, where warps share a row, for each other; or the
 * partial results' bytes, which are in L2, at its bandwidth. To be fitted. */
static const float launch_us = 1.5f;
static const float record_us = 0.7f;
static const float round_us = 0.8f;
static const float exchange_us = 0.3f;
static const float l2_bandwidth = 1.6f; /* of the memory's */
enum {
    SLICE_PIECES = 9,
    ROW_PIECES = 4
}; /* whose loads a warp has in flight, of 128, 512 columns */

static float predict(const gen_problem *base, const gen_device *device,
                     const struct gen__facts *variant)
{
    const gen_mla_merge_problem *p = (const gen_mla_merge_problem *)base;
    const float sms = device->num_sms ? (float)device->num_sms : 1.0f;
    const float gbps = device->memory_gbps ? (float)device->memory_gbps : 1000.0f;
    const float split =
        variant->fact[MLA_MERGE_SPLIT] > 1 ? (float)variant->fact[MLA_MERGE_SPLIT] : 1;
    const float pieces = (float)usual_pieces(p);
    const float in_flight = slices(variant) > 1 ? SLICE_PIECES : ROW_PIECES;
    const float blocks =
        (float)usual_records(p) * (float)row_blocks(p, variant) * (float)slices(variant);
    const float waves = ceilf(blocks / (sms * (float)gen__blocks_per_sm(device, variant)));
    const float chain_us = record_us + round_us * ceilf(ceilf(pieces / split) / in_flight) +
                           (split > 1 ? exchange_us : 0);
    const float bytes = (float)usual_records(p) * (float)rows_of(p) * pieces * MLA_LATENT * 2;
    const float stream_us = bytes / (gbps * 1e3f * l2_bandwidth);
    const float waves_us = waves * chain_us;
    return launch_us + (waves_us > stream_us ? waves_us : stream_us);
}

/* ---- the launch -------------------------------------------------------- */

#define SAME_PLACE(dim, field)                                                                 \
    _Static_assert(offsetof(gen_mla_merge_problem, field) ==                                   \
                       offsetof(gen_mla_merge_problem, num_records) + (dim) * sizeof(int32_t), \
                   "dims in the order of the problem's fields")
SAME_PLACE(MLA_MERGE_NUM_HEADS, num_heads);
SAME_PLACE(MLA_MERGE_Q_LEN, q_len);
SAME_PLACE(MLA_MERGE_NUM_PIECES, num_pieces);
SAME_PLACE(MLA_MERGE_DTYPE, dtype);
#undef SAME_PLACE

static void plan(const gen_problem *base, const gen_device *device,
                 const struct gen__facts *variant, gen_plan *plan)
{
    const gen_mla_merge_problem *p = (const gen_mla_merge_problem *)base;
    (void)device;
    memcpy(plan->dims, (const char *)p + offsetof(gen_mla_merge_problem, num_records),
           MLA_MERGE_NUM_DIMS * sizeof plan->dims[0]);
    plan->num_launches = p->num_records > 0;
    if (!variant || !p->num_records)
        return;
    gen_plan_launch *launch = &plan->launch[0];
    launch->variant = variant->index;
    launch->grid[0] = (uint32_t)p->num_records;
    launch->grid[1] = row_blocks(p, variant);
    launch->grid[2] = (uint32_t)slices(variant);
    launch->threads = (uint16_t)variant->threads;
    launch->shared = variant->shared_dynamic;
    launch->dependent = !(p->base.flags & GEN_SERIAL_LAUNCH) && variant->fact[MLA_MERGE_DEPENDENT];
}

struct gen__mla_merge_strides gen__mla_merge_strides(const int32_t *dims,
                                                     const gen_mla_merge_args *a)
{
    const int64_t heads = dims[MLA_MERGE_NUM_HEADS];
    struct gen__mla_merge_strides s = {
        .o_head = a->o_head_stride ? a->o_head_stride : MLA_LATENT,
        .lse_head = a->lse_head_stride ? a->lse_head_stride : 1,
    };
    s.o_token = a->o_token_stride ? a->o_token_stride : heads * s.o_head;
    s.lse_token = a->lse_token_stride ? a->lse_token_stride : heads * s.lse_head;
    return s;
}

static enum gen_status check_pointers(const gen_mla_merge_args *a)
{
    enum gen_status status;
    if ((status = gen__check_pointer(family, "partial", a->partial, 16, false)) != GEN_OK ||
        (status = gen__check_pointer(family, "partial_rows", a->partial_rows, 16, false)) !=
            GEN_OK ||
        (status = gen__check_pointer(family, "records", a->records, 16, false)) != GEN_OK ||
        (status = gen__check_pointer(family, "q_indptr", a->q_indptr, 4, true)) != GEN_OK ||
        (status = gen__check_pointer(family, "o", a->o, 16, false)) != GEN_OK)
        return status;
    return gen__check_pointer(family, "lse", a->lse, 4, true);
}

static enum gen_status check_scalars(const gen_mla_merge_args *a)
{
    if (a->num_slots < 1)
        return gen__invalid(family, "num_slots", a->num_slots, ">= 1");
    if (a->chunked != 0 && a->chunked != 1)
        return gen__invalid(family, "chunked", a->chunked, "0, 1");
    if (a->lse_base_2 != 0 && a->lse_base_2 != 1)
        return gen__invalid(family, "lse_base_2", a->lse_base_2, "0, 1");
    if (!isfinite(a->out_scale))
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "%s: out_scale = %g; allowed: a finite number", family,
                         (double)a->out_scale);
    return GEN_OK;
}

/* Any token that 31 bits count: requests are the records' affair. */
static enum gen_status check_strides(const int32_t *dims, const gen_mla_merge_args *a)
{
    const int64_t tokens = gen__mla_most(INT64_C(1) << 31);
    const int64_t heads = gen__mla_most(dims[MLA_MERGE_NUM_HEADS]);
    enum gen_status status;
    if ((status = gen__mla_check_stride(family, "o_token_stride", a->o_token_stride, 8, MLA_LATENT,
                                        tokens)) != GEN_OK ||
        (status = gen__mla_check_stride(family, "o_head_stride", a->o_head_stride, 8, MLA_LATENT,
                                        heads)) != GEN_OK ||
        (status = gen__mla_check_free_stride(family, "lse_token_stride", a->lse_token_stride,
                                             tokens)) != GEN_OK)
        return status;
    return gen__mla_check_free_stride(family, "lse_head_stride", a->lse_head_stride, heads);
}

static enum gen_status params(const gen_plan *plan, uint32_t launch, const gen_args *base,
                              void *workspace, void *out)
{
    const gen_mla_merge_args *a = (const gen_mla_merge_args *)base;
    const int32_t *dims = plan->dims;
    enum gen_status status;
    (void)launch, (void)workspace;
    if (dims[MLA_MERGE_NUM_HEADS] < 1 || dims[MLA_MERGE_Q_LEN] < 1)
        return gen__fail(GEN_STATUS_MISMATCH,
                         "%s: the plan's num_heads, q_len are %" PRId32 ", %" PRId32
                         "; not what gen_select() writes",
                         family, dims[MLA_MERGE_NUM_HEADS], dims[MLA_MERGE_Q_LEN]);
    if ((status = check_pointers(a)) != GEN_OK || (status = check_scalars(a)) != GEN_OK ||
        (status = check_strides(dims, a)) != GEN_OK || !out)
        return status;
    const struct gen__mla_merge_strides s = gen__mla_merge_strides(dims, a);
    const struct gen__fastdiv heads = gen__fastdiv((uint32_t)dims[MLA_MERGE_NUM_HEADS]);
    const struct gen_mla_merge_params k = {
        .partial = a->partial,
        .partial_rows = a->partial_rows,
        .records = a->records,
        .q_indptr = a->q_indptr,
        .o = a->o,
        .lse = a->lse,
        .o_token_stride = s.o_token,
        .o_head_stride = s.o_head,
        .lse_token_stride = s.lse_token,
        .lse_head_stride = s.lse_head,
        .num_heads = dims[MLA_MERGE_NUM_HEADS],
        .q_len = dims[MLA_MERGE_Q_LEN],
        .chunked = a->chunked,
        .lse_base_2 = a->lse_base_2,
        .heads_mul = heads.mul,
        .heads_shift = heads.shift,
        .out_scale = a->out_scale,
        .num_slots = a->num_slots,
    };
    memcpy(out, &k, sizeof k);
    return GEN_OK;
}

/* ---- for the tuner, the verifier and the tests ------------------------- */

/* Requests follow each other as the schedule of mla_decode cuts them: the part
 * that ends one begins the next. */
static int64_t parts_each(const gen_mla_merge_problem *p)
{
    return p->num_pieces > 2 ? p->num_pieces - 1 : 1;
}

static int64_t slots_of(const gen_mla_merge_problem *p)
{
    return 2 * (p->num_records * parts_each(p) + 1);
}

/* Sums in fp32 of as exact weights: off by their last bits, so the output is one
 * rounding off at most (as in families/la_decode.c), and a log-sum-exp of a few
 * units by some units in the last place. */
static const double bf16_tolerance = 0x1p-8;
static const double fp16_tolerance = 0x1p-11;
static const double lse_tolerance = 1e-5;

#define TENSOR(...) GEN__TENSOR(gen_mla_merge_args, __VA_ARGS__)

static uint32_t tensors(const gen_problem *base, struct gen__tensor tensors[GEN__MAX_TENSORS])
{
    const gen_mla_merge_problem *p = (const gen_mla_merge_problem *)base;
    const enum gen_dtype dtype = (enum gen_dtype)p->dtype, fp32 = GEN_DTYPE_FP32;
    const int64_t rows = rows_of(p), all = p->num_records * rows;
    const int64_t partial = p->num_records ? slots_of(p) * rows : 0;
    const double tolerance = dtype == GEN_DTYPE_FP16 ? fp16_tolerance : bf16_tolerance;
    /* Partial results were written just before: they are not cold. */
    const struct gen__tensor list[MLA_MERGE_NUM_TENSORS] = {
        {TENSOR(partial, GEN_DTYPE_FP16, GEN__IN, GEN__FILL_NORMAL, 1, partial * MLA_LATENT)},
        {TENSOR(partial_rows, GEN_DTYPE_INT32, GEN__IN, GEN__FILL_FAMILY, 0, 4 * partial)},
        {TENSOR(records, GEN_DTYPE_INT32, GEN__IN, GEN__FILL_FAMILY, 0, 4 * p->num_records)},
        {TENSOR(q_indptr, GEN_DTYPE_INT32, GEN__IN, GEN__FILL_FAMILY, 0, 0)},
        {TENSOR(o, dtype, GEN__OUT, GEN__FILL_POISON, 0, all * MLA_LATENT), .tolerance = tolerance,
         .row = MLA_LATENT, .rounded_once = true},
        {TENSOR(lse, fp32, GEN__OUT, GEN__FILL_POISON, 0, all), .absolute = lse_tolerance},
    };
    memcpy(tensors, list, sizeof list);
    return MLA_MERGE_NUM_TENSORS;
}

#undef TENSOR

static void default_args(const gen_problem *base, gen_args *args)
{
    const gen_mla_merge_problem *p = (const gen_mla_merge_problem *)base;
    gen_mla_merge_args *a = (gen_mla_merge_args *)args;
    memset(a, 0, sizeof *a);
    a->base.size = sizeof *a;
    a->base.family = GEN_MLA_MERGE;
    a->num_slots = (int32_t)slots_of(p);
    a->lse_base_2 = 1;
    a->out_scale = 1.0f;
}

/* Some records tell of nothing, of few pieces, or of pieces beyond the workspace. */
static void pad_record(const gen_mla_merge_args *a, int64_t r, struct gen_mla_record *record)
{
    if (r % 3 == 2)
        record->num_pieces = record->num_pieces / 2 + 1;
    if (r % 3 != 1)
        return;
    switch (r / 3 % 4) {
    case 0:
        record->request = -1;
        break;
    case 1:
        record->num_pieces = 1;
        break;
    case 2:
        record->num_pieces = 0;
        break;
    default:
        record->first_slot = a->num_slots - 2;
    }
}

/* Log-sum-exps of -2 to 2 and units of 2^-2 to 2^2, as a hash of their place has them. */
static void fill_rows(struct gen_mla_partial_row *rows, int64_t count)
{
    for (int64_t at = 0; at < count; at++) {
        uint64_t hash = ((uint64_t)at + 1) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 29;
        uint32_t exponents[2] = {0};
        for (uint32_t c = 0; c < 8; c++)
            exponents[c / 4] |= (uint32_t)(125 + (hash >> 4 * c) % 5) << 8 * (c % 4);
        rows[at] = (struct gen_mla_partial_row){
            .lse = (float)(hash >> 40) * 0x1p-22f - 2.0f,
            .exponents = {(int32_t)exponents[0], (int32_t)exponents[1]},
        };
    }
}

/* Every fourth piece is empty, and what stands in its place is NaN; of the first
 * row of every request all are. */
static void empty_pieces(const gen_mla_merge_problem *p, const gen_mla_merge_args *a,
                         uint16_t *partial, struct gen_mla_partial_row *partial_rows)
{
    const int64_t rows = rows_of(p);
    for (int64_t slot = 0; slot < a->num_slots; slot++) {
        for (int64_t row = 0; row < rows; row++) {
            const int64_t at = slot * rows + row;
            if ((slot / 2 + row) % 4 != 3 && row)
                continue;
            partial_rows[at].lse = -INFINITY;
            for (int64_t i = at * MLA_LATENT; i < (at + 1) * MLA_LATENT; i++)
                partial[i] = 0x7e00; /* NaN */
        }
    }
}

static enum gen_status fill(const gen_problem *base, const gen_args *args,
                            const struct gen__tensor *list, const struct gen__fill_options *options,
                            void *const *data)
{
    const gen_mla_merge_problem *p = (const gen_mla_merge_problem *)base;
    const gen_mla_merge_args *a = (const gen_mla_merge_args *)args;
    struct gen_mla_record *records = data[MLA_MERGE_RECORDS];
    int32_t *indptr = data[MLA_MERGE_Q_INDPTR];
    (void)list;
    for (int32_t r = 0; r < p->num_records; r++) {
        records[r] = (struct gen_mla_record){
            .request = options->ordered ? r : p->num_records - 1 - r,
            .first_slot = (int32_t)(a->chunked ? r * p->num_pieces : 2 * r * parts_each(p) + 1),
            .num_pieces = p->num_pieces,
        };
        if (options->padding)
            pad_record(a, r, &records[r]);
        if (indptr) { /* q_len tokens, none, some */
            indptr[0] = 0;
            indptr[r + 1] = indptr[r] + (r % 3 == 0   ? p->q_len
                                         : r % 3 == 1 ? 0
                                                      : (p->q_len + 1) / 2);
        }
    }
    if (data[MLA_MERGE_PARTIAL_ROWS])
        fill_rows(data[MLA_MERGE_PARTIAL_ROWS], (int64_t)a->num_slots * rows_of(p));
    if (options->non_finite && data[MLA_MERGE_PARTIAL])
        empty_pieces(p, a, data[MLA_MERGE_PARTIAL], data[MLA_MERGE_PARTIAL_ROWS]);
    return GEN_OK;
}

static void cost(const gen_problem *base, double *bytes, double *flops)
{
    const gen_mla_merge_problem *p = (const gen_mla_merge_problem *)base;
    const double rows = (double)p->num_records * (double)rows_of(p);
    *bytes = rows * p->num_pieces * (MLA_LATENT * 2 + sizeof(struct gen_mla_partial_row)) +
             rows * (MLA_LATENT * 2 + 4);
    *flops = rows * p->num_pieces * MLA_LATENT * 2;
}

static void case_name(const gen_problem *base, char *text, size_t capacity)
{
    const gen_mla_merge_problem *p = (const gen_mla_merge_problem *)base;
    snprintf(text, capacity, "R%" PRId32 "-S%" PRId32 "-H%" PRId32 "-T%" PRId32 "-%s",
             p->num_records, p->num_pieces, p->num_heads, p->q_len,
             p->dtype == GEN_DTYPE_FP16 ? "fp16" : "bf16");
}

enum form { FORM_CHUNKED, FORM_RAGGED, FORM_STRIDES, FORM_NO_LSE, FORM_NATURAL, NUM_FORMS };
static const char *const forms[NUM_FORMS] = {"chunked", "ragged", "strides", "no_lse", "natural"};

static void stride_form(const gen_mla_merge_problem *p, gen_mla_merge_args *a,
                        struct gen__tensor *t)
{
    const int64_t all = p->num_records * rows_of(p), heads = p->num_heads;
    a->o_head_stride = MLA_LATENT + 8;
    a->o_token_stride = heads * a->o_head_stride; /* so that rows are equally far apart */
    a->lse_head_stride = 3;
    a->lse_token_stride = heads * 3;
    t[MLA_MERGE_O].count = (uint64_t)(all ? (all - 1) * a->o_head_stride + MLA_LATENT : 0);
    t[MLA_MERGE_O].row = (uint32_t)a->o_head_stride;
    t[MLA_MERGE_LSE].count = (uint64_t)(all ? (all - 1) * 3 + 1 : 0);
}

static bool form(const gen_problem *base, uint32_t index, gen_args *args, struct gen__tensor *t)
{
    const gen_mla_merge_problem *p = (const gen_mla_merge_problem *)base;
    gen_mla_merge_args *a = (gen_mla_merge_args *)args;
    switch ((enum form)index) {
    case FORM_CHUNKED:
        a->chunked = 1;
        a->out_scale = 0.45f;
        a->num_slots = p->num_records * p->num_pieces;
        t[MLA_MERGE_PARTIAL_ROWS].count = (uint64_t)(a->num_slots * rows_of(p) * 4);
        t[MLA_MERGE_PARTIAL].count = (uint64_t)(a->num_slots * rows_of(p) * MLA_LATENT);
        return p->num_records > 0;
    case FORM_RAGGED:
        t[MLA_MERGE_Q_INDPTR].count = (uint64_t)p->num_records + 1;
        return p->num_records > 0;
    case FORM_STRIDES:
        stride_form(p, a, t);
        return true;
    case FORM_NO_LSE:
        t[MLA_MERGE_LSE].count = 0;
        return true;
    case FORM_NATURAL:
        a->lse_base_2 = 0;
        return true;
    case NUM_FORMS:
        break;
    }
    return false;
}

const struct gen__family gen__family_mla_merge = {
    .name = family,
    .tag = GEN_MLA_MERGE,
    .problem_size = sizeof(gen_mla_merge_problem),
    .args_size = sizeof(gen_mla_merge_args),
    .params_size = sizeof(struct gen_mla_merge_params),
    .required = required,
    .num_required = sizeof required / sizeof *required,
    .facts = MLA_MERGE_FACTS,
    .coords = coords,
    .num_coords = sizeof coords / sizeof *coords,
    .max_distance = GEN__ANY_DISTANCE,
    .fields = fields,
    .num_fields = sizeof fields / sizeof *fields,
    .check = check,
    .fits = fits,
    .predict = predict,
    .plan = plan,
    .params = params,
    .reference = gen__mla_merge_reference,
    .exact = gen__mla_merge_exact,
    .tensors = tensors,
    .default_args = default_args,
    .fill = fill,
    .cost = cost,
    .case_name = case_name,
    .forms = forms,
    .num_forms = NUM_FORMS,
    .form = form,
};
