/* The counters of kda_decode's rings behind a step, on the host: checks, geometry, parameters. */
#include "families/kda_ring_advance/api.h"
#include "families/common/arguments.h"
#include "kda_ring_advance/args.h"
#include "reference/scatter.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MAX_RECORDS 32
#define MAX_COLUMNS 65536
#define EXTRA_SLOTS 3

enum gen_status gen__kda_ring_advance_reference(const gen_plan *plan, const gen_args *args);

static const char family[] = "kda_ring_advance";

static const char *const counter_names[] = {"int32", "accept"};
static const struct gen__axis required[] = {{"counters", counter_names, 2}};
static const char *const coords[] = {"batch"};
#define FIELD(name) #name, offsetof(gen_kda_ring_advance_problem, name)
static const struct gen__field fields[] = {
    {FIELD(batch), NULL, 0, 1},
    {FIELD(num_tokens), NULL, 0, 1},
    {FIELD(ring_len), NULL, 0, 16},
    {FIELD(ring_size), NULL, 0, 0},
};
#undef FIELD

enum dim { BATCH, NUM_TOKENS, RING_LEN, RING_SIZE };
enum fact { ROWS, DEPENDENT };

static enum gen_status check(const gen_problem *base, struct gen__key *key)
{
    const gen_kda_ring_advance_problem *p = (const gen_kda_ring_advance_problem *)base;
    if (p->batch < 0)
        return gen__invalid(family, "batch", p->batch, ">= 0");
    if (p->ring_len < 2 || p->ring_len > MAX_RECORDS)
        return gen__invalid(family, "ring_len", p->ring_len, "2 to 32");
    if (p->ring_size != 0 && (p->ring_size < p->ring_len - 1 || p->ring_size > MAX_RECORDS))
        return gen__invalid(family, "ring_size", p->ring_size, "0 (ring_len), ring_len - 1 to 32");
    const int32_t size = p->ring_size ? p->ring_size : p->ring_len;
    if (p->num_tokens < 0 || (p->num_tokens > 1 && p->num_tokens > size / 2))
        return gen__invalid(family, "num_tokens", p->num_tokens, "0, 1, 2 to half of ring_size");
    memset(key, 0, sizeof *key);
    key->codes[0] = p->num_tokens > 1;
    key->empty = p->batch == 0;
    key->counts[0] = p->base.flags & GEN_BATCH_INVARIANT && p->batch ? 64.0f : (float)p->batch;
    return GEN_OK;
}

/* A launch and a chain of three reads. */
static float predict(const gen_problem *base, const gen_device *device,
                     const struct gen__facts *variant)
{
    (void)base, (void)device;
    return 2.0f + 1e-4f * (float)variant->fact[ROWS];
}

static void plan(const gen_problem *base, const gen_device *device,
                 const struct gen__facts *variant, gen_plan *plan)
{
    const gen_kda_ring_advance_problem *p = (const gen_kda_ring_advance_problem *)base;
    (void)device;
    plan->dims[BATCH] = p->batch;
    plan->dims[NUM_TOKENS] = p->num_tokens;
    plan->dims[RING_LEN] = p->ring_len;
    plan->dims[RING_SIZE] = p->ring_size ? p->ring_size : p->ring_len;
    plan->num_launches = p->batch > 0;
    if (!variant || !p->batch)
        return;
    const uint32_t rows = (uint32_t)variant->fact[ROWS];
    plan->launch[0] = (gen_plan_launch){
        .variant = variant->index,
        .grid = {((uint32_t)p->batch - 1) / rows + 1, 1, 1},
        .threads = (uint16_t)variant->threads,
        .shared = variant->shared_dynamic,
        .dependent = !(p->base.flags & GEN_SERIAL_LAUNCH) && variant->fact[DEPENDENT],
    };
}

static enum gen_status check_numbers(const int32_t *dims, const gen_kda_ring_advance_args *a)
{
    if (a->num_slots < 1)
        return gen__invalid(family, "num_slots", a->num_slots, ">= 1");
    if (a->slots_stride < 0 || a->slots_stride > MAX_COLUMNS)
        return gen__invalid(family, "slots_stride", a->slots_stride, "0 (1), 1 to 65536");
    if (!a->slots && a->slots_stride > 1)
        return gen__invalid(family, "slots_stride without slots", a->slots_stride, "0, 1");
    if (a->accepted && dims[NUM_TOKENS] < 2)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "%s: accepted = %p with num_tokens = %" PRId32 "; allowed: NULL", family,
                         (const void *)a->accepted, dims[NUM_TOKENS]);
    if (a->null_slot < 0)
        return gen__invalid(family, "null_slot", a->null_slot, "0 (none), or 1 + a slot");
    if (!a->slots && a->num_slots < dims[BATCH])
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "%s: num_slots = %" PRId32 " without slots; allowed: >= batch = %" PRId32,
                         family, a->num_slots, dims[BATCH]);
    return GEN_OK;
}

