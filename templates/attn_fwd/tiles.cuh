// What a tile of the output is: which rows of which request and head, which keys it sees, and where its results go.
#pragma once

#include "attn_fwd/args.h"
#include "lib/half.cuh"
#include "lib/opaque.cuh"
#include "lib/ptx/ldst.cuh"
#include "lib/ptx/math.cuh"

// Which bounds a kernel has code for: its required axis `mask`.
enum attn_mask {
    mask_full,   // every key counts
    mask_causal, // no window, no softcap, not varlen
    mask_any
};

struct attn_tile {
    int request, head, kv_head;
    int first_row, num_rows; // of the request's queries; num_rows <= 0: nothing to do
    int q_len, kv_len;       // of the request
    int q_at, k_at;          // rows of q and of k, v before the request (varlen)
    int shift;               // kv_len - q_len
    int first, last;         // blocks of keys: [first, last)
};

// Rows [cu[b], cu[b + 1]) of a packed tensor of `total` rows, at most `most` of them, clamped so that they exist whatever
// the list holds.
__device__ __forceinline__ int attn_rows(const int *cu, int b, int total, int most, int &at)
{
    at = min(max(ld_global(cu + b), 0), total);
    return min(min(max(ld_global(cu + b + 1), at), total) - at, most);
}

// A tile with fewer rows takes as long as a full one, because its groups' products have nothing beside them. With causality
// the last tile walks over the most keys and the first one over the fewest, so the first tile is the short one, by this
// many rows, a multiple of 64. The other tiles then begin where blocks of keys do, if the keys before the first query allow
// it.
template <int rows> __device__ __forceinline__ int attn_missing_rows(int q_len)
{
    return (rows - (q_len + 63) / 64 * 64 % rows) % rows;
}

// Finds the tile of unit `index`, the second one of two with `second`. The two blocks of a CTA pair share keys and see all
// of them; they do two neighbouring row tiles, of which the second may have no rows.
template <attn_mask mask, int rows, int block, int blocks = 1>
__device__ __forceinline__ attn_tile attn_find_tile(const gen_attn_fwd_params &p, int index, bool second)
{
    static_assert(blocks == 1 || mask == mask_full, "both walk over the same keys");
    attn_tile t;
    const gen_attn_schedule &s = p.schedule;
    const int long_units = s.head_units - s.short_units,
              behind = index - s.all_heads * long_units; // behind all sections, if not below 0
    const unsigned in_section = s.section * long_units;
    const unsigned section = behind < 0 ? static_cast<unsigned>(index) / in_section : 0;
    const unsigned at = behind < 0 ? index - section * in_section : static_cast<unsigned>(behind);
    const unsigned heads =
        behind < 0 ? min(s.section, s.all_heads - static_cast<int>(section) * s.section) // the last section's are fewer
                   : s.all_heads;
    const unsigned in_heads = at / heads, unit = in_heads + (behind < 0 ? 0 : long_units),
                   any_head = section * s.section + at - in_heads * heads;
    int row_tile = s.descending && !second ? s.row_tiles - 1 - static_cast<int>(unit) : static_cast<int>(unit);
    if (blocks > 1)
        row_tile = row_tile * blocks + static_cast<int>(blockIdx.x % blocks);
    t.request = any_head / p.num_q_heads;
    t.head = any_head - t.request * p.num_q_heads;
    t.kv_head = static_cast<unsigned>(t.head) / p.group;
    t.q_len = p.q_len, t.kv_len = p.kv_len, t.q_at = t.k_at = 0;
    if (mask == mask_any && p.cu_q) {
        t.q_len = attn_rows(p.cu_q, t.request, p.total_q, p.q_len, t.q_at);
        t.kv_len = attn_rows(p.cu_k, t.request, p.total_k, p.kv_len, t.k_at);
    }
    const int missing = mask == mask_full || !s.descending ? 0 : attn_missing_rows<rows>(t.q_len);
    t.first_row = max(row_tile * rows - missing, 0);
    t.num_rows = min(t.q_len - t.first_row, row_tile == 0 ? rows - missing : rows);
    if (second && 2 * row_tile + 1 == s.row_tiles) // the middle one is no pair
        t.num_rows = 0;
    t.shift = t.kv_len - t.q_len;
    int end = t.kv_len, begin = 0; // keys that some row sees
    if (mask != mask_full)
        end = min(end, t.first_row + t.num_rows + t.shift + (mask == mask_any ? p.right : 0));
    if (mask == mask_any)
        begin = max(0, t.first_row + t.shift - p.left);
    t.last = end > 0 && (blocks > 1 || t.num_rows > 0) ? (end + block - 1) / block : 0;
    t.first = min(begin / block, t.last);
    return t;
}

