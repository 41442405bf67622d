#define _GNU_SOURCE
#include "common/util.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char *program = "bench";

/* What is printed must arrive, or the status says so. */
static void check_output(void)
{
    if (fflush(stdout) == 0 && ferror(stdout) == 0)
        return;
    fprintf(stderr, "attngen-%s: standard output: %s\n", program, strerror(errno));
    _exit(1);
}

void util_set_program(const char *name)
{
    program = name;
    if (atexit(check_output) != 0)
        die(2, "host memory is exhausted");
}

void die(int status, const char *format, ...)
{
    va_list args;
    fflush(stdout);
    fprintf(stderr, "attngen-%s: ", program);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    exit(status);
}

void warn(const char *format, ...)
{
    va_list args;
    fflush(stdout);
    fprintf(stderr, "attngen-%s: ", program);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
}

void *xmalloc(size_t size)
{
    return xrealloc(NULL, size);
}

void *xrealloc(void *old, size_t size)
{
    void *p = realloc(old, size ? size : 1);
    if (!p)
        die(2, "host memory is exhausted (%zu bytes requested)", size);
    return p;
}

char *xstrdup(const char *text)
{
    size_t size = strlen(text) + 1;
    return memcpy(xmalloc(size), text, size);
}

char *xasprintf(const char *format, ...)
{
    va_list args;
    char *text;
    va_start(args, format);
    int length = vasprintf(&text, format, args);
    va_end(args);
    if (length < 0)
        die(2, "host memory is exhausted");
    return text;
}

/* ---- statistics -------------------------------------------------------- */

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double stats_quantile(double *values, size_t count, double p)
{
    if (count == 0)
        return 0;
    qsort(values, count, sizeof *values, compare_doubles);
    double at = p * (double)(count - 1);
    size_t low = (size_t)at;
    size_t high = low + 1 < count ? low + 1 : low;
    return values[low] + (at - (double)low) * (values[high] - values[low]);
}

double stats_median(double *values, size_t count)
{
    return stats_quantile(values, count, 0.5);
}

double stats_spread(double *values, size_t count)
{
    double median = stats_median(values, count);
    if (median <= 0)
        return 0;
    return (stats_quantile(values, count, 0.75) - stats_quantile(values, count, 0.25)) / median;
}

double stats_geomean(const double *values, size_t count)
{
    double sum = 0;
    if (count == 0)
        return 0;
    for (size_t i = 0; i < count; i++)
        sum += log(values[i]);
    return exp(sum / (double)count);
}

/* ---- random numbers ---------------------------------------------------- */

void rng_seed(struct rng *rng, uint64_t seed)
{
    rng->state = seed;
}

/* A Weyl sequence through a finalizer of two multiplications. */
uint64_t rng_next(struct rng *rng)
{
    uint64_t x = rng->state += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

double rng_uniform(struct rng *rng)
{
    return (double)(rng_next(rng) >> 11) * 0x1p-53;
}

double rng_normal(struct rng *rng)
{
    double radius = sqrt(-2 * log(1 - rng_uniform(rng)));
    return radius * cos(6.283185307179586 * rng_uniform(rng));
}

uint32_t rng_below(struct rng *rng, uint32_t limit)
{
    return (uint32_t)(((rng_next(rng) >> 32) * limit) >> 32);
}

/* ---- clock and text ---------------------------------------------------- */

uint64_t clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void date_text(char text[16])
{
    time_t now = time(NULL);
    struct tm tm;
    gmtime_r(&now, &tm);
    if (strftime(text, 16, "%Y-%m-%d", &tm) == 0)
        text[0] = '\0';
}

bool glob_match(const char *pattern, const char *text)
{
    return !pattern || fnmatch(pattern, text, 0) == 0;
}

bool glob_match_any(const struct option_list *patterns, const char *text)
{
    for (int i = 0; i < patterns->count; i++)
        if (glob_match(patterns->item[i], text))
            return true;
    return patterns->count == 0;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

char *text_trim(char *text)
{
    while (is_blank(*text))
        text++;
    size_t length = strlen(text);
    while (length > 0 && is_blank(text[length - 1]))
        text[--length] = '\0';
    return text;
}

char *text_cut(char *text, char mark)
{
    char *at = strchr(text, mark);
    if (at)
        *at = '\0';
    return text;
}

void text_add(struct text *text, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (length < 0)
        die(2, "bad format in text_add: %s", format);
    size_t need = text->length + (size_t)length + 1;
    if (need > text->capacity) {
        text->capacity = need * 2;
        text->data = xrealloc(text->data, text->capacity);
    }
    vsnprintf(text->data + text->length, (size_t)length + 1, format, again);
    va_end(again);
    text->length += (size_t)length;
}

void text_free(struct text *text)
{
    free(text->data);
    *text = (struct text){0};
}

/* ---- files ------------------------------------------------------------- */

char *file_read(const char *path, size_t *size)
{
    struct text text = {0};
    FILE *f = fopen(path, "rb");
    if (!f)
        return NULL;
    char block[4096];
    size_t n;
    text.data = xmalloc(1);
    text.capacity = 1;
    while ((n = fread(block, 1, sizeof block, f)) > 0) {
        if (text.length + n + 1 > text.capacity) {
            text.capacity = 2 * (text.length + n + 1);
            text.data = xrealloc(text.data, text.capacity);
        }
        memcpy(text.data + text.length, block, n);
        text.length += n;
    }
    int bad = ferror(f);
    fclose(f);
    if (bad) {
        free(text.data);
        errno = EIO;
        return NULL;
    }
    text.data[text.length] = '\0';
    if (size)
        *size = text.length;
    return text.data;
}

static void make_folders(const char *path)
{
    char *copy = xstrdup(path);
    for (char *p = copy + 1; *p; p++) {
        if (*p == '/') {
            *p = '\0';
            (void)mkdir(copy, 0777); /* the open that follows reports what matters */
            *p = '/';
        }
    }
    free(copy);
}

bool file_write(const char *path, const char *data, size_t size)
{
    make_folders(path);
    char *temporary = xasprintf("%s.tmp.%ld", path, (long)getpid());
    FILE *f = fopen(temporary, "wb");
    bool ok = f != NULL;
    int error = errno;
    if (ok) {
        ok = fwrite(data, 1, size, f) == size && fflush(f) == 0 && fsync(fileno(f)) == 0;
        error = errno;
        if (fclose(f) != 0 && ok) {
            error = errno;
            ok = false;
        }
        if (ok && rename(temporary, path) != 0) {
            error = errno;
            ok = false;
        }
        if (!ok)
            unlink(temporary);
    }
    free(temporary);
    errno = error;
    return ok;
}

char *data_path(const char *name)
{
    char exe[4096];
    ssize_t length = readlink("/proc/self/exe", exe, sizeof exe - 1);
    exe[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(exe, '/');
    if (slash)
        *slash = '\0';
    /* Installed; in the build tree; beside a copied executable; in the current
     * folder of a copied source tree. */
    char *candidates[] = {
        xasprintf("%s/../share/attngen/bench/%s", exe, name),
        xasprintf("%s/../../share/attngen/bench/%s", exe, name),
        xasprintf("%s/%s", exe, name),
        xasprintf("%s/../bench/%s", exe, name),
        xasprintf("%s/../../bench/%s", exe, name),
        xasprintf("bench/%s", name),
    };
    char *found = NULL;
    for (size_t i = 0; i < sizeof candidates / sizeof *candidates; i++) {
        if (!found && access(candidates[i], R_OK) == 0)
            found = candidates[i];
        else
            free(candidates[i]);
    }
    return found;
}
