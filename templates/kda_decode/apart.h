/* Shared memory of cache = apart (apart.cuh): a fixed part, what each warp that serves has of its own, buffers of records,
 * each with what is computed of them, and places for pieces of states. The host (C11) and the device compiler read it. */
#ifndef GEN_KDA_DECODE_APART_H
#define GEN_KDA_DECODE_APART_H

#define GEN_KDA_DECODE_APART_FIXED 1792
#define GEN_KDA_DECODE_APART_SCRATCH 384
#define GEN_KDA_DECODE_APART_PREPARED 1920
#define GEN_KDA_DECODE_APART_SERVING 8   /* warps */
#define GEN_KDA_DECODE_APART_PREPARING 4 /* warps */
#define GEN_KDA_DECODE_APART_BUFFERS 8   /* or half as many, where they leave less than BULK_LEAST to places */
#define GEN_KDA_DECODE_APART_AHEAD 3     /* states that copies of records are ahead of those of pieces */

#endif /* GEN_KDA_DECODE_APART_H */
