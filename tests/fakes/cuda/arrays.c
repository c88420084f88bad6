/* Arrays and mipmaps of the fake driver: each level takes whole tiles, as an H200 has them; what is larger than half a page
 * takes whole pages, and small ones of a GPU lie close together on some. */
#include "driver.h"

#include <stdlib.h>
#include <string.h>

/* A tile of the least size, of 8 rows; larger ones have up to 16 of these above each other, or behind. */
#define TILE_WIDTH 64ULL
#define TILE_HEIGHT 8ULL
#define TILES 16ULL
#define ALIGNMENT 65536ULL

struct CUarray_st {
    CUDA_ARRAY3D_DESCRIPTOR as;
    uint64_t bytes;
    unsigned gpu;
    int level; /* of a mipmap, whose memory it shares */
    struct held *held;
};

struct CUmipmappedArray_st {
    CUDA_ARRAY3D_DESCRIPTOR as;
    uint64_t bytes;
    unsigned gpu, levels;
    struct held *held;
};

/* The memory of an array: its context's, at whose end it goes. */
struct held {
    uint64_t bytes;
    unsigned gpu;
    const struct CUctx_st *context;
    struct held *next;
};

static struct held *all_held;
static uint64_t small[MACHINE_GPUS]; /* bytes of small arrays */

static struct held *hold(uint64_t bytes)
{
    struct held *made;
    const struct CUctx_st *context = driver_context()->part_of ? driver_context()->part_of : driver_context();
    unsigned gpu = context->gpu;
    uint64_t together = bytes <= GRANULARITY / 2 ? bytes : 0;
    uint64_t more = together ? driver_pages(small[gpu] + bytes) - driver_pages(small[gpu]) : driver_pages(bytes);
    if (machine_take(gpu, more) != 0)
        return NULL;
    small[gpu] += together;
    made = calloc(1, sizeof *made);
    *made = (struct held){bytes, gpu, context, all_held};
    return all_held = made;
}

/* What is no longer held went with its context. */
static void let_go(const struct held *held)
{
    for (struct held **each = &all_held; *each != NULL; each = &(*each)->next) {
        struct held *found = *each;
        uint64_t together = found->bytes <= GRANULARITY / 2 ? found->bytes : 0, before = small[found->gpu];
        if (found != held)
            continue;
        small[found->gpu] -= together;
        machine_give(found->gpu, together ? driver_pages(before) - driver_pages(small[found->gpu])
                                          : driver_pages(found->bytes));
        *each = found->next;
        free(found);
        return;
    }
}

void driver_free_arrays(const struct CUctx_st *context)
{
    for (struct held *each = all_held, *next; each != NULL; each = next) {
        next = each->next;
        if (each->context == context)
            let_go(each);
    }
}

static uint64_t element(CUarray_format format)
{
    switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8: return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF: return 2;
    default: return 4;
    }
}

static uint64_t whole(uint64_t number, uint64_t of)
{
    return (number + of - 1) / of * of;
}

/* As many tiles as there have to be, at most so many: a power of two. */
static uint64_t tiles(uint64_t needed, uint64_t most)
{
    uint64_t found = 1;
    while (found < needed && found < most)
        found *= 2;
    return found;
}

static uint64_t level_bytes(const CUDA_ARRAY3D_DESCRIPTOR *as, unsigned level)
{
    uint64_t width = as->Width >> level, height = as->Height >> level, depth = as->Depth >> level, layers = 1, deep;
    if (as->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) {
        layers = as->Depth;
        depth = 1;
    }
    width = (width ? width : 1) * as->NumChannels * element(as->Format);
    height = height ? height : 1;
    depth = depth ? depth : 1;
    deep = tiles(depth, TILES);
    height = whole(height, TILE_HEIGHT * tiles((height + TILE_HEIGHT - 1) / TILE_HEIGHT, TILES / deep));
    return whole(width, TILE_WIDTH) * height * whole(depth, deep) * layers;
}

static int without_memory(const CUDA_ARRAY3D_DESCRIPTOR *as)
{
    return (as->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)) != 0;
}

static int keep(struct held **held, uint64_t bytes)
{
    pthread_mutex_lock(&driver_lock);
    *held = hold(bytes);
    pthread_mutex_unlock(&driver_lock);
    return *held != NULL;
}

static void drop(const void *array, const struct held *held)
{
    pthread_mutex_lock(&driver_lock);
    driver_unmap_array(array);
    let_go(held);
    pthread_mutex_unlock(&driver_lock);
}

