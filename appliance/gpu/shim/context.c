/* Start, and the contexts that a program makes for itself. */
#include "account.h"
#include "context_memory.h"
#include "device.h"
#include "driver.h"
#include "gate.h"
#include "limits.h"
#include "table.h"

EXPORT CUresult cuInit(unsigned int flags)
{
    psg_look_for_limits();
    CUresult result = REAL(cuInit, flags);
    if (result == CUDA_SUCCESS && psg_depth == 0 && psg_limited() && !psg_registered())
        return CUDA_ERROR_OPERATING_SYSTEM;
    return result;
}

static uint64_t name_of(CUcontext context)
{
    return (uint64_t)(uintptr_t)context;
}

/* A context that the driver is about to be asked for. */
struct creation {
    int gpu; /* -1: nothing is charged here */
    struct psg_context_measure measure;
};

/* CUDA_SUCCESS: the driver may be asked, and the lock is held if the GPU is limited. */
static CUresult begin_create(struct creation *creation, CUdevice device)
{
    creation->gpu = psg_depth == 0 && psg_limited() ? psg_gpu_of_device(device) : -1;
    if (creation->gpu < 0)
        return CUDA_SUCCESS;
    if (!psg_registered())
        return CUDA_ERROR_OPERATING_SYSTEM;
    psg_contexts_lock();
    if (psg_context_begin(&creation->measure, creation->gpu))
        return CUDA_SUCCESS;
    psg_contexts_unlock();
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult end_create(const struct creation *creation, CUresult result, const CUcontext *context)
{
    if (creation->gpu < 0)
        return result;
    if (result == CUDA_SUCCESS)
        psg_table_put(&(struct psg_entry){.kind = PSG_CONTEXT, .key = name_of(*context), .gpu = (int16_t)creation->gpu,
                                          .bytes = psg_context_end(&creation->measure)});
    else
        psg_give(creation->gpu, creation->measure.charged);
    psg_contexts_unlock();
    return result;
}

/* Asks the driver by `call` for a context on a device. */
#define CREATED(context, device, call) ({                            \
        struct creation creation;                                    \
        CUresult created = begin_create(&creation, device);          \
        created == CUDA_SUCCESS ? end_create(&creation, call, context) : created; \
    })

EXPORT CUresult cuCtxCreate(CUcontext *context, unsigned int flags, CUdevice device)
{
    return CREATED(context, device, REAL(cuCtxCreate, context, flags, device));
}

EXPORT CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device)
{
    return CREATED(context, device, REAL(cuCtxCreate_v2, context, flags, device));
}

EXPORT CUresult cuCtxCreate_v3(CUcontext *context, CUexecAffinityParam *affinity, int count, unsigned int flags,
                               CUdevice device)
{
    return CREATED(context, device, REAL(cuCtxCreate_v3, context, affinity, count, flags, device));
}

EXPORT CUresult cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *how, unsigned int flags, CUdevice device)
{
    return CREATED(context, device, REAL(cuCtxCreate_v4, context, how, flags, device));
}

EXPORT CUresult cuCtxAttach(CUcontext *context, unsigned int flags)
{
    struct psg_entry entry;
    CUresult result = REAL(cuCtxAttach, context, flags);
    if (result != CUDA_SUCCESS || psg_depth > 0 || !psg_limited())
        return result;
    psg_contexts_lock();
    if (psg_table_get(PSG_CONTEXT, name_of(*context), &entry)) {
        entry.count++;
        psg_table_put(&entry);
    }
    psg_contexts_unlock();
    return result;
}

/* The entry leaves the table before the driver destroys, for the same name may be given out again at once; and no stream of
 * the context may be asked about from then on. */
struct destruction {
    bool known;
    struct psg_entry entry;
};

static struct destruction begin_destroy(CUcontext context)
{
    struct destruction destruction = {.known = false};
    if (psg_depth > 0 || !psg_limited())
        return destruction;
    psg_context_gone(name_of(context));
    destruction.known = psg_table_take(PSG_CONTEXT, name_of(context), &destruction.entry);
    if (destruction.known)
        psg_context_set_apart(destruction.entry.key);
    return destruction;
}

static CUresult end_destroy(const struct destruction *destruction, CUresult result)
{
    const struct psg_entry *entry = &destruction->entry;
    if (destruction->known && result == CUDA_SUCCESS) {
        psg_context_lost(entry->key);
        psg_give(entry->gpu, entry->bytes);
    } else if (destruction->known) {
        psg_table_stay(entry->key);
        psg_table_put(entry);
    }
    return result;
}

EXPORT CUresult cuCtxDestroy(CUcontext context)
{
    struct destruction destruction = begin_destroy(context);
    return end_destroy(&destruction, REAL(cuCtxDestroy, context));
}

EXPORT CUresult cuCtxDestroy_v2(CUcontext context)
{
    struct destruction destruction = begin_destroy(context);
    return end_destroy(&destruction, REAL(cuCtxDestroy_v2, context));
}

/* Whether the program has attached itself to a context, and so detaches itself from it without its end. */
static bool detach_once(CUcontext context, CUresult *result)
{
    struct psg_entry entry;
    psg_contexts_lock();
    bool attached = psg_depth == 0 && psg_limited() && psg_table_get(PSG_CONTEXT, name_of(context), &entry) && entry.count;
    if (attached && (*result = REAL(cuCtxDetach, context)) == CUDA_SUCCESS) {
        entry.count--;
        psg_table_put(&entry);
    }
    psg_contexts_unlock();
    return attached;
}

EXPORT CUresult cuCtxDetach(CUcontext context)
{
    CUresult result;
    if (detach_once(context, &result))
        return result;
    struct destruction destruction = begin_destroy(context);
    return end_destroy(&destruction, REAL(cuCtxDetach, context));
}