static enum gen_status params(const gen_plan *plan, uint32_t launch, const gen_args *base,
                              void *workspace, void *out)
{
    const gen_kda_ring_advance_args *a = (const gen_kda_ring_advance_args *)base;
    const int32_t *dims = plan->dims;
    enum gen_status status;
    (void)launch, (void)workspace;
    if ((status = gen__check_pointer(family, "slots", a->slots, 4, true)) != GEN_OK ||
        (status = gen__check_pointer(family, "ring_base", a->ring_base, 4, false)) != GEN_OK ||
        (status = gen__check_pointer(family, "ring_fill", a->ring_fill, 4, false)) != GEN_OK ||
        (status = gen__check_pointer(family, "accepted", a->accepted, 4, true)) != GEN_OK ||
        (status = check_numbers(dims, a)) != GEN_OK || !out)
        return status;
    struct gen_kda_ring_accept_params *const k =
        out; /* the other kernel takes the first part alone */
    k->accepted = a->accepted;
    k->new_base = a->ring_base;
    k->advance = (struct gen_kda_ring_advance_params){
        .slots = a->slots,
        .flush = a->flush,
        .base = a->ring_base,
        .fill = a->ring_fill,
        .batch = dims[BATCH],
        .num_tokens = dims[NUM_TOKENS],
        .ring_len = dims[RING_LEN],
        .ring_size = dims[RING_SIZE],
        .num_slots = (unsigned)a->num_slots,
        .slots_stride = a->slots_stride ? (unsigned)a->slots_stride : 1,
        .null_slot = a->null_slot - 1,
    };
    return GEN_OK;
}

static uint32_t extents(const int32_t *dims, const gen_args *base,
                        struct gen__extent list[GEN__MAX_EXTENTS])
{
    const gen_kda_ring_advance_args *a = (const gen_kda_ring_advance_args *)base;
    const int64_t columns = a->slots_stride ? a->slots_stride : 1;
    gen__reads(&list[0], "slots", a->slots, dims[BATCH] * columns * 4);
    gen__reads(&list[1], "flush", a->flush, dims[BATCH]);
    if (dims[NUM_TOKENS] > 1)
        gen__writes(&list[2], "ring_base", a->ring_base, a->num_slots * INT64_C(4));
    else
        gen__reads(&list[2], "ring_base", a->ring_base, a->num_slots * INT64_C(4));
    gen__writes(&list[3], "ring_fill", a->ring_fill, a->num_slots * INT64_C(4));
    gen__reads(&list[4], "accepted", a->accepted, dims[BATCH] * INT64_C(4));
    return 5;
}

/* ---- for the tuner, the verifier and the tests ------------------------- */

enum tensor { SLOTS, FLUSH, RING_BASE, RING_FILL, ACCEPTED, NUM_TENSORS };

static uint32_t tensors(const gen_problem *base, struct gen__tensor tensors[GEN__MAX_TENSORS])
{
    const gen_kda_ring_advance_problem *p = (const gen_kda_ring_advance_problem *)base;
    const int64_t batch = p->batch, slots = batch + EXTRA_SLOTS;
    const enum gen_dtype index = GEN_DTYPE_INT32, byte = GEN_DTYPE_E4M3;
#define TENSOR(...) GEN__TENSOR(gen_kda_ring_advance_args, __VA_ARGS__)
    const struct gen__tensor list[NUM_TENSORS] = {
        {TENSOR(slots, index, GEN__IN, GEN__FILL_SLOTS, (double)slots, batch)},
        {TENSOR(flush, byte, GEN__IN, GEN__FILL_FAMILY, 0, batch)},
        {TENSOR(ring_base, index, p->num_tokens > 1 ? GEN__INOUT : GEN__IN, GEN__FILL_FAMILY, 0,
                slots),
         .absolute = p->num_tokens > 1 ? 0.5 : 0},
        {TENSOR(ring_fill, index, GEN__INOUT, GEN__FILL_FAMILY, 0, slots), .absolute = 0.5},
        {TENSOR(accepted, index, GEN__IN, GEN__FILL_FAMILY, 0, p->num_tokens > 1 ? batch : 0)},
    };
#undef TENSOR
    memcpy(tensors, list, sizeof list);
    return NUM_TENSORS;
}

static void default_args(const gen_problem *base, gen_args *args)
{
    *(gen_kda_ring_advance_args *)args = (gen_kda_ring_advance_args){
        .base = {sizeof(gen_kda_ring_advance_args), GEN_KDA_RING_ADVANCE},
        .num_slots = ((const gen_kda_ring_advance_problem *)base)->batch + EXTRA_SLOTS};
}

