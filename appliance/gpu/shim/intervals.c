/* When processes of the container had work on a GPU, for the agent to read.
 *
 * A process lets its last interval grow while the pauses are short, and begins another one otherwise: so many programs fill
 * the log slowly, and a look four times a period misses nothing. */
#include <string.h>

#include "account.h"
#include "fork.h"
#include "intervals.h"

#define SHORT_PAUSE UINT64_C(1000000)

/* The number of the last interval of this process on each GPU; 0: none. */
static uint64_t last[PSG_GPUS];

static void after_fork_in_child(void)
{
    memset(last, 0, sizeof last);
}

AT_FORK(.in_child = after_fork_in_child);

static bool grows(struct psg_interval *interval, uint64_t number, uint64_t from, uint64_t to)
{
    if (!number || __atomic_load_n(&interval->number, __ATOMIC_ACQUIRE) != number || from > interval->to_ns + SHORT_PAUSE)
        return false;
    __atomic_fetch_add(&interval->busy_ns, to - from, __ATOMIC_RELAXED);
    __atomic_store_n(&interval->to_ns, to, __ATOMIC_RELEASE);
    return true;
}

void psg_note_interval(int gpu, uint64_t from, uint64_t to)
{
    uint64_t slot;
    struct psg_log *log = to > from ? psg_log(gpu, &slot) : NULL;
    if (!log || grows(&log->interval[last[gpu] % PSG_INTERVALS], last[gpu], from, to))
        return;
    last[gpu] = __atomic_add_fetch(&log->begun, 1, __ATOMIC_ACQ_REL);
    struct psg_interval *interval = &log->interval[last[gpu] % PSG_INTERVALS];
    __atomic_store_n(&interval->number, 0, __ATOMIC_RELEASE);
    interval->from_ns = from;
    interval->to_ns = to;
    interval->busy_ns = to - from;
    interval->slot = slot;
    __atomic_store_n(&interval->number, last[gpu], __ATOMIC_RELEASE);
}
