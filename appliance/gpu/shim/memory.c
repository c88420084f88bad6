/* Memory of the current context: linear, pitched, managed, arrays. */
#include "account.h"
#include "device.h"
#include "driver.h"
#include "limits.h"
#include "pools.h"
#include "table.h"

/* The driver's pitch is a multiple of this on every GPU so far; what it really was is settled after the call. */
#define PITCH 512u

/* Each level of an array takes whole blocks of this size. */
#define BLOCK 512u

static void put(enum psg_kind kind, uint64_t key, int gpu, uint64_t bytes, uint64_t context)
{
    psg_table_put(&(struct psg_entry){.kind = (uint16_t)kind, .key = key, .gpu = (int16_t)gpu, .bytes = bytes, .owner = context});
}

#define ALLOCATES(symbol, parameters, size, ...)                     \
    EXPORT CUresult symbol parameters                                \
    {                                                                \
        uint64_t context;                                            \
        int gpu = psg_gpu_here(&context);                            \
        if (gpu < 0)                                                 \
            return REAL(symbol, __VA_ARGS__);                        \
        if (!psg_take_or_trim(gpu, size))                            \
            return CUDA_ERROR_OUT_OF_MEMORY;                         \
        CUresult result = REAL(symbol, __VA_ARGS__);                 \
        if (result == CUDA_SUCCESS)                                  \
            put(PSG_POINTER, *pointer, gpu, size, context);          \
        else                                                         \
            psg_give(gpu, size);                                     \
        return result;                                               \
    }

ALLOCATES(cuMemAlloc, (CUdeviceptr_v1 *pointer, unsigned int size), size, pointer, size)
ALLOCATES(cuMemAlloc_v2, (CUdeviceptr *pointer, size_t size), size, pointer, size)
ALLOCATES(cuMemAllocManaged, (CUdeviceptr *pointer, size_t size, unsigned int flags), size, pointer, size, flags)

/* Brings a first charge to what the memory really takes; false: the limit forbids that. */
static bool settle(int gpu, uint64_t charged, uint64_t real)
{
    if (real > charged)
        return psg_take_or_trim(gpu, real - charged);
    psg_give(gpu, charged - real);
    return true;
}

#define ALLOCATES_PITCH(symbol, pointer_type, size_type, free_symbol) \
    EXPORT CUresult symbol(pointer_type *pointer, size_type *pitch, size_type width, size_type height, unsigned int element) \
    {                                                                \
        uint64_t context;                                            \
        int gpu = psg_gpu_here(&context);                            \
        if (gpu < 0)                                                 \
            return REAL(symbol, pointer, pitch, width, height, element); \
        uint64_t row = ((uint64_t)width + PITCH - 1) / PITCH * PITCH, charged; \
        if (__builtin_mul_overflow(row, (uint64_t)height, &charged) || !psg_take_or_trim(gpu, charged)) \
            return CUDA_ERROR_OUT_OF_MEMORY;                         \
        CUresult result = REAL(symbol, pointer, pitch, width, height, element); \
        if (result != CUDA_SUCCESS) {                                \
            psg_give(gpu, charged);                                  \
            return result;                                           \
        }                                                            \
        uint64_t real = (uint64_t)*pitch * height;                   \
        if (!settle(gpu, charged, real)) {                           \
            REAL(free_symbol, *pointer);                             \
            psg_give(gpu, charged);                                  \
            return CUDA_ERROR_OUT_OF_MEMORY;                         \
        }                                                            \
        put(PSG_POINTER, *pointer, gpu, real, context);              \
        return CUDA_SUCCESS;                                         \
    }

ALLOCATES_PITCH(cuMemAllocPitch, CUdeviceptr_v1, unsigned int, cuMemFree)
ALLOCATES_PITCH(cuMemAllocPitch_v2, CUdeviceptr, size_t, cuMemFree_v2)

/* The entry leaves the table before the driver frees, for the same address may be given out again at once. */
#define FREES(symbol, type, entry_kind)                              \
    EXPORT CUresult symbol(type thing)                               \
    {                                                                \
        struct psg_entry entry;                                      \
        bool known = psg_depth == 0 && psg_limited() &&              \
                     psg_table_take(entry_kind, (uint64_t)thing, &entry); \
        CUresult result = REAL(symbol, thing);                       \
        if (known && result == CUDA_SUCCESS)                         \
            psg_give(entry.gpu, entry.bytes);                        \
        else if (known)                                              \
            psg_table_put(&entry);                                   \
        return result;                                               \
    }

FREES(cuArrayDestroy, CUarray, PSG_ARRAY)
FREES(cuMipmappedArrayDestroy, CUmipmappedArray, PSG_MIPMAP)

/* Memory of pools may be freed here as well. */
#define FREES_LINEAR(symbol, type)                                   \
    EXPORT CUresult symbol(type pointer)                             \
    {                                                                \
        struct psg_entry entry;                                      \
        bool ours = psg_depth == 0 && psg_limited();                 \
        bool known = ours && (psg_table_take(PSG_POINTER, pointer, &entry) || \
                              psg_table_take(PSG_POOLED, pointer, &entry)); \
        CUresult result = REAL(symbol, pointer);                     \
        if (known && result != CUDA_SUCCESS)                         \
            psg_table_put(&entry);                                   \
        else if (known && entry.kind == PSG_POINTER)                 \
            psg_give(entry.gpu, entry.bytes);                        \
        else if (known)                                              \
            psg_pooled_gone(&entry);                                 \
        if (ours && result == CUDA_SUCCESS && !(known && entry.kind == PSG_POINTER)) \
            psg_pools_settle(known ? entry.gpu : psg_gpu_here(NULL)); \
        return result;                                               \
    }

