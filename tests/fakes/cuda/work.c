/* Work of the fake driver: its queues, streams and events. A GPU gives its processes time slices. */
#define _GNU_SOURCE
#include "driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define SECOND 1000000000ULL

struct CUctx_st *driver_stream_context(CUstream stream)
{
    if (stream == NULL || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD)
        return driver_context();
    return stream->context;
}

/* The stream that a thread has of its own, in the context in which it last used it. */
static __thread struct {
    struct CUctx_st *context;
    uint64_t tail;
} own_stream;

static uint64_t *tail_of(CUstream stream)
{
    if (stream == CU_STREAM_PER_THREAD) {
        if (own_stream.context != driver_context()) {
            own_stream.context = driver_context();
            own_stream.tail = 0;
        }
        return &own_stream.tail;
    }
    if (stream == NULL || stream == CU_STREAM_LEGACY)
        return &driver_context()->tail;
    return &stream->tail;
}

static int named(CUstream stream)
{
    return stream != NULL && stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD;
}

int driver_capturing(CUstream stream)
{
    return named(stream) && stream->capture != NULL;
}

uint64_t driver_tail(CUstream stream)
{
    return *tail_of(stream);
}

int driver_has_ended(unsigned gpu, uint64_t moment)
{
    return machine_now() >= machine_ends(gpu, moment);
}

/* Events that were recorded and have not come yet; when each of them comes is kept, for a GPU soon forgets. */
static CUevent coming;

/* The caller has the lock. */
static void keep_times(void)
{
    for (CUevent *each = &coming; *each != NULL;) {
        CUevent event = *each;
        if (!driver_has_ended(event->gpu, event->done)) {
            each = &event->next;
            continue;
        }
        event->done = machine_ends(event->gpu, event->done);
        *each = event->next;
    }
}

static void forget_event(CUevent event)
{
    for (CUevent *each = &coming; *each != NULL; each = &(*each)->next)
        if (*each == event) {
            *each = event->next;
            return;
        }
}

/* What the program is told of the end of some work, which has freed then what it was to free. */
static int is_done(unsigned gpu, uint64_t moment)
{
    int done = driver_has_ended(gpu, moment);
    pthread_mutex_lock(&driver_lock);
    driver_free_reached();
    keep_times();
    pthread_mutex_unlock(&driver_lock);
    return done;
}

void driver_wait(unsigned gpu, uint64_t moment)
{
    uint64_t until;
    while (machine_now() < (until = machine_ends(gpu, moment))) {
        struct timespec at = {(time_t)(until / SECOND), (long)(until % SECOND)};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
    }
}

/* A launch waits where so many are queued already, however long each of them takes. */
static void wait_for_place(struct CUctx_st *context)
{
    pthread_mutex_lock(&driver_lock);
    uint64_t last = context->ends[context->launches % QUEUE];
    pthread_mutex_unlock(&driver_lock);
    driver_wait(context->gpu, last);
}

/* Whether a kernel of another stream of the context is still to end. */
static int is_beside(const struct CUctx_st *context, uint64_t own)
{
    return context->tail > own && !driver_has_ended(context->gpu, context->tail);
}

