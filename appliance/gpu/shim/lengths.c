/* How long launches take.
 *
 * Events stand before and after some launches: of long ones all, of short ones a few, for an event costs as much as they
 * do. The GPU notes the times itself, so how late the program looks does not matter. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "driver.h"
#include "fork.h"
#include "lengths.h"
#include "lock.h"
#include "record.h"
#include "stream.h"

#define MICROSECOND UINT64_C(1000)
#define MILLISECOND UINT64_C(1000000)

/* Places for functions; one that comes later takes the place of another. */
enum { FUNCTIONS = 2048, NEAR = 16, PAIRS = 8 };

/* A launch from which on each one is measured; and of shorter ones, every so many of those that look at the clock. */
#define LONG MILLISECOND
enum { SELDOM = 8, OFTEN_AT_FIRST = 4 };

/* Waiting behind others makes a measure longer, and nothing makes it shorter: the least of so many counts. One that says more
 * than so many times as much as is known counts only when it is told again and again. */
enum { MEASURES = 8, TOO_MUCH = 3, AGAIN = 3 };

struct function {
    _Atomic(const void *) what;
    _Atomic(uint64_t) length;
    atomic_uint launches; /* since the last measure */
    atomic_uint measures;
    atomic_uint doubts; /* measures in a row that said far more */
    uint64_t least, least_before, least_doubt; /* of the last measures, of those before them, and of the doubts */
};

enum state { FREE, OPEN, RECORDED };

struct pair {
    enum state state;
    bool alone;
    CUevent begin, end; /* null until it is first used */
    CUcontext context;
    const void *what;
    uint64_t expected; /* what was known of its length */
};

static struct function functions[FUNCTIONS];
static struct pair pairs[PSG_GPUS][PAIRS];
static pthread_mutex_t measuring = PTHREAD_MUTEX_INITIALIZER;

static void after_fork_in_child(void)
{
    measuring = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    memset(pairs, 0, sizeof pairs);
    memset(functions, 0, sizeof functions);
}

AT_FORK(.in_child = after_fork_in_child);

/* Functions ------------------------------------------------------------------------------------------------------- */

/* The place of a function: that which it has, or one that is free, or the first where all near it are taken. */
static struct function *place_of(const void *what)
{
    uint64_t hash = (uint64_t)(uintptr_t)what * UINT64_C(0x9E3779B97F4A7C15), first = hash >> 53;
    for (unsigned each = 0; each < NEAR; each++) {
        struct function *place = &functions[(first + each) % FUNCTIONS];
        const void *there = atomic_load_explicit(&place->what, memory_order_relaxed);
        if (there == what || !there)
            return place;
    }
    return &functions[first];
}

_Static_assert(FUNCTIONS == 1 << (64 - 53), "a hash is a place");

uint64_t psg_length(const void *what)
{
    struct function *place = place_of(what);
    return atomic_load_explicit(&place->what, memory_order_relaxed) == what
               ? atomic_load_explicit(&place->length, memory_order_relaxed)
               : 0;
}

/* The caller has the lock, here and below. */
static void begin_with(struct function *place, uint64_t ns)
{
    atomic_store(&place->length, ns);
    place->least = ns;
    place->least_before = UINT64_MAX;
}

static void learn(const void *what, uint64_t ns)
{
    struct function *place = place_of(what);
    uint64_t known = psg_length(what);
    if (ns < MICROSECOND)
        ns = MICROSECOND;
    if (!known) {
        begin_with(place, ns);
        atomic_store(&place->what, what);
        place->measures = place->doubts = 0;
        return;
    }
    bool doubtful = ns > TOO_MUCH * known + MILLISECOND;
    place->least_doubt = place->doubts && doubtful ? smaller(place->least_doubt, ns) : ns;
    place->doubts = doubtful ? place->doubts + 1 : 0;
    if (doubtful && place->doubts >= AGAIN)
        begin_with(place, place->least_doubt);
    if (doubtful)
        return;
    place->least = smaller(place->least, ns);
    atomic_store(&place->length, smaller(place->least, place->least_before));
    if (++place->measures % MEASURES == 0) {
        place->least_before = place->least;
        place->least = UINT64_MAX;
    }
}

void psg_learn_length(const void *what, uint64_t ns)
{
    psg_lock(&measuring);
    if (!psg_length(what))
        learn(what, ns);
    psg_unlock(&measuring);
}

