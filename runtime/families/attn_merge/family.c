/*
 * Merge of attention states on the host: which problems are allowed, the geometry of a launch, its
 * parameters, and an estimate of its time. Tensors and forms are in inputs.c.
 */
#include "families/attn_merge/attn_merge.h"
#include "families/common/fastdiv.h"
#include "families/common/strides.h"
#include "family/occupancy.h"

#include <math.h>
#include <string.h>

#define MAX_HEADS 1024
#define MAX_STATES 65536
#define MAX_HEAD_DIM 512
/* Rows that a batch-invariant choice is made for. */
#define INVARIANT_ROWS 1024

static const char family[] = "attn_merge";

static const char *const dtype_names[] = {"bf16", "fp16", "fp32"};
static const struct gen__axis required[] = {{"dtype", dtype_names, 3}, {"o_dtype", dtype_names, 3}};
static const char *const coords[] = {"items", "states"};

#define FIELD(name) #name, offsetof(gen_attn_merge_problem, name)
static const struct gen__field fields[] = {
    {FIELD(num_rows), NULL, 0, 1},
    {FIELD(num_heads), NULL, 0, 32},
    {FIELD(num_states), NULL, 0, 2},
    {FIELD(head_dim), NULL, 0, 128},
    {FIELD(dtype), dtype_names, 3, GEN_DTYPE_BF16},
    {FIELD(o_dtype), dtype_names, 3, GEN__PRESET_SAME},
};
#undef FIELD

/* ---- the problem ------------------------------------------------------- */

static int64_t items_of(const gen_attn_merge_problem *p)
{
    const int64_t rows = p->base.flags & GEN_BATCH_INVARIANT ? INVARIANT_ROWS : p->num_rows;
    return rows * p->num_heads;
}

static enum gen_status check(const gen_problem *base, struct gen__key *key)
{
    static const char dtypes[] = "GEN_DTYPE_BF16 (0), GEN_DTYPE_FP16 (1), GEN_DTYPE_FP32 (2)";
    const gen_attn_merge_problem *p = (const gen_attn_merge_problem *)base;
    if (p->num_heads < 1 || p->num_heads > MAX_HEADS)
        return gen__invalid(family, "num_heads", p->num_heads, "1 to 1024");
    if (p->num_rows < 0 || (int64_t)p->num_rows * p->num_heads > INT32_MAX)
        return gen__invalid(family, "num_rows", p->num_rows, ">= 0, num_rows * num_heads < 2^31");
    if (p->num_states < 1 || p->num_states > MAX_STATES)
        return gen__invalid(family, "num_states", p->num_states, "1 to 65536");
    if (p->head_dim < 8 || p->head_dim > MAX_HEAD_DIM || p->head_dim % 8)
        return gen__invalid(family, "head_dim", p->head_dim, "multiples of 8 from 8 to 512");
    if (p->dtype < GEN_DTYPE_BF16 || p->dtype > GEN_DTYPE_FP32)
        return gen__invalid(family, "dtype", p->dtype, dtypes);
    if (p->o_dtype < GEN_DTYPE_BF16 || p->o_dtype > GEN_DTYPE_FP32)
        return gen__invalid(family, "o_dtype", p->o_dtype, dtypes);
    gen__set_codes(key, (uint32_t)p->dtype, (uint32_t)p->o_dtype, 0);
    key->empty = p->num_rows == 0;
    key->counts[0] = (float)(key->empty ? 1 : items_of(p));
    key->counts[1] = (float)p->num_states;
    return GEN_OK;
}

/* Vectors of 16 bytes in a row of v. */
static uint32_t vectors_of(const gen_attn_merge_problem *p)
{
    return (uint32_t)(p->head_dim * gen__attn_merge_bytes(p->dtype) / 16);
}

static uint32_t split_of(const struct gen__facts *variant)
{
    return variant->fact[ATTN_MERGE_SPLIT] > 1 ? (uint32_t)variant->fact[ATTN_MERGE_SPLIT] : 1;
}

static const char *fits(const gen_problem *base, const gen_device *device,
                        const struct gen__facts *variant)
{
    const gen_attn_merge_problem *p = (const gen_attn_merge_problem *)base;
    (void)device;
    if (vectors_of(p) * split_of(variant) > variant->threads)
        return "a row's threads, times split, are more than those of a block";
    return NULL;
}

