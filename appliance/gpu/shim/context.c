/* Start and contexts. A context takes memory of its own, hundreds of MiB on a real GPU; how much is only seen by
 * NVML, before and after one is made. Neighbours may take memory at that moment, too, so the least of the first few
 * differences counts; it is kept in the account for all others. */
#include <pthread.h>

#include "account.h"
#include "compute.h"
#include "device.h"
#include "driver.h"
#include "fork.h"
#include "handles.h"
#include "limits.h"
#include "lock.h"
#include "nvml_usage.h"
#include "packed.h"
#include "pages.h"
#include "pools.h"
#include "record.h"
#include "table.h"

#define LEAST_CONTEXT (UINT64_C(1) << 20)
#define MOST_CONTEXT (UINT64_C(1) << 30)

/* So many creations are measured, and what only one of them has shown refuses nobody. */
enum { MEASURED = 4, SURE = 2 };

static pthread_mutex_t creating = PTHREAD_MUTEX_INITIALIZER;

static void after_fork_in_child(void)
{
    creating = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

AT_FORK(.in_child = after_fork_in_child);

EXPORT CUresult cuInit(unsigned int flags)
{
    psg_look_for_limits();
    CUresult result = REAL(cuInit, flags);
    if (result == CUDA_SUCCESS && psg_depth == 0 && psg_limited() && !psg_registered())
        return CUDA_ERROR_OPERATING_SYSTEM;
    return result;
}

/* Charges --------------------------------------------------------------------------------------------------------- */

struct measure {
    int gpu;
    uint64_t charged;
    uint64_t before;
    uint64_t word;
    bool measured;
};

/* False: the limit forbids a context. */
static bool begin(struct measure *measure, int gpu)
{
    struct psg_total *total = psg_total(gpu);
    uint64_t times = __atomic_load_n(&total->measured, __ATOMIC_ACQUIRE);
    *measure = (struct measure){.gpu = gpu, .charged = __atomic_load_n(&total->context, __ATOMIC_ACQUIRE)};
    if (measure->charged && !psg_take_or_trim(gpu, measure->charged)) {
        if (times >= SURE)
            return false;
        measure->charged = 0;
    }
    measure->word = psg_used(gpu);
    measure->measured = times < MEASURED && psg_nvml_used(gpu, &measure->before);
    return true;
}

/* What the new context takes, or 0 where that is not known; so much is charged then. */
static uint64_t end(const struct measure *measure)
{
    uint64_t after, charged = measure->charged;
    struct psg_total *total = psg_total(measure->gpu);
    if (!measure->measured || !psg_nvml_used(measure->gpu, &after) || after <= measure->before)
        return charged;
    uint64_t grown = after - measure->before;
    /* Where others of the container took memory at the same time, the difference says nothing. */
    if (grown < LEAST_CONTEXT || grown > MOST_CONTEXT || psg_used(measure->gpu) != measure->word)
        return charged;
    if (!charged && !psg_take(measure->gpu, grown))
        grown = 0;
    __atomic_fetch_add(&total->measured, 1, __ATOMIC_ACQ_REL);
    uint64_t known = __atomic_load_n(&total->context, __ATOMIC_ACQUIRE);
    while (grown && (!known || grown < known) &&
           !__atomic_compare_exchange_n(&total->context, &known, grown, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        ;
    if (!charged || grown >= charged)
        return charged ? charged : grown;
    psg_give(measure->gpu, charged - grown);
    return grown;
}

/* Entries that stand aside have their kind as their count. */
static void give_entry(const struct psg_entry *entry)
{
    switch (entry->count) {
    case PSG_POINTER: psg_block_give(entry); break;
    case PSG_AREA: psg_give(entry->gpu, entry->bytes); break;
    default:
        psg_parts_gone(entry->key);
        psg_packed_give(entry->gpu, entry->bytes);
    }
}

/* Memory that a context owns goes with it; physical handles and pools do not. */
static void set_memory_apart(uint64_t context)
{
    psg_table_leave(PSG_POINTER, context);
    psg_table_leave(PSG_ARRAY, context);
    psg_table_leave(PSG_MIPMAP, context);
    psg_table_leave(PSG_AREA, context);
}

static void lose_memory(uint64_t context)
{
    psg_table_sweep(PSG_LEAVING, context, give_entry);
    psg_recordings_gone(context);
}

/* Primary contexts ------------------------------------------------------------------------------------------------ */

static bool active(CUdevice device)
{
    unsigned int flags;
    int is_active = 0;
    return REAL(cuDevicePrimaryCtxGetState, device, &flags, &is_active) == CUDA_SUCCESS && is_active;
}

static CUresult retain(CUcontext *context, CUdevice device, int gpu)
{
    struct measure measure;
    if (active(device))
        return REAL(cuDevicePrimaryCtxRetain, context, device);
    if (!begin(&measure, gpu))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = REAL(cuDevicePrimaryCtxRetain, context, device);
    if (result != CUDA_SUCCESS) {
        psg_give(gpu, measure.charged);
        return result;
    }
    psg_table_put(&(struct psg_entry){.kind = PSG_PRIMARY, .key = (uint64_t)device, .gpu = (int16_t)gpu,
                                      .bytes = end(&measure), .owner = (uint64_t)(uintptr_t)*context});
    return result;
}

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    int gpu = psg_depth == 0 && psg_limited() ? psg_gpu_of_device(device) : -1;
    if (gpu < 0 || !context)
        return REAL(cuDevicePrimaryCtxRetain, context, device);
    if (!psg_registered())
        return CUDA_ERROR_OPERATING_SYSTEM;
    psg_lock(&creating);
    CUresult result = retain(context, device, gpu);
    psg_unlock(&creating);
    return result;
}

static void forget_inactive(CUdevice device)
{
    struct psg_entry entry;
    if (active(device) || !psg_table_take(PSG_PRIMARY, (uint64_t)device, &entry))
        return;
    set_memory_apart(entry.owner);
    lose_memory(entry.owner);
    psg_give(entry.gpu, entry.bytes);
    psg_pools_settle(entry.gpu);
}

#define LEAVES_PRIMARY(symbol)                                       \
    EXPORT CUresult symbol(CUdevice device)                          \
    {                                                                \
        int gpu = psg_depth == 0 && psg_limited() ? psg_gpu_of_device(device) : -1; \
        if (gpu < 0)                                                 \
            return REAL(symbol, device);                             \
        psg_lock(&creating);                               \
        psg_streams_gone();                                       \
        CUresult result = REAL(symbol, device);                      \
        if (result == CUDA_SUCCESS)                                  \
            forget_inactive(device);                                 \
        psg_unlock(&creating);                             \
        return result;                                               \
    }

LEAVES_PRIMARY(cuDevicePrimaryCtxRelease)
LEAVES_PRIMARY(cuDevicePrimaryCtxRelease_v2)
LEAVES_PRIMARY(cuDevicePrimaryCtxReset)
LEAVES_PRIMARY(cuDevicePrimaryCtxReset_v2)

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
    forget_inactive(device);
    return result;
}

EXPORT CUresult cuGreenCtxCreate(CUgreenCtx *green, CUdevResourceDesc part, CUdevice device, unsigned int flags)
{
    int gpu = psg_depth == 0 && psg_limited() ? psg_gpu_of_device(device) : -1;
    if (gpu < 0 || !green)
        return REAL(cuGreenCtxCreate, green, part, device, flags);
    if (!psg_registered())
        return CUDA_ERROR_OPERATING_SYSTEM;
    psg_lock(&creating);
    CUresult result = create_green(green, part, device, flags, gpu);
    psg_unlock(&creating);
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
    psg_lock(&creating);
    psg_streams_gone();
    CUresult result = REAL(cuGreenCtxDestroy, green);
    if (result == CUDA_SUCCESS) {
        psg_table_sweep(PSG_GREEN_NAME, entry.key, forget_name);
        psg_recordings_gone(entry.key);
        psg_count_greens(-1);
        forget_inactive((CUdevice)entry.count);
    } else {
        psg_table_put(&entry);
    }
    psg_unlock(&creating);
    return result;
}

/* Other contexts -------------------------------------------------------------------------------------------------- */

static void keep(const struct measure *measure, CUcontext context)
{
    psg_table_put(&(struct psg_entry){.kind = PSG_CONTEXT, .key = (uint64_t)(uintptr_t)context,
                                      .gpu = (int16_t)measure->gpu, .bytes = end(measure)});
}

#define CREATES(symbol, parameters, ...)                             \
    EXPORT CUresult symbol parameters                                \
    {                                                                \
        int gpu = psg_depth == 0 && psg_limited() ? psg_gpu_of_device(device) : -1; \
        if (gpu < 0)                                                 \
            return REAL(symbol, __VA_ARGS__);                        \
        if (!psg_registered())                                       \
            return CUDA_ERROR_OPERATING_SYSTEM;                      \
        struct measure measure;                                      \
        psg_lock(&creating);                               \
        CUresult result = CUDA_ERROR_OUT_OF_MEMORY;                  \
        if (begin(&measure, gpu)) {                                  \
            result = REAL(symbol, __VA_ARGS__);                      \
            if (result == CUDA_SUCCESS)                              \
                keep(&measure, *context);                            \
            else                                                     \
                psg_give(gpu, measure.charged);                      \
        }                                                            \
        psg_unlock(&creating);                             \
        return result;                                               \
    }

CREATES(cuCtxCreate, (CUcontext *context, unsigned int flags, CUdevice device), context, flags, device)
CREATES(cuCtxCreate_v2, (CUcontext *context, unsigned int flags, CUdevice device), context, flags, device)
CREATES(cuCtxCreate_v3,
        (CUcontext *context, CUexecAffinityParam *affinity, int count, unsigned int flags, CUdevice device),
        context, affinity, count, flags, device)
CREATES(cuCtxCreate_v4, (CUcontext *context, CUctxCreateParams *how, unsigned int flags, CUdevice device),
        context, how, flags, device)

/* The entry leaves the table before the driver destroys, for the same name may be given out again at once; and no stream of
 * the context may be asked about from then on. */
#define DESTROYS(symbol)                                             \
    EXPORT CUresult symbol(CUcontext context)                        \
    {                                                                \
        if (psg_depth > 0 || !psg_limited())                         \
            return REAL(symbol, context);                            \
        struct psg_entry entry;                                      \
        psg_streams_gone();                                       \
        bool known = psg_table_take(PSG_CONTEXT, (uint64_t)(uintptr_t)context, &entry); \
        if (known)                                                   \
            set_memory_apart(entry.key);                             \
        CUresult result = REAL(symbol, context);                     \
        if (known && result == CUDA_SUCCESS) {                       \
            lose_memory(entry.key);                                  \
            psg_give(entry.gpu, entry.bytes);                        \
        } else if (known) {                                          \
            psg_table_stay(entry.key);                               \
            psg_table_put(&entry);                                   \
        }                                                            \
        return result;                                               \
    }

DESTROYS(cuCtxDestroy)
DESTROYS(cuCtxDestroy_v2)
DESTROYS(cuCtxDetach)
