/*
 * The gradients of Kimi Delta Attention by the recurrence in reverse. With the forward pass
 *
 *     Sd_t = Diag(exp g_t) S_(t-1)     e_t = v_t - Sd_t' k_t
 *     S_t  = Sd_t + beta_t k_t e_t'    o_t = scale S_t' q_t
 *
 * and D the gradient of S_t without o_t's share, from the last token to the first:
 *
 *     dq = scale S_t do                D += scale q do'
 *     dv = beta D' k                   dbeta = e . D' k
 *     dk = beta D e - Sd_t dv          D -= k dv'
 *     dg = rowsum(D * Sd_t)            D = Diag(exp g) D
 *
 * These are gradients of normalized keys and queries and of activated gates and betas; the
 * activations' own follow token by token. States are kept at the starts of chunks and replayed
 * from there.
 */
#include "families/kda/backward.h"
#include "families/kda/reference_inputs.h"

#include <stdlib.h>

typedef double state[KDA_MAX_HEAD_DIM][KDA_MAX_HEAD_DIM]; /* [K][V] */

struct work {
    const int32_t *dims;
    const struct gen__kda_backward *b;
    const struct gen__kda_gradients *out;
    struct gen__kda_sequence sequence;
    int64_t head, d;
    state s, ds;
    /* A chunk, replayed. */
    struct gen__kda_token token[KDA_CHUNK];
    state decayed[KDA_CHUNK];
    double error[KDA_CHUNK][KDA_MAX_HEAD_DIM];
    struct gen__kda_token grad; /* of a token, as the recurrence takes it */
};

static int64_t state_at(const struct work *w, int64_t n, int64_t k, int64_t v)
{
    const int64_t first = (n * w->dims[KDA_V_HEADS] + w->head) * w->d * w->d;
    return first + (w->b->state_layout == GEN_KDA_STATE_VK ? v * w->d + k : k * w->d + v);
}

static void load_state(const struct work *w, int64_t n, const float *from, state to)
{
    for (int64_t k = 0; k < w->d; k++)
        for (int64_t v = 0; v < w->d; v++)
            to[k][v] = from ? (double)from[state_at(w, n, k, v)] : 0.0;
}

/* ---- forward ------------------------------------------------------------ */

static void step(struct work *w, int64_t row)
{
    struct gen__kda_token *t = &w->token[row % KDA_CHUNK];
    double *error = w->error[row % KDA_CHUNK];
    gen__kda_token(w->dims, &w->b->in, w->sequence.first + row, w->head, t);
    for (int64_t v = 0; v < w->d; v++)
        error[v] = t->v[v];
    for (int64_t k = 0; k < w->d; k++) {
        const double decay = exp(t->g[k]);
        for (int64_t v = 0; v < w->d; v++) {
            w->s[k][v] *= decay;
            error[v] -= t->k[k] * w->s[k][v];
            w->decayed[row % KDA_CHUNK][k][v] = w->s[k][v];
        }
    }
    for (int64_t k = 0; k < w->d; k++)
        for (int64_t v = 0; v < w->d; v++)
            w->s[k][v] += t->beta * t->k[k] * error[v];
}

/* The rows of the chunk that begins at `first`; the state in front of it is in w->s. */
static int64_t replay(struct work *w, int64_t first)
{
    const int64_t left = w->sequence.length - first, count = left < KDA_CHUNK ? left : KDA_CHUNK;
    for (int64_t row = first; row < first + count; row++)
        step(w, row);
    return count;
}

/* ---- the recurrence in reverse ------------------------------------------ */

