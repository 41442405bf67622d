#include "tensor_map.h"

#include "family.h"

#include <string.h>

/* As many as the tensors of a few layers that are launched on in turn, in sets: tensors of one
 * launch that share a set do not drive each other out. */
enum { SETS = 8, IN_SET = 4 };

struct kept_map {
    struct gen__boxed tensor; /* memory NULL: none, for a map is never of that */
    unsigned long long map[16];
};
static _Thread_local struct kept_map kept_maps[SETS][IN_SET];
static _Thread_local uint32_t next_place; /* of any set */

static struct kept_map *set_of(const struct gen__boxed *tensor)
{
    const uint64_t golden = UINT64_C(0x9e3779b97f4a7c15); /* 2^64 over the golden ratio */
    return kept_maps[(uint64_t)(uintptr_t)tensor->memory * golden >> 32 & (SETS - 1)];
}

enum gen_status gen__tensor_maps_open(const char *family, const struct gen__driver **driver)
{
    const enum gen_status status = gen__driver_open(driver);
    if (status || (*driver)->cuTensorMapEncodeTiled)
        return status;
    return gen__fail(GEN_STATUS_NO_DRIVER,
                     "%s: the CUDA driver has no function cuTensorMapEncodeTiled, which this "
                     "variant needs; a driver of CUDA 12.0 or newer has it",
                     family);
}

int gen__tensor_map(const struct gen__driver *driver, const struct gen__boxed *tensor,
                    unsigned long long map[16])
{
    static const uint32_t steps[4] = {1, 1, 1, 1};
    struct kept_map *const set = set_of(tensor);
    for (int i = 0; i < IN_SET; i++)
        if (set[i].tensor.memory == tensor->memory &&
            memcmp(&set[i].tensor, tensor, sizeof *tensor) == 0) {
            memcpy(map, set[i].map, sizeof set[i].map);
            return 0;
        }
    const int result = driver->cuTensorMapEncodeTiled(
        map, tensor->type, 4, (void *)(uintptr_t)tensor->memory, tensor->extent, tensor->strides,
        tensor->box, steps, GEN__TENSOR_NOT_INTERLEAVED, tensor->swizzle, GEN__TENSOR_L2_NONE,
        GEN__TENSOR_ZEROS_OUTSIDE);
    if (!result) {
        struct kept_map *const place = &set[next_place++ % IN_SET];
        place->tensor = *tensor;
        memcpy(place->map, map, sizeof place->map);
    }
    return result;
}
