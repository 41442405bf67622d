/* Other ways to pass a problem of mla_decode, and data that hurts: for the verifier and the tests.
 */
#include "families/mla_decode/mla_decode.h"
#include "reference/data.h"

enum form {
    FORM_SPLIT,       /* latents and rotary keys apart */
    FORM_CSR,         /* page lists, and that */
    FORM_JOINT_Q,     /* both parts of the queries in one buffer */
    FORM_STRIDES,     /* gaps everywhere */
    FORM_HEADS_FIRST, /* [heads, tokens, ...] */
    FORM_NO_LSE,
    FORM_NATURAL, /* lse in base e */
    FORM_RAGGED,  /* 0 to q_len query tokens, and page lists */
    FORM_SHARED,  /* pages that several requests have, and one request twice */
    FORM_STEEP,   /* a scale below 0, and scores so far apart that maxima move from tile to tile */
};

const char *const gen__mla_decode_forms[MLA_DECODE_NUM_FORMS] = {
    "split",  "csr",     "joint_q", "strides", "heads_first",
    "no_lse", "natural", "ragged",  "shared",  "steep"};

/* Elements from the first to behind the last of `count` rows of `width`. */
static uint64_t extent(int64_t count, int64_t stride, int64_t width)
{
    return count > 0 ? (uint64_t)((count - 1) * stride + width) : 0;
}

/* Of two dimensions. */
static uint64_t extent_2(int64_t tokens, int64_t token_stride, int64_t heads, int64_t head_stride,
                         int64_t width)
{
    return tokens > 0 && heads > 0
               ? extent(tokens, token_stride, 0) + extent(heads, head_stride, width)
               : 0;
}

static void split_form(const gen_mla_decode_problem *p, gen_mla_decode_args *a,
                       struct gen__tensor *t)
{
    const uint64_t rows = (uint64_t)a->num_pages * (uint64_t)p->page_size;
    a->ckv_row_stride = a->kpe_row_stride = a->ckv_page_stride = a->kpe_page_stride = 0;
    t[MLA_DECODE_CKV].count = rows * MLA_LATENT;
    t[MLA_DECODE_KPE].count = rows * (uint64_t)p->rope_dim;
    t[MLA_DECODE_KPE].view_of = 0;
}

static void csr_form(const gen_mla_decode_problem *p, gen_mla_decode_args *a, struct gen__tensor *t)
{
    split_form(p, a, t);
    a->page_table_stride = 0;
    t[MLA_DECODE_PAGE_INDICES].count =
        (uint64_t)(gen__mla_decode_pages(p) + (int64_t)p->batch * MLA_DECODE_EXTRA_ENTRIES);
    t[MLA_DECODE_PAGE_INDPTR].count = p->batch ? (uint64_t)p->batch + 1 : 0;
}

static void joint_q_form(const gen_mla_decode_problem *p, gen_mla_decode_args *a,
                         struct gen__tensor *t)
{
    const int64_t heads = (int64_t)p->batch * p->q_len * p->num_heads,
                  width = MLA_LATENT + MLA_ROPE;
    a->q_nope_head_stride = a->q_pe_head_stride = width;
    a->q_nope_token_stride = a->q_pe_token_stride = width * p->num_heads;
    t[MLA_DECODE_Q_NOPE].count = (uint64_t)(heads * width);
    t[MLA_DECODE_Q_PE].count = 0;
    t[MLA_DECODE_Q_PE].view_of = MLA_DECODE_Q_NOPE + 1;
    t[MLA_DECODE_Q_PE].view_at = MLA_LATENT;
}

static void stride_form(const gen_mla_decode_problem *p, gen_mla_decode_args *a,
                        struct gen__tensor *t)
{
    const int64_t heads = p->num_heads, tokens = (int64_t)p->batch * p->q_len;
    const int64_t unit = p->cache == GEN_MLA_CACHE_E4M3_Q ? 16 : 8; /* of queries: 16 bytes */
    const int64_t latent = MLA_LATENT + unit, rope = MLA_ROPE + 16;
    a->q_nope_head_stride = a->o_head_stride = latent;
    a->q_pe_head_stride = rope;
    a->lse_head_stride = 2;
    a->q_nope_token_stride = heads * latent + 3 * unit;
    a->q_pe_token_stride = heads * rope + unit;
    a->o_token_stride = heads * latent; /* so that rows are equally far apart */
    a->lse_token_stride = heads * 2 + 5;
    a->ckv_page_stride += a->ckv_row_stride; /* a row between the pages */
    a->kpe_page_stride = a->ckv_page_stride;
    a->page_table_stride += 4;
    t[MLA_DECODE_Q_NOPE].count =
        extent_2(tokens, a->q_nope_token_stride, heads, latent, MLA_LATENT);
    if (p->rope_dim)
        t[MLA_DECODE_Q_PE].count = extent_2(tokens, a->q_pe_token_stride, heads, rope, MLA_ROPE);
    t[MLA_DECODE_O].count = extent_2(tokens, a->o_token_stride, heads, latent, MLA_LATENT);
    t[MLA_DECODE_O].row = (uint32_t)latent;
    t[MLA_DECODE_LSE].count = extent_2(tokens, a->lse_token_stride, heads, 2, 1);
    t[MLA_DECODE_CKV].count = (uint64_t)(a->num_pages * a->ckv_page_stride);
    t[MLA_DECODE_PAGE_INDICES].count = (uint64_t)(p->batch * a->page_table_stride);
}

