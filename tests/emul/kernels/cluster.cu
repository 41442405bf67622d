// Clusters of blocks: what they do together, and what they get wrong.
#include "lib/ptx/cluster.cuh"
#include "lib/ptx/cluster_copy.cuh"
#include "lib/ptx/cp_async.cuh"
#include "lib/ptx/ldst.cuh"
#include "lib/ptx/mbarrier.cuh"
#include "params.h"

namespace {

constexpr unsigned blocks = CLUSTER_BLOCKS, threads = CLUSTER_THREADS, words = 128;

__device__ unsigned cluster_rank()
{
    unsigned rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

__device__ unsigned cluster_size()
{
    unsigned size;
    asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
    return size;
}

__device__ unsigned map_shared(unsigned address, unsigned rank)
{
    unsigned mapped;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(rank));
    return mapped;
}

__device__ void cluster_arrive() { asm volatile("barrier.cluster.arrive.release;" ::: "memory"); }
__device__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }
__device__ void cluster_sync()
{
    asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

__device__ unsigned load_word(unsigned address)
{
    unsigned x;
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(x) : "r"(address) : "memory");
    return x;
}

__device__ void store_word(unsigned address, unsigned x)
{
    asm volatile("st.shared::cluster.b32 [%0], %1;" :: "r"(address), "r"(x) : "memory");
}

__device__ float4 load_four(unsigned address)
{
    float4 x;
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w) : "r"(address) : "memory");
    return x;
}

__device__ void store_four(unsigned address, uint4 x)
{
    asm volatile("st.shared::cluster.v4.b32 [%0 + 16], {%1, %2, %3, %4};"
                 :: "r"(address - 16), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w) : "memory");
}

__device__ void remote_arrive(unsigned barrier)
{
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" :: "r"(barrier) : "memory");
}

__device__ void wait_cluster(unsigned barrier, unsigned parity)
{
    asm volatile("{\n\t.reg .pred done;\n"
                 "again:\n\t"
                 "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n\t"
                 "@!done bra again;\n\t}"
                 :: "r"(barrier), "r"(parity) : "memory");
}

