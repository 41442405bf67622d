// A stream of fp32 tiles that a warp reads from global memory, changes and writes back to where they came from: the
// state of a linear-attention decode. The warp is alone with its tiles: no other warp touches its registers, its ring of
// shared memory or its barriers, so nothing here waits for a block.
//
// A tile is ROWS rows of ROW_FLOATS floats, `row_stride` floats apart in global memory. Of a tile, lane l holds
// LOADS x VECTORS 16-byte vectors; vector (i, j) is row i * ROWS_PER_LOAD + l / LANES, floats
// (j * LANES + l % LANES) * 4 and the three behind. STAGES tiles may be in flight; stage numbers are compile-time
// constants, so callers unroll by STAGES.
#pragma once

#include "lib/ptx/cp_async.cuh"
#include "lib/ptx/ldst.cuh"
#include "lib/ptx/mbarrier.cuh"
#include "lib/ptx/tma.cuh"

enum class load_path { ld, cpasync, bulk };
enum class store_path { st, bulk };

template <load_path LOAD, store_path STORE, bool STREAM, int ROWS, int ROW_FLOATS, int STAGES> struct tile_stream {
    static constexpr int VECTORS = ROW_FLOATS > 128 ? ROW_FLOATS / 128 : 1;
    static constexpr int LANES = ROW_FLOATS / 4 / VECTORS;
    static constexpr int ROWS_PER_LOAD = 32 / LANES;
    static constexpr int LOADS = ROWS / ROWS_PER_LOAD;
    static constexpr int STAGE_FLOATS = ROWS * ROW_FLOATS;
    static constexpr bool RING = LOAD != load_path::ld;
    static_assert(LOADS * ROWS_PER_LOAD == ROWS, "a tile is whole warp-wide loads");
    static_assert(RING || STORE == store_path::st, "a bulk store starts from the ring");

    float4 held[RING ? 1 : STAGES][LOADS][VECTORS]; // register path: the tiles themselves
    unsigned ring;                                  // shared address of this warp's stages
    unsigned barriers;                              // shared address of this warp's mbarriers, one a stage
    unsigned phases;                                // bit s: parity of stage s' next completion
    unsigned long long policy;

    static __device__ __forceinline__ unsigned lane() { return threadIdx.x & 31; }
    static __device__ __forceinline__ unsigned row(int i) { return i * ROWS_PER_LOAD + lane() / LANES; }
    static __device__ __forceinline__ unsigned column(int j) { return (j * LANES + lane() % LANES) * 4; }

    // `warp` numbers the warp within the block; ring_base holds WARPS * STAGES * STAGE_FLOATS floats, 128-byte aligned,
    // and barrier_base WARPS * STAGES mbarriers.
    __device__ __forceinline__ void open(unsigned warp, void *ring_base, unsigned long long *barrier_base)
    {
        if constexpr (RING)
            ring = shared_address(ring_base) + warp * (STAGES * STAGE_FLOATS * 4);
        if constexpr (RING && STREAM)
            policy = policy_evict_first();
        if constexpr (LOAD == load_path::bulk) {
            barriers = shared_address(barrier_base) + warp * (STAGES * 8);
            phases = 0;
            if (lane() == 0) {
#pragma unroll
                for (int s = 0; s < STAGES; s++)
                    mbarrier_init(barriers + s * 8, 1);
                fence_mbarrier_init();
            }
            __syncwarp();
        }
    }

    __device__ __forceinline__ unsigned vector_address(int s, int i, int j)
    {
        return ring + (s * STAGE_FLOATS + row(i) * ROW_FLOATS + column(j)) * 4;
    }

    // Starts loading a tile into stage s. Every lane calls it, for every step, with whether there is a tile to load
    // (cp.async counts groups, so an empty one stands for no tile). The stage must be free.
    __device__ __forceinline__ void fetch(int s, const float *tile, long long row_stride, bool there = true)
    {
        if constexpr (LOAD == load_path::ld) {
            if (there) {
#pragma unroll
                for (int i = 0; i < LOADS; i++)
#pragma unroll
                    for (int j = 0; j < VECTORS; j++)
                        held[s][i][j] = ld_global_v4_f32<STREAM>(tile + row(i) * row_stride + column(j));
            }
        } else if constexpr (LOAD == load_path::cpasync) {
            if (there) {
#pragma unroll
                for (int i = 0; i < LOADS; i++)
#pragma unroll
                    for (int j = 0; j < VECTORS; j++)
                        cp_async_16<STREAM>(vector_address(s, i, j), tile + row(i) * row_stride + column(j), policy);
            }
            cp_async_commit_group();
        } else if (there) {
            const unsigned barrier = barriers + s * 8;
            const unsigned stage = ring + s * STAGE_FLOATS * 4;
            if (row_stride == ROW_FLOATS) { // one run of bytes
                if (lane() == 0) {
                    mbarrier_arrive_expect_tx(barrier, STAGE_FLOATS * 4);
                    bulk_load<STREAM>(stage, tile, STAGE_FLOATS * 4, barrier, policy);
                }
            } else { // a run a row, a row a lane
                if (lane() == 0)
                    mbarrier_arrive_expect_tx(barrier, STAGE_FLOATS * 4);
                __syncwarp();
                if (lane() < ROWS)
                    bulk_load<STREAM>(stage + lane() * ROW_FLOATS * 4, tile + lane() * row_stride, ROW_FLOATS * 4,
                                      barrier, policy);
            }
        }
    }

    // Waits for the tile in stage s, which is the oldest of STAGES fetches.
    __device__ __forceinline__ void wait(int s)
    {
        if constexpr (LOAD == load_path::cpasync) {
            cp_async_wait_group<STAGES - 1>(); // a lane reads back only what it copied itself
        } else if constexpr (LOAD == load_path::bulk) {
            mbarrier_wait(barriers + s * 8, (phases >> s) & 1);
            phases ^= 1u << s;
        }
    }

    __device__ __forceinline__ float4 get(int s, int i, int j)
    {
        if constexpr (RING)
            return ld_shared_v4_f32(vector_address(s, i, j));
        else
            return held[s][i][j];
    }

    // Gives back vector (i, j), changed.
    __device__ __forceinline__ void put(int s, int i, int j, float4 x, float *tile, long long row_stride)
    {
        if constexpr (STORE == store_path::bulk)
            st_shared_v4_f32(vector_address(s, i, j), x);
        else
            st_global_v4_f32<STREAM>(tile + row(i) * row_stride + column(j), x);
    }

    // All vectors of stage s are given back: the stage may be refilled.
    __device__ __forceinline__ void release(int s, float *tile, long long row_stride)
    {
        if constexpr (STORE == store_path::bulk) {
            const unsigned stage = ring + s * STAGE_FLOATS * 4;
            fence_proxy_async();
            __syncwarp();
            if (row_stride == ROW_FLOATS) {
                if (lane() == 0)
                    bulk_store<STREAM>(tile, stage, STAGE_FLOATS * 4, policy);
            } else {
                if (lane() < ROWS)
                    bulk_store<STREAM>(tile + lane() * row_stride, stage + lane() * ROW_FLOATS * 4, ROW_FLOATS * 4,
                                       policy);
            }
            bulk_commit_group();
        } else if constexpr (LOAD == load_path::bulk) {
            __syncwarp(); // all lanes have read before lane 0 refills
        }
    }

    // After release() of `step` in stage s: starts loading the tile that takes its stage. A bulk store must have read the
    // stage first, so there the refill lags a step behind, where there are stages enough.
    __device__ __forceinline__ void refill(int s, int step, int steps, float *first, long long step_floats,
                                           long long row_stride)
    {
        constexpr int lag = STORE == store_path::bulk && STAGES > 1 ? 1 : 0;
        const int next = step - lag + STAGES;
        const bool there = next >= STAGES && next < steps;
        if constexpr (STORE == store_path::bulk) {
            if (there) {
                bulk_wait_group_read<lag>();
                __syncwarp();
            }
        }
        fetch((s + STAGES - lag) % STAGES, first + next * step_floats, row_stride, there);
    }

    // Before the block may end: shared memory must outlive the bulk stores that read it.
    __device__ __forceinline__ void close()
    {
        if constexpr (STORE == store_path::bulk)
            bulk_wait_group_read<0>();
    }
};
