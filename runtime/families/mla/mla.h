/* Checks that the host files of the MLA families share. */
#ifndef GEN_FAMILIES_MLA_H
#define GEN_FAMILIES_MLA_H

#include "families/common/arguments.h"
#include "families/common/fastdiv.h"
#include "families/common/strides.h"
#include "families/mla_decode/api.h"
#include "mla_decode/args.h"

#include <inttypes.h>
#include <string.h>

_Static_assert(GEN_MLA_LATENT == MLA_LATENT && GEN_MLA_ROPE == MLA_ROPE, "same on both sides");

/* The most packed rows of a request: q_len * num_heads. */
enum { MLA_MAX_Q_LEN = 1024, MLA_MAX_HEADS = 128 };

/* Not 0 where a number is not 1 to `most`, a power of two. */
static inline uint32_t gen__mla_above(int32_t number, uint32_t most)
{
    return ((uint32_t)number - 1) & ~(most - 1);
}

#endif /* GEN_FAMILIES_MLA_H */
