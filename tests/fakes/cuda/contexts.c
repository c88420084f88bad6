/* Contexts of the fake driver: each takes memory of its own on its GPU, as FAKE_GPU_CONTEXT_MIB says. */
#include "driver.h"

#include <stdlib.h>
#include <string.h>

#define DEPTH 64

static struct CUctx_st primaries[DRIVER_GPUS];
static unsigned long long ids;
static _Thread_local struct CUctx_st *stack[DEPTH];
static _Thread_local int depth;

struct CUctx_st *driver_context(void)
{
    return depth > 0 ? stack[depth - 1] : NULL;
}

static CUresult open_context(struct CUctx_st *context, int device)
{
    unsigned gpu = driver_gpu(device);
    if (machine_take(gpu, machine()->context) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    context->gpu = gpu;
    context->device = device;
    context->version = 3020;
    context->alive = 1;
    context->id = ++ids;
    return CUDA_SUCCESS;
}

/* What a context comes with of each area, and takes for a larger one: a stack for every thread that fits on the GPU. */
static const uint64_t firsts[DRIVER_AREAS] = {1024, 1 << 20, 8 << 20};

static uint64_t excess(CUlimit area, uint64_t size)
{
    uint64_t times = area == CU_LIMIT_STACK_SIZE ? machine()->multiprocessors * 2048ULL : 1;
    return size > firsts[area] ? driver_pages(size * times) - driver_pages(firsts[area] * times) : 0;
}

static CUresult set_area(struct CUctx_st *context, CUlimit area, uint64_t size)
{
    uint64_t before = excess(area, context->areas[area]), after = excess(area, size);
    if (after > before && machine_take(context->gpu, after - before) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (after < before)
        machine_give(context->gpu, before - after);
    context->areas[area] = size;
    return CUDA_SUCCESS;
}

static void close_context(struct CUctx_st *context)
{
    for (int area = 0; area < DRIVER_AREAS; area++)
        set_area(context, (CUlimit)area, 0);
    driver_free_context(context);
    driver_free_arrays(context);
    machine_give(context->gpu, machine()->context);
    context->alive = 0;
}

static CUresult check(int device)
{
    if (driver_ready() != CUDA_SUCCESS)
        return driver_ready();
    return device < 0 || device >= driver_devices() ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev)
{
    CUresult code;
    FAULT();
    code = check(dev);
    if (code == CUDA_SUCCESS && pctx == NULL)
        code = CUDA_ERROR_INVALID_VALUE;
    if (code != CUDA_SUCCESS)
        return code;
    pthread_mutex_lock(&driver_lock);
    primaries[dev].primary = 1;
    if (primaries[dev].references == 0)
        code = open_context(&primaries[dev], dev);
    if (code == CUDA_SUCCESS) {
        primaries[dev].references++;
        *pctx = &primaries[dev];
    }
    pthread_mutex_unlock(&driver_lock);
    return code;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
    CUresult code;
    FAULT();
    code = check(dev);
    if (code != CUDA_SUCCESS)
        return code;
    pthread_mutex_lock(&driver_lock);
    if (primaries[dev].references == 0)
        code = CUDA_ERROR_INVALID_CONTEXT;
    else if (--primaries[dev].references == 0)
        close_context(&primaries[dev]);
    pthread_mutex_unlock(&driver_lock);
    return code;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice dev)
{
    return cuDevicePrimaryCtxRelease_v2(dev);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
    CUresult code;
    FAULT();
    code = check(dev);
    if (code != CUDA_SUCCESS)
        return code;
    pthread_mutex_lock(&driver_lock);
    if (primaries[dev].references > 0) {
        close_context(&primaries[dev]);
        primaries[dev].references = 0;
    }
    pthread_mutex_unlock(&driver_lock);
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxReset(CUdevice dev)
{
    return cuDevicePrimaryCtxReset_v2(dev);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned *flags, int *active)
{
    CUresult code;
    FAULT();
    code = check(dev);
    if (code != CUDA_SUCCESS)
        return code;
    *flags = 0;
    *active = primaries[dev].references > 0;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned flags)
{
    (void)flags;
    return check(dev);
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned flags)
{
    return cuDevicePrimaryCtxSetFlags_v2(dev, flags);
}

static CUresult create(CUcontext *pctx, int device)
{
    struct CUctx_st *made;
    CUresult code = check(device);
    if (code == CUDA_SUCCESS && (pctx == NULL || depth == DEPTH))
        code = CUDA_ERROR_INVALID_VALUE;
    if (code != CUDA_SUCCESS)
        return code;
    made = calloc(1, sizeof *made);
    pthread_mutex_lock(&driver_lock);
    code = open_context(made, device);
    pthread_mutex_unlock(&driver_lock);
    if (code != CUDA_SUCCESS) {
        free(made);
        return code;
    }
    made->references = 1;
    stack[depth++] = *pctx = made;
    return CUDA_SUCCESS;
}

CUresult cuCtxCreate_v2(CUcontext *pctx, unsigned flags, CUdevice dev)
{
    FAULT();
    (void)flags;
    return create(pctx, dev);
}

CUresult cuCtxCreate(CUcontext *pctx, unsigned flags, CUdevice dev)
{
    return cuCtxCreate_v2(pctx, flags, dev);
}

CUresult cuCtxCreate_v3(CUcontext *pctx, CUexecAffinityParam *paramsArray, int numParams, unsigned flags, CUdevice dev)
{
    FAULT();
    (void)paramsArray, (void)numParams, (void)flags;
    return create(pctx, dev);
}

CUresult cuCtxCreate_v4(CUcontext *pctx, CUctxCreateParams *ctxCreateParams, unsigned flags, CUdevice dev)
{
    FAULT();
    (void)ctxCreateParams, (void)flags;
    return create(pctx, dev);
}

CUresult cuCtxDestroy_v2(CUcontext ctx)
{
    FAULT();
    if (ctx == NULL || ctx->primary || !ctx->alive)
        return CUDA_ERROR_INVALID_CONTEXT;
    pthread_mutex_lock(&driver_lock);
    close_context(ctx);
    pthread_mutex_unlock(&driver_lock);
    if (driver_context() == ctx)
        depth--;
    return CUDA_SUCCESS; /* kept, as other threads may still name it */
}

CUresult cuCtxDestroy(CUcontext ctx)
{
    return cuCtxDestroy_v2(ctx);
}

/* A context that was attached to goes with the last detachment, and with its destruction at once. */
CUresult cuCtxDetach(CUcontext ctx)
{
    FAULT();
    if (ctx == NULL || ctx->primary || !ctx->alive || ctx != driver_context())
        return CUDA_ERROR_INVALID_CONTEXT;
    pthread_mutex_lock(&driver_lock);
    int left = --ctx->references;
    pthread_mutex_unlock(&driver_lock);
    return left > 0 ? CUDA_SUCCESS : cuCtxDestroy_v2(ctx);
}

CUresult cuCtxAttach(CUcontext *pctx, unsigned flags)
{
    struct CUctx_st *context = driver_context();
    FAULT();
    if (flags != 0 || pctx == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (context == NULL || context->primary)
        return CUDA_ERROR_INVALID_CONTEXT;
    pthread_mutex_lock(&driver_lock);
    context->references++;
    pthread_mutex_unlock(&driver_lock);
    *pctx = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext ctx)
{
    FAULT_OF_THREAD();
    if (driver_ready() != CUDA_SUCCESS)
        return driver_ready();
    if (ctx == NULL) {
        depth = depth > 0 ? depth - 1 : 0;
        return CUDA_SUCCESS;
    }
    if (depth == 0)
        depth = 1;
    stack[depth - 1] = ctx;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *pctx)
{
    FAULT_OF_THREAD();
    if (driver_ready() != CUDA_SUCCESS)
        return driver_ready();
    *pctx = driver_context();
    return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext ctx)
{
    FAULT_OF_THREAD();
    if (ctx == NULL || depth == DEPTH)
        return CUDA_ERROR_INVALID_CONTEXT;
    stack[depth++] = ctx;
    return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent(CUcontext ctx)
{
    return cuCtxPushCurrent_v2(ctx);
}

CUresult cuCtxPopCurrent_v2(CUcontext *pctx)
{
    FAULT_OF_THREAD();
    if (depth == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (pctx != NULL)
        *pctx = stack[depth - 1];
    depth--;
    return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext *pctx)
{
    return cuCtxPopCurrent_v2(pctx);
}

CUresult cuCtxGetDevice(CUdevice *device)
{
    FAULT_OF_THREAD();
    if (driver_ready() != CUDA_SUCCESS)
        return driver_ready();
    if (driver_context() == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    *device = driver_context()->device;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext ctx)
{
    FAULT_OF_THREAD();
    if (ctx == NULL)
        return cuCtxGetDevice(device);
    *device = ctx->device;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetFlags(unsigned *flags)
{
    *flags = 0;
    return driver_context() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuCtxGetId(CUcontext ctx, unsigned long long *ctxId)
{
    struct CUctx_st *asked = ctx ? ctx : driver_context();
    if (asked == NULL || ctxId == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    *ctxId = asked->id;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned *version)
{
    struct CUctx_st *asked = ctx ? ctx : driver_context();
    if (asked == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    *version = asked->version;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
    struct CUctx_st *context = driver_context();
    FAULT();
    if (context == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    return (int)limit < DRIVER_AREAS ? set_area(context->part_of ? context->part_of : context, limit, value) : CUDA_SUCCESS;
}

CUresult cuCtxGetLimit(size_t *pvalue, CUlimit limit)
{
    struct CUctx_st *context = driver_context();
    if (context == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    *pvalue = (int)limit >= DRIVER_AREAS ? 1024 : context->areas[limit] ? context->areas[limit] : firsts[limit];
    return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return driver_context() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}
