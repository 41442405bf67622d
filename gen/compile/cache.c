#include "compile/cache.h"

#include "util/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct head {
    char magic[16];
    unsigned char check[HASH_BYTES]; /* of the key and all that follows it */
    double seconds;
    uint64_t log_size, image_size, code_digest;
};

static const char magic[16] = CACHE_FORMAT;

/* The time of a file's last change says when its entry was last used, give or
 * take half an hour: marking each at each build would write as many inodes. An
 * entry stays for an hour after its use, also for a build that has not read yet
 * what it compiled, and where clocks differ. */
enum { MARK_AFTER = 30 * 60, KEEP_FOR = 60 * 60, NO_WRITE_TAKES = 24 * 60 * 60 };

static void entry_path(const char *folder, const unsigned char key[HASH_BYTES], char path[PATH_MAX])
{
    char hex[2 * HASH_BYTES + 1];
    hash_hex(key, hex);
    snprintf(path, PATH_MAX, "%s/%.2s/%s", folder, hex, hex + 2);
}

static void check_sum(const struct head *head, const unsigned char key[HASH_BYTES],
                      const void *body, unsigned char sum[HASH_BYTES])
{
    struct hash hash;
    hash_begin(&hash);
    hash_add(&hash, key, HASH_BYTES);
    hash_add(&hash, &head->seconds, sizeof *head - offsetof(struct head, seconds));
    hash_add(&hash, body, (size_t)(head->log_size + head->image_size));
    hash_end(&hash, sum);
}

static void mark_used(const char *path)
{
    struct stat st;
    if (stat(path, &st) == 0 && st.st_mtime < time(NULL) - MARK_AFTER)
        utimensat(AT_FDCWD, path, NULL, 0);
}

enum cache_found cache_get(struct arena *arena, const char *folder,
                           const unsigned char key[HASH_BYTES], struct cache_entry *entry)
{
    char path[PATH_MAX];
    entry_path(folder, key, path);
    size_t size;
    const char *data = file_read(arena, path, &size);
    if (data == NULL)
        return CACHE_MISS;
    struct head head;
    bool whole = size >= sizeof head;
    if (whole) {
        memcpy(&head, data, sizeof head);
        size_t body = size - sizeof head;
        whole = memcmp(head.magic, magic, sizeof magic) == 0 && head.log_size >= 1 &&
                head.log_size <= body && head.image_size == body - head.log_size;
    }
    if (whole) {
        unsigned char sum[HASH_BYTES];
        check_sum(&head, key, data + sizeof head, sum);
        whole = memcmp(sum, head.check, HASH_BYTES) == 0;
    }
    if (!whole) {
        unlink(path);
        return CACHE_CORRUPT;
    }
    mark_used(path);
    entry->seconds = head.seconds;
    entry->log = data + sizeof head;
    entry->log_size = (size_t)head.log_size - 1; /* the NUL is stored */
    entry->image = data + sizeof head + head.log_size;
    entry->image_size = (size_t)head.image_size;
    entry->code_digest = head.code_digest;
    return CACHE_HIT;
}

bool cache_put(const char *folder, const unsigned char key[HASH_BYTES],
               const struct cache_entry *entry)
{
    char path[PATH_MAX];
    entry_path(folder, key, path);
    struct head head = {.seconds = entry->seconds,
                        .log_size = entry->log_size + 1,
                        .image_size = entry->image_size,
                        .code_digest = entry->code_digest};
    memcpy(head.magic, magic, sizeof magic);
    struct text text = {0};
    text_add(&text, (const char *)&head, sizeof head);
    text_add(&text, entry->log, entry->log_size);
    text_add(&text, "", 1);
    text_add(&text, entry->image, entry->image_size);
    check_sum(&head, key, text.data + sizeof head, head.check);
    memcpy(text.data, &head, sizeof head);
    bool ok = file_write_unsynced(path, text.data, text.size);
    text_free(&text);
    return ok;
}

/* ---- its limit ------------------------------------------------------------------- */

struct old_entry {
    const char *path;
    uint64_t size;
    time_t used;
};

struct old_entries {
    struct old_entry *items;
    size_t count, capacity;
    uint64_t size;
};

static int by_use(const void *a, const void *b)
{
    const struct old_entry *x = a, *y = b;
    int order = (x->used > y->used) - (x->used < y->used);
    return order != 0 ? order : strcmp(x->path, y->path);
}

static bool is_hex(const char *name, size_t size)
{
    return strlen(name) == size && strspn(name, "0123456789abcdef") == size;
}

/* The entries of one folder. What a killed process left half written goes. */
static void add_folder(struct arena *arena, const char *folder, time_t now,
                       struct old_entries *entries)
{
    size_t count = 0;
    char **names = file_list(arena, folder, &count);
    for (size_t i = 0; names != NULL && i < count; i++) {
        struct stat st;
        bool entry = is_hex(names[i], 2 * HASH_BYTES - 2);
        if (!entry && strncmp(names[i], FILE_TEMPORARY, sizeof FILE_TEMPORARY - 1) != 0)
            continue;
        const char *path = arena_printf(arena, "%s/%s", folder, names[i]);
        if (lstat(path, &st) != 0 || !S_ISREG(st.st_mode))
            continue;
        if (!entry) {
            if (st.st_mtime < now - NO_WRITE_TAKES)
                unlink(path);
            continue;
        }
        if (entries->count == entries->capacity) {
            entries->capacity = entries->capacity > 0 ? 2 * entries->capacity : 1024;
            entries->items = arena_grow(arena, entries->items, entries->count, entries->capacity,
                                        sizeof *entries->items);
        }
        entries->items[entries->count++] =
            (struct old_entry){path, (uint64_t)st.st_size, st.st_mtime};
        entries->size += (uint64_t)st.st_size;
    }
}

size_t cache_prune(struct arena *arena, const char *folder, uint64_t limit, time_t start)
{
    struct old_entries entries = {0};
    size_t count = 0, dropped = 0;
    char **names = file_list(arena, folder, &count);
    for (size_t i = 0; names != NULL && i < count; i++)
        if (is_hex(names[i], 2))
            add_folder(arena, arena_printf(arena, "%s/%s", folder, names[i]), start, &entries);
    if (entries.items == NULL || entries.size <= limit)
        return 0;
    qsort(entries.items, entries.count, sizeof *entries.items, by_use);
    for (size_t i = 0; i < entries.count && entries.size > limit; i++) {
        const struct old_entry *entry = &entries.items[i];
        if (entry->used >= start - KEEP_FOR)
            break;
        if (unlink(entry->path) == 0)
            dropped++;
        else if (errno != ENOENT)
            continue;
        entries.size -= entry->size;
    }
    return dropped;
}
