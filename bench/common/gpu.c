#include "common/gpu.h"
#include "common/util.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Driver functions that the runtime has no use for. */
#define GPU_API_MAP(X)           \
    X(cuDriverGetVersion)        \
    X(cuDevicePrimaryCtxRetain)  \
    X(cuDevicePrimaryCtxRelease) \
    X(cuCtxSetCurrent)           \
    X(cuStreamCreate)            \
    X(cuStreamDestroy)           \
    X(cuStreamSynchronize)       \
    X(cuStreamBeginCapture)      \
    X(cuStreamEndCapture)        \
    X(cuGraphInstantiate)        \
    X(cuGraphLaunch)             \
    X(cuGraphDestroy)            \
    X(cuGraphExecDestroy)        \
    X(cuEventCreate)             \
    X(cuEventDestroy)            \
    X(cuEventRecord)             \
    X(cuEventSynchronize)        \
    X(cuMemAlloc)                \
    X(cuMemFree)                 \
    X(cuMemcpyHtoDAsync)         \
    X(cuMemcpyDtoHAsync)         \
    X(cuMemcpyDtoDAsync)         \
    X(cuMemsetD8Async)

/* Those that only some programs or drivers need. */
#define GPU_API_OPTIONAL_MAP(X)    \
    X(cuCtxCreate)                 \
    X(cuCtxDestroy)                \
    X(cuDeviceGetDevResource)      \
    X(cuDevSmResourceSplitByCount) \
    X(cuDevResourceGenerateDesc)   \
    X(cuGreenCtxCreate)            \
    X(cuGreenCtxDestroy)           \
    X(cuGreenCtxStreamCreate)      \
    X(cuCtxFromGreenCtx)

struct gpu_api {
#define GPU_API_MEMBER(function) __typeof__(&function) function;
    GPU_API_MAP(GPU_API_MEMBER)
    GPU_API_OPTIONAL_MAP(GPU_API_MEMBER)
    GPU_API_MEMBER(cuEventElapsedTime)
#undef GPU_API_MEMBER
};

#define GPU_TEXT(x) #x
#define GPU_SYMBOL(x) GPU_TEXT(x)

/* POSIX says that a pointer from dlsym() converts to a function; ISO C has no
 * such cast, so the bits are copied. */
static bool load(void *member, const char *symbol)
{
    void *p = gen__driver_symbol(symbol);
    memcpy(member, &p, sizeof p);
    return p != NULL;
}

static enum gen_status load_api(struct gpu_api *api)
{
#define GPU_LOAD(function)                                                                        \
    if (!load(&api->function, GPU_SYMBOL(function)))                                              \
        return gen__fail(GEN_STATUS_NO_DRIVER, "the driver has no %s: CUDA 12.4 or later wanted", \
                         GPU_SYMBOL(function));
#define GPU_LOAD_OPTIONAL(function) (void)load(&api->function, GPU_SYMBOL(function));
    GPU_API_MAP(GPU_LOAD)
    GPU_API_OPTIONAL_MAP(GPU_LOAD_OPTIONAL)
    /* _v2 is of CUDA 12.8; the first form takes the same arguments. */
    if (!load(&api->cuEventElapsedTime, GPU_SYMBOL(cuEventElapsedTime)) &&
        !load(&api->cuEventElapsedTime, "cuEventElapsedTime"))
        return gen__fail(GEN_STATUS_NO_DRIVER, "the driver has no cuEventElapsedTime");
#undef GPU_LOAD
#undef GPU_LOAD_OPTIONAL
    return GEN_OK;
}

static enum gen_status failed(const struct gpu *gpu, CUresult result, const char *call,
                              const char *what)
{
    return gen__driver_fail(gpu->driver, (int)result, call, what);
}

#define TRY(gpu, what, function, ...)                                \
    do {                                                             \
        CUresult result_ = (gpu)->api->function(__VA_ARGS__);        \
        if (result_ != CUDA_SUCCESS)                                 \
            return failed(gpu, result_, GPU_SYMBOL(function), what); \
    } while (0)

/* "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.82.07  ..." */
static void read_module_version(char *text, size_t capacity)
{
    char *data = file_read("/proc/driver/nvidia/version", NULL);
    snprintf(text, capacity, "-");
    for (char *word = data ? strtok(data, " \t\n") : NULL; word; word = strtok(NULL, " \t\n")) {
        if (strspn(word, "0123456789.") == strlen(word) && strchr(word, '.')) {
            snprintf(text, capacity, "%s", word);
            break;
        }
    }
    free(data);
}

