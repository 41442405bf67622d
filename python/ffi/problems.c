/*
 * select() and explain(): what would be chosen for a problem that is given field
 * by field, on a device that is named. No tensor and no GPU is needed.
 */
#include "ffi.h"

#include <attngen/attn_fwd.h>
#include <attngen/attn_merge.h>
#include <attngen/attn_paged.h>
#include <attngen/kda_bwd.h>
#include <attngen/kda_bwd_dav.h>
#include <attngen/kda_bwd_dhu.h>
#include <attngen/kda_bwd_intra.h>
#include <attngen/kda_bwd_wy.h>
#include <attngen/kda_chunk_h.h>
#include <attngen/kda_chunk_intra.h>
#include <attngen/kda_chunk_o.h>
#include <attngen/gdn_decode.h>
#include <attngen/gdn_prefill.h>
#include <attngen/gdn_step.h>
#include <attngen/kda_decode.h>
#include <attngen/kda_gate.h>
#include <attngen/kda_gate_bwd.h>
#include <attngen/kda_prefill.h>
#include <attngen/kda_ring_advance.h>
#include <attngen/kda_qk_bwd.h>
#include <attngen/kda_recompute_wu.h>
#include <attngen/kda_step.h>
#include <attngen/la_decode.h>
#include <attngen/mla_decode.h>
#include <attngen/mla_sparse.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int FFI_EXPORT __tvm_ffi_problem(void *handle, const TVMFFIAny *args, int32_t num_args,
                                 TVMFFIAny *result);

#define MAX_FIELDS 16

struct field {
    const char *name;
    size_t offset;
    int32_t more; /* what the struct has more than the caller says */
};

struct family {
    const char *name;
    uint32_t tag;
    uint32_t size;
    struct field fields[MAX_FIELDS];
};

#define F(type, field)                   \
    {                                    \
#field, offsetof(type, field), 0 \
    }
#define INDEX(type)                             \
    {                                           \
        "index", offsetof(type, index_dtype), 0 \
    }
#define STAGE_FIELDS                                                                      \
    {                                                                                     \
        F(gen_kda_stage_problem, batch), F(gen_kda_stage_problem, seq_len),               \
            F(gen_kda_stage_problem, num_tokens), F(gen_kda_stage_problem, num_qk_heads), \
            F(gen_kda_stage_problem, num_v_heads), F(gen_kda_stage_problem, head_dim),    \
            F(gen_kda_stage_problem, dtype), F(gen_kda_stage_problem, gate_dtype),        \
            F(gen_kda_stage_problem, beta_dtype), F(gen_kda_stage_problem, safe_gate),    \
            INDEX(gen_kda_stage_problem)                                                  \
    }
#define STAGE(name, tag)                                       \
    {                                                          \
        name, tag, sizeof(gen_kda_stage_problem), STAGE_FIELDS \
    }

#define STEP(name, tag)                                                                  \
    {                                                                                    \
        name, tag, sizeof(gen_kda_step_problem),                                         \
        {                                                                                \
            F(gen_kda_step_problem, batch), F(gen_kda_step_problem, num_qk_heads),       \
                F(gen_kda_step_problem, num_v_heads), F(gen_kda_step_problem, head_dim), \
                F(gen_kda_step_problem, dtype), F(gen_kda_step_problem, gate_dtype),     \
                F(gen_kda_step_problem, beta_dtype),                                     \
                {"layout", offsetof(gen_kda_step_problem, state_layout), 0},             \
                F(gen_kda_step_problem, state_dtype)                                     \
        }                                                                                \
    }

