/* What a process sees of its GPU: the share as if it were the whole. */
#include "account.h"
#include "device.h"
#include "driver.h"
#include "exports.h"
#include "frees.h"
#include "limits.h"
#include "pools.h"

/* Memory in bytes, as two versions of a function tell it. */
struct memory {
    uint64_t free_bytes, total;
};

/* False: the driver's own answer stands. */
static bool show_memory(struct memory *memory)
{
    int gpu = psg_gpu_here(NULL);
    if (gpu < 0)
        return false;
    psg_reap();
    psg_exports_reap(gpu);
    psg_frees_reap();
    psg_pools_settle(gpu);
    uint64_t limit = smaller(psg_memory_limit(gpu), memory->total), used = smaller(psg_held(gpu), limit);
    *memory = (struct memory){smaller(memory->free_bytes, limit - used), limit};
    return true;
}

EXPORT CUresult cuMemGetInfo(unsigned int *free_bytes, unsigned int *total)
{
    CUresult result = REAL(cuMemGetInfo, free_bytes, total);
    if (result != CUDA_SUCCESS || !free_bytes || !total)
        return result;
    struct memory memory = {*free_bytes, *total};
    if (show_memory(&memory))
        *free_bytes = (unsigned int)memory.free_bytes, *total = (unsigned int)memory.total;
    return result;
}

EXPORT CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
    CUresult result = REAL(cuMemGetInfo_v2, free_bytes, total);
    if (result != CUDA_SUCCESS || !free_bytes || !total)
        return result;
    struct memory memory = {*free_bytes, *total};
    if (show_memory(&memory))
        *free_bytes = memory.free_bytes, *total = memory.total;
    return result;
}

static uint64_t total_shown(CUdevice device, uint64_t total)
{
    int gpu = psg_depth == 0 && psg_limited() ? psg_gpu_of_device(device) : -1;
    return gpu < 0 ? total : smaller(total, psg_memory_limit(gpu));
}

EXPORT CUresult cuDeviceTotalMem(unsigned int *bytes, CUdevice device)
{
    CUresult result = REAL(cuDeviceTotalMem, bytes, device);
    if (result == CUDA_SUCCESS && bytes)
        *bytes = (unsigned int)total_shown(device, *bytes);
    return result;
}

EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    CUresult result = REAL(cuDeviceTotalMem_v2, bytes, device);
    if (result == CUDA_SUCCESS && bytes)
        *bytes = total_shown(device, *bytes);
    return result;
}
