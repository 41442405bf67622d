/* The kernels of kda_scan take what those of kda_inter take; runtime/families/kda_scan/api.h has the
 * operator. */
#ifndef GEN_KDA_SCAN_ARGS_H
#define GEN_KDA_SCAN_ARGS_H

#include "kda_inter/args.h"

#endif /* GEN_KDA_SCAN_ARGS_H */
