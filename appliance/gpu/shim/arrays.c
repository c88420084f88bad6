/* Arrays and mipmaps of the current context. */
#include "device.h"
#include "driver.h"
#include "handles.h"
#include "limits.h"
#include "packed.h"
#include "table.h"

/* Each level of an array takes whole tiles: so many bytes wide and rows high, and up to sixteen of these above each other, or
 * behind each other where it is deep. The driver tells it of arrays whose memory comes later only. */
enum { TILE_WIDTH = 64, TILE_HEIGHT = 8, TILES = 16 };

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

/* UINT64_MAX: more than there is. */
static uint64_t product(uint64_t one, uint64_t other)
{
    uint64_t total;
    return __builtin_mul_overflow(one, other, &total) ? UINT64_MAX : total;
}

static uint64_t whole(uint64_t number, uint64_t of)
{
    return number > UINT64_MAX - of ? UINT64_MAX : (number + of - 1) / of * of;
}

/* A power of two: as many as are needed, or the most. */
static uint64_t tiles(uint64_t needed, uint64_t most)
{
    uint64_t found = 1;
    while (found < needed && found < most)
        found *= 2;
    return found;
}

static uint64_t level_bytes(uint64_t width, uint64_t height, uint64_t depth, uint64_t bits)
{
    uint64_t deep = tiles(depth, TILES), high = tiles(height / TILE_HEIGHT + (height % TILE_HEIGHT != 0), TILES / deep);
    uint64_t row = product(width, bits), rows = whole(height, TILE_HEIGHT * high);
    row = whole(row / 8 + (row % 8 != 0), TILE_WIDTH);
    return product(product(row, rows), whole(depth, deep));
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
        uint64_t planes = layers ? product(depth, level_bytes(width, height, 1, bits))
                                 : level_bytes(width, height, depth, bits);
        if (__builtin_add_overflow(bytes, planes, &bytes))
            return UINT64_MAX;
        width = at_least_one(width / 2);
        height = at_least_one(height / 2);
        depth = layers ? depth : at_least_one(depth / 2);
    }
    return bytes;
}

/* An array that the driver is about to be asked for. */
struct wanted {
    int gpu; /* -1: nothing is charged here */
    uint64_t bytes;
    uint64_t context;
};

/* False: the limit forbids an array of so many levels; without a description the driver says what is wrong. */
static bool want(struct wanted *wanted, const CUDA_ARRAY3D_DESCRIPTOR *how, unsigned levels)
{
    wanted->gpu = how ? psg_gpu_here(&wanted->context) : -1;
    if (wanted->gpu < 0)
        return true;
    wanted->bytes = array_bytes(how, levels);
    return psg_packed_take(wanted->gpu, wanted->bytes);
}

static CUresult keep(const struct wanted *wanted, CUresult result, enum psg_kind kind, const void *array)
{
    if (wanted->gpu >= 0 && result == CUDA_SUCCESS)
        psg_table_put(&(struct psg_entry){.kind = (uint16_t)kind, .key = (uint64_t)(uintptr_t)array,
                                          .gpu = (int16_t)wanted->gpu, .bytes = wanted->bytes,
                                          .owner = wanted->context});
    else if (wanted->gpu >= 0)
        psg_packed_give(wanted->gpu, wanted->bytes);
    return result;
}

/* Asks the driver by `call`, which leaves the name in `*array`. */
#define WANTED(kind, how, levels, call) ({                           \
        struct wanted wanted;                                        \
        CUresult made = CUDA_ERROR_OUT_OF_MEMORY;                    \
        if (want(&wanted, how, levels)) {                            \
            made = call;                                             \
            made = keep(&wanted, made, kind, made == CUDA_SUCCESS ? *array : NULL); \
        }                                                            \
        made;                                                        \
    })

#define FLAT(how) \
    (how ? &(CUDA_ARRAY3D_DESCRIPTOR){.Width = (how)->Width, .Height = (how)->Height, .Format = (how)->Format, \
                                      .NumChannels = (how)->NumChannels} : NULL)
#define DEEP(how) \
    (how ? &(CUDA_ARRAY3D_DESCRIPTOR){.Width = (how)->Width, .Height = (how)->Height, .Depth = (how)->Depth, \
                                      .Format = (how)->Format, .NumChannels = (how)->NumChannels, \
                                      .Flags = (how)->Flags} : NULL)

EXPORT CUresult cuArrayCreate(CUarray *array, const CUDA_ARRAY_DESCRIPTOR_v1 *how)
{
    return WANTED(PSG_ARRAY, FLAT(how), 1, REAL(cuArrayCreate, array, how));
}

EXPORT CUresult cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *how)
{
    return WANTED(PSG_ARRAY, FLAT(how), 1, REAL(cuArrayCreate_v2, array, how));
}

EXPORT CUresult cuArray3DCreate(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR_v1 *how)
{
    return WANTED(PSG_ARRAY, DEEP(how), 1, REAL(cuArray3DCreate, array, how));
}

EXPORT CUresult cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *how)
{
    return WANTED(PSG_ARRAY, how, 1, REAL(cuArray3DCreate_v2, array, how));
}

EXPORT CUresult cuMipmappedArrayCreate(CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *how, unsigned int levels)
{
    return WANTED(PSG_MIPMAP, how, levels, REAL(cuMipmappedArrayCreate, array, how, levels));
}

/* The entry leaves the table before the driver frees, for the same name may be given out again at once. */
static bool begin_destroy(enum psg_kind kind, const void *array, struct psg_entry *entry)
{
    return psg_depth == 0 && psg_limited() && psg_table_take(kind, (uint64_t)(uintptr_t)array, entry);
}

static CUresult end_destroy(bool known, const struct psg_entry *entry, CUresult result)
{
    if (known && result == CUDA_SUCCESS) {
        psg_parts_gone(entry->key);
        psg_packed_give(entry->gpu, entry->bytes);
    } else if (known) {
        psg_table_put(entry);
    }
    return result;
}

EXPORT CUresult cuArrayDestroy(CUarray array)
{
    struct psg_entry entry;
    bool known = begin_destroy(PSG_ARRAY, array, &entry);
    return end_destroy(known, &entry, REAL(cuArrayDestroy, array));
}

EXPORT CUresult cuMipmappedArrayDestroy(CUmipmappedArray array)
{
    struct psg_entry entry;
    bool known = begin_destroy(PSG_MIPMAP, array, &entry);
    return end_destroy(known, &entry, REAL(cuMipmappedArrayDestroy, array));
}
