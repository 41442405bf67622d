/* The kernels of kda_prefill take what those of kda_inter take; runtime/families/kda_prefill/api.h has the
 * operator. */
#ifndef GEN_KDA_PREFILL_ARGS_H
#define GEN_KDA_PREFILL_ARGS_H

#include "kda_scan/args.h"

#endif /* GEN_KDA_PREFILL_ARGS_H */
