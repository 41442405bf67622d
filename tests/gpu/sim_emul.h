/* Between the simulated libcuda and the engine that runs real kernels on the CPU (tests/emul). */
#ifndef SIM_EMUL_H
#define SIM_EMUL_H

#include <stdbool.h>
#include <stddef.h>

#define SIM_PARAM_BYTES 1280

struct emul_kernel;

/* The kernel in SIM_KERNELS, NULL without that variable; false with a message where it should be
 * there and is not. */
bool sim_emul_find(const char *symbol, const struct emul_kernel **kernel, char *message,
                   size_t capacity);

/* Copies a launch's parameters to `store`, SIM_PARAM_BYTES. */
void sim_emul_params(const struct emul_kernel *kernel, void **params, unsigned char *store);

bool sim_emul_run(const struct emul_kernel *kernel, const unsigned *grid, const unsigned *threads,
                  unsigned shared, const unsigned char *store, char *message, size_t capacity);

/* cuTensorMapEncodeTiled(). */
bool sim_emul_map(void *map, int dtype, unsigned rank, void *address,
                  const unsigned long long *dims, const unsigned long long *strides,
                  const unsigned *box, const unsigned *element_strides, int interleave, int swizzle,
                  int fill);

#endif
