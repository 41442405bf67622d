/*
 * gen.h - the runtime of attngen: pick an ahead-of-time compiled attention
 * kernel for a problem on a GPU and launch it.
 *
 * Five calls make the road: gen_open() opens a product file, gen_device_query()
 * describes a GPU, gen_select() turns a problem into a plan, gen_preload()
 * loads its kernels, gen_launch() puts them on a stream. The problem and
 * argument structs of each family are in <family>.h beside this header.
 *
 * The library depends on libc alone; libcuda is opened at run time, and every
 * call except those that need a GPU works without it. It never prints (unless
 * the environment variable GEN_LOG asks), never exits, has no global state but
 * the opened driver's functions, the log's callback and what each thread keeps: its last error
 * message, its last plans and tensor maps.
 *
 * The caller sets `size` of every struct before the call, of those that a call
 * fills (gen_device, gen_library_info, gen_variant_info, gen_plan) too. A family's
 * problem or arguments may be those of another version: fields that a smaller
 * struct lacks are 0, which means their default, and a larger one is accepted where
 * what this library does not know is 0. Of all other structs another size than this
 * library's is INVALID_ARGUMENT, and nothing is written.
 */
#ifndef GEN_H
#define GEN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GEN_VERSION_MAJOR 0
#define GEN_VERSION_MINOR 2
#define GEN_VERSION_PATCH 0

/* Given by who reads the header without a compiler: empty for pycparser, cffi and the like. */
#if defined(GEN_API)
#elif defined(__GNUC__)
#define GEN_API __attribute__((visibility("default")))
#else
#define GEN_API
#endif

/* Every status with the sentence gen_status_string() gives for it. */
#define GEN_STATUS_MAP(X)                                                    \
    X(OK, "success")                                                         \
    X(INVALID_ARGUMENT, "an argument is outside what is allowed")            \
    X(UNSUPPORTED, "no variant in the library fits this problem and device") \
    X(NOT_LOADED, "the kernel is not loaded and cannot be loaded now")       \
    X(NO_DRIVER, "the CUDA driver library could not be opened")              \
    X(NO_DEVICE, "there is no such device")                                  \
    X(DRIVER, "a CUDA driver call failed")                                   \
    X(IO, "a file could not be read")                                        \
    X(FORMAT, "a file is not what it should be")                             \
    X(OUT_OF_MEMORY, "host memory is exhausted")                             \
    X(WORKSPACE, "the workspace is missing, misaligned or too small")        \
    X(MISMATCH, "the plan is not one that this library made")

enum gen_status {
#define GEN_STATUS_ENUM(name, text) GEN_STATUS_##name,
    GEN_STATUS_MAP(GEN_STATUS_ENUM)
#undef GEN_STATUS_ENUM
        GEN_STATUS_COUNT,
    GEN_OK = GEN_STATUS_OK
};

/* Element types of tensors. */
enum gen_dtype {
    GEN_DTYPE_BF16 = 0,
    GEN_DTYPE_FP16 = 1,
    GEN_DTYPE_FP32 = 2,
    GEN_DTYPE_INT32 = 3,
    GEN_DTYPE_E4M3 = 4, /* fp8, 4 exponent and 3 fraction bits, no infinity */
    GEN_DTYPE_E5M2 = 5, /* fp8, 5 exponent and 2 fraction bits */
    GEN_DTYPE_INT64 = 6
};

/* What a call's lists of indices are, cu_seqlens for one: a problem's index_dtype. With INT64 they
 * may stand in the arguments whose names end in _64, on the device as the others: a plan begins
 * with a launch that writes them into the workspace as 32 bits, numbers that those do not hold as
 * the nearest that they do. Nothing is read back. */
enum gen_index_dtype { GEN_INDEX_INT32 = 0, GEN_INDEX_INT64 = 1 };

/* What recurrent states are kept as in a pool. Arithmetic on them is fp32; a state of 16 bits is
 * rounded once, to nearest even, where it is written. FP16 has an eighth of BF16's error and keeps
 * what is beyond +-65504 at that. */
enum gen_state_dtype { GEN_STATE_FP32 = 0, GEN_STATE_BF16 = 1, GEN_STATE_FP16 = 2 };

/* The CUDA driver's stream handle, named without its header. */
struct CUstream_st;
typedef struct CUstream_st *gen_stream;

/* Immutable once open; share it between any number of threads. */
typedef struct gen_library gen_library;

/* ---- devices ----------------------------------------------------------- */

enum gen_backend {
    GEN_BACKEND_CUDA = 0,
    GEN_BACKEND_CPU = 1 /* the reference in plain C, on host memory */
};

/* What selection knows of a device: plain data that the caller may change,
 * for example num_sms for a green context. */
