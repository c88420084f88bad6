/* Memory of the fake driver: plain, pitched and managed allocations, host memory, other processes' memory. */
#include "driver.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BUCKETS 4096
#define PITCH 512ULL
#define FIRST_ADDRESS 0x7000000000000ULL

static block *table[BUCKETS];
static CUdeviceptr next_address = FIRST_ADDRESS;

static unsigned bucket(CUdeviceptr address)
{
    return (unsigned)(address / GRANULARITY % BUCKETS);
}

CUdeviceptr driver_address(uint64_t bytes)
{
    CUdeviceptr result = next_address;
    next_address += (bytes + GRANULARITY - 1) / GRANULARITY * GRANULARITY + GRANULARITY;
    return result;
}

block *driver_add(CUdeviceptr address, uint64_t bytes, block_kind kind, unsigned gpu)
{
    block *made = calloc(1, sizeof *made), **head = &table[bucket(address)];
    made->address = address;
    made->bytes = bytes;
    made->kind = kind;
    made->gpu = gpu;
    made->context = driver_context() && driver_context()->part_of ? driver_context()->part_of : driver_context();
    made->next = *head;
    return *head = made;
}

block *driver_remove(CUdeviceptr address)
{
    for (block **each = &table[bucket(address)]; *each != NULL; each = &(*each)->next)
        if ((*each)->address == address) {
            block *found = *each;
            *each = found->next;
            return found;
        }
    return NULL;
}

block *driver_find(CUdeviceptr inside)
{
    for (unsigned index = 0; index < BUCKETS; index++)
        for (block *each = table[index]; each != NULL; each = each->next)
            if (inside >= each->address && inside < each->address + each->bytes)
                return each;
    return NULL;
}

static void give(block *each)
{
    switch (each->kind) {
    case BLOCK_PLAIN:
    case BLOCK_MANAGED: driver_unplace(each->address, each->gpu, each->bytes); break;
    case BLOCK_POOL: driver_pool_give(each->pool, each->bytes); break;
    case BLOCK_GRAPH: driver_graph_give(each->gpu, each->bytes); break;
    case BLOCK_HOST:
    case BLOCK_IMPORT: break;
    }
    free(each);
}

/* What streams free when they get there; it has no address any more. */
static block *late;

void driver_free_reached(void)
{
    for (block **each = &late; *each != NULL;) {
        block *found = *each;
        if (driver_has_ended(found->freed_on, found->freed_at)) {
            *each = found->next;
            give(found);
        } else {
            each = &found->next;
        }
    }
}

static void free_late(block *found, CUstream stream)
{
    found->freed_on = driver_stream_context(stream)->gpu;
    found->freed_at = driver_tail(stream);
    found->next = late;
    late = found;
    driver_free_reached();
}

void driver_free_context(struct CUctx_st *context)
{
    for (block *each = late; each != NULL; each = each->next)
        if (each->context == context)
            each->freed_at = 0;
    driver_free_reached();
    for (unsigned index = 0; index < BUCKETS; index++)
        for (block **each = &table[index]; *each != NULL;) {
            block *found = *each;
            if (found->context == context && (found->kind == BLOCK_PLAIN || found->kind == BLOCK_MANAGED)) {
                *each = found->next;
                give(found);
            } else {
                each = &found->next;
            }
        }
}

CUresult driver_current(const void *result)
{
    if (driver_ready() != CUDA_SUCCESS)
        return driver_ready();
    if (result == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    return driver_context() == NULL ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

static CUresult allocate(CUdeviceptr *address, uint64_t bytes, block_kind kind)
{
    const struct CUctx_st *context;
    CUdeviceptr place;
    CUresult code = driver_current(address);
    if (code == CUDA_SUCCESS && bytes == 0)
        code = CUDA_ERROR_INVALID_VALUE;
    if (code != CUDA_SUCCESS)
        return code;
    context = driver_context()->part_of ? driver_context()->part_of : driver_context();
    pthread_mutex_lock(&driver_lock);
    driver_free_exported();
    driver_free_reached();
    place = driver_place(context, bytes);
    if (place != 0)
        *address = driver_add(place, bytes, kind, context->gpu)->address;
    pthread_mutex_unlock(&driver_lock);
    return place != 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
    FAULT();
    return allocate(dptr, bytesize, BLOCK_PLAIN);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes, size_t Height, unsigned ElementSizeBytes)
{
    FAULT();
    if (pPitch == NULL || (ElementSizeBytes != 4 && ElementSizeBytes != 8 && ElementSizeBytes != 16))
        return CUDA_ERROR_INVALID_VALUE;
    *pPitch = (WidthInBytes + PITCH - 1) / PITCH * PITCH;
    return allocate(dptr, *pPitch * Height, BLOCK_PLAIN);
}

CUresult cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned flags)
{
    FAULT();
    if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST)
        return CUDA_ERROR_INVALID_VALUE;
    return allocate(dptr, bytesize, BLOCK_MANAGED);
}

