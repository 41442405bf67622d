/* Running the PTX of an asm statement; loads, stores and control. */
#include "ptx.h"

#include <stdlib.h>
#include <string.h>

/* ---- arguments --------------------------------------------------------------- */

static const struct element *element(const struct ptx_frame *f, const struct ptx_arg *arg,
                                     unsigned n)
{
    if (n >= arg->count)
        emul_fault("asm \"%.200s\": an argument with %u elements where %u are wanted",
                   f->code->text, arg->count, n + 1);
    return (const struct element *)f->code->elements.items + arg->first + n;
}

struct emul_operand ptx_operand(const struct ptx_frame *f, const struct ptx_arg *arg, unsigned n)
{
    const struct element *e = element(f, arg, n);
    if (e->kind != ELEMENT_OPERAND || e->number >= f->num_operands)
        emul_fault("asm \"%.200s\": has no operand %llu, or a register where one is wanted",
                   f->code->text, (unsigned long long)e->number);
    return f->operand[e->number];
}

static uint64_t special(uint64_t which)
{
    switch (which) {
    case SPECIAL_LANE:
        return emul__lane();
    case SPECIAL_WARP:
        return emul__warp();
    case SPECIAL_CLUSTER_RANK:
        return emul_cluster_rank();
    case SPECIAL_CLUSTER_SIZE:
        return emul_cluster_size();
    default:
        return emul_self()->block.x;
    }
}

uint64_t ptx_get(const struct ptx_frame *f, const struct ptx_arg *arg, unsigned n)
{
    const struct element *e = element(f, arg, n);
    if (e->kind == ELEMENT_NUMBER)
        return e->number;
    if (e->kind == ELEMENT_REGISTER)
        return f->registers[e->number];
    if (e->kind == ELEMENT_SPECIAL)
        return special(e->number);
    const struct emul_operand o = ptx_operand(f, arg, n);
    uint64_t value = o.value;
    if (o.to) {
        value = 0;
        memcpy(&value, o.to, o.bytes);
    }
    return value;
}

void ptx_set(struct ptx_frame *f, const struct ptx_arg *arg, unsigned n, uint64_t value)
{
    const struct element *e = element(f, arg, n);
    if (e->kind == ELEMENT_NONE)
        return;
    if (e->kind == ELEMENT_REGISTER) {
        f->registers[e->number] = value;
        return;
    }
    const struct emul_operand o = ptx_operand(f, arg, n);
    if (!o.to)
        emul_fault("asm \"%.200s\": writes operand %llu, which is an input", f->code->text,
                   (unsigned long long)e->number);
    memcpy(o.to, &value, o.bytes);
}

void *ptx_pointer(const struct ptx_frame *f, const struct ptx_arg *arg)
{
    return (void *)(uintptr_t)(ptx_get(f, arg, 0) + (uint64_t)arg->offset);
}

unsigned ptx_address(const struct ptx_frame *f, const struct ptx_arg *arg)
{
    return (unsigned)(ptx_get(f, arg, 0) + (uint64_t)arg->offset);
}

/* ---- loads and stores ----------------------------------------------------------- */

enum space { GLOBAL, SHARED_CTA, SHARED_CLUSTER };

static void *memory(const struct ptx_frame *f, const struct ptx_instruction *i,
                    const struct ptx_arg *arg)
{
    const unsigned bytes = i->lanes * i->bits / 8;
    if (i->flags == SHARED_CTA)
        return emul_shared(ptx_address(f, arg), bytes, bytes, i->name);
    if (i->flags == SHARED_CLUSTER)
        return emul_cluster_shared(ptx_address(f, arg), bytes, bytes, i->name);
    return (void *)(uintptr_t)emul_global(ptx_pointer(f, arg), bytes, i->name);
}

static void run_ld(struct ptx_frame *f, const struct ptx_instruction *i)
{
    const uint8_t *from = memory(f, i, &i->arg[1]);
    uint64_t values[8];
    /* All of it first: outputs may lie where it comes from. */
    for (unsigned n = 0; n < i->lanes; n++) {
        values[n] = 0;
        memcpy(&values[n], from + n * i->bits / 8, i->bits / 8);
        if (i->type == 's' && i->bits < 64 && values[n] >> (i->bits - 1) & 1)
            values[n] |= ~0ull << i->bits;
    }
    for (unsigned n = 0; n < i->lanes; n++)
        ptx_set(f, &i->arg[0], n, values[n]);
}

static void run_st(struct ptx_frame *f, const struct ptx_instruction *i)
{
    uint8_t *to = memory(f, i, &i->arg[0]);
    for (unsigned n = 0; n < i->lanes; n++) {
        const uint64_t value = ptx_get(f, &i->arg[1], n);
        memcpy(to + n * i->bits / 8, &value, i->bits / 8);
    }
}

/* At once, in every mode: the barrier of the block that is written to counts it. */
static void run_st_async(struct ptx_frame *f, const struct ptx_instruction *i)
{
    run_st(f, i);
    emul_mbarrier_complete(ptx_address(f, &i->arg[2]), i->lanes * i->bits / 8);
}

