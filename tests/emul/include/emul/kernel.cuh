// Behind a kernel's source: what the engine needs to run it.
#pragma once

#include <utility>

template <class... P> struct emul_entry {
    static constexpr unsigned bytes[sizeof...(P) + 1] = {sizeof(P)..., 0};
    template <std::size_t... i> static void call(void (*kernel)(P...), void *const *params, std::index_sequence<i...>)
    {
        kernel(*static_cast<std::remove_reference_t<P> *>(params[i])...);
    }
};
template <class... P> constexpr emul_entry<P...> emul_entry_of(void (*)(P...)) { return {}; }
template <class... P> constexpr unsigned emul_num_params(void (*)(P...)) { return sizeof...(P); }
template <class... P> void emul_call(void (*kernel)(P...), void *const *params)
{
    emul_entry<P...>::call(kernel, params, std::index_sequence_for<P...>{});
}

// The dynamic shared memory that the kernel declares `extern`, with that alignment and no better one, so that a kernel
// which needs a better one has to see to it.
#define EMUL_TEXT_(x) #x
#define EMUL_TEXT(x) EMUL_TEXT_(x)
#if defined(__aarch64__)
#define EMUL_TLS_TYPE "%tls_object"
#else
#define EMUL_TLS_TYPE "@tls_object"
#endif
#define EMUL_RING(name, alignment)                                                                                       \
    __asm__(".pushsection .tbss,\"awT\"\n"                                                                               \
            ".balign 1024\n.skip (" EMUL_TEXT(alignment) ") % 1024\n"                                                    \
            ".hidden " #name "\n.globl " #name "\n.type " #name ", " EMUL_TLS_TYPE "\n"                                  \
            #name ": .skip " EMUL_TEXT(EMUL_MAX_SHARED) "\n"                                                             \
            ".size " #name ", " EMUL_TEXT(EMUL_MAX_SHARED) "\n.popsection\n");                                           \
    extern "C" __attribute__((visibility("hidden"))) thread_local unsigned char emul_ring_bytes[] __asm__(#name);        \
    static void *emul_ring() { return emul_ring_bytes; }

// What __cluster_dims__ has in its parentheses, at the end of the source, which may give names to it.
constexpr emul_dim emul_cluster_of(unsigned x = 1, unsigned y = 1, unsigned z = 1) { return {x, y, z}; }
#define EMUL_CLUSTER(...) static constexpr emul_dim emul_cluster_dim = emul_cluster_of(__VA_ARGS__);

// Storage without a ring exists once it is touched. In a cluster it lies at the same addresses in all blocks.
#define EMUL_NO_RING                                                                                                     \
    alignas(emul_cluster_dim.x * emul_cluster_dim.y * emul_cluster_dim.z > 1 ? 1024 : 1) static thread_local volatile char emul_touched;                                                                      \
    static void *emul_ring()                                                                                             \
    {                                                                                                                    \
        emul_touched = 1;                                                                                                \
        return nullptr;                                                                                                  \
    }

#define EMUL_KERNEL(name)                                                                                                \
    extern "C" __attribute__((visibility("default"))) const emul_kernel emul_kernel = {                                  \
        EMUL_ABI, emul_num_params(&name), decltype(emul_entry_of(&name))::bytes, emul_cluster_dim,                       \
        [](void *const *params) { emul_call(&name, params); }, emul_ring};
