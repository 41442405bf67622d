/*
 * Linked before libc by --wrap: makes one call of the generator fail.
 *
 *     FAULT_CALL=NAME   the function, as "write"
 *     FAULT_NTH=N       its Nth call fails, from 1
 *     FAULT_ON=1        and so does every later one
 *     FAULT_FILE=PATH   is made when a call has failed
 *
 * Calls of libraries are not counted: the linker sees the generator's alone.
 */
#include "fault_calls.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <dirent.h>

static const char *wanted;
static long nth;
static bool on;
static long count;

void fault_set(const char *name, long number, bool later)
{
    wanted = name;
    nth = number;
    on = later;
    count = 0;
}

static void read_environment(void)
{
    static bool done;
    if (done || wanted != NULL)
        return;
    done = true;
    wanted = getenv("FAULT_CALL");
    const char *number = getenv("FAULT_NTH");
    nth = number != NULL ? strtol(number, NULL, 10) : 1;
    on = getenv("FAULT_ON") != NULL;
}

int __real_open(const char *path, int flags, ...);
int __real_close(int fd);

static bool fails(const char *name)
{
    read_environment();
    if (wanted == NULL || strcmp(wanted, name) != 0)
        return false;
    count++;
    if (count < nth || (count > nth && !on))
        return false;
    const char *file = getenv("FAULT_FILE");
    if (file != NULL)
        __real_close(__real_open(file, O_WRONLY | O_CREAT, 0666));
    return true;
}

#define CALL(type, name, parameters, arguments, failed, error) \
    type __real_##name parameters;                             \
    type __wrap_##name parameters;                             \
    type __wrap_##name parameters                              \
    {                                                          \
        if (fails(#name)) {                                    \
            errno = error;                                     \
            return failed;                                     \
        }                                                      \
        return __real_##name arguments;                        \
    }

CALL(void *, malloc, (size_t size), (size), NULL, ENOMEM)
CALL(void *, calloc, (size_t n, size_t size), (n, size), NULL, ENOMEM)
CALL(void *, realloc, (void *old, size_t size), (old, size), NULL, ENOMEM)
CALL(ssize_t, read, (int fd, void *data, size_t size), (fd, data, size), -1, EIO)
CALL(int, fsync, (int fd), (fd), -1, EIO)
CALL(int, fstat, (int fd, struct stat *st), (fd, st), -1, EIO)
CALL(int, stat, (const char *path, struct stat *st), (path, st), -1, EIO)
CALL(int, access, (const char *path, int mode), (path, mode), -1, EIO)
CALL(int, mkdir, (const char *path, mode_t mode), (path, mode), -1, EIO)
CALL(char *, mkdtemp, (char *template), (template), NULL, EIO)
CALL(DIR *, opendir, (const char *path), (path), NULL, EIO)
CALL(struct dirent *, readdir, (DIR * dir), (dir), NULL, EIO)
CALL(char *, realpath, (const char *path, char *to), (path, to), NULL, ENOMEM)
CALL(ssize_t, readlink, (const char *path, char *to, size_t size), (path, to, size), -1, EIO)
CALL(int, rename, (const char *from, const char *to), (from, to), -1, EIO)
CALL(int, fflush, (FILE * file), (file), EOF, ENOSPC)
CALL(int, sigaction, (int number, const struct sigaction *new, struct sigaction *old),
     (number, new, old), -1, EINVAL)
CALL(int, timer_create, (clockid_t clock, struct sigevent *event, timer_t *timer),
     (clock, event, timer), -1, EAGAIN)

/* A disk that is full takes a part before it says so. */
ssize_t __real_write(int fd, const void *data, size_t size);
ssize_t __wrap_write(int fd, const void *data, size_t size);
ssize_t __wrap_write(int fd, const void *data, size_t size)
{
    if (!fails("write"))
        return __real_write(fd, data, size);
    ssize_t part = __real_write(fd, data, size / 2);
    errno = ENOSPC;
    return part < 0 ? part : -1;
}

/* The descriptor is gone either way. */
int __wrap_close(int fd);
int __wrap_close(int fd)
{
    int result = __real_close(fd);
    if (!fails("close"))
        return result;
    errno = EIO;
    return -1;
}

/* "open" fails for a fault of the disk, "open_gone" as where the folder has gone. */
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = (flags & O_CREAT) != 0 ? va_arg(args, mode_t) : 0;
    va_end(args);
    bool gone = fails("open_gone");
    if (!gone && !fails("open"))
        return __real_open(path, flags, mode);
    errno = gone ? ENOENT : EIO;
    return -1;
}

/* "flock" finds a lock held, "flock_none" a file system without locks. */
int __real_flock(int fd, int how);
int __wrap_flock(int fd, int how);
int __wrap_flock(int fd, int how)
{
    bool none = fails("flock_none");
    if (!none && !fails("flock"))
        return __real_flock(fd, how);
    errno = none ? ENOLCK : EWOULDBLOCK;
    return -1;
}

/* "getrandom" fails; "getrandom_zero" draws the number 0. */
ssize_t __real_getrandom(void *data, size_t size, unsigned flags);
ssize_t __wrap_getrandom(void *data, size_t size, unsigned flags);
ssize_t __wrap_getrandom(void *data, size_t size, unsigned flags)
{
    if (fails("getrandom_zero")) {
        memset(data, 0, size);
        return (ssize_t)size;
    }
    if (!fails("getrandom"))
        return __real_getrandom(data, size, flags);
    errno = ENOSYS;
    return -1;
}