typedef struct gen_device {
    uint32_t size;               /* sizeof(gen_device) */
    uint32_t backend;            /* enum gen_backend */
    uint32_t compute_capability; /* 10 * major + minor: 90 for sm_90 */
    uint32_t num_sms;
    uint32_t shared_per_block; /* opt-in limit, bytes */
    uint32_t shared_per_sm;    /* bytes */
    uint32_t l2_bytes;
    uint32_t memory_gbps; /* peak DRAM bandwidth, 1e9 bytes/s */
    int32_t ordinal;      /* CUDA ordinal; -1: pretended or CPU */
    char name[64];
} gen_device;

/* Describes CUDA device `ordinal`. Errors: INVALID_ARGUMENT, NO_DRIVER,
 * NO_DEVICE, DRIVER. */
GEN_API enum gen_status gen_device_query(int ordinal, gen_device *device);

/* Describes a device by name without touching a driver: "cpu", a known GPU
 * ("h200", "h20", "h100", "a100", "l40s", "b200", ...; case ignored), or
 * "sm_90:78" (architecture and SM count). Errors: INVALID_ARGUMENT, with the
 * known names in the message. */
GEN_API enum gen_status gen_device_named(const char *name, gen_device *device);

/* ---- the library ------------------------------------------------------- */

typedef struct gen_open_options {
    uint32_t size;    /* sizeof(gen_open_options) */
    uint32_t flags;   /* 0 */
    const char *path; /* product file; or: */
    const void *data; /* product bytes, 8-byte aligned, which must outlive the library; or
                         neither: what is installed */
    size_t data_size;
    const char *const *table_paths; /* tuning tables read before the built-in
                                       ones; the first to hold a row wins */
    size_t num_table_paths;
    const char *const *more_paths; /* product files that are opened as one with it */
    size_t num_more_paths;
} gen_open_options;

/* Opens a product: reads its index, and of the rest only what a launch loads,
 * which is checked then. NULL options are all zeros. The file stays open, not
 * mapped: one that shrinks or changes meanwhile makes loads fail (IO, FORMAT) and
 * nothing else. Needs no GPU and no driver.
 *
 * What is installed: the files that $ATTNGEN_PRODUCT_PATH names, separated by
 * colons, where a folder stands for the files *.fatbin in it (setuid programs do
 * not ask it); else attngen.fatbin in the folder of this library, or of the
 * program that it is linked into; else the files *.fatbin in the folder attngen
 * there.
 *
 * Several files become one library that selects among the variants and tuning
 * rows of all. Of variants of one name, and of rows of one class of GPU and
 * required key, those of the first file count.
 *
 * On failure *library is untouched. Errors: INVALID_ARGUMENT, IO (also for what is
 * no regular file, and where nothing is installed), FORMAT, OUT_OF_MEMORY;
 * UNSUPPORTED on an x86-64 processor without SSE 4.1. */
GEN_API enum gen_status gen_open(const gen_open_options *options, gen_library **library);

/* Unloads the kernels and frees the library; no launch may be in flight and no
 * other call may run on it. NULL is allowed. */
GEN_API void gen_close(gen_library *library);

typedef struct gen_library_info {
    uint32_t size; /* sizeof(gen_library_info) */
    uint32_t num_variants;
    uint32_t num_families;       /* known to this runtime */
    uint32_t num_tables;         /* read */
    uint32_t num_rows;           /* in use */
    uint32_t num_rows_bad;       /* malformed, or naming an unknown variant;
                                    a refused built-in table counts as one */
    uint32_t num_rows_expired;   /* measured on a kernel that has changed since, as its machine
                                    code and its source both say */
    uint32_t num_rows_ptx;       /* naming PTX where the product has machine code for the class
                                    and the required key: passed over */
    uint32_t num_groups_skipped; /* of families this runtime does not know, or
                                    with required values that it does not */
    uint64_t digest;             /* of the product, or of the several */
    const char *toolkit;         /* that compiled it, or the first: "13.0" */
} gen_library_info;

/* Errors: INVALID_ARGUMENT. */
GEN_API enum gen_status gen_library_info_get(const gen_library *library, gen_library_info *info);

typedef struct gen_variant_info {
    uint32_t size;    /* sizeof(gen_variant_info) */
    const char *name; /* <family>_<required>__<target>_<free> */
    const char *family;
    const char *required;                   /* the name's part left of the double underscore */
    const char *target;                     /* "sm_90a", "compute_80" */
    uint32_t threads;                       /* per block */
    uint32_t shared_dynamic, shared_static; /* bytes per block */
    uint32_t registers;                     /* per thread */
    uint32_t cluster;                       /* blocks */
    uint32_t is_fallback;
    uint64_t digest;      /* of the expanded source and the options */
    uint64_t code_digest; /* of the machine code; rows of tables are kept as long as it stays */
} gen_variant_info;