/* `i`: the row of the chunk. */
static void step_back(struct work *w, int64_t i, const double *d_o)
{
    const struct gen__kda_token *t = &w->token[i];
    const double *error = w->error[i], scale = (double)w->b->in.scale;
    struct gen__kda_token *grad = &w->grad;
    memset(grad, 0, sizeof *grad);
    for (int64_t k = 0; k < w->d; k++)
        for (int64_t v = 0; v < w->d; v++) {
            const double s = w->decayed[i][k][v] + t->beta * t->k[k] * error[v];
            grad->q[k] += scale * s * d_o[v];
            w->ds[k][v] += scale * t->q[k] * d_o[v];
            grad->v[v] += w->ds[k][v] * t->k[k];
        }
    for (int64_t v = 0; v < w->d; v++) {
        grad->beta += error[v] * grad->v[v];
        grad->v[v] *= t->beta;
    }
    for (int64_t k = 0; k < w->d; k++) {
        const double decay = exp(t->g[k]);
        for (int64_t v = 0; v < w->d; v++) {
            const double decayed = w->decayed[i][k][v];
            grad->k[k] += t->beta * w->ds[k][v] * error[v] - decayed * grad->v[v];
            w->ds[k][v] -= t->k[k] * grad->v[v];
            grad->g[k] += w->ds[k][v] * decayed;
            w->ds[k][v] *= decay;
        }
    }
}

/* ---- the activations' gradients ------------------------------------------ */

/* y = x / sqrt(x.x + 1e-6): dx = (dy - y (y.dy)) / sqrt(x.x + 1e-6). */
static void normalize_back(const double *x, int64_t d, double *dy)
{
    double sum = 1e-6, along = 0.0;
    for (int64_t i = 0; i < d; i++) {
        sum += x[i] * x[i];
        along += x[i] * dy[i];
    }
    for (int64_t i = 0; i < d; i++)
        dy[i] = (dy[i] - x[i] * along / sum) / sqrt(sum);
}

/* Adds a value head's share of a query head's row; the first of a group begins the sum. */
static void add_row(const struct work *w, const void *x, int64_t stride, int64_t token, double *dy,
                    double *to)
{
    const int64_t heads = w->dims[KDA_QK_HEADS], group = w->dims[KDA_V_HEADS] / heads;
    const int64_t at = w->head / group * w->d, packed = heads * w->d;
    double raw[KDA_MAX_HEAD_DIM];
    if (!to)
        return;
    for (int64_t i = 0; i < w->d; i++)
        raw[i] = gen__kda_load(false, w->dims[KDA_DTYPE] == GEN_DTYPE_FP16, x,
                               token * (stride ? stride : packed) + at + i);
    if (w->b->in.qk_l2norm)
        normalize_back(raw, w->d, dy);
    for (int64_t i = 0; i < w->d; i++)
        to[token * packed + at + i] = (w->head % group ? to[token * packed + at + i] : 0.0) + dy[i];
}

static void gates_back(const struct work *w, int64_t i, int64_t token)
{
    const gen_kda_intra_args *a = &w->b->in;
    const int64_t width = (int64_t)w->dims[KDA_V_HEADS] * w->d, at = w->head * w->d;
    const double rate = a->A_log ? exp((double)a->A_log[w->head]) : 1.0;
    for (int64_t c = 0; c < w->d; c++) {
        const double raw = gen__kda_load(w->dims[KDA_GATE_DTYPE] == GEN_DTYPE_FP32,
                                         w->dims[KDA_DTYPE] == GEN_DTYPE_FP16, a->g,
                                         token * (a->g_stride ? a->g_stride : width) + at + c);
        const double x = raw + (a->dt_bias ? (double)a->dt_bias[at + c] : 0.0);
        double dx = w->grad.g[c], d_log = 0.0;
        if (a->gate_form == GEN_KDA_GATE_SOFTPLUS) {
            d_log = dx * w->token[i].g[c];
            dx *= -rate * gen__kda_sigmoid(x);
        } else if (a->gate_form == GEN_KDA_GATE_LOWER_BOUND) {
            dx *= (double)a->lower_bound * rate * gen__kda_sigmoid(rate * x) *
                  gen__kda_sigmoid(-rate * x);
            d_log = dx * x;
        }
        if (w->out->g)
            w->out->g[token * width + at + c] = dx;
        if (w->out->A_log && a->A_log)
            w->out->A_log[w->head] += d_log;
        if (w->out->dt_bias && a->dt_bias)
            w->out->dt_bias[at + c] += dx;
    }
}

