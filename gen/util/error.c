#include "util/error.h"

#include "spec/watchdog.h"

#include <lauxlib.h>
#include <stdarg.h>
#include <string.h>

/* Failures are full userdata that hold their message: code that catches one
 * can neither change it nor give it a metatable. */
static const char type_name[] = "failure";

static void mark_failure(lua_State *L)
{
    if (luaL_newmetatable(L, type_name)) {
        lua_pushboolean(L, 0);
        lua_setfield(L, -2, "__metatable");
    }
    lua_setmetatable(L, -2);
}

_Noreturn void fail_lua(lua_State *L, const char *message)
{
    size_t size = strlen(message) + 1;
    memcpy(lua_newuserdatauv(L, size, 0), message, size);
    mark_failure(L);
    lua_error(L);
    __builtin_unreachable();
}

_Noreturn void fail(struct session *session, const char *format, ...)
{
    lua_State *L = session->L;
    va_list args;
    va_start(args, format);
    int size = vsnprintf(NULL, 0, format, args);
    va_end(args);
    size_t capacity = (size_t)(size > 0 ? size : 0) + 1;
    char *message = lua_newuserdatauv(L, capacity, 0);
    message[0] = '\0';
    va_start(args, format);
    vsnprintf(message, capacity, format, args);
    va_end(args);
    mark_failure(L);
    lua_error(L);
    __builtin_unreachable();
}

const char *failure_message(lua_State *L, int index)
{
    return luaL_testudata(L, index, type_name);
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
    return strncmp(message, "(spec):", 7) == 0 || strncmp(message, "(family):", 9) == 0 ||
           strncmp(message, "(sandbox):", 10) == 0;
}

/* Whether the message begins with "file:line: ". */
static bool is_cited(const char *message)
{
    const char *colon = strchr(message, ':');
    if (colon == NULL || memchr(message, '\n', (size_t)(colon - message)) != NULL)
        return false;
    size_t digits = strspn(colon + 1, "0123456789");
    return digits > 0 && colon[1 + digits] == ':';
}

static int keep_error(lua_State *L)
{
    if (failure_message(L, 1) != NULL)
        return 1;
    if (!lua_isstring(L, 1)) {
        if (!watchdog_push_place(L))
            lua_pushliteral(L, "");
        lua_pushfstring(L, "%san error that is no text was raised: a %s", lua_tostring(L, -1),
                        luaL_typename(L, 1));
        return 1;
    }
    const char *message = lua_tostring(L, 1);
    bool internal = is_internal(message);
    if (!internal && is_cited(message))
        return 1;
    /* Raised in a function of the sandbox or of C: its caller is at fault. */
    if (watchdog_push_place(L)) {
        const char *rest = internal ? strstr(message, ": ") : NULL;
        lua_pushfstring(L, "%s%s", lua_tostring(L, -1), rest != NULL ? rest + 2 : message);
        return 1;
    }
    if (internal)
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
    watchdog_start(session, path, instructions);
    int status = lua_pcall(L, nargs, nresults, handler);
    watchdog_stop(session);
    lua_remove(L, handler);
    if (status == LUA_OK)
        return;
    if (status == LUA_ERRMEM)
        fail(session, "%s: its Lua code needs more memory than it may have", path);
    if (failure_message(L, -1) != NULL)
        lua_error(L);
    /* After an error in the handler there may be any value. */
    const char *message = lua_tostring(L, -1);
    if (message == NULL || is_internal(message))
        lua_error(L);
    message = with_whole_path(session, message, path);
    const char *about = context != NULL ? context(session) : "";
    bool cited = is_cited(message);
    fail(session, "%s%s%s%s%s%s", cited ? "" : path, cited ? "" : ": ", message,
         about[0] != '\0' ? " (for " : "", about, about[0] != '\0' ? ")" : "");
}

static const char overflow[] = "C stack overflow";

const char *syntax_message(struct session *session)
{
    const char *message = lua_tostring(session->L, -1);
    if (message == NULL)
        return "";
    /* The handler of main() adds a traceback of the parser's own. */
    const char *traceback = strstr(message, "\nstack traceback:");
    size_t size = traceback != NULL ? (size_t)(traceback - message) : strlen(message);
    return arena_copy(&session->arena, message, size);
}

static bool is_too_deep(struct session *session, const char *text, size_t size)
{
    bool deep = luaL_loadbufferx(session->L, text, size, "=x", "t") != LUA_OK &&
                strcmp(syntax_message(session), overflow) == 0;
    lua_pop(session->L, 1);
    return deep;
}

/* Where brackets and blocks are too deep the parser says no line: it is that in which the
 * shortest beginning of the text ends that is too deep already. */
static int overflow_line(struct session *session, const char *text, size_t size)
{
    size_t least = 0, most = size;
    while (least + 1 < most) {
        size_t half = least + (most - least) / 2;
        if (is_too_deep(session, text, half))
            most = half;
        else
            least = half;
    }
    int line = 1;
    for (size_t i = 0; i + 1 < most; i++)
        line += text[i] == '\n';
    return line;
}

void load_user(struct session *session, const char *text, size_t size, const char *path)
{
    lua_State *L = session->L;
    const char *chunk = arena_printf(&session->arena, "@%s", path);
    if (luaL_loadbufferx(L, text, size, chunk, "t") == LUA_OK)
        return;
    const char *message = with_whole_path(session, syntax_message(session), path);
    if (strcmp(message, overflow) == 0)
        fail(session, "%s:%d: brackets or blocks are nested too deeply (%s)", path,
             overflow_line(session, text, size), message);
    bool cited = strncmp(message, path, strlen(path)) == 0;
    fail(session, "%s%s%s", cited ? "" : path, cited ? "" : ": ", message);
}
