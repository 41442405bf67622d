// The Hopper kernel of mla_decode: what the two groups that calculate do with a tile.
#pragma once

#include "mla_decode/wgmma_block.cuh"
#include "lib/store.cuh"
#include "lib/wgmma.cuh"

namespace {

// A tile's probabilities: their 16-bit form, as fragments, what they are relative to, and what the thread has of their sums.
struct tile_probabilities {
    unsigned packed[16];
    float maximum[2], sum[2];
};

struct group_state {
    float o[128];     // rows row and row + 8 of the warp's 16, columns 256 group + 8 (i / 4) + 2 (lane % 4) + i % 2
    float maximum[2]; // M
    float sum[2];     // of this thread's columns of the group's own tiles, in units of 2^M
    bool started;     // o holds something

    __device__ __forceinline__ void reset()
    {
        maximum[0] = maximum[1] = minus_infinity();
        sum[0] = sum[1] = 0.f;
        started = false;
    }

    // Goes over to another M, if it is another. Nothing may be in flight.
    __device__ __forceinline__ void go_over(const float (&to)[2])
    {
        if (!__any_sync(0xffffffffu, to[0] != maximum[0] || to[1] != maximum[1]))
            return;
        float factor[2];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            factor[h] = maximum[h] == to[h] ? 1.f : exp2_fast(maximum[h] - to[h]);
            sum[h] *= factor[h];
            maximum[h] = to[h];
        }
        if (started)
#pragma unroll
            for (int i = 0; i < 128; i++)
                o[i] *= factor[i / 2 % 2];
    }

    __device__ __forceinline__ void add(const tile_probabilities &t)
    {
        go_over(t.maximum);
        sum[0] += t.sum[0];
        sum[1] += t.sum[1];
    }
};

// Waits for runs of a stage. What threads copied, rather than the copy engine, a fence shows to the tensor cores.
template <int count> __device__ __forceinline__ void wait_runs(const block_state &b, int stage, int first, unsigned parity)
{
#pragma unroll
    for (int n = first; n < first + count; n++)
        mbarrier_wait(b.full(stage, n), parity);
    if (gathers)
        fence_proxy_async();
}

// Scores of the group's stage: asked for run by run as they land, or by halves where a fence comes with it.
template <int group> __device__ __forceinline__ void start_scores(const block_state &b, unsigned parity, float (&s)[32])
{
    const unsigned long long q = wgmma_descriptor(b.base, 0, 1024);
    const unsigned long long k = wgmma_descriptor(b.stage(group), 0, 1024);
#pragma unroll
    for (int position = 0; position < runs; position++) {
        const int n = run_at(group, position);
        if (!gathers || position == latent_runs)
            wait_runs<1>(b, group, n, parity);
        else if (position % (latent_runs / 2) == 0)
            wait_runs<latent_runs / 2>(b, group, n, parity);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < (position == latent_runs ? 4 : 4 * run); step++) {
            const int offset = (n * run + step / 4) * (cell >> 4) + step % 4 * (32 >> 4);
            wgmma_n64<element>(s, q + offset, k + offset, position + step > 0);
        }
    }
    wgmma_commit();
}

// Rows of the cache beyond the length must not even be multiplied by zero.
template <int group> __device__ __forceinline__ void clear_rows(const block_state &b, int stage, int valid)
{
    const int thread = threadIdx.x % 128;
    for (int i = thread; i < (rows - valid) * 32; i += 128) {
        const int row = valid + i / 32, chunk = i % 32;
        store_shared(b.stage(stage) + (4 * group + chunk / 8) * cell + row * 128 + chunk % 8 * 16,
                     make_float4(0.f, 0.f, 0.f, 0.f));
    }
    fence_proxy_async();
    barrier_sync(group_barrier + group, 128);
}

// Probabilities of scores relative to M as fragments, and what the thread has of the rows' sums of them.
__device__ __forceinline__ void exponentiate(const float (&s)[32], const float (&maximum)[2], float scale, unsigned (&packed)[16],
                                             float (&sum)[2])
{
    const float minus[2] = {maximum[0] == minus_infinity() ? 0.f : maximum[0], maximum[1] == minus_infinity() ? 0.f : maximum[1]};
    sum[0] = sum[1] = 0.f;
#pragma unroll
    for (int i = 0; i < 16; i++) {
        const int h = i % 2;
        const float a = exp2_fast(fmaf(s[2 * i], scale, -minus[h])), b = exp2_fast(fmaf(s[2 * i + 1], scale, -minus[h]));
        sum[h] += a + b; // before their rounding: M is not always the maximum, so the greatest may be rounded, too
        packed[i] = pack2<element>(a, b);
    }
}

// Moves M on to the rows' maxima where they are more than 2^LAZY above it.
__device__ __forceinline__ void move_maximum(float (&maximum)[2], const float (&s)[32], float scale)
{
    float to[2] = {s[0], s[2]};
#pragma unroll
    for (int i = 0; i < 32; i++)
        to[i / 2 % 2] = fmaxf(to[i / 2 % 2], s[i]);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        to[h] = fmaxf(to[h], __shfl_xor_sync(0xffffffffu, to[h], 1));
        to[h] = fmaxf(to[h], __shfl_xor_sync(0xffffffffu, to[h], 2)) * scale;
        maximum[h] = to[h] > maximum[h] + lazy ? to[h] : maximum[h];
    }
}

