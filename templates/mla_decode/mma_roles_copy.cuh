// The portable kernel with roles: an output warp's copies of tiles. They stand between its products, so what counts is how few
// instructions a tile takes. What is the same in all lanes comes from shuffles, so that the compiler keeps it in uniform
// registers.
#pragma once

#include "mla_decode/mma_copy.cuh"
#include "lib/divide.cuh"
#include "lib/ptx/cp_async.cuh"
#include "lib/ptx/ldst.cuh"
#include "lib/swizzle.cuh"
#include "lib/uniform.cuh"

__device__ __forceinline__ unsigned long long uniform_64(unsigned long long x)
{
    const unsigned low = uniform(static_cast<int>(x)), high = uniform(static_cast<int>(x >> 32));
    return static_cast<unsigned long long>(high) << 32 | low;
}

// The tiles of a piece, one after the other: the thread's share of each is a chunk in every eight of one or two rows. It
// loads a tile's page numbers first and its rows much later, when the numbers have arrived.
template <class S> struct mla_role_source {
    static constexpr unsigned lanes = 8, lines = S::output_threads / lanes, passes = S::kv / lines; // rows of a pass
    static_assert(passes * lines == S::kv, "threads share a tile evenly");

    const unsigned long long latent_page, rotary_page; // bytes from page to page
    const int *pages;
    int first, rows;       // cache rows: the tile's first one, and how many there are from there to the piece's end
    int tiles = 0;         // that are still to be copied
    unsigned page[passes]; // of the thread's rows

    __device__ __forceinline__ explicit mla_role_source(const gen_mla_decode_params &p)
        : latent_page(uniform_64(p.ckv_page_stride * 2)), rotary_page(uniform_64(p.kpe_page_stride * 2))
    {
    }

    __device__ __forceinline__ void begin(const gen_mla_decode_params &p, const mla_work &work, unsigned thread)
    {
        pages = reinterpret_cast<const int *>(uniform_64(reinterpret_cast<unsigned long long>(work.pages)));
        first = uniform(work.first);
        rows = uniform(work.end) - first;
        tiles = max((rows + S::kv - 1) / S::kv, 1); // without cache rows it has one nevertheless
#pragma unroll
        for (unsigned u = 0; u < passes; u++)
            page[u] = 0;
        if (rows > 0)
            find(p, thread);
    }

    // Entries behind the last row's page are not to be read.
    __device__ __forceinline__ void find(const gen_mla_decode_params &p, unsigned thread)
    {
#pragma unroll
        for (unsigned u = 0; u < passes; u++) {
            const int row = first + min(static_cast<int>(u * lines + thread / lanes), rows - 1);
            page[u] = ld_global(pages + quotient_or_shift(row, p.page_mul, p.page_shift));
        }
    }

    // Loads the tile's rows, with zeros behind the end and for pages that do not exist, and the next tile's page numbers.
    __device__ __forceinline__ void copy(const gen_mla_decode_params &p, unsigned thread, unsigned stage)
    {
        const unsigned line = thread / lanes, chunk = thread % lanes;
        const unsigned char *const latents = static_cast<const unsigned char *>(p.ckv) + chunk * 16;
        const unsigned char *const rotary_keys = static_cast<const unsigned char *>(p.kpe) + chunk * 16;
        const unsigned to = swizzled<S::pitch>(stage, line, chunk);
        const unsigned to_rope = swizzled<S::rope_pitch>(stage + S::rope_at, line, chunk);
#pragma unroll
        for (unsigned u = 0; u < passes; u++) {
            const bool valid =
                page[u] < static_cast<unsigned>(p.num_pages) && static_cast<int>(u * lines + line) < rows;
            const unsigned its = valid ? page[u] : 0;
            const unsigned char *latent = latents + its * latent_page, *rotary = rotary_keys + its * rotary_page;
            if (p.page_size > 1) {
                const int row = first + static_cast<int>(u * lines + line);
                const unsigned place = row - quotient_or_shift(row, p.page_mul, p.page_shift) * p.page_size;
                latent += place * static_cast<unsigned long long>(p.ckv_row_stride * 2);
                rotary += place * static_cast<unsigned long long>(p.kpe_row_stride * 2);
            }
#pragma unroll
            for (int i = 0; i < S::pitch / 128; i++) // eight chunks further, the swizzle is the same
                cp_async_16_or_zero(to + u * lines * S::pitch + i * 128, latent + i * 128, valid);
            if constexpr (S::rope)
                cp_async_16_or_zero(to_rope + u * lines * S::rope_pitch, rotary, valid);
        }
        first += S::kv;
        rows -= S::kv;
        if (--tiles > 0)
            find(p, thread);
    }
};