static enum gen_status open_green(struct gpu *gpu, unsigned sms)
{
    const struct gpu_api *api = gpu->api;
    CUdevResource all, part, rest;
    CUdevResourceDesc desc;
    unsigned groups = 1;
    if (!api->cuDeviceGetDevResource || !api->cuDevSmResourceSplitByCount ||
        !api->cuDevResourceGenerateDesc || !api->cuGreenCtxCreate || !api->cuGreenCtxStreamCreate ||
        !api->cuCtxFromGreenCtx || !api->cuGreenCtxDestroy)
        return gen__fail(GEN_STATUS_NO_DRIVER, "the driver has no green contexts");
    TRY(gpu, "green context", cuDeviceGetDevResource, gpu->handle, &all, CU_DEV_RESOURCE_TYPE_SM);
    if (sms >= all.sm.smCount)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT, "%u SMs are requested; allowed: below %u",
                         sms, all.sm.smCount);
    TRY(gpu, "green context", cuDevSmResourceSplitByCount, &part, &groups, &all, &rest, 0, sms);
    TRY(gpu, "green context", cuDevResourceGenerateDesc, &desc, &part, 1);
    TRY(gpu, "green context", cuGreenCtxCreate, &gpu->green, desc, gpu->handle,
        CU_GREEN_CTX_DEFAULT_STREAM);
    TRY(gpu, "green context", cuCtxFromGreenCtx, &gpu->context, gpu->green);
    TRY(gpu, "green context", cuCtxSetCurrent, gpu->context);
    TRY(gpu, "green context", cuGreenCtxStreamCreate, &gpu->stream, gpu->green,
        CU_STREAM_NON_BLOCKING, 0);
    gpu->device.num_sms = part.sm.smCount;
    return GEN_OK;
}

static enum gen_status open_context(struct gpu *gpu, int ordinal, long sms)
{
    CUresult result = (CUresult)gpu->driver->cuDeviceGet(&gpu->handle, ordinal);
    if (result != CUDA_SUCCESS)
        return failed(gpu, result, "cuDeviceGet", "device");
    if (sms > 0) {
        enum gen_status status = open_green(gpu, (unsigned)sms);
        if (status != GEN_OK)
            return status;
    } else {
        TRY(gpu, "context", cuDevicePrimaryCtxRetain, &gpu->context, gpu->handle);
        TRY(gpu, "context", cuCtxSetCurrent, gpu->context);
        TRY(gpu, "stream", cuStreamCreate, &gpu->stream, CU_STREAM_NON_BLOCKING);
    }
    TRY(gpu, "event", cuEventCreate, &gpu->start, CU_EVENT_DEFAULT);
    TRY(gpu, "event", cuEventCreate, &gpu->stop, CU_EVENT_DEFAULT);
    return GEN_OK;
}

enum gen_status gpu_open(struct gpu *gpu, int ordinal, long sms)
{
    static struct gpu_api api;
    memset(gpu, 0, sizeof *gpu);
    gpu->device.size = sizeof gpu->device;
    enum gen_status status = gen_device_query(ordinal, &gpu->device);
    if (status == GEN_OK)
        status = gen__driver_open(&gpu->driver);
    if (status == GEN_OK)
        status = load_api(&api);
    if (status != GEN_OK)
        return status;
    gpu->api = &api;
    status = open_context(gpu, ordinal, sms);
    if (status != GEN_OK) {
        gpu_close(gpu);
        return status;
    }
    int version = 0;
    (void)api.cuDriverGetVersion(&version);
    snprintf(gpu->cuda_version, sizeof gpu->cuda_version, "%d.%d", version / 1000,
             version % 1000 / 10);
    read_module_version(gpu->driver_version, sizeof gpu->driver_version);
    snprintf(gpu->class_name, sizeof gpu->class_name, "sm%u_%usm", gpu->device.compute_capability,
             gpu->device.num_sms);
    return GEN_OK;
}

void gpu_close(struct gpu *gpu)
{
    const struct gpu_api *api = gpu->api;
    if (!api)
        return;
    if (gpu->start)
        (void)api->cuEventDestroy(gpu->start);
    if (gpu->stop)
        (void)api->cuEventDestroy(gpu->stop);
    if (gpu->stream)
        (void)api->cuStreamDestroy(gpu->stream);
    if (gpu->context)
        (void)api->cuCtxSetCurrent(NULL);
    if (gpu->green)
        (void)api->cuGreenCtxDestroy(gpu->green);
    else if (gpu->context)
        (void)api->cuDevicePrimaryCtxRelease(gpu->handle);
    memset(gpu, 0, sizeof *gpu);
}

enum gen_status gpu_named(const char *name, gen_device *device)
{
    const enum gen_status status = gen_device_named(name, device);
    if (status == GEN_OK && strncasecmp(name, "sm_", 3) == 0 && !strchr(name, ':'))
        warn("--gpu %s names no number of SMs: class sm%u_%usm is taken, as %s has; allowed too: "
             "sm_%u:78",
             name, device->compute_capability, device->num_sms, device->name,
             device->compute_capability);
    return status;
}

bool gpu_is_lost(const struct gpu *gpu)
{
    return gpu->api && gpu->api->cuStreamSynchronize(gpu->stream) != CUDA_SUCCESS;
}

/* ---- memory ------------------------------------------------------------ */

enum gen_status gpu_alloc(const struct gpu *gpu, uint64_t size, CUdeviceptr *memory)
{
    char what[64];
    snprintf(what, sizeof what, "%.1f MiB of device memory", (double)size / 1048576);
    TRY(gpu, what, cuMemAlloc, memory, size ? size : 1);
    return GEN_OK;
}

