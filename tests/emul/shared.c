/*
 * Shared memory: the kernel's thread-local variables, where they lie in the
 * 32-bit space, and what the async proxy (TMA, wgmma) sees of them.
 *
 * The async proxy has a copy of its own. What it writes itself goes to both; what
 * threads write reaches the copy at the next proxy fence of whichever thread. So
 * a read that finds a difference is one that no fence came before.
 */
#define _GNU_SOURCE
#include "internal.h"

#include <link.h>
#include <string.h>
#include <stdlib.h>

/* Where addresses start: a GPU keeps the first KiB for itself. */
#define FIRST_ADDRESS 1024u
/* NaN in every format. */
#define POISON 0xff

/* ---- where it lies ---------------------------------------------------------- */

struct search {
    uintptr_t code;   /* somewhere in the module */
    uint8_t *storage; /* the calling thread's copy of its thread-local variables */
    size_t bytes;
};

static int visit_module(struct dl_phdr_info *info, size_t size, void *context)
{
    struct search *s = context;
    bool ours = false;
    (void)size;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const uintptr_t start = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
        ours |= info->dlpi_phdr[i].p_type == PT_LOAD && s->code >= start &&
                s->code < start + info->dlpi_phdr[i].p_memsz;
    }
    if (!ours)
        return 0;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type == PT_TLS) {
            s->storage = info->dlpi_tls_data;
            s->bytes = info->dlpi_phdr[i].p_memsz;
        }
    }
    return 1;
}

/* Addresses keep the low ten bits of pointers, so that what a kernel aligns either way is aligned.
 */
static unsigned place(struct segment *segment, unsigned from, uint8_t *host, size_t bytes)
{
    const unsigned low = (unsigned)((uintptr_t)host & 1023);
    from = (from + 1023u - low) / 1024u * 1024u + low;
    *segment = (struct segment){from, (unsigned)bytes, host};
    return from + (unsigned)bytes;
}

bool emul__shared_open(struct block *b)
{
    const unsigned dynamic = b->cluster->launch->shared;
    uint8_t *const ring = b->kernel->ring();
    struct search s = {.code = (uintptr_t)b->kernel};
    dl_iterate_phdr(visit_module, &s);
    uint8_t *const end = s.storage + s.bytes;
    const size_t before = ring ? (size_t)(ring - s.storage) : s.bytes;
    size_t behind = ring ? (size_t)(end - ring) : 0;
    behind = behind > EMUL_MAX_SHARED ? behind - EMUL_MAX_SHARED : 0;
    b->view = NULL;
    if (before + behind + dynamic > EMUL_MAX_SHARED) {
        emul__fail(b,
                   "%zu bytes of static and %u of dynamic shared memory; allowed are %u together",
                   before + behind, dynamic, EMUL_MAX_SHARED);
        return false;
    }
    unsigned at = place(&b->segment[0], FIRST_ADDRESS, s.storage, before);
    if (behind)
        at = place(&b->segment[1], at, end - behind, behind);
    if (ring)
        place(&b->segment[2], at, ring, dynamic);
    b->view = malloc(SHARED_SPACE);
    if (!b->view)
        abort();
    return true;
}

void emul__shared_poison(struct block *b)
{
    for (int i = 0; i < 3; i++)
        if (b->segment[i].bytes)
            memset(b->segment[i].host, POISON, b->segment[i].bytes);
    memset(b->view, POISON, SHARED_SPACE);
}

/* ---- addresses ---------------------------------------------------------------- */

unsigned emul_shared_address(const void *pointer)
{
    const struct block *b = emul__block;
    const uint8_t *p = pointer;
    /* One segment may begin where another ends, and a kernel may ask for an end, too. */
    for (unsigned end = 0; end < 2; end++) {
        for (int i = 0; i < 3; i++) {
            const struct segment *s = &b->segment[i];
            if (s->host && p >= s->host && p < s->host + s->bytes + end)
                return s->address + (unsigned)(p - s->host);
        }
    }
    emul_fault("the pointer %p is not into the block's shared memory", pointer);
}

static uint8_t *find(const struct block *b, unsigned address, unsigned bytes)
{
    for (int i = 2; i >= 0; i--) {
        const struct segment *s = &b->segment[i];
        if (address >= s->address && address - s->address < s->bytes &&
            bytes <= s->bytes - (address - s->address))
            return s->host + (address - s->address);
    }
    return NULL;
}

void *emul__memory(const struct block *b, unsigned address, unsigned bytes, unsigned alignment,
                   const char *who)
{
    uint8_t *p = find(b, address, bytes);
    if (!p && address >= SHARED_SPACE)
        emul_fault("%s: shared address %#x is not of the block itself; of another one of its "
                   "cluster it wants .shared::cluster",
                   who, address);
    if (!p)
        emul_fault(
            "%s: %u bytes at shared address %#x, outside of the block's (dynamic: %u bytes at "
            "%#x)",
            who, bytes, address, b->segment[2].bytes, b->segment[2].address);
    if (address % alignment)
        emul_fault("%s: shared address %#x is no multiple of %u", who, address, alignment);
    return p;
}

void *emul_shared(unsigned address, unsigned bytes, unsigned alignment, const char *who)
{
    return emul__memory(emul__block, address, bytes, alignment, who);
}

const void *emul_global(const void *pointer, unsigned alignment, const char *who)
{
    if (!pointer || (uintptr_t)pointer % alignment)
        emul_fault("%s: global address %p is no multiple of %u", who, pointer, alignment);
    return pointer;
}

/* ---- the async proxy ------------------------------------------------------------ */

void emul__async_write(struct block *b, unsigned address, const void *data, unsigned bytes,
                       const char *who)
{
    memcpy(emul__memory(b, address, bytes, 1, who), data, bytes);
    memcpy(b->view + address, data, bytes);
}

const void *emul__async_read(unsigned address, unsigned bytes, const char *who)
{
    const uint8_t *view = emul__block->view + address;
    const uint8_t *now = emul_shared(address, bytes, 1, who);
    if (memcmp(now, view, bytes) != 0)
        emul_fault(
            "%s reads shared address %#x: a thread wrote there, and no fence.proxy.async came "
            "between",
            who, address);
    return view;
}

static void renew_view(struct block *b)
{
    for (int i = 0; i < 3; i++)
        if (b->segment[i].bytes)
            memcpy(b->view + b->segment[i].address, b->segment[i].host, b->segment[i].bytes);
}

void emul_fence_proxy_async(int cluster)
{
    const struct cluster *c = emul__block->cluster;
    if (!cluster)
        renew_view(emul__block);
    for (unsigned i = 0; cluster && i < c->size; i++)
        renew_view(c->block[i]);
}
