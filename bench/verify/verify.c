#define _GNU_SOURCE
#include "verify/verify.h"
#include "family/index.h"
#include "verify/compare.h"
#include "verify/controls.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* An element may be this many times the tensor's tolerance off, relative to the
 * greater of its own size and the tensor's root mean square: one rounding of
 * the largest of many normal values stays well below. */
#define ELEMENT_FACTOR 16

/* The same within a row: the tolerance is about twice the standard deviation of
 * what a row's elements are off. */
#define ROW_ELEMENT_FACTOR 4

/* Error of sums in fp32 relative to the outputs' root mean square: some hundred
 * terms of 2^-24 each, with room for cancellation. */
#define FP32_SLACK 1e-5

/* Elements of a state that the reference left alone together; a kernel must
 * leave such a run bit-equal. A run this long is not left alone by chance. */
#define UNTOUCHED_RUN 64

/* Blocks larger than this repeat their random values: drawing a gibibyte takes
 * longer than the comparison. */
#define DRAW_ALL_BELOW (64u << 20)

static uint8_t *new_block(uint64_t size)
{
    uint8_t *block = aligned_alloc(256, (size + 255) / 256 * 256);
    if (!block)
        die(2, "host memory is exhausted (%llu bytes requested)", (unsigned long long)size);
    return block;
}

/* Room for the outputs that the reference gives before it rounds them. What it
 * does not write keeps the poison, as in the output itself. */
static void new_exact(struct verify_case *c)
{
    const struct buffers *b = &c->buffers;
    for (uint32_t t = 0; b->family->exact && t < b->num_tensors; t++) {
        const struct gen__tensor *tensor = &b->tensor[t];
        if (tensor->role != GEN__OUT || tensor->dtype == GEN_DTYPE_FP32 || !tensor->count)
            continue;
        c->exact[t] = xmalloc(tensor->count * sizeof(double));
        for (uint64_t i = 0; i < tensor->count; i++)
            c->exact[t][i] = dtype_get(tensor->dtype, c->initial + buffers_at(b, 0, t), i);
    }
}

/* The arguments that the family itself sees. Lists of 64-bit indices are 32-bit ones in the
 * workspace to it. */
static enum gen_status inner_args(const struct gen__family *family, const gen_plan *plan,
                                  const gen_args *args, void *workspace, gen_args *inner)
{
    struct gen_index32_params k;
    memcpy(inner, args, family->args_size);
    if (!gen__index_planned(plan))
        return GEN_OK;
    const enum gen_status status = gen__index_args(family, plan, args, workspace, inner, &k);
    if (status == GEN_OK)
        gen__index_run(&k);
    return status;
}

/* Runs the reference over c->expected. */
static enum gen_status run_reference(struct verify_case *c, const gen_library *library)
{
    const struct gen__family *family = c->buffers.family;
    gen_device cpu = {.size = sizeof(cpu)};
    gen_plan plan = {.size = sizeof plan};
    gen_args *args = xmalloc(family->args_size), *inner = xmalloc(family->args_size);
    memset(&cpu, 0, sizeof cpu);
    cpu.size = sizeof cpu;
    enum gen_status status = gen_device_named("cpu", &cpu);
    if (status == GEN_OK)
        status = gen_select(library, &cpu, c->shape->problem, &plan);
    uint8_t *workspace = plan.workspace_bytes ? new_block(plan.workspace_bytes) : NULL;
    if (status == GEN_OK && plan.num_launches) {
        buffers_args(&c->buffers, (uint64_t)(uintptr_t)c->expected, 0, args);
        status = inner_args(family, &plan, args, workspace, inner);
        if (status == GEN_OK)
            status = family->params(&plan, 0, inner, workspace, NULL);
    }
    /* An empty plan's arguments are not read, and there is nothing to do. */
    for (int i = 1; i < c->steps && status == GEN_OK && plan.num_launches; i++)
        status = gen_launch(library, &plan, args, workspace, NULL);
    if (status == GEN_OK && plan.num_launches)
        status = family->exact ? family->exact(&plan, inner, c->exact)
                               : gen_launch(library, &plan, args, workspace, NULL);
    free(workspace);
    free(inner);
    free(args);
    return status;
}

