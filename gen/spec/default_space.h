/*
 * The default space: of a family that lists them, the variants that some tuning
 * table picks, and fallbacks. What else is legal is the tuner's, behind --full.
 */
#ifndef DEFAULT_SPACE_H
#define DEFAULT_SPACE_H

#include "spec/model.h"

/* The file in a family's folder: a variant a line, its name without the target
 * and a blank in that place. A family without it has all its variants in the
 * default space. scripts/default_space.py writes it. */
#define DEFAULT_SPACE_FILE "default_space.txt"

/* Sets `extra` of the variants outside of the default space. */
void default_space_mark(struct session *session);
/* Takes those away. */
void default_space_keep(struct session *session);

#endif /* DEFAULT_SPACE_H */