static uint32_t block_items(const gen_attn_merge_problem *p, const struct gen__facts *variant)
{
    const uint32_t items = variant->threads / (vectors_of(p) * split_of(variant));
    return items ? items : 1;
}

/* An estimate that orders the variants on a GPU without a table: a launch, then rounds of as
 * many blocks as the GPU holds, each of which waits once for each round of loads and, where rows of
 * threads share an item, for each other; or the bytes at the memory's bandwidth. To be fitted. */
static const float launch_us = 1.5f;
static const float round_us = 1.0f;
static const float exchange_us = 0.3f;
static const float achieved_bandwidth = 0.9f;

static float predict(const gen_problem *base, const gen_device *device,
                     const struct gen__facts *variant)
{
    const gen_attn_merge_problem *p = (const gen_attn_merge_problem *)base;
    const float sms = device->num_sms ? (float)device->num_sms : 1.0f;
    const float gbps = device->memory_gbps ? (float)device->memory_gbps : 1000.0f;
    const float flight =
        variant->fact[ATTN_MERGE_FLIGHT] > 0 ? (float)variant->fact[ATTN_MERGE_FLIGHT] : 1.0f;
    const float split = (float)split_of(variant), items = (float)items_of(p);
    const float blocks = ceilf(items / (float)block_items(p, variant));
    const float waves = ceilf(blocks / (sms * (float)gen__blocks_per_sm(device, variant)));
    const float rounds = ceilf((float)p->num_states / (flight * split));
    const float chain_us = waves * (round_us * rounds + (split > 1 ? exchange_us : 0));
    const float row = (float)p->head_dim, from = (float)gen__attn_merge_bytes(p->dtype);
    const float bytes = items * ((float)p->num_states * (row * from + 4) +
                                 row * (float)gen__attn_merge_bytes(p->o_dtype) + 4);
    const float stream_us = bytes / (gbps * 1e3f * achieved_bandwidth);
    /* Of states that are no more than fit, loads that are never issued take registers alone. */
    const float spare_us = 0.01f * (flight * split > (float)p->num_states ? flight * split : 0);
    return launch_us + spare_us + (chain_us > stream_us ? chain_us : stream_us);
}

/* ---- the launch -------------------------------------------------------- */

static void plan(const gen_problem *base, const gen_device *device,
                 const struct gen__facts *variant, gen_plan *plan)
{
    const gen_attn_merge_problem *p = (const gen_attn_merge_problem *)base;
    (void)device;
    memcpy(plan->dims, &p->num_rows, ATTN_MERGE_THREADS * sizeof plan->dims[0]);
    plan->num_launches = p->num_rows > 0;
    if (!variant || !p->num_rows)
        return;
    const uint32_t items = block_items(p, variant);
    plan->dims[ATTN_MERGE_THREADS] = (int32_t)variant->threads;
    plan->dims[ATTN_MERGE_SPLITS] = (int32_t)split_of(variant);
    plan->launch[0] = (gen_plan_launch){
        .variant = variant->index,
        .grid = {((uint32_t)p->num_rows * (uint32_t)p->num_heads - 1) / items + 1, 1, 1},
        .threads = (uint16_t)variant->threads,
        .shared = variant->shared_dynamic,
        .dependent = !(base->flags & GEN_SERIAL_LAUNCH) && variant->fact[ATTN_MERGE_DEPENDENT] != 0,
    };
}

_Static_assert(offsetof(gen_attn_merge_problem, o_dtype) ==
                   offsetof(gen_attn_merge_problem, num_rows) +
                       ATTN_MERGE_O_DTYPE * sizeof(int32_t),
               "dims in the order of the problem's fields");

static int64_t or_packed(int64_t stride, int64_t count, int64_t inner)
{
    return stride ? stride : gen__stride_outer(count, inner);
}

