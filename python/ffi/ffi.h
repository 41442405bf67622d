/*
 * What the files of libattngen_tvmffi share: reading the arguments of a call by
 * TVM FFI, and running a family's problem on what they say.
 *
 * A function reads its arguments in order. The first one that is not as it should
 * be sets the thread's TVM FFI error and `failed`; what is read after that is
 * harmless, so that a function checks once, before it runs.
 */
#ifndef ATTNGEN_FFI_H
#define ATTNGEN_FFI_H

#include <attngen/gen.h>
#include <stdbool.h>
#include <tvm/ffi/c_api.h>

#define FFI_EXPORT __attribute__((visibility("default")))

/* Bits of the argument `flags` beside those of enum gen_problem_flag. Nothing is launched with
 * them; `workspace` is then the name of a device, or None for that of the tensors. */
#define FFI_SELECT (1u << 30)  /* the plan as JSON is returned */
#define FFI_EXPLAIN (1u << 29) /* the text of gen_explain() is returned */

/* Sets of element types, by the bits of enum gen_dtype. */
#define FFI_16_BITS (1u << GEN_DTYPE_BF16 | 1u << GEN_DTYPE_FP16)
#define FFI_FP32 (1u << GEN_DTYPE_FP32)
#define FFI_FP16 (1u << GEN_DTYPE_FP16)
#define FFI_UINT8 (1u << 31) /* bytes, which no enum gen_dtype is */
#define FFI_INT32 (1u << GEN_DTYPE_INT32)
#define FFI_INDEX (1u << GEN_DTYPE_INT32 | 1u << GEN_DTYPE_INT64)
#define FFI_8_BITS (1u << GEN_DTYPE_E4M3 | 1u << GEN_DTYPE_E5M2)

/* Optional numbers: None reads as these. */
#define FFI_NO_INT INT64_MIN

struct ffi_call {
    const char *name; /* of the function */
    const TVMFFIAny *args;
    TVMFFIAny *result;
    int32_t next; /* the argument to read */
    bool failed;
    const gen_library *library;
    uint32_t library_id; /* never given twice in a process */
    uint32_t flags;
    const DLTensor *workspace;
    char device_name[64]; /* with FFI_SELECT and FFI_EXPLAIN; empty: that of the tensors */
    DLDevice device;      /* of the tensors */
    const char *device_from;
    int32_t index_dtype;       /* enum gen_index_dtype: INT64 where a list of indices has that */
    int64_t dims[26];          /* sizes by the letters of shapes; -1: not known yet */
    const char *dims_from[26]; /* the argument that each is from */
};

/* Begins a call: the number of arguments, then library, flags and workspace, which all families'
 * functions begin with. */
bool ffi_begin(struct ffi_call *call, const char *name, const TVMFFIAny *args, int32_t num_args,
               int32_t expected, TVMFFIAny *result);

/* Sets the thread's error of TVM FFI and `failed`; -1 to return. */
__attribute__((format(printf, 3, 4))) int ffi_fail(struct ffi_call *call, const char *kind,
                                                   const char *format, ...);
/* The same with gen_last_error()'s text, where `status` is a failure; else 0. */
int ffi_status(struct ffi_call *call, enum gen_status status);

/* ---- arguments, in order ------------------------------------------------ */

int64_t ffi_int(struct ffi_call *call, const char *name);
/* FFI_NO_INT where it is None. */
int64_t ffi_optional_int(struct ffi_call *call, const char *name);
/* The same within [least, most]; `otherwise` where it is None. */
int32_t ffi_int32(struct ffi_call *call, const char *name, int64_t least, int64_t most,
                  int64_t otherwise);
bool ffi_bool(struct ffi_call *call, const char *name);
/* `otherwise` where it is None. */
float ffi_float(struct ffi_call *call, const char *name, float otherwise);
/* A string of fewer than `capacity` bytes. */
void ffi_string(struct ffi_call *call, const char *name, char *text, size_t capacity);