bool verify_prepare(struct verify_case *c, const struct shape *shape, const char *controls,
                    const gen_library *library)
{
    struct fill_options fill = {.seed = 1};
    memset(c, 0, sizeof *c);
    c->shape = shape;
    const struct controls words = controls_read(shape->family, controls, &fill);
    c->steps = words.steps;
    if (!buffers_init(&c->buffers, shape->family, shape->problem, words.form, 1, true))
        return false;
    if (!buffers_set_data(&c->buffers, words.data)) {
        buffers_free(&c->buffers);
        return false;
    }
    fill.cycle = c->buffers.total_bytes > DRAW_ALL_BELOW;
    c->poisoned = fill.poisoned;
    snprintf(c->name, sizeof c->name, "%s%s%s", shape->name, *controls ? " " : "", controls);
    c->initial = new_block(c->buffers.total_bytes);
    c->expected = new_block(c->buffers.total_bytes);
    c->actual = new_block(c->buffers.total_bytes);
    memset(c->initial, 0, c->buffers.total_bytes);
    buffers_fill(&c->buffers, &fill, c->initial);
    memcpy(c->expected, c->initial, c->buffers.total_bytes);
    new_exact(c);
    if (run_reference(c, library) != GEN_OK)
        die(2, "the reference refuses %s: %s", c->name, gen_last_error());
    return true;
}

enum gen_status verify_upload(struct verify_case *c, const struct gpu *gpu)
{
    enum gen_status status = gpu_alloc(gpu, c->buffers.total_bytes, &c->device);
    if (status == GEN_OK)
        status = gpu_alloc(gpu, c->buffers.total_bytes, &c->pristine);
    if (status == GEN_OK)
        status = gpu_upload(gpu, c->pristine, c->initial, c->buffers.total_bytes);
    return status;
}

void verify_free(struct verify_case *c, const struct gpu *gpu)
{
    if (gpu) {
        gpu_free(gpu, c->device);
        gpu_free(gpu, c->pristine);
    }
    free(c->initial);
    free(c->expected);
    free(c->actual);
    free(c->again);
    for (uint32_t t = 0; t < GEN__MAX_TENSORS; t++)
        free(c->exact[t]);
    buffers_free(&c->buffers);
    memset(c, 0, sizeof *c);
}

/* ---- comparison -------------------------------------------------------- */

__attribute__((format(printf, 2, 3))) static void reject(struct verify_result *result,
                                                         const char *format, ...)
{
    if (!result->ok)
        return; /* the first reason stands */
    va_list args;
    va_start(args, format);
    vsnprintf(result->reason, sizeof result->reason, format, args);
    va_end(args);
    result->ok = false;
}

static uint64_t first_difference(const uint8_t *a, const uint8_t *b, uint64_t size)
{
    uint64_t i = 0;
    if (memcmp(a, b, size) == 0)
        return size;
    while (i < size && a[i] == b[i])
        i++;
    return i;
}

static void check_guards(const struct verify_case *c, uint32_t t, struct verify_result *result)
{
    const uint8_t *data = c->actual + buffers_at(&c->buffers, 0, t);
    const uint8_t *end = data + c->buffers.bytes[t];
    const char *name = c->buffers.tensor[t].name;
    for (uint64_t i = 1; i <= BUFFERS_GUARD; i++)
        if (data[-(int64_t)i] != BUFFERS_CANARY)
            reject(result, "wrote %" PRIu64 " bytes before %s", i, name);
    for (uint64_t i = 0; i < BUFFERS_GUARD; i++)
        if (end[i] != BUFFERS_CANARY)
            reject(result, "wrote %" PRIu64 " bytes behind %s", i + 1, name);
}

/* Runs that the reference left alone. */
static void check_untouched(const struct verify_case *c, uint32_t t, struct verify_result *result)
{
    const uint64_t at = buffers_at(&c->buffers, 0, t);
    const uint64_t run = (uint64_t)UNTOUCHED_RUN * dtype_bytes(c->buffers.tensor[t].dtype);
    for (uint64_t i = 0; i + run <= c->buffers.bytes[t]; i += run) {
        if (memcmp(c->initial + at + i, c->expected + at + i, run) == 0 &&
            memcmp(c->initial + at + i, c->actual + at + i, run) != 0) {
            reject(result, "%s was changed near element %llu, which belongs to no row",
                   c->buffers.tensor[t].name,
                   (unsigned long long)(i / dtype_bytes(c->buffers.tensor[t].dtype)));
            return;
        }
    }
}

