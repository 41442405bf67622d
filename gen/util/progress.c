#include "util/progress.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

double progress_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void show(struct progress *progress, double now)
{
    double left = 0;
    if (progress->done > 0)
        left = (now - progress->start) / (double)progress->done *
               (double)(progress->total - progress->done);
    fprintf(stderr, "%scompiled %zu of %zu, %.0f s left, slowest %.2f s %s%s",
            progress->terminal ? "\r\033[K" : "", progress->done, progress->total, left,
            progress->slowest, progress->slowest_name, progress->terminal ? "" : "\n");
    fflush(stderr);
    progress->shown = now;
    progress->open = progress->terminal;
}

void progress_begin(struct progress *progress, size_t total, bool quiet)
{
    double now = progress_clock();
    *progress = (struct progress){.total = total,
                                  .start = now,
                                  .shown = now,
                                  .slowest_name = "",
                                  .terminal = isatty(STDERR_FILENO) != 0,
                                  .quiet = quiet};
}

void progress_step(struct progress *progress, const char *name, double seconds)
{
    progress->done++;
    if (seconds > progress->slowest) {
        progress->slowest = seconds;
        progress->slowest_name = name;
    }
    double now = progress_clock(), every = progress->terminal ? 0.1 : 5.0;
    if (!progress->quiet && now - progress->shown >= every)
        show(progress, now);
}

void progress_end(struct progress *progress)
{
    if (progress->open) {
        show(progress, progress_clock());
        fputc('\n', stderr);
    }
    progress->open = false;
}