// Keys [begin, end) are those that row `row` of the tile's request sees.
template <attn_mask mask>
__device__ __forceinline__ int attn_end(const gen_attn_fwd_params &p, const attn_tile &t, int row)
{
    return mask == mask_full ? t.kv_len : min(t.kv_len, row + t.shift + 1 + (mask == mask_any ? p.right : 0));
}

template <attn_mask mask>
__device__ __forceinline__ int attn_begin(const gen_attn_fwd_params &p, const attn_tile &t, int row)
{
    return mask == mask_any ? row + t.shift - p.left : 0;
}

// Scores become tanh(s / cap): 1 - 2 / (1 + e^2x), for the instruction for tanh is off by 2^-11, times the cap.
template <int n> __device__ __forceinline__ void attn_cap(const gen_attn_fwd_params &p, float (&s)[n])
{
#pragma unroll
    for (int i = 0; i < n; i++) {
        s[i] = fmaf(-2.f, rcp_fast(1.f + exp2_fast(s[i] * p.cap_scale)), 1.f);
    }
}

// Scores in the layout of accumulators: element i is of row `i / 2 % 2` and key first + 8 (i / 4) + 2 (lane % 4) + i % 2.
// Those outside of [begin, end) of their row become minus infinity.
template <attn_mask mask, int n>
__device__ __forceinline__ void attn_mask_outside(float (&s)[n], int first, const int (&begin)[2], const int (&end)[2])
{
    const int column = first + 2 * (threadIdx.x % 4);
    const int to[2] = {end[0] - column, end[1] - column}, from[2] = {begin[0] - column, begin[1] - column};
#pragma unroll
    for (int i = 0; i < n; i++) {
        const int at = i / 4 * 8 + i % 2;
        if (at >= to[i / 2 % 2] || (mask == mask_any && at < from[i / 2 % 2]))
            s[i] = minus_infinity();
    }
}

// Turns scaled scores s into probabilities 2^(s - M). The reference M follows the rows' maxima only where it must: while
// the sums show that no probability exceeds a bound, which the type holds, no maximum is computed. M cancels in the end.

// State of a thread's two rows: what is added to scaled scores, which is -M and the type's offset, and the thread's part of
// the sums. Without an M it is plus infinity; then the first probability is infinite or NaN, and the sum shows that M has
// to move.
struct attn_rows_state {
    float neg_max[2], sum[2];

    __device__ __forceinline__ void reset()
    {
        neg_max[0] = neg_max[1] = -minus_infinity();
        sum[0] = sum[1] = 0.f;
    }
};

// Probabilities as 16 bits.
template <class T> struct attn_16_bits {
    static constexpr float most_sum = 8192.f; // of a thread's probabilities of a row and block
    static constexpr float offset = 0.f;
    static constexpr int in_word = 2;

    template <int n>
    static __device__ __forceinline__ void find(const float (&s)[n], float scale, const float (&neg_max)[2],
                                                unsigned (&packed)[n / 2], float (&sum)[2])
    {
        float part[2][2];
#pragma unroll
        for (int i = 0; i < n; i += 2) {
            const int h = i / 2 % 2;
            const float a = exp2_fast(fmaf(s[i], scale, neg_max[h])), b = exp2_fast(fmaf(s[i + 1], scale, neg_max[h]));
            part[h][0] = i < 4 ? a : part[h][0] + a;
            part[h][1] = i < 4 ? b : part[h][1] + b;
            packed[i / 2] = pack2<T>(a, b);
        }
        sum[0] = part[0][0] + part[0][1];
        sum[1] = part[1][0] + part[1][1];
    }
};

