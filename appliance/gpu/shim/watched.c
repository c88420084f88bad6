/* The streams on which something is pending. */
#include "driver.h"
#include "record.h"
#include "stream.h"
#include "watched.h"

/* Handles lie at multiples of eight, and their names are one more: by these no handle is named. */
enum { LEGACY = 2, OWN = 4 };

static bool is_named(CUstream stream)
{
    return stream && stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD;
}

static uint64_t current_context(void)
{
    CUcontext context = NULL;
    REAL(cuCtxGetCurrent, &context);
    return (uint64_t)(uintptr_t)context;
}

/* What a default stream is called in a context. */
static uint64_t default_name(CUstream stream, uint64_t context)
{
    uint64_t thread = (uint64_t)(uintptr_t)&psg_depth * UINT64_C(0x9E3779B97F4A7C15) & ~UINT64_C(7);
    return stream == CU_STREAM_PER_THREAD ? (context ^ thread) + OWN : context + LEGACY;
}

static uint64_t name_of(CUstream stream)
{
    return is_named(stream) ? (uint64_t)(uintptr_t)stream + 1 : default_name(stream, current_context());
}

static int place_of(const struct psg_streams *streams, uint64_t name)
{
    for (unsigned i = 0; i < streams->count; i++)
        if (streams->watched[i].name == name)
            return (int)i;
    return -1;
}

bool psg_is_watched(const struct psg_streams *streams, CUstream stream)
{
    return place_of(streams, name_of(stream)) >= 0;
}

bool psg_has_room(const struct psg_streams *streams, CUstream stream)
{
    return streams->count < PSG_STREAMS || psg_is_watched(streams, stream);
}

bool psg_is_only(const struct psg_streams *streams, CUstream stream)
{
    uint64_t only = atomic_load_explicit(&streams->only, memory_order_relaxed);
    return only && only == name_of(stream);
}

void psg_watch(struct psg_streams *streams, CUstream stream)
{
    uint64_t name = name_of(stream);
    bool only = streams->count == 0 || atomic_load(&streams->only) == name;
    if (place_of(streams, name) < 0 && streams->count < PSG_STREAMS)
        streams->watched[streams->count++] = (struct psg_watched){
            .stream = stream,
            .name = name,
            .context = is_named(stream) ? psg_context_of_stream(stream) : current_context(),
        };
    atomic_store(&streams->only, only ? name : 0);
}

static void unwatch_at(struct psg_streams *streams, unsigned place)
{
    streams->watched[place] = streams->watched[--streams->count];
    atomic_store(&streams->only, 0);
}

void psg_unwatch(struct psg_streams *streams, CUstream stream)
{
    int place = place_of(streams, name_of(stream));
    if (place >= 0)
        unwatch_at(streams, (unsigned)place);
}

void psg_watch_none(struct psg_streams *streams)
{
    streams->count = 0;
    atomic_store(&streams->only, 0);
}

static bool is_of(const struct psg_watched *watched, uint64_t context)
{
    return !context || watched->context == context;
}

bool psg_any_is_of(const struct psg_streams *streams, uint64_t context)
{
    for (unsigned i = 0; i < streams->count; i++)
        if (is_of(&streams->watched[i], context))
            return true;
    return false;
}

bool psg_all_are_of(const struct psg_streams *streams, uint64_t context)
{
    for (unsigned i = 0; i < streams->count; i++)
        if (!is_of(&streams->watched[i], context))
            return false;
    return true;
}

void psg_unwatch_of(struct psg_streams *streams, uint64_t context)
{
    for (unsigned i = streams->count; i-- > 0;)
        if (is_of(&streams->watched[i], context))
            unwatch_at(streams, i);
}

/* False: nobody can ask from here. Where it is to `settle`, a stream that is idle is waited for, which takes no time. */
static bool ask_stream(const struct psg_watched *watched, uint64_t here, bool settle, bool *busy)
{
    CUcontext context = (CUcontext)(uintptr_t)watched->context;
    bool elsewhere = !is_named(watched->stream) && watched->context != here;
    if (!is_named(watched->stream) && default_name(watched->stream, watched->context) != watched->name)
        return false;
    if (!psg_may_ask(watched->stream))
        return false;
    if (elsewhere && REAL(cuCtxPushCurrent_v2, context) != CUDA_SUCCESS)
        return false;
    *busy = REAL(cuStreamQuery, watched->stream) == CUDA_ERROR_NOT_READY;
    if (settle && !*busy)
        REAL(cuStreamSynchronize, watched->stream);
    if (elsewhere)
        REAL(cuCtxPopCurrent_v2, &context);
    return true;
}

bool psg_ask_streams(const struct psg_streams *streams, bool *busy)
{
    CUstreamCaptureMode mode;
    *busy = false;
    psg_asking_begin(&mode);
    bool all = true;
    uint64_t here = current_context();
    for (unsigned i = 0; i < streams->count && !*busy; i++)
        all = ask_stream(&streams->watched[i], here, false, busy) && all;
    psg_asking_end(&mode);
    return all || *busy;
}

bool psg_settle_streams(struct psg_streams *streams)
{
    CUstreamCaptureMode mode;
    unsigned before = streams->count;
    if (before == 0)
        return false;
    psg_asking_begin(&mode);
    uint64_t here = current_context();
    for (unsigned i = streams->count; i-- > 0;) {
        bool busy = false;
        if (ask_stream(&streams->watched[i], here, true, &busy) && !busy)
            unwatch_at(streams, i);
    }
    psg_asking_end(&mode);
    return streams->count < before;
}
