/* Physical memory that is created apart from its addresses: charged on the device where it lies, until the last handle
 * and the last mapping have gone, in whatever order. */
#include <pthread.h>

#include "account.h"
#include "device.h"
#include "driver.h"
#include "fork.h"
#include "limits.h"
#include "pools.h"
#include "table.h"

/* No mapping is smaller or less aligned than this. */
#define LEAST_MAPPING UINT64_C(0x1000)

static pthread_mutex_t counting = PTHREAD_MUTEX_INITIALIZER;

static void after_fork_in_child(void)
{
    counting = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

AT_FORK(.in_child = after_fork_in_child);

static bool watched(void)
{
    return psg_depth == 0 && psg_limited();
}

EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *how,
                            unsigned long long flags)
{
    int gpu = watched() && how && how->location.type == CU_MEM_LOCATION_TYPE_DEVICE ? psg_gpu_of_device(how->location.id)
                                                                                     : -1;
    if (gpu < 0)
        return REAL(cuMemCreate, handle, size, how, flags);
    if (!psg_take_or_trim(gpu, size))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = REAL(cuMemCreate, handle, size, how, flags);
    if (result != CUDA_SUCCESS) {
        psg_give(gpu, size);
        return result;
    }
    pthread_mutex_lock(&counting);
    psg_table_put(&(struct psg_entry){.kind = PSG_HANDLE, .key = *handle, .gpu = (int16_t)gpu, .bytes = size, .count = 1});
    pthread_mutex_unlock(&counting);
    return result;
}

/* The caller has the lock. */
static bool hold(uint64_t handle)
{
    struct psg_entry entry;
    if (!psg_table_get(PSG_HANDLE, handle, &entry))
        return false;
    entry.count++;
    return psg_table_put(&entry);
}

static void drop(uint64_t handle)
{
    struct psg_entry entry;
    if (!psg_table_get(PSG_HANDLE, handle, &entry))
        return;
    if (--entry.count > 0) {
        psg_table_put(&entry);
        return;
    }
    psg_table_take(PSG_HANDLE, handle, &entry);
    psg_give(entry.gpu, entry.bytes);
}

/* The lock is held over the driver's call, or a handle that is given out again could be counted down in its place. */
EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    if (!watched())
        return REAL(cuMemRelease, handle);
    pthread_mutex_lock(&counting);
    CUresult result = REAL(cuMemRelease, handle);
    if (result == CUDA_SUCCESS)
        drop(handle);
    pthread_mutex_unlock(&counting);
    return result;
}

EXPORT CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address)
{
    if (!watched())
        return REAL(cuMemRetainAllocationHandle, handle, address);
    pthread_mutex_lock(&counting);
    CUresult result = REAL(cuMemRetainAllocationHandle, handle, address);
    if (result == CUDA_SUCCESS)
        hold(*handle);
    pthread_mutex_unlock(&counting);
    return result;
}

EXPORT CUresult cuMemMap(CUdeviceptr pointer, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                         unsigned long long flags)
{
    if (!watched())
        return REAL(cuMemMap, pointer, size, offset, handle, flags);
    pthread_mutex_lock(&counting);
    CUresult result = REAL(cuMemMap, pointer, size, offset, handle, flags);
    /* Mappings of memory that is not charged are kept as well, so that an unmap finds its way from one to the next. */
    if (result == CUDA_SUCCESS)
        psg_table_put(&(struct psg_entry){.kind = PSG_MAPPING, .key = pointer, .bytes = size,
                                          .owner = hold(handle) ? handle : 0});
    pthread_mutex_unlock(&counting);
    return result;
}

EXPORT CUresult cuMemUnmap(CUdeviceptr pointer, size_t size)
{
    if (!watched())
        return REAL(cuMemUnmap, pointer, size);
    pthread_mutex_lock(&counting);
    CUresult result = REAL(cuMemUnmap, pointer, size);
    for (CUdeviceptr at = pointer; result == CUDA_SUCCESS && at < pointer + size;) {
        struct psg_entry mapping;
        if (psg_table_take(PSG_MAPPING, at, &mapping)) {
            if (mapping.owner)
                drop(mapping.owner);
            at += mapping.bytes ? mapping.bytes : LEAST_MAPPING;
        } else {
            at += LEAST_MAPPING;
        }
    }
    pthread_mutex_unlock(&counting);
    return result;
}
