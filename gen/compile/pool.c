#include "compile/pool.h"

#include "compile/cache.h"
#include "compile/compile.h"
#include "util/error.h"
#include "util/file.h"
#include "util/progress.h"
#include "compile/ptxas_log.h"
#include "compile/scratch_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_JOBS = 256, MAX_LOG = 1 << 16, MEMORY_PER_JOB_MIB = 600 };

struct worker {
    pid_t pid;    /* 0: not running */
    int to, from; /* pipes */
    long job;     /* index, or -1 */
    double deadline;
};

/* From a worker; `log_size` bytes of text follow. */
struct message {
    long job; /* -1: started up */
    int status;
    unsigned log_size;
    double seconds;
};

/* The run of one pool_run(). */
struct crew {
    struct session *session;
    struct pool *pool;
    struct variant **variants;
    size_t count, next; /* the first that no worker has yet */
    size_t num_workers, running, starts;
    struct worker workers[MAX_JOBS];
    struct scratch_dir place;
    const char *failure; /* of the machine: ends the run */
    bool stop, hurried;
    struct progress progress;
};

static volatile sig_atomic_t caught;

static void on_signal(int number)
{
    caught = number;
}

/* ---- in a worker ------------------------------------------------------------------ */

static bool read_whole(int fd, void *data, size_t size)
{
    char *p = data;
    while (size > 0) {
        ssize_t n = read(fd, p, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        p += n;
        size -= (size_t)n;
    }
    return true;
}

static bool send_result(int to, long job, struct compile_result *result)
{
    struct message message = {
        .job = job, .status = (int)result->status, .seconds = result->seconds};
    if (result->status != COMPILE_OK)
        message.log_size = (unsigned)(result->log.size < MAX_LOG ? result->log.size : MAX_LOG);
    return file_write_all(to, &message, sizeof message) &&
           file_write_all(to, result->log.data, message.log_size);
}

static void keep_result(const struct pool *pool, const struct variant *variant,
                        struct compile_result *result)
{
    struct cache_entry entry = {.seconds = result->seconds,
                                .log = result->log.data,
                                .log_size = result->log.size,
                                .image = result->image.data,
                                .image_size = result->image.size,
                                .code_digest = result->code_digest};
    if (result->status != COMPILE_OK || cache_put(pool->cache, variant->key, &entry))
        return;
    result->status = COMPILE_FAILED;
    result->log.size = 0;
    text_printf(&result->log, "cannot write to the cache folder %s: %s", pool->cache,
                strerror(errno));
}

static _Noreturn void work(const struct crew *crew, int from, int to)
{
    const struct pool *pool = crew->pool;
    struct arena arena = {0};
    struct compile_result result = {0};
    long job;
    bool warm = false;
    /* The compiler's memory comes back to it for the next variant. */
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    mallopt(M_TOP_PAD, 64 << 20);
    while (read_whole(from, &job, sizeof job)) {
        const struct variant *variant = crew->variants[job];
        const char *options = compile_options(&arena, variant->arch, pool->line_info);
        if (!warm) {
            struct message message = {.job = -1, .seconds = compile_warm_up(options)};
            warm = true;
            if (!file_write_all(to, &message, sizeof message))
                break;
        }
        compile_variant(variant, pool->toolkit, options, &result);
        keep_result(pool, variant, &result);
        if (!send_result(to, job, &result))
            break;
        arena_free(&arena);
    }
    _exit(0);
}

/* ---- workers as the parent sees them ------------------------------------------------ */

static void child(struct crew *crew, size_t index, const char *folder, int from, int to)
{
    /* The terminal's interrupt goes to every process of the group: a worker
     * finishes what it does, so that it is in the cache. */
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_DFL);
    signal(SIGHUP, SIG_IGN);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (size_t i = 0; i < crew->num_workers; i++) {
        if (i == index || crew->workers[i].pid == 0)
            continue;
        close(crew->workers[i].to);
        close(crew->workers[i].from);
    }
    if (chdir(folder) != 0)
        _exit(1);
    work(crew, from, to);
}

static bool start_worker(struct crew *crew, size_t index)
{
    /* Never one that another worker had: what a killed worker started, such as
     * fatbinary, may still write there. */
    const char *folder =
        arena_printf(&crew->session->arena, "%s/%zu", crew->place.folder, crew->starts++);
    int down[2], up[2];
    if (!file_make_folder(folder)) {
        crew->failure =
            arena_printf(&crew->session->arena, "%s: cannot make it: %s", folder, strerror(errno));
        return false;
    }
    if (pipe2(down, O_CLOEXEC) != 0 || pipe2(up, O_CLOEXEC) != 0) {
        crew->failure = "cannot make a pipe";
        return false;
    }
    fflush(NULL);
    pid_t pid = fork();
    if (pid < 0) {
        crew->failure = "cannot start a process";
        return false;
    }
    if (pid == 0) {
        close(down[1]);
        close(up[0]);
        child(crew, index, folder, down[0], up[1]);
    }
    close(down[0]);
    close(up[1]);
    crew->workers[index] = (struct worker){.pid = pid, .to = down[1], .from = up[0], .job = -1};
    crew->running++;
    return true;
}