static double beta_back(const struct work *w, int64_t i)
{
    const double beta = w->token[i].beta, d_beta = w->grad.beta;
    switch (w->b->in.beta_form) {
    case GEN_KDA_BETA_SIGMOID:
        return d_beta * beta * (1.0 - beta);
    case GEN_KDA_BETA_TWO_SIGMOID:
        return d_beta * beta * (1.0 - 0.5 * beta);
    default:
        return d_beta;
    }
}

/* ---- a sequence's head ---------------------------------------------------- */

static void one_token(struct work *w, int64_t i, int64_t token)
{
    const gen_kda_intra_args *a = &w->b->in;
    const int64_t heads = w->dims[KDA_V_HEADS], packed = heads * w->d;
    double d_o[KDA_MAX_HEAD_DIM];
    for (int64_t v = 0; v < w->d; v++)
        d_o[v] = gen__kda_load(false, w->dims[KDA_DTYPE] == GEN_DTYPE_FP16, w->b->d_o,
                               token * (w->b->d_o_stride ? w->b->d_o_stride : packed) +
                                   w->head * w->d + v);
    step_back(w, i, d_o);
    add_row(w, a->q, a->q_stride, token, w->grad.q, w->out->q);
    add_row(w, a->k, a->k_stride, token, w->grad.k, w->out->k);
    if (w->out->v)
        memcpy(w->out->v + token * packed + w->head * w->d, w->grad.v,
               (size_t)w->d * sizeof *w->out->v);
    gates_back(w, i, token);
    if (w->out->beta)
        w->out->beta[token * heads + w->head] = beta_back(w, i);
}

/* `starts` has room for a state for each chunk. */
static void one_head(struct work *w, int64_t n, state *starts)
{
    load_state(w, n, w->b->initial_state, w->s);
    for (int64_t row = 0; row < w->sequence.length; row += KDA_CHUNK) {
        memcpy(starts[row / KDA_CHUNK], w->s, sizeof w->s);
        replay(w, row);
    }
    load_state(w, n, w->b->d_final_state, w->ds);
    for (int64_t chunk = gen__kda_chunks(w->sequence.length) - 1; chunk >= 0; chunk--) {
        memcpy(w->s, starts[chunk], sizeof w->s);
        for (int64_t i = replay(w, chunk * KDA_CHUNK) - 1; i >= 0; i--)
            one_token(w, i, w->sequence.first + chunk * KDA_CHUNK + i);
    }
    for (int64_t k = 0; w->out->initial_state && k < w->d; k++)
        for (int64_t v = 0; v < w->d; v++)
            w->out->initial_state[state_at(w, n, k, v)] = w->ds[k][v];
}

enum gen_status gen__kda_backward(const int32_t *dims, const struct gen__kda_backward *b,
                                  const struct gen__kda_gradients *out)
{
    const int64_t heads = dims[KDA_V_HEADS], d = dims[KDA_HEAD_DIM];
    const size_t chunks = (size_t)gen__kda_chunks(gen__kda_longest(dims));
    struct work *w = calloc(1, sizeof *w);
    state *starts = calloc(chunks ? chunks : 1, sizeof *starts);
    if (!w || !starts) {
        free(w), free(starts);
        return gen__fail(GEN_STATUS_OUT_OF_MEMORY, "kda_bwd: no %zu bytes for states",
                         sizeof *w + chunks * sizeof *starts);
    }
    w->dims = dims, w->b = b, w->out = out, w->d = d;
    if (out->A_log)
        memset(out->A_log, 0, (size_t)heads * sizeof *out->A_log);
    if (out->dt_bias)
        memset(out->dt_bias, 0, (size_t)(heads * d) * sizeof *out->dt_bias);
    for (int64_t n = 0; n < dims[KDA_BATCH]; n++) {
        w->sequence = gen__kda_sequence(dims, b->in.cu_seqlens, n);
        for (w->head = 0; w->head < heads; w->head++)
            one_head(w, n, starts);
    }
    free(w), free(starts);
    return GEN_OK;
}