__device__ bool try_wait_cluster(unsigned barrier, unsigned parity)
{
    unsigned done;
    asm volatile("{\n\t.reg .pred done;\n\t"
                 "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%1], %2;\n\t"
                 "selp.u32 %0, 1, 0, done;\n\t}"
                 : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
    return done != 0;
}

__device__ unsigned value(unsigned block, unsigned i) { return 1000 * block + i; }

// Each block's words to all others, by loads and by stores of one word and of four.
__device__ void exchange(const cluster_params &p, unsigned *memory)
{
    const unsigned t = threadIdx.x, rank = cluster_rank(), at = shared_address(memory);
    unsigned *out = p.out + blockIdx.x * CLUSTER_OUT;
    if (p.what == CLUSTER_NO_BARRIER)
        cluster_sync();
    memory[t] = value(blockIdx.x, t);
    if (p.what != CLUSTER_NO_BARRIER)
        cluster_sync();
    for (unsigned distance = 0; distance < blocks; distance++)
        out[distance * words + t] = load_word(map_shared(at + 4 * (words - 1 - t), (rank + distance) % blocks));
    const unsigned next = (rank + 1) % blocks, word = 4 * words + 4 * t;
    store_word(map_shared(at + word, next), value(blockIdx.x, t));
    if (t < words / 4) {
        store_four(map_shared(at + 8 * words + 16 * t, next),
                   make_uint4(value(blockIdx.x, 4 * t), value(blockIdx.x, 4 * t + 1), value(blockIdx.x, 4 * t + 2),
                              value(blockIdx.x, 4 * t + 3)));
        const float4 x = load_four(map_shared(at + 16 * t, next));
        out[6 * words + 4 * t] = __float_as_uint(x.x);
        out[6 * words + 4 * t + 1] = __float_as_uint(x.y);
        out[6 * words + 4 * t + 2] = __float_as_uint(x.z);
        out[6 * words + 4 * t + 3] = __float_as_uint(x.w);
    }
    if (p.what == CLUSTER_LEAVE_EARLY)
        return;
    cluster_sync();
    out[4 * words + t] = memory[words + t];
    out[5 * words + t] = memory[2 * words + t];
    out[7 * words + t] = t == 0 ? rank : t == 1 ? cluster_size() : 0;
}

// A number goes round; each block adds one and hands it on.
__device__ void handshake(const cluster_params &p, unsigned *memory, unsigned barrier)
{
    const unsigned rank = cluster_rank(), at = shared_address(memory), next = (rank + 1) % blocks;
    if (threadIdx.x == 0) {
        memory[0] = 0;
        mbarrier_init(barrier, 1);
        fence_mbarrier_init();
    }
    cluster_arrive();
    cluster_wait();
    for (unsigned round = 0; threadIdx.x == 0 && round < CLUSTER_ROUNDS; round++) {
        const unsigned turn = rank == 0 ? round - 1 : round;
        if (rank > 0 || round > 0) {
            if (rank % 2)
                while (!try_wait_cluster(barrier, turn & 1))
                    ;
            else if (p.what == CLUSTER_REMOTE_WAIT)
                wait_cluster(map_shared(barrier, next), turn & 1);
            else
                wait_cluster(barrier, turn & 1);
        }
        store_word(map_shared(at, next), memory[0] + 1);
        if (p.what != CLUSTER_NO_ARRIVAL || rank != 2)
            remote_arrive(map_shared(barrier, next));
    }
    cluster_sync();
    if (threadIdx.x == 0)
        p.out[blockIdx.x * CLUSTER_OUT] = memory[0];
}

// Every block brings a fourth of the words to all, and one brings a box of a tensor to two others.
__device__ void multicast(const cluster_params &p, unsigned *memory, unsigned barrier)
{
    const unsigned rank = cluster_rank(), at = shared_address(memory);
    const unsigned bytes = 4 * words, box = 1024, to = 0xa;
    if (threadIdx.x == 0) {
        mbarrier_init(barrier, 1);
        fence_mbarrier_init();
        mbarrier_arrive_expect_tx(barrier, blocks * bytes + (to >> rank & 1) * box);
    }
    if (p.what == CLUSTER_MULTICAST_EARLY)
        __syncthreads();
    else
        cluster_sync();
    if (threadIdx.x == 0) {
        const unsigned short all = (1u << blocks) - 1;
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
                     " [%0], [%1], %2, [%3], %4;"
                     :: "r"(at + rank * bytes), "l"(p.in + rank * words), "r"(bytes), "r"(barrier), "h"(all) : "memory");
        if (rank == 2)
            asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
                         ".multicast::cluster.L2::cache_hint [%0], [%1, {%2, %3, %4, %5}], [%6], %7, %8;"
                         :: "r"(at + blocks * bytes), "l"(p.map), "r"(0), "r"(0), "r"(0), "r"(0), "r"(barrier),
                            "h"(static_cast<unsigned short>(to)), "l"(policy_evict_last()) : "memory");
    }
    wait_cluster(barrier, 0);
    for (unsigned i = threadIdx.x; i < CLUSTER_OUT; i += threads)
        p.out[blockIdx.x * CLUSTER_OUT + i] = memory[i];
    cluster_sync();
}

// Two rounds through the same words, with nothing that keeps a block from the second before others are through the first.
__device__ void run_ahead(const cluster_params &p, unsigned *memory)
{
    const unsigned t = threadIdx.x, at = shared_address(memory);
    const unsigned next = map_shared(at + 4 * t, (cluster_rank() + 1) % blocks);
    unsigned *out = p.out + blockIdx.x * CLUSTER_OUT;
    for (unsigned round = 0; round < 2; round++) {
        memory[t] = value(blockIdx.x, t + round);
        cluster_sync();
        out[round * words + t] = load_word(next);
        __syncwarp(); // where warps take turns, these are the others'
        __syncwarp();
    }
    cluster_sync();
}

