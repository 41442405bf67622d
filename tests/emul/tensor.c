/* Tensor maps and copies of their boxes to shared memory. */
#include "internal.h"

#include <string.h>

#define MAP_MAGIC 0x6c756d655f70616dull
#define MAX_RANK 5
#define SWIZZLE_64B 2
#define SWIZZLE_128B 3

/* What the 128 opaque bytes of a tensor map are here. Dimension 0 is the innermost. */
struct map {
    uint64_t magic;
    const uint8_t *address;
    uint64_t stride[MAX_RANK - 1]; /* bytes; of dimension i + 1 */
    uint32_t dim[MAX_RANK];
    uint16_t box[MAX_RANK];
    uint8_t rank, element_bytes, swizzle, reserved[3];
    uint32_t unused[4];
};
_Static_assert(sizeof(struct map) <= 128, "a CUtensorMap");

/* Of enum CUtensorMapDataType; 0: none. */
static unsigned element_bytes(int dtype)
{
    static const uint8_t bytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
    return dtype >= 0 && (size_t)dtype < sizeof bytes ? bytes[dtype] : 0;
}

int emul_tensor_map(void *map, int dtype, unsigned rank, void *address,
                    const unsigned long long *dims, const unsigned long long *strides,
                    const unsigned *box, const unsigned *element_strides, int interleave,
                    int swizzle, int fill)
{
    struct map m = {.magic = MAP_MAGIC, .address = address, .rank = (uint8_t)rank};
    m.element_bytes = (uint8_t)element_bytes(dtype);
    m.swizzle = (uint8_t)swizzle;
    if ((uintptr_t)map % 64 || !m.element_bytes || rank < 1 || rank > MAX_RANK ||
        (uintptr_t)address % 16 || interleave != 0 || fill != 0 ||
        (swizzle != 0 && swizzle != SWIZZLE_64B && swizzle != SWIZZLE_128B))
        return -1;
    for (unsigned i = 0; i < rank; i++) {
        if (!dims[i] || dims[i] > 1ull << 32 || !box[i] || box[i] > 256 || element_strides[i] != 1)
            return -1;
        if (i > 0 && (strides[i - 1] % 16 || strides[i - 1] >= 1ull << 40))
            return -1;
        if (i > 0)
            m.stride[i - 1] = strides[i - 1];
        m.dim[i] = dims[i] >> 32 ? UINT32_MAX : (uint32_t)dims[i];
        m.box[i] = (uint16_t)box[i];
    }
    const unsigned row = box[0] * m.element_bytes;
    if (row % 16 || (swizzle == SWIZZLE_128B && row > 128) || (swizzle == SWIZZLE_64B && row > 64))
        return -1;
    memset(map, 0, 128);
    memcpy(map, &m, sizeof m);
    return 0;
}

static struct map read_map(const void *at, unsigned rank)
{
    struct map m;
    memcpy(&m, at, sizeof m);
    if (m.magic != MAP_MAGIC)
        emul_fault("a tensor copy: there is no tensor map at %p", at);
    if (m.rank != rank)
        emul_fault("a tensor copy of rank %u, the map is of rank %u", rank, m.rank);
    return m;
}

void emul_tensor_check(const void *map, unsigned rank)
{
    read_map(map, rank);
}

void emul_tensor_load(unsigned shared, const void *map, const int *at, unsigned rank,
                      unsigned barrier, unsigned blocks)
{
    const struct map m = read_map(map, rank);
    struct task t = {
        .kind = TASK_TENSOR, .shared = shared, .from = map, .rank = rank, .barrier = barrier};
    t.bytes = m.element_bytes;
    for (unsigned i = 0; i < rank; i++) {
        t.at[i] = at[i];
        t.bytes *= m.box[i];
    }
    emul__issue_load(&t, 128, blocks, "cp.async.bulk.tensor");
}

/* A row of the box: `bytes` from coordinates `at`, zeros where the tensor has none. */
static void read_row(const struct map *m, const int64_t *at, uint8_t *row, unsigned bytes)
{
    const uint8_t *from = m->address;
    const unsigned size = m->element_bytes;
    memset(row, 0, bytes);
    for (unsigned i = 1; i < m->rank; i++) {
        if (at[i] < 0 || at[i] >= m->dim[i])
            return;
        from += (uint64_t)at[i] * m->stride[i - 1];
    }
    for (unsigned i = 0; i < m->box[0]; i++)
        if (at[0] + i >= 0 && at[0] + i < m->dim[0])
            memcpy(row + i * size, from + (at[0] + i) * (int64_t)size, size);
}

void emul__land_tensor(const struct task *t)
{
    const struct map m = read_map(t->from, t->rank);
    const unsigned row_bytes = (unsigned)m.box[0] * m.element_bytes;
    const unsigned rows = t->bytes / row_bytes;
    for (unsigned r = 0; r < rows; r++) {
        uint8_t row[256 * 8];
        int64_t at[MAX_RANK] = {t->at[0]};
        unsigned left = r;
        for (unsigned i = 1; i < m.rank; i++) {
            at[i] = (int64_t)t->at[i] + left % m.box[i];
            left /= m.box[i];
        }
        read_row(&m, at, row, row_bytes);
        for (unsigned c = 0; c < row_bytes; c += 16) {
            unsigned to = t->shared + r * row_bytes + c;
            if (m.swizzle == SWIZZLE_128B)
                to ^= (to >> 7 & 7) << 4;
            if (m.swizzle == SWIZZLE_64B)
                to ^= (to >> 7 & 3) << 4;
            emul__async_write(t->block, to, row + c, 16, "cp.async.bulk.tensor");
        }
    }
}
