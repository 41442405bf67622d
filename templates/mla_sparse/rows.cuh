// The rows that a list names, and which of a tile's there are.
#pragma once

#include "mla_sparse/schedule.cuh"
#include "lib/divide.cuh"
#include "lib/ptx/ldst.cuh"

// Entry `at` of a list of `length`; -1 where there is none, or no row of that number.
__device__ __forceinline__ int sparse_entry(const gen_mla_sparse_params &p, const int *list, int at, int length)
{
    int entry = -1;
    if (at < length)
        entry = ld_global(list + at);
    return static_cast<unsigned>(entry) < p.num_rows ? entry : -1;
}

// Where a row begins, in bytes; of an entry that is none, the cache's first row, which is not read then. `unit`: bytes of a
// stride's.
template <int unit>
__device__ __forceinline__ const unsigned char *sparse_row(const gen_mla_sparse_params &p, int entry)
{
    const int row = max(entry, 0);
    const int page = static_cast<int>(quotient_or_shift(row, p.decode.page_mul, p.decode.page_shift));
    return static_cast<const unsigned char *>(p.decode.ckv) +
           (page * p.decode.ckv_page_stride + (row - page * p.decode.page_size) * p.decode.ckv_row_stride) * unit;
}
