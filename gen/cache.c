#include "cache.h"

#include "file.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct head {
    char magic[16];
    unsigned char check[HASH_BYTES]; /* of the key and all that follows it */
    double seconds;
    uint64_t log_size, image_size;
};

static const char magic[16] = "attngen cache 1";

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
    entry->seconds = head.seconds;
    entry->log = data + sizeof head;
    entry->log_size = (size_t)head.log_size - 1; /* the NUL is stored */
    entry->image = data + sizeof head + head.log_size;
    entry->image_size = (size_t)head.image_size;
    return CACHE_HIT;
}

bool cache_put(const char *folder, const unsigned char key[HASH_BYTES],
               const struct cache_entry *entry)
{
    char path[PATH_MAX];
    entry_path(folder, key, path);
    struct head head = {.seconds = entry->seconds,
                        .log_size = entry->log_size + 1,
                        .image_size = entry->image_size};
    memcpy(head.magic, magic, sizeof magic);
    struct text text = {0};
    text_add(&text, (const char *)&head, sizeof head);
    text_add(&text, entry->log, entry->log_size);
    text_add(&text, "", 1);
    text_add(&text, entry->image, entry->image_size);
    check_sum(&head, key, text.data + sizeof head, head.check);
    memcpy(text.data, &head, sizeof head);
    bool ok = file_write(path, text.data, text.size);
    text_free(&text);
    return ok;
}
