#include "common/buffers.h"
#include "family/index.h"
#include "reference/half.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Random values drawn once; longer tensors repeat them. No row divides their number, or rows, and
 * with them whole blocks of keys, would be the same again. */
#define RANDOM_PIECE ((1u << 18) - 8)

uint32_t dtype_bytes(enum gen_dtype dtype)
{
    if (dtype == GEN_DTYPE_E4M3 || dtype == GEN_DTYPE_E5M2)
        return 1;
    if (dtype == GEN_DTYPE_INT64)
        return 8;
    return dtype == GEN_DTYPE_BF16 || dtype == GEN_DTYPE_FP16 ? 2 : 4;
}

double dtype_get(enum gen_dtype dtype, const void *data, uint64_t i)
{
    switch (dtype) {
    case GEN_DTYPE_BF16:
        return gen__bf16_to_double(((const uint16_t *)data)[i]);
    case GEN_DTYPE_FP16:
        return gen__fp16_to_double(((const uint16_t *)data)[i]);
    case GEN_DTYPE_FP32:
        return (double)((const float *)data)[i];
    case GEN_DTYPE_E4M3:
        return gen__e4m3_to_double(((const uint8_t *)data)[i]);
    case GEN_DTYPE_E5M2:
        return gen__e5m2_to_double(((const uint8_t *)data)[i]);
    case GEN_DTYPE_INT64:
        return (double)((const int64_t *)data)[i];
    case GEN_DTYPE_INT32:
        break;
    }
    return ((const int32_t *)data)[i];
}

static void dtype_put(enum gen_dtype dtype, void *data, uint64_t i, double value)
{
    switch (dtype) {
    case GEN_DTYPE_BF16:
        ((uint16_t *)data)[i] = gen__bf16_from_double(value);
        return;
    case GEN_DTYPE_FP16:
        ((uint16_t *)data)[i] = gen__fp16_from_double(value);
        return;
    case GEN_DTYPE_FP32:
        ((float *)data)[i] = (float)value;
        return;
    case GEN_DTYPE_E4M3:
        ((uint8_t *)data)[i] = gen__e4m3_from_double(value);
        return;
    case GEN_DTYPE_E5M2:
        ((uint8_t *)data)[i] = gen__e5m2_from_double(value);
        return;
    case GEN_DTYPE_INT32:
        ((int32_t *)data)[i] = (int32_t)value;
        return;
    case GEN_DTYPE_INT64:
        ((int64_t *)data)[i] = (int64_t)value;
        return;
    }
}

/* ---- layout ------------------------------------------------------------ */

static uint64_t round_up(uint64_t x, uint64_t to)
{
    return (x + to - 1) / to * to;
}

/* Where the problem has indices of 64 bits: the family's tensors have them in the arguments'
 * pointers for 32. */
static void take_wide_indices(struct buffers *b)
{
    const struct gen__family *family = b->family;
    if (gen__index_dtype(family, b->problem) != GEN_INDEX_INT64)
        return;
    for (uint32_t t = 0; t < b->num_tensors; t++)
        for (uint32_t i = 0; i < family->num_indices; i++)
            if (b->tensor[t].pointer_offset == family->indices[i].narrow) {
                b->tensor[t].pointer_offset = family->indices[i].wide;
                b->tensor[t].dtype = GEN_DTYPE_INT64;
            }
}

bool buffers_init(struct buffers *b, const struct gen__family *family, const gen_problem *problem,
                  int form, uint32_t num_sets, bool tight)
{
    memset(b, 0, sizeof *b);
    b->family = family;
    b->problem = problem;
    b->num_sets = num_sets;
    b->args = xmalloc(family->args_size);
    memset(b->args, 0, family->args_size);
    b->num_tensors = family->tensors(problem, b->tensor);
    family->default_args(problem, b->args);
    if (form >= 0 && (!family->form || (uint32_t)form >= family->num_forms ||
                      !family->form(problem, (uint32_t)form, b->args, b->tensor))) {
        buffers_free(b);
        return false;
    }
    take_wide_indices(b);
    const uint64_t skew = tight ? 16 : 0;
    for (uint32_t t = 0; t < b->num_tensors; t++) {
        uint64_t *end = b->tensor[t].cold ? &b->set_bytes : &b->hot_bytes;
        if (b->tensor[t].view_of)
            continue;
        b->bytes[t] = b->tensor[t].count * dtype_bytes(b->tensor[t].dtype);
        b->offset[t] = round_up(*end + BUFFERS_GUARD, 256) + skew;
        *end = b->offset[t] + b->bytes[t] + BUFFERS_GUARD;
    }
    b->hot_bytes = round_up(b->hot_bytes, 256);
    b->set_bytes = round_up(b->set_bytes, 256);
    b->total_bytes = b->hot_bytes + num_sets * b->set_bytes;
    return true;
}

