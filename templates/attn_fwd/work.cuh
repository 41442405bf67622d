// Which tiles a block works on, and how the producer warp publishes them to the others: it alone looks them up, while there is
// time, and leaves what it found in shared memory.
#pragma once

#include "attn_fwd/tiles.cuh"
#include "lib/pipeline.cuh"
#include "lib/ptx/ldst.cuh"
#include "lib/ptx/mbarrier.cuh"
#include "lib/ticket.cuh"

// How the list of units is partitioned.
enum attn_order {
    order_one,     // a block a unit
    order_static,  // persistent blocks take units at a fixed distance, tiles in pairs with causality
    order_dynamic, // persistent blocks take the next unit of the list when they need one
    order_twin     // the two blocks of a CTA pair take one tile each of a unit of two, units at a fixed distance
};

template <attn_order order> constexpr int attn_blocks_of_a_unit = order == order_twin ? 2 : 1;

// Has the phase with this parity ended? Does not wait.
__device__ __forceinline__ bool attn_arrived(unsigned long long &barrier, unsigned parity)
{
    return mbarrier_test_wait(shared_address(&barrier), parity);
}

// A shared address as the descriptor of a matrix there has it, in the lowest bits: nothing else of one depends on the address.
__device__ __forceinline__ unsigned attn_low_of(unsigned address)
{
    return address >> 4 & 0x3fff;
}

// Tiles under way: published ahead, at work, being written.
constexpr int attn_slots = 4;
using attn_place = ring_place<attn_slots>;

// The work descriptor that the producer warp publishes. Behind the last tile comes one with `last` < 0.
struct attn_published {
    unsigned long long full[attn_slots], empty[attn_slots];
    attn_tile tile[attn_slots];
    attn_results results[attn_slots];
};

// A warp's place in the list.
template <attn_mask mask, int rows, int block, attn_order order> struct attn_walk {
    int at;                    // 2 * unit, + 1: its second tile
    unsigned ticket;           // requested: lane 0 has it when it arrives
    unsigned long long before; // what was in the tickets' word

    __device__ __forceinline__ explicit attn_walk(const gen_attn_fwd_params &p)
        : at(2 * static_cast<int>(blockIdx.x / attn_blocks_of_a_unit<order>)), ticket(0), before(0)
    {
        if (order == order_dynamic && threadIdx.x % 32 == 0)
            before = look_at_tickets(p.tickets);
    }

    // Takes the first ticket: called once, early, before the first next(). A block's first unit needs none.
    __device__ __forceinline__ void take_first(const gen_attn_fwd_params &p)
    {
        if (order == order_dynamic && threadIdx.x % 32 == 0) {
            open_tickets(p.tickets, before);
            ticket = take_ticket(p.tickets);
        }
    }

    __device__ __forceinline__ bool ended(const gen_attn_fwd_params &p) const { return at >= 2 * p.schedule.num_units; }

    __device__ __forceinline__ attn_tile tile(const gen_attn_fwd_params &p) const
    {
        return attn_find_tile<mask, rows, block, attn_blocks_of_a_unit<order>>(p, at >> 1, at & 1);
    }

    // The whole warp calls. A block's last ticket finds nothing, and who has the last one of all leaves the word closed.
    __device__ __forceinline__ void next(const gen_attn_fwd_params &p)
    {
        if (order == order_dynamic) {
            const int unit = static_cast<int>(gridDim.x + __shfl_sync(0xffffffffu, ticket, 0));
            at = 2 * unit;
            if (threadIdx.x % 32 == 0) {
                if (unit < p.schedule.num_units)
                    ticket = take_ticket(p.tickets); // a tile ahead, so that no warp waits for it
                // Beyond the last one it would close a word that no block opened.
                else if (unit >= p.schedule.num_units + static_cast<int>(gridDim.x) - 1)
                    close_tickets(p.tickets);
            }
        } else if (order == order_twin) {
            at += static_cast<int>(gridDim.x); // two blocks a unit
        } else if (p.schedule.paired && !(at & 1)) {
            at++;
        } else {
            at = (at & ~1) + 2 * static_cast<int>(order == order_static ? gridDim.x : p.schedule.num_units);
        }
    }
};

// One warp. The tile is there for whoever waits for the slot.
__device__ __forceinline__ void attn_publish(const gen_attn_fwd_params &p, attn_published &published, attn_place &place,
                                             const attn_tile &t)
{
    mbarrier_wait(shared_address(&published.empty[place.place()]), place.phase());
    __syncwarp(); // no lane is left waiting when the slot goes round
    if (threadIdx.x % 32 == 0) {
        published.tile[place.place()] = t;
        published.results[place.place()] = {attn_o_at(p, t, t.first_row),
                                            p.lse ? attn_lse_at(p, t, t.first_row) : nullptr};
        mbarrier_arrive(shared_address(&published.full[place.place()]));
    }
    place.next();
}

// What the warp published last; it need not keep it.
__device__ __forceinline__ attn_tile attn_last_published(const attn_published &published, const attn_place &place)
{
    __syncwarp();
    return published.tile[(place.place() + attn_slots - 1) % attn_slots];
}

// There are no more.
__device__ __forceinline__ void attn_publish_end(const gen_attn_fwd_params &p, attn_published &published,
                                                 attn_place &place)
{
    attn_tile none = {};
    none.last = -1;
    attn_publish(p, published, place, none);
}
