#include "util/hash.h"

#include <string.h>

static const uint32_t k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotate(uint32_t x, int n)
{
    return x >> n | x << (32 - n);
}

static void compress(uint32_t state[8], const unsigned char *p)
{
    uint32_t w[64];
    for (int i = 0; i < 16; i++, p += 4)
        w[i] = (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
    for (int i = 16; i < 64; i++) {
        uint32_t s0 = rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ w[i - 15] >> 3;
        uint32_t s1 = rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ w[i - 2] >> 10;
        w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
    for (int i = 0; i < 64; i++) {
        uint32_t s1 = rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25);
        uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + k[i] + w[i];
        uint32_t s0 = rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22);
        uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
        h = g, g = f, f = e, e = d + t1;
        d = c, c = b, b = a, a = t1 + t2;
    }
    state[0] += a, state[1] += b, state[2] += c, state[3] += d;
    state[4] += e, state[5] += f, state[6] += g, state[7] += h;
}

void hash_begin(struct hash *hash)
{
    static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memcpy(hash->state, start, sizeof start);
    hash->size = 0;
}

void hash_add(struct hash *hash, const void *data, size_t size)
{
    const unsigned char *p = data;
    size_t held = (size_t)(hash->size % 64);
    hash->size += size;
    if (held > 0) {
        size_t take = 64 - held < size ? 64 - held : size;
        memcpy(hash->block + held, p, take);
        if (held + take < 64)
            return;
        compress(hash->state, hash->block);
        p += take;
        size -= take;
    }
    for (; size >= 64; p += 64, size -= 64)
        compress(hash->state, p);
    if (size > 0)
        memcpy(hash->block, p, size);
}

static void big_endian(unsigned char bytes[8], uint64_t x)
{
    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)(x >> (56 - 8 * i));
}

void hash_field(struct hash *hash, const void *data, size_t size)
{
    unsigned char bytes[8];
    big_endian(bytes, size);
    hash_add(hash, bytes, sizeof bytes);
    if (size > 0)
        hash_add(hash, data, size);
}

void hash_string(struct hash *hash, const char *text)
{
    hash_field(hash, text, strlen(text));
}

void hash_end(struct hash *hash, unsigned char digest[HASH_BYTES])
{
    static const unsigned char padding[64] = {0x80};
    unsigned char bits[8];
    big_endian(bits, hash->size * 8);
    size_t held = (size_t)(hash->size % 64);
    hash_add(hash, padding, held < 56 ? 56 - held : 120 - held);
    hash_add(hash, bits, sizeof bits);
    for (int i = 0; i < HASH_BYTES; i++)
        digest[i] = (unsigned char)(hash->state[i / 4] >> (24 - 8 * (i % 4)));
}

uint64_t hash_short(const unsigned char digest[HASH_BYTES])
{
    uint64_t x = 0;
    for (int i = 0; i < 8; i++)
        x = x << 8 | digest[i];
    return x;
}

void hash_hex(const unsigned char digest[HASH_BYTES], char hex[2 * HASH_BYTES + 1])
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < HASH_BYTES; i++) {
        hex[2 * i] = digits[digest[i] >> 4];
        hex[2 * i + 1] = digits[digest[i] & 15];
    }
    hex[(size_t)2 * HASH_BYTES] = '\0';
}
