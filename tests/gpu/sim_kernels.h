/*
 * The kernels that the simulated libcuda computes itself, la_decode and the in-place copy, with the
 * time that they would take and what SIM_FAULT has them do amiss.
 */
#ifndef SIM_KERNELS_H
#define SIM_KERNELS_H

#include "sim_emul.h"

struct sim_kernel {
    char symbol[256];
    const struct emul_kernel *emulated; /* or NULL */
    struct sim_kernel *next;
};
struct sim_launch {
    const struct sim_kernel *kernel;
    unsigned grid[3], threads[3], shared;
    unsigned char params[SIM_PARAM_BYTES];
};
/* Does SIM_FAULT name this kind for the symbol? */
int sim_fault(const char *symbol, const char *kind);
/* Microseconds on so many multiprocessors: a start, and the bytes at a share of the peak that
 * depends on the symbol, with some noise. */
double sim_model_us(const char *symbol, double bytes, unsigned sms);
/* Copies the parameters of a launch into it. */
void sim_params(struct sim_launch *launch, void **params);
/* Runs a kernel that is not emulated (not `compute`: is one of many alike, whose result is known).
 * Returns the microseconds it takes. */
double sim_run(const struct sim_launch *launch, int compute, unsigned sms);

#endif /* SIM_KERNELS_H */
