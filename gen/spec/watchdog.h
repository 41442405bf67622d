/*
 * What the user's Lua code may take: instructions, counted by a hook, and CPU
 * time, which a timer of the process measures. The hook ends code of Lua; where
 * a function of C does not return, the timer ends the program.
 */
#ifndef WATCHDOG_H
#define WATCHDOG_H

#include "spec/model.h"

/* CPU-seconds for one call into the user's code unless ATTNGEN_LUA_SECONDS says otherwise. */
enum { WATCHDOG_SECONDS = 60 };

/* Reads ATTNGEN_LUA_SECONDS and makes the timer. Mistakes are failures. */
void watchdog_open(struct session *session);
/* From here on the code of `path` runs. */
void watchdog_start(struct session *session, const char *path, uint64_t instructions);
void watchdog_stop(struct session *session);

/* For Lua: guard(name, function) returns a function that does the same and whose
 * place in the user's code is known when it does not return. */
int watchdog_guard(lua_State *L);

/* Pushes "path:line: " of the innermost frame of the user's code; false if
 * there is none. */
bool watchdog_push_place(lua_State *L);

#endif /* WATCHDOG_H */