static bool prepare_st_async(struct ptx_instruction *i)
{
    const char *type = i->token[i->num_tokens - 1];
    i->bits = (unsigned)atoi(type + 1);
    i->lanes = ptx_has(i, "v2") ? 2 : ptx_has(i, "v4") ? 4 : 1;
    i->flags = SHARED_CLUSTER;
    i->run = run_st_async;
    return ptx_has(i, "shared::cluster") && ptx_has(i, "mbarrier::complete_tx::bytes") &&
           i->num_args == 3 && i->arg[0].memory && i->arg[2].memory &&
           (i->bits == 32 || i->bits == 64);
}

static bool prepare_memory(struct ptx_instruction *i)
{
    if (ptx_has(i, "async"))
        return prepare_st_async(i);
    const char *type = i->token[i->num_tokens - 1];
    const bool cluster = ptx_has(i, "shared::cluster");
    const bool shared = ptx_has(i, "shared") || ptx_has(i, "shared::cta") || cluster;
    i->type = type[0];
    i->bits = (unsigned)atoi(type + 1);
    i->lanes = ptx_has(i, "v2") ? 2 : ptx_has(i, "v4") ? 4 : ptx_has(i, "v8") ? 8 : 1;
    i->flags = cluster ? SHARED_CLUSTER : shared ? SHARED_CTA : GLOBAL;
    i->run = i->token[0][0] == 'l' ? run_ld : run_st;
    /* A policy of L2 stands last, and means nothing here. */
    return (shared || ptx_has(i, "global")) && i->num_args == 2u + ptx_has(i, "L2::cache_hint") &&
           i->bits >= 8 && i->bits <= 64 && i->arg[i->token[0][0] == 'l'].memory;
}

/* ---- control, and what means nothing here ------------------------------------------- */

static void run_bra(struct ptx_frame *f, const struct ptx_instruction *i)
{
    f->next = i->target;
}

static void run_nothing(struct ptx_frame *f, const struct ptx_instruction *i)
{
    (void)f, (void)i;
}

static void run_trap(struct ptx_frame *f, const struct ptx_instruction *i)
{
    (void)f, (void)i;
    emul_fault("trap");
}

static void run_nanosleep(struct ptx_frame *f, const struct ptx_instruction *i)
{
    (void)f, (void)i;
    emul_yield();
}

static void run_createpolicy(struct ptx_frame *f, const struct ptx_instruction *i)
{
    ptx_set(f, &i->arg[0], 0, 1);
}

static void run_fence_proxy(struct ptx_frame *f, const struct ptx_instruction *i)
{
    (void)f;
    emul_fence_proxy_async(i->flags);
}

static void run_fence_mbarrier(struct ptx_frame *f, const struct ptx_instruction *i)
{
    (void)f, (void)i;
    emul_mbarrier_fence();
}

static bool prepare_fence(struct ptx_instruction *i)
{
    const bool cluster = i->num_tokens == 3 || ptx_has(i, "shared::cluster");
    const bool shared = cluster || ptx_has(i, "shared::cta");
    i->flags = cluster;
    if (!ptx_has(i, "proxy"))
        i->run = ptx_has(i, "mbarrier_init") ? run_fence_mbarrier : run_nothing;
    else if (ptx_has(i, "async"))
        i->run = shared ? run_fence_proxy : run_nothing; /* .global: the host has one memory */
    return i->run != NULL;
}

/* The manual leaves open which lane it is; it is the same one every time. */
static void run_elect(struct ptx_frame *f, const struct ptx_instruction *i)
{
    const unsigned mask = (unsigned)ptx_get(f, &i->arg[1], 0);
    if (!(mask >> emul__lane() & 1))
        emul_fault("%s: lane %u is not in the mask 0x%08x", i->name, emul__lane(), mask);
    emul_sync_warp(mask);
    ptx_set(f, &i->arg[0], 0, emul__lane() == (unsigned)__builtin_ctz(mask));
}

static void run_setmaxnreg(struct ptx_frame *f, const struct ptx_instruction *i)
{
    const uint64_t n = ptx_get(f, &i->arg[0], 0);
    if (n < 24 || n > 256 || n % 8)
        emul_fault("setmaxnreg: %llu; allowed are multiples of 8 from 24 to 256",
                   (unsigned long long)n);
    emul_sync_warp(FULL_MASK);
}

static void run_bar(struct ptx_frame *f, const struct ptx_instruction *i)
{
    const int id = (int)ptx_get(f, &i->arg[0], 0);
    const struct emul_dim t = emul_self()->threads;
    const int all = (int)((t.x * t.y * t.z + WARP - 1) / WARP * WARP);
    if (id == 0 && i->num_args == 1)
        emul_sync_block(0, EMUL_COUNT);
    else
        emul_barrier(id, i->num_args > 1 ? (int)ptx_get(f, &i->arg[1], 0) : all, i->flags);
}