/*
 * A tensor: its dtype, its device, which is that of the tensors before, and its
 * shape, a letter a dimension; what a letter stood for it stands for again. Before
 * the letters:
 *
 *     =    all of it is contiguous
 *     *    tokens: one dimension, or two, batch and tokens of each, which are `b` and
 *          `t`; the dimensions behind them are contiguous
 *     ~    of any strides
 *
 * Without, the last dimension is contiguous.
 */
const DLTensor *ffi_tensor(struct ffi_call *call, const char *name, const char *shape,
                           uint32_t dtypes);
/* NULL where it is None. */
const DLTensor *ffi_optional(struct ffi_call *call, const char *name, const char *shape,
                             uint32_t dtypes);

/* The same of a list of indices, of int32 or int64; one of its pointers is where it is. */
const DLTensor *ffi_index(struct ffi_call *call, const char *name, const char *shape);
const int32_t *ffi_index_32(const DLTensor *list);
const int64_t *ffi_index_64(const DLTensor *list);

/* Dimensions of the next argument, or -1 where it is no tensor. */
int ffi_next_rank(const struct ffi_call *call);

/* ---- what tensors say; harmless values for NULL -------------------------- */

int64_t ffi_dim(const struct ffi_call *call, char letter);
/* Sets a letter before tensors do. */
void ffi_set_dim(struct ffi_call *call, char letter, int64_t size, const char *from);
/* The same within int32, as problems have them. */
int32_t ffi_size(struct ffi_call *call, char letter);
/* Is not NULL, even where the tensor is empty. */
void *ffi_data(const DLTensor *tensor);
/* In elements, as if all sizes were above 1; of packed tensors, too. */
int64_t ffi_stride(const DLTensor *tensor, int dim);
/* Of a tensor of tokens ("*") with `rank` dimensions behind them: the distance from token to token,
 * 0 where that does not matter. */
int64_t ffi_token_stride(struct ffi_call *call, const DLTensor *tensor, const char *name, int rank);
/* enum gen_dtype; that of BF16 for NULL. */
int32_t ffi_dtype(const DLTensor *tensor);
int64_t ffi_elements(const DLTensor *tensor);

/* Sequences, as KDA's problems have them. */
struct ffi_sequences {
    int32_t batch, seq_len, num_tokens;
    const int32_t *cu_seqlens;    /* both NULL: all have seq_len tokens */
    const int64_t *cu_seqlens_64; /* in its place */
    int32_t index_dtype;
    int64_t chunks; /* of 64 tokens, at most */
};

/* What the tokens and cu_seqlens say; `most` tokens of a sequence, or FFI_NO_INT. */
bool ffi_sequences(struct ffi_call *call, const DLTensor *cu_seqlens, int64_t most,
                   struct ffi_sequences *sequences);

/* ---- running -------------------------------------------------------------- */

/* The library of a handle (0: the default product, opened at first use); NULL, and the error. */
const gen_library *ffi_library(struct ffi_call *call, int64_t handle, uint32_t *id);
/* Describes the device of the tensors, or the one that is named. */
int ffi_device(struct ffi_call *call, gen_device *device);
/* Selects and launches, or describes, as the flags say. What a function returns. */
int ffi_run(struct ffi_call *call, const gen_problem *problem, const gen_args *args);
/* Describes a plan or a selection, as the flags say. */
int ffi_tell(struct ffi_call *call, const gen_device *device, const gen_problem *problem);
/* Makes the result a string. */
int ffi_return_text(struct ffi_call *call, const char *text, size_t length);

/* Makes the context of a CUDA device current, if it is not, and undoes that. */
struct ffi_context {
    bool pushed;
};
int ffi_enter(struct ffi_call *call, int32_t ordinal, struct ffi_context *context);
void ffi_leave(struct ffi_context *context);

#endif /* ATTNGEN_FFI_H */