bool buffers_set_data(struct buffers *b, enum gen__data kind)
{
    return kind == GEN__DATA_NORMAL ||
           (b->family->data && b->family->data(b->problem, kind, b->args, b->tensor));
}

void buffers_free(struct buffers *b)
{
    free(b->args);
    b->args = NULL;
}

uint64_t buffers_at(const struct buffers *b, uint32_t set, uint32_t t)
{
    const struct gen__tensor *tensor = &b->tensor[t];
    if (tensor->view_of)
        return buffers_at(b, set, tensor->view_of - 1) +
               tensor->view_at * dtype_bytes(tensor->dtype);
    return b->tensor[t].cold ? b->hot_bytes + set * b->set_bytes + b->offset[t] : b->offset[t];
}

/* Has memory, its own or another's. */
static bool is_there(const struct buffers *b, uint32_t t)
{
    const uint32_t of = b->tensor[t].view_of;
    return b->tensor[of ? of - 1 : t].count != 0;
}

void buffers_args(const struct buffers *b, uint64_t base, uint32_t set, gen_args *args)
{
    memcpy(args, b->args, b->family->args_size);
    for (uint32_t t = 0; t < b->num_tensors; t++) {
        uint64_t address = is_there(b, t) ? base + buffers_at(b, set, t) : 0;
        void *pointer = (void *)(uintptr_t)address; // NOLINT: an address of either memory
        memcpy((char *)args + b->tensor[t].pointer_offset, &pointer, sizeof pointer);
    }
}

/* ---- fill -------------------------------------------------------------- */

static void shuffle_slots(struct rng *rng, int32_t *slots, uint64_t count, uint32_t pool)
{
    int32_t *all = xmalloc((pool ? pool : 1) * sizeof *all);
    for (uint32_t i = 0; i < pool; i++)
        all[i] = (int32_t)i;
    for (uint64_t i = 0; i < count; i++) {
        uint32_t left = pool - (uint32_t)i;
        uint32_t j = (uint32_t)i + (left > 1 ? rng_below(rng, left) : 0);
        int32_t taken = all[j];
        all[j] = all[i];
        all[i] = slots[i] = taken;
    }
    free(all);
}

static void pad_slots(int32_t *slots, uint64_t count, int32_t pool)
{
    const int32_t bad[] = {-1, pool, INT32_MIN, INT32_MAX, -pool, pool + 7};
    for (uint64_t i = 1, n = 0; i < count; i += 3, n++)
        slots[i] = bad[n % (sizeof bad / sizeof *bad)];
}

static void fill_normal(const struct gen__tensor *t, struct rng *rng, void *data, uint64_t count)
{
    const bool common = t->common < 0 || t->common > 0;
    double *row = common ? xmalloc(t->width * sizeof *row) : NULL;
    for (uint32_t i = 0; row && i < t->width; i++)
        row[i] = t->common * rng_normal(rng);
    for (uint64_t i = 0; i < count; i++) {
        const double x = t->mean + t->amount * rng_normal(rng);
        dtype_put(t->dtype, data, i, row ? x + row[i % t->width] : x);
    }
    free(row);
}

/* Fills the first `count` elements of tensor t; count < its own where the rest
 * is made by repetition. */
static void fill_elements(const struct gen__tensor *t, struct rng *rng, void *data, uint64_t count)
{
    const double amount = t->amount;
    switch (t->fill) {
    case GEN__FILL_NORMAL:
        fill_normal(t, rng, data, count);
        return;
    case GEN__FILL_SIGNS:
        for (uint64_t i = 0; i < count; i++)
            dtype_put(t->dtype, data, i, rng_below(rng, 2) ? amount : -amount);
        return;
    case GEN__FILL_UNIFORM:
        for (uint64_t i = 0; i < count; i++)
            dtype_put(t->dtype, data, i, amount * rng_uniform(rng));
        return;
    case GEN__FILL_SLOTS:
        shuffle_slots(rng, data, count, (uint32_t)amount);
        return;
    case GEN__FILL_POISON:
        memset(data, 0xff, count * dtype_bytes(t->dtype));
        return;
    case GEN__FILL_FAMILY:
        memset(data, 0, count * dtype_bytes(t->dtype)); /* until the family has its turn */
        return;
    }
}

