#include "peers/inplace_copy.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The image that the build makes of inplace_copy.cu. */
extern const unsigned char inplace_copy_image[];
__asm__(".section .rodata\n"
        ".balign 16\n"
        ".global inplace_copy_image\n"
        "inplace_copy_image:\n"
        ".incbin \"" INPLACE_COPY_FATBIN "\"\n"
        ".balign 16\n"
        ".previous\n");

static const struct form {
    const char *symbol;
    uint32_t unroll;
    bool loop;
} forms[] = {
#define INPLACE_FORMS(cache)                                                        \
    {"inplace_once_u1_" cache, 1, false}, {"inplace_once_u2_" cache, 2, false},     \
        {"inplace_once_u4_" cache, 4, false}, {"inplace_once_u8_" cache, 8, false}, \
        {"inplace_loop_u4_" cache, 4, true},                                        \
    {                                                                               \
        "inplace_loop_u8_" cache, 8, true                                           \
    }
    INPLACE_FORMS("def"),
    INPLACE_FORMS("cs"),
    INPLACE_FORMS("na"),
};
#define NUM_FORMS (sizeof forms / sizeof *forms)

static const uint32_t thread_counts[] = {128, 256, 512};
static const uint32_t threads_per_sm[] = {1024, 2048};

enum gen_status inplace_copy_open(struct inplace_copy *peer, const struct gpu *gpu)
{
    _Static_assert(NUM_FORMS <= 32, "room for the kernels");
    const struct gen__driver *d = gpu->driver;
    memset(peer, 0, sizeof *peer);
    peer->gpu = gpu;
    int result =
        d->cuLibraryLoadData(&peer->library, inplace_copy_image, NULL, NULL, 0, NULL, NULL, 0);
    if (result)
        return gen__driver_fail(d, result, "cuLibraryLoadData", "the in-place copy");
    for (size_t i = 0; i < NUM_FORMS && !result; i++) {
        void *kernel;
        result = d->cuLibraryGetKernel(&kernel, peer->library, forms[i].symbol);
        if (!result)
            result = d->cuKernelGetFunction(&peer->kernel[i], kernel);
    }
    return result ? gen__driver_fail(d, result, "cuLibraryGetKernel", "the in-place copy") : GEN_OK;
}

void inplace_copy_close(struct inplace_copy *peer)
{
    if (peer->library)
        (void)peer->gpu->driver->cuLibraryUnload(peer->library);
    memset(peer, 0, sizeof *peer);
}

static enum gen_status launch(struct runner *runner, uint32_t set, gen_stream stream)
{
    struct inplace_runner *r = runner->context;
    const struct inplace_copy *peer = r->runner.launcher;
    uint64_t address = r->address[set];
    unsigned long long n = r->num_vectors;
    float factor = -1;
    void *params[] = {&address, &n, &factor};
    int result = peer->gpu->driver->cuLaunchKernel(r->function, r->blocks, 1, 1, r->threads, 1, 1,
                                                   0, stream, params, NULL);
    return result
               ? gen__driver_fail(peer->gpu->driver, result, "cuLaunchKernel", "the in-place copy")
               : GEN_OK;
}

/* The largest tensor that is updated in place; -1 if there is none. */
static int inplace_tensor(const struct buffers *b)
{
    int best = -1;
    for (uint32_t t = 0; t < b->num_tensors; t++)
        if (b->tensor[t].role == GEN__INOUT && b->tensor[t].cold &&
            (best < 0 || b->bytes[t] > b->bytes[best]))
            best = (int)t;
    return best;
}

static void set_form(struct inplace_runner *r, const struct inplace_copy *peer, size_t form,
                     uint32_t threads, uint32_t per_sm)
{
    const uint64_t per_block = (uint64_t)threads * forms[form].unroll;
    uint64_t blocks = (r->num_vectors + per_block - 1) / per_block;
    if (forms[form].loop) {
        uint64_t resident = (uint64_t)peer->gpu->device.num_sms * (per_sm / threads);
        blocks = blocks < resident ? blocks : resident;
    }
    r->runner.num_samples = 0;
    r->function = peer->kernel[form];
    r->threads = threads;
    r->blocks = (uint32_t)blocks;
    snprintf(r->name, sizeof r->name, "%s-%u-%u", forms[form].symbol, threads, r->blocks);
}

