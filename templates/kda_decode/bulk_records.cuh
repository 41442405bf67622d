// What a warp of bulk.cuh makes of a state's records, and of its token's inputs: coefficients, decays, and the record that is
// left behind.
#pragma once

#include "kda_decode/bulk.cuh"
#include "lib/ptx/math.cuh"
#include "lib/reduce.cuh"

// ---- records ----

// Four neighbouring elements of 16 bits, of fp32, or of either.
__device__ __forceinline__ void four_halves(float (&x)[4], uint2 words, bool is_fp16)
{
    const float4 y = is_fp16 ? to_float4<fp16>(words) : to_float4<bf16>(words);
    x[0] = y.x, x[1] = y.y, x[2] = y.z, x[3] = y.w;
}

__device__ __forceinline__ void four_floats(float (&x)[4], float4 y)
{
    x[0] = y.x, x[1] = y.y, x[2] = y.z, x[3] = y.w;
}

// Decays of a head's gates, in base 2.
struct bulk_gates {
    int form;
    float slope, shift[4], bound; // of the lower bound; else `slope` is -exp(a_log) and `shift` the bias

    __device__ __forceinline__ bulk_gates(const gen_kda_decode_replay_params &p, const float (&bias)[4], float a_log)
    {
        form = p.gate_form;
        slope = -expf(a_log);
        bound = p.lower_bound * log2_e;
        if (form == GEN_KDA_GATE_LOWER_BOUND)
            slope *= log2_e;
#pragma unroll
        for (int c = 0; c < 4; c++)
            shift[c] = form == GEN_KDA_GATE_LOWER_BOUND ? bias[c] * slope : bias[c];
    }
    template <int n> __device__ __forceinline__ void decays(float (&g)[n][4]) const
    {
        if (form == GEN_KDA_GATE_LOWER_BOUND) {
#pragma unroll
            for (int i = 0; i < n; i++)
#pragma unroll
                for (int c = 0; c < 4; c++)
                    g[i][c] = exp2_fast(bound * rcp_fast(1.f + exp2_fast(fmaf(g[i][c], slope, shift[c]))));
        } else if (form == GEN_KDA_GATE_GIVEN) {
#pragma unroll
            for (int i = 0; i < n; i++)
#pragma unroll
                for (int c = 0; c < 4; c++)
                    g[i][c] = exp2_fast(g[i][c] * log2_e);
        } else {
#pragma unroll
            for (int i = 0; i < n; i++)
#pragma unroll
                for (int c = 0; c < 4; c++) {
                    const float x = g[i][c] + shift[c];
                    g[i][c] = exp2_fast(slope * log2_e * (x > 20.f ? x : log1pf(__expf(x))));
                }
        }
    }
};

// The token's inputs in the lane's channels; q is scaled.
struct bulk_token_inputs {
    float q[4], k[4], decay[4];
    uint2 k_bits;
    uint4 gate_bits;
    float qk;       // q . k
    float k_bound2; // squares of numbers that no |k| and no |q| is above
    float q_bound2;
};

__device__ __forceinline__ float square_sum(const float (&x)[4])
{
    return warp_sum(x[0] * x[0] + x[1] * x[1] + x[2] * x[2] + x[3] * x[3]);
}

