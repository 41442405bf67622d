/*
 * MLA merge on the host: which problems are allowed, the geometry of a launch, its
 * parameters, and an estimate of its time. Tensors and forms are in inputs.c.
 */
#include "families/mla_merge/mla_merge.h"
#include "families/mla/mla.h"

#include "family/occupancy.h"

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
    key->counts[0] = (float)(key->empty ? 1 : usual_records(p) * gen__mla_merge_rows(p));
    key->counts[1] = (float)usual_pieces(p);
    return GEN_OK;
}

static uint32_t block_rows(const struct gen__facts *variant)
{
    return variant->fact[MLA_MERGE_ROWS] > 1 ? (uint32_t)variant->fact[MLA_MERGE_ROWS] : 1;
}

static uint32_t row_blocks(const gen_mla_merge_problem *p, const struct gen__facts *variant)
{
    return ((uint32_t)gen__mla_merge_rows(p) - 1) / block_rows(variant) + 1;
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
    if (gen__mla_merge_rows(p) > (int64_t)MAX_GRID_Y * block_rows(variant))
        return "q_len * num_heads / rows of a block is more than a grid's second dimension holds "
               "(65535)";
    return NULL;
}

/* An estimate that orders the variants on a GPU without a table: launch, then
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
    const float bytes =
        (float)usual_records(p) * (float)gen__mla_merge_rows(p) * pieces * MLA_LATENT * 2;
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
    s.o_token = a->o_token_stride ? a->o_token_stride : gen__stride_outer(heads, s.o_head);
    s.lse_token = a->lse_token_stride ? a->lse_token_stride : gen__stride_outer(heads, s.lse_head);
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
    const int64_t tokens = INT64_C(1) << 31, heads = dims[MLA_MERGE_NUM_HEADS];
    enum gen_status status;
    if ((status = gen__check_stride(family, "o_token_stride", a->o_token_stride, 8, MLA_LATENT,
                                    tokens)) != GEN_OK ||
        (status = gen__check_stride(family, "o_head_stride", a->o_head_stride, 8, MLA_LATENT,
                                    heads)) != GEN_OK ||
        (status = gen__check_free_stride(family, "lse_token_stride", a->lse_token_stride,
                                         tokens)) != GEN_OK)
        return status;
    return gen__check_free_stride(family, "lse_head_stride", a->lse_head_stride, heads);
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

static uint32_t extents(const int32_t *dims, const gen_args *base,
                        struct gen__extent list[GEN__MAX_EXTENTS])
{
    const gen_mla_merge_args *a = (const gen_mla_merge_args *)base;
    const struct gen__mla_merge_strides s = gen__mla_merge_strides(dims, a);
    const int64_t heads = dims[MLA_MERGE_NUM_HEADS];
    const int64_t rows = (int64_t)a->num_slots * dims[MLA_MERGE_Q_LEN] * heads;
    gen__reads(&list[0], "partial", a->partial, rows * MLA_LATENT * 2);
    gen__reads(&list[1], "partial_rows", a->partial_rows,
               rows * (int64_t)sizeof(struct gen_mla_partial_row));
    gen__reads(&list[2], "records", a->records,
               dims[MLA_MERGE_NUM_RECORDS] * (int64_t)sizeof(struct gen_mla_record));
    gen__reads(&list[3], "q_indptr", a->q_indptr, 4);
    /* Of tokens the host knows one. */
    gen__writes_rows(&list[4], "o", a->o, MLA_LATENT * INT64_C(2), heads,
                     gen__stride_bytes(s.o_head, 2));
    gen__writes_rows(&list[5], "lse", a->lse, 4, heads, gen__stride_bytes(s.lse_head, 4));
    return 6;
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
    .extents = extents,
    .reference = gen__mla_merge_reference,
    .exact = gen__mla_merge_exact,
    .tensors = gen__mla_merge_tensors,
    .default_args = gen__mla_merge_default_args,
    .fill = gen__mla_merge_fill,
    .cost = gen__mla_merge_cost,
    .case_name = gen__mla_merge_case_name,
    .forms = gen__mla_merge_forms,
    .num_forms = MLA_MERGE_NUM_FORMS,
    .form = gen__mla_merge_form,
};
