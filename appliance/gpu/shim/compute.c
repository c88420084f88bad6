/* Admission of launches: inside of a window only, in slices that are short beside it, and followed to their end.
 *
 * What was launched is never waited for by a blocking call: it may itself wait for a launch that comes later, and that must
 * then go through, if late. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "account.h"
#include "compute.h"
#include "device.h"
#include "driver.h"
#include "fork.h"
#include "window.h"
#include "limits.h"
#include "pools.h"
#include "record.h"
#include "table.h"

#define MICROSECOND UINT64_C(1000)
#define MILLISECOND UINT64_C(1000000)

enum { STREAMS = 64, MOST_LAUNCHES = 1024 };

/* Of launches that are shorter than this, so many go by without a look at the clock. */
#define SHORT (50 * MICROSECOND)
enum { UNTIMED = 16 };

/* The shortest slice between two looks at the GPU (a slice is half of what is left of the window), and how long one look
 * waits for work that does not end. */
#define SLICE (5 * MILLISECOND)
#define PATIENCE (1000 * MILLISECOND)

/* How long it waits again for work that has not ended once. */
#define LESS_PATIENCE (PATIENCE / 16)

/* How long to sleep at most before the timetable is read again. */
#define LONGEST_SLEEP (1000 * MILLISECOND)

struct gate {
    pthread_mutex_t lock;
    _Atomic(uint64_t) until;   /* end of the window; 0: none */
    _Atomic(uint64_t) average; /* what a launch takes, as far as it is known; 0: not known */
    _Atomic(uint64_t) from;    /* since when something may be running */
    _Atomic(uint64_t) wanted;  /* when the account last heard that launches are wanted */
    atomic_bool looking;       /* a thread asks again and again whether work has ended */
    atomic_uint pending;       /* launches since the last look */
    atomic_uint bound;         /* launches until the next look */
    _Atomic(uint64_t) stream;  /* plus one: the only stream in use; 0: none yet */
    uint64_t used;             /* windows up to here are over */
    bool planned;              /* the window is one of a timetable */
    bool overdue;              /* what is pending has not ended when it was waited for */
    CUstream streams[STREAMS];
    unsigned stream_count;
};

static struct gate gates[PSG_GPUS] = {[0 ... PSG_GPUS - 1] = {.lock = PTHREAD_MUTEX_INITIALIZER}};

static void after_fork_in_child(void)
{
    for (int gpu = 0; gpu < PSG_GPUS; gpu++) {
        memset(&gates[gpu], 0, sizeof gates[gpu]);
        gates[gpu].lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    }
}

AT_FORK(.in_child = after_fork_in_child);

/* Streams --------------------------------------------------------------------------------------------------------- */

static uint64_t tag(CUstream stream)
{
    return (uint64_t)(uintptr_t)stream + 1;
}

/* The caller has the lock, as of all that follow. */
static bool is_watched(const struct gate *gate, CUstream stream)
{
    for (unsigned i = 0; i < gate->stream_count; i++)
        if (gate->streams[i] == stream)
            return true;
    return false;
}

static bool has_room(const struct gate *gate, CUstream stream)
{
    return gate->stream_count < STREAMS || is_watched(gate, stream);
}

static void watch(struct gate *gate, CUstream stream)
{
    if (!is_watched(gate, stream) && gate->stream_count < STREAMS)
        gate->streams[gate->stream_count++] = stream;
    atomic_store(&gate->stream, gate->stream_count == 1 ? tag(stream) : 0);
}

static void unwatch(struct gate *gate, CUstream stream)
{
    for (unsigned i = 0; i < gate->stream_count; i++)
        if (gate->streams[i] == stream)
            gate->streams[i--] = gate->streams[--gate->stream_count];
    atomic_store(&gate->stream, gate->stream_count == 1 ? tag(gate->streams[0]) : 0);
}

static void unwatch_all(struct gate *gate)
{
    gate->stream_count = 0;
    atomic_store(&gate->stream, 0);
}

