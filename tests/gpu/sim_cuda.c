/*
 * A libcuda that computes: memory is host memory, a launch of la_decode or of
 * the in-place copy runs on the CPU at once, and time is a model's. With it the
 * bench programs and the gpu tests run from end to end on a machine without
 * GPU (GEN_LIBCUDA names it). It knows kernels by their symbols: la_decode it
 * works out itself, unless it is given kernels compiled for tests/emul.
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

#include "la_decode/args.h"
#include "core/half.h"
#include "sim_emul.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

#define NUM_SMS 132
#define PEAK_GBPS 4800.0
/* A graph of more launches is a timing loop and only moves the clock. */
#define MOST_COMPUTED 3

struct kernel {
    char symbol[256];
    const struct emul_kernel *emulated; /* or NULL */
    struct kernel *next;
};
struct launch {
    const struct kernel *kernel;
    unsigned grid[3], threads[3], shared;
    unsigned char params[SIM_PARAM_BYTES];
};
struct stream {
    int capturing;
    struct graph *graph;
};
struct graph {
    struct launch *launch;
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
static unsigned sms = NUM_SMS;
static _Atomic int lost;
static unsigned noise = 1;
static struct stream default_stream;
static __thread CUcontext current;

/* ---- kernels ----------------------------------------------------------- */

static int fault(const char *symbol, const char *kind)
{
    const char *text = getenv("SIM_FAULT");
    const char *colon = text ? strrchr(text, ':') : NULL;
    char part[256];
    if (!colon || strcmp(colon + 1, kind) != 0)
        return 0;
    snprintf(part, sizeof part, "%.*s", (int)(colon - text), text);
    return strstr(symbol, part) != NULL;
}

static unsigned divide(unsigned x, unsigned mul, unsigned shift)
{
    return mul ? (unsigned)(((unsigned long long)x * mul) >> 32) >> shift : x;
}

static float get(const void *data, long long i, int fp16)
{
    uint16_t code = ((const uint16_t *)data)[i];
    return (float)(fp16 ? gen__fp16_to_double(code) : gen__bf16_to_double(code));
}

static void put(void *data, long long i, int fp16, float x)
{
    ((uint16_t *)data)[i] =
        fp16 ? gen__fp16_from_double((double)x) : gen__bf16_from_double((double)x);
}

struct shape {
    int dim, fp16, kv;
};

static void one_state(const struct gen_la_decode_params *p, struct shape s, unsigned index)
{
    const unsigned row = divide(index, p->heads_mul, p->heads_shift);
    const unsigned head = index - row * p->num_v_heads;
    const unsigned query = divide(head, p->group_mul, p->group_shift);
    const int slot = p->slots ? p->slots[row] : (int)row;
    const long long d = s.dim, at_o = row * p->o_stride + head * d;
    if (slot < 0 || (unsigned)slot >= p->num_slots) {
        for (long long v = 0; v < d && p->zero_padding; v++)
            put(p->o, at_o + v, s.fp16, 0);
        return;
    }
    float *state = p->state + ((long long)slot * p->num_v_heads + head) * d * d;
    const float lam = expf(-p->decay[divide(head, p->decay_mul, p->decay_shift)]);
    for (long long v = 0; v < d; v++) {
        const float value = get(p->v, row * p->v_stride + head * d + v, s.fp16);
        float sum = 0;
        for (long long k = 0; k < d; k++) {
            float *h = &state[s.kv ? k * d + v : v * d + k];
            *h = fmaf(get(p->k, row * p->k_stride + query * d + k, s.fp16), value, lam * *h);
            sum += p->scale * get(p->q, row * p->q_stride + query * d + k, s.fp16) * *h;
        }
        put(p->o, at_o + v, s.fp16, sum);
    }
}

static void do_harm(const struct gen_la_decode_params *p, struct shape s, const char *symbol)
{
    static unsigned calls;
    const size_t all = (size_t)p->num_slots * p->num_v_heads * (size_t)(s.dim * s.dim);
    calls++;
    if (fault(symbol, "wrong"))
        put(p->o, 0, s.fp16, 1e3f);
    if (fault(symbol, "guard"))
        p->state[all] = 1;
    if (fault(symbol, "input"))
        ((uint16_t *)(uintptr_t)p->q)[0] ^= 1;
    for (unsigned slot = 0; slot < p->num_slots && fault(symbol, "stray"); slot++)
        p->state[(size_t)slot * p->num_v_heads * (size_t)(s.dim * s.dim)] *= 1.0000001f;
    if (fault(symbol, "racy") && calls % 2)
        p->state[(size_t)(p->slots && p->slots[0] >= 0 && (unsigned)p->slots[0] < p->num_slots
                              ? p->slots[0]
                              : 0) *
                 p->num_v_heads * (size_t)(s.dim * s.dim)] *= 1.0000001f;
}

/* Microseconds: a start and the bytes at a share of the peak that depends on the
 * symbol, with some noise. */
static double model_us(const char *symbol, double bytes)
{
    unsigned hash = 2166136261u;
    for (const char *c = symbol; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 16777619u;
    const double share = 0.70 + 0.2 * ((hash >> 8) % 1024) / 1024.0;
    const double start = 1.5 + ((hash >> 18) % 64) / 64.0;
    noise = noise * 1664525u + 1013904223u;
    const double jitter = 1 + 0.004 * ((noise >> 16) % 1000 / 1000.0 - 0.5);
    return (start + bytes / (PEAK_GBPS * 1e3 * share * fmin(1.0, sms / 100.0))) * jitter;
}

static void run_la_decode(const struct launch *l, const char *name, int compute)
{
    struct gen_la_decode_params p;
    const struct shape s = {strstr(name, "_d64_")    ? 64
                            : strstr(name, "_d256_") ? 256
                                                     : 128,
                            strstr(name, "_fp16_") != NULL, strstr(name, "_kv__") != NULL};
    const char *limit = getenv("SIM_LIMIT");
    memcpy(&p, l->params, sizeof p);
    if (compute && p.num_states <= (limit ? (unsigned)atoi(limit) : 20000u)) {
        for (unsigned i = 0; i < p.num_states; i++)
            one_state(&p, s, i);
        do_harm(&p, s, l->kernel->symbol);
    }
    now_us += model_us(l->kernel->symbol, 8.0 * p.num_states * s.dim * s.dim);
}

static void run_inplace(const struct launch *l, int compute)
{
    float *data;
    unsigned long long n;
    float factor;
    memcpy(&data, l->params, sizeof data);
    memcpy(&n, l->params + 8, sizeof n);
    memcpy(&factor, l->params + 16, sizeof factor);
    for (unsigned long long i = 0; compute && i < 4 * n && n < 100000; i++)
        data[i] *= factor;
    now_us += model_us(l->kernel->symbol, 32.0 * (double)n);
}

/* What went wrong in an emulated kernel; errors quote it. */
static char emul_message[1024] = "said the simulation";

static CUresult run_emulated(const struct launch *l, int compute)
{
    now_us += model_us(l->kernel->symbol, 1e6);
    if (!compute)
        return CUDA_SUCCESS;
    if (sim_emul_run(l->kernel->emulated, l->grid, l->threads, l->shared, l->params, emul_message,
                     sizeof emul_message))
        return CUDA_SUCCESS;
    fprintf(stderr, "sim_cuda: %s: %s\n", l->kernel->symbol,
            emul_message); /* rows have less room */
    return CUDA_ERROR_LAUNCH_FAILED;
}

static CUresult execute_locked(const struct launch *l, int compute)
{
    const char *name = strstr(l->kernel->symbol, "la_decode_");
    if (fault(l->kernel->symbol, "hang"))
        for (;;)
            pause();
    if (fault(l->kernel->symbol, "lost") || (!compute && fault(l->kernel->symbol, "late")))
        lost = 1;
    if (lost)
        return CUDA_SUCCESS;
    if (l->kernel->emulated)
        return run_emulated(l, compute);
    if (name)
        run_la_decode(l, name, compute);
    else if (strncmp(l->kernel->symbol, "inplace_", 8) == 0)
        run_inplace(l, compute);
    return CUDA_SUCCESS;
}

/* One launch at a time, as if on one multiprocessor. */
static CUresult execute(const struct launch *l, int compute)
{
    pthread_mutex_lock(&busy);
    const CUresult result = execute_locked(l, compute);
    pthread_mutex_unlock(&busy);
    return result;
}

static void copy_params(struct launch *l, void **params)
{
    if (l->kernel->emulated) {
        sim_emul_params(l->kernel->emulated, params, l->params);
    } else if (strstr(l->kernel->symbol, "la_decode_")) {
        memcpy(l->params, params[0], sizeof(struct gen_la_decode_params));
    } else {
        memcpy(l->params, params[0], 8);
        memcpy(l->params + 8, params[1], 8);
        memcpy(l->params + 16, params[2], 4);
    }
}

EXPORT CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y,
                               unsigned grid_z, unsigned block_x, unsigned block_y,
                               unsigned block_z, unsigned shared, CUstream stream, void **params,
                               void **extra)
{
    struct launch l = {.kernel = (const struct kernel *)function,
                       .grid = {grid_x, grid_y, grid_z},
                       .threads = {block_x, block_y, block_z},
                       .shared = shared};
    struct stream *s = stream ? (struct stream *)stream : &default_stream;
    const unsigned blocks = grid_x * grid_y * grid_z, threads = block_x * block_y * block_z;
    (void)extra;
    if (!current)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (lost)
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    if (!blocks || !threads || threads > 1024 || fault(l.kernel->symbol, "launch") ||
        (s->capturing && fault(l.kernel->symbol, "capture")))
        return CUDA_ERROR_INVALID_VALUE;
    copy_params(&l, params);
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
    return lost ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_SUCCESS;
}

EXPORT CUresult cuLibraryUnload(CUlibrary library)
{
    free(library);
    return CUDA_SUCCESS;
}

/* Kernels live on, in a list: launches that were captured name them. */
static struct kernel *kernels;

EXPORT CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
    struct kernel *k = calloc(1, sizeof *k);
    (void)library;
    if (!k)
        abort();
    snprintf(k->symbol, sizeof k->symbol, "%s", name);
    if (strncmp(name, "inplace_", 8) != 0 &&
        !sim_emul_find(name, &k->emulated, emul_message, sizeof emul_message)) {
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

/* ---- device, contexts -------------------------------------------------- */

EXPORT CUresult cuInit(unsigned flags)
{
    (void)flags;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDriverGetVersion(int *version)
{
    *version = 13000;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGetErrorName(CUresult result, const char **name)
{
    *name = result == CUDA_ERROR_ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS"
            : result == CUDA_ERROR_LAUNCH_FAILED ? "CUDA_ERROR_LAUNCH_FAILED"
                                                 : "CUDA_ERROR";
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGetErrorString(CUresult result, const char **text)
{
    (void)result;
    *text = emul_message;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetCount(int *count)
{
    *count = 1;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    *device = ordinal;
    return ordinal == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

EXPORT CUresult cuDeviceGetName(char *name, int capacity, CUdevice device)
{
    (void)device;
    snprintf(name, (size_t)capacity, "NVIDIA H200 (simulated)");
    return CUDA_SUCCESS;
}

static int number_from(const char *variable, int otherwise)
{
    const char *text = getenv(variable);
    return text ? atoi(text) : otherwise;
}

/* Shared memory of a multiprocessor by compute capability; a block may have 1 KiB less. */
static int shared_per_sm(int cc)
{
    switch (cc) {
    case 80:
    case 87:
        return 167936;
    case 86:
    case 89:
    case 120:
    case 121:
        return 102400;
    default:
        return 233472;
    }
}

EXPORT CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    const int cc = number_from("SIM_CC", 90);
    (void)device;
    switch ((int)attribute) {
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        *value = number_from("SIM_SMS", NUM_SMS);
        break;
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE:
        *value = 3201000;
        break;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH:
        *value = 6144;
        break;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
        *value = number_from("SIM_L2", 62914560);
        break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        *value = cc / 10;
        break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        *value = cc % 10;
        break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
        *value = shared_per_sm(cc);
        break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
        *value = shared_per_sm(cc) - 1024;
        break;
    default:
        *value = 0;
    }
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    (void)device;
    *context = (CUcontext)&default_stream;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    (void)device;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxSetCurrent(CUcontext context)
{
    current = context;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetCurrent(CUcontext *context)
{
    *context = current;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetDevice(CUdevice *device)
{
    *device = 0;
    return current ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

EXPORT CUresult cuCtxCreate(CUcontext *context, CUctxCreateParams *params, unsigned flags,
                            CUdevice device)
{
    (void)params, (void)flags, (void)device;
    *context = current = malloc(8);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxDestroy(CUcontext context)
{
    if (current == context)
        current = NULL;
    free(context);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource *resource,
                                       CUdevResourceType type)
{
    (void)device;
    memset(resource, 0, sizeof *resource);
    resource->type = type;
    resource->sm.smCount = NUM_SMS;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDevSmResourceSplitByCount(CUdevResource *result, unsigned *groups,
                                            const CUdevResource *input, CUdevResource *rest,
                                            unsigned flags, unsigned count)
{
    (void)flags;
    *result = *rest = *input;
    *groups = 1;
    result->sm.smCount = (count + 7) / 8 * 8;
    rest->sm.smCount = input->sm.smCount - result->sm.smCount;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *desc, CUdevResource *resources,
                                          unsigned count)
{
    (void)count;
    sms = resources->sm.smCount;
    *desc = (CUdevResourceDesc)&default_stream;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGreenCtxCreate(CUgreenCtx *context, CUdevResourceDesc desc, CUdevice device,
                                 unsigned flags)
{
    (void)desc, (void)device;
    *context = (CUgreenCtx)&default_stream;
    return flags == CU_GREEN_CTX_DEFAULT_STREAM ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuGreenCtxDestroy(CUgreenCtx context)
{
    (void)context;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxFromGreenCtx(CUcontext *context, CUgreenCtx green)
{
    *context = (CUcontext)green;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGreenCtxStreamCreate(CUstream *stream, CUgreenCtx green, unsigned flags,
                                       int priority)
{
    (void)green, (void)flags, (void)priority;
    *stream = calloc(1, sizeof(struct stream));
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
    return lost ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_SUCCESS;
}

EXPORT CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
    const struct stream *s = stream ? (struct stream *)stream : &default_stream;
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
    return lost ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_SUCCESS;
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
    return lost ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_SUCCESS;
}

EXPORT CUresult cuEventElapsedTime(float *ms, CUevent start, CUevent stop)
{
    *ms = (float)((((struct event *)stop)->us - ((struct event *)start)->us) / 1e3);
    return CUDA_SUCCESS;
}

/* ---- memory ------------------------------------------------------------ */

EXPORT CUresult cuMemAlloc(CUdeviceptr *memory, size_t size)
{
    void *p = aligned_alloc(512, (size + 511) / 512 * 512);
    *memory = (CUdeviceptr)(uintptr_t)p;
    return p ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

EXPORT CUresult cuMemFree(CUdeviceptr memory)
{
    free((void *)(uintptr_t)memory);
    return CUDA_SUCCESS;
}

static CUresult copy(CUdeviceptr to, CUdeviceptr from, size_t size)
{
    if (lost)
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    memmove((void *)(uintptr_t)to, (const void *)(uintptr_t)from, size);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t size, CUstream stream)
{
    (void)stream;
    return copy(to, (CUdeviceptr)(uintptr_t)from, size);
}

EXPORT CUresult cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t size, CUstream stream)
{
    (void)stream;
    return copy((CUdeviceptr)(uintptr_t)to, from, size);
}

EXPORT CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream)
{
    (void)stream;
    return copy(to, from, size);
}

EXPORT CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char byte, size_t size, CUstream stream)
{
    (void)stream;
    memset((void *)(uintptr_t)to, byte, size);
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
