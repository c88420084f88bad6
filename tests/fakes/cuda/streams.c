/* What the client does with streams, and with threads that do the same thing at the same time. */
#include "client.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

#define MOST_THREADS 16

static CUstream streams[STREAMS];
static CUgreenCtx greens[STREAMS];
static int made;

CUstream stream_named(unsigned long long name)
{
    return streams[name];
}

CUstream next_stream(void)
{
    static int next;
    return made ? streams[next++ % made] : NULL;
}

CUresult synchronise_streams(void)
{
    CUresult code = CUDA_SUCCESS;
    for (int each = 0; each < made && code == CUDA_SUCCESS; each++)
        code = p_cuStreamSynchronize(streams[each]);
    return code;
}

struct allocation {
    pthread_barrier_t *start;
    CUcontext context;
    size_t bytes;
    CUresult code;
};

static void *allocate(void *argument)
{
    struct allocation *mine = argument;
    CUdeviceptr pointer;
    p_cuCtxSetCurrent(mine->context);
    pthread_barrier_wait(mine->start);
    mine->code = p_cuMemAllocAsync(&pointer, mine->bytes, NULL);
    return NULL;
}

static CUresult allocate_together(unsigned long long count, size_t bytes)
{
    pthread_t threads[MOST_THREADS];
    struct allocation allocations[MOST_THREADS];
    pthread_barrier_t start;
    CUcontext context;
    CUresult code = p_cuCtxGetCurrent(&context);
    pthread_barrier_init(&start, NULL, (unsigned)count);
    for (unsigned each = 0; each < count; each++) {
        allocations[each] = (struct allocation){&start, context, bytes, CUDA_SUCCESS};
        pthread_create(&threads[each], NULL, allocate, &allocations[each]);
    }
    for (unsigned each = 0; each < count; each++) {
        pthread_join(threads[each], NULL);
        if (allocations[each].code != CUDA_SUCCESS)
            code = allocations[each].code;
    }
    return code;
}

struct work {
    CUcontext context;
    CUfunction function;
    CUresult code;
};

static void *launch_twice(void *argument)
{
    struct work *mine = argument;
    p_cuCtxSetCurrent(mine->context);
    for (int each = 0; each < 2 && mine->code == CUDA_SUCCESS; each++)
        mine->code = p_cuLaunchKernel(mine->function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    return NULL;
}

/* Records a stream while another thread launches on the default one, and waits there for its turn. */
static CUresult record_beside(CUstream stream, CUgraph *graph)
{
    const struct timespec moment = {0, 50 * 1000 * 1000};
    struct work work = {0};
    CUmodule module;
    pthread_t thread;
    p_cuCtxGetCurrent(&work.context);
    p_cuModuleLoadData(&module, "");
    p_cuModuleGetFunction(&work.function, module, "busy_200ms");
    pthread_create(&thread, NULL, launch_twice, &work);
    nanosleep(&moment, NULL);
    CUresult code = p_cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    pthread_join(thread, NULL);
    if (code == CUDA_SUCCESS)
        code = p_cuStreamEndCapture(stream, graph);
    return code != CUDA_SUCCESS ? code : work.code;
}

static void *work_for_ever(void *argument)
{
    const CUmemAllocationProp as = {CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}}};
    struct work *mine = argument;
    CUmemGenericAllocationHandle handle;
    CUdeviceptr place;
    p_cuCtxSetCurrent(mine->context);
    for (;;) {
        if (p_cuMemCreate(&handle, 2 << 20, &as, 0) == CUDA_SUCCESS)
            p_cuMemRelease(handle);
        if (p_cuMemAllocAsync(&place, 1000, NULL) == CUDA_SUCCESS)
            p_cuMemFreeAsync(place, NULL);
        p_cuLaunchKernel(mine->function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
        p_cuCtxSynchronize();
    }
    return NULL;
}

