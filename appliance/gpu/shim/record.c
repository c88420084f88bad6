/* Streams that are recorded into graphs.
 *
 * While a program records, the driver forbids it to ask whether streams are done, and a question that comes all the same
 * spoils the recording. So recordings are counted from before their beginning until after their end. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "driver.h"
#include "fork.h"
#include "limits.h"
#include "lock.h"
#include "record.h"
#include "stream.h"
#include "table.h"

static pthread_mutex_t asking = PTHREAD_MUTEX_INITIALIZER;
static atomic_int recordings;

static void after_fork_in_child(void)
{
    asking = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    atomic_store(&recordings, 0);
}

AT_FORK(.in_child = after_fork_in_child);

bool psg_asking_begin(CUstreamCaptureMode *mode)
{
    psg_lock(&asking);
    if (atomic_load(&recordings) > 0) {
        psg_unlock(&asking);
        return false;
    }
    *mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    REAL(cuThreadExchangeStreamCaptureMode, mode);
    return true;
}

void psg_asking_end(CUstreamCaptureMode *mode)
{
    REAL(cuThreadExchangeStreamCaptureMode, mode);
    psg_unlock(&asking);
}

static bool capturing(CUstream stream)
{
    CUstreamCaptureStatus status;
    return REAL(cuStreamIsCapturing, stream, &status) == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

bool psg_recorded(CUstream stream)
{
    return atomic_load_explicit(&recordings, memory_order_relaxed) > 0 && capturing(stream);
}

/* Recordings ------------------------------------------------------------------------------------------------------ */

/* The stream that each thread has of its own has one name in all of them. */
static uint64_t key_of(CUstream stream)
{
    return (uint64_t)(uintptr_t)(stream == CU_STREAM_PER_THREAD ? (void *)&psg_depth : (void *)stream);
}

static struct psg_entry begin(CUstream stream)
{
    uint64_t context = psg_context_of_stream(stream);
    psg_lock(&asking);
    atomic_fetch_add(&recordings, 1);
    psg_unlock(&asking);
    return (struct psg_entry){.kind = PSG_RECORDING, .key = key_of(stream), .owner = context};
}

bool psg_recording_take(CUstream stream, struct psg_entry *recording)
{
    return psg_table_take(PSG_RECORDING, key_of(stream), recording);
}

void psg_recording_over(const struct psg_entry *recording)
{
    free((void *)(uintptr_t)recording->bytes);
    atomic_fetch_sub(&recordings, 1);
}

static bool watched(void)
{
    return psg_depth == 0 && psg_limited();
}

#define RECORDS(symbol, used_stream, parameters, ...)                \
    EXPORT CUresult symbol parameters                                \
    {                                                                \
        if (!watched())                                              \
            return REAL(symbol, __VA_ARGS__);                        \
        struct psg_entry recording = begin(used_stream);             \
        CUresult result = REAL(symbol, __VA_ARGS__);                 \
        if (result != CUDA_SUCCESS || !psg_table_put(&recording))    \
            psg_recording_over(&recording);                          \
        return result;                                               \
    }

/* The function of the program that is asked about nodes that differ, until the recording is over. */
struct asked {
    CUgraphRecaptureCallback differs;
    void *data;
};

/* What it asks of the driver is the program's, in the middle of a call as it is. */
static CUresult ask_program(void *argument, CUgraphNode node, const CUgraphNodeParams *before,
                            const CUgraphNodeParams *after, CUgraphRecaptureStatus status)
{
    const struct asked *asked = argument;
    int depth = psg_depth;
    psg_depth = 0;
    CUresult result = asked->differs(asked->data, node, before, after, status);
    psg_depth = depth;
    return result;
}

#define RECORDS_AGAIN(symbol, used_stream)                           \
    EXPORT CUresult symbol(CUstream stream, CUstreamCaptureMode mode, CUgraph graph, \
                           CUgraphRecaptureCallback differs, void *data) \
    {                                                                \
        struct asked *asked = watched() ? malloc(sizeof *asked) : NULL; \
        if (!asked)                                                  \
            return REAL(symbol, stream, mode, graph, differs, data); \
        *asked = (struct asked){differs, data};                      \
        struct psg_entry recording = begin(used_stream);             \
        recording.bytes = (uint64_t)(uintptr_t)asked;                \
        CUresult result = differs ? REAL(symbol, stream, mode, graph, ask_program, asked) \
                                  : REAL(symbol, stream, mode, graph, differs, data); \
        if (result != CUDA_SUCCESS || !psg_table_put(&recording))    \
            psg_recording_over(&recording);                          \
        return result;                                               \
    }

/* A recording ends with an error, too, where something in it went wrong; but not where another thread has to end it. */
#define RECORDED(symbol, used_stream)                                \
    EXPORT CUresult symbol(CUstream stream, CUgraph *graph)          \
    {                                                                \
        struct psg_entry recording;                                  \
        bool known = watched() && psg_recording_take(used_stream, &recording); \
        CUresult result = REAL(symbol, stream, graph);               \
        if (known && capturing(used_stream))                         \
            psg_table_put(&recording);                               \
        else if (known)                                              \
            psg_recording_over(&recording);                          \
        return result;                                               \
    }

#define OWN (stream ? stream : CU_STREAM_PER_THREAD)
#define INTO_GRAPH                                                                                                   \
    (CUstream stream, CUgraph graph, const CUgraphNode *after, const CUgraphEdgeData *edges, size_t count,           \
     CUstreamCaptureMode mode)

RECORDS(cuStreamBeginCapture, stream, (CUstream stream), stream)
RECORDS(cuStreamBeginCapture_ptsz, OWN, (CUstream stream), stream)
RECORDS(cuStreamBeginCapture_v2, stream, (CUstream stream, CUstreamCaptureMode mode), stream, mode)
RECORDS(cuStreamBeginCapture_v2_ptsz, OWN, (CUstream stream, CUstreamCaptureMode mode), stream, mode)
RECORDS(cuStreamBeginCaptureToGraph, stream, INTO_GRAPH, stream, graph, after, edges, count, mode)
RECORDS(cuStreamBeginCaptureToGraph_ptsz, OWN, INTO_GRAPH, stream, graph, after, edges, count, mode)
RECORDS_AGAIN(cuStreamBeginRecaptureToGraph, stream)
RECORDS_AGAIN(cuStreamBeginRecaptureToGraph_ptsz, OWN)
RECORDED(cuStreamEndCapture, stream)
RECORDED(cuStreamEndCapture_ptsz, OWN)

void psg_recordings_gone(uint64_t context)
{
    psg_table_sweep(PSG_RECORDING, context, psg_recording_over);
}
