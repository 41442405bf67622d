// The way from fragments back to shared memory, transposed; sm_90 and later.
#pragma once

// Four 8 x 8 matrices of 16-bit elements: lane l gives the address of row l % 8 of matrix l / 8, which gets the fragment's
// column of that number.
__device__ __forceinline__ void stmatrix_x4_trans(unsigned address, const unsigned (&r)[4])
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(r[0]),
                 "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
}
