/*
 * The engine that runs a kernel's threads on the CPU: what kernels compiled for
 * it call, and how a driver launches them. Read by C and by the C++ prelude of
 * kernels, whose name space it must not fill, so it includes nothing.
 *
 * Threads of a block are fibers on one thread of the host; clusters of blocks run
 * one after another, and the blocks of a cluster at the same time. Shared memory
 * is the kernel's thread-local storage; its addresses are 32-bit numbers as on a
 * GPU, statics from 1024 up and the dynamic part behind.
 */
#ifndef EMUL_ENGINE_H
#define EMUL_ENGINE_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

#define EMUL_ABI 2
/* The most that a block may have, static and dynamic together. */
#define EMUL_MAX_SHARED 232448
#define EMUL_MAX_THREADS 1024
/* Blocks of a cluster; more than 8 are what a launch has to ask for. */
#define EMUL_MAX_CLUSTER 16

struct emul_dim {
    unsigned x, y, z;
};

/* Where a thread of a kernel runs. */
struct emul_thread {
    struct emul_dim thread, block, threads, blocks;
};

/* What a compiled kernel exports under the name `emul_kernel`. */
struct emul_kernel {
    unsigned abi;
    unsigned num_params;
    const unsigned *param_bytes;
    struct emul_dim cluster;          /* what __cluster_dims__ says, else 1 x 1 x 1 */
    void (*run)(void *const *params); /* one thread */
    /* The dynamic shared memory of the calling thread of the host, or NULL; makes that thread's
     * thread-local storage exist. */
    void *(*ring)(void);
};

/* ---- for drivers -------------------------------------------------------- */

struct emul_launch {
    const struct emul_kernel *kernel;
    struct emul_dim blocks, threads;
    unsigned shared; /* dynamic, bytes */
    void *const *params;
};

/* Runs a whole grid. Returns 0, or -1 with what went wrong in `message`. The
 * environment variable EMUL_MODE says how: words separated by commas of
 *   eager    asynchronous operations take effect when they are issued (default)
 *   late     ... when a thread waits for them and nothing else can happen
 *   overtaken  late, and what was issued first happens last, as long as others are under way
 *   random   ... at any time between; random=SEED
 *   ahead    a warp goes on as long as it can, else the warps take turns
 *   reverse  the last thread and the last block go first
 */
int emul_run(const struct emul_launch *launch, char *message, unsigned long capacity);

/* cuTensorMapEncodeTiled() for this engine; the same numbers for the enumerations. Returns 0, or
 * -1 where the driver would refuse. */
int emul_tensor_map(void *map, int dtype, unsigned rank, void *address,
                    const unsigned long long *dims, const unsigned long long *strides,
                    const unsigned *box, const unsigned *element_strides, int interleave,
                    int swizzle, int fill);

/* ---- for kernels: all act for the thread that calls ----------------------- */

/* Constant within a kernel: its frames belong to one thread. */
const struct emul_thread *emul_self(void) __attribute__((const));

