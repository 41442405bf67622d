/* Other ways to pass a problem of attn_paged, and data that hurts: for the verifier and the tests.
 */
#include "families/attn_paged/attn_paged.h"
#include "reference/data.h"

enum form {
    FORM_HND,     /* pages of heads, of rows */
    FORM_JOINT,   /* keys and values in one tensor, page by page */
    FORM_CSR,     /* page lists */
    FORM_LAST,    /* page lists that give the lengths */
    FORM_STRIDES, /* gaps everywhere, heads outside of tokens in lse */
    FORM_NO_LSE,
    FORM_BASE_2,
    FORM_LSE_SINK, /* the sink in lse */
    FORM_RAGGED,   /* 0 to q_len new tokens, and page lists */
    FORM_SHARED,   /* pages that several requests have; one scale for all */
    FORM_STEEP     /* scores so far apart that maxima move from tile to tile; a scale below 0 */
};
const char *const gen__attn_paged_forms[ATTN_PAGED_NUM_FORMS] = {
    "hnd",    "joint",    "csr",    "last",   "strides", "no_lse",
    "base_2", "lse_sink", "ragged", "shared", "steep"};

/* Elements of one page, or of a request where there are none. */
static int64_t page_elements(const gen_attn_paged_problem *p, int32_t width)
{
    const int64_t rows = p->page_size ? p->page_size : p->max_kv_len;
    return rows * p->num_kv_heads * width;
}

static int64_t num_pages(const gen_attn_paged_problem *p, const gen_attn_paged_args *a)
{
    return p->page_size ? a->num_pages : p->batch;
}

static void hnd_form(const gen_attn_paged_problem *p, gen_attn_paged_args *a)
{
    const int64_t rows = p->page_size ? p->page_size : p->max_kv_len;
    const int32_t v_dim = gen__attn_paged_v_dim(p->head_dim);
    a->k_row_stride = p->head_dim;
    a->v_row_stride = v_dim;
    a->k_head_stride = rows * p->head_dim;
    a->v_head_stride = rows * v_dim;
    a->k_page_stride = page_elements(p, p->head_dim);
    a->v_page_stride = page_elements(p, v_dim);
}

static void joint_form(const gen_attn_paged_problem *p, gen_attn_paged_args *a,
                       struct gen__tensor *t)
{
    const int64_t keys = page_elements(p, p->head_dim);
    const int64_t page = keys + page_elements(p, gen__attn_paged_v_dim(p->head_dim));
    a->k_page_stride = a->v_page_stride = page;
    t[ATTN_PAGED_K].count = (uint64_t)(page * num_pages(p, a));
    t[ATTN_PAGED_V].count = 0;
    t[ATTN_PAGED_V].view_of = ATTN_PAGED_K + 1;
    t[ATTN_PAGED_V].view_at = (uint64_t)keys;
}

static bool csr_form(const gen_attn_paged_problem *p, gen_attn_paged_args *a, struct gen__tensor *t)
{
    a->page_table_stride = 0;
    t[ATTN_PAGED_PAGE_INDICES].count =
        (uint64_t)(gen__attn_paged_pages(p) + (int64_t)p->batch * ATTN_PAGED_EXTRA_ENTRIES);
    t[ATTN_PAGED_PAGE_INDPTR].count = p->batch ? (uint64_t)p->batch + 1 : 0;
    return p->page_size != 0;
}

static bool last_form(const gen_attn_paged_problem *p, gen_attn_paged_args *a,
                      struct gen__tensor *t)
{
    t[ATTN_PAGED_KV_LENS].count = 0;
    t[ATTN_PAGED_LAST_PAGE_LEN].count = (uint64_t)p->batch;
    return csr_form(p, a, t);
}

/* Elements from the first to behind the last of tokens and heads of `width`. */
static uint64_t reach(int64_t tokens, int64_t token, int64_t heads, int64_t head, int64_t width)
{
    return tokens > 0 ? (uint64_t)((tokens - 1) * token + (heads - 1) * head + width) : 0;
}