__device__ __forceinline__ void load_token(const gen_kda_decode_replay_params &p, const unsigned char *buffer,
                                           const bulk_gates &gates, bulk_token_inputs &x)
{
    constexpr int row = 2 * bulk_width;
    const unsigned lane = threadIdx.x % 32;
    const bool is_fp16 = p.dtype == kda_fp16;
    four_halves(x.q, *reinterpret_cast<const uint2 *>(buffer + lane * 8), is_fp16);
    four_halves(x.k, *reinterpret_cast<const uint2 *>(buffer + row + lane * 8), is_fp16);
    float q_factor = p.scale, k_factor = 1.f;
    const float qq = square_sum(x.q), kk = square_sum(x.k);
    if (p.qk_l2norm) {
        q_factor *= rsqrtf(qq + 1e-6f);
        k_factor = rsqrtf(kk + 1e-6f);
    }
    if (is_fp16)
        x.k_bits = make_uint2(pack2<fp16>(k_factor * x.k[0], k_factor * x.k[1]),
                              pack2<fp16>(k_factor * x.k[2], k_factor * x.k[3]));
    else
        x.k_bits = make_uint2(pack2<bf16>(k_factor * x.k[0], k_factor * x.k[1]),
                              pack2<bf16>(k_factor * x.k[2], k_factor * x.k[3]));
    four_halves(x.k, x.k_bits, is_fp16);
    float qk = 0.f;
#pragma unroll
    for (int c = 0; c < 4; c++) {
        x.q[c] *= q_factor;
        qk = fmaf(x.q[c], x.k[c], qk);
    }
    x.qk = warp_sum(qk);
    x.k_bound2 = kk * k_factor * k_factor;
    x.q_bound2 = qq * q_factor * q_factor;
    float g[1][4];
    if (p.gate_dtype == kda_fp32) {
        x.gate_bits = *reinterpret_cast<const uint4 *>(buffer + 3 * row + lane * 16);
        four_floats(g[0], *reinterpret_cast<const float4 *>(buffer + 3 * row + lane * 16));
    } else {
        const uint2 bits = *reinterpret_cast<const uint2 *>(buffer + 3 * row + lane * 8);
        x.gate_bits = make_uint4(bits.x, bits.y, 0, 0);
        four_halves(g[0], bits, p.gate_dtype == kda_fp16);
    }
    gates.decays(g);
#pragma unroll
    for (int c = 0; c < 4; c++)
        x.decay[c] = g[0][c];
}

// Four channels of fp32 in the cells that a record's k and gate came to: the upper halves, and the lower ones. Those of
// fp32 gates hold all of it.
template <class Layout>
__device__ __forceinline__ void keep_decayed(const gen_kda_decode_replay_params &p, const Layout &layout,
                                             unsigned char *buffer, int record, const float (&kw)[4])
{
    const unsigned at = record * bulk_width + threadIdx.x % 32 * 4;
    if (p.gate_dtype == kda_fp32) {
        *reinterpret_cast<float4 *>(buffer + layout.records_g + at * 4) = make_float4(kw[0], kw[1], kw[2], kw[3]);
        return;
    }
    unsigned bits[4];
#pragma unroll
    for (int c = 0; c < 4; c++)
        bits[c] = __float_as_uint(kw[c]);
    *reinterpret_cast<uint2 *>(buffer + layout.records_k + at * 2) =
        make_uint2(__byte_perm(bits[0], bits[1], 0x7632), __byte_perm(bits[2], bits[3], 0x7632));
    *reinterpret_cast<uint2 *>(buffer + layout.records_g + at * 2) =
        make_uint2(__byte_perm(bits[0], bits[1], 0x5410), __byte_perm(bits[2], bits[3], 0x5410));
}

template <class Layout>
__device__ __forceinline__ float4 decayed(const gen_kda_decode_replay_params &p, const Layout &layout,
                                          const unsigned char *buffer, int record)
{
    const unsigned at = record * bulk_width + threadIdx.x % 32 * 4;
    if (p.gate_dtype == kda_fp32)
        return *reinterpret_cast<const float4 *>(buffer + layout.records_g + at * 4);
    const uint2 high = *reinterpret_cast<const uint2 *>(buffer + layout.records_k + at * 2);
    const uint2 low = *reinterpret_cast<const uint2 *>(buffer + layout.records_g + at * 2);
    return make_float4(
        __uint_as_float(__byte_perm(low.x, high.x, 0x5410)), __uint_as_float(__byte_perm(low.x, high.x, 0x7632)),
        __uint_as_float(__byte_perm(low.y, high.y, 0x5410)), __uint_as_float(__byte_perm(low.y, high.y, 0x7632)));
}

