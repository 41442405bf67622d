/* What the runtime knows of compute capabilities and named GPUs. */
#ifndef GEN_DEVICE_H
#define GEN_DEVICE_H

#include "family.h"

/* The --targets value that makes code for a compute capability: "sm_90a" for
 * 90, "compute_80" where there is no machine code target of its own. */
const char *gen__target_for(uint32_t compute_capability);

/* Is the struct usable for selection? Sets the message if not. */
enum gen_status gen__device_check(const gen_device *device);

#endif /* GEN_DEVICE_H */
