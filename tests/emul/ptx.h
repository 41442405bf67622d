/* PTX of asm statements: how a text is kept once it was read, and what runs an instruction. */
#ifndef EMUL_PTX_H
#define EMUL_PTX_H

#include "internal.h"

#define PTX_MAX_ARGS 8
#define PTX_MAX_TOKENS 20
#define PTX_MAX_REGISTERS 8

enum element_kind {
    ELEMENT_OPERAND,
    ELEMENT_REGISTER,
    ELEMENT_NUMBER,
    ELEMENT_NONE,
    ELEMENT_SPECIAL
};
enum special { SPECIAL_LANE, SPECIAL_WARP, SPECIAL_SM, SPECIAL_CLUSTER_RANK, SPECIAL_CLUSTER_SIZE };

struct element {
    enum element_kind kind;
    uint64_t number; /* index or value */
};

/* One argument: an element, a vector {a, b}, or memory [a + offset, {b, c}]. */
struct ptx_arg {
    unsigned first, count;
    bool vector, memory;
    int64_t offset;
};

struct ptx_frame {
    const struct emul_code *code;
    const struct emul_operand *operand;
    unsigned num_operands;
    unsigned next; /* instruction */
    uint64_t registers[PTX_MAX_REGISTERS];
};

struct ptx_instruction {
    void (*run)(struct ptx_frame *frame, const struct ptx_instruction *instruction);
    char name[160]; /* with all its suffixes */
    char *token[PTX_MAX_TOKENS];
    unsigned num_tokens;
    int guard; /* register; -1: none */
    bool guard_not;
    struct ptx_arg arg[PTX_MAX_ARGS];
    unsigned num_args;
    char label[32]; /* of a branch */
    unsigned target;
    /* What `prepare` made of the suffixes. */
    unsigned bits, lanes; /* of an element; elements, or 16-bit halves of a word */
    char type;            /* s, u, b, f, h (fp16), B (bf16), p (predicate) */
    int operation, flags;
};

struct ptx_label {
    char name[32];
    unsigned at;
};

struct emul_code {
    const char *text;
    struct list instructions, elements, labels;
    char register_name[PTX_MAX_REGISTERS][32];
    unsigned num_registers;
};

/* ptx_parse.c */
bool ptx_has(const struct ptx_instruction *i, const char *token);

/* ptx_run.c: decides what runs the instruction; false: nothing does. */
bool ptx_prepare(struct ptx_instruction *i);
uint64_t ptx_get(const struct ptx_frame *f, const struct ptx_arg *arg, unsigned n);
void ptx_set(struct ptx_frame *f, const struct ptx_arg *arg, unsigned n, uint64_t value);

/* ptx_math.c, ptx_copy.c, ptx_matrix.c: for the instructions that they know. */
bool ptx_prepare_math(struct ptx_instruction *i);
bool ptx_prepare_copy(struct ptx_instruction *i);
bool ptx_prepare_matrix(struct ptx_instruction *i);
void *ptx_pointer(const struct ptx_frame *f, const struct ptx_arg *arg);
unsigned ptx_address(const struct ptx_frame *f, const struct ptx_arg *arg);
struct emul_operand ptx_operand(const struct ptx_frame *f, const struct ptx_arg *arg, unsigned n);

#endif
