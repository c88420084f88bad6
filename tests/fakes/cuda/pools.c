/* Stream-ordered pools: what they reserve of a GPU grows in steps and shrinks by trimming or at synchronisations. */
#include "driver.h"

#include <stdlib.h>

static struct CUmemPoolHandle_st defaults[DRIVER_GPUS];
static CUmemoryPool current[DRIVER_GPUS];
static CUmemoryPool made_pools;

CUmemoryPool driver_default_pool(int device)
{
    defaults[device].device = device;
    defaults[device].gpu = driver_gpu(device);
    return &defaults[device];
}

static CUmemoryPool pool_of(int device)
{
    return current[device] ? current[device] : driver_default_pool(device);
}

/* Blocks of a pool begin at multiples of this. */
#define BLOCK_UNIT 512ULL

static uint64_t whole_units(uint64_t bytes)
{
    return (bytes + BLOCK_UNIT - 1) / BLOCK_UNIT * BLOCK_UNIT;
}

int driver_pool_take(CUmemoryPool pool, uint64_t bytes)
{
    uint64_t room = pool->reserved - pool->used, more = 0;
    bytes = whole_units(bytes);
    if (bytes > room)
        more = (bytes - room + POOL_STEP - 1) / POOL_STEP * POOL_STEP;
    if (!pool->host && more > 0 && machine_take(pool->gpu, more) != 0)
        return -1;
    pool->reserved += more;
    pool->used += bytes;
    pool->unwaited -= bytes < pool->unwaited ? bytes : pool->unwaited;
    if (pool->reserved > pool->reserved_high)
        pool->reserved_high = pool->reserved;
    if (pool->used > pool->used_high)
        pool->used_high = pool->used;
    return 0;
}

void driver_pool_give(CUmemoryPool pool, uint64_t bytes)
{
    pool->used -= whole_units(bytes);
}

/* By a stream: as a card with driver 580 has shown, trimming leaves that until somebody has waited. */
void driver_pool_give_in_order(CUmemoryPool pool, uint64_t bytes, CUstream stream)
{
    driver_pool_give(pool, bytes);
    pool->unwaited += whole_units(bytes);
    if (driver_tail(stream) >= pool->freed_at) {
        pool->freed_on = driver_stream_context(stream)->gpu;
        pool->freed_at = driver_tail(stream);
    }
}

static void trim(CUmemoryPool pool, uint64_t keep)
{
    uint64_t least = (pool->used + pool->unwaited + POOL_STEP - 1) / POOL_STEP * POOL_STEP;
    keep = (keep + POOL_STEP - 1) / POOL_STEP * POOL_STEP;
    if (keep < least)
        keep = least;
    if (keep >= pool->reserved)
        return;
    if (!pool->host)
        machine_give(pool->gpu, pool->reserved - keep);
    pool->reserved = keep;
}

static void settle(CUmemoryPool pool)
{
    pool->unwaited = 0;
    if (pool->threshold < pool->reserved)
        trim(pool, pool->threshold);
}

void driver_pools_settle(void)
{
    for (int device = 0; device < driver_devices(); device++)
        settle(driver_default_pool(device));
    for (CUmemoryPool pool = made_pools; pool != NULL; pool = pool->next)
        settle(pool);
}

