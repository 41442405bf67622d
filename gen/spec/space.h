/*
 * From the command line to the variants at hand: families, targets, subsets,
 * sources and what the cache already holds.
 */
#ifndef SPACE_H
#define SPACE_H

#include "spec/model.h"
#include "options.h"
#include "compile/toolkit.h"

/* Fills session->families and ->targets. `all_by_default`: without --targets,
 * every target rather than the GPU's own. */
void space_open(struct session *session, bool all_by_default);
/* Enumerates the variants: those of the default space, but where --full, a table or
 * names that are spelled out ask for others. */
void space_enumerate(struct session *session);
/* Takes away what is outside of the default space, unless --full. */
void space_default(struct session *session);
/* Leaves the variants that --only and --from-table choose. `keep_fallbacks`
 * keeps the fallback of every required key that has one of them. */
void space_subset(struct session *session, bool keep_fallbacks);
/* Expands every variant and computes its digest. */
void space_expand(struct session *session);
/* Folder of the cache, absolute; made if it is missing. */
const char *space_cache(struct session *session);
/* The bytes that the cache may hold. */
uint64_t space_cache_limit(struct session *session);
/* Computes the keys of cache entries and takes what is there; returns how many. */
size_t space_look_up(struct session *session, const struct toolkit *toolkit, const char *cache);

#endif /* SPACE_H */
