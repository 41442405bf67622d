// Kimi Delta Attention between chunks (args.h): a block takes a sequence's chunks in turn, for 64 columns of V a group of
// four warps.
//
// The state is held transposed, V x K, in the accumulators of the products that add to it. Rounded, an accumulator is the
// next product's left operand as it stands, so nothing of the chain goes through shared memory:
//
//     vn' = u' + S' (-w)'      o' = S' qg' + vn' A_qk'      S' = S' diag(decay) + vn' kg
//
// A sequence may be cut into segments whose blocks run side by side (`segmented`): kda_scan has computed what each one does to a
// state, and a block first takes its sequence's state through those before its own, then its own chunks.
//
// A thread has, of 64 x n, rows row and row + 8 of its warp's 16, columns 8 t + 2 (lane % 4) + {0, 1} in elements 4 t to
// 4 t + 3: for mma.sync as for wgmma.
#pragma once

#include "kda_inter/args.h"
#include "kda/sequences.cuh"
#include "lib/half.cuh"
#include "lib/ptx/cp_async.cuh"
#include "lib/ptx/ldst.cuh"
#include "lib/ptx/mbarrier.cuh"
#include "lib/ptx/mma.cuh"
#include "lib/ptx/sync.cuh"
#include "lib/ptx/tma.cuh"
#include "lib/ptx/wgmma.cuh"
#include "lib/swizzle.cuh"