/* Every fill in turn; with padding some that are none, and bases. */
static enum gen_status fill(const gen_problem *base, const gen_args *args,
                            const struct gen__tensor *list, const struct gen__fill_options *options,
                            void *const *data)
{
    const gen_kda_ring_advance_problem *p = (const gen_kda_ring_advance_problem *)base;
    const gen_kda_ring_advance_args *a = (const gen_kda_ring_advance_args *)args;
    const int32_t size = p->ring_size ? p->ring_size : p->ring_len;
    const int32_t bad[] = {-1, size + 1, INT32_MIN, INT32_MAX};
    int32_t *const bases = data[RING_BASE], *const fills = data[RING_FILL];
    uint8_t *const flush = data[FLUSH];
    int32_t *const accepted = data[ACCEPTED];
    (void)list;
    for (int32_t slot = 0; slot < a->num_slots; slot++) {
        if (bases)
            bases[slot] = (int32_t)(gen__scatter(options->seed, slot) * size);
        if (bases && options->padding && slot % 9 == 7)
            bases[slot] = slot % 2 ? size : -1;
        if (fills)
            fills[slot] = options->padding && slot % 9 == 4 ? bad[slot / 9 % 4] : slot % (size + 1);
    }
    for (int32_t b = 0; flush && b < p->batch; b++)
        flush[b] = b % 5 == 3;
    for (int32_t b = 0; accepted && b < p->batch; b++) /* and some that are none */
        accepted[b] = b % 11 == 10 ? (b % 2 ? INT32_MAX : INT32_MIN) : b % (p->num_tokens + 1);
    return GEN_OK;
}

static void cost(const gen_problem *base, double *bytes, double *flops)
{
    *bytes = 17.0 * ((const gen_kda_ring_advance_problem *)base)->batch;
    *flops = 0;
}

static void case_name(const gen_problem *base, char *text, size_t capacity)
{
    const gen_kda_ring_advance_problem *p = (const gen_kda_ring_advance_problem *)base;
    snprintf(text, capacity, "ring-N%" PRId32 "-T%" PRId32 "-L%" PRId32 "-R%" PRId32, p->batch,
             p->num_tokens, p->ring_len, p->ring_size ? p->ring_size : p->ring_len);
}

enum form {
    FORM_NO_SLOTS,
    FORM_NO_FLUSH,
    FORM_TABLE,
    FORM_NULL_SLOT,
    FORM_ALL_ACCEPTED,
    NUM_FORMS
};
static const char *const forms[NUM_FORMS] = {"no_slots", "no_flush", "table", "null_slot",
                                             "all_accepted"};

static bool form(const gen_problem *base, uint32_t index, gen_args *args, struct gen__tensor *t)
{
    gen_kda_ring_advance_args *a = (gen_kda_ring_advance_args *)args;
    const int32_t batch = ((const gen_kda_ring_advance_problem *)base)->batch;
    switch ((enum form)index) {
    case FORM_NO_SLOTS:
        t[SLOTS].count = 0;
        return true;
    case FORM_NO_FLUSH:
        t[FLUSH].count = 0;
        return true;
    case FORM_TABLE: /* of which the first column counts */
        a->slots_stride = 3;
        a->num_slots = 3 * batch + EXTRA_SLOTS;
        t[SLOTS].count = 3 * (uint64_t)batch;
        t[SLOTS].amount = a->num_slots;
        t[RING_BASE].count = t[RING_FILL].count = (uint64_t)a->num_slots;
        return true;
    case FORM_NULL_SLOT:
        a->null_slot = 1;
        return true;
    case FORM_ALL_ACCEPTED:
        t[ACCEPTED].count = 0;
        return ((const gen_kda_ring_advance_problem *)base)->num_tokens > 1;
    case NUM_FORMS:
        break;
    }
    return false;
}

const struct gen__family gen__family_kda_ring_advance = {
    .name = family,
    .tag = GEN_KDA_RING_ADVANCE,
    .problem_size = sizeof(gen_kda_ring_advance_problem),
    .args_size = sizeof(gen_kda_ring_advance_args),
    .params_size = sizeof(struct gen_kda_ring_accept_params),
    .required = required,
    .num_required = 1,
    .facts = "rows,dependent",
    .coords = coords,
    .num_coords = 1,
    .max_distance = GEN__ANY_DISTANCE,
    .fields = fields,
    .num_fields = sizeof fields / sizeof *fields,
    .check = check,
    .fits = gen__fits_always,
    .predict = predict,
    .plan = plan,
    .params = params,
    .extents = extents,
    .reference = gen__kda_ring_advance_reference,
    .tensors = tensors,
    .default_args = default_args,
    .fill = fill,
    .cost = cost,
    .case_name = case_name,
    .forms = forms,
    .num_forms = NUM_FORMS,
    .form = form,
};