static const struct family families[] = {
    {"attn_fwd",
     GEN_ATTN_FWD,
     sizeof(gen_attn_fwd_problem),
     {F(gen_attn_fwd_problem, batch),
      F(gen_attn_fwd_problem, num_q_heads),
      F(gen_attn_fwd_problem, num_kv_heads),
      F(gen_attn_fwd_problem, q_len),
      F(gen_attn_fwd_problem, kv_len),
      F(gen_attn_fwd_problem, head_dim),
      F(gen_attn_fwd_problem, dtype),
      F(gen_attn_fwd_problem, causal),
      {"window_left", offsetof(gen_attn_fwd_problem, left_window), 1},
      {"window_right", offsetof(gen_attn_fwd_problem, right_window), 1},
      F(gen_attn_fwd_problem, varlen),
      F(gen_attn_fwd_problem, softcap),
      F(gen_attn_fwd_problem, o_dtype),
      INDEX(gen_attn_fwd_problem)}},
    {"attn_merge",
     GEN_ATTN_MERGE,
     sizeof(gen_attn_merge_problem),
     {F(gen_attn_merge_problem, num_rows), F(gen_attn_merge_problem, num_heads),
      F(gen_attn_merge_problem, num_states), F(gen_attn_merge_problem, head_dim),
      F(gen_attn_merge_problem, dtype), F(gen_attn_merge_problem, o_dtype)}},
    {"attn_paged",
     GEN_ATTN_PAGED,
     sizeof(gen_attn_paged_problem),
     {F(gen_attn_paged_problem, batch),
      F(gen_attn_paged_problem, num_q_heads),
      F(gen_attn_paged_problem, num_kv_heads),
      F(gen_attn_paged_problem, q_len),
      F(gen_attn_paged_problem, kv_len),
      F(gen_attn_paged_problem, max_kv_len),
      F(gen_attn_paged_problem, page_size),
      F(gen_attn_paged_problem, head_dim),
      F(gen_attn_paged_problem, dtype),
      F(gen_attn_paged_problem, cache),
      F(gen_attn_paged_problem, causal),
      {"window_left", offsetof(gen_attn_paged_problem, left_window), 1},
      F(gen_attn_paged_problem, softcap),
      F(gen_attn_paged_problem, sink),
      F(gen_attn_paged_problem, total_tokens)}},
    {"mla_decode",
     GEN_MLA_DECODE,
     sizeof(gen_mla_decode_problem),
     {F(gen_mla_decode_problem, batch), F(gen_mla_decode_problem, num_heads),
      F(gen_mla_decode_problem, q_len), F(gen_mla_decode_problem, kv_len),
      F(gen_mla_decode_problem, max_kv_len), F(gen_mla_decode_problem, page_size),
      F(gen_mla_decode_problem, rope_dim), F(gen_mla_decode_problem, dtype),
      F(gen_mla_decode_problem, cache), F(gen_mla_decode_problem, causal),
      INDEX(gen_mla_decode_problem)}},
    {"mla_sparse",
     GEN_MLA_SPARSE,
     sizeof(gen_mla_sparse_problem),
     {F(gen_mla_sparse_problem, batch), F(gen_mla_sparse_problem, num_heads),
      F(gen_mla_sparse_problem, q_len), F(gen_mla_sparse_problem, topk),
      F(gen_mla_sparse_problem, page_size), F(gen_mla_sparse_problem, rope_dim),
      F(gen_mla_sparse_problem, dtype), F(gen_mla_sparse_problem, cache),
      F(gen_mla_sparse_problem, sink)}},
    {"la_decode",
     GEN_LA_DECODE,
     sizeof(gen_la_decode_problem),
     {F(gen_la_decode_problem, batch),
      F(gen_la_decode_problem, num_qk_heads),
      F(gen_la_decode_problem, num_v_heads),
      F(gen_la_decode_problem, head_dim),
      F(gen_la_decode_problem, dtype),
      {"layout", offsetof(gen_la_decode_problem, state_layout), 0},
      F(gen_la_decode_problem, state_dtype),
      F(gen_la_decode_problem, pool)}},
    {"kda_decode",
     GEN_KDA_DECODE,
     sizeof(gen_kda_decode_problem),
     {F(gen_kda_decode_problem, batch),
      F(gen_kda_decode_problem, num_tokens),
      F(gen_kda_decode_problem, num_qk_heads),
      F(gen_kda_decode_problem, num_v_heads),
      F(gen_kda_decode_problem, head_dim),
      F(gen_kda_decode_problem, dtype),
      F(gen_kda_decode_problem, gate_dtype),
      F(gen_kda_decode_problem, beta_dtype),
      {"layout", offsetof(gen_kda_decode_problem, state_layout), 0},
      INDEX(gen_kda_decode_problem),
      F(gen_kda_decode_problem, state_dtype),
      F(gen_kda_decode_problem, ring_len),
      F(gen_kda_decode_problem, ring_size),
      F(gen_kda_decode_problem, ring_dtype),
      F(gen_kda_decode_problem, pool)}},
    {"kda_ring_advance",
     GEN_KDA_RING_ADVANCE,
     sizeof(gen_kda_ring_advance_problem),
     {F(gen_kda_ring_advance_problem, batch), F(gen_kda_ring_advance_problem, num_tokens),
      F(gen_kda_ring_advance_problem, ring_len), F(gen_kda_ring_advance_problem, ring_size)}},
    {"kda_prefill",
     GEN_KDA_PREFILL,
     sizeof(gen_kda_prefill_problem),
     {F(gen_kda_prefill_problem, batch), F(gen_kda_prefill_problem, seq_len),
      F(gen_kda_prefill_problem, num_tokens), F(gen_kda_prefill_problem, num_qk_heads),
      F(gen_kda_prefill_problem, num_v_heads), F(gen_kda_prefill_problem, head_dim),
      F(gen_kda_prefill_problem, dtype), F(gen_kda_prefill_problem, gate_dtype),
      F(gen_kda_prefill_problem, beta_dtype), F(gen_kda_prefill_problem, safe_gate),
      F(gen_kda_prefill_problem, segment_chunks), INDEX(gen_kda_prefill_problem),
      F(gen_kda_prefill_problem, state_pool), F(gen_kda_prefill_problem, state_dtype)}},
    {"gdn_decode",
     GEN_GDN_DECODE,
     sizeof(gen_gdn_decode_problem),
     {F(gen_gdn_decode_problem, batch),
      F(gen_gdn_decode_problem, num_tokens),
      F(gen_gdn_decode_problem, num_qk_heads),
      F(gen_gdn_decode_problem, num_v_heads),
      F(gen_gdn_decode_problem, head_dim),
      F(gen_gdn_decode_problem, dtype),
      F(gen_gdn_decode_problem, gate_dtype),
      F(gen_gdn_decode_problem, beta_dtype),
      {"layout", offsetof(gen_gdn_decode_problem, state_layout), 0},
      INDEX(gen_gdn_decode_problem),
      F(gen_gdn_decode_problem, state_dtype),
      F(gen_gdn_decode_problem, pool)}},
    {"gdn_prefill",
     GEN_GDN_PREFILL,
     sizeof(gen_gdn_prefill_problem),
     {F(gen_gdn_prefill_problem, batch), F(gen_gdn_prefill_problem, seq_len),
      F(gen_gdn_prefill_problem, num_tokens), F(gen_gdn_prefill_problem, num_qk_heads),
      F(gen_gdn_prefill_problem, num_v_heads), F(gen_gdn_prefill_problem, head_dim),
      F(gen_gdn_prefill_problem, dtype), F(gen_gdn_prefill_problem, gate_dtype),
      F(gen_gdn_prefill_problem, beta_dtype), F(gen_gdn_prefill_problem, safe_gate),
      F(gen_gdn_prefill_problem, segment_chunks), INDEX(gen_gdn_prefill_problem),
      F(gen_gdn_prefill_problem, state_pool), F(gen_gdn_prefill_problem, state_dtype)}},
    STEP("kda_step", GEN_KDA_STEP),
    STEP("gdn_step", GEN_GDN_STEP),
    STAGE("kda_gate", GEN_KDA_GATE),
    STAGE("kda_chunk_intra", GEN_KDA_CHUNK_INTRA),
    STAGE("kda_recompute_wu", GEN_KDA_RECOMPUTE_WU),
    STAGE("kda_chunk_h", GEN_KDA_CHUNK_H),
    STAGE("kda_chunk_o", GEN_KDA_CHUNK_O),
    {"kda_bwd",
     GEN_KDA_BWD,
     sizeof(gen_kda_bwd_problem),
     {F(gen_kda_bwd_problem, batch), F(gen_kda_bwd_problem, seq_len),
      F(gen_kda_bwd_problem, num_tokens), F(gen_kda_bwd_problem, num_qk_heads),
      F(gen_kda_bwd_problem, num_v_heads), F(gen_kda_bwd_problem, head_dim),
      F(gen_kda_bwd_problem, dtype), F(gen_kda_bwd_problem, gate_dtype),
      F(gen_kda_bwd_problem, beta_dtype), F(gen_kda_bwd_problem, safe_gate),
      F(gen_kda_bwd_problem, keep), INDEX(gen_kda_bwd_problem)}},
    STAGE("kda_bwd_dav", GEN_KDA_BWD_DAV),
    STAGE("kda_bwd_dhu", GEN_KDA_BWD_DHU),
    STAGE("kda_bwd_wy", GEN_KDA_BWD_WY),
    STAGE("kda_bwd_intra", GEN_KDA_BWD_INTRA),
    STAGE("kda_gate_bwd", GEN_KDA_GATE_BWD),
    STAGE("kda_qk_bwd", GEN_KDA_QK_BWD),
};
#define NUM_FAMILIES (sizeof families / sizeof families[0])

