/* Blocks that streams free when they get there: they are charged until then, which an event tells. */
#include <pthread.h>
#include <stdlib.h>

#include "fork.h"
#include "frees.h"
#include "lock.h"
#include "pages.h"
#include "record.h"
#include "stream.h"

struct late {
    struct psg_entry block;
    CUevent event;
    uint64_t context; /* that the event belongs to */
    struct late *next;
};

static pthread_mutex_t freeing = PTHREAD_MUTEX_INITIALIZER;
static struct late *lates;

static void after_fork_in_child(void)
{
    freeing = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    lates = NULL;
}

AT_FORK(.in_child = after_fork_in_child);

/* An event belongs to the context of its stream, whichever is current. */
static bool record_event(struct late *late, CUstream stream)
{
    CUcontext context;
    if (!psg_enter_context_of_stream(stream))
        return false;
    bool made = REAL(cuCtxGetCurrent, &context) == CUDA_SUCCESS &&
                REAL(cuEventCreate, &late->event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS;
    bool recorded = made && REAL(cuEventRecord, late->event, stream) == CUDA_SUCCESS;
    if (made && !recorded)
        REAL(cuEventDestroy_v2, late->event);
    late->context = (uint64_t)(uintptr_t)context;
    REAL(cuCtxPopCurrent_v2, &context);
    return recorded;
}

void psg_free_on_stream(const struct psg_entry *block, CUstream stream)
{
    struct late *late = malloc(sizeof *late);
    if (!late || !record_event(late, stream)) {
        free(late);
        REAL(cuStreamSynchronize, stream);
        psg_block_give(block);
        return;
    }
    late->block = *block;
    psg_lock(&freeing);
    late->next = lates;
    __atomic_store_n(&lates, late, __ATOMIC_RELAXED);
    psg_unlock(&freeing);
    psg_frees_reap();
}

/* Takes out of the list what `is_wanted`. */
static struct late *take_lates(bool (*is_wanted)(const struct late *late, uint64_t context), uint64_t context)
{
    struct late *taken = NULL;
    psg_lock(&freeing);
    for (struct late **each = &lates; *each;) {
        struct late *late = *each;
        if (!is_wanted(late, context)) {
            each = &late->next;
            continue;
        }
        __atomic_store_n(each, late->next, __ATOMIC_RELAXED);
        late->next = taken;
        taken = late;
    }
    psg_unlock(&freeing);
    return taken;
}

static void give_back(struct late *taken)
{
    for (struct late *each = taken, *next; each; each = next) {
        next = each->next;
        REAL(cuEventDestroy_v2, each->event);
        psg_block_give(&each->block);
        free(each);
    }
}

static bool is_over(const struct late *late, uint64_t context)
{
    (void)context;
    return REAL(cuEventQuery, late->event) != CUDA_ERROR_NOT_READY;
}

void psg_frees_reap(void)
{
    CUstreamCaptureMode mode;
    if (!__atomic_load_n(&lates, __ATOMIC_RELAXED))
        return;
    psg_asking_begin(&mode);
    struct late *taken = take_lates(is_over, 0);
    psg_asking_end(&mode);
    give_back(taken);
}

static bool is_of(const struct late *late, uint64_t context)
{
    return !context || late->context == context || late->block.owner == context;
}

void psg_frees_finish(uint64_t context)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    if (!__atomic_load_n(&lates, __ATOMIC_RELAXED))
        return;
    struct late *taken = take_lates(is_of, context);
    REAL(cuThreadExchangeStreamCaptureMode, &mode);
    for (const struct late *each = taken; each; each = each->next)
        REAL(cuEventSynchronize, each->event);
    REAL(cuThreadExchangeStreamCaptureMode, &mode);
    give_back(taken);
}
