/* Other ways to pass a problem of mla_sparse, and data that hurts: for the verifier and the tests.
 */
#include "families/mla_sparse/mla_sparse.h"
#include "reference/data.h"

enum form {
    FORM_JOINT_Q,     /* both parts of the queries in one buffer */
    FORM_STRIDES,     /* gaps everywhere */
    FORM_HEADS_FIRST, /* [heads, tokens, ...] */
    FORM_NO_LSE,
    FORM_NATURAL,       /* lse in base e */
    FORM_LENGTHS,       /* of requests */
    FORM_TOKEN_LENGTHS, /* of each list */
    FORM_STEEP, /* a scale below 0, and scores so far apart that maxima move from tile to tile */
};

const char *const gen__mla_sparse_forms[MLA_SPARSE_NUM_FORMS] = {
    "joint_q", "strides", "heads_first", "no_lse", "natural", "lengths", "token_lengths", "steep"};

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

static void joint_q_form(const gen_mla_sparse_problem *p, gen_mla_sparse_args *a,
                         struct gen__tensor *t)
{
    const int64_t heads = (int64_t)p->batch * p->q_len * p->num_heads,
                  width = MLA_LATENT + MLA_ROPE;
    a->q_nope_head_stride = a->q_pe_head_stride = width;
    a->q_nope_token_stride = a->q_pe_token_stride = width * p->num_heads;
    t[MLA_SPARSE_T_Q_NOPE].count = (uint64_t)(heads * width);
    t[MLA_SPARSE_T_Q_PE].count = 0;
    t[MLA_SPARSE_T_Q_PE].view_of = MLA_SPARSE_T_Q_NOPE + 1;
    t[MLA_SPARSE_T_Q_PE].view_at = MLA_LATENT;
}

static void stride_form(const gen_mla_sparse_problem *p, gen_mla_sparse_args *a,
                        struct gen__tensor *t)
{
    const int64_t heads = p->num_heads, tokens = (int64_t)p->batch * p->q_len;
    const int64_t latent = MLA_LATENT + 8, rope = MLA_ROPE + 16;
    a->q_nope_head_stride = a->o_head_stride = latent;
    a->q_pe_head_stride = rope;
    a->lse_head_stride = 2;
    a->q_nope_token_stride = heads * latent + 24;
    a->q_pe_token_stride = heads * rope + 8;
    a->o_token_stride = heads * latent; /* so that rows are equally far apart */
    a->lse_token_stride = heads * 2 + 5;
    a->kv_row_stride += 16;
    a->kv_page_stride = a->kv_row_stride * p->page_size + 48; /* between the pages */
    a->indices_token_stride = p->topk + 3;
    a->indices_batch_stride = p->q_len * a->indices_token_stride + 1;
    t[MLA_SPARSE_T_Q_NOPE].count =
        extent_2(tokens, a->q_nope_token_stride, heads, latent, MLA_LATENT);
    if (p->rope_dim)
        t[MLA_SPARSE_T_Q_PE].count = extent_2(tokens, a->q_pe_token_stride, heads, rope, MLA_ROPE);
    t[MLA_SPARSE_T_O].count = extent_2(tokens, a->o_token_stride, heads, latent, MLA_LATENT);
    t[MLA_SPARSE_T_O].row = (uint32_t)latent;
    t[MLA_SPARSE_T_LSE].count = extent_2(tokens, a->lse_token_stride, heads, 2, 1);
    t[MLA_SPARSE_T_KV].count = (uint64_t)(a->num_pages * a->kv_page_stride);
    t[MLA_SPARSE_T_INDICES].count = (uint64_t)(p->batch * a->indices_batch_stride);
}

static void heads_first_form(const gen_mla_sparse_problem *p, gen_mla_sparse_args *a)
{
    const int64_t tokens = (int64_t)p->batch * p->q_len;
    a->q_nope_token_stride = a->o_token_stride = MLA_LATENT;
    a->q_nope_head_stride = a->o_head_stride = tokens * MLA_LATENT;
    a->q_pe_token_stride = MLA_ROPE;
    a->q_pe_head_stride = tokens * MLA_ROPE;
    a->lse_token_stride = 1;
    a->lse_head_stride = tokens;
}

bool gen__mla_sparse_form(const gen_problem *base, uint32_t index, gen_args *args,
                          struct gen__tensor *t)
{
    const gen_mla_sparse_problem *p = (const gen_mla_sparse_problem *)base;
    gen_mla_sparse_args *a = (gen_mla_sparse_args *)args;
    switch ((enum form)index) {
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
        t[MLA_SPARSE_T_LSE].count = 0;
        return true;
    case FORM_NATURAL:
        a->lse_base_2 = 0;
        return true;
    case FORM_LENGTHS:
        t[MLA_SPARSE_T_LENGTH].count = (uint64_t)p->batch;
        return true;
    case FORM_TOKEN_LENGTHS:
        a->length_per_token = 1;
        t[MLA_SPARSE_T_LENGTH].count = (uint64_t)p->batch * (uint64_t)p->q_len;
        return true;
    case FORM_STEEP:
        a->scale = -0.5f;
        return true;
    }
    return false;
}

/* Latents are keys and values; so are the rotary keys that lie among them. Scales of 656-byte rows
 * stay what they are. */
bool gen__mla_sparse_data(const gen_problem *base, enum gen__data kind, const gen_args *args,
                          struct gen__tensor *t)
{
    const gen_mla_sparse_args *a = (const gen_mla_sparse_args *)args;
    const double size = t[MLA_SPARSE_T_KV].amount; /* what counts as 1 */
    const enum gen_dtype cache = t[MLA_SPARSE_T_KV].dtype;
    (void)base;
    gen__data_queries(kind, &t[MLA_SPARSE_T_Q_NOPE], cache, MLA_LATENT);
    gen__data_queries(kind, &t[MLA_SPARSE_T_Q_PE], cache, MLA_ROPE);
    gen__data_keys(kind, &t[MLA_SPARSE_T_KV], a->kv_row_stride);
    if (kind == GEN__DATA_ONES || kind == GEN__DATA_MEAN1)
        t[MLA_SPARSE_T_KV].mean = size;
    if (kind == GEN__DATA_ONES)
        t[MLA_SPARSE_T_KV].amount = 0;
    return true;
}