static void repeat(uint8_t *data, uint64_t have, uint64_t want)
{
    while (have < want) {
        uint64_t n = have < want - have ? have : want - have;
        memcpy(data + have, data, n);
        have += n;
    }
}

/* How much of a tensor is drawn; the rest repeats it. */
static uint64_t piece(const struct gen__tensor *t, const struct fill_options *options)
{
    bool whole = !options->cycle || t->fill == GEN__FILL_SLOTS || t->fill == GEN__FILL_FAMILY ||
                 t->common != 0 || t->count < RANDOM_PIECE; /* a piece is no whole rows */
    return whole ? t->count : RANDOM_PIECE;
}

static void fill_tensor(const struct buffers *b, uint32_t t, const struct fill_options *options,
                        struct rng *rng, uint8_t *data, uint64_t count)
{
    const struct gen__tensor *tensor = &b->tensor[t];
    fill_elements(tensor, rng, data, count);
    if (options->ordered && tensor->fill == GEN__FILL_SLOTS)
        for (uint64_t i = 0; i < count; i++)
            ((int32_t *)(void *)data)[i] = (int32_t)i;
    if (options->padding && tensor->fill == GEN__FILL_SLOTS)
        pad_slots((int32_t *)(void *)data, count, (int32_t)tensor->amount);
    if (options->non_finite && tensor->role == GEN__INOUT && tensor->dtype == GEN_DTYPE_FP32 &&
        count > 2) {
        dtype_put(tensor->dtype, data, count / 3, NAN);
        dtype_put(tensor->dtype, data, count / 2, INFINITY);
    }
}

/* Of what the family filled with 32 bits; from the last on, for an index's place is behind that of
 * the ones to come. */
static void widen_indices(void *data, uint64_t count)
{
    unsigned char *bytes = data;
    for (uint64_t i = count; i-- > 0;) {
        int32_t index;
        memcpy(&index, bytes + 4 * i, sizeof index);
        memcpy(bytes + 8 * i, &(int64_t){index}, sizeof(int64_t));
    }
}

/* What the family knows of its tensors, data[t] each. */
static void fill_by_family(const struct buffers *b, const struct fill_options *options,
                           void *const *data)
{
    const struct gen__fill_options hints = {.seed = options->seed,
                                            .padding = options->padding,
                                            .non_finite = options->non_finite,
                                            .poisoned = options->poisoned,
                                            .ordered = options->ordered};
    if (b->family->fill && b->family->fill(b->problem, b->args, b->tensor, &hints, data) != GEN_OK)
        die(2, "%s", gen_last_error());
    for (uint32_t t = 0; t < b->num_tensors; t++)
        if (data[t] && b->tensor[t].dtype == GEN_DTYPE_INT64 &&
            gen__index_dtype(b->family, b->problem))
            widen_indices(data[t], b->tensor[t].count);
}

void buffers_fill(const struct buffers *b, const struct fill_options *options, uint8_t *block)
{
    struct rng rng;
    rng_seed(&rng, options->seed);
    for (uint32_t set = 0; set < b->num_sets; set++) {
        void *at[GEN__MAX_TENSORS] = {NULL};
        for (uint32_t t = 0; t < b->num_tensors; t++) {
            uint8_t *data = block + buffers_at(b, set, t);
            if (is_there(b, t))
                at[t] = data;
            if (b->tensor[t].view_of || (set && !b->tensor[t].cold))
                continue;
            memset(data - BUFFERS_GUARD, BUFFERS_CANARY, BUFFERS_GUARD);
            memset(data + b->bytes[t], BUFFERS_CANARY, BUFFERS_GUARD);
            if (!b->tensor[t].count)
                continue;
            uint64_t count = piece(&b->tensor[t], options);
            fill_tensor(b, t, options, &rng, data, count);
            repeat(data, count * dtype_bytes(b->tensor[t].dtype), b->bytes[t]);
        }
        fill_by_family(b, options, at);
    }
}

