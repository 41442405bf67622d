#include "file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

char *file_read(struct arena *arena, const char *path, size_t *size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
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

static bool write_all(int fd, const char *data, size_t size)
{
    while (size > 0) {
        ssize_t n = write(fd, data, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return false;
        data += n;
        size -= (size_t)n;
    }
    return true;
}

bool file_write(const char *path, const void *data, size_t size)
{
    char folder[PATH_MAX], temporary[PATH_MAX];
    struct stat st;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) { /* never rename over a device */
        errno = S_ISDIR(st.st_mode) ? EISDIR : EINVAL;
        return false;
    }
    if (strlen(path) + 32 >= sizeof temporary) {
        errno = ENAMETOOLONG;
        return false;
    }
    strcpy(folder, path);
    char *slash = strrchr(folder, '/');
    if (slash != NULL && slash != folder) {
        *slash = '\0';
        if (!file_make_folder(folder))
            return false;
    }
    snprintf(temporary, sizeof temporary, "%s.tmp%ld", path, (long)getpid());
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return false;
    bool ok = write_all(fd, data, size);
    ok = close(fd) == 0 && ok;
    ok = ok && rename(temporary, path) == 0;
    if (!ok) {
        int error = errno;
        unlink(temporary);
        errno = error;
    }
    return ok;
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
    while ((entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] == '.')
            continue;
        if (n == capacity) {
            names = arena_grow(arena, names, n, capacity * 2, sizeof *names);
            capacity *= 2;
        }
        names[n++] = arena_string(arena, entry->d_name);
    }
    closedir(dir);
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
    return arena_string(arena, path);
}
