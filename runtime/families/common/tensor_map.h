/*
 * Tensor maps: a tensor in global memory as TMA sees it, 128 bytes of a
 * launch's parameters that the driver encodes.
 */
#ifndef GEN_TENSOR_MAP_H
#define GEN_TENSOR_MAP_H

#include "cuda/driver.h"
#include "gen.h"

#include <stdint.h>

/* Four dimensions, the first one's elements side by side. What lies outside of the extents is
 * zeros. */
struct gen__boxed {
    const void *memory;
    uint64_t extent[4];    /* elements */
    uint64_t strides[3];   /* of the dimensions behind the first; bytes */
    uint32_t box[4];       /* elements that come at once */
    int32_t type, swizzle; /* enum gen__driver_tensor_map */
};

/* The driver, if it has tensor maps; else GEN_STATUS_NO_DRIVER, with a message. */
enum gen_status gen__tensor_maps_open(const char *family, const struct gen__driver **driver);

/* Writes the map; 0, or the driver's result. A thread keeps some of the maps that it made last, for
 * who launches again on the same buffers: a map depends on what is in struct gen__boxed and on
 * nothing else. */
int gen__tensor_map(const struct gen__driver *driver, const struct gen__boxed *tensor,
                    unsigned long long map[16]);

#endif /* GEN_TENSOR_MAP_H */