// Threads that end, some of them between arriving and waiting, are not waited for.
__device__ void exits(const cluster_params &p, unsigned *memory)
{
    const unsigned t = threadIdx.x, rank = cluster_rank(), at = shared_address(memory);
    if (t >= 96 && rank != 1)
        return;
    if (t >= 64) {
        cluster_arrive();
        return;
    }
    for (unsigned round = 0; round < 2; round++) {
        memory[t] = value(blockIdx.x, t + round);
        cluster_arrive();
        cluster_wait();
        p.out[blockIdx.x * CLUSTER_OUT + round * words + t] = load_word(map_shared(at + 4 * t, (rank + 1) % blocks));
        cluster_sync();
    }
}

// Each block's words to the next one, by a bulk copy.
__device__ void copies(const cluster_params &p, unsigned *memory, unsigned barrier)
{
    const unsigned t = threadIdx.x, next = (cluster_rank() + 1) % blocks, at = shared_address(memory);
    if (t == 0) {
        mbarrier_init(barrier, 1);
        fence_mbarrier_init();
        mbarrier_arrive_expect_tx(barrier, 4 * words);
    }
    memory[t] = value(blockIdx.x, t);
    if (p.what != CLUSTER_COPY_UNFENCED)
        fence_proxy_async();
    cluster_sync();
    if (t == 0)
        bulk_copy_cluster(map_shared(at + 4 * words, next), at, 4 * words, map_shared(barrier, next));
    mbarrier_wait(barrier, 0);
    p.out[blockIdx.x * CLUSTER_OUT + t] = memory[words + t];
    cluster_sync();
}

__device__ void wrong(const cluster_params &p, unsigned *memory, unsigned barrier)
{
    const unsigned t = threadIdx.x, rank = cluster_rank(), at = shared_address(memory);
    if (p.what == CLUSTER_NOT_BEGUN) {
        if (t == 0)
            store_word(map_shared(at, (rank + 1) % blocks), 1);
        cluster_sync();
        return;
    }
    cluster_sync();
    if (p.what == CLUSTER_ARRIVE_TWICE) {
        cluster_arrive();
        cluster_arrive();
    } else if (p.what == CLUSTER_WAIT_ALONE) {
        cluster_wait();
    } else if (p.what == CLUSTER_DIVERGED) {
        if (t % 32 < 16)
            cluster_sync();
        else
            __syncwarp();
    } else if (p.what == CLUSTER_CTA_ADDRESS) {
        p.out[t] = ld_shared_v4_f32(map_shared(at, (rank + 1) % blocks)).x != 0.f;
    } else if (p.what == CLUSTER_OUTSIDE) {
        p.out[t] = load_word(map_shared(at, (rank + 1) % blocks) + 4 * CLUSTER_OUT);
    } else if (p.what == CLUSTER_NO_SUCH_RANK) {
        p.out[t] = load_word(map_shared(at, blocks));
    } else if (p.what == CLUSTER_NO_MBARRIER) {
        remote_arrive(map_shared(barrier, (rank + 1) % blocks));
    }
    cluster_sync();
}

} // namespace

extern "C" __global__ void __cluster_dims__(blocks, 1, 1) __launch_bounds__(threads) emul_cluster(const __grid_constant__ cluster_params p)
{
    extern __shared__ __align__(1024) unsigned memory[]; // CLUSTER_OUT words
    __shared__ unsigned long long barrier;
    switch (p.what) {
    case CLUSTER_EXCHANGE:
    case CLUSTER_NO_BARRIER:
    case CLUSTER_LEAVE_EARLY:
        exchange(p, memory);
        break;
    case CLUSTER_HANDSHAKE:
    case CLUSTER_NO_ARRIVAL:
    case CLUSTER_REMOTE_WAIT:
        handshake(p, memory, shared_address(&barrier));
        break;
    case CLUSTER_MULTICAST:
    case CLUSTER_MULTICAST_EARLY:
        multicast(p, memory, shared_address(&barrier));
        break;
    case CLUSTER_COPY:
    case CLUSTER_COPY_UNFENCED:
        copies(p, memory, shared_address(&barrier));
        break;
    case CLUSTER_RUN_AHEAD:
        run_ahead(p, memory);
        break;
    case CLUSTER_EXITS:
        exits(p, memory);
        break;
    default:
        wrong(p, memory, shared_address(&barrier));
    }
}