static void heads_first_form(const gen_mla_decode_problem *p, gen_mla_decode_args *a)
{
    const int64_t tokens = (int64_t)p->batch * p->q_len;
    a->q_nope_token_stride = a->o_token_stride = MLA_LATENT;
    a->q_nope_head_stride = a->o_head_stride = tokens * MLA_LATENT;
    a->q_pe_token_stride = MLA_ROPE;
    a->q_pe_head_stride = tokens * MLA_ROPE;
    a->lse_token_stride = 1;
    a->lse_head_stride = tokens;
}

/* Half as many pages as are wanted. */
static bool shared_form(const gen_mla_decode_problem *p, gen_mla_decode_args *a,
                        struct gen__tensor *t)
{
    const int64_t pages = gen__mla_decode_pages(p);
    a->num_pages = (int32_t)(pages / 2 + MLA_DECODE_EXTRA_PAGES);
    t[MLA_DECODE_CKV].count = (uint64_t)(a->num_pages * a->ckv_page_stride);
    return pages > 1;
}

bool gen__mla_decode_form(const gen_problem *base, uint32_t index, gen_args *args,
                          struct gen__tensor *t)
{
    const gen_mla_decode_problem *p = (const gen_mla_decode_problem *)base;
    gen_mla_decode_args *a = (gen_mla_decode_args *)args;
    switch ((enum form)index) {
    case FORM_SPLIT:
        split_form(p, a, t);
        return p->rope_dim != 0;
    case FORM_CSR:
        csr_form(p, a, t);
        return true;
    case FORM_JOINT_Q:
        joint_q_form(p, a, t);
        return p->rope_dim != 0;
    case FORM_STRIDES:
        stride_form(p, a, t);
        return true;
    case FORM_HEADS_FIRST:
        heads_first_form(p, a);
        return true;
    case FORM_NO_LSE:
        t[MLA_DECODE_LSE].count = 0;
        return true;
    case FORM_NATURAL:
        a->lse_base_2 = 0;
        return true;
    case FORM_RAGGED:
        csr_form(p, a, t);
        t[MLA_DECODE_Q_INDPTR].count = p->batch ? (uint64_t)p->batch + 1 : 0;
        return true;
    case FORM_SHARED:
        return shared_form(p, a, t);
    case FORM_STEEP:
        /* Sums of 8-bit products are off by a part of the score: scores of 50 by 0.02. */
        a->scale = p->cache == GEN_MLA_CACHE_E4M3_Q ? -0.125f : -0.5f;
        return true;
    }
    return false;
}

/* Latents are keys and values; of joint rows so are the rotary keys that lie among them. */
bool gen__mla_decode_data(const gen_problem *base, enum gen__data kind, const gen_args *args,
                          struct gen__tensor *t)
{
    const gen_mla_decode_args *a = (const gen_mla_decode_args *)args;
    const int64_t latent = a->ckv_row_stride ? a->ckv_row_stride : MLA_LATENT;
    const int64_t rope = a->kpe_row_stride ? a->kpe_row_stride : MLA_ROPE;
    const double size = t[MLA_DECODE_CKV].amount; /* what counts as 1 */
    const enum gen_dtype cache = t[MLA_DECODE_CKV].dtype;
    (void)base;
    gen__data_queries(kind, &t[MLA_DECODE_Q_NOPE], cache, MLA_LATENT);
    gen__data_queries(kind, &t[MLA_DECODE_Q_PE], cache, MLA_ROPE);
    gen__data_keys(kind, &t[MLA_DECODE_CKV], latent);
    gen__data_keys(kind, &t[MLA_DECODE_KPE], rope);
    if (kind == GEN__DATA_ONES || kind == GEN__DATA_MEAN1)
        t[MLA_DECODE_CKV].mean = size;
    if (kind == GEN__DATA_ONES)
        t[MLA_DECODE_CKV].amount = 0;
    return true;
}
