/* Physical memory that is created apart from its addresses: charged on the device where it lies, until the last handle
 * and the last mapping have gone, in whatever order. */
#include <pthread.h>

#include "account.h"
#include "device.h"
#include "driver.h"
#include "exports.h"
#include "fork.h"
#include "handles.h"
#include "limits.h"
#include "lock.h"
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
    int gpu = watched() && how ? psg_gpu_of_memory(how->type, &how->location) : -1;
    if (gpu < 0)
        return REAL(cuMemCreate, handle, size, how, flags);
    if (!psg_take_or_trim(gpu, size))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = REAL(cuMemCreate, handle, size, how, flags);
    if (result != CUDA_SUCCESS) {
        psg_give(gpu, size);
        return result;
    }
    psg_lock(&counting);
    psg_table_put(&(struct psg_entry){.kind = PSG_HANDLE, .key = *handle, .gpu = (int16_t)gpu, .bytes = size, .count = 1});
    psg_unlock(&counting);
    return result;
}

/* The caller has the lock. */
static bool hold_handle(uint64_t handle)
{
    struct psg_entry entry;
    if (!psg_table_get(PSG_HANDLE, handle, &entry))
        return false;
    entry.count++;
    return psg_table_put(&entry);
}

static void drop_handle(uint64_t handle)
{
    struct psg_entry entry;
    if (!psg_table_get(PSG_HANDLE, handle, &entry))
        return;
    if (--entry.count > 0) {
        psg_table_put(&entry);
        return;
    }
    psg_table_take(PSG_HANDLE, handle, &entry);
    if (entry.gpu < 0)
        psg_import_gone(handle);
    else if (!psg_export_holds(handle, entry.gpu, entry.bytes))
        psg_give(entry.gpu, entry.bytes);
}

/* The lock is held over the driver's call, or a handle that is given out again could be counted down in its place. */
EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    if (!watched())
        return REAL(cuMemRelease, handle);
    psg_lock(&counting);
    CUresult result = REAL(cuMemRelease, handle);
    if (result == CUDA_SUCCESS)
        drop_handle(handle);
    psg_unlock(&counting);
    return result;
}

EXPORT CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address)
{
    if (!watched())
        return REAL(cuMemRetainAllocationHandle, handle, address);
    psg_lock(&counting);
    CUresult result = REAL(cuMemRetainAllocationHandle, handle, address);
    if (result == CUDA_SUCCESS)
        hold_handle(*handle);
    psg_unlock(&counting);
    return result;
}

/* Other ways to share memory than by descriptors are uncounted. */
static bool is_descriptor(CUmemAllocationHandleType type)
{
    return type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
}

EXPORT CUresult cuMemExportToShareableHandle(void *shared, CUmemGenericAllocationHandle handle,
                                             CUmemAllocationHandleType type, unsigned long long flags)
{
    struct psg_entry entry;
    if (!watched())
        return REAL(cuMemExportToShareableHandle, shared, handle, type, flags);
    psg_lock(&counting);
    CUresult result = REAL(cuMemExportToShareableHandle, shared, handle, type, flags);
    if (result == CUDA_SUCCESS && is_descriptor(type) && psg_table_get(PSG_HANDLE, handle, &entry) && entry.gpu >= 0)
        psg_exported(handle, *(int *)shared);
    psg_unlock(&counting);
    return result;
}

/* Memory of another process is charged to that one. */
EXPORT CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shared,
                                               CUmemAllocationHandleType type)
{
    if (!watched())
        return REAL(cuMemImportFromShareableHandle, handle, shared, type);
    psg_lock(&counting);
    CUresult result = REAL(cuMemImportFromShareableHandle, handle, shared, type);
    if (result == CUDA_SUCCESS && is_descriptor(type) && !hold_handle(*handle)) {
        psg_imported(*handle, (int)(intptr_t)shared);
        psg_table_put(&(struct psg_entry){.kind = PSG_HANDLE, .key = *handle, .gpu = -1, .count = 1});
    }
    psg_unlock(&counting);
    return result;
}