// k and the decays of a batch of records, the first `newest` and the others older; behind the oldest k = 0 and no decay.
template <class Layout>
__device__ __forceinline__ void load_batch(const gen_kda_decode_replay_params &p, const Layout &layout,
                                           const unsigned char *buffer, int newest, const bulk_gates &gates,
                                           float (&k)[bulk_batch][4], float (&e)[bulk_batch][4])
{
    const unsigned lane = threadIdx.x % 32;
    uint2 k_bits[bulk_batch];
#pragma unroll
    for (int i = 0; i < bulk_batch; i++) {
        k_bits[i] = make_uint2(0, 0);
        if (i <= newest)
            k_bits[i] = *reinterpret_cast<const uint2 *>(buffer + layout.records_k + (newest - i) * (2 * bulk_width) +
                                                         lane * 8);
    }
    if (p.gate_dtype == kda_fp32) {
#pragma unroll
        for (int i = 0; i < bulk_batch; i++)
            four_floats(e[i], *reinterpret_cast<const float4 *>(buffer + layout.records_g +
                                                                max(newest - i, 0) * (4 * bulk_width) + lane * 16));
    } else {
        uint2 g_bits[bulk_batch];
#pragma unroll
        for (int i = 0; i < bulk_batch; i++)
            g_bits[i] = *reinterpret_cast<const uint2 *>(buffer + layout.records_g +
                                                         max(newest - i, 0) * (2 * bulk_width) + lane * 8);
        if (p.gate_dtype == kda_fp16)
#pragma unroll
            for (int i = 0; i < bulk_batch; i++)
                four_halves(e[i], g_bits[i], true);
        else
#pragma unroll
            for (int i = 0; i < bulk_batch; i++)
                four_halves(e[i], g_bits[i], false);
    }
    if (p.dtype == kda_fp16)
#pragma unroll
        for (int i = 0; i < bulk_batch; i++)
            four_halves(k[i], k_bits[i], true);
    else
#pragma unroll
        for (int i = 0; i < bulk_batch; i++)
            four_halves(k[i], k_bits[i], false);
    gates.decays(e);
}

// Replays all records in the lane's channels: to coefficients[] the sums of k . kw and q . kw; on return w is all decays.
template <class Layout>
__device__ __forceinline__ void replay_records(const gen_kda_decode_replay_params &p, const Layout &layout,
                                               const bulk_info &info, unsigned char *buffer, const bulk_gates &gates,
                                               const bulk_token_inputs &token, float (&w)[4], float *coefficients)
{
    const unsigned lane = threadIdx.x % 32;
#pragma unroll
    for (int c = 0; c < 4; c++)
        w[c] = token.decay[c];
#pragma unroll 1
    for (int done = 0; done < info.records; done += bulk_batch) {
        const int newest = info.records - 1 - done;
        float k[bulk_batch][4], e[bulk_batch][4], sums[2 * bulk_batch];
        load_batch(p, layout, buffer, newest, gates, k, e);
#pragma unroll
        for (int i = 0; i < bulk_batch; i++) {
            sums[i] = sums[bulk_batch + i] = 0.f;
#pragma unroll
            for (int c = 0; c < 4; c++) {
                k[i][c] *= w[c];
                w[c] = i <= newest ? w[c] * e[i][c] : w[c];
                sums[i] = fmaf(token.k[c], k[i][c], sums[i]);
                sums[bulk_batch + i] = fmaf(token.q[c], k[i][c], sums[bulk_batch + i]);
            }
        }
        if (info.flags & bulk_fold)
#pragma unroll
            for (int i = 0; i < bulk_batch; i++)
                if (i <= newest)
                    keep_decayed(p, layout, buffer, newest - i, k[i]);
        reduce_rows<2 * bulk_batch, 32>(sums);
        if (lane % 4 == 0)
            coefficients[2 * done + lane / 4] = sums[0];
    }
}

// ---- rows ----

