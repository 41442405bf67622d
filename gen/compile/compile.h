/*
 * One variant through NVRTC and fatbinary, in a worker process.
 */
#ifndef COMPILE_H
#define COMPILE_H

#include "spec/model.h"
#include "compile/toolkit.h"

enum compile_status {
    COMPILE_OK,
    COMPILE_REJECTED, /* by the compiler: the log says why */
    COMPILE_FAILED    /* by this machine: `log` says how */
};

struct compile_result {
    enum compile_status status;
    struct text log;
    struct text image;    /* a fatbin of one image */
    uint64_t code_digest; /* code_digest() of what is in it */
    double seconds;       /* CPU time of this process and its children */
};

/* The options for a target, separated by blanks; part of every digest. */
const char *compile_options(struct arena *arena, const struct arch *arch, bool line_info);

/* Writes its temporary files into the current folder. */
void compile_variant(const struct variant *variant, const struct toolkit *toolkit,
                     const char *options, struct compile_result *result);
/* Takes the compiler through its slow first run. Returns the CPU time spent. */
double compile_warm_up(const char *options);

#endif /* COMPILE_H */