/* Cancels threads at work, one after the other; whatever they held must not hold up those that follow. */
static CUresult cancel_threads(number count)
{
    struct work work = {0};
    CUmodule module;
    pthread_t thread;
    p_cuCtxGetCurrent(&work.context);
    p_cuModuleLoadData(&module, "");
    p_cuModuleGetFunction(&work.function, module, "busy_10us");
    for (number each = 0; each < count; each++) {
        const struct timespec moment = {0, 1000 * (long)(each % 2000)};
        pthread_create(&thread, NULL, work_for_ever, &work);
        nanosleep(&moment, NULL);
        pthread_cancel(thread);
        pthread_join(thread, NULL);
    }
    return CUDA_SUCCESS;
}

static CUresult launch_on_own(CUfunction function)
{
    return p_cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, CU_STREAM_PER_THREAD, NULL, NULL);
}

static void *launch_on_own_and_stay(void *argument)
{
    struct work *mine = argument;
    p_cuCtxSetCurrent(mine->context);
    mine->code = launch_on_own(mine->function);
    return NULL;
}

/* Launches on the stream of another thread, then on our own; tells how many ms that second launch took. */
static CUresult launch_on_streams_of_threads(void)
{
    struct work work = {0};
    CUmodule module;
    pthread_t thread;
    p_cuCtxGetCurrent(&work.context);
    p_cuModuleLoadData(&module, "");
    p_cuModuleGetFunction(&work.function, module, "busy_200ms");
    /* once, for its length to be known */
    CUresult code = launch_on_own(work.function);
    if (code == CUDA_SUCCESS)
        code = p_cuCtxSynchronize();
    pthread_create(&thread, NULL, launch_on_own_and_stay, &work);
    pthread_join(thread, NULL);
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    if (code == CUDA_SUCCESS)
        code = launch_on_own(work.function);
    clock_gettime(CLOCK_MONOTONIC, &end);
    tell((number)((end.tv_sec - begin.tv_sec) * 1000 + (end.tv_nsec - begin.tv_nsec) / 1000000));
    return code != CUDA_SUCCESS ? code : work.code;
}

CUresult stream_command(const char *word, const unsigned long long *n)
{
    if (same(word, "stream")) {
        made = (int)n[0] >= made ? (int)n[0] + 1 : made;
        return p_cuStreamCreate(&streams[n[0]], 0);
    }
    if (same(word, "streamaside")) /* which nothing is launched on in turn */
        return p_cuStreamCreate(&streams[n[0]], CU_STREAM_NON_BLOCKING);
    if (same(word, "green"))
        return p_cuGreenCtxCreate(&greens[n[0]], NULL, (int)n[1], CU_GREEN_CTX_DEFAULT_STREAM);
    if (same(word, "greenfree"))
        return p_cuGreenCtxDestroy(greens[n[0]]);
    if (same(word, "greencurrent")) {
        CUcontext context;
        CUresult code = p_cuCtxFromGreenCtx(&context, greens[n[0]]);
        return code != CUDA_SUCCESS ? code : p_cuCtxSetCurrent(context);
    }
    if (same(word, "greenstream"))
        return p_cuGreenCtxStreamCreate(&streams[n[0]], greens[n[1]], CU_STREAM_NON_BLOCKING, 0);
    if (same(word, "streamfree"))
        return p_cuStreamDestroy(streams[n[0]]);
    if (same(word, "syncstream"))
        return p_cuStreamSynchronize(streams[n[0]]);
    if (same(word, "capture"))
        return p_cuStreamBeginCapture(streams[n[0]], CU_STREAM_CAPTURE_MODE_RELAXED);
    if (same(word, "ownstreams"))
        return launch_on_streams_of_threads();
    if (same(word, "recordbeside")) {
        CUgraph graph;
        return record_beside(streams[n[0]], &graph);
    }
    if (same(word, "cancel"))
        return cancel_threads(n[0]);
    if (same(word, "asynctogether"))
        return allocate_together(n[0], n[1]);
    return CUDA_ERROR_UNKNOWN;
}
