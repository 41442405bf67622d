#include "compile/scratch_dir.h"

#include "util/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static const char prefix[] = "tmp.", lock_name[] = "lock";

/* Whether the lock is ours; where there are no locks no process takes it away. */
static bool take(int fd)
{
    return flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}

static bool still_there(int fd, const char *path)
{
    struct stat own, found;
    return fstat(fd, &own) == 0 && stat(path, &found) == 0 && own.st_dev == found.st_dev &&
           own.st_ino == found.st_ino;
}

bool scratch_dir_open(struct arena *arena, const char *cache, struct scratch_dir *place)
{
    enum { TRIES = 100 };
    for (int i = 0; i < TRIES; i++) {
        char *folder = arena_printf(arena, "%s/%sXXXXXX", cache, prefix);
        if (mkdtemp(folder) == NULL)
            return false;
        /* Until the lock is held, a build that cleans up may take the folder
         * for a dead one's: then another one is made. */
        const char *path = arena_printf(arena, "%s/%s", folder, lock_name);
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        if (fd < 0 && errno != ENOENT)
            return false;
        if (fd >= 0 && take(fd) && still_there(fd, path)) {
            *place = (struct scratch_dir){folder, fd};
            return true;
        }
        if (fd >= 0)
            close(fd);
    }
    errno = EAGAIN;
    return false;
}

/* The lock goes last: what has none is taken for new. */
static void remove_scratch_dir(struct arena *arena, const char *folder)
{
    size_t count = 0;
    char **names = file_list(arena, folder, &count);
    for (size_t i = 0; names != NULL && i < count; i++)
        if (strcmp(names[i], lock_name) != 0)
            file_remove_folder(arena_printf(arena, "%s/%s", folder, names[i]));
    unlink(arena_printf(arena, "%s/%s", folder, lock_name));
    rmdir(folder);
}

void scratch_dir_close(struct arena *arena, struct scratch_dir *place)
{
    remove_scratch_dir(arena, place->folder);
    close(place->lock);
    *place = (struct scratch_dir){.lock = -1};
}

void scratch_dir_clean(struct arena *arena, const char *cache)
{
    size_t count = 0;
    char **names = file_list(arena, cache, &count);
    for (size_t i = 0; names != NULL && i < count; i++) {
        if (strncmp(names[i], prefix, sizeof prefix - 1) != 0)
            continue;
        const char *folder = arena_printf(arena, "%s/%s", cache, names[i]);
        int fd = open(arena_printf(arena, "%s/%s", folder, lock_name), O_RDWR | O_CLOEXEC);
        if (fd < 0) {
            rmdir(folder); /* one that ended before it had its lock is empty */
            continue;
        }
        if (flock(fd, LOCK_EX | LOCK_NB) == 0)
            remove_scratch_dir(arena, folder);
        close(fd);
    }
}
