/*
 * A libcuda that computes: memory is host memory, a launch of la_decode or of
 * the in-place copy runs on the CPU at once, and time is a model's. With it the
 * bench programs and the gpu tests run from end to end on a machine without
 * GPU (GEN_LIBCUDA names it). It knows kernels by their symbols: la_decode it
 * computes itself, unless it is given kernels compiled for tests/emul.
 *
 * Environment:
 *   SIM_KERNELS a folder with <symbol>.so of tests/emul/compile.sh: launches run
 *               these kernels, and a kernel that is not there cannot be loaded
 *   SIM_CC      compute capability of the device, as 80 (default 90)
 *   SIM_SMS     multiprocessors of the device (default 132)
 *   SIM_FAULT   "<part of a symbol>:<kind>", kinds: wrong, guard, input, stray,
 *               racy, lost, late, hang, launch, capture; what such a kernel does
 *               amiss (late: it loses the context in a timing loop alone; capture:
 *               it cannot be launched into a graph)
 *   SIM_LIMIT   states beyond which a launch computes nothing (default 20000)
 */
#include <cuda.h>

#include "sim_emul.h"
#include "sim_kernels.h"
#include "sim_state.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A graph of more launches is a timing loop and only moves the clock. */
#define MOST_COMPUTED 3

struct graph {
    struct sim_launch *launch;
    size_t count, capacity;
};
struct event {
    double us;
};
struct image {
    int unused;
};

/* The device's clock and what has happened to it. */
static pthread_mutex_t busy = PTHREAD_MUTEX_INITIALIZER; /* guards the clock */
static double now_us;

static CUresult run_emulated(const struct sim_launch *l, int compute)
{
    now_us += sim_model_us(l->kernel->symbol, 1e6, sim_sms);
    if (!compute)
        return CUDA_SUCCESS;
    if (sim_emul_run(l->kernel->emulated, l->grid, l->threads, l->shared, l->params, sim_message,
                     sizeof sim_message))
        return CUDA_SUCCESS;
    fprintf(stderr, "sim_cuda: %s: %s\n", l->kernel->symbol, sim_message); /* rows have less room */
    return CUDA_ERROR_LAUNCH_FAILED;
}

static CUresult execute_locked(const struct sim_launch *l, int compute)
{
    if (sim_fault(l->kernel->symbol, "hang"))
        for (;;)
            pause();
    if (sim_fault(l->kernel->symbol, "lost") || (!compute && sim_fault(l->kernel->symbol, "late")))
        sim_lost = 1;
    if (sim_lost)
        return CUDA_SUCCESS;
    if (l->kernel->emulated)
        return run_emulated(l, compute);
    now_us += sim_run(l, compute, sim_sms);
    return CUDA_SUCCESS;
}

/* One launch at a time, as if on one multiprocessor. */
static CUresult execute(const struct sim_launch *l, int compute)
{
    pthread_mutex_lock(&busy);
    const CUresult result = execute_locked(l, compute);
    pthread_mutex_unlock(&busy);
    return result;
}

EXPORT CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y,
                               unsigned grid_z, unsigned block_x, unsigned block_y,
                               unsigned block_z, unsigned shared, CUstream stream, void **params,
                               void **extra)
{
    struct sim_launch l = {.kernel = (const struct sim_kernel *)function,
                           .grid = {grid_x, grid_y, grid_z},
                           .threads = {block_x, block_y, block_z},
                           .shared = shared};
    struct stream *s = stream ? (struct stream *)stream : &sim_default_stream;
    const unsigned blocks = grid_x * grid_y * grid_z, threads = block_x * block_y * block_z;
    (void)extra;
    if (!sim_current)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (sim_lost)
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    if (!blocks || !threads || threads > 1024 || sim_fault(l.kernel->symbol, "launch") ||
        (s->capturing && sim_fault(l.kernel->symbol, "capture")))
        return CUDA_ERROR_INVALID_VALUE;
    sim_params(&l, params);
    if (!s->capturing)
        return execute(&l, 1);
    struct graph *g = s->graph;
    if (g->count == g->capacity) {
        g->capacity = g->capacity ? 2 * g->capacity : 64;
        g->launch = realloc(g->launch, g->capacity * sizeof *g->launch);
        if (!g->launch)
            abort();
    }
    g->launch[g->count++] = l;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params,
                                 void **extra)
{
    return cuLaunchKernel(function, config->gridDimX, config->gridDimY, config->gridDimZ,
                          config->blockDimX, config->blockDimY, config->blockDimZ,
                          config->sharedMemBytes, config->hStream, params, extra);
}

/* ---- libraries --------------------------------------------------------- */

