/* The program waits for the GPU, or is done with a stream. */
#include "device.h"
#include "driver.h"
#include "frees.h"
#include "gate.h"
#include "limits.h"
#include "pools.h"
#include "record.h"
#include "stream.h"
#include "table.h"

/* What had been launched before a wait. */
struct wait {
    int gpu; /* -1: nobody is told */
    uint64_t admitted;
};

static struct wait begin_wait(void)
{
    int gpu = psg_gpu_here(NULL);
    return (struct wait){gpu, psg_admitted(gpu)};
}

/* Streams may have freed memory, and pools given it back; those of other GPUs, too, for it may be freed in the order of any
 * stream. */
static void look_at_memory(void)
{
    psg_frees_reap();
    for (int each = 0; each < (int)psg_gpus(); each++)
        psg_pools_look(each);
}

static CUresult end_wait_for_stream(const struct wait *wait, CUresult result, CUstream stream)
{
    if (wait->gpu < 0 || result != CUDA_SUCCESS)
        return result;
    look_at_memory();
    psg_seen_idle(wait->gpu, stream, 0, wait->admitted);
    return result;
}

/* `context` is null where the program waits for the current one. Of others nobody says on which GPU they are: whoever launches
 * there looks by itself. */
static CUresult end_wait_for_context(const struct wait *wait, CUresult result, CUcontext context)
{
    CUcontext current = NULL;
    if (wait->gpu < 0 || result != CUDA_SUCCESS)
        return result;
    look_at_memory();
    REAL(cuCtxGetCurrent, &current);
    if (!context || context == current)
        psg_seen_idle(wait->gpu, NULL, (uint64_t)(uintptr_t)current, wait->admitted);
    return result;
}

EXPORT CUresult cuStreamSynchronize(CUstream stream)
{
    struct wait wait = begin_wait();
    return end_wait_for_stream(&wait, REAL(cuStreamSynchronize, stream), stream);
}

EXPORT CUresult cuStreamSynchronize_ptsz(CUstream stream)
{
    struct wait wait = begin_wait();
    return end_wait_for_stream(&wait, REAL(cuStreamSynchronize_ptsz, stream), stream ? stream : CU_STREAM_PER_THREAD);
}

EXPORT CUresult cuCtxSynchronize(void)
{
    struct wait wait = begin_wait();
    return end_wait_for_context(&wait, REAL(cuCtxSynchronize), NULL);
}

EXPORT CUresult cuCtxSynchronize_v2(CUcontext context)
{
    struct wait wait = begin_wait();
    return end_wait_for_context(&wait, REAL(cuCtxSynchronize_v2, context), context);
}

EXPORT CUresult cuEventSynchronize(CUevent event)
{
    struct wait wait = begin_wait();
    CUresult result = REAL(cuEventSynchronize, event);
    if (wait.gpu < 0 || result != CUDA_SUCCESS)
        return result;
    look_at_memory();
    psg_seen_some(wait.gpu, wait.admitted);
    return result;
}

/* A stream that is about to be destroyed, and its recording. */
struct leaving {
    bool is_recorded;
    struct psg_entry recording;
};

static struct leaving begin_destroy(CUstream stream)
{
    struct leaving leaving = {false};
    if (psg_depth > 0 || !psg_limited() || !stream)
        return leaving;
    psg_stream_gone(psg_gpu_of_stream(stream), stream);
    leaving.is_recorded = psg_recording_take(stream, &leaving.recording);
    return leaving;
}

static CUresult end_destroy(const struct leaving *leaving, CUresult result)
{
    if (leaving->is_recorded && result == CUDA_SUCCESS)
        psg_recording_over(&leaving->recording);
    else if (leaving->is_recorded)
        psg_table_put(&leaving->recording);
    return result;
}

EXPORT CUresult cuStreamDestroy(CUstream stream)
{
    struct leaving leaving = begin_destroy(stream);
    return end_destroy(&leaving, REAL(cuStreamDestroy, stream));
}

EXPORT CUresult cuStreamDestroy_v2(CUstream stream)
{
    struct leaving leaving = begin_destroy(stream);
    return end_destroy(&leaving, REAL(cuStreamDestroy_v2, stream));
}