/* Ends the launch with a message. */
void emul_fault(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

unsigned emul_shared_address(const void *pointer);
/* The memory behind `bytes` at a shared address. */
void *emul_shared(unsigned address, unsigned bytes, unsigned alignment, const char *who);
/* Global memory: checks the alignment alone. */
const void *emul_global(const void *pointer, unsigned alignment, const char *who);

/* The block: barriers 0 (__syncthreads) to 15. */
enum emul_vote { EMUL_COUNT, EMUL_AND, EMUL_OR };
int emul_sync_block(int predicate, enum emul_vote vote);
void emul_barrier(int id, int threads, int wait);

/* The warp. */
enum emul_direction { EMUL_IDX, EMUL_UP, EMUL_DOWN, EMUL_XOR };
void emul_sync_warp(unsigned mask);
unsigned long long emul_shuffle(unsigned mask, unsigned long long value, enum emul_direction kind,
                                int parameter, int width);
unsigned emul_ballot(unsigned mask, int predicate);
enum emul_combination {
    EMUL_ADD,
    EMUL_MIN,
    EMUL_MAX,
    EMUL_UMIN,
    EMUL_UMAX,
    EMUL_BITAND,
    EMUL_BITOR,
    EMUL_BITXOR
};
unsigned emul_reduce(unsigned mask, unsigned value, enum emul_combination kind);
unsigned emul_match(unsigned mask, unsigned long long value);
/* Others run first: what a loop that polls memory must call. */
void emul_yield(void);

/* The cluster: which of its blocks this one is, and how many there are. */
unsigned emul_cluster_rank(void);
unsigned emul_cluster_size(void);
/* The address of the same place in another block's shared memory; of the own block as it is. */
unsigned emul_cluster_map(unsigned address, unsigned rank);
/* The memory behind an address of that kind, or behind one of the own block. */
void *emul_cluster_shared(unsigned address, unsigned bytes, unsigned alignment, const char *who);
void emul_cluster_arrive(int aligned);
void emul_cluster_wait(int aligned);

/* cp.async: `given` of the `bytes` are read, the others are zeros. */
void emul_cp_async(unsigned shared, const void *global, unsigned bytes, unsigned given);
void emul_cp_async_commit(void);
void emul_cp_async_wait(unsigned pending);
void emul_cp_async_arrive(unsigned barrier);

/* mbarriers, bulk and tensor copies. `cluster`: the address may be of another block of the cluster;
 * `blocks`: a copy goes to these of the cluster, one bit each, or 0: to where the address says. */
void emul_mbarrier_init(unsigned barrier, unsigned arrivals);
void emul_mbarrier_fence(void);
void emul_mbarrier_expect(unsigned barrier, unsigned bytes, int arrives, int cluster);
void emul_mbarrier_arrive(unsigned barrier, int cluster);
void emul_mbarrier_complete(unsigned barrier,
                            unsigned bytes); /* of st.async, in any block of the cluster */
void emul_mbarrier_wait(unsigned barrier, unsigned parity);
int emul_mbarrier_try_wait(unsigned barrier, unsigned parity);
void emul_bulk_load(unsigned shared, const void *global, unsigned bytes, unsigned barrier,
                    unsigned blocks);
void emul_bulk_copy(unsigned to, unsigned from, unsigned bytes, unsigned barrier);
void emul_bulk_store(void *global, unsigned shared, unsigned bytes);
void emul_bulk_commit(void);
void emul_bulk_wait(unsigned pending, int read);
void emul_fence_proxy_async(int cluster);
void emul_tensor_load(unsigned shared, const void *map, const int *at, unsigned rank,
                      unsigned barrier, unsigned blocks);
void emul_tensor_check(const void *map, unsigned rank);

/* Tensor cores. */
void emul_ldmatrix(unsigned *r, int count, unsigned address, int transposed);
void emul_stmatrix(const unsigned *r, int count, unsigned address, int transposed);
void emul_mma(float *d, const unsigned *a, unsigned b0, unsigned b1, int is_bf16);
void emul_wgmma_fence(void);
void emul_wgmma_commit(void);
void emul_wgmma_wait(unsigned pending);
enum emul_type { EMUL_F16, EMUL_BF16, EMUL_E4M3, EMUL_E5M2 }; /* the last two: k32, else k16 */
struct emul_product {
    float *d; /* columns / 2 of them */
    int columns;
    const unsigned *a_registers; /* four; or NULL */
    unsigned long long a, b;     /* descriptors */
    int b_mn;                    /* b is MN-major, else K-major, as a is */
    int accumulate;
    enum emul_type a_type, b_type;
};
void emul_wgmma(const struct emul_product *operation);

/* Conversions, to nearest even as the GPU's. */
float emul_from_fp16(unsigned short bits);
unsigned short emul_to_fp16(float x);
unsigned short emul_to_bf16(float x);
unsigned short emul_fp16_of_e4m3(unsigned char bits);
unsigned char emul_to_e4m3(float x); /* both stay finite */
unsigned char emul_to_e5m2(float x);

/* An asm statement: its text, read once, and its operands in order. */
struct emul_operand {
    void *to; /* of an output; NULL: an input */
    unsigned long long value;
    unsigned bytes;
};
struct emul_code;
struct emul_code *emul_asm(const char *text); /* lives on */
void emul_asm_run(const struct emul_code *code, const struct emul_operand *operands,
                  unsigned count);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif

#endif /* EMUL_ENGINE_H */
