/*
 * A folder of the cache that one build alone works in. Its name is drawn by lot
 * and a lock says that the build lives: numbers of processes say neither where
 * containers or machines share a cache.
 */
#ifndef SCRATCH_DIR_H
#define SCRATCH_DIR_H

#include "util/arena.h"

#include <stdbool.h>

struct scratch_dir {
    const char *folder;
    int lock; /* held until this process and those it forks have ended */
};

/* False with errno set. */
bool scratch_dir_open(struct arena *arena, const char *cache, struct scratch_dir *place);
/* Removes it with all that is in it. */
void scratch_dir_close(struct arena *arena, struct scratch_dir *place);
/* Removes the scratch folders of builds that have ended without. */
void scratch_dir_clean(struct arena *arena, const char *cache);

#endif /* SCRATCH_DIR_H */
