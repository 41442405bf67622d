/*
 * What the compiler's log says about a kernel, and the gates it must pass.
 */
#ifndef PTXAS_LOG_H
#define PTXAS_LOG_H

#include "spec/model.h"

/* Reads ptxas's lines into *report. */
void ptxas_log_parse(const char *log, struct report *report);
/* The log's other lines (warnings), or NULL if there are none. Lines cite
 * files below templates/ as path:line. */
char *ptxas_log_messages(struct arena *arena, const char *log);
/* NULL, or the sentence that says why the variant must not be used. */
const char *ptxas_log_gate(struct arena *arena, const struct variant *variant,
                           const struct report *report);

#endif /* PTXAS_LOG_H */