union any_problem {
    gen_problem base;
    gen_attn_fwd_problem attn_fwd;
    gen_attn_merge_problem attn_merge;
    gen_attn_paged_problem attn_paged;
    gen_mla_decode_problem mla_decode;
    gen_mla_sparse_problem mla_sparse;
    gen_la_decode_problem la_decode;
    gen_kda_decode_problem kda_decode;
    gen_kda_prefill_problem kda_prefill;
    gen_kda_step_problem kda_step;
    gen_kda_bwd_problem kda_bwd;
    gen_kda_stage_problem stage;
};

static const struct family *find_family(struct ffi_call *call, const char *name)
{
    char known[512] = "";
    for (size_t i = 0; i < NUM_FAMILIES; i++) {
        if (!strcmp(families[i].name, name))
            return &families[i];
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", i ? ", " : "",
                 families[i].name);
    }
    ffi_fail(call, "ValueError", "'%s' is no family; allowed: %s", name, known);
    return NULL;
}

static int set_field(struct ffi_call *call, const struct family *family, union any_problem *problem)
{
    char name[64], known[512] = "max_workspace_mib";
    ffi_string(call, "the name of a field", name, sizeof name);
    if (call->failed)
        return -1;
    const int32_t value = ffi_int32(call, name, INT32_MIN, INT32_MAX, 0);
    if (!strcmp(name, "max_workspace_mib")) {
        problem->base.max_workspace_mib = (uint32_t)value;
        return call->failed ? -1 : 0;
    }
    for (int i = 0; i < MAX_FIELDS && family->fields[i].name; i++) {
        if (!strcmp(family->fields[i].name, name)) {
            const uint32_t held = (uint32_t)value + (uint32_t)family->fields[i].more;
            memcpy((char *)problem + family->fields[i].offset, &held, sizeof held);
            return call->failed ? -1 : 0;
        }
        snprintf(known + strlen(known), sizeof known - strlen(known), ", %s",
                 family->fields[i].name);
    }
    return ffi_fail(call, "ValueError", "'%s' is no field of %s; allowed: %s", name, family->name,
                    known);
}

