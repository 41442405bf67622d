/* Stacks, and going from one to another. */
#define _GNU_SOURCE
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

/* Room for what a kernel keeps in registers on a GPU, with all of it on the stack. */
#define STACK_BYTES (256u * 1024u)
#define GUARD_BYTES 4096u

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
/* A fiber that was left for good had frames there. */
#define FORGET(stack) __asan_unpoison_memory_region((stack), STACK_BYTES)
#else
#define FORGET(stack) (void)(stack)
#endif

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

#if !defined(__x86_64__) && !defined(__aarch64__)
#error "fibers are written for x86-64 and aarch64"
#endif

static void stacks_fail(const char *what)
{
    fprintf(stderr, "emul: %s: no memory for the threads' stacks\n", what);
    abort();
}

/* Kept from launch to launch; each thread of the host has its own. */
void *emul__stack(unsigned block, unsigned number)
{
    static _Thread_local uint8_t *stacks[EMUL_MAX_CLUSTER];
    static _Thread_local bool guarded[EMUL_MAX_CLUSTER][EMUL_MAX_THREADS];
    if (!stacks[block]) {
        stacks[block] = mmap(NULL, (size_t)EMUL_MAX_THREADS * STACK_BYTES, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (stacks[block] == MAP_FAILED)
            stacks_fail("mmap");
    }
    uint8_t *stack = stacks[block] + (size_t)number * STACK_BYTES;
    if (!guarded[block][number] && mprotect(stack, GUARD_BYTES, PROT_NONE))
        stacks_fail("mprotect");
    guarded[block][number] = true;
    FORGET(stack);
    return stack + STACK_BYTES;
}

/* Saves what a call preserves and the stack pointer, and goes on where another
 * stack stopped. */
#if defined(__x86_64__)
__asm__(".text\n"
        ".globl emul__switch\n"
        ".hidden emul__switch\n"
        ".type emul__switch, @function\n"
        "emul__switch:\n"
        "    pushq %rbp\n    pushq %rbx\n    pushq %r12\n"
        "    pushq %r13\n    pushq %r14\n    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n    popq %r14\n    popq %r13\n"
        "    popq %r12\n    popq %rbx\n    popq %rbp\n"
        "    ret\n"
        ".size emul__switch, .-emul__switch\n");

void *emul__fiber_new(void *top, void (*entry)(void))
{
    void **sp = top;
    *--sp = NULL; /* where entry() would return to; it does not */
    *--sp = (void *)(uintptr_t)entry;
    for (int i = 0; i < 6; i++)
        *--sp = NULL;
    return sp;
}
#else
__asm__(".text\n"
        ".globl emul__switch\n"
        ".hidden emul__switch\n"
        ".type emul__switch, %function\n"
        "emul__switch:\n"
        "    sub sp, sp, #160\n"
        "    stp x19, x20, [sp, #0]\n    stp x21, x22, [sp, #16]\n"
        "    stp x23, x24, [sp, #32]\n    stp x25, x26, [sp, #48]\n"
        "    stp x27, x28, [sp, #64]\n    stp x29, x30, [sp, #80]\n"
        "    stp d8, d9, [sp, #96]\n    stp d10, d11, [sp, #112]\n"
        "    stp d12, d13, [sp, #128]\n    stp d14, d15, [sp, #144]\n"
        "    mov x9, sp\n    str x9, [x0]\n    mov sp, x1\n"
        "    ldp x19, x20, [sp, #0]\n    ldp x21, x22, [sp, #16]\n"
        "    ldp x23, x24, [sp, #32]\n    ldp x25, x26, [sp, #48]\n"
        "    ldp x27, x28, [sp, #64]\n    ldp x29, x30, [sp, #80]\n"
        "    ldp d8, d9, [sp, #96]\n    ldp d10, d11, [sp, #112]\n"
        "    ldp d12, d13, [sp, #128]\n    ldp d14, d15, [sp, #144]\n"
        "    add sp, sp, #160\n"
        "    ret\n"
        ".size emul__switch, .-emul__switch\n");

void *emul__fiber_new(void *top, void (*entry)(void))
{
    void **sp = (void **)top - 20;
    for (int i = 0; i < 20; i++)
        sp[i] = NULL;
    sp[11] = (void *)(uintptr_t)entry;
    return sp;
}
#endif

/* A fiber that is left for good had calls there that do not return: for the thread sanitizer they
 * are of a stack that goes when the cluster's fibers do. */
void emul__enter(void **save, void *load)
{
#if defined(__SANITIZE_THREAD__)
    void *const outer = __tsan_get_current_fiber(), *const inner = __tsan_create_fiber(0);
    __tsan_switch_to_fiber(inner, 0);
    emul__switch(save, load);
    __tsan_switch_to_fiber(outer, 0);
    __tsan_destroy_fiber(inner);
#else
    emul__switch(save, load);
#endif
}
