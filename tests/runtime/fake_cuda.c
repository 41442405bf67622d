/* The functions of libcuda that the runtime and its bindings use; see fake_cuda.h. */
#include "fake_cuda.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define SHARED_WITHOUT_OPT_IN (48 * 1024)

/* Results of the driver, by their numbers. */
enum { INVALID_VALUE = 1, INVALID_DEVICE = 101, INVALID_IMAGE = 200, NOT_FOUND = 500 };

struct fake_library {
    uint32_t magic;
    int compute_capability;
    char symbol[256]; /* "" has every symbol */
    struct fake_kernel *kernels;
};

struct fake_kernel {
    char symbol[256];
    struct fake_library *library;
    int max_dynamic_shared[FAKE_MAX_DEVICES];
    struct fake_kernel *next;
};

#define LIBRARY_MAGIC 0x4c494221u

#define MAX_FUNCTIONS 96
static struct {
    const char *name;
    unsigned long calls;
} functions[MAX_FUNCTIONS];

static struct fake_cuda control;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int context_object;             /* the one context: its address */
static char primary[FAKE_MAX_DEVICES]; /* the primary ones, likewise */
static struct {
    int device, none;
} under; /* the push, of which there is one at a time */

EXPORT struct fake_cuda *fake_cuda_get(void);
EXPORT void fake_cuda_reset(void);
EXPORT unsigned long fake_cuda_calls(const char *function);

struct fake_cuda *fake_cuda_get(void)
{
    if (control.num_devices == 0 && control.num_calls == 0)
        fake_cuda_reset();
    return &control;
}

void fake_cuda_reset(void)
{
    static const struct fake_device h200 = {"NVIDIA H200", 9,        0,       132, 232448,
                                            233472,        62914560, 3201000, 6144};
    static const struct fake_device a100 = {
        "NVIDIA A100-SXM4-80GB", 8, 0, 108, 166912, 167936, 41943040, 1593000, 5120};
    pthread_mutex_lock(&lock);
    memset(&control, 0, sizeof(control));
    memset(functions, 0, sizeof(functions));
    control.num_devices = 2;
    control.devices[0] = h200;
    control.devices[1] = a100;
    pthread_mutex_unlock(&lock);
}

unsigned long fake_cuda_calls(const char *function)
{
    unsigned long calls = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MAX_FUNCTIONS && functions[i].name; i++)
        if (!strcmp(functions[i].name, function))
            calls = functions[i].calls;
    pthread_mutex_unlock(&lock);
    return calls;
}

/* Counts the call and returns its fate. */
static int enter(const char *function)
{
    fake_cuda_get();
    pthread_mutex_lock(&lock);
    int result = 0;
    int i = 0;
    while (i < MAX_FUNCTIONS - 1 && functions[i].name && strcmp(functions[i].name, function) != 0)
        i++;
    functions[i].name = function;
    functions[i].calls++;
    control.num_calls++;
    if (control.fail_at > 0 && !strcmp(control.fail_function, function) && --control.fail_at == 0)
        result = control.fail_result;
    pthread_mutex_unlock(&lock);
    return result;
}

#define ENTER(function)              \
    do {                             \
        int fate = enter(#function); \
        if (fate)                    \
            return fate;             \
    } while (0)

/* Prototypes from the runtime's own list, so that the two cannot differ. */
#define PROTOTYPE(function, parameters) EXPORT int function parameters;
GEN__DRIVER_MAP(PROTOTYPE)
GEN__DRIVER_OPTIONAL_MAP(PROTOTYPE)
/* And what the bindings make a context current with, by the names that a driver exports. */
PROTOTYPE(cuDevicePrimaryCtxRetain, (void **context, int device))
PROTOTYPE(cuCtxPushCurrent_v2, (void *context))
PROTOTYPE(cuCtxPopCurrent_v2, (void **context))
PROTOTYPE(cuCtxSetCurrent, (void *context))

int cuInit(unsigned flags)
{
    ENTER(cuInit);
    return flags ? INVALID_VALUE : control.num_devices > 0 ? 0 : GEN__CUDA_NO_DEVICE;
}

int cuGetErrorName(int result, const char **name)
{
    ENTER(cuGetErrorName);
    static _Thread_local char text[64];
    snprintf(text, sizeof(text), "FAKE_ERROR_%d", result);
    *name = text;
    return 0;
}

int cuGetErrorString(int result, const char **text)
{
    ENTER(cuGetErrorString);
    *text = result ? "the fake driver was told to fail" : "no error";
    return 0;
}

int cuDeviceGetCount(int *count)
{
    ENTER(cuDeviceGetCount);
    *count = control.num_devices;
    return 0;
}

int cuDeviceGet(int *device, int ordinal)
{
    ENTER(cuDeviceGet);
    if (ordinal < 0 || ordinal >= control.num_devices)
        return INVALID_DEVICE;
    *device = ordinal;
    return 0;
}

int cuDeviceGetName(char *name, int capacity, int device)
{
    ENTER(cuDeviceGetName);
    snprintf(name, (size_t)capacity, "%s", control.devices[device].name);
    return 0;
}

int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    ENTER(cuDeviceGetAttribute);
    const int *found = fake_device_attribute(&control.devices[device], attribute);
    if (found)
        *value = *found;
    return found ? 0 : INVALID_VALUE;
}