/* problem(library, flags, device, family, name, value, ...) -> JSON, or text: as the flags ask */
int __tvm_ffi_problem(void *handle, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result)
{
    (void)handle;
    struct ffi_call call;
    union any_problem problem = {0};
    char name[64];
    if (!ffi_begin(&call, "problem", args, num_args, num_args < 4 ? 1 : num_args - 3, result))
        return -1;
    ffi_string(&call, "family", name, sizeof name);
    const struct family *family = call.failed ? NULL : find_family(&call, name);
    if (!family)
        return -1;
    call.name = family->name;
    problem.base = (gen_problem){family->size, family->tag, 0, 0};
    problem.base.flags = call.flags & ~(FFI_SELECT | FFI_EXPLAIN);
    while (call.next < num_args) {
        if (call.next + 1 == num_args)
            return ffi_fail(&call, "TypeError", "a field's name is given without a value");
        if (set_field(&call, family, &problem))
            return -1;
    }
    gen_device device;
    return ffi_device(&call, &device) ? -1 : ffi_tell(&call, &device, &problem.base);
}

/* ---- what was chosen --------------------------------------------------------- */

int ffi_return_text(struct ffi_call *call, const char *text, size_t length)
{
    const TVMFFIByteArray bytes = {text, length};
    if (TVMFFIStringFromByteArray(&bytes, call->result) == 0)
        return 0;
    call->failed = true;
    return -1;
}