/* Every output lies within one rounding of the exact value: half a unit in the
 * last place, and what accumulating in fp32 adds where terms cancel. */
static void check_rounding(const struct gen__tensor *tensor, const double *exact,
                           const void *actual, const struct sums *s, struct verify_result *result)
{
    const double unit = tensor->dtype == GEN_DTYPE_BF16 ? 0x1p-8 : 0x1p-11;
    const double rms = tensor->count ? sqrt(s->reference / (double)tensor->count) : 0;
    const double slack = FP32_SLACK * rms + (tensor->dtype == GEN_DTYPE_FP16 ? 0x1p-25 : 0);
    for (uint64_t i = 0; i < tensor->count; i++) {
        const double a = dtype_get(tensor->dtype, actual, i);
        if (fabs(a - exact[i]) > unit * fabs(exact[i]) + slack) {
            reject(result, "%s[%llu] is %.9g, more than one rounding from %.9g", tensor->name,
                   (unsigned long long)i, a, exact[i]);
            return;
        }
    }
}

double verify_expected(const struct verify_case *c, uint32_t t, uint64_t i)
{
    return c->exact[t] ? c->exact[t][i]
                       : dtype_get(c->buffers.tensor[t].dtype,
                                   c->expected + buffers_at(&c->buffers, 0, t), i);
}

/* Every row is held to a tolerance by itself, and a row of zeros is one of zeros. */
static void check_rows(const struct verify_case *c, uint32_t t, struct verify_result *result)
{
    const struct gen__tensor *tensor = &c->buffers.tensor[t];
    const void *actual = c->actual + buffers_at(&c->buffers, 0, t);
    for (uint64_t first = 0; first < tensor->count; first += tensor->row) {
        const uint64_t left = tensor->count - first;
        const uint64_t end = first + (left < tensor->row ? left : tensor->row);
        struct sums s = {.worst_index = first};
        for (uint64_t i = first; i < end; i++)
            sums_add(&s, i, verify_expected(c, t, i), dtype_get(tensor->dtype, actual, i));
        const double value = verify_expected(c, t, s.worst_index);
        const double rms = sqrt(s.reference / (double)(end - first));
        const double limit = ROW_ELEMENT_FACTOR * tensor->tolerance * fmax(rms, fabs(value));
        const double row_tolerance =
            tensor->row_tolerance > 0 ? tensor->row_tolerance : tensor->tolerance;
        if (s.difference > row_tolerance * row_tolerance * s.reference)
            reject(result,
                   "%s: relative error %.3g in the row at [%llu], allowed %.3g; worst at [%llu]: "
                   "%g, not %g",
                   tensor->name, sqrt(s.difference / s.reference), (unsigned long long)first,
                   row_tolerance, (unsigned long long)s.worst_index,
                   dtype_get(tensor->dtype, actual, s.worst_index), value);
        else if (s.worst > limit)
            reject(result, "%s[%llu] is %g, the reference has %g", tensor->name,
                   (unsigned long long)s.worst_index,
                   dtype_get(tensor->dtype, actual, s.worst_index), value);
    }
}

/* Each element by itself; its error is no relative one and is not reported. */
static void check_absolute(const struct gen__tensor *tensor, const struct sums *s, double actual,
                           double expected, struct verify_result *result)
{
    if (s->worst > tensor->absolute)
        reject(result, "%s[%llu] is %.9g, the reference has %.9g; allowed is a difference of %g",
               tensor->name, (unsigned long long)s->worst_index, actual, expected,
               tensor->absolute);
}

/* The tensor as a whole. */
static void check_tolerance(const struct gen__tensor *tensor, const struct sums *s, double actual,
                            double expected, struct verify_result *result)
{
    const double error =
        s->reference > 0 ? sqrt(s->difference / s->reference) : sqrt(s->difference);
    if (error >= result->error) {
        result->error = error;
        result->worst = s->worst_index;
        snprintf(result->tensor, sizeof result->tensor, "%s", tensor->name);
    }
    if (!(error <= tensor->tolerance))
        reject(result, "%s: relative error %.3g, allowed %.3g; worst at [%llu]: %g, not %g",
               tensor->name, error, tensor->tolerance, (unsigned long long)s->worst_index, actual,
               expected);
    const double rms = tensor->count ? sqrt(s->reference / (double)tensor->count) : 0;
    if (s->worst > ELEMENT_FACTOR * tensor->tolerance * fmax(rms, fabs(expected)))
        reject(result, "%s[%llu] is %g, the reference has %g", tensor->name,
               (unsigned long long)s->worst_index, actual, expected);
}