enum seen { BUSY, IDLE, RECORDING };

static enum seen look(const struct gate *gate)
{
    CUstreamCaptureMode mode;
    enum seen seen = IDLE;
    if (!psg_asking_begin(&mode))
        return RECORDING;
    for (unsigned i = 0; i < gate->stream_count && seen == IDLE; i++)
        seen = REAL(cuStreamQuery, gate->streams[i]) == CUDA_ERROR_NOT_READY ? BUSY : IDLE;
    psg_asking_end(&mode);
    return seen;
}

/* Looking at the GPU ---------------------------------------------------------------------------------------------- */

static uint64_t clamp(uint64_t value, uint64_t least, uint64_t most)
{
    return value < least ? least : value > most ? most : value;
}

/* All that was launched has ended at a time: counts it, and learns how long a launch takes. */
static void ended(int gpu, struct gate *gate, uint64_t at)
{
    gate->overdue = false;
    unsigned launches = atomic_exchange(&gate->pending, 0);
    uint64_t from = atomic_load(&gate->from);
    if (!launches || at < from)
        return;
    psg_worked(gpu, from, at, gate->planned ? atomic_load(&gate->until) : 0);
    uint64_t average = atomic_load(&gate->average), now = clamp((at - from) / launches, MICROSECOND, PATIENCE);
    atomic_store(&gate->average, average ? (average + now) / 2 : now);
}

/* Waits until all that was launched has ended; false: it has not within our patience. `at` is when that was. */
static bool drain(int gpu, struct gate *gate, uint64_t *at)
{
    uint64_t begun = psg_now(), now = begun;
    unsigned launches = atomic_load(&gate->pending);
    *at = now;
    if (!launches)
        return true;
    uint64_t average = atomic_load(&gate->average), expected = atomic_load(&gate->from) + launches * average;
    uint64_t patience = gate->overdue ? LESS_PATIENCE : PATIENCE;
    enum seen seen = look(gate);
    bool waited = seen == BUSY;
    atomic_store(&gate->looking, waited);
    while (seen == BUSY && now - begun < patience) {
        uint64_t wait = now < expected ? (expected - now) / 4 : (now - expected) / 8;
        psg_sleep_until(now + clamp(wait, 20 * MICROSECOND, patience / 4));
        now = psg_now();
        struct psg_total *total = psg_total(gpu);
        if (total)
            __atomic_store_n(&total->wanted_ns, now, __ATOMIC_RELAXED);
        seen = look(gate);
    }
    atomic_store(&gate->looking, false);
    *at = now;
    gate->overdue = seen == BUSY;
    if (seen == BUSY)
        return false;
    /* It ended before we looked, or cannot be looked at: nobody knows when, about when launches of this kind end. */
    if (average && (!waited || seen == RECORDING))
        *at = clamp(expected, atomic_load(&gate->from), now);
    if (seen == IDLE)
        unwatch_all(gate);
    ended(gpu, gate, *at);
    return true;
}

/* A stream is about to be destroyed: nobody can ask about it later, and what it still does would be free. */
static void stream_gone(CUstream stream)
{
    for (int gpu = 0; gpu < PSG_GPUS; gpu++) {
        struct gate *gate = &gates[gpu];
        uint64_t at;
        pthread_mutex_lock(&gate->lock);
        if (is_watched(gate, stream)) {
            drain(gpu, gate, &at);
            unwatch(gate, stream);
        }
        pthread_mutex_unlock(&gate->lock);
    }
}

void psg_streams_gone(void)
{
    for (int gpu = 0; gpu < PSG_GPUS; gpu++) {
        pthread_mutex_lock(&gates[gpu].lock);
        unwatch_all(&gates[gpu]);
        pthread_mutex_unlock(&gates[gpu].lock);
    }
}

/* Admission ------------------------------------------------------------------------------------------------------- */

