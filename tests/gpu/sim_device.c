/* The simulated device: what it is, its contexts and its memory, which is the host's. */
#include "fake_cuda.h"
#include "sim_state.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

unsigned sim_sms = NUM_SMS;
_Atomic int sim_lost;
struct stream sim_default_stream;
__thread CUcontext sim_current;
char sim_message[1024] = "said the simulation";

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
    *text = sim_message;
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

/* By compute capability, in KiB; a block may have one less. */
static int shared_per_sm(int cc)
{
    return cc == 80 || cc == 87 ? 164 : cc == 86 || cc == 89 || cc >= 120 ? 100 : 228;
}

EXPORT CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    const int cc = number_from("SIM_CC", 90), shared = shared_per_sm(cc) * 1024;
    const struct fake_device simulated = {.major = cc / 10,
                                          .minor = cc % 10,
                                          .num_sms = number_from("SIM_SMS", NUM_SMS),
                                          .shared_per_sm = shared,
                                          .shared_per_block = shared - 1024,
                                          .l2_bytes = number_from("SIM_L2", 62914560),
                                          .memory_clock = 3201000,
                                          .bus_width = 6144};
    (void)device;
    const int *found = fake_device_attribute(&simulated, (int)attribute);
    *value = found ? *found : 0;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    (void)device;
    *context = (CUcontext)&sim_default_stream;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    (void)device;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxSetCurrent(CUcontext context)
{
    sim_current = context;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetCurrent(CUcontext *context)
{
    *context = sim_current;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetDevice(CUdevice *device)
{
    *device = 0;
    return sim_current ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

EXPORT CUresult cuCtxCreate(CUcontext *context, CUctxCreateParams *params, unsigned flags,
                            CUdevice device)
{
    (void)params, (void)flags, (void)device;
    *context = sim_current = malloc(8);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxDestroy(CUcontext context)
{
    if (sim_current == context)
        sim_current = NULL;
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
    sim_sms = resources->sm.smCount;
    *desc = (CUdevResourceDesc)&sim_default_stream;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGreenCtxCreate(CUgreenCtx *context, CUdevResourceDesc desc, CUdevice device,
                                 unsigned flags)
{
    (void)desc, (void)device;
    *context = (CUgreenCtx)&sim_default_stream;
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
    if (sim_lost)
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
