// Pieces of one unit in several blocks: the last to arrive adds their partial results up (args.h).
#pragma once

#include "attn_paged/line.cuh"
#include "lib/ticket.cuh"

// Whether the block is the last of `count` to come here. What all of them wrote before is there. `sync` is a barrier of the
// threads that call this, `leads` true of one of them, `last` in shared memory.
template <class Sync>
__device__ __forceinline__ bool paged_arrives_last(unsigned long long *tickets, int count, bool leads, int &last,
                                                   const Sync &sync)
{
    sync();
    if (leads) {
        __threadfence();
        const bool is_last = take_ticket(tickets) == static_cast<unsigned>(count - 1);
        if (is_last)
            close_tickets(tickets);
        __threadfence();
        last = is_last;
    }
    sync();
    return last != 0;
}

__device__ __forceinline__ void paged_open(unsigned long long *tickets)
{
    open_tickets(tickets, look_at_tickets(tickets));
}

// One thread of the block: opens what the block's pieces take tickets of, and keeps which pieces their units have: of the one
// that the part begins with, and of the one that it ends with. `all_tickets`: where those of the grid begin.
__device__ __forceinline__ void paged_open_all(unsigned long long *all_tickets, const gen_attn_paged_line &line,
                                               int part, const paged_share &share, paged_pieces (&kept)[2])
{
#pragma unroll 1
    for (int end = 0; end < 2; end++) {
        const paged_cut &cut = share.cut[end];
        if (cut.block == 0)
            continue;
        const paged_pieces pieces = paged_pieces_of(line, share, cut);
        kept[end] = pieces;
        // The unit that the part ends in may have begun before it: then its part is one in the middle.
        unsigned long long *tickets = all_tickets + pieces.first;
#pragma unroll 1
        for (int step = 1; step < pieces.count; step *= GEN_ATTN_PAGED_GROUP) {
            const int all = step * GEN_ATTN_PAGED_GROUP;
            paged_open(tickets + (part - pieces.first) / all * all);
            tickets += line.num_parts;
        }
    }
}

__device__ __forceinline__ void paged_open_all(const gen_attn_paged_params &p, int part, const paged_share &share,
                                               paged_pieces (&kept)[2])
{
    paged_open_all(p.tickets, p.line, part, share, kept);
}

// The piece's partial result is in its slot. arrives(tickets, count) as above; merge(first, step, count, slot) adds up
// `count` partial results, of every step-th piece from `first` on, and gives the sum to a slot, or where that is below 0 to
// the outputs.
template <class Arrives, class Merge>
__device__ __forceinline__ void paged_add_up(unsigned long long *all_tickets, const gen_attn_paged_line &line, int part,
                                             const paged_pieces &pieces, const Arrives &arrives, const Merge &merge)
{
    unsigned long long *tickets = all_tickets + pieces.first;
#pragma unroll 1
    for (int step = 1;; step *= GEN_ATTN_PAGED_GROUP) {
        const int all = step * GEN_ATTN_PAGED_GROUP, first = (part - pieces.first) / all * all;
        const int count = min((pieces.count - first + step - 1) / step, GEN_ATTN_PAGED_GROUP);
        if (count > 1 && !arrives(tickets + first, count))
            return;
        const bool ends = all >= pieces.count;
        if (count > 1 || ends)
            merge(first, step, count, ends ? -1 : pieces.slot(first));
        if (ends)
            return;
        tickets += line.num_parts; // then the groups
    }
}

template <class Arrives, class Merge>
__device__ __forceinline__ void paged_add_up(const gen_attn_paged_params &p, int part, const paged_pieces &pieces,
                                             const Arrives &arrives, const Merge &merge)
{
    paged_add_up(p.tickets, p.line, part, pieces, arrives, merge);
}
