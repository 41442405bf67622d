// The Hopper kernel of mla_decode for pairs of blocks: what a thread and the one of the same number of the other block send each other.
//
// Each warp has a buffer that its partner's warp writes to, for two kinds of messages: partial scores of a tile that this warp
// turns into probabilities, and probabilities of a tile that the partner did. A message is waited for, read, and only then the next
// one is asked for: by what it will bring here, and by an arrival there. Of every tile of a piece each side gets one message and sends one,
// so its number is the tile's.
#pragma once

#include "mla_decode/pair_block.cuh"

namespace {

constexpr unsigned scores_message = 32 * 128, probabilities_message = 32 * 80; // bytes of a warp

// What comes with probabilities: -M, which they are relative to, and the thread's sums so far, in units of 2^M.
struct told {
    float minus[2], sum[2];
};

struct pair_exchange {
    unsigned buffer;  // the thread's place in it: 16 bytes every 512
    unsigned barrier; // that counts what lands there
    unsigned away;    // how far the partner's are

    __device__ __forceinline__ pair_exchange(const pair_state &b, int warp)
        : buffer(b.base + exchange_at + warp * exchange_warp + threadIdx.x % 32 * 16), barrier(b.barrier(exchange_full + warp)),
          away(mla_uniform(cluster_address(b.base, b.rank() ^ 1) - b.base))
    {
    }

    // All lanes have read the message before, or there was none: the partner may send the next one, of so many bytes.
    __device__ __forceinline__ void open(unsigned bytes) const
    {
        __syncwarp();
        if (threadIdx.x % 32 == 0) {
            mbarrier_expect(barrier, bytes);
            mbarrier_arrive_room(barrier + away + (exchange_open - exchange_full) * 8);
        }
    }

    // The partner's buffer, behind a shuffle: else the compiler keeps all addresses of a message in registers, whatever the round.
    __device__ __forceinline__ unsigned wait_open(unsigned parity) const
    {
        mbarrier_wait(barrier + (exchange_open - exchange_full) * 8, parity);
        return buffer + mla_uniform(away);
    }

    __device__ __forceinline__ void send_scores(const float (&s)[32], unsigned parity) const
    {
        const unsigned to = wait_open(parity);
#pragma unroll
        for (int i = 0; i < 8; i++)
            store_async_16(to + i * 512, __float_as_uint(s[4 * i]), __float_as_uint(s[4 * i + 1]), __float_as_uint(s[4 * i + 2]),
                           __float_as_uint(s[4 * i + 3]), barrier + away);
    }

    // Adds the partner's to these.
    __device__ __forceinline__ void take_scores(float (&s)[32], unsigned parity) const
    {
        mbarrier_wait_cluster(barrier, parity);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const float4 x = load_shared(buffer + i * 512);
            s[4 * i] += x.x;
            s[4 * i + 1] += x.y;
            s[4 * i + 2] += x.z;
            s[4 * i + 3] += x.w;
        }
    }

    __device__ __forceinline__ void send_probabilities(const group_state &g, const unsigned (&packed)[16], unsigned parity) const
    {
        const unsigned to = wait_open(parity);
#pragma unroll
        for (int i = 0; i < 4; i++)
            store_async_16(to + i * 512, packed[4 * i], packed[4 * i + 1], packed[4 * i + 2], packed[4 * i + 3], barrier + away);
        store_async_16(to + 4 * 512, __float_as_uint(g.minus[0]), __float_as_uint(g.minus[1]), __float_as_uint(g.sum[0]),
                       __float_as_uint(g.sum[1]), barrier + away);
    }

    __device__ __forceinline__ void take_probabilities(unsigned (&packed)[16], told &with, unsigned parity) const
    {
        mbarrier_wait_cluster(barrier, parity);
#pragma unroll
        for (int i = 0; i < 4; i++)
            load_shared_16(buffer + i * 512, packed[4 * i], packed[4 * i + 1], packed[4 * i + 2], packed[4 * i + 3]);
        const float4 x = load_shared(buffer + 4 * 512);
        with = {{x.x, x.y}, {x.z, x.w}};
    }
};

// Where received probabilities and the output are relative to different maxima, both go over to the greater one. No output may be
// in flight.
__device__ __forceinline__ void agree(group_state &g, unsigned (&packed)[16], const told &with)
{
    if (!__any_sync(0xffffffffu, __float_as_uint(with.minus[0]) != __float_as_uint(g.minus[0]) ||
                                     __float_as_uint(with.minus[1]) != __float_as_uint(g.minus[1])))
        return;
    float to[2], factor[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        to[h] = fminf(with.minus[h], g.minus[h]);
        factor[h] = with.minus[h] == to[h] ? 1.f : exp2_fast(to[h] - with.minus[h]);
    }
#pragma unroll
    for (int i = 0; i < 16; i++) {
        const float2 two = to_float2<element>(packed[i]);
        packed[i] = pack2<element>(two.x * factor[i % 2], two.y * factor[i % 2]);
    }
    g.go_over(to);
}

} // namespace