int cuCtxGetCurrent(void **context)
{
    ENTER(cuCtxGetCurrent);
    *context = control.no_context ? NULL : &context_object;
    return 0;
}

int cuCtxGetDevice(int *device)
{
    ENTER(cuCtxGetDevice);
    if (control.no_context)
        return GEN__CUDA_INVALID_CONTEXT;
    *device = control.current_device;
    return 0;
}

int cuDevicePrimaryCtxRetain(void **context, int device)
{
    ENTER(cuDevicePrimaryCtxRetain);
    *context = &primary[device];
    return 0;
}

int cuCtxPushCurrent_v2(void *context)
{
    ENTER(cuCtxPushCurrent);
    under.device = control.current_device;
    under.none = control.no_context;
    control.current_device = (int)((char *)context - primary);
    control.no_context = 0;
    return 0;
}

int cuCtxPopCurrent_v2(void **context)
{
    ENTER(cuCtxPopCurrent);
    *context = &primary[control.current_device];
    control.current_device = under.device;
    control.no_context = under.none;
    return 0;
}

int cuCtxSetCurrent(void *context)
{
    ENTER(cuCtxSetCurrent);
    control.no_context = context == NULL;
    return 0;
}

int cuStreamIsCapturing(gen_stream stream, int *status)
{
    ENTER(cuStreamIsCapturing);
    (void)stream;
    *status = control.capturing;
    return 0;
}

int cuLibraryLoadData(void **library, const void *image, int *jit_options, void **jit_values,
                      unsigned num_jit_options, int *options, void **values, unsigned num_options)
{
    ENTER(cuLibraryLoadData);
    (void)jit_options, (void)jit_values, (void)options, (void)values;
    uint32_t magic;
    memcpy(&magic, image, sizeof(magic));
    if (magic != 0xba55ed50u || num_jit_options || num_options)
        return INVALID_IMAGE;
    struct fake_library *l = calloc(1, sizeof(*l));
    if (!l)
        return 2;
    l->magic = LIBRARY_MAGIC;
    const char *text = (const char *)image + 16;
    if (!strncmp(text, "FAKE ", 5))
        sscanf(text + 5, "%d %255s", &l->compute_capability, l->symbol);
    *library = l;
    pthread_mutex_lock(&lock);
    control.num_loads++;
    pthread_mutex_unlock(&lock);
    return 0;
}

int cuLibraryUnload(void *library)
{
    ENTER(cuLibraryUnload);
    struct fake_library *l = library;
    if (l->magic != LIBRARY_MAGIC)
        return INVALID_VALUE;
    for (struct fake_kernel *k = l->kernels; k;) {
        struct fake_kernel *next = k->next;
        free(k);
        k = next;
    }
    l->magic = 0;
    free(l);
    pthread_mutex_lock(&lock);
    control.num_unloads++;
    pthread_mutex_unlock(&lock);
    return 0;
}

int cuLibraryGetKernel(void **kernel, void *library, const char *symbol)
{
    ENTER(cuLibraryGetKernel);
    struct fake_library *l = library;
    if (l->symbol[0] && strcmp(l->symbol, symbol) != 0)
        return NOT_FOUND;
    struct fake_kernel *k = calloc(1, sizeof(*k));
    if (!k)
        return 2;
    snprintf(k->symbol, sizeof(k->symbol), "%s", symbol);
    k->library = l;
    for (int i = 0; i < FAKE_MAX_DEVICES; i++)
        k->max_dynamic_shared[i] = SHARED_WITHOUT_OPT_IN;
    k->next = l->kernels;
    l->kernels = k;
    *kernel = k;
    return 0;
}

static int runs_here(const struct fake_kernel *kernel, int device)
{
    const struct fake_device *d = &control.devices[device];
    const int compute_capability = kernel->library->compute_capability;
    return compute_capability == 0 || compute_capability == 10 * d->major + d->minor;
}

int cuKernelGetFunction(void **function, void *kernel)
{
    ENTER(cuKernelGetFunction);
    if (control.no_context)
        return GEN__CUDA_INVALID_CONTEXT;
    if (!runs_here(kernel, control.current_device))
        return GEN__CUDA_NO_BINARY;
    *function = kernel;
    return 0;
}

int cuFuncLoad(void *function)
{
    ENTER(cuFuncLoad);
    (void)function;
    pthread_mutex_lock(&lock);
    control.num_func_loads++;
    pthread_mutex_unlock(&lock);
    return 0;
}

