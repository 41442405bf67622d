/* Reading the bytes of a product. */
#include "product/source.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum gen_status gen__source_open(const char *path, struct gen__source *source)
{
    /* Without O_NONBLOCK the open of a FIFO waits for a writer. */
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (file < 0)
        return gen__fail(GEN_STATUS_IO, "%s: cannot be opened: %s", path, strerror(errno));
    struct stat about;
    enum gen_status status = GEN_OK;
    if (fstat(file, &about) != 0)
        status = gen__fail(GEN_STATUS_IO, "%s: %s", path, strerror(errno));
    else if (!S_ISREG(about.st_mode))
        status = gen__fail(GEN_STATUS_IO, "%s: not a regular file", path);
    if (status) {
        close(file);
        return status;
    }
    *source = (struct gen__source){.size = (uint64_t)about.st_size, .file = file};
    return GEN_OK;
}

void gen__source_close(struct gen__source *source)
{
    if (source->file >= 0)
        close(source->file);
    source->file = -1;
}

enum gen_status gen__source_read(const struct gen__source *source, uint64_t offset, uint64_t size,
                                 const char *what, const void **bytes, void **owned)
{
    *owned = NULL;
    if (source->data) {
        *bytes = source->data + offset;
        return GEN_OK;
    }
    unsigned char *buffer = malloc(size ? size : 1);
    if (!buffer)
        return gen__fail(GEN_STATUS_OUT_OF_MEMORY, "%s: no memory for %llu bytes", what,
                         (unsigned long long)size);
    *owned = buffer;
    for (uint64_t got = 0; got < size;) {
        const ssize_t n = pread(source->file, buffer + got, size - got, (off_t)(offset + got));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return gen__fail(GEN_STATUS_IO, "%s: cannot be read: %s", what, strerror(errno));
        if (n == 0)
            return gen__fail(GEN_STATUS_IO,
                             "%s: cannot be read: the product has become shorter since it was "
                             "opened with %llu bytes",
                             what, (unsigned long long)source->size);
        got += (uint64_t)n;
    }
    *bytes = buffer;
    return GEN_OK;
}
