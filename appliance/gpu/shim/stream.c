/* Where the work of a stream runs: on the device that it belongs to, whatever context is current. */
#include "device.h"
#include "driver.h"
#include "limits.h"
#include "stream.h"

/* These have no place of their own, but that of the context that is current. */
static bool is_default(CUstream stream)
{
    return !stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

bool psg_enter_context_of_stream(void *stream)
{
    CUcontext context;
    CUgreenCtx green = NULL;
    if (REAL(cuStreamGetCtx, stream, &context) != CUDA_SUCCESS &&
        (REAL(cuStreamGetGreenCtx, stream, &green) != CUDA_SUCCESS || !green ||
         REAL(cuCtxFromGreenCtx, &context, green) != CUDA_SUCCESS))
        return false;
    return REAL(cuCtxPushCurrent_v2, context) == CUDA_SUCCESS;
}

/* Drivers before 12.8 tell the device of a stream by its context only, and that of a green context apart from others. */
static bool device_of_context(CUstream stream, CUdevice *device)
{
    CUcontext context;
    if (!psg_enter_context_of_stream(stream))
        return false;
    CUresult result = REAL(cuCtxGetDevice, device);
    REAL(cuCtxPopCurrent_v2, &context);
    return result == CUDA_SUCCESS;
}

int psg_device_of_stream(void *stream)
{
    CUdevice device;
    if (is_default(stream))
        return REAL(cuCtxGetDevice, &device) == CUDA_SUCCESS ? device : -1;
    return REAL(cuStreamGetDevice, stream, &device) == CUDA_SUCCESS || device_of_context(stream, &device) ? device : -1;
}

int psg_gpu_of_stream(void *stream)
{
    /* Who has one GPU alone computes there, and the context that is current is the cheaper question. */
    int gpu = is_default(stream) || psg_gpus() < 2 ? psg_gpu_here(NULL) : -1;
    if (gpu >= 0 || psg_depth > 0 || !psg_limited() || is_default(stream))
        return gpu;
    return psg_gpu_of_device(psg_device_of_stream(stream));
}

uint64_t psg_context_of_stream(void *stream)
{
    CUcontext context = NULL;
    CUgreenCtx green = NULL;
    if (REAL(cuStreamGetCtx, stream, &context) == CUDA_SUCCESS)
        return (uint64_t)(uintptr_t)context;
    REAL(cuStreamGetGreenCtx, stream, &green);
    return (uint64_t)(uintptr_t)green;
}