/* Errors that add up, as sums of the output would. */
static void check_bias(const struct verify_case *c, uint32_t t, struct verify_result *result)
{
    const struct gen__tensor *tensor = &c->buffers.tensor[t];
    const void *actual = c->actual + buffers_at(&c->buffers, 0, t);
    double error = 0, magnitude = 0;
    for (uint64_t i = 0; i < tensor->count; i++) {
        const double r = verify_expected(c, t, i);
        error += dtype_get(tensor->dtype, actual, i) - r;
        magnitude += fabs(r);
    }
    if (!(fabs(error) <= tensor->bias * magnitude))
        reject(result, "%s: errors add up to %.3g of all magnitudes, allowed %.3g", tensor->name,
               error / magnitude, tensor->bias);
}

static void compare_values(const struct verify_case *c, uint32_t t, struct verify_result *result)
{
    const struct gen__tensor *tensor = &c->buffers.tensor[t];
    const void *expected = c->expected + buffers_at(&c->buffers, 0, t);
    const void *actual = c->actual + buffers_at(&c->buffers, 0, t);
    struct sums s = {0};
    if (!tensor->count)
        return;
    if (tensor->dtype == GEN_DTYPE_FP32) {
        sums_add_floats(&s, 0, expected, actual, tensor->count);
    } else {
        for (uint64_t i = 0; i < tensor->count; i++)
            sums_add(&s, i, verify_expected(c, t, i), dtype_get(tensor->dtype, actual, i));
        if (c->exact[t] && tensor->rounded_once)
            check_rounding(tensor, c->exact[t], actual, &s, result);
    }
    if (s.any_misplaced)
        reject(result, "%s[%llu] is %g, the reference has %g", tensor->name,
               (unsigned long long)s.misplaced, dtype_get(tensor->dtype, actual, s.misplaced),
               dtype_get(tensor->dtype, expected, s.misplaced));
    const double found = dtype_get(tensor->dtype, actual, s.worst_index);
    const double wanted = dtype_get(tensor->dtype, expected, s.worst_index);
    if (tensor->absolute > 0) {
        check_absolute(tensor, &s, found, wanted, result);
        return;
    }
    check_tolerance(tensor, &s, found, wanted, result);
    if (tensor->bias > 0)
        check_bias(c, t, result);
    if (tensor->row)
        check_rows(c, t, result);
}

void verify_compare(const struct verify_case *c, struct verify_result *result)
{
    memset(result, 0, sizeof *result);
    result->ok = true;
    for (uint32_t t = 0; t < c->buffers.num_tensors; t++) {
        const struct gen__tensor *tensor = &c->buffers.tensor[t];
        const uint64_t at = buffers_at(&c->buffers, 0, t);
        if (tensor->view_of)
            continue; /* compared as part of the other */
        check_guards(c, t, result);
        if (tensor->role == GEN__IN) {
            uint64_t i = first_difference(c->initial + at, c->actual + at, c->buffers.bytes[t]);
            if (i < c->buffers.bytes[t])
                reject(result, "the input %s was changed at element %llu", tensor->name,
                       (unsigned long long)(i / dtype_bytes(tensor->dtype)));
            continue;
        }
        if (tensor->role == GEN__SCRATCH)
            continue;
        check_untouched(c, t, result);
        compare_values(c, t, result);
    }
}

/* ---- running ----------------------------------------------------------- */

/* Outputs that are unspecified, as their inputs are not finite, become the reference's. */
static void forget_poisoned(const struct verify_case *c, uint8_t *block)
{
    for (uint32_t t = 0; c->poisoned && t < c->buffers.num_tensors; t++) {
        const struct gen__tensor *tensor = &c->buffers.tensor[t];
        const uint64_t at = buffers_at(&c->buffers, 0, t), size = dtype_bytes(tensor->dtype);
        for (uint64_t i = 0; i < tensor->count && tensor->role != GEN__IN; i++)
            if (isnan(dtype_get(tensor->dtype, c->expected + at, i)))
                memcpy(block + at + i * size, c->expected + at + i * size, size);
    }
}

/* One launch, or c->steps of them, from pristine memory into c->actual or c->again. The workspace
 * is as the last launch left it where `poison` is false. */
