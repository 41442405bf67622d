/*
 * SHA-256 (FIPS 180-4), for digests and for the names of cache entries.
 */
#ifndef HASH_H
#define HASH_H

#include <stddef.h>
#include <stdint.h>

#define HASH_BYTES 32

struct hash {
    uint32_t state[8];
    uint64_t size; /* bytes so far */
    unsigned char block[64];
};

void hash_begin(struct hash *hash);
void hash_add(struct hash *hash, const void *data, size_t size);
/* Adds the size first, so that "ab","c" and "a","bc" differ. */
void hash_field(struct hash *hash, const void *data, size_t size);
void hash_string(struct hash *hash, const char *text);
void hash_end(struct hash *hash, unsigned char digest[HASH_BYTES]);

/* The first eight bytes, big-endian. */
uint64_t hash_short(const unsigned char digest[HASH_BYTES]);
/* Lower-case hexadecimal, NUL-terminated. */
void hash_hex(const unsigned char digest[HASH_BYTES], char hex[2 * HASH_BYTES + 1]);

#endif /* HASH_H */