static CUresult allocate(CUdeviceptr *dptr, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    CUresult code = CUDA_SUCCESS;
    if (driver_ready() != CUDA_SUCCESS)
        return driver_ready();
    if (dptr == NULL || bytes == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (driver_stream_context(stream) == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (driver_capturing(stream))
        return stream->spoiled ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : driver_capture_alloc(stream, dptr, bytes);
    pthread_mutex_lock(&driver_lock);
    if (pool == NULL)
        pool = pool_of(driver_stream_context(stream)->device);
    if (driver_pool_take(pool, bytes) != 0) {
        code = CUDA_ERROR_OUT_OF_MEMORY;
    } else {
        block *made = driver_add(driver_address(bytes), bytes, BLOCK_POOL, pool->gpu);
        made->pool = pool;
        *dptr = made->address;
    }
    pthread_mutex_unlock(&driver_lock);
    return code;
}

CUresult cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
    FAULT();
    return allocate(dptr, bytesize, NULL, hStream);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream)
{
    FAULT();
    return pool == NULL ? CUDA_ERROR_INVALID_VALUE : allocate(dptr, bytesize, pool, hStream);
}

/* The device that a pool takes its memory from; -1: the host, -2: there is no such device. Managed memory without a place goes
 * where it is used, so that of a pool counts as taken from the device that is current while the pool is made. */
static int device_of(const CUmemPoolProps *as)
{
    int managed = as->allocType == CU_MEM_ALLOCATION_TYPE_MANAGED;
    int device = as->location.id;
    if (as->location.type == CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN && !managed)
        device = as->location.localized.deviceId;
    else if (as->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return !managed || as->location.type != CU_MEM_LOCATION_TYPE_NONE ? -1
                                                                         : driver_context() != NULL ? driver_context()->device : 0;
    return device >= 0 && device < driver_devices() ? device : -2;
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *poolProps)
{
    CUmemoryPool made;
    int device;
    FAULT();
    if (driver_ready() != CUDA_SUCCESS)
        return driver_ready();
    if (pool == NULL || poolProps == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (poolProps->allocType != CU_MEM_ALLOCATION_TYPE_PINNED &&
        (poolProps->allocType != CU_MEM_ALLOCATION_TYPE_MANAGED || machine()->cuda < 13000))
        return CUDA_ERROR_INVALID_VALUE;
    if (poolProps->location.type == CU_MEM_LOCATION_TYPE_NONE && poolProps->allocType != CU_MEM_ALLOCATION_TYPE_MANAGED)
        return CUDA_ERROR_INVALID_VALUE;
    if ((device = device_of(poolProps)) == -2)
        return CUDA_ERROR_INVALID_DEVICE;
    made = calloc(1, sizeof *made);
    made->own = 1;
    made->host = device < 0;
    if (!made->host) {
        made->device = device;
        made->gpu = driver_gpu(device);
    }
    pthread_mutex_lock(&driver_lock);
    made->next = made_pools;
    made_pools = made;
    pthread_mutex_unlock(&driver_lock);
    *pool = made;
    return CUDA_SUCCESS;
}

CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
    FAULT();
    if (pool == NULL || !pool->own)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&driver_lock);
    if (driver_has_ended(pool->freed_on, pool->freed_at))
        pool->unwaited = 0;
    trim(pool, 0); /* the rest goes with its last allocation, at the next synchronisation */
    pool->threshold = 0;
    for (int device = 0; device < driver_devices(); device++)
        if (current[device] == pool)
            current[device] = NULL;
    pthread_mutex_unlock(&driver_lock);
    return CUDA_SUCCESS;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep)
{
    FAULT();
    if (pool == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&driver_lock);
    trim(pool, minBytesToKeep);
    pthread_mutex_unlock(&driver_lock);
    return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
    FAULT();
    if (pool == NULL || value == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&driver_lock);
    if (attr == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
        pool->threshold = *(cuuint64_t *)value;
    if (attr == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)
        pool->reserved_high = pool->reserved;
    if (attr == CU_MEMPOOL_ATTR_USED_MEM_HIGH)
        pool->used_high = pool->used;
    pthread_mutex_unlock(&driver_lock);
    return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
    CUresult code = CUDA_SUCCESS;
    FAULT();
    if (pool == NULL || value == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&driver_lock);
    switch (attr) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD: *(cuuint64_t *)value = pool->threshold; break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT: *(cuuint64_t *)value = pool->reserved; break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH: *(cuuint64_t *)value = pool->reserved_high; break;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT: *(cuuint64_t *)value = pool->used; break;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH: *(cuuint64_t *)value = pool->used_high; break;
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES: *(int *)value = 1; break;
    default: code = CUDA_ERROR_INVALID_VALUE;
    }
    pthread_mutex_unlock(&driver_lock);
    return code;
}

CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count)
{
    (void)count;
    return pool && map ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult check(const void *result, int device)
{
    if (driver_ready() != CUDA_SUCCESS)
        return driver_ready();
    if (result == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    return device < 0 || device >= driver_devices() ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool_out, CUdevice dev)
{
    CUresult code;
    FAULT();
    code = check(pool_out, dev);
    if (code == CUDA_SUCCESS)
        *pool_out = driver_default_pool(dev);
    return code;
}

CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice dev)
{
    CUresult code;
    FAULT();
    code = check(pool, dev);
    if (code == CUDA_SUCCESS)
        *pool = pool_of(dev);
    return code;
}

CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool)
{
    CUresult code;
    FAULT();
    code = check(pool, dev);
    if (code == CUDA_SUCCESS)
        current[dev] = pool;
    return code;
}

static struct CUmemPoolHandle_st of_host = {.host = 1}, managed[DRIVER_GPUS];

static CUresult check_location(const void *result, const CUmemLocation *location, CUmemAllocationType type)
{
    if (location == NULL || type != CU_MEM_ALLOCATION_TYPE_PINNED || location->type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    return check(result, location->id);
}

/* The pool of another place than the memory of a device, or of managed memory; NULL where there is none. */
static CUmemoryPool pool_elsewhere(const CUmemLocation *location, CUmemAllocationType type)
{
    int device = driver_context() != NULL ? driver_context()->device : 0;
    if (location == NULL || machine()->cuda < 13000 || driver_ready() != CUDA_SUCCESS)
        return NULL;
    if (type == CU_MEM_ALLOCATION_TYPE_PINNED)
        return location->type == CU_MEM_LOCATION_TYPE_HOST ? &of_host : NULL;
    if (type != CU_MEM_ALLOCATION_TYPE_MANAGED || location->type != CU_MEM_LOCATION_TYPE_NONE)
        return NULL;
    managed[device].gpu = driver_gpu(device);
    return &managed[device];
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool_out, CUmemLocation *location, CUmemAllocationType type)
{
    CUmemoryPool elsewhere = pool_elsewhere(location, type);
    CUresult code = elsewhere != NULL ? CUDA_SUCCESS : check_location(pool_out, location, type);
    if (elsewhere != NULL)
        *pool_out = elsewhere;
    return code != CUDA_SUCCESS || elsewhere != NULL ? code : cuDeviceGetDefaultMemPool(pool_out, location->id);
}

CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type)
{
    CUresult code = check_location(pool, location, type);
    return code != CUDA_SUCCESS ? cuMemGetDefaultMemPool(pool, location, type) : cuDeviceGetMemPool(pool, location->id);
}

CUresult cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool)
{
    CUresult code = check_location(pool, location, type);
    return code != CUDA_SUCCESS ? code : cuDeviceSetMemPool(location->id, pool);
}
