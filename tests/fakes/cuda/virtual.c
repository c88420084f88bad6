/* Virtual memory management: memory lives as long as its handle is held or mapped anywhere, or a descriptor of it is open
 * in any process, in whatever order they go. Only at the end of the process that made it it goes at once. */
#define _GNU_SOURCE
#include "driver.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPORTS 8

typedef struct memory {
    uint64_t bytes;
    unsigned gpu;
    int references, mappings, charged;
    CUmemAllocationProp as;
    int exports, probes[EXPORTS]; /* each asks for the lock that lives as long as a descriptor of the memory */
    int from;                     /* the descriptor that it was taken from, plus one */
    struct memory *next_waiting;
} memory;

static memory *waiting; /* for the end of their descriptors */

typedef struct mapping {
    CUdeviceptr address;
    uint64_t bytes;
    memory *of;
    struct mapping *next;
} mapping;

typedef struct reservation {
    CUdeviceptr address;
    uint64_t bytes;
    struct reservation *next;
} reservation;

static mapping *mappings;
static reservation *reservations;

static memory *from_handle(CUmemGenericAllocationHandle handle)
{
    return (memory *)(uintptr_t)handle;
}

static int is_exported(memory *of)
{
    for (int each = 0; each < of->exports; each++)
        if (flock(of->probes[each], LOCK_EX | LOCK_NB) == 0) {
            close(of->probes[each]);
            of->probes[each--] = of->probes[--of->exports];
        }
    return of->exports > 0;
}

static void let_go(memory *of)
{
    if (of->references > 0 || of->mappings > 0)
        return;
    if (is_exported(of)) {
        of->next_waiting = waiting;
        waiting = of;
        return;
    }
    if (of->charged)
        machine_give(of->gpu, of->bytes);
    if (of->from)
        close(of->from - 1);
    free(of);
}

void driver_free_exported(void)
{
    memory *each = waiting, *next;
    for (waiting = NULL; each != NULL; each = next) {
        next = each->next_waiting;
        let_go(each);
    }
}

CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags option)
{
    FAULT();
    (void)option;
    if (granularity == NULL || prop == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *granularity = GRANULARITY;
    return CUDA_SUCCESS;
}

CUresult cuMemCreate(
    CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop, unsigned long long flags)
{
    memory *made;
    int on_device;
    FAULT();
    if (driver_ready() != CUDA_SUCCESS)
        return driver_ready();
    if (handle == NULL || prop == NULL || flags != 0 || size == 0 || size % GRANULARITY != 0)
        return CUDA_ERROR_INVALID_VALUE;
    on_device = prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    if (on_device && (prop->location.id < 0 || prop->location.id >= driver_devices()))
        return CUDA_ERROR_INVALID_DEVICE;
    pthread_mutex_lock(&driver_lock);
    driver_free_exported();
    driver_free_reached();
    pthread_mutex_unlock(&driver_lock);
    made = calloc(1, sizeof *made);
    made->bytes = size;
    made->as = *prop;
    made->references = 1;
    made->charged = on_device;
    made->gpu = on_device ? driver_gpu(prop->location.id) : 0;
    if (on_device && machine_take(made->gpu, size) != 0) {
        free(made);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *handle = (CUmemGenericAllocationHandle)(uintptr_t)made;
    return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    memory *of = from_handle(handle);
    FAULT();
    if (of == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&driver_lock);
    of->references--;
    let_go(of);
    pthread_mutex_unlock(&driver_lock);
    return CUDA_SUCCESS;
}

static mapping *mapped_at(CUdeviceptr address)
{
    for (mapping *each = mappings; each != NULL; each = each->next)
        if (address >= each->address && address < each->address + each->bytes)
            return each;
    return NULL;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
    mapping *found;
    FAULT();
    if (handle == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&driver_lock);
    found = mapped_at((CUdeviceptr)(uintptr_t)addr);
    if (found != NULL) {
        found->of->references++;
        *handle = (CUmemGenericAllocationHandle)(uintptr_t)found->of;
    }
    pthread_mutex_unlock(&driver_lock);
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemAddressReserve(
    CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr, unsigned long long flags)
{
    reservation *made;
    FAULT();
    (void)alignment, (void)addr, (void)flags;
    if (driver_ready() != CUDA_SUCCESS)
        return driver_ready();
    if (ptr == NULL || size == 0 || size % GRANULARITY != 0)
        return CUDA_ERROR_INVALID_VALUE;
    made = calloc(1, sizeof *made);
    pthread_mutex_lock(&driver_lock);
    made->address = *ptr = driver_address(size);
    made->bytes = size;
    made->next = reservations;
    reservations = made;
    pthread_mutex_unlock(&driver_lock);
    return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
    CUresult code = CUDA_ERROR_INVALID_VALUE;
    FAULT();
    pthread_mutex_lock(&driver_lock);
    for (reservation **each = &reservations; *each != NULL; each = &(*each)->next)
        if ((*each)->address == ptr && (*each)->bytes == size) {
            reservation *found = *each;
            *each = found->next;
            free(found);
            code = CUDA_SUCCESS;
            break;
        }
    pthread_mutex_unlock(&driver_lock);
    return code;
}

static int reserved(CUdeviceptr address, uint64_t bytes)
{
    for (reservation *each = reservations; each != NULL; each = each->next)
        if (address >= each->address && address + bytes <= each->address + each->bytes)
            return 1;
    return 0;
}

CUresult cuMemMap(
    CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    memory *of = from_handle(handle);
    CUresult code = CUDA_ERROR_INVALID_VALUE;
    FAULT();
    pthread_mutex_lock(&driver_lock);
    if (of != NULL && offset == 0 && flags == 0 && size == of->bytes && reserved(ptr, size) && !mapped_at(ptr)) {
        mapping *made = calloc(1, sizeof *made);
        made->address = ptr;
        made->bytes = size;
        made->of = of;
        made->next = mappings;
        mappings = made;
        of->mappings++;
        code = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&driver_lock);
    return code;
}

/* The range covers whole mappings, one or more, without a gap. */
CUresult cuMemUnmap(CUdeviceptr ptr, size_t size)
{
    uint64_t covered = 0;
    FAULT();
    pthread_mutex_lock(&driver_lock);
    for (mapping *each = mappings; each != NULL; each = each->next)
        if (each->address >= ptr && each->address + each->bytes <= ptr + size)
            covered += each->bytes;
    if (size == 0 || covered != size) {
        pthread_mutex_unlock(&driver_lock);
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (mapping **each = &mappings; *each != NULL;) {
        mapping *found = *each;
        if (found->address < ptr || found->address >= ptr + size) {
            each = &found->next;
            continue;
        }
        *each = found->next;
        found->of->mappings--;
        let_go(found->of);
        free(found);
    }
    pthread_mutex_unlock(&driver_lock);
    return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count)
{
    FAULT();
    (void)size, (void)count;
    return desc != NULL && mapped_at(ptr) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle)
{
    if (prop == NULL || handle == 0)
        return CUDA_ERROR_INVALID_VALUE;
    *prop = from_handle(handle)->as;
    return CUDA_SUCCESS;
}

CUresult cuMemExportToShareableHandle(
    void *shareableHandle, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType handleType, unsigned long long flags)
{
    memory *of = from_handle(handle);
    char path[32];
    int file;
    FAULT();
    if (shareableHandle == NULL || of == NULL || of->exports == EXPORTS || flags != 0 || handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    if (of->from) /* a card with driver 580 lets nobody pass on what was imported */
        return CUDA_ERROR_INVALID_VALUE;
    if (!(of->as.requestedHandleTypes & handleType)) /* it was not made to be exported */
        return CUDA_ERROR_INVALID_VALUE;
    if ((file = memfd_create("device memory", 0)) < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    if (write(file, &of->bytes, sizeof of->bytes) != sizeof of->bytes || write(file, &of->as, sizeof of->as) < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    flock(file, LOCK_EX);
    of->probes[of->exports++] = open(path, O_RDWR | O_CLOEXEC);
    *(int *)shareableHandle = file;
    return CUDA_SUCCESS;
}

/* Another process's memory: its bytes stay charged to who made it. */
CUresult cuMemImportFromShareableHandle(
    CUmemGenericAllocationHandle *handle, void *osHandle, CUmemAllocationHandleType shHandleType)
{
    memory *made;
    int file = (int)(intptr_t)osHandle;
    FAULT();
    if (handle == NULL || shHandleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    made = calloc(1, sizeof *made);
    made->references = 1;
    if (pread(file, &made->bytes, sizeof made->bytes, 0) != sizeof made->bytes
        || pread(file, &made->as, sizeof made->as, sizeof made->bytes) != sizeof made->as) {
        free(made);
        return CUDA_ERROR_INVALID_VALUE;
    }
    made->from = fcntl(file, F_DUPFD_CLOEXEC, 0) + 1; /* as long as it is held here */
    *handle = (CUmemGenericAllocationHandle)(uintptr_t)made;
    return CUDA_SUCCESS;
}

/* A part of a sparse array with memory behind it. */
typedef struct tile {
    CUarrayMapInfo at;
    memory *of;
    struct tile *next;
} tile;

static tile *tiles;

static int is_same_part(const CUarrayMapInfo *one, const CUarrayMapInfo *other)
{
    return one->resource.array == other->resource.array && one->subresourceType == other->subresourceType &&
           memcmp(&one->subresource, &other->subresource, sizeof one->subresource) == 0;
}

/* Unmaps a part, or all of an array where it is NULL. */
static void unmap_tiles(CUarray array, const CUarrayMapInfo *part)
{
    for (tile **each = &tiles; *each != NULL;) {
        tile *found = *each;
        if (found->at.resource.array != array || (part != NULL && !is_same_part(&found->at, part))) {
            each = &found->next;
            continue;
        }
        *each = found->next;
        found->of->mappings--;
        let_go(found->of);
        free(found);
    }
}

void driver_unmap_array(const void *array)
{
    unmap_tiles((CUarray)array, NULL);
}

CUresult cuMemMapArrayAsync(CUarrayMapInfo *mapInfoList, unsigned int count, CUstream hStream)
{
    FAULT();
    (void)hStream;
    pthread_mutex_lock(&driver_lock);
    for (unsigned index = 0; index < count; index++) {
        const CUarrayMapInfo *part = &mapInfoList[index];
        if (part->memOperationType == CU_MEM_OPERATION_TYPE_MAP) {
            tile *made = calloc(1, sizeof *made);
            *made = (tile){*part, from_handle(part->memHandle.memHandle), NULL};
            made->of->mappings++; /* before the one that was there goes */
            unmap_tiles(part->resource.array, part);
            made->next = tiles;
            tiles = made;
        } else {
            unmap_tiles(part->resource.array, part);
        }
    }
    pthread_mutex_unlock(&driver_lock);
    return CUDA_SUCCESS;
}
