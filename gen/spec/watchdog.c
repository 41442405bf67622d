#include "spec/watchdog.h"

#include "util/error.h"

#include <errno.h>
#include <lauxlib.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* A function of C that runs on for so long after the limit never reaches the hook. */
enum { GRACE_SECONDS = 2, STEP = 100000 };

/* There is one Lua state, and a signal handler has no argument of its own. */
static struct {
    lua_State *L;
    timer_t timer;
    long seconds;
    volatile sig_atomic_t expired;
    char message[1024]; /* what the handler prints when the code does not return */
} watch;

static struct session *session_of(lua_State *L)
{
    return *(struct session **)lua_getextraspace(L);
}

bool watchdog_push_place(lua_State *L)
{
    lua_Debug ar;
    for (int level = 0; lua_getstack(L, level, &ar); level++) {
        lua_getinfo(L, "Sl", &ar);
        if (ar.currentline > 0 && ar.source[0] == '@') {
            lua_pushfstring(L, "%s:%d: ", ar.source + 1, ar.currentline);
            return true;
        }
    }
    return false;
}

/* ---- the hook ------------------------------------------------------------------------ */

static void count_hook(lua_State *L, lua_Debug *ar)
{
    struct session *session = session_of(L);
    if (watch.expired == 0 && session->instructions > STEP) {
        session->instructions -= STEP;
        return;
    }
    /* The code may catch this error: from here on every instruction raises it,
     * so that whoever catches it cannot go on. */
    session->instructions = 0;
    lua_sethook(L, count_hook, LUA_MASKCOUNT, 1);
    lua_getinfo(L, "Sl", ar);
    if (watch.expired != 0)
        lua_pushfstring(L, "%s:%d: it runs for more than %d s of CPU time: an endless loop?",
                        ar->source + 1, ar->currentline, (int)watch.seconds);
    else
        lua_pushfstring(L, "%s:%d: too many instructions: an endless loop?", ar->source + 1,
                        ar->currentline);
    lua_error(L);
}

/* ---- the timer ----------------------------------------------------------------------- */

static void on_timer(int number)
{
    (void)number;
    if (watch.L == NULL)
        return;
    if (watch.expired == 0) {
        watch.expired = 1;
        lua_sethook(watch.L, count_hook, LUA_MASKCOUNT, 1); /* may be called from a handler */
        return;
    }
    ssize_t written = write(STDERR_FILENO, watch.message, strlen(watch.message));
    (void)written;
    _exit(1);
}

static void set_timer(long seconds, long interval)
{
    struct itimerspec spec = {.it_value = {.tv_sec = seconds}, .it_interval = {.tv_sec = interval}};
    timer_settime(watch.timer, 0, &spec, NULL);
}

static void set_message(const char *place)
{
    snprintf(watch.message, sizeof watch.message,
             "attngen: %sit runs for more than %ld s of CPU time: an endless loop?\n", place,
             watch.seconds);
}

void watchdog_open(struct session *session)
{
    const char *value = getenv("ATTNGEN_LUA_SECONDS");
    char *end;
    watch.seconds = WATCHDOG_SECONDS;
    if (value != NULL && value[0] != '\0') {
        watch.seconds = strtol(value, &end, 10);
        if (*end != '\0' || watch.seconds < 1 || watch.seconds > 1000000)
            fail(session, "ATTNGEN_LUA_SECONDS: '%s' is no number; allowed: 1 to 1000000", value);
    }
    struct sigaction action = {.sa_handler = on_timer, .sa_flags = SA_RESTART};
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGVTALRM};
    if (sigaction(SIGVTALRM, &action, NULL) != 0 ||
        timer_create(CLOCK_PROCESS_CPUTIME_ID, &event, &watch.timer) != 0)
        fail(session, "cannot make a timer for the templates' Lua code: %s", strerror(errno));
}

void watchdog_start(struct session *session, const char *path, uint64_t instructions)
{
    char place[512];
    snprintf(place, sizeof place, "%s: ", path);
    set_message(place);
    session->instructions = instructions;
    watch.expired = 0;
    watch.L = session->L;
    lua_sethook(session->L, count_hook, LUA_MASKCOUNT, STEP);
    set_timer(watch.seconds, GRACE_SECONDS);
}

void watchdog_stop(struct session *session)
{
    watch.L = NULL;
    set_timer(0, 0);
    lua_sethook(session->L, NULL, 0, 0);
}

/* ---- functions that may take long ------------------------------------------------------ */

/* Upvalues: the function, its name. */
static int guarded(lua_State *L)
{
    int arguments = lua_gettop(L);
    const char *place = watchdog_push_place(L) ? lua_tostring(L, -1) : "";
    char text[600];
    snprintf(text, sizeof text, "%s%s(): ", place, lua_tostring(L, lua_upvalueindex(2)));
    set_message(text);
    lua_settop(L, arguments);
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    lua_call(L, arguments, LUA_MULTRET);
    return lua_gettop(L);
}

int watchdog_guard(lua_State *L)
{
    luaL_checkstring(L, 1);
    luaL_checktype(L, 2, LUA_TFUNCTION);
    lua_settop(L, 2);
    lua_insert(L, 1);
    lua_pushcclosure(L, guarded, 2);
    return 1;
}