static int reap(struct crew *crew, struct worker *worker)
{
    int status = 0;
    close(worker->to);
    close(worker->from);
    while (waitpid(worker->pid, &status, 0) < 0 && errno == EINTR)
        continue;
    worker->pid = 0;
    crew->running--;
    return status;
}

static void refuse(struct crew *crew, struct worker *worker, const char *reason)
{
    struct variant *variant = crew->variants[worker->job];
    variant->state = VARIANT_REFUSED;
    variant->reason = reason;
    variant->lost = true;
    crew->pool->crashed++;
    progress_step(&crew->progress, variant->name, 0);
}

/* Gives the worker its next job, or lets it go. */
static void give_task(struct crew *crew, struct worker *worker)
{
    worker->job = -1;
    if (crew->stop || crew->next == crew->count) {
        reap(crew, worker);
        return;
    }
    worker->job = (long)crew->next++;
    worker->deadline = progress_clock() + crew->pool->time_limit;
    /* A worker that has died shows as the end of its pipe. */
    (void)file_write_all(worker->to, &worker->job, sizeof worker->job);
}

static void restart(struct crew *crew, size_t index)
{
    if (crew->stop || crew->next == crew->count)
        return;
    if (start_worker(crew, index))
        give_task(crew, &crew->workers[index]);
    else
        crew->stop = true;
}

static void worker_died(struct crew *crew, size_t index)
{
    struct arena *arena = &crew->session->arena;
    struct worker *worker = &crew->workers[index];
    int status = reap(crew, worker);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) {
        /* No fault of the variant's, so it must not be missing from the product. */
        crew->failure = "a compiler process was killed, as the system does when memory is short; "
                        "a lower --jobs needs less, and what was compiled is kept";
        crew->stop = true;
        return;
    }
    if (WIFSIGNALED(status))
        refuse(crew, worker,
               arena_printf(arena, "the compiler crashed: %s", strsignal(WTERMSIG(status))));
    else
        refuse(crew, worker,
               arena_printf(arena, "the compiler ended with status %d", WEXITSTATUS(status)));
    restart(crew, index);
}

static void worker_hangs(struct crew *crew, size_t index)
{
    struct worker *worker = &crew->workers[index];
    kill(worker->pid, SIGKILL);
    reap(crew, worker);
    refuse(crew, worker,
           arena_printf(&crew->session->arena, "the compiler ran for more than %g s",
                        crew->pool->time_limit));
    restart(crew, index);
}

/* ---- results --------------------------------------------------------------------------- */

static void judge(struct session *session, struct variant *variant, const struct cache_entry *entry)
{
    variant->seconds = entry->seconds;
    variant->image = entry->image;
    variant->image_size = entry->image_size;
    variant->code_digest = entry->code_digest;
    variant->warnings = ptxas_log_messages(&session->arena, entry->log);
    ptxas_log_parse(entry->log, &variant->report);
    if (variant->report.entries != 1 || strcmp(variant->report.entry, variant->symbol) != 0) {
        variant->state = VARIANT_BROKEN;
        variant->reason = arena_printf(
            &session->arena,
            "%s: the template makes %d kernels%s%s; allowed: exactly one, named "
            "${NAME} and extern \"C\"",
            variant->template->path, variant->report.entries,
            variant->report.entries > 0 ? ", the first named " : "", variant->report.entry);
        return;
    }
    variant->reason = ptxas_log_gate(&session->arena, variant, &variant->report);
    variant->state = variant->reason != NULL ? VARIANT_REFUSED : VARIANT_BUILT;
}

bool pool_from_cache(struct session *session, const char *cache, struct variant *variant)
{
    struct cache_entry entry;
    enum cache_found found = cache_get(&session->arena, cache, variant->key, &entry);
    if (found == CACHE_CORRUPT)
        fprintf(stderr, "attngen: a damaged cache entry of %s was removed\n", variant->name);
    if (found != CACHE_HIT)
        return false;
    judge(session, variant, &entry);
    return true;
}

static void take_result(struct crew *crew, const struct message *message, char *log)
{
    struct variant *variant = crew->variants[message->job];
    struct session *session = crew->session;
    crew->pool->cpu_seconds += message->seconds;
    progress_step(&crew->progress, variant->name, message->seconds);
    if (message->status == COMPILE_FAILED) {
        crew->failure = log;
    } else if (message->status == COMPILE_REJECTED) {
        variant->state = VARIANT_BROKEN;
        variant->reason = ptxas_log_messages(&session->arena, log);
        if (variant->reason == NULL)
            variant->reason = "the compiler rejects it without a word";
    } else if (pool_from_cache(session, crew->pool->cache, variant)) {
        crew->pool->compiled++;
    } else {
        crew->failure = arena_printf(&session->arena, "%s: an entry vanished from the cache folder",
                                     crew->pool->cache);
    }
    if (crew->failure != NULL || variant->state == VARIANT_BROKEN)
        crew->stop = true;
}

