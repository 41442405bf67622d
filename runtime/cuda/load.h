/* Kernels, loaded when they are first needed. */
#ifndef GEN_LOAD_H
#define GEN_LOAD_H

#include "product/library.h"

/* Publishes the variant's kernel, which *kernel gets; once is enough. Errors: as gen_preload(). */
enum gen_status gen__load(const gen_library *library, uint32_t variant, void **kernel);

/* Drivers load a kernel's code into a context at its first launch there. Does it now for the
 * current context, where there is one and the driver can. */
enum gen_status gen__load_in_context(const gen_library *library, uint32_t variant, void *kernel);

/* A kernel that no preload has seen: loads it, unless the stream captures. */
__attribute__((noinline, cold)) enum gen_status
gen__load_for_launch(const gen_library *library, uint32_t variant, gen_stream stream);

#endif /* GEN_LOAD_H */