EXPORT CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *options,
                                  void **values, unsigned num, CUlibraryOption *library_options,
                                  void **library_values, unsigned num_library)
{
    (void)code, (void)options, (void)values, (void)num;
    (void)library_options, (void)library_values, (void)num_library;
    *library = malloc(sizeof(struct image));
    return sim_lost ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_SUCCESS;
}

EXPORT CUresult cuLibraryUnload(CUlibrary library)
{
    free(library);
    return CUDA_SUCCESS;
}

/* Kernels live on, in a list: launches that were captured name them. */
static struct sim_kernel *kernels;

EXPORT CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
    struct sim_kernel *k = calloc(1, sizeof *k);
    (void)library;
    if (!k)
        abort();
    snprintf(k->symbol, sizeof k->symbol, "%s", name);
    if (strncmp(name, "inplace_", 8) != 0 &&
        !sim_emul_find(name, &k->emulated, sim_message, sizeof sim_message)) {
        free(k);
        return CUDA_ERROR_NOT_FOUND;
    }
    pthread_mutex_lock(&busy);
    k->next = kernels;
    kernels = k;
    pthread_mutex_unlock(&busy);
    *kernel = (CUkernel)k;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel)
{
    *function = (CUfunction)kernel;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuFuncLoad(CUfunction function)
{
    (void)function;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel,
                                     CUdevice device)
{
    (void)attribute, (void)value, (void)kernel, (void)device;
    return CUDA_SUCCESS;
}

/* ---- streams, events, graphs ------------------------------------------- */

EXPORT CUresult cuStreamCreate(CUstream *stream, unsigned flags)
{
    (void)flags;
    *stream = calloc(1, sizeof(struct stream));
    return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamDestroy(CUstream stream)
{
    free(stream);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamSynchronize(CUstream stream)
{
    (void)stream;
    return sim_lost ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_SUCCESS;
}

EXPORT CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
    const struct stream *s = stream ? (struct stream *)stream : &sim_default_stream;
    *status = s->capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode)
{
    struct stream *s = (struct stream *)stream;
    (void)mode;
    s->capturing = 1;
    s->graph = calloc(1, sizeof *s->graph);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    struct stream *s = (struct stream *)stream;
    s->capturing = 0;
    *graph = (CUgraph)s->graph;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
    const struct graph *from = (const struct graph *)graph;
    struct graph *to = calloc(1, sizeof *to);
    (void)flags;
    if (!to)
        abort();
    to->count = from->count;
    to->launch = malloc((from->count + 1) * sizeof *to->launch);
    if (!to->launch)
        abort();
    if (from->count)
        memcpy(to->launch, from->launch, from->count * sizeof *to->launch);
    *exec = (CUgraphExec)to;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphDestroy(CUgraph graph)
{
    free(((struct graph *)graph)->launch);
    free(graph);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    free(((struct graph *)exec)->launch);
    free(exec);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
    const struct graph *g = (const struct graph *)exec;
    CUresult result = CUDA_SUCCESS;
    (void)stream;
    for (size_t i = 0; i < g->count && result == CUDA_SUCCESS; i++)
        result = execute(&g->launch[i], g->count <= MOST_COMPUTED);
    if (result != CUDA_SUCCESS)
        return result;
    return sim_lost ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_SUCCESS;
}

EXPORT CUresult cuEventCreate(CUevent *event, unsigned flags)
{
    (void)flags;
    *event = calloc(1, sizeof(struct event));
    return CUDA_SUCCESS;
}

EXPORT CUresult cuEventDestroy(CUevent event)
{
    free(event);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuEventRecord(CUevent event, CUstream stream)
{
    (void)stream;
    ((struct event *)event)->us = now_us;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuEventSynchronize(CUevent event)
{
    (void)event;
    return sim_lost ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_SUCCESS;
}

EXPORT CUresult cuEventElapsedTime(float *ms, CUevent start, CUevent stop)
{
    *ms = (float)((((struct event *)stop)->us - ((struct event *)start)->us) / 1e3);
    return CUDA_SUCCESS;
}

/* ---- tensor maps ------------------------------------------------------- */

EXPORT CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType dtype, cuuint32_t rank,
                                       void *address, const cuuint64_t *dims,
                                       const cuuint64_t *strides, const cuuint32_t *box,
                                       const cuuint32_t *element_strides,
                                       CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                       CUtensorMapL2promotion promotion,
                                       CUtensorMapFloatOOBfill fill)
{
    unsigned long long wide_dims[5] = {0}, wide_strides[5] = {0};
    (void)promotion;
    for (cuuint32_t i = 0; i < rank && i < 5; i++) {
        wide_dims[i] = dims[i];
        wide_strides[i] = i + 1 < rank ? strides[i] : 0;
    }
    return sim_emul_map(map, (int)dtype, rank, address, wide_dims, wide_strides, box,
                        element_strides, (int)interleave, (int)swizzle, (int)fill)
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}