static void read_message(struct crew *crew, size_t index)
{
    struct worker *worker = &crew->workers[index];
    struct message message;
    bool ok = read_whole(worker->from, &message, sizeof message);
    if (ok && message.job < 0) {
        crew->pool->cpu_seconds += message.seconds;
        return;
    }
    char *log = NULL;
    if (ok && message.job == worker->job && message.log_size <= MAX_LOG) {
        log = arena_alloc(&crew->session->arena, message.log_size + 1);
        ok = read_whole(worker->from, log, message.log_size);
    } else {
        ok = false;
    }
    if (!ok) {
        worker_died(crew, index);
        return;
    }
    take_result(crew, &message, log);
    give_task(crew, worker);
}

/* ---- the run ---------------------------------------------------------------------------- */

/* After an interrupt: no new jobs, and those at work get a moment to finish. */
static void hurry(struct crew *crew, double now)
{
    crew->stop = crew->hurried = true;
    for (size_t i = 0; i < crew->num_workers; i++)
        if (crew->workers[i].deadline > now + 3)
            crew->workers[i].deadline = now + 3;
}

static void wait_for_workers(struct crew *crew)
{
    struct pollfd fds[MAX_JOBS];
    double now = progress_clock(), wait = 0.2;
    for (size_t i = 0; i < crew->num_workers; i++) {
        const struct worker *worker = &crew->workers[i];
        fds[i] = (struct pollfd){.fd = worker->pid != 0 ? worker->from : -1, .events = POLLIN};
        if (worker->pid != 0 && worker->deadline - now < wait)
            wait = worker->deadline > now ? worker->deadline - now : 0;
    }
    int ready = poll(fds, (nfds_t)crew->num_workers, (int)(1000 * wait) + 1);
    now = progress_clock();
    if (caught != 0 && !crew->hurried)
        hurry(crew, now);
    for (size_t i = 0; i < crew->num_workers; i++) {
        if (crew->workers[i].pid == 0)
            continue;
        if (ready > 0 && fds[i].revents != 0)
            read_message(crew, i);
        else if (crew->workers[i].deadline < now)
            worker_hangs(crew, i);
    }
}

/* Containers are often given a part of the CPUs. */
static long own_cpus(void)
{
    cpu_set_t cpus;
    if (sched_getaffinity(0, sizeof cpus, &cpus) == 0)
        return CPU_COUNT(&cpus);
    return sysconf(_SC_NPROCESSORS_ONLN);
}

/* A machine out of memory kills compilers, so memory counts too. */
int pool_default_jobs(void)
{
    long jobs = own_cpus(), kib = 0;
    static const char available[] = "MemAvailable:";
    FILE *file = fopen("/proc/meminfo", "re");
    char line[128];
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, available, sizeof available - 1) == 0) {
            kib = strtol(line + sizeof available - 1, NULL, 10);
            break;
        }
    if (file != NULL)
        fclose(file);
    if (kib > 0 && kib / 1024 / MEMORY_PER_JOB_MIB < jobs)
        jobs = kib / 1024 / MEMORY_PER_JOB_MIB;
    return jobs < 1 ? 1 : jobs > MAX_JOBS ? MAX_JOBS : (int)jobs;
}

static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};
enum { NUM_SIGNALS = sizeof signals / sizeof signals[0] };

static void catch_signals(struct sigaction old[NUM_SIGNALS])
{
    caught = 0;
    for (int i = 0; i < NUM_SIGNALS; i++) {
        struct sigaction action = {0};
        action.sa_handler = signals[i] == SIGPIPE ? SIG_IGN : on_signal;
        sigaction(signals[i], &action, &old[i]);
    }
}

void pool_run(struct session *session, struct pool *pool, struct variant **variants, size_t count)
{
    if (count == 0)
        return;
    struct sigaction old[NUM_SIGNALS];
    struct crew *crew = arena_alloc(&session->arena, sizeof *crew);
    crew->session = session;
    crew->pool = pool;
    crew->variants = variants;
    crew->count = count;
    crew->num_workers = (size_t)(pool->jobs > 0 ? pool->jobs : pool_default_jobs());
    if (crew->num_workers > MAX_JOBS)
        crew->num_workers = MAX_JOBS;
    if (crew->num_workers > count)
        crew->num_workers = count;
    scratch_dir_clean(&session->arena, pool->cache);
    if (!scratch_dir_open(&session->arena, pool->cache, &crew->place))
        fail(session, "%s: cannot make a folder in it: %s", pool->cache, strerror(errno));
    catch_signals(old);
    progress_begin(&crew->progress, count, pool->quiet);
    for (size_t i = 0; i < crew->num_workers; i++)
        restart(crew, i);
    while (crew->running > 0)
        wait_for_workers(crew);
    progress_end(&crew->progress);
    scratch_dir_close(&session->arena, &crew->place);
    for (int i = 0; i < NUM_SIGNALS; i++)
        sigaction(signals[i], &old[i], NULL);
    pool->interrupted = caught;
    if (crew->failure != NULL)
        fail(session, "%s", crew->failure);
}
