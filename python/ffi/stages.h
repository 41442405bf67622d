/* What KDA's stages and its backward pass share: the problem that their tensors make. */
#ifndef ATTNGEN_FFI_STAGES_H
#define ATTNGEN_FFI_STAGES_H

#include "ffi.h"

#include <attngen/kda_chunk_intra.h>

#define FFI_CHUNK 64 /* tokens */

/* The problem of a stage, of what its tensors have. */
gen_kda_stage_problem ffi_stage_problem(struct ffi_call *call, uint32_t family,
                                        const struct ffi_sequences *s, int32_t dtype);
/* cu_seqlens and max_seqlen, the arguments that all stages end with. */
const DLTensor *ffi_cu_seqlens(struct ffi_call *call, int64_t *most);
/* 1 / sqrt(head_dim). */
float ffi_usual_scale(const struct ffi_call *call);
/* That of the tensor alone; of NULL all of 16 bits. */
uint32_t ffi_dtype_bit(const DLTensor *t);
/* States of chunks, `name`: [chunks, ...] or [batch, chunks of each, ...] with `rank` dimensions
 * behind them; 0, and the error, where there are too few to hold those of all sequences in any case
 * that could be. */
int32_t ffi_chunks(struct ffi_call *call, const DLTensor *h, const char *name,
                   const struct ffi_sequences *s, int rank);
/* Is there one state a sequence? Letter n has their number. */
void ffi_check_states(struct ffi_call *call, const char *name, const struct ffi_sequences *s);

#endif /* ATTNGEN_FFI_STAGES_H */
