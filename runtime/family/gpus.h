/* What the runtime knows of compute capabilities and named GPUs. */
#ifndef GEN_GPUS_H
#define GEN_GPUS_H

#include "core/status.h"

/* The --targets value that makes code for a compute capability: "sm_90a" for
 * 90, "compute_80" where there is no machine code target of its own. */
const char *gen__target_for(uint32_t compute_capability);

/* The published memory bandwidth of the GPU of this capability and number of multiprocessors, or of
 * the first of this capability; 0 where no such GPU is in the table. */
uint32_t gen__published_gbps(uint32_t compute_capability, uint32_t num_sms);

/* Is the struct usable for selection? Sets the message if not. */
enum gen_status gen__device_check(const gen_device *device);

#endif /* GEN_GPUS_H */