EXPORT CUresult cuMemMap(CUdeviceptr pointer, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                         unsigned long long flags)
{
    if (!watched())
        return REAL(cuMemMap, pointer, size, offset, handle, flags);
    psg_lock(&counting);
    CUresult result = REAL(cuMemMap, pointer, size, offset, handle, flags);
    /* Mappings of memory that is not charged are kept as well, so that an unmap finds its way from one to the next. */
    if (result == CUDA_SUCCESS)
        psg_table_put(&(struct psg_entry){.kind = PSG_MAPPING, .key = pointer, .bytes = size,
                                          .owner = hold_handle(handle) ? handle : 0});
    psg_unlock(&counting);
    return result;
}

EXPORT CUresult cuMemUnmap(CUdeviceptr pointer, size_t size)
{
    if (!watched())
        return REAL(cuMemUnmap, pointer, size);
    psg_lock(&counting);
    CUresult result = REAL(cuMemUnmap, pointer, size);
    for (CUdeviceptr at = pointer; result == CUDA_SUCCESS && at < pointer + size;) {
        struct psg_entry mapping;
        if (psg_table_take(PSG_MAPPING, at, &mapping)) {
            if (mapping.owner)
                drop_handle(mapping.owner);
            at += mapping.bytes ? mapping.bytes : LEAST_MAPPING;
        } else {
            at += LEAST_MAPPING;
        }
    }
    psg_unlock(&counting);
    return result;
}

/* Sparse arrays ---------------------------------------------------------------------------------------------------- */

/* By which a part of an array is known when it is mapped and when it is unmapped. What is unmapped in other parts than it was
 * mapped in stays charged until the array is destroyed. */
static uint64_t part_of(const CUarrayMapInfo *map)
{
    uint64_t key = (uint64_t)(uintptr_t)map->resource.array;
    uint64_t parts[] = {map->subresourceType, map->subresource.sparseLevel.level, map->subresource.sparseLevel.layer,
                        map->subresource.sparseLevel.offsetX, map->subresource.sparseLevel.offsetY,
                        map->subresource.sparseLevel.offsetZ};
    if (map->subresourceType == CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL)
        parts[1] = 0, parts[2] = map->subresource.miptail.layer, parts[3] = map->subresource.miptail.offset,
        parts[4] = parts[5] = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        key = (key ^ parts[i]) * UINT64_C(0x9E3779B97F4A7C15) ^ key >> 29;
    return key;
}

static void drop_part(const struct psg_entry *part)
{
    drop_handle(part->bytes);
}

/* The caller has the lock. */
static void note_part(const CUarrayMapInfo *map)
{
    struct psg_entry before;
    uint64_t key = part_of(map), handle = map->memHandle.memHandle;
    bool mapped = map->memOperationType == CU_MEM_OPERATION_TYPE_MAP && hold_handle(handle);
    if (psg_table_take(PSG_PART, key, &before))
        drop_part(&before);
    if (mapped)
        psg_table_put(&(struct psg_entry){.kind = PSG_PART, .key = key, .bytes = handle,
                                          .owner = (uint64_t)(uintptr_t)map->resource.array});
}

static CUresult note_parts(const CUarrayMapInfo *maps, unsigned count, CUresult result)
{
    if (result != CUDA_SUCCESS || !watched())
        return result;
    psg_lock(&counting);
    for (unsigned i = 0; i < count; i++)
        note_part(&maps[i]);
    psg_unlock(&counting);
    return result;
}

EXPORT CUresult cuMemMapArrayAsync(CUarrayMapInfo *maps, unsigned int count, CUstream stream)
{
    return note_parts(maps, count, REAL(cuMemMapArrayAsync, maps, count, stream));
}

EXPORT CUresult cuMemMapArrayAsync_ptsz(CUarrayMapInfo *maps, unsigned int count, CUstream stream)
{
    return note_parts(maps, count, REAL(cuMemMapArrayAsync_ptsz, maps, count, stream));
}

void psg_parts_gone(uint64_t array)
{
    psg_lock(&counting);
    psg_table_sweep(PSG_PART, array, drop_part);
    psg_unlock(&counting);
}
