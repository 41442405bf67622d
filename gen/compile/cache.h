/*
 * The cache of compiled variants: one file an entry, named by a hash of all that
 * decides its content. Entries appear whole or not at all and prove themselves
 * when read, so any number of builds may share a cache and any may be killed.
 */
#ifndef CACHE_H
#define CACHE_H

#include "util/arena.h"
#include "util/hash.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

struct cache_entry {
    double seconds; /* of CPU time it took */
    const char *log;
    size_t log_size;
    const void *image;
    size_t image_size;
    uint64_t code_digest; /* digest of the machine code in the image */
};

/* A part of every key, so that programs of either side of a change of the format
 * may share a cache. */
#define CACHE_FORMAT "attngen cache 2"

enum cache_found { CACHE_MISS, CACHE_HIT, CACHE_CORRUPT };

/* A damaged entry is removed; one that is found counts as used now. */
enum cache_found cache_get(struct arena *arena, const char *folder,
                           const unsigned char key[HASH_BYTES], struct cache_entry *entry);
/* False with errno set. */
bool cache_put(const char *folder, const unsigned char key[HASH_BYTES],
               const struct cache_entry *entry);

/* Drops the entries that were used longest ago until the others hold at most
 * `limit` bytes, but none that was used since `start` or a little before it.
 * Returns how many it dropped. */
size_t cache_prune(struct arena *arena, const char *folder, uint64_t limit, time_t start);

#endif /* CACHE_H */
