/* Linear memory of the current context: plain, pitched, managed. It takes whole pages of the GPU, and where a block came to
 * lie is known behind the call only: so whole pages are taken before it, and those that others lie on are given back. */
#include "account.h"
#include "device.h"
#include "driver.h"
#include "limits.h"
#include "pages.h"
#include "pools.h"
#include "table.h"

/* The driver's pitch is a multiple of this on every GPU so far; what it really was counts behind the call. */
#define PITCH 512u

/* What was taken for a block that the driver is about to be asked for. */
struct reservation {
    int gpu; /* -1: nothing is charged here */
    uint64_t bytes;
    uint64_t context;
};

/* False: the limit forbids a block of so many bytes. */
static bool reserve(struct reservation *reservation, uint64_t bytes)
{
    reservation->gpu = psg_gpu_here(&reservation->context);
    if (reservation->gpu < 0)
        return true;
    reservation->bytes = psg_whole_pages(reservation->gpu, bytes);
    return psg_take_or_trim(reservation->gpu, reservation->bytes);
}

/* Brings what was taken to what the block takes; false: the limit forbids that. */
static bool settle(const struct reservation *reservation, uint64_t real)
{
    if (real > reservation->bytes)
        return psg_take_or_trim(reservation->gpu, real - reservation->bytes);
    psg_give(reservation->gpu, reservation->bytes - real);
    return true;
}

/* Charges the block that the driver has given, or nothing where it has given none. */
static CUresult keep(const struct reservation *reservation, CUresult result, uint64_t address, uint64_t bytes)
{
    int gpu = reservation->gpu;
    if (gpu < 0)
        return result;
    if (result != CUDA_SUCCESS) {
        psg_give(gpu, reservation->bytes);
        return result;
    }
    uint64_t real = psg_block_placed(gpu, address, bytes);
    if (!settle(reservation, real)) {
        REAL(cuMemFree_v2, address);
        /* Other blocks may have come to lie on its pages meanwhile, which stay charged. */
        uint64_t stays = smaller(real - psg_block_gone(gpu, address, bytes), reservation->bytes);
        psg_give(gpu, reservation->bytes - stays);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    psg_table_put(&(struct psg_entry){.kind = PSG_POINTER, .key = address, .gpu = (int16_t)gpu, .bytes = bytes,
                                      .owner = reservation->context});
    return CUDA_SUCCESS;
}

/* Asks the driver by `call`, which leaves the address in `*pointer`, for a block of `expected` bytes that then has `real`. */
#define RESERVED(expected, call, real) ({                            \
        struct reservation reservation;                              \
        CUresult reserved = CUDA_ERROR_OUT_OF_MEMORY;                \
        if (reserve(&reservation, expected)) {                       \
            reserved = call;                                         \
            bool made = reserved == CUDA_SUCCESS && reservation.gpu >= 0; \
            reserved = keep(&reservation, reserved, made ? *pointer : 0, made ? (real) : 0); \
        }                                                            \
        reserved;                                                    \
    })

EXPORT CUresult cuMemAlloc(CUdeviceptr_v1 *pointer, unsigned int size)
{
    return RESERVED(size, REAL(cuMemAlloc, pointer, size), size);
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t size)
{
    return RESERVED(size, REAL(cuMemAlloc_v2, pointer, size), size);
}

EXPORT CUresult cuMemAllocManaged(CUdeviceptr *pointer, size_t size, unsigned int flags)
{
    return RESERVED(size, REAL(cuMemAllocManaged, pointer, size, flags), size);
}

/* UINT64_MAX: more than there is. */
static uint64_t pitched(uint64_t width, uint64_t height)
{
    uint64_t row = (width + PITCH - 1) / PITCH * PITCH, bytes;
    return width > UINT64_MAX - PITCH || __builtin_mul_overflow(row, height, &bytes) ? UINT64_MAX : bytes;
}

EXPORT CUresult cuMemAllocPitch(CUdeviceptr_v1 *pointer, unsigned int *pitch, unsigned int width, unsigned int height,
                                unsigned int element)
{
    return RESERVED(pitched(width, height), REAL(cuMemAllocPitch, pointer, pitch, width, height, element),
                    (uint64_t)*pitch * height);
}

EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr *pointer, size_t *pitch, size_t width, size_t height, unsigned int element)
{
    return RESERVED(pitched(width, height), REAL(cuMemAllocPitch_v2, pointer, pitch, width, height, element),
                    (uint64_t)*pitch * height);
}

/* Memory of pools may be freed here as well. The entry leaves the table before the driver frees, for the same address may
 * be given out again at once. */
struct freed {
    bool ours, known;
    struct psg_entry entry;
};

static struct freed begin_free(uint64_t pointer)
{
    struct freed freed = {.ours = psg_depth == 0 && psg_limited()};
    freed.known = freed.ours && (psg_table_take(PSG_POINTER, pointer, &freed.entry) ||
                                 psg_table_take(PSG_POOLED, pointer, &freed.entry));
    return freed;
}

static CUresult end_free(const struct freed *freed, CUresult result)
{
    bool plain = freed->known && freed->entry.kind == PSG_POINTER;
    if (result != CUDA_SUCCESS) {
        if (freed->known)
            psg_table_put(&freed->entry);
        return result;
    }
    if (plain)
        psg_block_give(&freed->entry);
    else if (freed->known)
        psg_pooled_gone(&freed->entry);
    if (freed->ours && !plain)
        psg_pools_settle(freed->known ? freed->entry.gpu : psg_gpu_here(NULL));
    return result;
}

EXPORT CUresult cuMemFree(CUdeviceptr_v1 pointer)
{
    struct freed freed = begin_free(pointer);
    return end_free(&freed, REAL(cuMemFree, pointer));
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr pointer)
{
    struct freed freed = begin_free(pointer);
    return end_free(&freed, REAL(cuMemFree_v2, pointer));
}