static void count(int gpu, struct gate *gate, uint64_t now)
{
    struct psg_total *total = psg_total(gpu);
    if (!total)
        return;
    __atomic_fetch_add(&total->launches, 1, __ATOMIC_RELAXED);
    if (now > atomic_load_explicit(&gate->wanted, memory_order_relaxed) + MILLISECOND) {
        atomic_store_explicit(&gate->wanted, now, memory_order_relaxed);
        __atomic_store_n(&total->wanted_ns, now, __ATOMIC_RELAXED);
    }
}

/* A launch that ends after the window makes debt, one that is held back leaves credit; it goes where that comes out
 * nearer to none. It starts behind what is queued already. */
static bool fits(int gpu, const struct gate *gate, uint64_t now)
{
    uint64_t until = atomic_load_explicit(&gate->until, memory_order_relaxed);
    uint64_t average = atomic_load_explicit(&gate->average, memory_order_relaxed);
    uint64_t queued = atomic_load_explicit(&gate->from, memory_order_relaxed) +
                      atomic_load_explicit(&gate->pending, memory_order_relaxed) * average;
    uint64_t start = queued > now ? queued : now;
    if (start >= until)
        return false;
    struct psg_total *total = until - start < average ? psg_total(gpu) : NULL;
    if (!total)
        return true;
    int64_t half = (int64_t)average / 2, debt = __atomic_load_n(&total->debt_ns, __ATOMIC_RELAXED);
    debt = debt > half ? half : debt < -half ? -half : debt;
    return (int64_t)(until - start) >= half + debt;
}

static void start_slice(struct gate *gate, uint64_t now)
{
    uint64_t average = atomic_load(&gate->average), until = atomic_load(&gate->until), left = until > now ? until - now : 0;
    uint64_t slice = left < SLICE ? left : left / 2 > SLICE ? left / 2 : SLICE;
    atomic_store(&gate->bound, average ? (unsigned)clamp((slice + average / 2) / average, 1, MOST_LAUNCHES) : 1);
}

/* The caller has the lock. Ends the window, counts what it did, and waits for the next one. */
static uint64_t next_window(int gpu, struct gate *gate)
{
    uint64_t until = atomic_load(&gate->until), now;
    /* What does not end is still counted in the window that it began in. */
    if (!drain(gpu, gate, &now))
        return now;
    if (until) {
        gate->used = until;
        if (gate->planned)
            psg_left_over(gpu, now, until, atomic_load(&gate->average));
        atomic_store(&gate->until, 0);
    }
    uint64_t again = UINT64_MAX;
    for (;;) {
        now = psg_now();
        struct psg_total *total = psg_total(gpu);
        if (total)
            __atomic_store_n(&total->wanted_ns, now, __ATOMIC_RELAXED);
        if (psg_compute_mode(gpu) == PSG_COMPUTE_OFF)
            return now;
        until = psg_open_window(gpu, now, gate->used, atomic_load(&gate->average), &again);
        if (until)
            break;
        /* Others may destroy streams meanwhile, or be the first to find the next window. */
        pthread_mutex_unlock(&gate->lock);
        psg_sleep_until(again - now < LONGEST_SLEEP ? again : now + LONGEST_SLEEP);
        pthread_mutex_lock(&gate->lock);
        now = psg_now();
        uint64_t theirs = atomic_load(&gate->until);
        if (theirs)
            return theirs > now ? now : next_window(gpu, gate);
    }
    gate->planned = again != UINT64_MAX;
    atomic_store(&gate->until, until);
    return now;
}

