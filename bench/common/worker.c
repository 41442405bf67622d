#define _GNU_SOURCE
#include "common/worker.h"
#include "common/util.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

void *worker_share(size_t size)
{
    void *memory =
        mmap(NULL, size ? size : 1, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        die(2, "mmap: %s", strerror(errno));
    return memory;
}

void worker_try(struct worker *worker, const char *what)
{
    snprintf(worker->trying, sizeof worker->trying, "%s", what);
    worker->ticks++;
}

const char *worker_reason(const struct worker *worker, const char *what)
{
    for (uint32_t i = 0; i < worker->num_failures; i++)
        if (strcmp(worker->failure[i].what, what) == 0)
            return worker->failure[i].reason;
    return NULL;
}

/* Waits for the child; true if it had to be killed for silence. */
static bool wait_for(pid_t child, const struct worker *worker, unsigned patience_s, int *status)
{
    uint64_t seen = worker->ticks, since = clock_ns();
    bool killed = false;
    for (;;) {
        pid_t done = waitpid(child, status, WNOHANG);
        if (done == child)
            return killed;
        if (done < 0 && errno != EINTR)
            die(2, "waitpid: %s", strerror(errno));
        if (worker->ticks != seen) {
            seen = worker->ticks;
            since = clock_ns();
        } else if (!killed && clock_ns() - since > 1000000000ull * patience_s) {
            killed = kill(child, SIGKILL) == 0;
        }
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
}

/* Notes the failure; false if there is nothing to blame or no room. */
static bool note(struct worker *worker, bool silent, int status)
{
    if (!worker->trying[0] || worker->num_failures == WORKER_MAX_FAILURES)
        return false;
    struct worker_failure *f = &worker->failure[worker->num_failures++];
    snprintf(f->what, sizeof f->what, "%s", worker->trying);
    if (silent)
        snprintf(f->reason, sizeof f->reason, "no answer: the kernel hangs");
    else if (WIFSIGNALED(status))
        snprintf(f->reason, sizeof f->reason, "the process died of signal %d", WTERMSIG(status));
    else
        snprintf(f->reason, sizeof f->reason, "the GPU's context was lost (an illegal access)");
    worker->trying[0] = '\0';
    return true;
}

int worker_run(int (*body)(struct worker *worker, void *context), void *context,
               unsigned patience_s, bool in_process)
{
    struct worker *worker = worker_share(sizeof *worker);
    if (in_process) {
        int result = body(worker, context);
        munmap(worker, sizeof *worker);
        return result == WORKER_LOST ? 1 : result;
    }
    for (;;) {
        int status = 0;
        fflush(NULL);
        pid_t child = fork();
        if (child < 0)
            die(2, "fork: %s", strerror(errno));
        if (child == 0) {
            int result = body(worker, context);
            fflush(NULL);
            _exit(result);
        }
        bool silent = wait_for(child, worker, patience_s, &status);
        if (WIFEXITED(status) && WEXITSTATUS(status) != WORKER_LOST) {
            munmap(worker, sizeof *worker);
            return WEXITSTATUS(status);
        }
        if (!note(worker, silent, status)) {
            warn("the worker process died%s", worker->num_failures == WORKER_MAX_FAILURES
                                                  ? " once more: giving up"
                                                  : " without trying a variant");
            munmap(worker, sizeof *worker);
            return 2;
        }
    }
}
