/* NVTX's header asks for a profiler at the first call, and without one costs a branch a call. */
#include "cuda/ranges.h"

#if defined(ATTNGEN_NVTX)
#include <nvtx3/nvToolsExt.h>

#include <stdatomic.h>
#include <stdio.h>

/* Two threads may make it at once; to a profiler one name is one domain. */
static nvtxDomainHandle_t domain(void)
{
    static _Atomic(nvtxDomainHandle_t) made;
    nvtxDomainHandle_t found = atomic_load_explicit(&made, memory_order_acquire);
    if (!found) {
        found = nvtxDomainCreateA("attngen");
        atomic_store_explicit(&made, found, memory_order_release);
    }
    return found;
}

void gen__range_begin(const char *family, const char *variant)
{
    char text[320];
    snprintf(text, sizeof(text), "%s %s", family, variant);
    const nvtxEventAttributes_t event = {.version = NVTX_VERSION,
                                         .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
                                         .messageType = NVTX_MESSAGE_TYPE_ASCII,
                                         .message = {.ascii = text}};
    nvtxDomainRangePushEx(domain(), &event);
}

void gen__range_end(void)
{
    nvtxDomainRangePop(domain());
}
#else
typedef int gen__no_ranges; /* C wants a declaration */
#endif
