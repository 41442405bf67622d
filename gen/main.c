/*
 * attngen-generator, which front/ runs as attngen: expands kernel templates, compiles every
 * specialization and packs them. main() makes the Lua state and calls run() protected; every error
 * ends up here.
 */
#include "cmd/commands.h"
#include "util/error.h"
#include "util/file.h"
#include "options.h"
#include "version.h"

#include <errno.h>
#include <fcntl.h>
#include <lauxlib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Templates that eat memory must not take the machine with them. */
static const size_t lua_memory_limit = (size_t)512 << 20;

struct start {
    struct session session;
    struct options options;
    int argc;
    char **argv;
    size_t lua_memory;
    int status;
};

static void *allocate(void *user, void *old, size_t old_size, size_t size)
{
    struct start *start = user;
    size_t before = old != NULL ? old_size : 0;
    if (size == 0) {
        free(old);
        start->lua_memory -= before;
        return NULL;
    }
    if (size > before && size - before > lua_memory_limit - start->lua_memory)
        return NULL;
    void *data = realloc(old, size);
    if (data != NULL)
        start->lua_memory += size - before;
    return data;
}

static void usage(FILE *out)
{
    fprintf(out, "usage: attngen COMMAND [ARGUMENT...]\n"
                 "       attngen COMMAND --help\n"
                 "       attngen --version\n\n");
    fflush(out);
}

/* Sub-programs, as installed and as built: attngen-tune, attngen-bench, ... */
static const char *const program_folders[] = {"/../bin", "/../libexec/attngen"};
enum { NUM_FOLDERS = sizeof program_folders / sizeof program_folders[0] };

static void print_programs(struct arena *arena)
{
    for (int i = 0; i < NUM_FOLDERS; i++) {
        size_t count = 0;
        char **names = file_list(
            arena, arena_printf(arena, "%s%s", file_program_folder(arena), program_folders[i]),
            &count);
        for (size_t j = 0; names != NULL && j < count; j++)
            if (strncmp(names[j], "attngen-", 8) == 0 && strcmp(names[j] + 8, "generator") != 0)
                printf("  %-8s attngen %s --help says more\n", names[j] + 8, names[j] + 8);
    }
}

static void print_help(struct arena *arena)
{
    usage(stdout);
    options_overview();
    print_programs(arena);
}

static int run_command(struct session *session, enum command command)
{
    switch (command) {
    case COMMAND_LIST:
        return command_list(session);
    case COMMAND_PLAN:
        return command_plan(session);
    case COMMAND_EXPAND:
        return command_expand(session);
    case COMMAND_BUILD:
        return command_build(session);
    case COMMAND_CHECK:
        return command_check(session);
    case COMMAND_WHY:
        return command_why(session);
    case COMMAND_TRY:
        return command_try(session);
    case COMMAND_REKEY:
        return command_rekey(session);
    case COMMAND_TABLE:
        return command_table(session);
    }
    return 2;
}

static int dispatch(struct start *start)
{
    struct session *session = &start->session;
    struct arena *arena = &session->arena;
    if (start->argc < 2) {
        usage(stderr);
        fail(session, "no command given; allowed: %s", options_commands(arena));
    }
    char **argv = start->argv + 1;
    int argc = start->argc - 1;
    if (strcmp(argv[0], "--version") == 0) {
        printf("attngen %s\n", ATTNGEN_VERSION);
        return 0;
    }
    bool help = strcmp(argv[0], "help") == 0;
    if ((help && argc == 1) || strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-h") == 0) {
        print_help(arena);
        return 0;
    }
    const char *name = help ? argv[1] : argv[0];
    enum command command = options_command(name);
    if (command == 0)
        fail(
            session,
            "unknown command '%s'; allowed: %s, and the programs attngen-<command> beside this one "
            "or in ../libexec/attngen",
            name, options_commands(arena));
    if (!help)
        options_parse(session, &start->options, argc, argv);
    if (help || start->options.help) {
        options_help(command);
        return 0;
    }
    return run_command(session, command);
}

static int run(lua_State *L)
{
    struct start *start = lua_touserdata(L, 1);
    lua_settop(L, 0);
    start->status = dispatch(start);
    return 0;
}

static int with_traceback(lua_State *L)
{
    if (failure_message(L, 1) == NULL) {
        const char *message = luaL_tolstring(L, 1, NULL);
        luaL_traceback(L, L, message, 1);
    }
    return 1;
}

static int report_error(struct start *start)
{
    lua_State *L = start->session.L;
    const char *message = failure_message(L, -1);
    if (message != NULL) {
        fprintf(stderr, "attngen: %s\n", message);
        return 1;
    }
    message = lua_tostring(L, -1);
    fprintf(stderr, "attngen: internal error: %s\n", message != NULL ? message : "no message");
    return 2;
}

/* Where one of them is closed, the next file opened would get its number and what is printed. A
 * descriptor for the other direction makes every use of it an error. */
static void open_standard_files(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
            (void)!open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

int main(int argc, char **argv)
{
    open_standard_files();
    struct start start = {.argc = argc, .argv = argv, .status = 2};
    lua_State *L = lua_newstate(allocate, &start);
    if (L == NULL) {
        fputs("attngen: out of memory\n", stderr);
        return 2;
    }
    start.session.L = L;
    start.session.options = &start.options;
    *(struct session **)lua_getextraspace(L) = &start.session;
    lua_pushcfunction(L, with_traceback);
    lua_pushcfunction(L, run);
    lua_pushlightuserdata(L, &start);
    if (lua_pcall(L, 1, 0, 1) != LUA_OK)
        start.status = report_error(&start);
    if (fflush(stdout) != 0 || ferror(stdout) != 0) {
        fprintf(stderr, "attngen: standard output: %s\n", strerror(errno));
        start.status = start.status != 0 ? start.status : 1;
    }
    lua_close(L);
    text_free(&start.session.output);
    arena_free(&start.session.arena);
    return start.status;
}
