/* Reading the arguments of a call by TVM FFI: numbers, texts, tensors. */
#include "ffi.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define FIXED_ARGS 3 /* library, flags, workspace */

int ffi_fail(struct ffi_call *call, const char *kind, const char *format, ...)
{
    char text[1024];
    const int length = snprintf(text, sizeof text, "%s: ", call->name);
    va_list list;
    va_start(list, format);
    vsnprintf(text + length, sizeof text - (size_t)length, format, list);
    va_end(list);
    if (!call->failed)
        TVMFFIErrorSetRaisedFromCStr(kind, text);
    call->failed = true;
    return -1;
}

int ffi_status(struct ffi_call *call, enum gen_status status)
{
    if (!status)
        return 0;
    const char *kind = "RuntimeError";
    if (status == GEN_STATUS_INVALID_ARGUMENT || status == GEN_STATUS_UNSUPPORTED ||
        status == GEN_STATUS_WORKSPACE)
        kind = "ValueError";
    else if (status == GEN_STATUS_OUT_OF_MEMORY)
        kind = "MemoryError";
    if (!call->failed)
        TVMFFIErrorSetRaisedFromCStr(kind, gen_last_error());
    call->failed = true;
    return -1;
}

/* ---- numbers and texts --------------------------------------------------- */

static const TVMFFIAny *take(struct ffi_call *call)
{
    return &call->args[call->next++];
}

static const char *type_name(const TVMFFIAny *any)
{
    switch (any->type_index) {
    case kTVMFFINone:
        return "None";
    case kTVMFFIInt:
        return "an int";
    case kTVMFFIBool:
        return "a bool";
    case kTVMFFIFloat:
        return "a float";
    case kTVMFFIRawStr:
    case kTVMFFISmallStr:
    case kTVMFFIStr:
        return "a string";
    case kTVMFFIDLTensorPtr:
    case kTVMFFITensor:
        return "a tensor";
    default:
        return "an object of another type";
    }
}

int64_t ffi_optional_int(struct ffi_call *call, const char *name)
{
    const TVMFFIAny *any = take(call);
    if (any->type_index == kTVMFFIInt || any->type_index == kTVMFFIBool)
        return any->v_int64;
    if (any->type_index != kTVMFFINone)
        ffi_fail(call, "TypeError", "%s is %s; an int is wanted", name, type_name(any));
    return FFI_NO_INT;
}

int64_t ffi_int(struct ffi_call *call, const char *name)
{
    const int64_t value = ffi_optional_int(call, name);
    if (value != FFI_NO_INT || call->failed)
        return value;
    ffi_fail(call, "TypeError", "%s is None; an int is wanted", name);
    return 0;
}

int32_t ffi_int32(struct ffi_call *call, const char *name, int64_t least, int64_t most,
                  int64_t otherwise)
{
    int64_t value = ffi_optional_int(call, name);
    if (value == FFI_NO_INT)
        value = otherwise;
    if (call->failed)
        return 0;
    if (value < least || value > most) {
        ffi_fail(call, "ValueError", "%s is %" PRId64 "; allowed: %" PRId64 " to %" PRId64, name,
                 value, least, most);
        return 0;
    }
    return (int32_t)value;
}

bool ffi_bool(struct ffi_call *call, const char *name)
{
    return ffi_int32(call, name, 0, 1, 0) != 0;
}

float ffi_float(struct ffi_call *call, const char *name, float otherwise)
{
    const TVMFFIAny *any = take(call);
    if (any->type_index == kTVMFFIFloat)
        return (float)any->v_float64;
    if (any->type_index == kTVMFFIInt)
        return (float)any->v_int64;
    if (any->type_index != kTVMFFINone)
        ffi_fail(call, "TypeError", "%s is %s; a float is wanted", name, type_name(any));
    return otherwise;
}

/* What an object holds: a DLTensor, a TVMFFIByteArray. */
static void *behind_header(TVMFFIObject *object)
{
    return object + 1;
}

/* The bytes of a string, or NULL. */
static const char *string_of(const TVMFFIAny *any, size_t *length)
{
    if (any->type_index == kTVMFFIRawStr) {
        *length = strlen(any->v_c_str);
        return any->v_c_str;
    }
    if (any->type_index == kTVMFFISmallStr) {
        *length = any->small_str_len;
        return any->v_bytes;
    }
    if (any->type_index != kTVMFFIStr)
        return NULL;
    const TVMFFIByteArray *bytes = behind_header(any->v_obj);
    *length = bytes->size;
    return bytes->data;
}

