/*
 * How errors travel: as Lua errors, up to the one protected call in main(). A
 * failure raised here is the user's to mend (exit status 1); any other Lua
 * error is a fault of the program (2).
 */
#ifndef ERROR_H
#define ERROR_H

#include "spec/model.h"

/* "file:line: what was asked, what was found, what is allowed" */
_Noreturn void fail(struct session *session, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
_Noreturn void fail_lua(lua_State *L, const char *message);
/* The message of a failure at `index`, or NULL if it is some other value. */
const char *failure_message(lua_State *L, int index);

/* Calls the function below `nargs` arguments, which runs the user's Lua code
 * from `path` for at most `instructions`. A Lua error in it becomes a failure
 * that cites the file and line; `context` (may be NULL) is what it was about. */
void call_user(struct session *session, int nargs, int nresults, const char *path,
               uint64_t instructions, const char *(*context)(struct session *session));

/* Loads text as a chunk that cites `path`. A syntax error is a failure. */
void load_user(struct session *session, const char *text, size_t size, const char *path);

/* The message of a load that failed, which is on the stack's top. */
const char *syntax_message(struct session *session);

#endif /* ERROR_H */