struct gen__attn_merge_strides gen__attn_merge_strides(const int32_t *dims,
                                                       const gen_attn_merge_args *a)
{
    const int64_t heads = dims[ATTN_MERGE_NUM_HEADS], width = dims[ATTN_MERGE_HEAD_DIM];
    const int64_t states = a->v_2 ? 1 : dims[ATTN_MERGE_NUM_STATES];
    struct gen__attn_merge_strides s = {
        .v_head = or_packed(a->v_head_stride, width, 1),
        .lse_head = or_packed(a->lse_head_stride, 1, 1),
        .v_2_head = or_packed(a->v_2_head_stride, width, 1),
        .lse_2_head = or_packed(a->lse_2_head_stride, 1, 1),
        .o_head = or_packed(a->o_head_stride, width, 1),
        .o_lse_head = or_packed(a->o_lse_head_stride, 1, 1),
    };
    s.v_state = or_packed(a->v_state_stride, heads, s.v_head);
    s.lse_state = or_packed(a->lse_state_stride, heads, s.lse_head);
    s.v_row = or_packed(a->v_row_stride, states, s.v_state);
    s.lse_row = or_packed(a->lse_row_stride, states, s.lse_state);
    s.v_2_row = or_packed(a->v_2_row_stride, heads, s.v_2_head);
    s.lse_2_row = or_packed(a->lse_2_row_stride, heads, s.lse_2_head);
    s.o_row = or_packed(a->o_row_stride, heads, s.o_head);
    s.o_lse_row = or_packed(a->o_lse_row_stride, heads, s.o_lse_head);
    return s;
}

static enum gen_status check_pointers(const int32_t *dims, const gen_attn_merge_args *a)
{
    enum gen_status status;
    if ((status = gen__check_pointer(family, "v", a->v, 16, false)) != GEN_OK ||
        (status = gen__check_pointer(family, "lse", a->lse, 4, false)) != GEN_OK ||
        (status = gen__check_pointer(family, "v_2", a->v_2, 16, true)) != GEN_OK ||
        (status = gen__check_pointer(family, "lse_2", a->lse_2, 4, !a->v_2)) != GEN_OK ||
        (status = gen__check_pointer(family, "o", a->o, 16, false)) != GEN_OK ||
        (status = gen__check_pointer(family, "o_lse", a->o_lse, 4, true)) != GEN_OK)
        return status;
    if (a->v_2 && dims[ATTN_MERGE_NUM_STATES] != 2)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "%s: v_2 = %p with num_states = %" PRId32 "; allowed: NULL, or 2 states",
                         family, a->v_2, dims[ATTN_MERGE_NUM_STATES]);
    if (!a->v_2 && a->lse_2)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT, "%s: lse_2 = %p without v_2; allowed: NULL",
                         family, (const void *)a->lse_2);
    if (a->lse_base_2 != 0 && a->lse_base_2 != 1)
        return gen__invalid(family, "lse_base_2", a->lse_base_2, "0, 1");
    return GEN_OK;
}

static enum gen_status check_strides(const int32_t *dims, const gen_attn_merge_args *a)
{
    const int64_t width = dims[ATTN_MERGE_HEAD_DIM];
    const int64_t rows = dims[ATTN_MERGE_NUM_ROWS], heads = dims[ATTN_MERGE_NUM_HEADS];
    const int64_t states = dims[ATTN_MERGE_NUM_STATES];
    const struct {
        const char *name;
        int64_t stride, count;
        bool row; /* of rows of head_dim elements */
    } list[] = {
        {"v_row_stride", a->v_row_stride, rows, true},
        {"v_state_stride", a->v_state_stride, states, true},
        {"v_head_stride", a->v_head_stride, heads, true},
        {"v_2_row_stride", a->v_2_row_stride, rows, true},
        {"v_2_head_stride", a->v_2_head_stride, heads, true},
        {"o_row_stride", a->o_row_stride, rows, true},
        {"o_head_stride", a->o_head_stride, heads, true},
        {"lse_row_stride", a->lse_row_stride, rows, false},
        {"lse_state_stride", a->lse_state_stride, states, false},
        {"lse_head_stride", a->lse_head_stride, heads, false},
        {"lse_2_row_stride", a->lse_2_row_stride, rows, false},
        {"lse_2_head_stride", a->lse_2_head_stride, heads, false},
        {"o_lse_row_stride", a->o_lse_row_stride, rows, false},
        {"o_lse_head_stride", a->o_lse_head_stride, heads, false},
    };
    enum gen_status status = GEN_OK;
    for (size_t i = 0; !status && i < sizeof list / sizeof *list; i++)
        status =
            list[i].row
                ? gen__check_stride(family, list[i].name, list[i].stride, 8, width, list[i].count)
                : gen__check_free_stride(family, list[i].name, list[i].stride, list[i].count);
    return status;
}

