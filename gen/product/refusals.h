/*
 * Variants that this toolkit's compiler refuses and the one that made a catalog did not.
 */
#ifndef REFUSALS_H
#define REFUSALS_H

#include "product/catalog.h"

/* The catalog that says what is known to be refused: of --expect, else the one that belongs to the
 * program. False where there is none. */
bool refusals_known(struct session *session, struct catalog *catalog);
/* Fails where more variants than --allow-refused are refused that the catalog has, of the same
 * source. */
void refusals_check(struct session *session, const char *toolkit);

#endif /* REFUSALS_H */
