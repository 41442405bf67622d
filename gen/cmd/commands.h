/*
 * The commands: each takes a session whose options are parsed and returns the
 * exit status. Bad input is a failure (error.h).
 */
#ifndef COMMANDS_H
#define COMMANDS_H

#include "spec/model.h"
#include "compile/pool.h"
#include "product/pack.h"

int command_list(struct session *session);
int command_plan(struct session *session);
int command_expand(struct session *session);
int command_build(struct session *session);
int command_check(struct session *session);
int command_why(struct session *session);
int command_try(struct session *session);
int command_rekey(struct session *session);
int command_table(struct session *session);

/* What plan, build and why share: variants expanded, the toolkit found, and
 * what the cache holds taken. */
struct context {
    struct toolkit toolkit;
    struct pool pool;
    size_t cached;
};

/* Reads the tables of --tables, makes the choice of --winners and expands what is left. */
void context_expand(struct session *session, struct pack_tables *tables);
void context_open(struct session *session, struct context *context);
/* Fails where a source was rejected; raises the signal that interrupted. */
void context_check(struct session *session, struct context *context);

#endif /* COMMANDS_H */
