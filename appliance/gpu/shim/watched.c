/* The streams on which something is pending. */
#include "driver.h"
#include "record.h"
#include "watched.h"

/* The stream that each thread has of its own has one handle in all of them, and here a name in each. */
static uint64_t name_of(CUstream stream)
{
    return stream == CU_STREAM_PER_THREAD ? (uint64_t)(uintptr_t)&psg_depth : (uint64_t)(uintptr_t)stream + 1;
}

bool psg_is_watched(const struct psg_streams *streams, CUstream stream)
{
    for (unsigned i = 0; i < streams->count; i++)
        if (streams->names[i] == name_of(stream))
            return true;
    return false;
}

bool psg_has_room(const struct psg_streams *streams, CUstream stream)
{
    return streams->count < PSG_STREAMS || psg_is_watched(streams, stream);
}

bool psg_is_only(const struct psg_streams *streams, CUstream stream)
{
    return atomic_load_explicit(&streams->only, memory_order_relaxed) == name_of(stream);
}

void psg_watch(struct psg_streams *streams, CUstream stream)
{
    bool only = streams->count == 0 || psg_is_only(streams, stream);
    if (!psg_is_watched(streams, stream) && streams->count < PSG_STREAMS)
        streams->names[streams->count] = name_of(stream), streams->streams[streams->count++] = stream;
    atomic_store(&streams->only, only ? name_of(stream) : 0);
}

void psg_unwatch(struct psg_streams *streams, CUstream stream)
{
    for (unsigned i = 0; i < streams->count; i++)
        if (streams->names[i] == name_of(stream)) {
            streams->names[i] = streams->names[--streams->count];
            streams->streams[i--] = streams->streams[streams->count];
        }
    atomic_store(&streams->only, 0);
}

void psg_watch_none(struct psg_streams *streams)
{
    streams->count = 0;
    atomic_store(&streams->only, 0);
}

bool psg_ask_streams(const struct psg_streams *streams, bool *busy)
{
    CUstreamCaptureMode mode;
    *busy = false;
    if (!psg_asking_begin(&mode))
        return false;
    bool all = true;
    for (unsigned i = 0; i < streams->count && !*busy; i++)
        if (streams->names[i] == name_of(streams->streams[i]))
            *busy = REAL(cuStreamQuery, streams->streams[i]) == CUDA_ERROR_NOT_READY;
        else
            all = false;
    psg_asking_end(&mode);
    return all || *busy;
}
