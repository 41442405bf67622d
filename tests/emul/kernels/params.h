/* What the tests' kernels take, for both sides. */
#ifndef EMUL_TEST_PARAMS_H
#define EMUL_TEST_PARAMS_H

/* Names of what a kernel is to do: enumerations shared with test_emul.c. */
enum matrix_what {
    MATRIX_MMA,           /* 16 x 8 of 16 x 16 and b as [n][k] */
    MATRIX_MMA_TRANS,     /* 16 x 16, b as [k][n] */
    MATRIX_WGMMA_64,      /* 64 x 64 of k = 64, b as [n][k] */
    MATRIX_WGMMA_256_REG, /* 64 x 256 of k = 64, a in registers, b as [k][n] */
    MATRIX_BOX            /* a box of a tensor as it lies in shared memory */
};

struct matrix_params {
    unsigned long long a_map[16], b_map[16]; /* 64-byte aligned, as the first of the structure */
    const unsigned short *a, *b;
    void *d;
    int what, is_bf16;
    int at[4];
};

struct fp8_params {
    unsigned long long a_map[16], b_map[16]; /* 64-byte aligned; bytes in boxes of pitch x 64 */
    const unsigned char *a;
    float *d;                    /* [64][64] */
    int pitch, registers, types; /* types: + 2 where a is e5m2, + 1 where b is */
    int rounds;                  /* so often the product is added */
};

enum sync_what { SYNC_SHUFFLES, SYNC_VOTES, SYNC_BLOCK, SYNC_NAMED, SYNC_EARLY_EXIT, SYNC_SHARED };
struct sync_params {
    int *out;
    int what;
};

#define CLUSTER_BLOCKS 4
#define CLUSTER_THREADS 128
#define CLUSTER_ROUNDS 3
#define CLUSTER_OUT 1024 /* words of a block's output, and of its dynamic shared memory */
enum cluster_what {
    CLUSTER_EXCHANGE,
    CLUSTER_HANDSHAKE,
    CLUSTER_MULTICAST,
    CLUSTER_EXITS,
    CLUSTER_COPY,
    /* What kernels get wrong. */
    CLUSTER_NO_BARRIER,      /* reads another block's memory before it is written */
    CLUSTER_RUN_AHEAD,       /* writes a second time what others have yet to read */
    CLUSTER_LEAVE_EARLY,     /* ends while others may still read */
    CLUSTER_NOT_BEGUN,       /* writes to a block that may not have begun */
    CLUSTER_NO_ARRIVAL,      /* one block does not hand on */
    CLUSTER_REMOTE_WAIT,     /* waits for another block's mbarrier */
    CLUSTER_MULTICAST_EARLY, /* copies to all before they are ready for it */
    CLUSTER_ARRIVE_TWICE,
    CLUSTER_WAIT_ALONE,
    CLUSTER_DIVERGED,    /* half of a warp at an aligned barrier */
    CLUSTER_CTA_ADDRESS, /* another block's address in an instruction for the own block's */
    CLUSTER_OUTSIDE,     /* reads behind another block's shared memory */
    CLUSTER_NO_SUCH_RANK,
    CLUSTER_COPY_UNFENCED, /* copies what threads wrote without a fence */
    CLUSTER_NO_MBARRIER    /* arrives at what is no mbarrier */
};
struct cluster_params {
    unsigned long long map[16]; /* 64-byte aligned; bytes in boxes of 64 x 16 */
    const unsigned *in;         /* CLUSTER_OUT / 2 words */
    unsigned *out;              /* CLUSTER_OUT words of each block */
    int what;
};

#define HAZARD_BYTES 1024 /* of the data that a hazard's kernel hands through */
/* Each is something that a kernel gets wrong, but for the first of all. */
#define HAZARD_MAP(X)                                                                    \
    X(NOTHING)           /* right: in, through a ring, out */                            \
    X(COPY_UNWAITED)     /* reads what cp.async brings before it waits */                \
    X(COPY_OF_OTHERS)    /* ... what another thread's brings, without a barrier */       \
    X(REFILL_EARLY)      /* asks for the next data while others still read the last */   \
    X(STORE_REUSE)       /* overwrites what a bulk store has yet to read */              \
    X(STORE_UNWAITED)    /* ends while a bulk store has yet to read */                   \
    X(STORE_UNFENCED)    /* a bulk store of what threads wrote, without a proxy fence */ \
    X(LOAD_UNWAITED)     /* ends while a bulk load is on its way */                      \
    X(PREFETCH_ADDRESS)  /* a bulk prefetch from a multiple of 4 */                      \
    X(PREFETCH_LENGTH)   /* ... of 24 bytes */                                           \
    X(WGMMA_UNWAITED)    /* reads accumulators before it waits */                        \
    X(WGMMA_OVERWRITE)   /* overwrites an operand before it waits */                     \
    X(WGMMA_UNFENCED)    /* touches accumulators and goes on without wgmma.fence */      \
    X(WGMMA_PROXY)       /* operands written by threads, without a proxy fence */        \
    X(WGMMA_LONELY)      /* one warp of the group stays away */                          \
    X(RUN_AHEAD)         /* a warp writes a second time what others have yet to read */  \
    X(STUCK_MBARRIER)    /* waits for an arrival that does not come */                   \
    X(STUCK_POLL)        /* ... by polling */                                            \
    X(STUCK_BARRIER)     /* one thread of the block stays away from a named barrier */   \
    X(DIVERGED)          /* lanes of a warp at different operations */                   \
    X(OUTSIDE)           /* reads behind the block's shared memory */                    \
    X(MISALIGNED)        /* 16 bytes at an address that is a multiple of 4 */            \
    X(MBARRIER_RAW)      /* arrives at what is no mbarrier */                            \
    X(MBARRIER_HIDDEN)   /* a copy with an mbarrier that no fence showed */              \
    X(MBARRIER_TOO_MANY) /* arrives once too often */                                    \
    X(SHARED_UNWRITTEN)  /* reads what was not written */                                \
    X(ASM_UNKNOWN)       /* an instruction that the emulation lacks */                   \
    X(ASM_INPUT)         /* an asm statement that writes its input */
enum hazard {
#define HAZARD_NAME(name) HAZARD_##name,
    HAZARD_MAP(HAZARD_NAME)
#undef HAZARD_NAME
};
struct hazard_params {
    const unsigned char *in; /* HAZARD_BYTES */
    unsigned char *out;      /* the same, if nothing went wrong */
    int what;
};

#endif
