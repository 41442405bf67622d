#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[PATH_MAX];

const char *scratch(void)
{
    if (folder[0] == '\0') {
        const char *tmp = getenv("TMPDIR");
        snprintf(folder, sizeof folder, "%s/attngen-test-XXXXXX", tmp != NULL ? tmp : "/tmp");
        if (mkdtemp(folder) == NULL)
            fail_msg("%s: %s", folder, strerror(errno));
    }
    return folder;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

int remove_scratch(void **state)
{
    (void)state;
    if (folder[0] != '\0')
        nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    return 0;
}

const char *in_scratch(const char *format, ...)
{
    static char paths[8][2 * PATH_MAX];
    static int next;
    char *path = paths[next++ % 8], name[PATH_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    snprintf(path, sizeof paths[0], "%s/%s", scratch(), name);
    return path;
}

void put_bytes(const char *path, const void *data, size_t size)
{
    char part[PATH_MAX];
    for (const char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        snprintf(part, sizeof part, "%.*s", (int)(slash - path), path);
        mkdir(part, 0777);
    }
    FILE *file = fopen(path, "wb");
    if (file == NULL)
        fail_msg("%s: %s", path, strerror(errno));
    assert_int_equal(fwrite(data, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

void put(const char *name, const char *text)
{
    put_bytes(in_scratch("%s", name), text, strlen(text));
}

char *get(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        fail_msg("%s: %s", path, strerror(errno));
    fseek(file, 0, SEEK_END);
    long end = ftell(file);
    rewind(file);
    char *data = calloc((size_t)end + 1, 1);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, (size_t)end, file), end);
    fclose(file);
    if (size != NULL)
        *size = (size_t)end;
    return data;
}

bool same_files(const char *a, const char *b)
{
    size_t m, n;
    char *x = get(a, &m), *y = get(b, &n);
    bool same = m == n && memcmp(x, y, m) == 0;
    free(x);
    free(y);
    return same;
}

static const char *copy_to;

static int copy_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)ftw;
    if (type != FTW_F)
        return 0;
    size_t size;
    char *data = get(path, &size);
    put_bytes(in_scratch("%s/%s", copy_to, path + strlen(FIXTURES) + 1), data, size);
    free(data);
    return 0;
}

const char *copy_fixtures(const char *name)
{
    copy_to = name;
    assert_int_equal(nftw(FIXTURES, copy_one, 16, FTW_PHYS), 0);
    return in_scratch("%s", name);
}

void edit(const char *name, const char *old, const char *new)
{
    const char *path = in_scratch("%s", name);
    char *text = get(path, NULL), *at = strstr(text, old);
    if (at == NULL)
        fail_msg("'%s' is not in %s", old, path);
    size_t size = strlen(text) + strlen(new) + 1;
    char *changed = calloc(size, 1);
    snprintf(changed, size, "%.*s%s%s", (int)(at - text), text, new, at + strlen(old));
    put(name, changed);
    free(changed);
    free(text);
}

static int files;

static int count_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)path, (void)st, (void)ftw;
    files += type == FTW_F;
    return 0;
}

int count_files(const char *path)
{
    files = 0;
    nftw(path, count_one, 16, FTW_PHYS);
    return files;
}

/* ---- running the program ------------------------------------------------------------ */

static struct {
    char name[64];
    char value[PATH_MAX];
    bool set;
} variables[16];

void environment(const char *name, const char *value)
{
    size_t i = 0;
    while (variables[i].name[0] != '\0' && strcmp(variables[i].name, name) != 0)
        i++;
    assert_true(i < sizeof variables / sizeof variables[0] - 1);
    snprintf(variables[i].name, sizeof variables[i].name, "%s", name);
    snprintf(variables[i].value, sizeof variables[i].value, "%s", value != NULL ? value : "");
    variables[i].set = value != NULL;
}

static void redirect(const char *file, int to)
{
    int fd = open(file, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (fd < 0 || dup2(fd, to) < 0)
        _exit(126);
    close(fd);
}

static const char *program = ATTNGEN;

void use_program(const char *path)
{
    program = path != NULL ? path : ATTNGEN;
}

static _Noreturn void child(char **argv)
{
    setenv("ATTNGEN_CACHE", in_scratch("cache"), 1);
    setenv("GEN_LIBCUDA", "/nonexistent/libcuda.so", 1);
    for (size_t i = 0; variables[i].name[0] != '\0'; i++)
        if (variables[i].set)
            setenv(variables[i].name, variables[i].value, 1);
        else
            unsetenv(variables[i].name);
    if (chdir(scratch()) != 0)
        _exit(126);
    redirect(in_scratch("out.%ld", (long)getpid()), STDOUT_FILENO);
    redirect(in_scratch("err.%ld", (long)getpid()), STDERR_FILENO);
    alarm(200); /* a hang is a failure, not a hang of the tests */
    execv(program, argv);
    _exit(127);
}

static int start(const char *first, va_list args)
{
    char *argv[64] = {(char[]){"attngen"}};
    int argc = 1;
    for (const char *word = first; word != NULL && argc < 63; word = va_arg(args, const char *)) {
        argv[argc] = strdup(word);
        argc++;
    }
    scratch();
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0)
        child(argv);
    for (int i = 1; i < argc; i++)
        free(argv[i]);
    assert_true(pid > 0);
    return pid;
}

int attngen_start(const char *first, ...)
{
    va_list args;
    va_start(args, first);
    int pid = start(first, args);
    va_end(args);
    return pid;
}

struct outcome attngen_wait(int process)
{
    struct outcome outcome = {0};
    int status;
    while (waitpid(process, &status, 0) < 0)
        assert_int_equal(errno, EINTR);
    outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    const char *out = in_scratch("out.%d", process), *err = in_scratch("err.%d", process);
    outcome.out = get(out, NULL);
    outcome.err = get(err, NULL);
    unlink(out);
    unlink(err);
    return outcome;
}

struct outcome attngen(const char *first, ...)
{
    va_list args;
    va_start(args, first);
    int pid = start(first, args);
    va_end(args);
    return attngen_wait(pid);
}

void outcome_free(struct outcome *outcome)
{
    free(outcome->out);
    free(outcome->err);
    *outcome = (struct outcome){0};
}

/* ---- tabular output -------------------------------------------------------------------- */

static const char *skip_fields(const char *line, int count)
{
    while (count-- > 0) {
        line += strcspn(line, "\t\n");
        if (*line != '\t')
            return NULL;
        line++;
    }
    return line;
}

char *cell(const char *tsv, int row, const char *column)
{
    size_t size = strlen(column);
    int index = 0;
    for (const char *p = tsv;; index++) {
        p = skip_fields(tsv, index);
        if (p == NULL)
            fail_msg("no column %s in:\n%s", column, tsv);
        if (strncmp(p, column, size) == 0 && (p[size] == '\t' || p[size] == '\n'))
            break;
    }
    const char *line = tsv;
    for (int i = 0; i <= row; i++) {
        line = strchr(line, '\n');
        assert_non_null(line);
        line++;
    }
    const char *field = skip_fields(line, index);
    assert_non_null(field);
    return strndup(field, strcspn(field, "\t\n"));
}

int count_rows(const char *tsv)
{
    int rows = -1;
    for (; *tsv != '\0'; tsv++)
        rows += *tsv == '\n';
    return rows;
}