FREES_LINEAR(cuMemFree, CUdeviceptr_v1)
FREES_LINEAR(cuMemFree_v2, CUdeviceptr)

/* Arrays ---------------------------------------------------------------------------------------------------------- */

/* Bits of one texel, all channels; block formats have 4 or 8 bits for each. */
static uint64_t texel_bits(CUarray_format format, unsigned channels)
{
    unsigned number = (unsigned)format;
    if (number == CU_AD_FORMAT_UNSIGNED_INT8 || number == CU_AD_FORMAT_SIGNED_INT8)
        return 8u * channels;
    if (number == CU_AD_FORMAT_UNSIGNED_INT16 || number == CU_AD_FORMAT_SIGNED_INT16 || number == CU_AD_FORMAT_HALF)
        return 16u * channels;
    if (number == CU_AD_FORMAT_UNSIGNED_INT32 || number == CU_AD_FORMAT_SIGNED_INT32 || number == CU_AD_FORMAT_FLOAT)
        return 32u * channels;
    if (number == 0xb0)
        return 12;
    if (number >= 0xc0 && number <= 0xcb) {
        static const uint64_t normalized[] = {8, 16, 32, 16, 32, 64};
        return normalized[(number - 0xc0) % 6];
    }
    if (number >= 0x91 && number <= 0x9e)
        return number <= 0x92 || number == 0x97 || number == 0x98 ? 4 : 8;
    return 32u * (channels ? channels : 1);
}

static uint64_t at_least_one(uint64_t number)
{
    return number ? number : 1;
}

static uint64_t texels_bytes(uint64_t texels, uint64_t bits)
{
    uint64_t total;
    return __builtin_mul_overflow(texels, bits, &total) ? UINT64_MAX : total / 8 + (total % 8 != 0);
}

static uint64_t whole_blocks(uint64_t bytes)
{
    return bytes > UINT64_MAX - BLOCK ? UINT64_MAX : (bytes + BLOCK - 1) / BLOCK * BLOCK;
}

/* All levels from the first: each has half the width and height, and half the depth where that is no number of layers. */
static uint64_t array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *array, unsigned levels)
{
    if (array->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING))
        return 0;
    bool layers = array->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP);
    uint64_t bits = texel_bits(array->Format, array->NumChannels), bytes = 0;
    uint64_t width = array->Width, height = at_least_one(array->Height), depth = at_least_one(array->Depth);
    for (unsigned level = 0; level < at_least_one(levels) && level < 64; level++) {
        uint64_t texels, plane;
        if (__builtin_mul_overflow(width, height, &plane) || __builtin_mul_overflow(plane, depth, &texels) ||
            __builtin_add_overflow(bytes, whole_blocks(texels_bytes(texels, bits)), &bytes))
            return UINT64_MAX;
        width = at_least_one(width / 2);
        height = at_least_one(height / 2);
        depth = layers ? depth : at_least_one(depth / 2);
    }
    return bytes;
}

#define CREATES(symbol, entry_kind, parameters, size, ...)           \
    EXPORT CUresult symbol parameters                                \
    {                                                                \
        uint64_t context;                                            \
        int gpu = psg_gpu_here(&context);                            \
        if (gpu < 0 || !how)                                         \
            return REAL(symbol, __VA_ARGS__);                        \
        uint64_t bytes = size;                                       \
        if (!psg_take_or_trim(gpu, bytes))                           \
            return CUDA_ERROR_OUT_OF_MEMORY;                         \
        CUresult result = REAL(symbol, __VA_ARGS__);                 \
        if (result == CUDA_SUCCESS)                                  \
            put(entry_kind, (uint64_t)(uintptr_t)*array, gpu, bytes, context); \
        else                                                         \
            psg_give(gpu, bytes);                                    \
        return result;                                               \
    }

#define FLAT(how) \
    &(CUDA_ARRAY3D_DESCRIPTOR){.Width = (how)->Width, .Height = (how)->Height, .Format = (how)->Format, \
                               .NumChannels = (how)->NumChannels}
#define DEEP(how) \
    &(CUDA_ARRAY3D_DESCRIPTOR){.Width = (how)->Width, .Height = (how)->Height, .Depth = (how)->Depth, \
                               .Format = (how)->Format, .NumChannels = (how)->NumChannels, .Flags = (how)->Flags}

CREATES(cuArrayCreate, PSG_ARRAY, (CUarray *array, const CUDA_ARRAY_DESCRIPTOR_v1 *how), array_bytes(FLAT(how), 1), array, how)
CREATES(cuArrayCreate_v2, PSG_ARRAY, (CUarray *array, const CUDA_ARRAY_DESCRIPTOR *how), array_bytes(FLAT(how), 1), array, how)
CREATES(cuArray3DCreate, PSG_ARRAY, (CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR_v1 *how), array_bytes(DEEP(how), 1),
        array, how)
CREATES(cuArray3DCreate_v2, PSG_ARRAY, (CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *how), array_bytes(how, 1), array, how)
CREATES(cuMipmappedArrayCreate, PSG_MIPMAP,
        (CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *how, unsigned int levels), array_bytes(how, levels),
        array, how, levels)
