/*
 * Elements of recurrent states, kept as enum gen_state_dtype says: for references and for what
 * fills pools.
 */
#ifndef GEN_REFERENCE_STATE_H
#define GEN_REFERENCE_STATE_H

#include "gen.h"
#include "reference/half.h"

#include <math.h>

static inline enum gen_dtype gen__state_element(int32_t state_dtype)
{
    return state_dtype == GEN_STATE_FP32   ? GEN_DTYPE_FP32
           : state_dtype == GEN_STATE_FP16 ? GEN_DTYPE_FP16
                                           : GEN_DTYPE_BF16;
}

static inline double gen__state_get(int32_t state_dtype, const void *pool, int64_t i)
{
    if (state_dtype == GEN_STATE_FP32)
        return (double)((const float *)pool)[i];
    const uint16_t bits = ((const uint16_t *)pool)[i];
    return state_dtype == GEN_STATE_FP16 ? gen__fp16_to_double(bits) : gen__bf16_to_double(bits);
}

/* One rounding; what fp16 does not hold stays at its greatest magnitude, NaN stays NaN. */
static inline void gen__state_put(int32_t state_dtype, void *pool, int64_t i, double x)
{
    if (state_dtype == GEN_STATE_FP32)
        ((float *)pool)[i] = (float)x;
    else if (state_dtype == GEN_STATE_BF16)
        ((uint16_t *)pool)[i] = gen__bf16_from_double(x);
    else
        ((uint16_t *)pool)[i] = gen__fp16_from_double(fabs(x) > 65504 ? copysign(65504, x) : x);
}

#endif /* GEN_REFERENCE_STATE_H */
