/*
 * Copies of a kernel, for the blocks of a cluster: each has thread-local storage
 * and so shared memory of its own on the one thread of the host. A copy is the
 * library once more, from another file, for the loader knows files by what they are.
 */
#define _GNU_SOURCE
#include "internal.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Kernels are never unloaded, and neither are these. */
struct copies {
    struct copies *next;
    const struct emul_kernel *kernel[EMUL_MAX_CLUSTER]; /* [0] is the original */
};

static struct copies *all_copies;
static pthread_mutex_t busy = PTHREAD_MUTEX_INITIALIZER;

static struct copies *find(const struct emul_kernel *kernel)
{
    struct copies *c = all_copies;
    while (c && c->kernel[0] != kernel)
        c = c->next;
    if (c)
        return c;
    c = calloc(1, sizeof *c);
    if (!c)
        abort();
    c->kernel[0] = kernel;
    c->next = all_copies;
    return all_copies = c;
}

static bool write_all(int to, const char *data, size_t bytes)
{
    while (bytes) {
        const ssize_t n = write(to, data, bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        data += n;
        bytes -= (size_t)n;
    }
    return true;
}

static bool copy_file(const char *path, int to)
{
    static char data[65536]; /* one thread at a time */
    const int from = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = -1;
    if (from < 0)
        return false;
    while ((n = read(from, data, sizeof data)) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 || !write_all(to, data, (size_t)n))
            break;
    }
    close(from);
    return n == 0;
}

/* The file is gone when this returns: a library that is loaded needs no name. */
static const struct emul_kernel *load(const char *path, char *message, size_t capacity)
{
    const char *folder = getenv("TMPDIR");
    char name[4096];
    snprintf(name, sizeof name, "%s/emul-XXXXXX", folder && *folder ? folder : "/tmp");
    const int file = mkostemp(name, O_CLOEXEC);
    if (file < 0) {
        snprintf(message, capacity, "%s, for a copy of the kernel: %s", name, strerror(errno));
        return NULL;
    }
    const struct emul_kernel *kernel = NULL;
    const bool copied = copy_file(path, file);
    const int why = errno;
    void *library = copied ? dlopen(name, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (library)
        kernel = dlsym(library, "emul_kernel");
    if (!kernel)
        snprintf(message, capacity, "a copy of the kernel's %s: %s", path,
                 copied ? dlerror() : strerror(why));
    close(file);
    unlink(name);
    return kernel;
}

const struct emul_kernel *emul__copy(const struct emul_kernel *kernel, unsigned number,
                                     char *message, size_t capacity)
{
    Dl_info info;
    if (!number)
        return kernel;
    pthread_mutex_lock(&busy);
    const struct emul_kernel **copy = &find(kernel)->kernel[number];
    if (!*copy && dladdr(kernel, &info))
        *copy = load(info.dli_fname, message, capacity);
    else if (!*copy)
        snprintf(message, capacity, "a kernel that is of no library");
    const struct emul_kernel *result = *copy;
    pthread_mutex_unlock(&busy);
    return result;
}
