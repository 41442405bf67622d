// Numbers 0, 1, 2, ... handed out to the blocks of a launch, from a word of global memory that may hold anything before: no
// launch has to clear it first.
//
// The word's upper half is a mark while numbers are handed out, its lower half counts them. Every block opens the word before
// it takes a number, and whoever knows that the last number is taken closes it, so that the next launch begins anew. What is
// in memory by accident is taken for an open word where its upper half is the mark: a NaN of fp32 that no arithmetic makes, and
// no two halves of bf16 or fp16 that it makes either. What a launch that was killed left there is such a word, too: then numbers
// are missing, once, if blocks close the word at any number beyond the last one.
#pragma once

constexpr unsigned long long ticket_mark = 0x7fb5ffadull << 32;

// What open_tickets() needs, loaded as early as the launch may use the memory.
__device__ __forceinline__ unsigned long long look_at_tickets(unsigned long long *word)
{
    unsigned long long found;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(found) : "l"(word) : "memory");
    return found;
}

// One thread of each block, before its first number. Where another block was faster this changes nothing, and the word is open.
__device__ __forceinline__ void open_tickets(unsigned long long *word, unsigned long long found)
{
    if (found >> 32 != ticket_mark >> 32)
        asm volatile("atom.relaxed.gpu.global.cas.b64 %0, [%1], %0, %2;"
                     : "+l"(found)
                     : "l"(word), "l"(ticket_mark)
                     : "memory");
}

__device__ __forceinline__ unsigned take_ticket(unsigned long long *word)
{
    unsigned long long found;
    asm volatile("atom.relaxed.gpu.global.add.u64 %0, [%1], %2;" : "=l"(found) : "l"(word), "l"(1ull) : "memory");
    return static_cast<unsigned>(found);
}

// No block takes another number.
__device__ __forceinline__ void close_tickets(unsigned long long *word)
{
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(word), "l"(0ull) : "memory");
}
