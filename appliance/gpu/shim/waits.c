/* The program waits for the GPU, or is done with a stream. */
#include "compute.h"
#include "device.h"
#include "driver.h"
#include "limits.h"
#include "pools.h"
#include "record.h"
#include "stream.h"
#include "table.h"

/* What was launched has just ended, and pools may have given memory back. */
static void waited(int gpu, CUstream stream, bool all, uint64_t admitted)
{
    if (gpu < 0)
        return;
    /* Those of other GPUs, too: memory may be freed in the order of any stream. */
    for (int each = 0; each < (int)psg_gpus(); each++)
        psg_pools_look(each);
    psg_seen_idle(gpu, stream, all, admitted);
}

#define WAITS(symbol, parameters, stream, all, ...)                  \
    EXPORT CUresult symbol parameters                                \
    {                                                                \
        int gpu = psg_gpu_here(NULL);                                \
        uint64_t admitted = psg_admitted(gpu);                       \
        CUresult result = REAL(symbol, __VA_ARGS__);                 \
        if (result == CUDA_SUCCESS)                                  \
            waited(gpu, stream, all, admitted);                      \
        return result;                                               \
    }

WAITS(cuStreamSynchronize, (CUstream stream), stream, false, stream)
WAITS(cuStreamSynchronize_ptsz, (CUstream stream), stream ? stream : CU_STREAM_PER_THREAD, false, stream)
WAITS(cuCtxSynchronize_v2, (CUcontext context), NULL, false, context)

EXPORT CUresult cuCtxSynchronize(void)
{
    int gpu = psg_gpu_here(NULL);
    uint64_t admitted = psg_admitted(gpu);
    CUresult result = REAL(cuCtxSynchronize);
    if (result == CUDA_SUCCESS)
        waited(gpu, NULL, true, admitted);
    return result;
}

EXPORT CUresult cuEventSynchronize(CUevent event)
{
    CUresult result = REAL(cuEventSynchronize, event);
    if (result == CUDA_SUCCESS)
        psg_pools_look(psg_gpu_here(NULL));
    return result;
}

#define DESTROYS(symbol)                                             \
    EXPORT CUresult symbol(CUstream stream)                          \
    {                                                                \
        struct psg_entry recording;                                  \
        if (psg_depth > 0 || !psg_limited() || !stream)              \
            return REAL(symbol, stream);                             \
        psg_stream_gone(psg_gpu_of_stream(stream), stream);          \
        bool known = psg_recording_take(stream, &recording);         \
        CUresult result = REAL(symbol, stream);                      \
        if (known && result == CUDA_SUCCESS)                         \
            psg_recording_over(&recording);                          \
        else if (known)                                              \
            psg_table_put(&recording);                               \
        return result;                                               \
    }

DESTROYS(cuStreamDestroy)
DESTROYS(cuStreamDestroy_v2)