void gpu_free(const struct gpu *gpu, CUdeviceptr memory)
{
    if (memory)
        (void)gpu->api->cuMemFree(memory);
}

enum gen_status gpu_upload(const struct gpu *gpu, CUdeviceptr to, const void *from, uint64_t size)
{
    TRY(gpu, "upload", cuMemcpyHtoDAsync, to, from, size, gpu->stream);
    return gpu_sync(gpu);
}

enum gen_status gpu_download(const struct gpu *gpu, void *to, CUdeviceptr from, uint64_t size)
{
    TRY(gpu, "download", cuMemcpyDtoHAsync, to, from, size, gpu->stream);
    return gpu_sync(gpu);
}

enum gen_status gpu_copy(const struct gpu *gpu, CUdeviceptr to, CUdeviceptr from, uint64_t size)
{
    TRY(gpu, "copy", cuMemcpyDtoDAsync, to, from, size, gpu->stream);
    return GEN_OK;
}

enum gen_status gpu_set(const struct gpu *gpu, CUdeviceptr to, uint8_t byte, uint64_t size)
{
    TRY(gpu, "fill", cuMemsetD8Async, to, byte, size, gpu->stream);
    return GEN_OK;
}

enum gen_status gpu_sync(const struct gpu *gpu)
{
    return gpu_stream_sync(gpu, gpu->stream);
}

/* ---- time, graphs ------------------------------------------------------ */

enum gen_status gpu_mark_start(const struct gpu *gpu)
{
    TRY(gpu, "timing", cuEventRecord, gpu->start, gpu->stream);
    return GEN_OK;
}

enum gen_status gpu_mark_stop(const struct gpu *gpu)
{
    TRY(gpu, "timing", cuEventRecord, gpu->stop, gpu->stream);
    return GEN_OK;
}

enum gen_status gpu_elapsed_us(const struct gpu *gpu, double *us)
{
    float ms = 0;
    TRY(gpu, "timing", cuEventSynchronize, gpu->stop);
    TRY(gpu, "timing", cuEventElapsedTime, &ms, gpu->start, gpu->stop);
    *us = 1e3 * (double)ms;
    return GEN_OK;
}

enum gen_status gpu_capture_begin(const struct gpu *gpu)
{
    TRY(gpu, "graph", cuStreamBeginCapture, gpu->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    return GEN_OK;
}

enum gen_status gpu_capture_end(const struct gpu *gpu, CUgraphExec *graph)
{
    CUgraph captured = NULL;
    *graph = NULL;
    TRY(gpu, "graph", cuStreamEndCapture, gpu->stream, &captured);
    CUresult result = gpu->api->cuGraphInstantiate(graph, captured, 0);
    (void)gpu->api->cuGraphDestroy(captured);
    if (result != CUDA_SUCCESS) {
        *graph = NULL;
        return failed(gpu, result, "cuGraphInstantiate", "graph");
    }
    return GEN_OK;
}

enum gen_status gpu_graph_launch(const struct gpu *gpu, CUgraphExec graph)
{
    TRY(gpu, "graph", cuGraphLaunch, graph, gpu->stream);
    return GEN_OK;
}

void gpu_graph_free(const struct gpu *gpu, CUgraphExec graph)
{
    if (graph)
        (void)gpu->api->cuGraphExecDestroy(graph);
}

/* ---- other streams and contexts ---------------------------------------- */

enum gen_status gpu_stream_create(const struct gpu *gpu, CUstream *stream)
{
    TRY(gpu, "stream", cuStreamCreate, stream, CU_STREAM_NON_BLOCKING);
    return GEN_OK;
}

void gpu_stream_destroy(const struct gpu *gpu, CUstream stream)
{
    if (stream)
        (void)gpu->api->cuStreamDestroy(stream);
}

enum gen_status gpu_stream_sync(const struct gpu *gpu, CUstream stream)
{
    TRY(gpu, "kernel or copy", cuStreamSynchronize, stream);
    return GEN_OK;
}

enum gen_status gpu_context_create(const struct gpu *gpu, CUcontext *context)
{
    if (!gpu->api->cuCtxCreate || !gpu->api->cuCtxDestroy)
        return gen__fail(GEN_STATUS_NO_DRIVER, "the driver has no %s", GPU_SYMBOL(cuCtxCreate));
#if CUDA_VERSION >= 13000
    TRY(gpu, "second context", cuCtxCreate, context, NULL, 0, gpu->handle);
#else
    TRY(gpu, "second context", cuCtxCreate, context, 0, gpu->handle);
#endif
    return GEN_OK;
}

void gpu_context_destroy(const struct gpu *gpu, CUcontext context)
{
    if (context)
        (void)gpu->api->cuCtxDestroy(context);
}

enum gen_status gpu_context_use(const struct gpu *gpu, CUcontext context)
{
    TRY(gpu, "context", cuCtxSetCurrent, context);
    return GEN_OK;
}
