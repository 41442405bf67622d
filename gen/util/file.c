#include "util/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

char *file_read(struct arena *arena, const char *path, size_t *size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* does not wait for a FIFO's writer */
    if (fd < 0)
        return NULL;
    struct stat st;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        errno = S_ISDIR(st.st_mode) ? EISDIR : EINVAL;
        return NULL;
    }
    char *data = arena_alloc(arena, (size_t)st.st_size + 1);
    size_t got = 0;
    while (got < (size_t)st.st_size) {
        ssize_t n = read(fd, data + got, (size_t)st.st_size - got);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            int error = errno;
            close(fd);
            errno = error;
            return NULL;
        }
        if (n == 0)
            break;
        got += (size_t)n;
    }
    close(fd);
    data[got] = '\0';
    *size = got;
    return data;
}

bool file_make_folder(const char *path)
{
    char buffer[PATH_MAX];
    size_t size = strlen(path);
    if (size >= sizeof buffer) {
        errno = ENAMETOOLONG;
        return false;
    }
    memcpy(buffer, path, size + 1);
    for (size_t i = 1; i <= size; i++) {
        if (buffer[i] != '/' && buffer[i] != '\0')
            continue;
        char old = buffer[i];
        buffer[i] = '\0';
        if (mkdir(buffer, 0777) != 0 && errno != EEXIST)
            return false;
        buffer[i] = old;
    }
    return true;
}

bool file_write_all(int fd, const void *data, size_t size)
{
    const char *p = data;
    while (size > 0) {
        ssize_t n = write(fd, p, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return false;
        p += n;
        size -= (size_t)n;
    }
    return true;
}

/* A new file in the folder. A random number is no other process', where a
 * process's would be that of other containers too; and a name of its own fits
 * wherever the file's name does. */
static int open_temporary(const char *folder, char temporary[PATH_MAX])
{
    int fd;
    do {
        uint64_t number;
        if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number)
            return -1;
        if (snprintf(temporary, PATH_MAX, "%s/" FILE_TEMPORARY "%016" PRIx64, folder, number) >=
            PATH_MAX) {
            errno = ENAMETOOLONG;
            return -1;
        }
        fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    } while (fd < 0 && errno == EEXIST);
    return fd;
}

/* A rename is on the disk once its folder is. Where a folder cannot be opened or
 * synchronized at all, nothing more can be done. */
static bool sync_folder(const char *folder)
{
    int fd = open(folder[0] != '\0' ? folder : "/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return errno == EACCES;
    bool ok = fsync(fd) == 0 || errno == EINVAL || errno == ENOTSUP;
    int error = errno;
    close(fd);
    errno = error;
    return ok;
}

static bool write_file(const char *path, const void *data, size_t size, bool sync)
{
    char folder[PATH_MAX], temporary[PATH_MAX];
    struct stat st;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) { /* never rename over a device */
        errno = S_ISDIR(st.st_mode) ? EISDIR : EINVAL;
        return false;
    }
    const char *slash = strrchr(path, '/');
    size_t size_of_folder = slash != NULL ? (size_t)(slash - path) : 1;
    if (size_of_folder >= sizeof folder) {
        errno = ENAMETOOLONG;
        return false;
    }
    memcpy(folder, slash != NULL ? path : ".", size_of_folder);
    folder[size_of_folder] = '\0';
    if (folder[0] != '\0' && !file_make_folder(folder))
        return false;
    int fd = open_temporary(folder, temporary);
    if (fd < 0)
        return false;
    bool ok = file_write_all(fd, data, size);
    ok = ok && (!sync || fsync(fd) == 0);
    int error = errno;
    if (close(fd) != 0 && ok) {
        error = errno;
        ok = false;
    }
    errno = error;
    ok = ok && rename(temporary, path) == 0;
    if (!ok) {
        error = errno;
        unlink(temporary);
        errno = error;
        return false;
    }
    return !sync || sync_folder(folder);
}

bool file_write(const char *path, const void *data, size_t size)
{
    return write_file(path, data, size, true);
}

bool file_write_unsynced(const char *path, const void *data, size_t size)
{
    return write_file(path, data, size, false);
}

bool file_write_changed(struct arena *arena, const char *path, const void *data, size_t size)
{
    size_t old_size;
    const char *old = file_read(arena, path, &old_size);
    if (old != NULL && old_size == size && memcmp(old, data, size) == 0)
        return true;
    return file_write(path, data, size);
}

bool file_is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    remove(path); /* what cannot go keeps the folder from going */
    return 0;
}

bool file_remove_folder(const char *path)
{
    return nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS) == 0 && !file_exists(path);
}

bool file_exists(const char *path)
{
    return access(path, F_OK) == 0;
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

char **file_list(struct arena *arena, const char *folder, size_t *count)
{
    DIR *dir = opendir(folder);
    if (dir == NULL)
        return NULL;
    char **names = arena_alloc(arena, 16 * sizeof *names);
    size_t n = 0, capacity = 16;
    const struct dirent *entry;
    while (errno = 0, (entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] == '.')
            continue;
        if (n == capacity) {
            names = arena_grow(arena, names, n, capacity * 2, sizeof *names);
            capacity *= 2;
        }
        names[n++] = arena_string(arena, entry->d_name);
    }
    int error = errno;
    closedir(dir);
    if (error != 0) { /* a part of a folder must not pass for the whole */
        errno = error;
        return NULL;
    }
    qsort(names, n, sizeof *names, by_bytes);
    *count = n;
    return names;
}

const char *file_program_folder(struct arena *arena)
{
    char path[PATH_MAX];
    ssize_t size = readlink("/proc/self/exe", path, sizeof path - 1);
    if (size <= 0)
        return "";
    path[size] = '\0';
    char *slash = strrchr(path, '/');
    if (slash == NULL)
        return "";
    *slash = '\0';
    /* The generator lies in libexec/attngen, and other folders are named from beside bin. */
    char *last = strrchr(path, '/');
    if (last != NULL && strcmp(last, "/attngen") == 0 &&
        strcmp(slash + 1, "attngen-generator") == 0)
        *last = '\0';
    return arena_string(arena, path);
}
