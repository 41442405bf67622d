/*
 * The commands: each takes a session whose options are parsed and returns the
 * exit status. Bad input is a failure (failure.h).
 */
#ifndef COMMANDS_H
#define COMMANDS_H

#include "spec/model.h"
#include "compile/pool.h"

int command_list(struct session *session);
int command_plan(struct session *session);
int command_expand(struct session *session);
int command_build(struct session *session);
int command_check(struct session *session);
int command_why(struct session *session);

/* What plan, build and why share: variants expanded, the toolkit found, and
 * what the cache holds taken. */
struct workshop {
    struct toolkit toolkit;
    struct pool pool;
    size_t cached;
};

void workshop_open(struct session *session, struct workshop *shop);
/* Fails where a source was rejected; raises the signal that interrupted. */
void workshop_check(struct session *session, struct workshop *shop);

#endif /* COMMANDS_H */
