#ifndef GPU_H
#define GPU_H

#include <stddef.h>

/* Compute capabilities (90 for 9.0) of the machine's GPUs, through libcuda if
 * there is one. Returns how many it wrote. */
size_t gpu_query(int *ccs, size_t capacity);

#endif /* GPU_H */