/* Variant `index` of [0, num_variants), in the order of names. The strings
 * live as long as the library. Errors: INVALID_ARGUMENT. */
GEN_API enum gen_status gen_variant_get(const gen_library *library, uint32_t index,
                                        gen_variant_info *info);

/* ---- problems, plans --------------------------------------------------- */

/* Hints that any problem may carry. */
enum gen_problem_flag {
    /* Results bit-equal from run to run on one device. */
    GEN_DETERMINISTIC = 1u << 0,
    /* Results of a request (a sequence) bit-equal in every batch: they depend neither on how many
     * others there are nor on the lengths of those, so where requests are packed or of several
     * lengths not on the problem's sums, means and greatest lengths either. What the problem says
     * of a request itself (heads, widths, a mask, the query tokens of a decode step, the one length
     * of all requests) may be part of the choice. */
    GEN_BATCH_INVARIANT = 1u << 1,
    /* No overlap with the kernel before on the stream. Without this flag, kernels that can (sm_90
     * and later) are launched as programmatic dependents: their blocks may start while that kernel
     * drains and wait on the device until its results are there, which hides part of the launch
     * latency, in graphs too. The results are those of stream order either way. */
    GEN_SERIAL_LAUNCH = 1u << 2
};

/* The head of every family's problem struct. */
typedef struct gen_problem {
    uint32_t size;              /* of the whole family struct */
    uint32_t family;            /* GEN_<FAMILY>, a tag from <family>.h */
    uint32_t flags;             /* enum gen_problem_flag */
    uint32_t max_workspace_mib; /* 0: no limit */
} gen_problem;

/* The head of every family's argument struct. */
typedef struct gen_args {
    uint32_t size;
    uint32_t family;
} gen_args;

/* Which rule of selection decided. */
#define GEN_WHY_MAP(X)                                         \
    X(TABLE, "measured on this class of GPU")                  \
    X(NEAREST, "measured on the nearest class of GPU, scaled") \
    X(MODEL, "analytic model")                                 \
    X(FALLBACK, "the fallback variant")                        \
    X(REFERENCE, "the reference on the CPU")                   \
    X(ASKED, "the caller named the variant")

enum gen_why {
#define GEN_WHY_ENUM(name, text) GEN_WHY_##name,
    GEN_WHY_MAP(GEN_WHY_ENUM)
#undef GEN_WHY_ENUM
        GEN_WHY_COUNT
};

#define GEN_PLAN_MAX_LAUNCHES 10
#define GEN_PLAN_MAX_DIMS 24
#define GEN_PLAN_MAX_WIDE 5

typedef struct gen_plan_launch {
    uint32_t variant;   /* index into the library's variants */
    uint32_t grid[3];   /* blocks */
    uint32_t shared;    /* dynamic shared memory, bytes */
    uint16_t threads;   /* per block */
    uint16_t dependent; /* 1: a programmatic dependent launch */
} gen_plan_launch;

/* Plain data: keep it, copy it, reuse it for every launch of the same problem
 * on the same class of device, but do not change it: gen_launch() refuses a plan
 * that is not as it was made. Every byte is set, so that equal plans are equal in
 * memory too. */
typedef struct gen_plan {
    uint32_t size; /* sizeof(gen_plan) */
    uint32_t family;
    uint32_t backend;      /* enum gen_backend */
    uint32_t why;          /* enum gen_why */
    uint32_t num_launches; /* 0: nothing to do (an empty problem). A launch that lists of
                              64-bit indices take is not among them */
    float predicted_us;    /* 0 where nothing is known */
    uint64_t workspace_bytes;
    uint64_t library_digest;
    gen_plan_launch launch[GEN_PLAN_MAX_LAUNCHES];
    /* The family's own copy of the problem, and what 32 bits do not hold of it. */
    int64_t wide[GEN_PLAN_MAX_WIDE];
    int32_t dims[GEN_PLAN_MAX_DIMS];
    uint64_t seal[2]; /* a checksum of the rest */
} gen_plan;

/* Picks the variants for a problem on a device. Pure: no CUDA call, no
 * allocation, no lock, no file. *plan is untouched on failure. Errors:
 * INVALID_ARGUMENT (which field, what it holds, what is allowed), UNSUPPORTED
 * (with the nearest variants and what would add the missing one). Thread-safe.
 */
GEN_API enum gen_status gen_select(const gen_library *library, const gen_device *device,
                                   const gen_problem *problem, gen_plan *plan);