void ffi_string(struct ffi_call *call, const char *name, char *text, size_t capacity)
{
    const TVMFFIAny *any = take(call);
    size_t length = 0;
    const char *from = string_of(any, &length);
    text[0] = 0;
    if (!from)
        ffi_fail(call, "TypeError", "%s is %s; a string is wanted", name, type_name(any));
    else if (length >= capacity || memchr(from, 0, length))
        ffi_fail(call, "ValueError", "%s has %zu bytes; allowed are fewer than %zu, none of them 0",
                 name, length, capacity);
    else
        snprintf(text, capacity, "%.*s", (int)length, from);
}

/* ---- tensors -------------------------------------------------------------- */

static const struct {
    uint8_t code, bits;
    int8_t dtype; /* enum gen_dtype */
    const char *name;
} dtypes_known[] = {
    {kDLBfloat, 16, GEN_DTYPE_BF16, "bfloat16"},
    {kDLFloat, 16, GEN_DTYPE_FP16, "float16"},
    {kDLFloat, 32, GEN_DTYPE_FP32, "float32"},
    {kDLInt, 32, GEN_DTYPE_INT32, "int32"},
    {kDLInt, 64, GEN_DTYPE_INT64, "int64"},
    {kDLFloat8_e4m3fn, 8, GEN_DTYPE_E4M3, "float8_e4m3fn"},
    {kDLFloat8_e5m2, 8, GEN_DTYPE_E5M2, "float8_e5m2"},
    {kDLUInt, 8, 31, "uint8"},
};
#define NUM_DTYPES (sizeof dtypes_known / sizeof dtypes_known[0])

static int dtype_index(const DLTensor *t)
{
    for (size_t i = 0; i < NUM_DTYPES && t->dtype.lanes == 1; i++)
        if (dtypes_known[i].code == t->dtype.code && dtypes_known[i].bits == t->dtype.bits)
            return (int)i;
    return -1;
}

int32_t ffi_dtype(const DLTensor *tensor)
{
    const int index = tensor ? dtype_index(tensor) : 0;
    return index < 0 ? -1 : dtypes_known[index].dtype;
}

static void bad_dtype(struct ffi_call *call, const char *name, const DLTensor *t, uint32_t dtypes)
{
    static const char *const codes[] = {"int", "uint", "float", "handle", "bfloat", "complex"};
    char allowed[128] = "", found[32];
    for (size_t i = 0; i < NUM_DTYPES; i++)
        if (dtypes >> dtypes_known[i].dtype & 1) {
            const size_t length = strlen(allowed);
            snprintf(allowed + length, sizeof allowed - length, "%s%s", length ? ", " : "",
                     dtypes_known[i].name);
        }
    const int index = dtype_index(t);
    if (index >= 0)
        snprintf(found, sizeof found, "%s", dtypes_known[index].name);
    else if (t->dtype.code < sizeof codes / sizeof codes[0])
        snprintf(found, sizeof found, "%s%d", codes[t->dtype.code], t->dtype.bits);
    else
        snprintf(found, sizeof found, "of DLPack's code %d, %d bits", t->dtype.code, t->dtype.bits);
    ffi_fail(call, "ValueError", "%s has dtype %s; allowed: %s", name, found, allowed);
}

int64_t ffi_stride(const DLTensor *tensor, int dim)
{
    if (tensor->strides)
        return tensor->strides[dim];
    int64_t stride = 1;
    for (int i = tensor->ndim - 1; i > dim; i--)
        stride *= tensor->shape[i];
    return stride;
}

int64_t ffi_elements(const DLTensor *tensor)
{
    int64_t count = 1;
    for (int i = 0; tensor && i < tensor->ndim; i++)
        count *= tensor->shape[i];
    return tensor ? count : 0;
}

void *ffi_data(const DLTensor *tensor)
{
    if (!tensor)
        return NULL;
    if (!tensor->data)
        return (void *)(uintptr_t)256; /* empty: an address that nothing is read from */
    return (char *)tensor->data + tensor->byte_offset;
}

/* Are the dimensions from `first` on contiguous? */
static bool contiguous(const DLTensor *t, int first)
{
    int64_t expected = 1;
    for (int i = t->ndim - 1; i >= first; i--) {
        if (t->shape[i] != 1 && ffi_stride(t, i) != expected)
            return ffi_elements(t) == 0;
        expected *= t->shape[i];
    }
    return true;
}

