/* The kernels of kda_prefill take what those of kda_inter take, the one that does all of it what both launches take;
 * runtime/families/kda_prefill/api.h has the operator. */
#ifndef GEN_KDA_PREFILL_ARGS_H
#define GEN_KDA_PREFILL_ARGS_H

#include "kda_scan/args.h"

/* Of the one kernel: no operand between launches is there. */
struct gen_kda_prefill_params {
    struct gen_kda_intra_params in;
    struct gen_kda_inter_params out;
};

#endif /* GEN_KDA_PREFILL_ARGS_H */
