/* cu_seqlens as the host has them. */
#include "families/kda/chunk.h"

#include <inttypes.h>

enum gen_status gen__kda_check_lengths(const char *family, const int32_t *dims, const int32_t *cu)
{
    if (!cu)
        return GEN_OK;
    if (!dims[KDA_NUM_TOKENS] && dims[KDA_SEQ_LEN])
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "%s: cu_seqlens_host = %p with num_tokens = 0; allowed: NULL", family,
                         (const void *)cu);
    if (cu[0] != 0)
        return gen__invalid(family, "cu_seqlens_host[0]", cu[0], "0");
    for (int32_t n = 0; n < dims[KDA_BATCH]; n++)
        if (cu[n + 1] < cu[n] || (int64_t)cu[n + 1] - cu[n] > dims[KDA_SEQ_LEN])
            return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                             "%s: cu_seqlens_host[%" PRId32 "] = %" PRId32 " behind %" PRId32
                             "; allowed: 0 to seq_len = %" PRId32 " more",
                             family, n + 1, cu[n + 1], cu[n], dims[KDA_SEQ_LEN]);
    if (cu[dims[KDA_BATCH]] != dims[KDA_NUM_TOKENS])
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "%s: cu_seqlens_host[%" PRId32 "] = %" PRId32
                         "; allowed: num_tokens = %" PRId32,
                         family, dims[KDA_BATCH], cu[dims[KDA_BATCH]], dims[KDA_NUM_TOKENS]);
    return GEN_OK;
}
