/* Where the toolkit's header is missing: no stream ever captures by itself. */
#include "fake_cuda.h"

int fake_cuda_capturing(void *stream)
{
    (void)stream;
    return 0;
}
