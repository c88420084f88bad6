/* Areas that a context keeps for its kernels: their stacks, the heap of malloc and the buffer of printf. A context comes with
 * some of each; what a program asks for beyond that is charged when it does. */
#include "account.h"
#include "device.h"
#include "driver.h"
#include "pages.h"
#include "pools.h"
#include "table.h"

#define KIB UINT64_C(1024)

/* Every thread that fits on the device has a stack. */
static uint64_t times(int device, CUlimit limit)
{
    int processors = 0, threads = 0;
    if (limit != CU_LIMIT_STACK_SIZE)
        return 1;
    REAL(cuDeviceGetAttribute, &processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
    REAL(cuDeviceGetAttribute, &threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, device);
    return processors > 0 && threads > 0 ? (uint64_t)processors * (uint64_t)threads : 1;
}

/* What an area of a size takes beyond the one that the context came with; UINT64_MAX: more than there is. */
static uint64_t excess(int gpu, CUlimit limit, uint64_t size, uint64_t first)
{
    uint64_t bytes, each = times(psg_device_of_gpu(gpu), limit);
    if (size <= first)
        return 0;
    if (__builtin_mul_overflow(size, each, &bytes) || bytes > PSG_USED_MASK)
        return UINT64_MAX;
    return psg_whole_pages(gpu, bytes) - psg_whole_pages(gpu, first * each);
}

static bool is_area(CUlimit limit)
{
    return limit == CU_LIMIT_STACK_SIZE || limit == CU_LIMIT_MALLOC_HEAP_SIZE || limit == CU_LIMIT_PRINTF_FIFO_SIZE;
}

/* The area as it is charged now; the size that it came with is kept in KiB. */
static struct psg_entry area_of(int gpu, uint64_t context, CUlimit limit)
{
    size_t size = 0;
    struct psg_entry area;
    uint64_t key = context ^ (uint64_t)limit;
    if (psg_table_get(PSG_AREA, key, &area))
        return area;
    REAL(cuCtxGetLimit, &size, limit);
    return (struct psg_entry){.kind = PSG_AREA, .key = key, .gpu = (int16_t)gpu, .owner = context,
                              .count = (uint32_t)smaller(size / KIB, UINT32_MAX)};
}

EXPORT CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
    uint64_t context;
    int gpu = is_area(limit) ? psg_gpu_here(&context) : -1;
    if (gpu < 0)
        return REAL(cuCtxSetLimit, limit, value);
    struct psg_entry area = area_of(gpu, context, limit);
    uint64_t wanted = excess(gpu, limit, value, area.count * KIB), more = wanted > area.bytes ? wanted - area.bytes : 0;
    if (!psg_take_or_trim(gpu, more))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = REAL(cuCtxSetLimit, limit, value);
    if (result != CUDA_SUCCESS) {
        psg_give(gpu, more);
        return result;
    }
    psg_give(gpu, area.bytes + more - wanted);
    area.bytes = wanted;
    psg_table_put(&area);
    return result;
}