CUresult driver_queue(CUstream stream, uint64_t duration)
{
    struct CUctx_st *context = driver_stream_context(stream);
    uint64_t *tail, end;
    if (driver_ready() != CUDA_SUCCESS)
        return driver_ready();
    if (context == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (driver_capturing(stream))
        return driver_capture_kernel(stream, duration);
    if (duration == 0)
        return CUDA_SUCCESS;
    wait_for_place(context);
    pthread_mutex_lock(&driver_lock);
    tail = tail_of(stream);
    if (is_beside(context, *tail))
        duration *= (uint64_t)machine()->streams_cost;
    end = machine_run(context->gpu, duration);
    *tail = end;
    if (context->tail < end)
        context->tail = end;
    context->ends[context->launches++ % QUEUE] = end;
    pthread_mutex_unlock(&driver_lock);
    driver_in_flight(end);
    return CUDA_SUCCESS;
}

static CUresult synchronise(unsigned gpu, uint64_t until)
{
    driver_wait(gpu, until);
    pthread_mutex_lock(&driver_lock);
    driver_free_reached();
    driver_pools_settle();
    pthread_mutex_unlock(&driver_lock);
    return (CUresult)driver_server_gone();
}

CUresult cuCtxSynchronize(void)
{
    FAULT();
    if (driver_ready() != CUDA_SUCCESS)
        return driver_ready();
    return driver_context() ? synchronise(driver_context()->gpu, driver_context()->tail) : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuCtxSynchronize_v2(CUcontext ctx)
{
    return ctx == NULL ? cuCtxSynchronize() : synchronise(ctx->gpu, ctx->tail);
}

CUresult cuStreamCreateWithPriority(CUstream *phStream, unsigned flags, int priority)
{
    struct CUstream_st *made;
    FAULT();
    if (driver_ready() != CUDA_SUCCESS)
        return driver_ready();
    if (phStream == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (driver_context() == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    made = calloc(1, sizeof *made);
    made->context = driver_context();
    made->flags = flags;
    made->priority = priority;
    *phStream = made;
    return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *phStream, unsigned Flags)
{
    return cuStreamCreateWithPriority(phStream, Flags, 0);
}

CUresult cuStreamDestroy_v2(CUstream hStream)
{
    FAULT();
    if (!named(hStream))
        return CUDA_ERROR_INVALID_HANDLE;
    driver_end_capture(hStream);
    free(hStream); /* its work goes on: the context's tail knows it */
    return CUDA_SUCCESS;
}

CUresult cuStreamDestroy(CUstream hStream)
{
    return cuStreamDestroy_v2(hStream);
}

static CUresult check(CUstream stream)
{
    if (driver_ready() != CUDA_SUCCESS)
        return driver_ready();
    return driver_stream_context(stream) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuStreamSynchronize(CUstream hStream)
{
    CUresult code;
    FAULT();
    code = check(hStream);
    if (code == CUDA_SUCCESS && driver_capturing(hStream))
        code = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    return code != CUDA_SUCCESS ? code : synchronise(driver_stream_context(hStream)->gpu, *tail_of(hStream));
}

CUresult cuStreamQuery(CUstream hStream)
{
    CUresult code;
    FAULT();
    code = check(hStream);
    if (code == CUDA_SUCCESS)
        code = driver_join_default(hStream);
    if (code == CUDA_SUCCESS && driver_capturing(hStream))
        code = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (code == CUDA_SUCCESS && !is_done(driver_stream_context(hStream)->gpu, *tail_of(hStream)))
        code = CUDA_ERROR_NOT_READY;
    return code;
}

CUresult cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned Flags)
{
    uint64_t *tail;
    CUresult code;
    FAULT();
    (void)Flags;
    code = check(hStream);
    if (code != CUDA_SUCCESS)
        return code;
    tail = tail_of(hStream);
    if (hEvent->done > *tail)
        *tail = hEvent->done;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx(CUstream hStream, CUcontext *pctx)
{
    *pctx = driver_stream_context(hStream);
    /* newer functions tell of these */
    return named(hStream) && (*pctx)->part_of != NULL ? CUDA_ERROR_NOT_SUPPORTED : check(hStream);
}

CUresult cuStreamGetDevice(CUstream hStream, CUdevice *device)
{
    CUresult code;
    FAULT();
    code = check(hStream);
    if (code == CUDA_SUCCESS && named(hStream) && hStream->capture != NULL) {
        hStream->spoiled = 1; /* a question that a captured stream does not stand */
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    if (code == CUDA_SUCCESS)
        *device = driver_stream_context(hStream)->device;
    return code;
}

CUresult cuStreamGetFlags(CUstream hStream, unsigned *flags)
{
    *flags = named(hStream) ? hStream->flags : 0;
    return check(hStream);
}

CUresult cuStreamGetPriority(CUstream hStream, int *priority)
{
    *priority = named(hStream) ? hStream->priority : 0;
    return check(hStream);
}

CUresult cuStreamGetId(CUstream hStream, unsigned long long *streamId)
{
    *streamId = (unsigned long long)(uintptr_t)hStream;
    return check(hStream);
}

CUresult cuEventCreate(CUevent *phEvent, unsigned Flags)
{
    FAULT();
    (void)Flags;
    if (phEvent == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *phEvent = calloc(1, sizeof **phEvent);
    return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent hEvent, CUstream hStream)
{
    CUresult code;
    FAULT();
    code = check(hStream);
    if (code != CUDA_SUCCESS || driver_capturing(hStream))
        return code;
    pthread_mutex_lock(&driver_lock);
    forget_event(hEvent);
    hEvent->gpu = driver_stream_context(hStream)->gpu;
    hEvent->done = *tail_of(hStream);
    hEvent->recorded = 1;
    if (driver_has_ended(hEvent->gpu, hEvent->done)) {
        hEvent->done = machine_now();
    } else {
        hEvent->next = coming;
        coming = hEvent;
    }
    pthread_mutex_unlock(&driver_lock);
    return CUDA_SUCCESS;
}

CUresult cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned flags)
{
    (void)flags;
    return cuEventRecord(hEvent, hStream);
}

CUresult cuEventQuery(CUevent hEvent)
{
    FAULT();
    return hEvent->recorded && !is_done(hEvent->gpu, hEvent->done) ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

CUresult cuEventSynchronize(CUevent hEvent)
{
    FAULT();
    return hEvent->recorded ? synchronise(hEvent->gpu, hEvent->done) : CUDA_SUCCESS;
}

CUresult cuEventElapsedTime_v2(float *pMilliseconds, CUevent hStart, CUevent hEnd)
{
    FAULT();
    if (!hStart->recorded || !hEnd->recorded)
        return CUDA_ERROR_INVALID_HANDLE;
    *pMilliseconds = (float)((double)machine_ends(hEnd->gpu, hEnd->done) - (double)machine_ends(hStart->gpu, hStart->done)) / 1e6F;
    return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime(float *pMilliseconds, CUevent hStart, CUevent hEnd)
{
    return cuEventElapsedTime_v2(pMilliseconds, hStart, hEnd);
}

CUresult cuEventDestroy_v2(CUevent hEvent)
{
    FAULT();
    pthread_mutex_lock(&driver_lock);
    forget_event(hEvent);
    pthread_mutex_unlock(&driver_lock);
    free(hEvent);
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent hEvent)
{
    return cuEventDestroy_v2(hEvent);
}
