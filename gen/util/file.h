/*
 * Files: whole reads, atomic writes, directory listings.
 */
#ifndef FILE_H
#define FILE_H

#include "util/arena.h"

#include <stdbool.h>
#include <stddef.h>

/* What the names of temporary files start with; 16 hexadecimal digits follow. */
#define FILE_TEMPORARY "attngen-tmp-"

/* The whole file, NUL-terminated behind its last byte. NULL with errno set. */
char *file_read(struct arena *arena, const char *path, size_t *size);
/* Makes the file appear whole or not at all (a temporary file beside it, then a
 * rename), creating its folder; it is on the disk when this returns. False with errno set. */
bool file_write(const char *path, const void *data, size_t size);
/* The same without waiting for the disk: for files that prove themselves when they are
 * read, or that is not read after this process. */
bool file_write_unsynced(const char *path, const void *data, size_t size);
/* Like file_write(), but leaves an equal file alone. */
bool file_write_changed(struct arena *arena, const char *path, const void *data, size_t size);
/* All of the data, whatever interrupts it. False with errno set. */
bool file_write_all(int fd, const void *data, size_t size);
/* mkdir -p. */
bool file_make_folder(const char *path);
/* rm -r. */
bool file_remove_folder(const char *path);
bool file_is_folder(const char *path);
bool file_exists(const char *path);
/* Names in a folder, sorted by byte value, without those that start with a
 * dot. NULL with errno set. */
char **file_list(struct arena *arena, const char *folder, size_t *count);
/* The folder of the running program, or "" where the system does not say; of the generator in its
 * place libexec/attngen, libexec, from which ".." leads where it does from bin. */
const char *file_program_folder(struct arena *arena);

#endif /* FILE_H */