/* The same with the (main) variant named by the caller: for tuners and for
 * overrides. Errors: as gen_select(); INVALID_ARGUMENT also for a name that the
 * product does not have, UNSUPPORTED where that variant does not fit. */
GEN_API enum gen_status gen_select_variant(const gen_library *library, const gen_device *device,
                                           const gen_problem *problem, const char *variant,
                                           gen_plan *plan);

/* Writes why gen_select() decides as it does: every candidate with its
 * predicted time, the winner marked with '*', the rule, the rejected ones with
 * their reasons; of a problem that no variant fits, why. Truncates to `capacity`
 * bytes with a final NUL; *needed (may be NULL) gets the full length without it.
 * Errors: INVALID_ARGUMENT, OUT_OF_MEMORY. Thread-safe. */
GEN_API enum gen_status gen_explain(const gen_library *library, const gen_device *device,
                                    const gen_problem *problem, char *text, size_t capacity,
                                    size_t *needed);

/* Loads the plan's kernels, for every device of the machine that can run them.
 * Do it outside stream capture; once is enough. Thread-safe. Errors:
 * INVALID_ARGUMENT, MISMATCH, NO_DRIVER, NO_DEVICE, DRIVER, FORMAT (a damaged
 * image), IO and OUT_OF_MEMORY (while the image is read). */
GEN_API enum gen_status gen_preload(const gen_library *library, const gen_plan *plan);

/* Launches a plan on a stream of the current context (or, for a CPU plan, runs
 * it before returning; the stream is ignored). Allocates nothing,
 * synchronizes nothing, reads nothing back. A kernel that was not preloaded is
 * loaded here, except on a capturing stream: NOT_LOADED. Workspace: at least
 * plan->workspace_bytes of device memory, 256-byte aligned; NULL where that is
 * 0. It may hold anything, and launches that may run at the same time need one
 * each. What is written (outputs, states, the workspace) overlaps no other
 * argument, but where <family>.h says "may be"; views of one buffer may lie
 * between each other. Errors: INVALID_ARGUMENT (for an overlap, too, as far as
 * the host knows the sizes), MISMATCH, WORKSPACE, NOT_LOADED, DRIVER (no
 * current context, another architecture's device, a launch that the driver
 * refuses), and where the kernel is loaded here those of gen_preload().
 * Thread-safe. */
GEN_API enum gen_status gen_launch(const gen_library *library, const gen_plan *plan,
                                   const gen_args *args, void *workspace, gen_stream stream);

/* ---- the log ----------------------------------------------------------- */

/* What may be logged; 0 is nothing. GEN_LOG names the same for the libraries that are opened while
 * it is set: "select,load". A word there that is none of these is named on stderr. */
enum gen_log_level {
    /* A line a selection that the rules decide, with blanks between key=value:
     *
     *     select family=F class=C status=S variant=V us=T why=W octaves=D part_of=P flags=X
     *     workspace_mib=N problem=batch=64 ...
     *
     * (one line). The problem stands last, as shape files and `attngen select` take it; "-" is what
     * there is none of. A plan that the calling thread finds among those it keeps is no selection,
     * so that a problem is logged once a thread as long as it keeps the plan. `attngen tune
     * --from-log` reads these lines. */
    GEN_LOG_SELECT = 1u << 0,
    /* A line a kernel that is loaded. */
    GEN_LOG_LOAD = 1u << 1,
    /* What gen_explain() says of each of these selections. */
    GEN_LOG_EXPLAIN = 1u << 2
};

/* Gets a level's line or, of GEN_LOG_EXPLAIN, lines; `text` lives as long as the call. */
typedef void (*gen_log_callback)(enum gen_log_level level, const char *text, void *user);

/* Logs these levels for every library of the process, beside those that GEN_LOG named when it was
 * opened, and gives all lines to `callback` (NULL: to stderr). Lines come one at a time, from the
 * thread whose call they are about; what the callback calls of this library logs nothing. Once this
 * has returned, the callback that was set before is neither running nor called again. Errors:
 * INVALID_ARGUMENT (unknown levels, or called by the callback). Thread-safe. */
GEN_API enum gen_status gen_set_log(uint32_t levels, gen_log_callback callback, void *user);

/* ---- text -------------------------------------------------------------- */

/* The calling thread's message of its last failed call: what was asked, what
 * was found, what is allowed. Empty before the first failure. */
GEN_API const char *gen_last_error(void);
GEN_API const char *gen_status_name(enum gen_status status);   /* "OK" */
GEN_API const char *gen_status_string(enum gen_status status); /* sentence */
GEN_API const char *gen_why_string(enum gen_why why);
/* "0.2.0", of the library that is linked or loaded. */
GEN_API const char *gen_version(void);

#ifdef __cplusplus
}
#endif

#endif /* GEN_H */
