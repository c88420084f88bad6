/* What a process sees of its GPU: the share as if it were the whole. */
#include "account.h"
#include "device.h"
#include "driver.h"
#include "exports.h"
#include "limits.h"
#include "pools.h"

#define SHOWS_FREE(symbol, type)                                     \
    EXPORT CUresult symbol(type *free_bytes, type *total)            \
    {                                                                \
        CUresult result = REAL(symbol, free_bytes, total);           \
        int gpu = result == CUDA_SUCCESS && free_bytes && total ? psg_gpu_here(NULL) : -1; \
        if (gpu < 0)                                                 \
            return result;                                           \
        psg_reap();                                                  \
        psg_exports_reap(gpu);                                       \
        psg_pools_settle(gpu);                                       \
        uint64_t limit = smaller(psg_memory_limit(gpu), *total), used = smaller(psg_held(gpu), limit); \
        *total = (type)limit;                                        \
        *free_bytes = (type)smaller(*free_bytes, limit - used);      \
        return result;                                               \
    }

SHOWS_FREE(cuMemGetInfo, unsigned int)
SHOWS_FREE(cuMemGetInfo_v2, size_t)

#define SHOWS_TOTAL(symbol, type)                                    \
    EXPORT CUresult symbol(type *bytes, CUdevice device)             \
    {                                                                \
        CUresult result = REAL(symbol, bytes, device);               \
        int gpu = result == CUDA_SUCCESS && bytes && psg_depth == 0 && psg_limited() ? psg_gpu_of_device(device) : -1; \
        if (gpu >= 0)                                                \
            *bytes = (type)smaller(*bytes, psg_memory_limit(gpu));   \
        return result;                                               \
    }

SHOWS_TOTAL(cuDeviceTotalMem, unsigned int)
SHOWS_TOTAL(cuDeviceTotalMem_v2, size_t)
