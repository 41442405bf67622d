#include "sim_kernels.h"

#include "reference/half.h"
#include "la_decode/args.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PEAK_GBPS 4800.0

int sim_fault(const char *symbol, const char *kind)
{
    const char *text = getenv("SIM_FAULT");
    const char *colon = text ? strrchr(text, ':') : NULL;
    char part[256];
    if (!colon || strcmp(colon + 1, kind) != 0)
        return 0;
    snprintf(part, sizeof part, "%.*s", (int)(colon - text), text);
    return strstr(symbol, part) != NULL;
}

static unsigned divide(unsigned x, unsigned mul, unsigned shift)
{
    return mul ? (unsigned)(((unsigned long long)x * mul) >> 32) >> shift : x;
}

static float get(const void *data, long long i, int fp16)
{
    uint16_t code = ((const uint16_t *)data)[i];
    return (float)(fp16 ? gen__fp16_to_double(code) : gen__bf16_to_double(code));
}

static void put(void *data, long long i, int fp16, float x)
{
    ((uint16_t *)data)[i] =
        fp16 ? gen__fp16_from_double((double)x) : gen__bf16_from_double((double)x);
}

struct shape {
    int dim, fp16, kv;
};

static void one_state(const struct gen_la_decode_params *p, struct shape s, unsigned index)
{
    const unsigned row = divide(index, p->heads_mul, p->heads_shift);
    const unsigned head = index - row * p->num_v_heads;
    const unsigned query = divide(head, p->group_mul, p->group_shift);
    const int slot = p->slots ? p->slots[row] : (int)row;
    const long long d = s.dim, at_o = row * p->o_stride + head * d;
    if (slot < 0 || (unsigned)slot >= p->num_slots) {
        for (long long v = 0; v < d && p->zero_padding; v++)
            put(p->o, at_o + v, s.fp16, 0);
        return;
    }
    float *state = p->state + ((long long)slot * p->num_v_heads + head) * d * d;
    const float lam = expf(-p->decay[divide(head, p->decay_mul, p->decay_shift)]);
    for (long long v = 0; v < d; v++) {
        const float value = get(p->v, row * p->v_stride + head * d + v, s.fp16);
        float sum = 0;
        for (long long k = 0; k < d; k++) {
            float *h = &state[s.kv ? k * d + v : v * d + k];
            *h = fmaf(get(p->k, row * p->k_stride + query * d + k, s.fp16), value, lam * *h);
            sum += p->scale * get(p->q, row * p->q_stride + query * d + k, s.fp16) * *h;
        }
        put(p->o, at_o + v, s.fp16, sum);
    }
}

static void do_harm(const struct gen_la_decode_params *p, struct shape s, const char *symbol)
{
    static unsigned calls;
    const size_t all = (size_t)p->num_slots * p->num_v_heads * (size_t)(s.dim * s.dim);
    calls++;
    if (sim_fault(symbol, "wrong"))
        put(p->o, 0, s.fp16, 1e3f);
    if (sim_fault(symbol, "guard"))
        p->state[all] = 1;
    if (sim_fault(symbol, "input"))
        ((uint16_t *)(uintptr_t)p->q)[0] ^= 1;
    for (unsigned slot = 0; slot < p->num_slots && sim_fault(symbol, "stray"); slot++)
        p->state[(size_t)slot * p->num_v_heads * (size_t)(s.dim * s.dim)] *= 1.0000001f;
    if (sim_fault(symbol, "racy") && calls % 2)
        p->state[(size_t)(p->slots && p->slots[0] >= 0 && (unsigned)p->slots[0] < p->num_slots
                              ? p->slots[0]
                              : 0) *
                 p->num_v_heads * (size_t)(s.dim * s.dim)] *= 1.0000001f;
}

double sim_model_us(const char *symbol, double bytes, unsigned sms)
{
    static unsigned noise = 1;
    unsigned hash = 2166136261u;
    for (const char *c = symbol; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 16777619u;
    const double share = 0.70 + 0.2 * ((hash >> 8) % 1024) / 1024.0;
    const double start = 1.5 + ((hash >> 18) % 64) / 64.0;
    noise = noise * 1664525u + 1013904223u;
    const double jitter = 1 + 0.004 * ((noise >> 16) % 1000 / 1000.0 - 0.5);
    return (start + bytes / (PEAK_GBPS * 1e3 * share * fmin(1.0, sms / 100.0))) * jitter;
}

static double run_la_decode(const struct sim_launch *l, const char *name, int compute, unsigned sms)
{
    struct gen_la_decode_params p;
    const struct shape s = {strstr(name, "_d64_")    ? 64
                            : strstr(name, "_d256_") ? 256
                                                     : 128,
                            strstr(name, "_fp16_") != NULL, strstr(name, "_kv__") != NULL};
    const char *limit = getenv("SIM_LIMIT");
    memcpy(&p, l->params, sizeof p);
    if (compute && p.num_states <= (limit ? (unsigned)atoi(limit) : 20000u)) {
        for (unsigned i = 0; i < p.num_states; i++)
            one_state(&p, s, i);
        do_harm(&p, s, l->kernel->symbol);
    }
    return sim_model_us(l->kernel->symbol, 8.0 * p.num_states * s.dim * s.dim, sms);
}

static double run_inplace(const struct sim_launch *l, int compute, unsigned sms)
{
    float *data;
    unsigned long long n;
    float factor;
    memcpy(&data, l->params, sizeof data);
    memcpy(&n, l->params + 8, sizeof n);
    memcpy(&factor, l->params + 16, sizeof factor);
    for (unsigned long long i = 0; compute && i < 4 * n && n < 100000; i++)
        data[i] *= factor;
    return sim_model_us(l->kernel->symbol, 32.0 * (double)n, sms);
}

void sim_params(struct sim_launch *l, void **params)
{
    if (l->kernel->emulated) {
        sim_emul_params(l->kernel->emulated, params, l->params);
    } else if (strstr(l->kernel->symbol, "la_decode_")) {
        memcpy(l->params, params[0], sizeof(struct gen_la_decode_params));
    } else {
        memcpy(l->params, params[0], 8);
        memcpy(l->params + 8, params[1], 8);
        memcpy(l->params + 16, params[2], 4);
    }
}

double sim_run(const struct sim_launch *l, int compute, unsigned sms)
{
    const char *name = strstr(l->kernel->symbol, "la_decode_");
    if (name)
        return run_la_decode(l, name, compute, sms);
    return strncmp(l->kernel->symbol, "inplace_", 8) == 0 ? run_inplace(l, compute, sms) : 0;
}
