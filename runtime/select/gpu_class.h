/* Comparing classes of GPU: which measured one is nearest to a device, and what differs. */
#ifndef GEN_GPU_CLASS_H
#define GEN_GPU_CLASS_H

#include "product/library.h"

/* a / b or b / a, whichever is at least 1. What is not known of the device counts as equal. */
static inline double gen__class_ratio(uint32_t device, uint32_t measured)
{
    if (!device)
        return 1.0;
    return device > measured ? (double)device / measured : (double)measured / device;
}

/* The product of the ratios of SMs, bandwidth and L2 orders classes as the sum of their |log2|
 * does. */
static inline double gen__class_distance(const gen_device *device,
                                         const struct gen__class_rows *rows)
{
    return gen__class_ratio(device->num_sms, rows->num_sms) *
           gen__class_ratio(device->memory_gbps, rows->memory_gbps) *
           gen__class_ratio(device->l2_bytes, rows->l2_bytes);
}

static inline bool gen__is_own_class(const gen_device *device, const struct gen__class_rows *rows)
{
    return rows->compute_capability == device->compute_capability &&
           rows->num_sms == device->num_sms;
}

/* What makes as much work fall to an SM of the device as to one of the class. */
static inline float gen__per_sm_scale(const gen_device *device, const struct gen__class_rows *rows)
{
    return (float)((double)rows->num_sms * (1.0 / device->num_sms));
}

/* A class's time on the device: by bandwidth. */
static inline float gen__by_bandwidth(float us, const gen_device *device,
                                      const struct gen__class_rows *rows)
{
    if (!device->memory_gbps || device->memory_gbps == rows->memory_gbps)
        return us;
    return us * ((float)rows->memory_gbps / (float)device->memory_gbps);
}

#endif /* GEN_GPU_CLASS_H */
