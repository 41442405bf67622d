/* What decode and prefill by the delta rule share of reading arguments. */
#ifndef ATTNGEN_FFI_RECURRENT_H
#define ATTNGEN_FFI_RECURRENT_H

#include "stages.h"

/* What kda_decode and kda_prefill begin with, in this order; gdn_decode and gdn_prefill, too, whose
 * gates are a number a token and head (`scalar`). */
struct kda_inputs {
    bool scalar;
    const DLTensor *q, *k, *v, *g, *beta, *o, *a_log, *dt_bias;
};

struct kda_inputs ffi_kda_inputs(struct ffi_call *call, bool scalar);
/* K = V, of letters d and e. */
void ffi_check_square(struct ffi_call *call, const char *what);
/* From slot to slot of a pool [slots, heads, ., .], whose slots may be apart; 0: packed, or none.
 */
int64_t ffi_pool_stride(struct ffi_call *call, const DLTensor *pool, const char *name);
/* enum gen_state_dtype. */
int32_t ffi_state_dtype(const DLTensor *state);

#endif /* ATTNGEN_FFI_RECURRENT_H */