static enum gen_status run_once(struct verify_case *c, const struct gpu *gpu,
                                const gen_library *library, const gen_plan *plan,
                                CUdeviceptr workspace, bool poison, uint8_t *block)
{
    gen_args *args = xmalloc(c->buffers.family->args_size);
    buffers_args(&c->buffers, c->device, 0, args);
    enum gen_status status = gpu_copy(gpu, c->device, c->pristine, c->buffers.total_bytes);
    if (status == GEN_OK && plan->workspace_bytes && poison)
        status = gpu_set(gpu, workspace, 0xff, plan->workspace_bytes);
    for (int i = 0; i < c->steps && status == GEN_OK; i++)
        status = gen_launch(library, plan, args, (void *)(uintptr_t)workspace, gpu->stream);
    if (status == GEN_OK)
        status = gpu_sync(gpu);
    if (status == GEN_OK)
        status = gpu_download(gpu, block, c->device, c->buffers.total_bytes);
    if (status == GEN_OK)
        forget_poisoned(c, block);
    free(args);
    return status;
}

static enum gen_status run_and_compare(struct verify_case *c, const struct gpu *gpu,
                                       const gen_library *library, const char *variant, int repeats,
                                       CUdeviceptr *workspace, struct verify_result *result)
{
    gen_plan plan = {.size = sizeof plan};
    enum gen_status status =
        variant ? gen_select_variant(library, &gpu->device, c->shape->problem, variant, &plan)
                : gen_select(library, &gpu->device, c->shape->problem, &plan);
    if (status == GEN_OK)
        status = gen_preload(library, &plan);
    if (status == GEN_OK && plan.workspace_bytes)
        status = gpu_alloc(gpu, plan.workspace_bytes, workspace);
    if (status == GEN_OK)
        status = run_once(c, gpu, library, &plan, *workspace, true, c->actual);
    if (status != GEN_OK)
        return status;
    verify_compare(c, result);
    if (repeats > 1 && !c->again)
        c->again = new_block(c->buffers.total_bytes);
    for (int i = 1; i < repeats && result->ok; i++) {
        status = run_once(c, gpu, library, &plan, *workspace, i % 2 == 0, c->again);
        if (status != GEN_OK)
            return status;
        uint64_t at = first_difference(c->actual, c->again, c->buffers.total_bytes);
        if (at < c->buffers.total_bytes)
            reject(result, "launch %d differs from the first one (byte %llu of the block)", i + 1,
                   (unsigned long long)at);
    }
    return GEN_OK;
}

void verify_variant(struct verify_case *c, const struct gpu *gpu, const gen_library *library,
                    const char *variant, int repeats, struct verify_result *result)
{
    CUdeviceptr workspace = 0;
    memset(result, 0, sizeof *result);
    result->ok = true;
    if (run_and_compare(c, gpu, library, variant, repeats, &workspace, result) != GEN_OK)
        reject(result, "%s", gen_last_error());
    gpu_free(gpu, workspace);
}

/* ---- lists ------------------------------------------------------------- */

void verify_list(struct shape_list *list, const struct gen__family *family, const char *path)
{
    struct shape_list lines = {0};
    shapes_load(&lines, family, SHAPES_VERIFIED, path);
    for (size_t i = 0; i < lines.count; i++) {
        struct shape_list keyed = {0};
        shapes_each_key(&keyed, family, lines.item[i].problem);
        for (size_t k = 0; k < keyed.count; k++) {
            struct shape *s = shapes_add(list, family, keyed.item[k].problem);
            memcpy(s->controls, lines.item[i].controls, sizeof s->controls);
            memcpy(s->where, lines.item[i].where, sizeof s->where);
        }
        shapes_free(&keyed);
    }
    shapes_free(&lines);
}

void verify_small(struct shape_list *small, const struct gen__family *family)
{
    struct shape_list all = {0};
    verify_list(&all, family, NULL);
    for (int padded = 1; padded >= 0; padded--)
        for (size_t i = 0; i < all.count; i++) {
            const struct shape *s = &all.item[i];
            if (!strstr(s->controls, "@tiny") || strstr(s->controls, "@form") ||
                (strstr(s->controls, "@pad") != NULL) != padded)
                continue;
            shapes_add(small, family, s->problem);
        }
    shapes_free(&all);
}