static CUresult make_array(CUarray *handle, const CUDA_ARRAY3D_DESCRIPTOR *as)
{
    struct CUarray_st *made;
    CUresult code = driver_current(handle);
    if (code == CUDA_SUCCESS && (as == NULL || as->Width == 0 || as->NumChannels == 0))
        code = CUDA_ERROR_INVALID_VALUE;
    if (code != CUDA_SUCCESS)
        return code;
    made = calloc(1, sizeof *made);
    made->as = *as;
    made->gpu = driver_context()->gpu;
    made->bytes = without_memory(as) ? 0 : level_bytes(as, 0);
    if (!keep(&made->held, made->bytes)) {
        free(made);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *handle = made;
    return CUDA_SUCCESS;
}

CUresult cuArrayCreate_v2(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR *pAllocateArray)
{
    CUDA_ARRAY3D_DESCRIPTOR as = {0};
    FAULT();
    if (pAllocateArray == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    as.Width = pAllocateArray->Width;
    as.Height = pAllocateArray->Height;
    as.Format = pAllocateArray->Format;
    as.NumChannels = pAllocateArray->NumChannels;
    return make_array(pHandle, &as);
}

CUresult cuArray3DCreate_v2(CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pAllocateArray)
{
    FAULT();
    return make_array(pHandle, pAllocateArray);
}

CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *pArrayDescriptor, CUarray hArray)
{
    const CUDA_ARRAY3D_DESCRIPTOR *as = &hArray->as;
    *pArrayDescriptor = (CUDA_ARRAY_DESCRIPTOR){as->Width, as->Height, as->Format, as->NumChannels};
    return CUDA_SUCCESS;
}

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *pArrayDescriptor, CUarray hArray)
{
    *pArrayDescriptor = hArray->as;
    return CUDA_SUCCESS;
}

static CUresult requirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *result, const CUDA_ARRAY3D_DESCRIPTOR *as, unsigned levels)
{
    if (!(as->Flags & CUDA_ARRAY3D_DEFERRED_MAPPING))
        return CUDA_ERROR_INVALID_VALUE; /* as NVIDIA says of arrays that have their memory already */
    memset(result, 0, sizeof *result);
    for (unsigned level = 0; level < levels; level++)
        result->size += level_bytes(as, level);
    result->size = whole(result->size, ALIGNMENT);
    result->alignment = ALIGNMENT;
    return CUDA_SUCCESS;
}

CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *memoryRequirements, CUarray array, CUdevice device)
{
    (void)device;
    return requirements(memoryRequirements, &array->as, 1);
}

CUresult cuArrayDestroy(CUarray hArray)
{
    FAULT();
    if (hArray == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!hArray->level)
        drop(hArray, hArray->held);
    free(hArray);
    return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *as, unsigned numMipmapLevels)
{
    struct CUmipmappedArray_st *made;
    CUresult code;
    FAULT();
    code = driver_current(pHandle);
    if (code == CUDA_SUCCESS && (as == NULL || as->Width == 0 || as->NumChannels == 0))
        code = CUDA_ERROR_INVALID_VALUE;
    if (code != CUDA_SUCCESS)
        return code;
    made = calloc(1, sizeof *made);
    made->as = *as;
    made->gpu = driver_context()->gpu;
    made->levels = numMipmapLevels;
    for (unsigned level = 0; level < numMipmapLevels && !without_memory(as); level++)
        made->bytes += level_bytes(as, level);
    if (!keep(&made->held, made->bytes)) {
        free(made);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *pHandle = made;
    return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayGetLevel(CUarray *pLevelArray, CUmipmappedArray hMipmappedArray, unsigned level)
{
    struct CUarray_st *made;
    if (pLevelArray == NULL || hMipmappedArray == NULL || level >= hMipmappedArray->levels)
        return CUDA_ERROR_INVALID_VALUE;
    made = calloc(1, sizeof *made);
    made->as = hMipmappedArray->as;
    made->gpu = hMipmappedArray->gpu;
    made->level = 1;
    *pLevelArray = made;
    return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayGetMemoryRequirements(
    CUDA_ARRAY_MEMORY_REQUIREMENTS *memoryRequirements, CUmipmappedArray mipmap, CUdevice device)
{
    (void)device;
    return requirements(memoryRequirements, &mipmap->as, mipmap->levels);
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray)
{
    FAULT();
    if (hMipmappedArray == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    drop(hMipmappedArray, hMipmappedArray->held);
    free(hMipmappedArray);
    return CUDA_SUCCESS;
}
