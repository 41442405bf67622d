/* Where the bytes of a product or a table are: in the caller's memory or in an open file. A file is
 * read, not mapped, so that one which shrinks while it is open is an error and no SIGBUS. */
#ifndef GEN_SOURCE_H
#define GEN_SOURCE_H

#include "core/status.h"

#include <stdint.h>

struct gen__source {
    const unsigned char *data; /* NULL: the bytes are in the file */
    uint64_t size;
    int file; /* -1: none */
};

/* Opens a regular file; the others (a FIFO, a folder, a device) are refused without waiting for
 * them. Errors: IO. */
enum gen_status gen__source_open(const char *path, struct gen__source *source);
void gen__source_close(struct gen__source *source);

/* `size` bytes at `offset`, which lie in the source: in memory, or read into *owned, which the
 * caller frees also after a failure. `what` is named in messages. Errors: IO, OUT_OF_MEMORY. */
enum gen_status gen__source_read(const struct gen__source *source, uint64_t offset, uint64_t size,
                                 const char *what, const void **bytes, void **owned);

#endif /* GEN_SOURCE_H */
