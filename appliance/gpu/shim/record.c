/* Streams that are recorded into graphs.
 *
 * While a program records, the driver forbids it to ask whether streams are done that are recorded, or that such ones wait
 * for by themselves, and a question that comes all the same spoils the recording. So recordings are counted from before their
 * recording until after their end. All else may be asked by a thread that says that it knows what it does. */
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

void psg_asking_begin(CUstreamCaptureMode *mode)
{
    psg_lock(&asking);
    *mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    REAL(cuThreadExchangeStreamCaptureMode, mode);
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

/* Recorded streams wait for the default one. */
bool psg_may_ask(CUstream stream)
{
    return atomic_load(&recordings) == 0 || (stream && stream != CU_STREAM_LEGACY && !capturing(stream));
}

/* Recordings ------------------------------------------------------------------------------------------------------ */

/* The stream that each thread has of its own has one name in all of them. */
static uint64_t key_of(CUstream stream)
{
    return (uint64_t)(uintptr_t)(stream == CU_STREAM_PER_THREAD ? (void *)&psg_depth : (void *)stream);
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

/* A recording that is about to begin, or to end. */
struct recording {
    bool known; /* false: nothing is kept of it */
    struct psg_entry entry;
};

static struct recording begin(CUstream stream)
{
    struct recording recording = {.known = watched()};
    if (!recording.known)
        return recording;
    recording.entry =
        (struct psg_entry){.kind = PSG_RECORDING, .key = key_of(stream), .owner = psg_context_of_stream(stream)};
    psg_lock(&asking);
    atomic_fetch_add(&recordings, 1);
    psg_unlock(&asking);
    return recording;
}

static CUresult begun(const struct recording *recording, CUresult result)
{
    if (recording->known && (result != CUDA_SUCCESS || !psg_table_put(&recording->entry)))
        psg_recording_over(&recording->entry);
    return result;
}

/* Asks the driver by `call` to record a stream. */
#define BEGUN(stream, call) ({                                       \
        struct recording recording = begin(stream);                  \
        begun(&recording, call);                                     \
    })

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

/* What the driver is given for the program's function; null where that is to be given itself. */
static struct asked *ask_instead(struct recording *recording, CUgraphRecaptureCallback differs, void *data)
{
    struct asked *asked = recording->known && differs ? malloc(sizeof *asked) : NULL;
    if (asked)
        *asked = (struct asked){differs, data};
    recording->entry.bytes = (uint64_t)(uintptr_t)asked;
    return asked;
}

/* Asks the driver by one of its functions to record a stream again. */
#define BEGUN_AGAIN(symbol, used_stream) ({                          \
        struct recording recording = begin(used_stream);             \
        struct asked *asked = ask_instead(&recording, differs, data); \
        begun(&recording, asked ? REAL(symbol, stream, mode, graph, ask_program, asked) \
                                : REAL(symbol, stream, mode, graph, differs, data)); \
    })

static struct recording begin_end(CUstream stream)
{
    struct recording ending = {.known = false};
    ending.known = watched() && psg_recording_take(stream, &ending.entry);
    return ending;
}

/* It ends with an error, too, where something in it went wrong; but not where another thread has to end it. */
static CUresult ended(const struct recording *ending, CUresult result, CUstream stream)
{
    if (ending->known && capturing(stream))
        psg_table_put(&ending->entry);
    else if (ending->known)
        psg_recording_over(&ending->entry);
    return result;
}

#define OWN (stream ? stream : CU_STREAM_PER_THREAD)

EXPORT CUresult cuStreamBeginCapture(CUstream stream)
{
    return BEGUN(stream, REAL(cuStreamBeginCapture, stream));
}

EXPORT CUresult cuStreamBeginCapture_ptsz(CUstream stream)
{
    return BEGUN(OWN, REAL(cuStreamBeginCapture_ptsz, stream));
}

EXPORT CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode)
{
    return BEGUN(stream, REAL(cuStreamBeginCapture_v2, stream, mode));
}

EXPORT CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode)
{
    return BEGUN(OWN, REAL(cuStreamBeginCapture_v2_ptsz, stream, mode));
}

EXPORT CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode *after,
                                            const CUgraphEdgeData *edges, size_t count, CUstreamCaptureMode mode)
{
    return BEGUN(stream, REAL(cuStreamBeginCaptureToGraph, stream, graph, after, edges, count, mode));
}

EXPORT CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph, const CUgraphNode *after,
                                                 const CUgraphEdgeData *edges, size_t count, CUstreamCaptureMode mode)
{
    return BEGUN(OWN, REAL(cuStreamBeginCaptureToGraph_ptsz, stream, graph, after, edges, count, mode));
}

EXPORT CUresult cuStreamBeginRecaptureToGraph(CUstream stream, CUstreamCaptureMode mode, CUgraph graph,
                                              CUgraphRecaptureCallback differs, void *data)
{
    return BEGUN_AGAIN(cuStreamBeginRecaptureToGraph, stream);
}

EXPORT CUresult cuStreamBeginRecaptureToGraph_ptsz(CUstream stream, CUstreamCaptureMode mode, CUgraph graph,
                                                   CUgraphRecaptureCallback differs, void *data)
{
    return BEGUN_AGAIN(cuStreamBeginRecaptureToGraph_ptsz, OWN);
}

EXPORT CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    struct recording ending = begin_end(stream);
    return ended(&ending, REAL(cuStreamEndCapture, stream, graph), stream);
}

EXPORT CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph)
{
    struct recording ending = begin_end(OWN);
    return ended(&ending, REAL(cuStreamEndCapture_ptsz, stream, graph), OWN);
}

void psg_recordings_gone(uint64_t context)
{
    psg_table_sweep(PSG_RECORDING, context, psg_recording_over);
}