/* What is written over is read by the block that writes it, where it lies place for place. */
static enum gen_status check_in_place(const struct gen__attn_merge_strides *s,
                                      const gen_attn_merge_args *a, bool same_type)
{
    const bool first = a->o == a->v, second = a->v_2 && a->o == a->v_2;
    if ((first && (!same_type || s->o_row != s->v_row || s->o_head != s->v_head)) ||
        (second && (!same_type || s->o_row != s->v_2_row || s->o_head != s->v_2_head)))
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "%s: o is %s with strides %" PRId64 ", %" PRId64 " of rows and heads%s; "
                         "allowed: those of %s and its type",
                         family, first ? "v" : "v_2", s->o_row, s->o_head,
                         same_type ? "" : " and another type", first ? "v" : "v_2");
    const bool lse = a->o_lse && a->o_lse == a->lse, lse_2 = a->o_lse && a->o_lse == a->lse_2;
    if ((lse && (s->o_lse_row != s->lse_row || s->o_lse_head != s->lse_head)) ||
        (lse_2 && (s->o_lse_row != s->lse_2_row || s->o_lse_head != s->lse_2_head)))
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "%s: o_lse is %s with strides %" PRId64 ", %" PRId64
                         " of rows and heads; allowed: those of %s",
                         family, lse ? "lse" : "lse_2", s->o_lse_row, s->o_lse_head,
                         lse ? "lse" : "lse_2");
    return GEN_OK;
}

static struct gen_attn_merge_params params_of(const int32_t *dims, const gen_attn_merge_args *a,
                                              const struct gen__attn_merge_strides *s)
{
    const uint32_t heads = (uint32_t)dims[ATTN_MERGE_NUM_HEADS];
    const uint32_t vectors =
        (uint32_t)(dims[ATTN_MERGE_HEAD_DIM] * gen__attn_merge_bytes(dims[ATTN_MERGE_DTYPE]) / 16);
    const uint32_t lines = (uint32_t)dims[ATTN_MERGE_THREADS] / vectors;
    const struct gen__fastdiv by_heads = gen__fastdiv(heads), by_vectors = gen__fastdiv(vectors);
    return (struct gen_attn_merge_params){
        .v = a->v,
        .v_2 = a->v_2,
        .lse = a->lse,
        .lse_2 = a->lse_2,
        .o = a->o,
        .o_lse = a->o_lse,
        .v_row = s->v_row,
        .v_state = s->v_state,
        .v_head = s->v_head,
        .lse_row = s->lse_row,
        .lse_state = s->lse_state,
        .lse_head = s->lse_head,
        .v_2_row = s->v_2_row,
        .v_2_head = s->v_2_head,
        .lse_2_row = s->lse_2_row,
        .lse_2_head = s->lse_2_head,
        .o_row = s->o_row,
        .o_head = s->o_head,
        .o_lse_row = s->o_lse_row,
        .o_lse_head = s->o_lse_head,
        .num_items = (uint32_t)dims[ATTN_MERGE_NUM_ROWS] * heads,
        .num_heads = heads,
        .num_states = (uint32_t)dims[ATTN_MERGE_NUM_STATES],
        .vectors = vectors,
        .heads_mul = by_heads.mul,
        .heads_shift = by_heads.shift,
        .vectors_mul = by_vectors.mul,
        .vectors_shift = by_vectors.shift,
        .items = lines / (uint32_t)dims[ATTN_MERGE_SPLITS],
        .to_log2 = a->lse_base_2 ? 1.0f : 1.44269504088896341f,
    };
}

static enum gen_status params(const gen_plan *plan, uint32_t launch, const gen_args *base,
                              void *workspace, void *out)
{
    const gen_attn_merge_args *a = (const gen_attn_merge_args *)base;
    const int32_t *dims = plan->dims;
    enum gen_status status;
    (void)launch, (void)workspace;
    if (dims[ATTN_MERGE_NUM_HEADS] < 1 || dims[ATTN_MERGE_HEAD_DIM] < 8 ||
        (out && (dims[ATTN_MERGE_THREADS] < 32 || dims[ATTN_MERGE_SPLITS] < 1)))
        return gen__fail(GEN_STATUS_MISMATCH,
                         "%s: the plan's num_heads, head_dim, threads, split are %" PRId32
                         ", %" PRId32 ", %" PRId32 ", %" PRId32 "; not what gen_select() writes",
                         family, dims[ATTN_MERGE_NUM_HEADS], dims[ATTN_MERGE_HEAD_DIM],
                         dims[ATTN_MERGE_THREADS], dims[ATTN_MERGE_SPLITS]);
    const struct gen__attn_merge_strides s = gen__attn_merge_strides(dims, a);
    if ((status = check_pointers(dims, a)) != GEN_OK ||
        (status = check_strides(dims, a)) != GEN_OK ||
        (status = check_in_place(&s, a, dims[ATTN_MERGE_DTYPE] == dims[ATTN_MERGE_O_DTYPE])) !=
            GEN_OK ||
        !out)
        return status;
    const struct gen_attn_merge_params k = params_of(dims, a, &s);
    memcpy(out, &k, sizeof k);
    return GEN_OK;
}