// Turns scores into probabilities relative to M. Whether M must move is seen from the probabilities' sums, so that nearly
// always no maximum is looked for. The output may be in flight: it follows later.
__device__ __forceinline__ void softmax(const gen_mla_decode_params &p, const group_state &g, float (&s)[32], int first,
                                        const int (&limit)[2], tile_probabilities &t)
{
    const int column = first + 2 * (threadIdx.x % 4);
    const float scale = fmaxf(fabsf(p.scale_log2), 1e-37f); // times infinity it is no NaN
    if (p.scale_log2 < 0.f) {
#pragma unroll
        for (int i = 0; i < 32; i++)
            s[i] = -s[i];
    }
    if (first + rows > min(limit[0], limit[1])) {
#pragma unroll
        for (int i = 0; i < 32; i++)
            if (column + i / 4 * 8 + i % 2 >= limit[i / 2 % 2])
                s[i] = minus_infinity();
    }
    t.maximum[0] = g.maximum[0], t.maximum[1] = g.maximum[1];
    bool moved = __any_sync(0xffffffffu, fminf(g.maximum[0], g.maximum[1]) == minus_infinity());
    if (moved)
        move_maximum(t.maximum, s, scale);
#pragma unroll 1
    for (;; moved = true) {
        exponentiate(s, t.maximum, scale, t.packed, t.sum);
        if (moved || !__any_sync(0xffffffffu, !(fmaxf(t.sum[0], t.sum[1]) <= most_sum)))
            break;
        move_maximum(t.maximum, s, scale);
    }
}

// Gives the probabilities of the group's stage, and what they are relative to, to the other group.
template <int group>
__device__ __forceinline__ void publish(const block_state &b, const tile_probabilities &t)
{
    const int thread = threadIdx.x % 128, lane = thread % 32, row = thread / 32 * 16 + lane / 4;
    const unsigned to = b.stage(group) + 8 * cell + thread * 16;
#pragma unroll
    for (int i = 0; i < 4; i++)
        store_shared_16(to + i * 2048, t.packed[4 * i], t.packed[4 * i + 1], t.packed[4 * i + 2], t.packed[4 * i + 3]);
    if (lane % 4 == 0) {
        b.c->maximum[group][row] = t.maximum[0];
        b.c->maximum[group][row + 8] = t.maximum[1];
    }
    barrier_arrive(probabilities_ready + group, 256);
}

// Takes those of the other group's stage. Where they and the output are relative to different maxima, both go over to the
// greater one. No output may be in flight.
template <int other>
__device__ __forceinline__ void take(const block_state &b, group_state &g, unsigned (&packed)[16])
{
    const int thread = threadIdx.x % 128, row = thread / 32 * 16 + thread % 32 / 4;
    const unsigned from = b.stage(other) + 8 * cell + thread * 16;
    barrier_sync(probabilities_ready + other, 256);
#pragma unroll
    for (int i = 0; i < 4; i++)
        load_shared_16(from + i * 2048, packed[4 * i], packed[4 * i + 1], packed[4 * i + 2], packed[4 * i + 3]);
    const float theirs[2] = {b.c->maximum[other][row], b.c->maximum[other][row + 8]};
    if (__any_sync(0xffffffffu, theirs[0] != g.maximum[0] || theirs[1] != g.maximum[1])) {
        const float to[2] = {fmaxf(theirs[0], g.maximum[0]), fmaxf(theirs[1], g.maximum[1])};
        const float factor[2] = {theirs[0] == to[0] ? 1.f : exp2_fast(theirs[0] - to[0]), theirs[1] == to[1] ? 1.f : exp2_fast(theirs[1] - to[1])};
#pragma unroll
        for (int i = 0; i < 16; i++) {
            const float2 x = to_float2<element>(packed[i]);
            packed[i] = pack2<element>(x.x * factor[i % 2], x.y * factor[i % 2]);
        }
        g.go_over(to);
    }
}

// Asks for probabilities times the group's half of a stage's columns, added to the output.
template <int group, int stage>
__device__ __forceinline__ void start_values(const block_state &b, group_state &g, const unsigned (&packed)[16], int valid)
{
    const unsigned long long values = wgmma_descriptor(b.stage(stage) + group * 4 * cell, cell, 1024);
    if (!gathers && valid < rows)
        clear_rows<group>(b, stage, valid);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < 4; step++) {
        const unsigned a[4] = {packed[4 * step], packed[4 * step + 1], packed[4 * step + 2], packed[4 * step + 3]};
        wgmma_n256_mn<element>(g.o, a, values + step * (2048 >> 4), g.started || step > 0);
    }
    wgmma_commit();
    g.started = true;
}

// Waits for them. The stage's half is free afterwards, but for the piece's last one: the output goes through it.
template <int group, int stage> __device__ __forceinline__ void finish_values(const block_state &b, bool last)
{
    if (!gathers && stage != group)
        fence_proxy_async(); // the probabilities were read as threads do; what overwrites them is the copy engine
    wgmma_wait<0>();
    __syncwarp(); // one lane tells for all
    if (!last && threadIdx.x % 32 == 0)
        mbarrier_arrive(b.empty(stage, group));
}

} // namespace