// What the records add to k . S and q . S of row i.
template <class Layout>
__device__ __forceinline__ float2 of_records(const gen_kda_decode_replay_params &p, const Layout &layout,
                                             const bulk_info &info, const unsigned char *buffer, unsigned i,
                                             const float *coefficients)
{
    float2 sums = make_float2(0.f, 0.f);
#pragma unroll 1
    for (int done = 0; done < info.records; done += bulk_batch) {
        const int newest = info.records - 1 - done;
        float u[bulk_batch], k[4], q[4];
        four_floats(k, *reinterpret_cast<const float4 *>(coefficients + 2 * done));
        four_floats(q, *reinterpret_cast<const float4 *>(coefficients + 2 * done + bulk_batch));
        if (p.ring_fp16)
#pragma unroll
            for (int j = 0; j < bulk_batch; j++)
                u[j] = to_float<fp16>(reinterpret_cast<const unsigned short *>(
                    buffer + layout.records_u)[max(newest - j, 0) * bulk_width + i]);
        else
#pragma unroll
            for (int j = 0; j < bulk_batch; j++)
                u[j] = reinterpret_cast<const float *>(buffer + layout.records_u)[max(newest - j, 0) * bulk_width + i];
#pragma unroll
        for (int j = 0; j < bulk_batch; j++) {
            const float x = j <= newest ? u[j] : 0.f;
            sums.x = fmaf(k[j], x, sums.x);
            sums.y = fmaf(q[j], x, sums.y);
        }
    }
    return sums;
}

// u of a record in n rows from `row` on, a multiple of 8.
template <int n, class Layout>
__device__ __forceinline__ void record_u(const gen_kda_decode_replay_params &p, const Layout &layout,
                                         const unsigned char *buffer, int record, unsigned row, float (&u)[n])
{
    const unsigned at = record * bulk_width + row;
    if (p.ring_fp16) {
#pragma unroll
        for (int i = 0; i < n; i += 8) {
            const uint4 x = *reinterpret_cast<const uint4 *>(buffer + layout.records_u + (at + i) * 2);
            const unsigned words[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const float2 y = to_float2<fp16>(words[j]);
                u[i + 2 * j] = y.x;
                u[i + 2 * j + 1] = y.y;
            }
        }
    } else {
#pragma unroll
        for (int i = 0; i < n; i += 4) {
            const float4 x = *reinterpret_cast<const float4 *>(buffer + layout.records_u + (at + i) * 4);
            u[i] = x.x, u[i + 1] = x.y, u[i + 2] = x.z, u[i + 3] = x.w;
        }
    }
}

// Where this token's record goes: the elements in front of the head's in each array.
struct bulk_record {
    long long k, g, u;

    __device__ __forceinline__ bulk_record(const gen_kda_decode_replay_params &p, const bulk_info &info,
                                           unsigned v_head, unsigned qk_head)
    {
        int position = info.base + info.records;
        position -= position >= p.ring_size ? p.ring_size : 0;
        const long long slot = info.slot;
        const long long row = (static_cast<long long>(v_head) * p.ring_size + position) * bulk_width;
        k = slot * p.ring_k_stride + (static_cast<long long>(qk_head) * p.ring_size + position) * bulk_width;
        g = slot * p.ring_g_stride + row;
        u = slot * p.ring_u_stride + row;
    }
};

// k and gate of this token's record; `first`: the value head is its group's first, which keeps the key.
__device__ __forceinline__ void store_inputs(const gen_kda_decode_replay_params &p, const bulk_record &at,
                                             const bulk_token_inputs &token, bool first)
{
    const unsigned channel = threadIdx.x % 32 * 4;
    if (p.gate_dtype == kda_fp32) {
        const unsigned bits[4] = {token.gate_bits.x, token.gate_bits.y, token.gate_bits.z, token.gate_bits.w};
        st_global_v4_u32(static_cast<unsigned *>(p.ring_g) + at.g + channel, bits);
    } else {
        st_global_v2_u32(static_cast<unsigned short *>(p.ring_g) + at.g + channel, token.gate_bits.x,
                         token.gate_bits.y);
    }
    if (first)
        st_global_v2_u32(static_cast<unsigned short *>(p.ring_k) + at.k + channel, token.k_bits.x, token.k_bits.y);
}