static void stride_form(const gen_attn_paged_problem *p, gen_attn_paged_args *a,
                        struct gen__tensor *t)
{
    const int64_t tokens = (int64_t)p->batch * p->q_len, heads = p->num_q_heads;
    const int64_t keys = p->num_kv_heads, rows = p->page_size ? p->page_size : p->max_kv_len;
    const int64_t v_dim = gen__attn_paged_v_dim(p->head_dim), head = v_dim + 8;
    a->q_head_stride = p->head_dim + 24;
    a->q_token_stride = heads * a->q_head_stride + 24;
    a->o_head_stride = head;
    a->o_token_stride = heads * head; /* so that rows are equally far apart */
    a->lse_token_stride = 2;
    a->lse_head_stride = 2 * tokens + 1;
    a->k_head_stride = p->head_dim + 16;
    a->v_head_stride = v_dim + 32;
    a->k_row_stride = keys * a->k_head_stride + 16;
    a->v_row_stride = keys * a->v_head_stride;
    a->k_page_stride = rows * a->k_row_stride;
    a->v_page_stride = rows * a->v_row_stride + 64;
    if (p->page_size)
        a->page_table_stride += 4;
    t[ATTN_PAGED_Q].count = reach(tokens, a->q_token_stride, heads, a->q_head_stride, p->head_dim);
    t[ATTN_PAGED_O].count = reach(tokens, a->o_token_stride, heads, head, v_dim);
    t[ATTN_PAGED_O].row = (uint32_t)head;
    t[ATTN_PAGED_LSE].count = reach(tokens, 2, heads, a->lse_head_stride, 1);
    t[ATTN_PAGED_K].count = (uint64_t)(num_pages(p, a) * a->k_page_stride);
    t[ATTN_PAGED_V].count = (uint64_t)(num_pages(p, a) * a->v_page_stride);
    t[ATTN_PAGED_PAGE_INDICES].count = (uint64_t)(p->batch * a->page_table_stride);
}

static bool ragged_form(const gen_attn_paged_problem *p, gen_attn_paged_args *a,
                        struct gen__tensor *t)
{
    t[ATTN_PAGED_Q_INDPTR].count = p->batch ? (uint64_t)p->batch + 1 : 0;
    return csr_form(p, a, t);
}

/* Half as many pages as are wanted. */
static bool shared_form(const gen_attn_paged_problem *p, gen_attn_paged_args *a,
                        struct gen__tensor *t)
{
    const int64_t pages = gen__attn_paged_pages(p);
    a->num_pages = (int32_t)(pages / 2 + ATTN_PAGED_EXTRA_PAGES);
    t[ATTN_PAGED_K].count = (uint64_t)(a->num_pages * page_elements(p, p->head_dim));
    t[ATTN_PAGED_V].count =
        (uint64_t)(a->num_pages * page_elements(p, gen__attn_paged_v_dim(p->head_dim)));
    a->k_descale_batch_stride = a->v_descale_batch_stride = 0;
    a->k_descale_head_stride = a->v_descale_head_stride = 0;
    t[ATTN_PAGED_Q_DESCALE].count = t[ATTN_PAGED_K_DESCALE].count = t[ATTN_PAGED_V_DESCALE].count =
        p->batch ? 1 : 0;
    return pages > 1;
}

bool gen__attn_paged_form(const gen_problem *base, uint32_t index, gen_args *args,
                          struct gen__tensor *t)
{
    const gen_attn_paged_problem *p = (const gen_attn_paged_problem *)base;
    gen_attn_paged_args *a = (gen_attn_paged_args *)args;
    switch ((enum form)index) {
    case FORM_HND:
        hnd_form(p, a);
        return true;
    case FORM_JOINT:
        joint_form(p, a, t);
        return true;
    case FORM_CSR:
        return csr_form(p, a, t);
    case FORM_LAST:
        return last_form(p, a, t);
    case FORM_STRIDES:
        stride_form(p, a, t);
        return true;
    case FORM_NO_LSE:
        t[ATTN_PAGED_LSE].count = 0;
        return true;
    case FORM_BASE_2:
        a->lse_base_2 = 1;
        return true;
    case FORM_LSE_SINK:
        a->lse_sink = 1;
        return p->sink != 0;
    case FORM_RAGGED:
        return ragged_form(p, a, t);
    case FORM_SHARED:
        return shared_form(p, a, t);
    case FORM_STEEP:
        a->scale = -0.5f;
        return true;
    }
    return false;
}

bool gen__attn_paged_data(const gen_problem *base, enum gen__data kind, const gen_args *args,
                          struct gen__tensor *t)
{
    const gen_attn_paged_problem *p = (const gen_attn_paged_problem *)base;
    const gen_attn_paged_args *a = (const gen_attn_paged_args *)args;
    const double size = t[ATTN_PAGED_V].amount; /* what counts as 1 */
    if (a->k_page_stride || a->k_head_stride)   /* rows of one width alone */
        return kind == GEN__DATA_NORMAL;
    gen__data_queries(kind, &t[ATTN_PAGED_Q], t[ATTN_PAGED_K].dtype, p->head_dim);
    gen__data_keys(kind, &t[ATTN_PAGED_K], p->head_dim);
    gen__data_values(kind, &t[ATTN_PAGED_V], gen__attn_paged_v_dim(p->head_dim), true);
    if (kind == GEN__DATA_ONES || kind == GEN__DATA_MEAN1)
        t[ATTN_PAGED_V].mean = size;
    return true;
}