int cuTensorMapEncodeTiled(void *map, int type, unsigned rank, void *memory, const uint64_t *extent,
                           const uint64_t *strides, const uint32_t *box, const uint32_t *steps,
                           int interleave, int swizzle, int promotion, int fill)
{
    ENTER(cuTensorMapEncodeTiled);
    struct fake_tensor_map made = {.memory = (uintptr_t)memory,
                                   .type = (int8_t)type,
                                   .rank = (int8_t)rank,
                                   .interleave = (int8_t)interleave,
                                   .swizzle = (int8_t)swizzle,
                                   .promotion = (int8_t)promotion,
                                   .fill = (int8_t)fill};
    _Static_assert(sizeof(made) <= 128, "a tensor map holds it");
    if (rank != 4 || (uintptr_t)map % 64 || (uintptr_t)memory % 16 || strides[0] % 16 ||
        strides[1] % 16 || strides[2] % 16)
        return INVALID_VALUE;
    memcpy(made.extent, extent, sizeof(made.extent));
    memcpy(made.strides, strides, sizeof(made.strides));
    memcpy(made.box, box, sizeof(made.box));
    memcpy(made.steps, steps, sizeof(made.steps));
    memset(map, 0, 128);
    memcpy(map, &made, sizeof(made));
    return 0;
}

int cuKernelSetAttribute(int attribute, int value, void *kernel, int device)
{
    ENTER(cuKernelSetAttribute);
    struct fake_kernel *k = kernel;
    const int cluster = attribute == GEN__KERNEL_ANY_CLUSTER && value == 1;
    if ((attribute != GEN__KERNEL_MAX_DYNAMIC_SHARED && !cluster) || device < 0 ||
        device >= control.num_devices)
        return INVALID_VALUE;
    if (!runs_here(k, device))
        return GEN__CUDA_NO_BINARY;
    if (cluster) {
        pthread_mutex_lock(&lock);
        control.num_clusters++;
        pthread_mutex_unlock(&lock);
        return 0;
    }
    if (value > control.devices[device].shared_per_block)
        return INVALID_VALUE;
    k->max_dynamic_shared[device] = value;
    pthread_mutex_lock(&lock);
    control.num_attributes++;
    pthread_mutex_unlock(&lock);
    return 0;
}

static void book(const struct fake_kernel *k, const unsigned grid[3], unsigned threads,
                 unsigned shared, void *stream, const void *params)
{
    pthread_mutex_lock(&lock);
    const unsigned long at = control.num_launches++;
    if (at < FAKE_MAX_LAUNCHES) {
        struct fake_launch *l = &control.launches[at];
        *l = (struct fake_launch){.symbol = k->symbol,
                                  .grid = {grid[0], grid[1], grid[2]},
                                  .threads = threads,
                                  .shared = shared,
                                  .stream = stream};
        if (params && control.copy_params)
            memcpy(l->params, params,
                   control.copy_params < FAKE_PARAMS ? control.copy_params : FAKE_PARAMS);
    }
    pthread_mutex_unlock(&lock);
}

static int launch_kernel(void *function, const unsigned grid[3], const unsigned block[3],
                         unsigned shared, gen_stream stream, void **params, void **extra)
{
    const struct fake_kernel *k = function;
    if (control.no_context)
        return GEN__CUDA_INVALID_CONTEXT;
    if (!runs_here(k, control.current_device))
        return GEN__CUDA_NO_BINARY;
    if (!grid[0] || !grid[1] || !grid[2] || block[1] != 1 || block[2] != 1 || !block[0] ||
        block[0] > 1024 || extra ||
        shared > (unsigned)k->max_dynamic_shared[control.current_device])
        return INVALID_VALUE;
    book(k, grid, block[0], shared, stream, params ? params[0] : NULL);
    return 0;
}

int cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                   gen_stream stream, void **params, void **extra)
{
    ENTER(cuLaunchKernel);
    const unsigned grid[3] = {grid_x, grid_y, grid_z}, block[3] = {block_x, block_y, block_z};
    return launch_kernel(function, grid, block, shared, stream, params, extra);
}

int cuLaunchKernelEx(const struct gen__launch_config *config, void *function, void **params,
                     void **extra)
{
    ENTER(cuLaunchKernelEx);
    const struct gen__launch_attribute *a = config->attributes;
    if (config->num_attributes > 1 || (config->num_attributes && a->id != GEN__LAUNCH_DEPENDENT))
        return INVALID_VALUE;
    const unsigned long before = control.num_launches;
    const int result = launch_kernel(function, config->grid, config->block, config->shared,
                                     config->stream, params, extra);
    if (!result && before < FAKE_MAX_LAUNCHES)
        control.launches[before].dependent = config->num_attributes && a->value.allowed;
    return result;
}
