// The portable kernel with roles: what comes from global memory.
#pragma once

#include "mla_decode/mma_copy.cuh"
#include "mla_decode/mma_roles_shape.cuh"

// The queries of a piece, zeros where the tile has no row.
template <class S>
__device__ __forceinline__ void mla_role_copy_queries(const gen_mla_decode_params &p, const mla_work &w, unsigned thread, unsigned memory)
{
    const unsigned lane = thread % 8;
#pragma unroll 1
    for (unsigned row = thread / 8; row < S::q; row += S::score_threads / 8) {
        const bool valid = row < static_cast<unsigned>(w.num_rows);
        const mla_row at(p, w.tokens, w.first_row<S>() + static_cast<int>(valid ? row : 0));
        const unsigned short *const nope = at.q_nope(p) + lane * 8;
        const unsigned to = memory + mla_latent_at<S>(row, lane);
#pragma unroll
        for (int i = 0; i < MLA_LATENT / 64; i++)
            cp_async_16_or_zero(to + i * 128, nope + i * 64, valid);
        if constexpr (S::rope)
            cp_async_16_or_zero(memory + mla_rotary_at<S>(row, lane), at.q_pe(p) + lane * 8, valid);
    }
}

// The tile that starts at cache row `first`: all at once, a row after the other, for the threads have few registers to spare.
template <class S>
__device__ __forceinline__ void mla_role_copy_tile(const gen_mla_decode_params &p, const mla_tile_pages<S> &found, unsigned thread,
                                                   unsigned stage, int first)
{
    using pages = mla_tile_pages<S>;
    static_assert(pages::lanes == 8 && pages::lines % 8 == 0, "a thread's chunks of a row are 128 bytes apart");
    const unsigned line = thread / 8, chunk = thread % 8;
#pragma unroll
    for (int u = 0; u < pages::passes; u++) {
        const bool valid = static_cast<unsigned>(found.page[u]) < p.num_pages;
        const long long page = valid ? found.page[u] : 0;
        const int row = first + u * pages::lines + static_cast<int>(line);
        const int place = row - static_cast<int>(mla_quotient(row, p.page_mul, p.page_shift)) * p.page_size;
        const unsigned char *const latents = static_cast<const unsigned char *>(p.ckv) +
                                             (page * p.ckv_page_stride + place * p.ckv_row_stride) * 2 + chunk * 16;
        const unsigned to = stage + u * pages::lines * S::row_pitch;
#pragma unroll
        for (int i = 0; i < MLA_LATENT / 64; i++)
            cp_async_16_or_zero(to + mla_latent_at<S>(line, chunk) + i * 128, latents + i * 128, valid);
        if constexpr (S::rope) {
            const unsigned char *const keys = static_cast<const unsigned char *>(p.kpe) +
                                              (page * p.kpe_page_stride + place * p.kpe_row_stride) * 2 + chunk * 16;
            cp_async_16_or_zero(to + mla_rotary_at<S>(line, chunk), keys, valid);
        }
    }
}
