/* What every family says of a number or a pointer that it may not be. */
#ifndef GEN_ARGUMENTS_H
#define GEN_ARGUMENTS_H

#include "family/family.h"

#include <inttypes.h>

static inline enum gen_status gen__invalid(const char *family, const char *name, int64_t value,
                                           const char *allowed)
{
    return gen__fail(GEN_STATUS_INVALID_ARGUMENT, "%s: %s = %" PRId64 "; allowed: %s", family, name,
                     value, allowed);
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
