// A cluster over two dimensions of the grid, with static shared memory alone.
#include "lib/ptx/ldst.cuh"
#include "params.h"

extern "C" __global__ void __launch_bounds__(32) __cluster_dims__(2, 2) emul_cluster_static(unsigned *out)
{
    __shared__ unsigned mine[2];
    unsigned size, mapped, x;
    asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
    if (threadIdx.x == 0)
        mine[1] = blockIdx.x + 10 * blockIdx.y;
    asm volatile("barrier.cluster.arrive.release;\n\tbarrier.cluster.wait.acquire;" ::: "memory");
    if (threadIdx.x < size) {
        asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(shared_address(&mine[1])), "r"(threadIdx.x));
        asm volatile("ld.shared::cluster.b32 %0, [%1];" : "=r"(x) : "r"(mapped) : "memory");
        out[(blockIdx.y * gridDim.x + blockIdx.x) * 4 + threadIdx.x] = x;
    }
    asm volatile("barrier.cluster.arrive.release;\n\tbarrier.cluster.wait.acquire;" ::: "memory");
}