static void print_shape(const DLTensor *t, char *text, size_t capacity)
{
    size_t length = (size_t)snprintf(text, capacity, "[");
    for (int i = 0; i < t->ndim && length + 24 < capacity; i++)
        length += (size_t)snprintf(text + length, capacity - length, "%s%" PRId64, i ? ", " : "",
                                   t->shape[i]);
    snprintf(text + length, capacity - length, "]");
}

static void bind_dim(struct ffi_call *call, const char *name, const DLTensor *t, char letter,
                     int64_t size, int dim)
{
    const int i = letter - 'a';
    if (call->dims[i] == size || call->failed)
        return;
    if (call->dims[i] < 0) {
        call->dims[i] = size;
        call->dims_from[i] = name;
        return;
    }
    char shape[160];
    print_shape(t, shape, sizeof shape);
    ffi_fail(call, "ValueError", "%s has shape %s; its dimension %d must be %" PRId64 ", as %s has",
             name, shape, dim, call->dims[i], call->dims_from[i]);
}

static bool bind_shape(struct ffi_call *call, const char *name, const DLTensor *t,
                       const char *letters, bool tokens)
{
    const int rank = (int)strlen(letters);
    const int lead = t->ndim - rank;
    if (tokens ? lead != 1 && lead != 2 : lead != 0) {
        char shape[160];
        print_shape(t, shape, sizeof shape);
        ffi_fail(call, "ValueError", "%s has shape %s; %s%d dimensions are wanted", name, shape,
                 tokens ? "one dimension of tokens, or batch and tokens, and then " : "", rank);
        return false;
    }
    if (tokens) {
        bind_dim(call, name, t, 'b', lead == 2 ? t->shape[0] : 1, 0);
        bind_dim(call, name, t, 't', t->shape[lead - 1], lead - 1);
    }
    for (int i = 0; i < rank; i++)
        bind_dim(call, name, t, letters[i], t->shape[lead + i], lead + i);
    return !call->failed;
}

static int device_type(const DLTensor *t)
{
    if (t->device.device_type == kDLCPU || t->device.device_type == kDLCUDAHost)
        return kDLCPU;
    if (t->device.device_type == kDLCUDA || t->device.device_type == kDLCUDAManaged)
        return kDLCUDA;
    return -1;
}

static void bind_device(struct ffi_call *call, const char *name, const DLTensor *t)
{
    const int type = device_type(t);
    const DLDevice device = {(DLDeviceType)type, type == kDLCUDA ? t->device.device_id : 0};
    if (type < 0)
        ffi_fail(call, "ValueError", "%s is on a device of DLPack's type %d; allowed: CPU, CUDA",
                 name, (int)t->device.device_type);
    else if (!call->device_from) {
        call->device = device;
        call->device_from = name;
    } else if (device.device_type != call->device.device_type ||
               device.device_id != call->device.device_id)
        ffi_fail(call, "ValueError",
                 "%s is on %s:%d and %s on %s:%d; all tensors are on one device", name,
                 type == kDLCUDA ? "cuda" : "cpu", device.device_id, call->device_from,
                 call->device.device_type == kDLCUDA ? "cuda" : "cpu", call->device.device_id);
}

/* The tensor of an argument, or NULL. */
static const DLTensor *tensor_of(const TVMFFIAny *any)
{
    if (any->type_index == kTVMFFIDLTensorPtr)
        return any->v_ptr;
    return any->type_index == kTVMFFITensor ? behind_header(any->v_obj) : NULL;
}

int ffi_next_rank(const struct ffi_call *call)
{
    const DLTensor *t = tensor_of(&call->args[call->next]);
    return t ? t->ndim : -1;
}

const DLTensor *ffi_optional(struct ffi_call *call, const char *name, const char *shape,
                             uint32_t dtypes)
{
    const TVMFFIAny *any = take(call);
    const DLTensor *t = tensor_of(any);
    if (!t && any->type_index != kTVMFFINone)
        ffi_fail(call, "TypeError", "%s is %s; a tensor is wanted", name, type_name(any));
    if (!t || call->failed)
        return NULL;
    const bool all = *shape == '=';
    shape += all;
    const bool tokens = *shape == '*';
    shape += tokens;
    const bool any_strides = *shape == '~';
    shape += any_strides;
    if (dtypes && (ffi_dtype(t) < 0 || !(dtypes >> ffi_dtype(t) & 1)))
        bad_dtype(call, name, t, dtypes);
    bind_device(call, name, t);
    if (!bind_shape(call, name, t, shape, tokens))
        return NULL;
    const int first = all ? 0 : tokens ? t->ndim - (int)strlen(shape) : t->ndim - 1;
    if (t->ndim > 0 && !any_strides && !contiguous(t, first))
        ffi_fail(call, "ValueError",
                 "%s is not contiguous%s; .contiguous() makes it so, where a copy will do", name,
                 all      ? ""
                 : tokens ? " behind its tokens"
                          : " in its last dimension");
    return call->failed ? NULL : t;
}

