/* Primary contexts, which all of a process keep together, and green ones, which are parts of them. */
#include "account.h"
#include "context_memory.h"
#include "device.h"
#include "driver.h"
#include "gate.h"
#include "limits.h"
#include "pools.h"
#include "record.h"
#include "table.h"

/* The GPU on which a context is about to be made or left; -1: none that is limited. */
static int gpu_to_change(CUdevice device)
{
    return psg_depth == 0 && psg_limited() ? psg_gpu_of_device(device) : -1;
}

static bool active(CUdevice device)
{
    unsigned int flags;
    int is_active = 0;
    return REAL(cuDevicePrimaryCtxGetState, device, &flags, &is_active) == CUDA_SUCCESS && is_active;
}

/* The program keeps the context once more, or once less. */
static void count_keeper(CUdevice device, bool more)
{
    struct psg_entry entry;
    if (!psg_table_get(PSG_PRIMARY, (uint64_t)device, &entry))
        return;
    entry.count = more ? entry.count + 1 : entry.count - (entry.count > 0);
    psg_table_put(&entry);
}

static CUresult retain(CUcontext *context, CUdevice device, int gpu)
{
    struct psg_context_measure measure;
    if (active(device)) {
        CUresult kept = REAL(cuDevicePrimaryCtxRetain, context, device);
        if (kept == CUDA_SUCCESS)
            count_keeper(device, true);
        return kept;
    }
    if (!psg_context_begin(&measure, gpu))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = REAL(cuDevicePrimaryCtxRetain, context, device);
    if (result != CUDA_SUCCESS) {
        psg_give(gpu, measure.charged);
        return result;
    }
    psg_table_put(&(struct psg_entry){.kind = PSG_PRIMARY, .key = (uint64_t)device, .gpu = (int16_t)gpu, .count = 1,
                                      .bytes = psg_context_end(&measure), .owner = (uint64_t)(uintptr_t)*context});
    return result;
}

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    int gpu = gpu_to_change(device);
    if (gpu < 0 || !context)
        return REAL(cuDevicePrimaryCtxRetain, context, device);
    if (!psg_registered())
        return CUDA_ERROR_OPERATING_SYSTEM;
    psg_contexts_lock();
    CUresult result = retain(context, device, gpu);
    psg_contexts_unlock();
    return result;
}

static void forget_inactive(CUdevice device)
{
    struct psg_entry entry;
    if (active(device) || !psg_table_take(PSG_PRIMARY, (uint64_t)device, &entry))
        return;
    psg_context_set_apart(entry.owner);
    psg_context_lost(entry.owner);
    psg_give(entry.gpu, entry.bytes);
    psg_pools_settle(entry.gpu);
}

/* The primary context of a device is about to be left, or reset. Where the program keeps it more than once it stays, and so
 * does what runs in it. Holds the lock if the GPU is limited. */
static int begin_leave(CUdevice device, bool reset)
{
    struct psg_entry entry = {.owner = 0, .count = 0};
    int gpu = gpu_to_change(device);
    if (gpu < 0)
        return gpu;
    psg_contexts_lock();
    psg_table_get(PSG_PRIMARY, (uint64_t)device, &entry);
    if (reset || entry.count < 2)
        psg_context_gone(entry.owner);
    return gpu;
}

static CUresult end_leave(int gpu, CUdevice device, CUresult result)
{
    if (gpu < 0)
        return result;
    if (result == CUDA_SUCCESS) {
        count_keeper(device, false);
        forget_inactive(device);
    }
    psg_contexts_unlock();
    return result;
}

EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    int gpu = begin_leave(device, false);
    return end_leave(gpu, device, REAL(cuDevicePrimaryCtxRelease, device));
}

EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    int gpu = begin_leave(device, false);
    return end_leave(gpu, device, REAL(cuDevicePrimaryCtxRelease_v2, device));
}

EXPORT CUresult cuDevicePrimaryCtxReset(CUdevice device)
{
    int gpu = begin_leave(device, true);
    return end_leave(gpu, device, REAL(cuDevicePrimaryCtxReset, device));
}

EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    int gpu = begin_leave(device, true);
    return end_leave(gpu, device, REAL(cuDevicePrimaryCtxReset_v2, device));
}

/* Green contexts -------------------------------------------------------------------------------------------------- */

/* A green context keeps the primary one of its device, which is made where it was not there. */
static CUresult create_green(CUgreenCtx *green, CUdevResourceDesc part, CUdevice device, unsigned int flags, int gpu)
{
    CUcontext primary;
    CUresult result = retain(&primary, device, gpu);
    if (result != CUDA_SUCCESS)
        return result;
    result = REAL(cuGreenCtxCreate, green, part, device, flags);
    if (result == CUDA_SUCCESS && psg_table_put(&(struct psg_entry){.kind = PSG_GREEN, .gpu = (int16_t)gpu,
                                                                    .key = (uint64_t)(uintptr_t)*green,
                                                                    .owner = (uint64_t)(uintptr_t)primary,
                                                                    .count = (uint32_t)device}))
        psg_count_greens(1);
    REAL(cuDevicePrimaryCtxRelease_v2, device);
    count_keeper(device, false);
    forget_inactive(device);
    return result;
}

EXPORT CUresult cuGreenCtxCreate(CUgreenCtx *green, CUdevResourceDesc part, CUdevice device, unsigned int flags)
{
    int gpu = gpu_to_change(device);
    if (gpu < 0 || !green)
        return REAL(cuGreenCtxCreate, green, part, device, flags);
    if (!psg_registered())
        return CUDA_ERROR_OPERATING_SYSTEM;
    psg_contexts_lock();
    CUresult result = create_green(green, part, device, flags, gpu);
    psg_contexts_unlock();
    return result;
}

EXPORT CUresult cuCtxFromGreenCtx(CUcontext *context, CUgreenCtx green)
{
    struct psg_entry known;
    CUresult result = REAL(cuCtxFromGreenCtx, context, green);
    if (result == CUDA_SUCCESS && psg_depth == 0 && psg_table_get(PSG_GREEN, (uint64_t)(uintptr_t)green, &known))
        psg_table_put(&(struct psg_entry){.kind = PSG_GREEN_NAME, .key = (uint64_t)(uintptr_t)*context,
                                          .gpu = known.gpu, .owner = known.key});
    return result;
}

static void forget_name(const struct psg_entry *entry)
{
    (void)entry;
}

EXPORT CUresult cuGreenCtxDestroy(CUgreenCtx green)
{
    struct psg_entry entry;
    if (psg_depth > 0 || !psg_limited() || !psg_table_take(PSG_GREEN, (uint64_t)(uintptr_t)green, &entry))
        return REAL(cuGreenCtxDestroy, green);
    psg_contexts_lock();
    /* Its streams go by several names. */
    psg_context_gone(0);
    CUresult result = REAL(cuGreenCtxDestroy, green);
    if (result == CUDA_SUCCESS) {
        psg_table_sweep(PSG_GREEN_NAME, entry.key, forget_name);
        psg_recordings_gone(entry.key);
        psg_count_greens(-1);
        forget_inactive((CUdevice)entry.count);
    } else {
        psg_table_put(&entry);
    }
    psg_contexts_unlock();
    return result;
}