/* Rows, heads and, of a tensor with more than one, states around `width` bytes. */
static void extent_of(struct gen__extent *e, bool written, const char *name, const void *at,
                      int64_t width, int64_t element, const int64_t counts[3],
                      const int64_t strides[3])
{
    gen__extent(e, written, name, at, width);
    for (int i = 0; i < 3; i++)
        if (counts[i] != 1)
            gen__extent_repeat(e, counts[i], gen__stride_bytes(strides[i], element));
}

static uint32_t extents(const int32_t *dims, const gen_args *base,
                        struct gen__extent list[GEN__MAX_EXTENTS])
{
    const gen_attn_merge_args *a = (const gen_attn_merge_args *)base;
    const struct gen__attn_merge_strides s = gen__attn_merge_strides(dims, a);
    const int64_t from = gen__attn_merge_bytes(dims[ATTN_MERGE_DTYPE]);
    const int64_t to = gen__attn_merge_bytes(dims[ATTN_MERGE_O_DTYPE]);
    const int64_t width = dims[ATTN_MERGE_HEAD_DIM];
    const int64_t all[3] = {dims[ATTN_MERGE_NUM_ROWS], dims[ATTN_MERGE_NUM_HEADS],
                            a->v_2 ? 1 : dims[ATTN_MERGE_NUM_STATES]};
    const int64_t one[3] = {all[0], all[1], 1};
    extent_of(&list[0], false, "v", a->v, width * from, from, all,
              (const int64_t[3]){s.v_row, s.v_head, s.v_state});
    extent_of(&list[1], false, "lse", a->lse, 4, 4, all,
              (const int64_t[3]){s.lse_row, s.lse_head, s.lse_state});
    extent_of(&list[2], false, "v_2", a->v_2, width * from, from, one,
              (const int64_t[3]){s.v_2_row, s.v_2_head, 0});
    extent_of(&list[3], false, "lse_2", a->lse_2, 4, 4, one,
              (const int64_t[3]){s.lse_2_row, s.lse_2_head, 0});
    extent_of(&list[4], true, "o", a->o, width * to, to, one,
              (const int64_t[3]){s.o_row, s.o_head, 0});
    extent_of(&list[5], true, "o_lse", a->o_lse, 4, 4, one,
              (const int64_t[3]){s.o_lse_row, s.o_lse_head, 0});
    list[4].may_be = a->v_2 && a->o == a->v_2 ? a->v_2 : a->v;
    list[5].may_be = a->lse_2 && a->o_lse == a->lse_2 ? a->lse_2 : a->lse;
    return 6;
}

const struct gen__family gen__family_attn_merge = {
    .name = family,
    .tag = GEN_ATTN_MERGE,
    .problem_size = sizeof(gen_attn_merge_problem),
    .args_size = sizeof(gen_attn_merge_args),
    .params_size = sizeof(struct gen_attn_merge_params),
    .required = required,
    .num_required = sizeof required / sizeof *required,
    .facts = ATTN_MERGE_FACTS,
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
    .reference = gen__attn_merge_reference,
    .exact = gen__attn_merge_exact,
    .tensors = gen__attn_merge_tensors,
    .default_args = gen__attn_merge_default_args,
    .fill = gen__attn_merge_fill,
    .cost = gen__attn_merge_cost,
    .case_name = gen__attn_merge_case_name,
    .forms = gen__attn_merge_forms,
    .num_forms = ATTN_MERGE_NUM_FORMS,
    .form = gen__attn_merge_form,
    .data = gen__attn_merge_data,
};
