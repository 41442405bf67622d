/*
 * A folder of the cache that one build alone works in. Its name is drawn by lot
 * and a lock says that the build lives: numbers of processes say neither where
 * containers or machines share a cache.
 */
#ifndef WORKPLACE_H
#define WORKPLACE_H

#include "util/arena.h"

#include <stdbool.h>

struct workplace {
    const char *folder;
    int lock; /* held until this process and those it forks have ended */
};

/* False with errno set. */
bool workplace_open(struct arena *arena, const char *cache, struct workplace *place);
/* Removes it with all that is in it. */
void workplace_close(struct arena *arena, struct workplace *place);
/* Removes the workplaces of builds that have ended without. */
void workplace_clean(struct arena *arena, const char *cache);

#endif /* WORKPLACE_H */