static void wait_for_window(int gpu, struct gate *gate, CUstream stream)
{
    pthread_mutex_lock(&gate->lock);
    uint64_t now = psg_now();
    unsigned pending = atomic_load(&gate->pending);
    if (pending && (pending >= atomic_load(&gate->bound) || !fits(gpu, gate, now) || !has_room(gate, stream))) {
        uint64_t at;
        /* What does not end may wait for this launch, which therefore goes, and is counted with it. */
        pending = drain(gpu, gate, &at) ? 0 : pending;
        atomic_store(&gate->bound, pending);
        now = psg_now();
    }
    if (!pending) {
        if (!fits(gpu, gate, now))
            now = next_window(gpu, gate);
        if (!has_room(gate, stream))
            unwatch_all(gate);
        start_slice(gate, now);
    }
    watch(gate, stream);
    if (atomic_fetch_add(&gate->pending, 1) == 0)
        atomic_store(&gate->from, now);
    pthread_mutex_unlock(&gate->lock);
}

void psg_admit(int gpu, CUstream stream)
{
    struct gate *gate = &gates[gpu];
    if (psg_compute_mode(gpu) == PSG_COMPUTE_OFF) {
        count(gpu, gate, 0);
        return;
    }
    if (psg_recorded(stream))
        return;
    unsigned pending = atomic_load_explicit(&gate->pending, memory_order_relaxed);
    bool in_slice = pending > 0 && pending < atomic_load_explicit(&gate->bound, memory_order_relaxed) &&
                    atomic_load_explicit(&gate->stream, memory_order_relaxed) == tag(stream);
    /* Many short launches have their place in the slice already; reading the time costs more than they may. */
    bool counted = in_slice && pending % UNTIMED && atomic_load_explicit(&gate->average, memory_order_relaxed) < SHORT;
    uint64_t now = counted ? 0 : psg_now();
    count(gpu, gate, now);
    if (counted || (in_slice && fits(gpu, gate, now)))
        atomic_fetch_add_explicit(&gate->pending, 1, memory_order_relaxed);
    else
        wait_for_window(gpu, gate, stream);
}

/* The program waits ----------------------------------------------------------------------------------------------- */

/* The program itself has waited: what it launched has just ended, and pools may have given memory back. */
static void seen_idle(int gpu, CUstream stream, bool all)
{
    if (gpu < 0)
        return;
    psg_pools_look(gpu);
    struct gate *gate = &gates[gpu];
    if (atomic_load(&gate->pending) == 0 || (!all && atomic_load(&gate->stream) != tag(stream)))
        return;
    /* Who has the lock for long is looking at the GPU already. */
    if (atomic_load(&gate->looking))
        return;
    pthread_mutex_lock(&gate->lock);
    ended(gpu, gate, psg_now());
    pthread_mutex_unlock(&gate->lock);
}

#define WAITS(symbol, parameters, stream, all, ...)                  \
    EXPORT CUresult symbol parameters                                \
    {                                                                \
        CUresult result = REAL(symbol, __VA_ARGS__);                 \
        if (result == CUDA_SUCCESS)                                  \
            seen_idle(psg_gpu_here(NULL), stream, all);              \
        return result;                                               \
    }

WAITS(cuStreamSynchronize, (CUstream stream), stream, false, stream)
WAITS(cuStreamSynchronize_ptsz, (CUstream stream), stream ? stream : CU_STREAM_PER_THREAD, false, stream)
WAITS(cuCtxSynchronize_v2, (CUcontext context), NULL, false, context)

EXPORT CUresult cuCtxSynchronize(void)
{
    CUresult result = REAL(cuCtxSynchronize);
    if (result == CUDA_SUCCESS)
        seen_idle(psg_gpu_here(NULL), NULL, true);
    return result;
}

EXPORT CUresult cuEventSynchronize(CUevent event)
{
    CUresult result = REAL(cuEventSynchronize, event);
    if (result == CUDA_SUCCESS)
        psg_pools_look(psg_gpu_here(NULL));
    return result;
}

/* The end of streams ---------------------------------------------------------------------------------------------- */

#define DESTROYS(symbol)                                             \
    EXPORT CUresult symbol(CUstream stream)                          \
    {                                                                \
        struct psg_entry recording;                                  \
        if (psg_depth > 0 || !psg_limited() || !stream)              \
            return REAL(symbol, stream);                             \
        stream_gone(stream);                                         \
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