/* Copies the first `have` bytes on the device over the `want` that follow. */
static enum gen_status repeat_device(const struct gpu *gpu, CUdeviceptr at, uint64_t have,
                                     uint64_t want)
{
    enum gen_status status = GEN_OK;
    while (have < want && status == GEN_OK) {
        uint64_t n = have < want - have ? have : want - have;
        status = gpu_copy(gpu, at + have, at, n);
        have += n;
    }
    return status;
}

static bool is_family_filled(const struct buffers *b, uint32_t t)
{
    return b->tensor[t].fill == GEN__FILL_FAMILY && b->tensor[t].count;
}

/* Those that the family fills, made on the host all together and copied to each
 * set. */
static enum gen_status fill_device_by_family(const struct buffers *b,
                                             const struct fill_options *options,
                                             const struct gpu *gpu, CUdeviceptr base)
{
    void *data[GEN__MAX_TENSORS] = {NULL};
    enum gen_status status = GEN_OK;
    for (uint32_t t = 0; t < b->num_tensors; t++)
        if (is_family_filled(b, t))
            data[t] = memset(xmalloc(b->bytes[t]), 0, b->bytes[t]);
    fill_by_family(b, options, data);
    for (uint32_t t = 0; t < b->num_tensors; t++) {
        const uint32_t sets = b->tensor[t].cold ? b->num_sets : 1;
        for (uint32_t set = 0; data[t] && set < sets && status == GEN_OK; set++)
            status = gpu_upload(gpu, base + buffers_at(b, set, t), data[t], b->bytes[t]);
        free(data[t]);
    }
    return status;
}

enum gen_status buffers_fill_device(const struct buffers *b, const struct fill_options *options,
                                    const struct gpu *gpu, CUdeviceptr base)
{
    struct rng rng;
    enum gen_status status = fill_device_by_family(b, options, gpu, base);
    rng_seed(&rng, options->seed);
    for (uint32_t t = 0; t < b->num_tensors && status == GEN_OK; t++) {
        if (!b->tensor[t].count || is_family_filled(b, t))
            continue;
        uint64_t count = piece(&b->tensor[t], options);
        uint64_t size = count * dtype_bytes(b->tensor[t].dtype);
        uint8_t *data = xmalloc(size);
        fill_tensor(b, t, options, &rng, data, count);
        CUdeviceptr first = base + buffers_at(b, 0, t);
        status = gpu_upload(gpu, first, data, size);
        if (status == GEN_OK)
            status = repeat_device(gpu, first, size, b->bytes[t]);
        for (uint32_t set = 1; set < b->num_sets && b->tensor[t].cold && status == GEN_OK; set++)
            status = gpu_copy(gpu, base + buffers_at(b, set, t), first, b->bytes[t]);
        free(data);
    }
    return status == GEN_OK ? gpu_sync(gpu) : status;
}

/* ---- sizes ------------------------------------------------------------- */

void problem_footprint(const struct gen__family *family, const gen_problem *problem,
                       uint64_t *inplace, uint64_t *touched)
{
    struct gen__tensor tensor[GEN__MAX_TENSORS];
    double bytes = 0, flops = 0, once = 0, updated = 0;
    uint32_t n = family->tensors(problem, tensor);
    family->cost(problem, &bytes, &flops);
    for (uint32_t t = 0; t < n; t++) {
        double size = (double)tensor[t].count * dtype_bytes(tensor[t].dtype);
        if (tensor[t].role == GEN__INOUT)
            updated += size;
        else
            once += size;
    }
    /* Moved bytes count an update twice. Rounded to 4 KiB, since small inputs
     * may be left out of a family's cost. */
    double twice = bytes > once ? bytes - once : 0;
    double state = updated > 0 ? round(twice / 2 / 4096) * 4096 : 0;
    *inplace = (uint64_t)(state < updated ? state : updated);
    *touched = (uint64_t)bytes - *inplace;
}

uint32_t sets_beyond_cache(uint64_t touched, uint64_t l2_bytes, uint32_t limit)
{
    double want = ceil(2.2 * (double)l2_bytes / (double)(touched ? touched : 1));
    uint32_t sets = want < 2 ? 2 : want > limit ? limit : (uint32_t)want;
    return sets;
}
