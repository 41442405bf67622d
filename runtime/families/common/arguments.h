/* What families share in checking problems and arguments. */
#ifndef GEN_ARGUMENTS_H
#define GEN_ARGUMENTS_H

#include "families/common/extents.h"
#include "family/family.h"

#include <inttypes.h>

static inline enum gen_status gen__invalid(const char *family, const char *name, int64_t value,
                                           const char *allowed)
{
    return gen__fail(GEN_STATUS_INVALID_ARGUMENT, "%s: %s = %" PRId64 "; allowed: %s", family, name,
                     value, allowed);
}

/* Sets the first four codes, the others to 0: in one store, for they are read as one word, which
 * would otherwise wait. */
static inline void gen__set_four_codes(struct gen__key *key, uint32_t a, uint32_t b, uint32_t c,
                                       uint32_t d)
{
    const union {
        uint8_t codes[GEN__MAX_REQUIRED];
        uint64_t word;
    } required = {.codes = {(uint8_t)a, (uint8_t)b, (uint8_t)c, (uint8_t)d}};
    memcpy(key->codes, &required.word, sizeof key->codes);
}

static inline void gen__set_codes(struct gen__key *key, uint32_t a, uint32_t b, uint32_t c)
{
    gen__set_four_codes(key, a, b, c, 0);
}

/* gen__family.fits of a family whose every variant serves every problem of its required key. */
static inline const char *gen__fits_always(const gen_problem *problem, const gen_device *device,
                                           const struct gen__facts *variant)
{
    (void)problem, (void)device, (void)variant;
    return NULL;
}

/* `alignment`: a power of two, in bytes. */
static inline enum gen_status gen__check_pointer(const char *family, const char *name,
                                                 const void *pointer, uintptr_t alignment,
                                                 bool optional)
{
    if (!pointer && !optional)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT, "%s: %s is NULL", family, name);
    if ((uintptr_t)pointer & (alignment - 1))
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "%s: %s = %p; allowed: %sa multiple of %u bytes", family, name, pointer,
                         optional ? "NULL, or " : "", (unsigned)alignment);
    return GEN_OK;
}

#endif /* GEN_ARGUMENTS_H */