template <class element, int head_dim, int groups, int stages, bool wgmma, bool segmented> struct kda_recurrence {
    static constexpr int rows = KDA_CHUNK, cell = rows * 128, tile = head_dim / 64 * cell;
    static constexpr int threads = groups * 128; // that compute

    // A stage: the operands of a chunk.
    static constexpr int w = 0, qg = tile, kg = 2 * tile, a_qk = 3 * tile, u = a_qk + cell, decay = u + groups * cell;
    static constexpr int stage_bytes = decay + 1024;
    // Behind the stages lie the outputs on their way to memory, with wgmma two places of a group in alternation; then
    // barriers, full and empty in alternation; then a number; then one number a warp.
    static constexpr int outputs = stages * stage_bytes, turns = wgmma ? 2 : 1;
    static constexpr int barriers = outputs + groups * turns * cell;
    static constexpr int shared = barriers + 128;

    // Of kda_scan: what a segment adds, of 64 columns of V; its transition, in two 16-bit parts, which a stage holds.
    // Behind it are the segment's decays.
    static constexpr int added_floats = 64 * head_dim, transition_bytes = head_dim / 64 * 2 * tile,
                         segment_decay = transition_bytes;
    static_assert(segment_decay + head_dim * 4 <= stage_bytes, "a stage holds a transition");

    struct work {
        unsigned base; // shared address
        kda_sequence sequence;
        int n, head, part; // sequence, head, which of the head's columns of V
        int begin, end;    // chunks
        // The sequence's segments, where it has several: slot of the first, which is the block's, of how many.
        int segment, number, count;

        __device__ __forceinline__ unsigned stage(int s) const { return base + s * stage_bytes; }
        __device__ __forceinline__ unsigned full(int s) const { return base + barriers + s * 16; }
        __device__ __forceinline__ unsigned empty(int s) const { return base + barriers + s * 16 + 8; }
        __device__ __forceinline__ long long record(const gen_kda_inter_params &p, int chunk) const
        {
            return static_cast<long long>(sequence.slot + chunk) * p.num_v_heads + head;
        }
        __device__ __forceinline__ long long segment_record(const gen_kda_inter_params &p, int i) const
        {
            return static_cast<long long>(segment + i) * p.num_v_heads + head;
        }
        // Segments whose transition the state goes through: what the first one adds is a state.
        __device__ __forceinline__ int transitions() const { return segmented ? max(number - 1, 0) : 0; }
    };

    // ---- operands ----

    static __device__ __forceinline__ const unsigned char *part_of(const void *tensor, long long record, int bytes)
    {
        return static_cast<const unsigned char *>(tensor) + record * bytes;
    }

    // One lane issues the copies of a chunk's operands.
    static __device__ __forceinline__ void ask(const gen_kda_inter_params &p, const work &b, int chunk, int s,
                                               unsigned long long policy)
    {
        const long long record = b.record(p, chunk);
        const unsigned to = b.stage(s), full = b.full(s);
        mbarrier_arrive_expect_tx(full, 3 * tile + cell + groups * cell + head_dim * 4);
        bulk_load<true>(to + w, part_of(p.w, record, tile), tile, full, policy);
        bulk_load<true>(to + u, part_of(p.u, record, tile) + b.part * groups * cell, groups * cell, full, policy);
        bulk_load<true>(to + qg, part_of(p.qg, record, tile), tile, full, policy);
        bulk_load<true>(to + decay, p.decay + record * head_dim, head_dim * 4, full, policy);
        bulk_load<true>(to + kg, part_of(p.kg, record, tile), tile, full, policy);
        bulk_load<true>(to + a_qk, part_of(p.a_qk, record, cell), cell, full, policy);
    }

    static __device__ __forceinline__ void ask_transition(const gen_kda_inter_params &p, const work &b, int i, int s)
    {
        const long long record = b.segment_record(p, i);
        mbarrier_arrive_expect_tx(b.full(s), transition_bytes + head_dim * 4);
        bulk_load<false>(b.stage(s), part_of(p.transition, record, transition_bytes), transition_bytes, b.full(s), 0);
        bulk_load<false>(b.stage(s) + segment_decay, p.segment_decay + record * head_dim, head_dim * 4, b.full(s), 0);
    }

    static __device__ __forceinline__ void feed(const gen_kda_inter_params &p, const work &b)
    {
        const unsigned long long policy = policy_evict_first();
        const int before = b.transitions(), steps = before + b.end - b.begin;
        for (int step = 0; step < steps; step++) {
            const int s = step % stages;
            if (step >= stages)
                mbarrier_wait(b.empty(s), (step / stages - 1) & 1);
            __syncwarp();
            if (elect_one()) {
                if (segmented && step < before)
                    ask_transition(p, b, 1 + step, s);
                else
                    ask(p, b, b.begin + step - before, s, policy);
            }
        }
    }

    // Every thread copies its part, without TMA.
    static __device__ __forceinline__ void copy(unsigned to, const unsigned char *from, int bytes)
    {
        for (int i = threadIdx.x * 16; i < bytes; i += threads * 16)
            cp_async_16<false>(to + i, from + i, 0);
    }

    static __device__ __forceinline__ void copy_all(const gen_kda_inter_params &p, const work &b, int chunk)
    {
        const long long record = b.record(p, chunk);
        copy(b.base + w, part_of(p.w, record, tile), tile);
        copy(b.base + u, part_of(p.u, record, tile) + b.part * groups * cell, groups * cell);
        copy(b.base + qg, part_of(p.qg, record, tile), tile);
        copy(b.base + decay, part_of(p.decay, record, head_dim * 4), head_dim * 4);
        copy(b.base + kg, part_of(p.kg, record, tile), tile);
        copy(b.base + a_qk, part_of(p.a_qk, record, cell), cell);
        cp_async_commit_group();
        cp_async_wait_group<0>();
        __syncthreads();
    }

    // ---- products ----

    // d += a b', b with 64 rows, `steps` times 16 columns: K-major.
    template <int steps>
    static __device__ __forceinline__ void times_rows(float (&d)[32], const unsigned (&a)[steps][4], unsigned b)
    {
        if constexpr (wgmma) {
            const unsigned long long matrix = wgmma_descriptor(b, 0, 1024);
#pragma unroll
            for (int k = 0; k < steps; k++)
                wgmma_regs<element, false>(d, a[k], matrix + ((k / 4 * cell + k % 4 * 32) >> 4));
            wgmma_commit_group();
        } else {
            const int lane = threadIdx.x % 32, row = lane / 16 * 8 + lane % 8;
#pragma unroll
            for (int k = 0; k < steps; k++)
#pragma unroll
                for (int n = 0; n < 4; n++) {
                    unsigned x[4];
                    ldmatrix_x4(x, swizzled<128>(b + k / 4 * cell, 16 * n + row, k % 4 * 2 + lane / 8 % 2));
                    multiply(d, 2 * n, a[k], x);
                }
        }
    }

    // d += a b, b with 64 rows, head_dim columns: MN-major. Of a, four times 16 columns from step `first` on.
    template <int first, int steps>
    static __device__ __forceinline__ void times_columns(float (&d)[head_dim / 2], const unsigned (&a)[steps][4],
                                                         unsigned b)
    {
        if constexpr (wgmma) {
            const unsigned long long matrix = wgmma_descriptor(b, cell, 1024);
#pragma unroll
            for (int k = 0; k < 4; k++)
                wgmma_regs<element, true>(d, a[first + k], matrix + (k * 2048 >> 4));
            wgmma_commit_group();
        } else {
            const int lane = threadIdx.x % 32;
#pragma unroll
            for (int k = 0; k < 4; k++)
#pragma unroll
                for (int n = 0; n < head_dim / 16; n++) {
                    unsigned x[4];
                    ldmatrix_x4_trans(x, swizzled<128>(b + n / 4 * cell, 16 * k + lane % 16, n % 4 * 2 + lane / 16));
                    multiply(d, 2 * n, a[first + k], x);
                }
        }
    }

    // Tiles t and t + 1 of 8 columns.
    template <int size>
    static __device__ __forceinline__ void multiply(float (&d)[size], int t, const unsigned (&a)[4],
                                                    const unsigned (&b)[4])
    {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float x[4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                x[i] = d[4 * (t + h) + i];
            mma_m16n8k16<element>(x, a, b[2 * h], b[2 * h + 1]);
#pragma unroll
            for (int i = 0; i < 4; i++)
                d[4 * (t + h) + i] = x[i];
        }
    }

    // An accumulator as the left operand.
    template <int steps, int size>
    static __device__ __forceinline__ void as_operand(const float (&d)[size], unsigned (&a)[steps][4])
    {
        static_assert(size == steps * 8, "all of it");
#pragma unroll
        for (int k = 0; k < steps; k++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                a[k][i] = pack2<element>(d[8 * k + 2 * i], d[8 * k + 2 * i + 1]);
    }

    // ---- state ----

    // Of the thread's elements 4 t + 2 h + {0, 1}, the place in a state; h: row + 8.
    static __device__ __forceinline__ long long state_at(const gen_kda_inter_params &p, const work &b, int v, int k)
    {
        const long long state = static_cast<long long>(b.n) * p.num_v_heads + b.head;
        return state * (head_dim * head_dim) + (p.state_vk ? v * head_dim + k : k * head_dim + v);
    }

    static __device__ __forceinline__ void load_state(const gen_kda_inter_params &p, const work &b, int row,
                                                      float (&s)[head_dim / 2])
    {
#pragma unroll
        for (int i = 0; i < head_dim / 2; i++)
            s[i] = 0.f;
        if (!p.initial_state)
            return;
#pragma unroll
        for (int i = 0; i < head_dim / 2; i++)
            s[i] = ld_global(p.initial_state +
                             state_at(p, b, row + i / 2 % 2 * 8, i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2));
    }

    static __device__ __forceinline__ void store_state(const gen_kda_inter_params &p, const work &b, int row,
                                                       const float (&s)[head_dim / 2])
    {
        if (!p.final_state)
            return;
#pragma unroll
        for (int i = 0; i < head_dim / 2; i++)
            p.final_state[state_at(p, b, row + i / 2 % 2 * 8, i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2)] = s[i];
    }

    // Stores the state before a chunk, rounded as the left operand has it, from row `row` on. A chunk number out of range, which
    // follows from wrong cu_seqlens and can be negative, is skipped.
    static __device__ __forceinline__ void store_states(const gen_kda_inter_params &p, const work &b, int chunk,
                                                        int row, const unsigned (&a)[head_dim / 16][4])
    {
        if (static_cast<unsigned>(chunk) >= static_cast<unsigned>(p.num_states))
            return;
        const long long record = static_cast<long long>(chunk) * p.num_v_heads + b.head;
        unsigned short *const to = static_cast<unsigned short *>(p.states) + record * (head_dim * head_dim);
#pragma unroll
        for (int k = 0; k < head_dim / 16; k++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int v = row + i % 2 * 8, channel = 16 * k + i / 2 * 8 + threadIdx.x % 4 * 2;
                if (p.state_vk) {
                    *reinterpret_cast<unsigned *>(to + v * head_dim + channel) = a[k][i];
                } else {
                    to[channel * head_dim + v] = static_cast<unsigned short>(a[k][i]);
                    to[(channel + 1) * head_dim + v] = static_cast<unsigned short>(a[k][i] >> 16);
                }
            }
    }

    static __device__ __forceinline__ void load_u(unsigned from, float (&x)[32])
    {
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            unsigned word[4];
            ld_shared_v4_u32(from + ((warp * 4 + i) * 32 + lane) * 16, word[0], word[1], word[2], word[3]);
#pragma unroll
            for (int n = 0; n < 4; n++) {
                const float2 both = to_float2<element>(word[n]);
                x[8 * i + 2 * n] = both.x, x[8 * i + 2 * n + 1] = both.y;
            }
        }
    }

    static __device__ __forceinline__ void decay_state(unsigned from, float (&s)[head_dim / 2])
    {
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int t = 0; t < head_dim / 8; t++) {
            const float2 factor = ld_shared_v2_f32(from + (8 * t + lane % 4 * 2) * 4);
            s[4 * t] *= factor.x, s[4 * t + 1] *= factor.y;
            s[4 * t + 2] *= factor.x, s[4 * t + 3] *= factor.y;
        }
    }

    // ---- segments ----

    // A thread's place in what a segment adds: 16 bytes for each 8 columns.
    static __device__ __forceinline__ float *added_of(const gen_kda_inter_params &p, const work &b, int i, int columns)
    {
        const long long record = b.segment_record(p, i) * (head_dim / 64) + columns;
        return p.added + record * added_floats + threadIdx.x % 128 * 4;
    }

    static __device__ __forceinline__ void load_added(const float *from, float (&s)[head_dim / 2])
    {
#pragma unroll
        for (int t = 0; t < head_dim / 8; t++) {
            const float4 x = ld_global_v4_f32<false>(from + t * 512);
            s[4 * t] = x.x, s[4 * t + 1] = x.y, s[4 * t + 2] = x.z, s[4 * t + 3] = x.w;
        }
    }

    static __device__ __forceinline__ void store_added(float *to, const float (&s)[head_dim / 2])
    {
#pragma unroll
        for (int t = 0; t < head_dim / 8; t++)
            st_global_v4_f32<false>(to + t * 512, make_float4(s[4 * t], s[4 * t + 1], s[4 * t + 2], s[4 * t + 3]));
    }

    // s = diag(D) s + added, both from global memory.
    static __device__ __forceinline__ void decay_and_add(const float *decay, const float *from,
                                                         float (&s)[head_dim / 2])
    {
#pragma unroll
        for (int t = 0; t < head_dim / 8; t++) {
            const uint2 factor = ld_global_v2_u32(decay + 8 * t + threadIdx.x % 4 * 2);
            const float4 x = ld_global_v4_f32<false>(from + t * 512);
            s[4 * t] = fmaf(s[4 * t], __uint_as_float(factor.x), x.x);
            s[4 * t + 1] = fmaf(s[4 * t + 1], __uint_as_float(factor.y), x.y);
            s[4 * t + 2] = fmaf(s[4 * t + 2], __uint_as_float(factor.x), x.z);
            s[4 * t + 3] = fmaf(s[4 * t + 3], __uint_as_float(factor.y), x.w);
        }
    }

    // What the first 16 bits leave of an accumulator, in another 16.
    template <int steps, int size>
    static __device__ __forceinline__ void rest_as_operand(const float (&d)[size], const unsigned (&a)[steps][4],
                                                           unsigned (&rest)[steps][4])
    {
#pragma unroll
        for (int k = 0; k < steps; k++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float2 both = to_float2<element>(a[k][i]);
                rest[k][i] = pack2<element>(d[8 * k + 2 * i] - both.x, d[8 * k + 2 * i + 1] - both.y);
            }
    }

    // S' = S' diag(D) + S' R' (kda_scan/args.h). What only decays is multiplied in fp32. The rest is as exact as
    // products of 16-bit numbers allow: both factors are sums of two, and the product of the lesser parts is left out.
    // R' has rows of K in 64s, each first part followed by its rest; D lies behind them.
    static __device__ __forceinline__ void pass(const unsigned (&a)[head_dim / 16][4],
                                                const unsigned (&rest)[head_dim / 16][4], unsigned m,
                                                float (&s)[head_dim / 2])
    {
        start();
        times_columns<0>(s, a, m);
        times_columns<0>(s, rest, m);
        times_columns<0>(s, a, m + tile);
        if constexpr (head_dim > 64) {
            times_columns<4>(s, a, m + 2 * tile);
            times_columns<4>(s, rest, m + 2 * tile);
            times_columns<4>(s, a, m + 3 * tile);
        }
        landed<0>(s);
    }

    // The state before the block's first chunk.
    static __device__ __forceinline__ void begin_state(const gen_kda_inter_params &p, const work &b, int group, int row,
                                                       float (&s)[head_dim / 2])
    {
        if (!segmented || b.count <= 1) {
            load_state(p, b, row, s);
            return;
        }
        const int columns = b.part * groups + group;
        // kda_scan has put it by, for whoever has the last segment may have written the final state over it.
        if (b.number == 0) {
            if (p.initial_state)
                load_added(added_of(p, b, b.count - 1, columns), s);
            else
                load_state(p, b, row, s);
            return;
        }
        load_added(added_of(p, b, 0, columns), s);
        for (int i = 1; i < b.number; i++) {
            const int step = i - 1;
            const unsigned from = b.stage(wgmma ? step % stages : 0);
            unsigned a[head_dim / 16][4], rest[head_dim / 16][4];
            float added[head_dim / 2];
            constexpr bool early = wgmma && groups == 1; // on its way while products are made, if registers hold it
            if constexpr (early)
                load_added(added_of(p, b, i, columns), added);
            if constexpr (wgmma) {
                as_operand(s, a);
                rest_as_operand(s, a, rest);
                mbarrier_wait(b.full(step % stages), step / stages & 1);
                decay_state(from + segment_decay, s);
                pass(a, rest, from, s);
                mbarrier_arrive(b.empty(step % stages));
            } else {
                const long long record = b.segment_record(p, i);
                as_operand(s, a);
                rest_as_operand(s, a, rest);
                decay_and_add(p.segment_decay + record * head_dim, added_of(p, b, i, columns), s);
                copy(b.base, part_of(p.transition, record, transition_bytes), transition_bytes);
                cp_async_commit_group();
                cp_async_wait_group<0>();
                __syncthreads();
                pass(a, rest, from, s);
                __syncthreads();
            }
            if constexpr (wgmma && !early)
                load_added(added_of(p, b, i, columns), added);
            if constexpr (wgmma)
#pragma unroll
                for (int k = 0; k < head_dim / 2; k++)
                    s[k] += added[k];
        }
    }

    // ---- output ----

    // The group's o' to shared memory, [64 tokens][64 columns of V].
    static __device__ __forceinline__ void stage_output(unsigned to, const float (&o)[32])
    {
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
        if constexpr (wgmma) {
#pragma unroll
            for (int t = 0; t < 8; t += 2) { // matrices: rows 0 and 8 of the warp's of tile t, of tile t + 1
                const unsigned x[4] = {
                    pack2<element>(o[4 * t], o[4 * t + 1]), pack2<element>(o[4 * t + 2], o[4 * t + 3]),
                    pack2<element>(o[4 * t + 4], o[4 * t + 5]), pack2<element>(o[4 * t + 6], o[4 * t + 7])};
                stmatrix_x4_trans(swizzled<128>(to, 8 * t + lane / 16 * 8 + lane % 8, 2 * warp + lane / 8 % 2), x);
            }
        } else {
#pragma unroll
            for (int i = 0; i < 32; i++) {
                const int token = i / 4 * 8 + lane % 4 * 2 + i % 2;
                const unsigned at = swizzled<128>(to, token, 2 * warp + i / 2 % 2) + lane / 4 * 2;
                st_shared_u16(at, from_float<element>(o[i]));
            }
        }
    }

    static __device__ __forceinline__ void store_output(const gen_kda_inter_params &p, const work &b, unsigned from,
                                                        int group, int chunk)
    {
        const int line = threadIdx.x % 128 / 8, column = threadIdx.x % 8;
        const int count = b.sequence.length - chunk * rows;
        const long long first = b.sequence.first + chunk * rows;
        unsigned short *const to =
            static_cast<unsigned short *>(p.o) + b.head * head_dim + (b.part * groups + group) * 64 + column * 8;
#pragma unroll
        for (int row = line; row < rows; row += 16) {
            unsigned x[4];
            ld_shared_v4_u32(swizzled<128>(from, row, column), x[0], x[1], x[2], x[3]);
            if (row < count)
                st_global_v4_u32(to + (first + row) * p.o_stride, x);
        }
    }

    // ---- the chain ----

    static __device__ __forceinline__ void calculate(const gen_kda_inter_params &p, const work &b, int group)
    {
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
        const int row = (b.part * groups + group) * 64 + warp * 16 + lane / 4; // of S'
        float s[head_dim / 2];
        begin_state(p, b, group, row, s);
        // Chunks of earlier sequences: kept in shared memory, since registers are few and it is rarely read.
        const unsigned chunks_before = b.base + barriers + 96 + threadIdx.x / 32 * 4;
        if (p.states) {
            st_shared_u32(chunks_before, static_cast<unsigned>(kda_chunks_before(p.sequences, b.n)));
            __syncwarp();
        }
        int step = b.transitions();
        for (int chunk = b.begin; chunk < b.end; chunk++, step++) {
            const unsigned from = b.stage(wgmma ? step % stages : 0);
            unsigned a[head_dim / 16][4];
            as_operand(s, a);
            if (p.states)
                store_states(p, b, ld_shared_s32(chunks_before) + chunk, row, a);
            if constexpr (wgmma)
                mbarrier_wait(b.full(step % stages), step / stages & 1);
            else
                copy_all(p, b, chunk);
            float vn[32], o[32];
            load_u(from + u + group * cell, vn);
#pragma unroll
            for (int i = 0; i < 32; i++)
                o[i] = 0.f;
            decay_state(from + decay, s);
            start();
            times_rows(vn, a, from + w);
            times_rows(o, a, from + qg);
            landed<1>(vn);
            unsigned x[4][4];
            as_operand(vn, x);
            start();
            times_columns<0>(s, x, from + kg);
            times_rows(o, x, from + a_qk);
            landed<0>(s);
            landed<0>(o);
            // Every lane arrives, since racecheck does not see that one lane's arrival orders the others' reads.
            if constexpr (wgmma)
                mbarrier_arrive(b.empty(step % stages));
            // Two places in alternation: a writer has passed the barrier behind which the others had read the place.
            const unsigned place = b.base + outputs + (group * turns + step % turns) * cell;
            stage_output(place, o);
            barrier_sync(1 + group, 128);
            store_output(p, b, place, group, chunk);
            if constexpr (!wgmma)
                __syncthreads(); // the stage and the place are free
        }
        if (!segmented || b.end == b.sequence.chunks())
            store_state(p, b, row, s);
    }

    static __device__ __forceinline__ void start()
    {
        if constexpr (wgmma)
            wgmma_fence();
    }

    template <int pending, int size> static __device__ __forceinline__ void landed(float (&d)[size])
    {
        if constexpr (wgmma) {
            wgmma_wait_group<pending>();
            wgmma_fence_registers(d);
        }
    }

    // Blocks start in the order of their numbers, and the longest sequence should start first: the sequence of rank n
    // is block n's. Where there are many sequences, none dominates, and they keep their order.
    static constexpr int most_ranked = 128;

    static __device__ __forceinline__ int ranked(const gen_kda_sequences &s, unsigned base, int rank)
    {
        if (!s.cu_seqlens || s.batch > most_ranked)
            return rank;
        const int n = threadIdx.x;
        const unsigned lengths = base + outputs, chosen = base + barriers + 64;
        int length = 0;
        if (n < s.batch) {
            length = kda_sequence_at(s, n).length;
            st_shared_u32(lengths + n * 4, static_cast<unsigned>(length));
        }
        __syncthreads();
        if (n < s.batch) {
            int before = 0;
            for (int i = 0; i < s.batch; i++) {
                const int other = ld_shared_s32(lengths + i * 4);
                before += other > length || (other == length && i < n);
            }
            if (before == rank)
                st_shared_u32(chosen, static_cast<unsigned>(n));
        }
        __syncthreads();
        return ld_shared_s32(chosen);
    }

    static __device__ __forceinline__ void run(const gen_kda_inter_params &p, unsigned char *memory)
    {
        work b;
        constexpr int parts = head_dim / 64 / groups;
        b.base = shared_address(memory);
        b.part = blockIdx.x % parts;
        b.head = blockIdx.x / parts;
        if (segmented && p.segment_chunks) {
            const kda_segment at = kda_segment_at(p.sequences, blockIdx.y, p.segment_chunks);
            if (at.number < 0 || at.number >= at.count)
                return;
            b.n = at.n, b.sequence = at.sequence;
            b.segment = at.slot, b.number = at.number, b.count = at.count;
            b.begin = at.number * p.segment_chunks;
            b.end = min(b.begin + p.segment_chunks, at.sequence.chunks());
        } else {
            b.n = ranked(p.sequences, b.base, blockIdx.y);
            b.sequence = kda_sequence_at(p.sequences, b.n);
            b.segment = b.number = b.begin = 0, b.count = 1;
            b.end = b.sequence.chunks();
        }
        if constexpr (wgmma) {
            if (threadIdx.x == 0) {
                for (int s = 0; s < stages; s++) {
                    mbarrier_init(b.full(s), 1);
                    mbarrier_init(b.empty(s), groups * 128);
                }
                fence_mbarrier_init();
            }
            __syncthreads();
            const int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
            if (group == groups) {
                if constexpr (groups > 1)
                    setmaxnreg_dec<24>();
                if (threadIdx.x % 128 < 32)
                    feed(p, b);
            } else {
                if constexpr (groups > 1)
                    setmaxnreg_inc<240>();
                calculate(p, b, group);
            }
        } else {
            calculate(p, b, 0);
        }
    }
};
