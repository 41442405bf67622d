#include "spec/gpu.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* CUdevice_attribute, from the driver API's reference. */
enum { COMPUTE_CAPABILITY_MAJOR = 75, COMPUTE_CAPABILITY_MINOR = 76 };

typedef int (*init_function)(unsigned flags);
typedef int (*count_function)(int *count);
typedef int (*get_function)(int *device, int ordinal);
typedef int (*attribute_function)(int *value, int attribute, int device);

/* ISO C has no cast from an object pointer to a function's. */
static void find(void *library, const char *name, void *function)
{
    void *address = dlsym(library, name);
    memcpy(function, &address, sizeof address);
}

size_t gpu_query(int *ccs, size_t capacity)
{
    const char *path = secure_getenv("GEN_LIBCUDA"); /* it names code to run */
    void *library = dlopen(path != NULL && path[0] != '\0' ? path : "libcuda.so.1", RTLD_NOW);
    if (library == NULL)
        return 0;
    init_function init;
    count_function get_count;
    get_function get;
    attribute_function get_attribute;
    find(library, "cuInit", &init);
    find(library, "cuDeviceGetCount", &get_count);
    find(library, "cuDeviceGet", &get);
    find(library, "cuDeviceGetAttribute", &get_attribute);
    int count = 0;
    size_t found = 0;
    if (init != NULL && get_count != NULL && get != NULL && get_attribute != NULL && init(0) == 0 &&
        get_count(&count) == 0)
        for (int i = 0; i < count && found < capacity; i++) {
            int device, major, minor;
            if (get(&device, i) == 0 &&
                get_attribute(&major, COMPUTE_CAPABILITY_MAJOR, device) == 0 &&
                get_attribute(&minor, COMPUTE_CAPABILITY_MINOR, device) == 0)
                ccs[found++] = 10 * major + minor;
        }
    dlclose(library);
    return found;
}
