#include "util/error.h"

#include <lauxlib.h>
#include <stdarg.h>
#include <string.h>

static const char key; /* its address marks failures */

_Noreturn void fail_lua(lua_State *L, const char *message)
{
    lua_createtable(L, 0, 2);
    lua_pushstring(L, message);
    lua_setfield(L, -2, "message");
    lua_pushboolean(L, 1);
    lua_rawsetp(L, -2, &key);
    lua_error(L);
    __builtin_unreachable();
}

_Noreturn void fail(struct session *session, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int size = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *message = arena_alloc(&session->arena, (size_t)(size > 0 ? size : 0) + 1);
    va_start(args, format);
    vsnprintf(message, (size_t)size + 1, format, args);
    va_end(args);
    fail_lua(session->L, message);
}

const char *failure_message(lua_State *L, int index)
{
    if (!lua_istable(L, index))
        return NULL;
    index = lua_absindex(L, index);
    lua_rawgetp(L, index, &key);
    bool ours = lua_toboolean(L, -1) != 0;
    lua_pop(L, 1);
    if (!ours)
        return NULL;
    lua_getfield(L, index, "message");
    const char *message = lua_tostring(L, -1);
    lua_pop(L, 1); /* the table keeps it */
    return message;
}

/* Lua shortens chunk names beyond 59 characters to "...tail". */
static const char *with_whole_path(struct session *session, const char *message, const char *path)
{
    if (strncmp(message, "...", 3) != 0)
        return message;
    const char *colon = strchr(message, ':');
    if (colon == NULL)
        return message;
    size_t tail = (size_t)(colon - message) - 3, whole = strlen(path);
    if (tail > whole || memcmp(path + whole - tail, message + 3, tail) != 0)
        return message;
    return arena_printf(&session->arena, "%s%s", path, colon);
}

/* The prelude's own mistakes are not the user's. */
static bool is_internal(const char *message)
{
    return strncmp(message, "(spec):", 7) == 0 || strncmp(message, "(sandbox):", 10) == 0;
}

static struct session *session_of(lua_State *L)
{
    return *(struct session **)lua_getextraspace(L);
}

static void count_hook(lua_State *L, lua_Debug *ar)
{
    struct session *session = session_of(L);
    enum { STEP = 100000 };
    if (session->instructions > STEP) {
        session->instructions -= STEP;
        return;
    }
    /* The loop may catch this error: from here on every instruction raises it,
     * so that whoever catches it cannot go on. */
    session->instructions = 0;
    lua_sethook(L, count_hook, LUA_MASKCOUNT, 1);
    lua_getinfo(L, "Sl", ar);
    lua_pushfstring(L, "%s:%d: too many instructions: an endless loop?", ar->source + 1,
                    ar->currentline);
    lua_error(L);
}

/* Pushes "path:line: " of the innermost frame of the user's code; false if
 * there is none. */
static bool push_user_place(lua_State *L)
{
    lua_Debug ar;
    for (int level = 1; lua_getstack(L, level, &ar); level++) {
        lua_getinfo(L, "Sl", &ar);
        if (ar.currentline > 0 && ar.source[0] == '@') {
            lua_pushfstring(L, "%s:%d: ", ar.source + 1, ar.currentline);
            return true;
        }
    }
    return false;
}

static int keep_error(lua_State *L)
{
    if (failure_message(L, 1) != NULL)
        return 1;
    if (!lua_isstring(L, 1)) {
        if (!push_user_place(L))
            lua_pushliteral(L, "");
        lua_pushfstring(L, "%san error that is no text was raised: a %s", lua_tostring(L, -1),
                        luaL_typename(L, 1));
        return 1;
    }
    const char *message = lua_tostring(L, 1);
    if (!is_internal(message))
        return 1;
    /* Raised in a function of the sandbox: its caller is at fault. */
    if (push_user_place(L)) {
        const char *rest = strstr(message, ": ");
        lua_pushfstring(L, "%s%s", lua_tostring(L, -1), rest != NULL ? rest + 2 : message);
        return 1;
    }
    luaL_traceback(L, L, message, 1);
    return 1;
}

void call_user(struct session *session, int nargs, int nresults, const char *path,
               uint64_t instructions, const char *(*context)(struct session *session))
{
    lua_State *L = session->L;
    int handler = lua_gettop(L) - nargs;
    lua_pushcfunction(L, keep_error);
    lua_insert(L, handler);
    session->instructions = instructions;
    lua_sethook(L, count_hook, LUA_MASKCOUNT, 100000);
    int status = lua_pcall(L, nargs, nresults, handler);
    lua_sethook(L, NULL, 0, 0);
    lua_remove(L, handler);
    if (status == LUA_OK)
        return;
    if (status == LUA_ERRMEM)
        fail(session, "%s: its Lua code needs more memory than it may have", path);
    if (failure_message(L, -1) != NULL || is_internal(lua_tostring(L, -1)))
        lua_error(L);
    const char *message = with_whole_path(session, lua_tostring(L, -1), path);
    const char *about = context != NULL ? context(session) : "";
    fail(session, "%s%s%s%s", message, about[0] != '\0' ? " (for " : "", about,
         about[0] != '\0' ? ")" : "");
}

void load_user(struct session *session, const char *text, size_t size, const char *path)
{
    lua_State *L = session->L;
    const char *chunk = arena_printf(&session->arena, "@%s", path);
    if (luaL_loadbufferx(L, text, size, chunk, "t") == LUA_OK)
        return;
    const char *message = lua_tostring(L, -1);
    message = with_whole_path(session, message != NULL ? message : "", path);
    bool cited = strncmp(message, path, strlen(path)) == 0;
    fail(session, "%s%s%s", cited ? "" : path, cited ? "" : ": ", message);
}
