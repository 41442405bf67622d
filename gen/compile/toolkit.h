/*
 * The CUDA toolkit: which one it is and where its programs are.
 */
#ifndef TOOLKIT_H
#define TOOLKIT_H

#include "util/arena.h"

struct toolkit {
    int version;            /* 13.0 as 1300 */
    const char *name;       /* "13.0" */
    const char *identity;   /* tells builds of the same version apart, for cache keys */
    const char *fatbinary;  /* path of the program; NULL if it is not found */
    const char *looked_for; /* where it was looked for, for messages */
};

void toolkit_find(struct arena *arena, struct toolkit *toolkit);

#endif /* TOOLKIT_H */
