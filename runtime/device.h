/* What the runtime knows of compute capabilities and named GPUs. */
#ifndef GEN_DEVICE_H
#define GEN_DEVICE_H

#include "family.h"

/* The --targets value that makes code for a compute capability: "sm_90a" for
 * 90, "compute_80" where there is no machine code target of its own. */
const char *gen__target_for(uint32_t compute_capability);

/* Is the struct usable for selection? Sets the message if not. */
enum gen_status gen__device_check(const gen_device *device);

/* The same for the case that matters: false also where the check is to be made
 * at length, as it is for the CPU. */
static inline bool gen__device_is_gpu(const gen_device *device)
{
    return device && device->size == sizeof(*device) && device->backend == GEN_BACKEND_CUDA &&
           device->compute_capability - 10 <= 9999 - 10 && device->num_sms != 0 &&
           device->shared_per_block != 0;
}

#endif /* GEN_DEVICE_H */