static void run_cluster_arrive(struct ptx_frame *f, const struct ptx_instruction *i)
{
    (void)f;
    emul_cluster_arrive(i->flags);
}

static void run_cluster_wait(struct ptx_frame *f, const struct ptx_instruction *i)
{
    (void)f;
    emul_cluster_wait(i->flags);
}

static bool prepare_cluster_barrier(struct ptx_instruction *i)
{
    i->flags = ptx_has(i, "aligned");
    i->run = ptx_has(i, "arrive") ? run_cluster_arrive
             : ptx_has(i, "wait") ? run_cluster_wait
                                  : NULL;
    return i->run && i->num_args == 0;
}

static void run_mapa(struct ptx_frame *f, const struct ptx_instruction *i)
{
    ptx_set(
        f, &i->arg[0], 0,
        emul_cluster_map((unsigned)ptx_get(f, &i->arg[1], 0), (unsigned)ptx_get(f, &i->arg[2], 0)));
}

/* atom.global.{add,cas} of 64 bits. Blocks run one after another, and threads change only where
 * they wait. */
static void run_atom(struct ptx_frame *f, const struct ptx_instruction *i)
{
    uint8_t *at =
        (uint8_t *)(uintptr_t)emul_global(ptx_pointer(f, &i->arg[1]), sizeof(uint64_t), i->name);
    uint64_t found;
    memcpy(&found, at, sizeof found);
    const uint64_t first = ptx_get(f, &i->arg[2], 0);
    const uint64_t next = i->flags         ? found + first
                          : found == first ? ptx_get(f, &i->arg[3], 0)
                                           : found;
    memcpy(at, &next, sizeof next);
    ptx_set(f, &i->arg[0], 0, found);
}

static bool prepare_atom(struct ptx_instruction *i)
{
    i->run = run_atom;
    i->flags = ptx_has(i, "add");
    return ptx_has(i, "global") && ((i->flags && ptx_has(i, "u64") && i->num_args == 3) ||
                                    (ptx_has(i, "cas") && ptx_has(i, "b64") && i->num_args == 4));
}

static bool prepare_mapa(struct ptx_instruction *i)
{
    i->run = run_mapa;
    return strcmp(i->name, "mapa.shared::cluster.u32") == 0 && i->num_args == 3;
}

static bool prepare_bar(struct ptx_instruction *i)
{
    if (strncmp(i->name, "barrier.cluster.", 16) == 0)
        return prepare_cluster_barrier(i);
    i->flags = ptx_has(i, "sync");
    i->run = run_bar;
    return (i->flags || (ptx_has(i, "arrive") && i->num_args == 2)) && i->num_args >= 1 &&
           i->num_args <= 2 && !ptx_has(i, "red");
}

static bool prepare_prefetch(struct ptx_instruction *i)
{
    i->run = run_nothing;
    return true;
}

/* ---- all of them ------------------------------------------------------------------------ */

bool ptx_prepare(struct ptx_instruction *i)
{
    static const struct {
        const char *name;
        unsigned num_args; /* for those with `run` */
        void (*run)(struct ptx_frame *, const struct ptx_instruction *);
        bool (*prepare)(struct ptx_instruction *);
    } table[] = {
        {"ld", 0, NULL, prepare_memory},
        {"st", 0, NULL, prepare_memory},
        {"bra", 1, run_bra, NULL},
        {"trap", 0, run_trap, NULL},
        {"nanosleep", 1, run_nanosleep, NULL},
        {"createpolicy", 2, run_createpolicy, NULL},
        {"fence", 0, NULL, prepare_fence},
        {"membar", 0, run_nothing, NULL},
        {"griddepcontrol", 0, run_nothing, NULL},
        {"prefetch", 0, NULL, prepare_prefetch},
        {"setmaxnreg", 1, run_setmaxnreg, NULL},
        {"elect", 2, run_elect, NULL},
        {"bar", 0, NULL, prepare_bar},
        {"barrier", 0, NULL, prepare_bar},
        {"mapa", 0, NULL, prepare_mapa},
        {"atom", 0, NULL, prepare_atom},
    };
    for (size_t n = 0; n < sizeof table / sizeof *table; n++) {
        if (strcmp(i->token[0], table[n].name) != 0)
            continue;
        i->run = table[n].run;
        return table[n].prepare ? table[n].prepare(i) && i->run : i->num_args == table[n].num_args;
    }
    return ptx_prepare_copy(i) || ptx_prepare_matrix(i) || ptx_prepare_math(i);
}

void emul_asm_run(const struct emul_code *code, const struct emul_operand *operands, unsigned count)
{
    const struct ptx_instruction *all = code->instructions.items;
    struct ptx_frame f = {.code = code, .operand = operands, .num_operands = count};
    while (f.next < code->instructions.count) {
        const struct ptx_instruction *i = &all[f.next++];
        if (i->guard < 0 || (f.registers[i->guard] != 0) != i->guard_not)
            i->run(&f, i);
    }
}
