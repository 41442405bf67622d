/*
 * Preloaded into attngen: counts the compiles and makes some of them go wrong.
 *
 *     FAULT_COUNT=FILE   a byte is appended for each compile
 *     FAULT_CRASH=TEXT   a source that holds TEXT kills the process
 *     FAULT_KILL=TEXT    ... has it killed, as a system without memory does
 *     FAULT_HANG=TEXT    ... never ends
 *     FAULT_SLOW=MS      every compile takes that much longer
 *     FAULT_PID=N        what getpid() says, as in two containers at once
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <nvrtc.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static char *last_source;

pid_t getpid(void)
{
    pid_t (*real)(void);
    const char *number = getenv("FAULT_PID");
    void *address = dlsym(RTLD_NEXT, "getpid");
    memcpy(&real, &address, sizeof real);
    return number != NULL ? (pid_t)strtol(number, NULL, 10) : real();
}

static void *next(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

static int holds(const char *variable)
{
    const char *text = getenv(variable);
    return text != NULL && last_source != NULL && strstr(last_source, text) != NULL;
}

nvrtcResult nvrtcCreateProgram(nvrtcProgram *program, const char *source, const char *name,
                               int num_headers, const char *const *headers,
                               const char *const *names)
{
    nvrtcResult (*real)(nvrtcProgram *, const char *, const char *, int, const char *const *,
                        const char *const *);
    void *address = next("nvrtcCreateProgram");
    memcpy(&real, &address, sizeof real);
    free(last_source);
    last_source = strdup(source);
    return real(program, source, name, num_headers, headers, names);
}

nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int num_options, const char *const *options)
{
    nvrtcResult (*real)(nvrtcProgram, int, const char *const *);
    void *address = next("nvrtcCompileProgram");
    memcpy(&real, &address, sizeof real);
    const char *count = getenv("FAULT_COUNT"), *slow = getenv("FAULT_SLOW");
    if (count != NULL && strstr(last_source, "warm_up") == NULL) {
        int fd = open(count, O_WRONLY | O_CREAT | O_APPEND, 0666);
        if (fd >= 0 && write(fd, ".", 1) == 1)
            close(fd);
    }
    if (slow != NULL) {
        long ms = strtol(slow, NULL, 10);
        struct timespec pause = {ms / 1000, ms % 1000 * 1000000};
        nanosleep(&pause, NULL);
    }
    if (holds("FAULT_CRASH"))
        abort();
    if (holds("FAULT_KILL"))
        raise(SIGKILL);
    while (holds("FAULT_HANG"))
        sleep(1);
    return real(program, num_options, options);
}
