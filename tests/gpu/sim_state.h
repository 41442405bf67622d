/*
 * What the files of the simulated libcuda share: the device's state.
 */
#ifndef SIM_STATE_H
#define SIM_STATE_H

#include <cuda.h>

#define EXPORT __attribute__((visibility("default")))
#define NUM_SMS 132

struct stream {
    int capturing;
    struct graph *graph;
};

extern unsigned sim_sms;     /* of the context */
extern _Atomic int sim_lost; /* the context is gone */
extern struct stream sim_default_stream;
extern __thread CUcontext sim_current;
extern char sim_message[1024]; /* what went wrong in an emulated kernel; errors quote it */

#endif /* SIM_STATE_H */