const DLTensor *ffi_index(struct ffi_call *call, const char *name, const char *shape)
{
    const DLTensor *t = ffi_optional(call, name, shape, FFI_INDEX);
    if (ffi_index_64(t))
        call->index_dtype = GEN_INDEX_INT64;
    return t;
}

const int32_t *ffi_index_32(const DLTensor *list)
{
    return list && ffi_dtype(list) == GEN_DTYPE_INT32 ? ffi_data(list) : NULL;
}

const int64_t *ffi_index_64(const DLTensor *list)
{
    return list && ffi_dtype(list) == GEN_DTYPE_INT64 ? ffi_data(list) : NULL;
}

const DLTensor *ffi_tensor(struct ffi_call *call, const char *name, const char *shape,
                           uint32_t dtypes)
{
    const DLTensor *t = ffi_optional(call, name, shape, dtypes);
    if (!t && !call->failed)
        ffi_fail(call, "TypeError", "%s is None; a tensor is wanted", name);
    return t;
}

int64_t ffi_dim(const struct ffi_call *call, char letter)
{
    return call->dims[letter - 'a'];
}

void ffi_set_dim(struct ffi_call *call, char letter, int64_t size, const char *from)
{
    call->dims[letter - 'a'] = size;
    call->dims_from[letter - 'a'] = from;
}

int32_t ffi_size(struct ffi_call *call, char letter)
{
    const int64_t size = call->dims[letter - 'a'];
    if (size > INT32_MAX)
        ffi_fail(call, "ValueError", "%s has a dimension of %" PRId64 "; allowed: 0 to %d",
                 call->dims_from[letter - 'a'], size, INT32_MAX);
    return call->failed || size < 0 ? 0 : (int32_t)size;
}

int64_t ffi_token_stride(struct ffi_call *call, const DLTensor *tensor, const char *name, int rank)
{
    if (!tensor || call->failed)
        return 0;
    const int dim = tensor->ndim - rank - 1; /* of the tokens */
    const int64_t batch = dim ? tensor->shape[0] : 1, tokens = tensor->shape[dim];
    if (batch * tokens <= 1 || ffi_elements(tensor) == 0)
        return 0;
    const int64_t stride = ffi_stride(tensor, tokens > 1 ? dim : 0);
    if (batch > 1 && tokens > 1 && ffi_stride(tensor, 0) != tokens * stride)
        ffi_fail(call, "ValueError",
                 "the batches of %s lie %" PRId64 " elements apart; %" PRId64
                 " are wanted, one behind the other. .contiguous() makes it so, where a copy will "
                 "do",
                 name, ffi_stride(tensor, 0), tokens * stride);
    else if (stride <= 0)
        ffi_fail(call, "ValueError",
                 "%s has stride %" PRId64 " from token to token; .contiguous() mends it", name,
                 stride);
    return stride;
}

bool ffi_begin(struct ffi_call *call, const char *name, const TVMFFIAny *args, int32_t num_args,
               int32_t expected, TVMFFIAny *result)
{
    *call = (struct ffi_call){.name = name, .args = args, .result = result};
    memset(call->dims, -1, sizeof call->dims);
    if (num_args != expected + FIXED_ARGS) {
        ffi_fail(call, "TypeError", "%d arguments are given, %d are wanted", num_args,
                 expected + FIXED_ARGS);
        return false;
    }
    call->library = ffi_library(call, ffi_int(call, "library"), &call->library_id);
    call->flags = (uint32_t)ffi_int32(call, "flags", 0, INT32_MAX, 0);
    size_t length = 0;
    if (call->flags & (FFI_SELECT | FFI_EXPLAIN) &&
        (args[call->next].type_index == kTVMFFINone || string_of(&args[call->next], &length))) {
        if (args[call->next].type_index == kTVMFFINone)
            call->next++;
        else
            ffi_string(call, "device", call->device_name, sizeof call->device_name);
    } else {
        const TVMFFIAny *any = take(call);
        call->workspace = tensor_of(any);
        if (!call->workspace && any->type_index != kTVMFFINone)
            ffi_fail(call, "TypeError", "workspace is %s; a tensor or None is wanted",
                     type_name(any));
    }
    return !call->failed;
}