/* Captures and samples; the least of `rounds` in *us. */
static enum gen_status try_form(struct inplace_runner *r, const struct inplace_copy *peer,
                                uint32_t sets, uint32_t launches, int rounds, double *us)
{
    runner_free(&r->runner, peer->gpu);
    enum gen_status status = runner_capture(&r->runner, peer->gpu, sets, launches);
    for (int i = 0; i < rounds && status == GEN_OK; i++)
        status = runner_sample(&r->runner, peer->gpu, 0);
    *us = INFINITY;
    for (uint32_t i = 0; i < r->runner.num_samples; i++)
        *us = fmin(*us, r->runner.sample[i]);
    return status;
}

/* A point of the search. */
struct choice {
    size_t form;
    uint32_t threads, per_sm;
    double us;
};

static int compare_choices(const void *a, const void *b)
{
    double x = ((const struct choice *)a)->us, y = ((const struct choice *)b)->us;
    return (x > y) - (x < y);
}

static size_t list_choices(struct choice *choice)
{
    size_t n = 0;
    for (size_t form = 0; form < NUM_FORMS; form++)
        for (size_t t = 0; t < sizeof thread_counts / sizeof *thread_counts; t++)
            for (size_t k = 0; k < (forms[form].loop ? 2u : 1u); k++)
                choice[n++] = (struct choice){form, thread_counts[t], threads_per_sm[k], 0};
    return n;
}

enum gen_status inplace_copy_best(struct inplace_copy *peer, const struct stage *stage,
                                  uint64_t bytes, uint32_t launches, struct inplace_runner *best)
{
    const uint32_t sets = stage->buffers.num_sets;
    const int tensor = inplace_tensor(&stage->buffers);
    struct choice choice[NUM_FORMS * 6];
    enum gen_status status = GEN_OK;
    memset(best, 0, sizeof *best);
    if (tensor < 0 || bytes < 16)
        return gen__fail(GEN_STATUS_UNSUPPORTED, "%s updates nothing in place",
                         stage->shape->family->name);
    best->runner.launch = launch;
    best->runner.context = best;
    best->runner.launcher = peer;
    /* Where a problem updates more than one tensor, the greatest alone: what follows it is others'.
     */
    best->num_vectors =
        (bytes < stage->buffers.bytes[tensor] ? bytes : stage->buffers.bytes[tensor]) / 16;
    best->address = xmalloc(sets * sizeof *best->address);
    for (uint32_t set = 0; set < sets; set++)
        best->address[set] = stage->base + buffers_at(&stage->buffers, set, (uint32_t)tensor);
    /* A quick look at all, a longer one at the four best. */
    size_t n = list_choices(choice);
    uint32_t few = launches / 5 > sets ? launches / 5 : sets;
    for (size_t i = 0; i < n && status == GEN_OK; i++) {
        set_form(best, peer, choice[i].form, choice[i].threads, choice[i].per_sm);
        status = try_form(best, peer, sets, few, 2, &choice[i].us);
    }
    qsort(choice, n, sizeof *choice, compare_choices);
    n = n < 4 ? n : 4;
    for (size_t i = 0; i < n && status == GEN_OK; i++) {
        set_form(best, peer, choice[i].form, choice[i].threads, choice[i].per_sm);
        status = try_form(best, peer, sets, launches, 5, &choice[i].us);
    }
    qsort(choice, n, sizeof *choice, compare_choices);
    if (status == GEN_OK) {
        double us;
        set_form(best, peer, choice[0].form, choice[0].threads, choice[0].per_sm);
        status = try_form(best, peer, sets, launches, 0, &us);
        best->runner.num_samples = 0;
    }
    return status;
}

void inplace_runner_free(struct inplace_runner *runner, const struct gpu *gpu)
{
    runner_free(&runner->runner, gpu);
    free(runner->address);
    runner->address = NULL;
}