static int explain(struct ffi_call *call, const gen_device *device, const gen_problem *problem)
{
    size_t needed = 0;
    if (ffi_status(call, gen_explain(call->library, device, problem, NULL, 0, &needed)))
        return -1;
    char *text = malloc(needed + 1);
    if (!text)
        return ffi_fail(call, "MemoryError", "%zu bytes of text", needed + 1);
    if (!ffi_status(call, gen_explain(call->library, device, problem, text, needed + 1, NULL)))
        ffi_return_text(call, text, needed);
    free(text);
    return call->failed ? -1 : 0;
}

static int tell_plan(struct ffi_call *call, const gen_device *device, const gen_problem *problem)
{
    char text[8192]; /* more than 10 launches with the longest names */
    gen_plan plan = {.size = sizeof plan};
    if (ffi_status(call, gen_select(call->library, device, problem, &plan)))
        return -1;
    size_t length = (size_t)snprintf(text, sizeof text,
                                     "{\"why\": \"%s\", \"predicted_us\": %.9g, "
                                     "\"workspace_bytes\": %" PRIu64 ", \"launches\": [",
                                     gen_why_string((enum gen_why)plan.why),
                                     (double)plan.predicted_us, plan.workspace_bytes);
    /* On the CPU a launch is the reference and no variant of the product. */
    for (uint32_t i = 0; i < plan.num_launches && plan.backend == GEN_BACKEND_CUDA; i++) {
        const gen_plan_launch *l = &plan.launch[i];
        gen_variant_info info = {.size = sizeof info};
        if (ffi_status(call, gen_variant_get(call->library, l->variant, &info)))
            return -1;
        length += (size_t)snprintf(
            text + length, sizeof text - length,
            "%s{\"variant\": \"%.256s\", \"target\": \"%.32s\", \"grid\": [%u, %u, %u], "
            "\"threads\": %u, \"shared\": %u}",
            i ? ", " : "", info.name, info.target, l->grid[0], l->grid[1], l->grid[2], l->threads,
            l->shared);
    }
    length += (size_t)snprintf(text + length, sizeof text - length, "]}");
    return ffi_return_text(call, text, length);
}

int ffi_tell(struct ffi_call *call, const gen_device *device, const gen_problem *problem)
{
    union any_problem copy;
    memcpy(&copy, problem, problem->size);
    copy.base.flags &= ~(FFI_SELECT | FFI_EXPLAIN);
    return call->flags & FFI_SELECT ? tell_plan(call, device, &copy.base)
                                    : explain(call, device, &copy.base);
}
