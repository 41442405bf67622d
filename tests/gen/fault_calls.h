/* Makes the `number`th call from now on of the function `name` fail, and with `later` all that
 * follow; NULL: none. */
#ifndef FAULT_CALLS_H
#define FAULT_CALLS_H

#include <stdbool.h>

void fault_set(const char *name, long number, bool later);

#endif /* FAULT_CALLS_H */