CUresult cuMemFree_v2(CUdeviceptr dptr)
{
    block *found;
    FAULT();
    if (driver_ready() != CUDA_SUCCESS)
        return driver_ready();
    if (dptr == 0)
        return CUDA_SUCCESS;
    pthread_mutex_lock(&driver_lock);
    found = driver_remove(dptr);
    if (found != NULL)
        give(found);
    pthread_mutex_unlock(&driver_lock);
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream)
{
    block *found;
    FAULT();
    if (driver_ready() != CUDA_SUCCESS)
        return driver_ready();
    if (driver_stream_context(hStream) == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (driver_capturing(hStream))
        return driver_capture_free(hStream, dptr);
    pthread_mutex_lock(&driver_lock);
    found = driver_remove(dptr);
    if (found != NULL && (found->kind == BLOCK_PLAIN || found->kind == BLOCK_MANAGED))
        free_late(found, hStream);
    else if (found != NULL && found->kind == BLOCK_POOL) {
        driver_pool_give_in_order(found->pool, found->bytes, hStream);
        free(found);
    } else if (found != NULL)
        give(found);
    pthread_mutex_unlock(&driver_lock);
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr)
{
    block *found;
    FAULT();
    pthread_mutex_lock(&driver_lock);
    found = driver_find(dptr);
    if (found != NULL && pbase != NULL)
        *pbase = found->address;
    if (found != NULL && psize != NULL)
        *psize = found->bytes;
    pthread_mutex_unlock(&driver_lock);
    return found ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
    CUresult code;
    FAULT();
    code = driver_current(free_bytes);
    if (code == CUDA_SUCCESS && total == NULL)
        code = CUDA_ERROR_INVALID_VALUE;
    if (code != CUDA_SUCCESS)
        return code;
    pthread_mutex_lock(&driver_lock);
    driver_free_exported();
    driver_free_reached();
    pthread_mutex_unlock(&driver_lock);
    *total = machine_capacity(driver_context()->gpu);
    *free_bytes = machine_left(driver_context()->gpu);
    return CUDA_SUCCESS;
}

/* the 32-bit form of CUDA 2 */
CUresult cuMemGetInfo(unsigned *free_bytes, unsigned *total)
{
    size_t wide_free, wide_total;
    CUresult code = cuMemGetInfo_v2(&wide_free, &wide_total);
    if (code != CUDA_SUCCESS)
        return code;
    *free_bytes = wide_free > UINT32_MAX ? UINT32_MAX : (unsigned)wide_free;
    *total = wide_total > UINT32_MAX ? UINT32_MAX : (unsigned)wide_total;
    return CUDA_SUCCESS;
}

CUresult cuMemHostAlloc(void **pp, size_t bytesize, unsigned Flags)
{
    CUresult code = driver_current(pp);
    (void)Flags;
    if (code == CUDA_SUCCESS && (*pp = malloc(bytesize)) == NULL)
        code = CUDA_ERROR_OUT_OF_MEMORY;
    return code;
}

CUresult cuMemAllocHost_v2(void **pp, size_t bytesize)
{
    return cuMemHostAlloc(pp, bytesize, 0);
}

CUresult cuMemFreeHost(void *p)
{
    free(p);
    return CUDA_SUCCESS;
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr)
{
    block *found;
    pthread_mutex_lock(&driver_lock);
    found = driver_find(dptr);
    memset(pHandle, 0, sizeof *pHandle);
    if (found != NULL)
        memcpy(pHandle->reserved, &found->bytes, sizeof found->bytes);
    pthread_mutex_unlock(&driver_lock);
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned Flags)
{
    uint64_t bytes;
    CUresult code = driver_current(pdptr);
    (void)Flags;
    if (code != CUDA_SUCCESS)
        return code;
    memcpy(&bytes, handle.reserved, sizeof bytes);
    pthread_mutex_lock(&driver_lock);
    *pdptr = driver_add(driver_address(bytes), bytes, BLOCK_IMPORT, driver_context()->gpu)->address;
    pthread_mutex_unlock(&driver_lock);
    return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned Flags)
{
    return cuIpcOpenMemHandle_v2(pdptr, handle, Flags);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr dptr)
{
    return cuMemFree_v2(dptr);
}
