/* Green contexts of the fake driver: parts of a primary context, which they keep. What part they are is not modelled. */
#include "driver.h"

#include <stdlib.h>

struct CUgreenCtx_st {
    struct CUctx_st as; /* what it is where a context is asked for */
};

CUresult cuGreenCtxCreate(CUgreenCtx *phCtx, CUdevResourceDesc desc, CUdevice dev, unsigned flags)
{
    CUcontext primary;
    CUresult code;
    FAULT();
    (void)desc;
    if (phCtx == NULL || flags != CU_GREEN_CTX_DEFAULT_STREAM)
        return CUDA_ERROR_INVALID_VALUE;
    code = cuDevicePrimaryCtxRetain(&primary, dev);
    if (code != CUDA_SUCCESS)
        return code;
    *phCtx = calloc(1, sizeof **phCtx);
    (*phCtx)->as = *primary;
    (*phCtx)->as.part_of = primary;
    return CUDA_SUCCESS;
}

CUresult cuGreenCtxDestroy(CUgreenCtx hCtx)
{
    FAULT();
    if (hCtx == NULL || !hCtx->as.alive)
        return CUDA_ERROR_INVALID_CONTEXT;
    hCtx->as.alive = 0;
    return cuDevicePrimaryCtxRelease_v2(hCtx->as.device);
}

CUresult cuCtxFromGreenCtx(CUcontext *pContext, CUgreenCtx hCtx)
{
    FAULT();
    if (hCtx == NULL || !hCtx->as.alive)
        return CUDA_ERROR_INVALID_CONTEXT;
    *pContext = &hCtx->as;
    return CUDA_SUCCESS;
}

CUresult cuGreenCtxStreamCreate(CUstream *phStream, CUgreenCtx greenCtx, unsigned flags, int priority)
{
    CUcontext current = driver_context();
    CUresult code;
    FAULT();
    if (greenCtx == NULL || !greenCtx->as.alive || flags != CU_STREAM_NON_BLOCKING)
        return CUDA_ERROR_INVALID_VALUE;
    cuCtxPushCurrent_v2(&greenCtx->as);
    code = cuStreamCreateWithPriority(phStream, flags, priority);
    cuCtxPopCurrent_v2(&current);
    return code;
}

CUresult cuStreamGetGreenCtx(CUstream hStream, CUgreenCtx *phCtx)
{
    struct CUctx_st *context = driver_stream_context(hStream);
    FAULT();
    *phCtx = context != NULL && context->part_of != NULL ? (CUgreenCtx)context : NULL;
    return CUDA_SUCCESS;
}