// M becomes the greatest of itself and these scores; what was summed before is to be multiplied by `factor`.
template <int n>
__device__ __forceinline__ void attn_move_reference(attn_rows_state &r, const float (&s)[n], float scale, float offset,
                                                    float (&factor)[2])
{
    float most[2] = {minus_infinity(), minus_infinity()};
#pragma unroll
    for (int i = 0; i < n; i++) {
        float x = s[i];
        opaque(x); // not ahead of the branch that tests whether it is needed
        most[i / 2 % 2] = fmaxf(most[i / 2 % 2], x);
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        most[h] = fmaxf(most[h], __shfl_xor_sync(0xffffffffu, most[h], 1));
        most[h] = fmaxf(most[h], __shfl_xor_sync(0xffffffffu, most[h], 2));
        const float old = offset - r.neg_max[h], now = fmaxf(old, most[h] * scale); // of a scale above 0
        factor[h] = old == now ? 1.f : exp2_fast(old - now);
        r.sum[h] *= factor[h];
        r.neg_max[h] = offset - now;
    }
}

// Whether some row of the warp has no M: nothing of the tile came before, or it saw no key in what came.
__device__ __forceinline__ bool attn_lacks_reference(const attn_rows_state &r)
{
    return __any_sync(0xffffffffu, fmaxf(r.neg_max[0], r.neg_max[1]) == -minus_infinity());
}

// Turns scores into probabilities of `form`. With `looks` M is computed at once, and not only where it has to move. Where M
// moves behind a tile's `first` block, earlier sums are multiplied by scale_output(factor). The usual path has one branch.
template <class form, int n, class F>
__device__ __forceinline__ void attn_softmax(attn_rows_state &r, const float (&s)[n], float scale,
                                             unsigned (&packed)[n / form::in_word], bool first, bool looks,
                                             F scale_output)
{
    float neg_max[2] = {r.neg_max[0], r.neg_max[1]}, sum[2];
    unsigned most = __float_as_uint(form::most_sum); // sums are not negative; what is no number is above as bits
    bool moves = looks;
#pragma unroll 1
    for (;;) {
        if (moves) {
            float factor[2];
            attn_move_reference(r, s, scale, form::offset, factor);
            if (!first)
                scale_output(factor);
#pragma unroll
            for (int h = 0; h < 2; h++)
                neg_max[h] = r.neg_max[h] == -minus_infinity() ? 0.f : r.neg_max[h]; // every score is minus infinity
            most = ~0u;
        }
        form::find(s, scale, neg_max, packed, sum);
        if (!__any_sync(0xffffffffu, __float_as_uint(sum[0]) > most || __float_as_uint(sum[1]) > most))
            break;
        moves = true;
    }
    r.sum[0] += sum[0];
    r.sum[1] += sum[1];
}

// What is there of a thread's two rows of output follows M.
template <int n> __device__ __forceinline__ void attn_scale_rows(float (&o)[n], const float (&factor)[2])
{
#pragma unroll
    for (int i = 0; i < n; i++)
        o[i] *= factor[i / 2 % 2];
}

// What a row's output is multiplied by, and its log-sum-exp in base e, whose logarithm is off by some 2^-22.
__device__ __forceinline__ void attn_end_rows(const attn_rows_state &r, float descale, float (&factor)[2],
                                              float (&lse)[2])
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float sum = r.sum[h] + __shfl_xor_sync(0xffffffffu, r.sum[h], 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        const bool any = sum != 0.f; // NaN, too
        factor[h] = any ? descale * rcp_fast(sum) : 0.f;
        lse[h] = any ? (log2_fast(sum) - r.neg_max[h]) * ln_2 : minus_infinity();
    }
}

// Where row `row` of the tile's request lies.
__device__ __forceinline__ long long attn_row_offset(const gen_attn_strides &s, bool packed, int request, int at,
                                                     int row, int head)
{
    return (packed ? 0 : request * s.batch) + (static_cast<long long>(at) + row) * s.row + head * s.head;
}

__device__ __forceinline__ float *attn_lse_at(const gen_attn_fwd_params &p, const attn_tile &t, int row)
{
    return p.lse + attn_row_offset(p.lse_stride, p.cu_q != nullptr, t.request, t.q_at, row, t.head);
}

__device__ __forceinline__ unsigned short *attn_o_at(const gen_attn_fwd_params &p, const attn_tile &t, int row)
{
    return static_cast<unsigned short *>(p.o) +
           attn_row_offset(p.o_stride, p.cu_q != nullptr, t.request, t.q_at, row, t.head);
}

// Where a tile's results go: its first row.
struct attn_results {
    unsigned short *o;
    float *lse; // or null
};