static bool worth_while(const void *what)
{
    struct function *place = place_of(what);
    uint64_t known = psg_length(what);
    if (known >= LONG || !known || place->measures < OFTEN_AT_FIRST || place->doubts)
        return true;
    return atomic_fetch_add_explicit(&place->launches, 1, memory_order_relaxed) % SELDOM == 0;
}

/* Pairs of events ------------------------------------------------------------------------------------------------- */

static void forget(struct pair *pair)
{
    if (pair->begin)
        REAL(cuEventDestroy_v2, pair->begin);
    if (pair->end)
        REAL(cuEventDestroy_v2, pair->end);
    *pair = (struct pair){.state = FREE};
}

/* Events belong to a context, and so does a stream. */
static bool prepare(struct pair *pair, CUcontext context)
{
    if (pair->begin && pair->context != context)
        forget(pair);
    if (!pair->begin && (REAL(cuEventCreate, &pair->begin, CU_EVENT_DEFAULT) != CUDA_SUCCESS ||
                         REAL(cuEventCreate, &pair->end, CU_EVENT_DEFAULT) != CUDA_SUCCESS)) {
        forget(pair);
        return false;
    }
    pair->context = context;
    return true;
}

static int free_pair(int gpu)
{
    for (int each = 0; each < PAIRS; each++)
        if (pairs[gpu][each].state == FREE)
            return each;
    return -1;
}

static bool record_begin(struct pair *pair, CUstream stream)
{
    CUcontext context;
    return REAL(cuCtxGetCurrent, &context) == CUDA_SUCCESS && context &&
           psg_context_of_stream(stream) == (uint64_t)(uintptr_t)context && prepare(pair, context) &&
           REAL(cuEventRecord, pair->begin, stream) == CUDA_SUCCESS;
}

struct psg_measured psg_measure_begin(int gpu, CUstream stream, const void *what, bool alone)
{
    struct psg_measured measured = {.gpu = gpu, .pair = -1};
    CUstreamCaptureMode mode;
    if (!worth_while(what))
        return measured;
    psg_lock(&measuring);
    int number = free_pair(gpu);
    if (number >= 0) {
        struct pair *pair = &pairs[gpu][number];
        psg_asking_begin(&mode);
        if (psg_may_ask(stream) && record_begin(pair, stream)) {
            pair->state = OPEN;
            pair->what = what;
            pair->expected = psg_length(what);
            pair->alone = alone;
            measured.pair = number;
        }
        psg_asking_end(&mode);
    }
    psg_unlock(&measuring);
    return measured;
}

void psg_measure_end(struct psg_measured measured, CUstream stream)
{
    CUstreamCaptureMode mode;
    if (measured.pair < 0)
        return;
    psg_lock(&measuring);
    struct pair *pair = &pairs[measured.gpu][measured.pair];
    if (pair->state == OPEN) {
        psg_asking_begin(&mode);
        bool recorded = psg_may_ask(stream) && REAL(cuEventRecord, pair->end, stream) == CUDA_SUCCESS;
        psg_asking_end(&mode);
        pair->state = recorded ? RECORDED : FREE;
    }
    psg_unlock(&measuring);
}

int64_t psg_measures_read(int gpu, bool overdue)
{
    int64_t longer = 0;
    CUstreamCaptureMode mode;
    psg_lock(&measuring);
    psg_asking_begin(&mode);
    for (int each = 0; each < PAIRS; each++) {
        struct pair *pair = &pairs[gpu][each];
        float milliseconds;
        if (pair->state != RECORDED || REAL(cuEventQuery, pair->end) == CUDA_ERROR_NOT_READY)
            continue;
        pair->state = FREE;
        if (REAL(cuEventElapsedTime, &milliseconds, pair->begin, pair->end) != CUDA_SUCCESS || milliseconds < 0)
            continue;
        uint64_t ns = (uint64_t)((double)milliseconds * 1e6), known = psg_length(pair->what);
        if (pair->alone)
            longer += (int64_t)ns - (int64_t)pair->expected;
        /* What others waited for in vain may have waited for them. */
        if (!overdue || !known || ns < known)
            learn(pair->what, ns);
    }
    psg_asking_end(&mode);
    psg_unlock(&measuring);
    return longer;
}

void psg_measures_gone(uint64_t context)
{
    psg_lock(&measuring);
    for (int gpu = 0; gpu < PSG_GPUS; gpu++)
        for (int each = 0; each < PAIRS; each++)
            if (!context || (uint64_t)(uintptr_t)pairs[gpu][each].context == context)
                forget(&pairs[gpu][each]);
    psg_unlock(&measuring);
}
