#include "families/common/tensor_map.h"

#include "family/family.h"

#include <string.h>

/* As many as the tensors of a few layers that are launched on in turn, in sets: tensors of one
 * launch that share a set do not drive each other out. */
enum { SETS = 8, IN_SET = 4 };

struct kept_map {
    struct gen__boxed tensor; /* all zeros: none, for every map has extents */
    unsigned long long map[16];
};
static _Thread_local struct kept_set {
    struct kept_map place[IN_SET];
    uint32_t next; /* place that the next one takes */
} kept_sets[SETS];

static struct kept_set *set_of(const struct gen__boxed *tensor)
{
    const uint64_t golden = UINT64_C(0x9e3779b97f4a7c15); /* 2^64 over the golden ratio */
    return &kept_sets[(uint64_t)(uintptr_t)tensor->memory * golden >> 32 & (SETS - 1)];
}

/* Of one that was just written. */
static bool same_tensor(const struct gen__boxed *kept, const struct gen__boxed *t)
{
    uint64_t differences = (uintptr_t)kept->memory ^ (uintptr_t)t->memory;
    for (int i = 0; i < 4; i++)
        differences |=
            (kept->extent[i] ^ GEN__FRESH(t->extent[i])) | (kept->box[i] ^ GEN__FRESH(t->box[i]));
    for (int i = 0; i < 3; i++)
        differences |= kept->strides[i] ^ GEN__FRESH(t->strides[i]);
    return !(differences | (uint32_t)(kept->type ^ GEN__FRESH(t->type)) |
             (uint32_t)(kept->swizzle ^ GEN__FRESH(t->swizzle)));
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
    struct kept_set *const set = set_of(tensor);
    for (int i = 0; i < IN_SET; i++) {
        const struct kept_map *const kept = &set->place[i];
        if (kept->tensor.memory == tensor->memory && same_tensor(&kept->tensor, tensor)) {
            memcpy(map, kept->map, sizeof kept->map);
            return 0;
        }
    }
    const int result = driver->cuTensorMapEncodeTiled(
        map, tensor->type, 4, (void *)(uintptr_t)tensor->memory, tensor->extent, tensor->strides,
        tensor->box, steps, GEN__TENSOR_NOT_INTERLEAVED, tensor->swizzle, GEN__TENSOR_L2_NONE,
        GEN__TENSOR_ZEROS_OUTSIDE);
    if (!result) {
        struct kept_map *const place = &set->place[set->next++ % IN_SET];
        place->tensor = *tensor;
        memcpy(place->map, map, sizeof place->map);
    }
    return result;
}
