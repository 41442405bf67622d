#include "cmd/try.h"

#include "options.h"
#include "spec/gpu.h"
#include "util/error.h"
#include "util/file.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { MAX_WORDS = 128 };

/* ---- programs ------------------------------------------------------------------------------ */

int try_program(struct trial *trial, const char *const *words, const char *output)
{
    posix_spawn_file_actions_t actions;
    char *argv[MAX_WORDS];
    size_t count = 0;
    pid_t pid;
    int status = 0;
    for (; words[count] != NULL && count + 1 < MAX_WORDS; count++)
        argv[count] = arena_string(&trial->session->arena, words[count]);
    argv[count] = NULL;
    fflush(stdout);
    if (posix_spawn_file_actions_init(&actions) != 0)
        return 128;
    int error = 0;
    if (output != NULL)
        error = posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, output,
                                                 O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (error == 0)
        error = posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0) {
        fprintf(stderr, "attngen: %s: cannot run it: %s\n", argv[0], strerror(error));
        return 128;
    }
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return 128;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

const char *try_own_path(struct trial *trial)
{
    char path[4096];
    ssize_t size = readlink("/proc/self/exe", path, sizeof path);
    if (size <= 0 || size == sizeof path)
        fail(trial->session, "try: cannot tell this program's file: %s", strerror(errno));
    return arena_copy(&trial->session->arena, path, (size_t)size);
}

/* A command line under construction. */
struct line {
    const char *words[MAX_WORDS];
    size_t count;
};

static void add(struct trial *trial, struct line *line, const char *word)
{
    if (line->count + 1 >= MAX_WORDS)
        fail(trial->session, "try: more than %d words for %s", MAX_WORDS - 1, line->words[0]);
    line->words[line->count++] = word;
}

static void add_each(struct trial *trial, struct line *line, const char *option,
                     const char *const *items, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (option != NULL)
            add(trial, line, option);
        add(trial, line, items[i]);
    }
}

/* The families of the variants, comma-separated. */
static const char *families_of(struct session *session)
{
    const char *list = "", *last = "";
    for (size_t i = 0; i < session->num_variants; i++) {
        const char *name = session->variants[i]->family->name;
        if (strcmp(name, last) != 0)
            list = arena_printf(&session->arena, "%s%s%s", list, list[0] != '\0' ? "," : "", name);
        last = name;
    }
    return list;
}

/* ---- on a GPU ------------------------------------------------------------------------------- */

static const char *build_product(struct trial *trial, const char *templates, const char *name)
{
    struct session *session = trial->session;
    const char *product = arena_printf(&session->arena, "%s/%s", trial->folder, name);
    struct line line = {{NULL}, 0};
    const char *const fixed[] = {try_own_path(trial), "build",   "-q",        "--full",
                                 "--templates",       templates, "--targets", trial->targets,
                                 "--output",          product};
    add_each(trial, &line, NULL, fixed, sizeof fixed / sizeof fixed[0]);
    add_each(trial, &line, "--only", trial->globs, trial->num_globs);
    return try_program(trial, line.words, NULL) == 0 ? product : NULL;
}

static const char *sub_program(struct trial *trial, const char *name)
{
    struct arena *arena = &trial->session->arena;
    const char *path =
        arena_printf(arena, "%s/../libexec/attngen/attngen-%s", file_program_folder(arena), name);
    if (access(path, X_OK) != 0)
        fail(trial->session, "try: %s is not there; it comes with ATTNGEN_BENCH=ON", path);
    return path;
}

static int run_on_gpu(struct trial *trial)
{
    struct session *session = trial->session;
    const char *now = build_product(trial, session->templates, "now.fatbin");
    const char *was = NULL;
    if (trial->both)
        was = build_product(trial, trial->old_templates, "was.fatbin");
    if (now == NULL)
        return 1;
    struct line verify = {{NULL}, 0};
    add(trial, &verify, sub_program(trial, "verify"));
    add(trial, &verify, "--product");
    add(trial, &verify, now);
    add_each(trial, &verify, "--only", trial->globs, trial->num_globs);
    int status = try_program(trial, verify.words, NULL);
    if (status != 0)
        return status;
    struct line versus = {{NULL}, 0};
    add(trial, &versus, sub_program(trial, "versus"));
    add(trial, &versus, "--product");
    add(trial, &versus, now);
    if (was != NULL) {
        add(trial, &versus, "--against");
        add(trial, &versus, was);
    }
    add_each(trial, &versus, "--only", trial->globs, trial->num_globs);
    add_each(trial, &versus, NULL, trial->problem, trial->num_problem);
    return try_program(trial, versus.words, NULL);
}

/* ---- without one ------------------------------------------------------------------------------
 */

/* The problem as a verify list of its own. */
static const char *write_list(struct trial *trial)
{
    struct arena *arena = &trial->session->arena;
    const char *path = arena_printf(arena, "%s/problem.txt", trial->folder), *text = "";
    for (size_t i = 0; i < trial->num_problem; i++)
        text = arena_printf(arena, "%s%s%s", text, i > 0 ? " " : "", trial->problem[i]);
    text = arena_printf(arena, "%s\n", text);
    if (!file_write(path, text, strlen(text)))
        fail(trial->session, "%s: cannot write it: %s", path, strerror(errno));
    return path;
}

static int run_emulation(struct trial *trial)
{
    struct session *session = trial->session;
    struct arena *arena = &session->arena;
    const char *build = arena_printf(arena, "%s/..", file_program_folder(arena));
    char *real = realpath(session->templates, NULL); /* past the build tree's link */
    const char *templates = arena_string(arena, real != NULL ? real : session->templates);
    free(real);
    const char *script = arena_printf(arena, "%s/../tests/emul/emulate.sh", templates);
    const char *engine = arena_printf(arena, "%s/lib/libsim_cuda.so", build);
    const struct arch *arch = session->targets[0];
    if (session->num_targets > 1 || arch->kind == GEN_PACK_PTX || access(script, X_OK) != 0 ||
        access(engine, R_OK) != 0) {
        fprintf(stderr, "attngen: no GPU, so nothing is run; the emulation takes a build tree with "
                        "its tests, the templates of its sources and one target of machine code\n");
        return 0;
    }
    struct line line = {{NULL}, 0};
    const char *const fixed[] = {script,
                                 "-b",
                                 build,
                                 "-o",
                                 arena_printf(arena, "%s/emul", build),
                                 "-T",
                                 templates,
                                 "-t",
                                 arch->name,
                                 "-c",
                                 arena_printf(arena, "%d", arch->cc),
                                 "-f",
                                 families_of(session)};
    add_each(trial, &line, NULL, fixed, sizeof fixed / sizeof fixed[0]);
    if (trial->num_problem > 0) {
        add(trial, &line, "-l");
        add(trial, &line, write_list(trial));
    }
    add_each(trial, &line, NULL, trial->globs, trial->num_globs);
    fprintf(stderr, "attngen: no GPU: the emulation runs this tree's variants\n");
    int status = try_program(trial, line.words, NULL);
    return status == 77 ? 0 : status; /* no C++ compiler */
}

int try_run(struct trial *trial)
{
    int ccs[16];
    struct session *session = trial->session;
    size_t count = gpu_query(ccs, 16);
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < session->num_targets; j++)
            if (arch_for_gpu(ccs[i]) == session->targets[j])
                return run_on_gpu(trial);
    return run_emulation(trial);
}
