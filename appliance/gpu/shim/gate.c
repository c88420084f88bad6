/* What a process has in flight on a GPU, followed to its end.
 *
 * What was launched is never waited for by a blocking call, nor with a lock held: it may itself wait for a launch that comes
 * later, and that must then go through, if late. */
#include <string.h>

#include "account.h"
#include "device.h"
#include "fork.h"
#include "frees.h"
#include "gate.h"
#include "lengths.h"
#include "limits.h"
#include "lock.h"
#include "pools.h"

#define MICROSECOND UINT64_C(1000)
#define MILLISECOND UINT64_C(1000000)

/* How long a launch is held at least beyond the expected end of work that may be waiting for it, and how long in all; for how long at
 * least and at most, and how many lengths of the launch, where that has come once; and how long beyond the expected end of
 * that work where all of it is on the very stream of the launch, behind which it can hold up nothing but what the program
 * itself does, by a thread that launches on this GPU alone. */
#define PATIENCE (1000 * MILLISECOND)
#define PATIENCE_IN_ALL (6 * PATIENCE)
#define LESS_PATIENCE (PATIENCE / 16)
#define MOST_PATIENCE (30 * PATIENCE)
#define PATIENCE_ON_STREAM PSG_ENDLESS
enum { SELDOM = 8 };

/* Work that ends so much later than expected is counted while it goes on. */
#define LATE (100 * MILLISECOND)

/* How long to sleep at most before the GPU is looked at again. */
#define LONGEST_LOOK (PATIENCE / 4)

struct psg_gate psg_gates[PSG_GPUS] = {[0 ... PSG_GPUS - 1] = {.lock = PTHREAD_MUTEX_INITIALIZER}};

/* The shared GPUs on which this thread has launched, a bit for each. */
static __thread uint32_t fed;

static void after_fork_in_child(void)
{
    fed = 0;
    for (int gpu = 0; gpu < PSG_GPUS; gpu++) {
        memset(&psg_gates[gpu], 0, sizeof psg_gates[gpu]);
        psg_gates[gpu].lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    }
}

AT_FORK(.in_child = after_fork_in_child);

void psg_feeds(int gpu)
{
    fed |= 1u << gpu;
}

static uint64_t clamp(uint64_t value, uint64_t least, uint64_t most)
{
    return value < least ? least : value > most ? most : value;
}

void psg_sleep_unlocked(struct psg_gate *gate, uint64_t until)
{
    psg_unlock(&gate->lock);
    psg_sleep_until(until);
    psg_lock(&gate->lock);
}

/* What the GPU does; the caller has the lock, as of all that follows ---------------------------------------------- */

/* Whether something is still running; where nobody can ask, or a stream is no more, by what was expected. */
static bool is_busy(const struct psg_gate *gate, uint64_t now)
{
    bool busy;
    if (!psg_ask_streams(&gate->streams, &busy))
        busy = now < atomic_load(&gate->queued);
    return busy || now < gate->gone;
}

void psg_want(int gpu, uint64_t now)
{
    struct psg_total *total = psg_total(gpu);
    if (total && __atomic_load_n(&total->wanted_ns, __ATOMIC_RELAXED) < now)
        __atomic_store_n(&total->wanted_ns, now, __ATOMIC_RELAXED);
}

/* What this process has launched has ended, and was wanted until later. */
static void want_no_longer(int gpu, struct psg_gate *gate, uint64_t now)
{
    struct psg_total *total = psg_total(gpu);
    uint64_t until = atomic_load(&gate->wanted);
    if (until <= now)
        return;
    atomic_store(&gate->wanted, now);
    if (total)
        __atomic_compare_exchange_n(&total->wanted_ns, &until, now, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

static void count_work(int gpu, struct psg_gate *gate, uint64_t to)
{
    uint64_t from = gate->counted > gate->from ? gate->counted : gate->from;
    if (to > from)
        psg_worked(gpu, from, to, &gate->window);
    gate->counted = to > from ? to : from;
}

/* Learns from launches that were measured. */
static void read_measures(int gpu, struct psg_gate *gate)
{
    atomic_fetch_add(&gate->queued, (uint64_t)psg_measures_read(gpu, gate->overdue));
}

/* All that was launched has ended: now where that was `seen`; else nobody knows when, about when it was expected to by what
 * its events tell. */
static void all_ended(int gpu, struct psg_gate *gate, uint64_t now, bool seen)
{
    uint64_t launches = psg_pending(gate);
    if (launches)
        read_measures(gpu, gate);
    gate->overdue = false;
    if (!launches)
        return;
    uint64_t at = seen ? now : smaller(now, atomic_load(&gate->queued));
    count_work(gpu, gate, at);
    const void *what = atomic_load(&gate->what);
    if (what && at > gate->from)
        psg_learn_length(what, (at - gate->from) / launches);
    atomic_store(&gate->ended, atomic_load(&gate->admitted));
    atomic_store(&gate->slice, 0);
    psg_watch_none(&gate->streams);
    want_no_longer(gpu, gate, now);
}

/* What is pending on one GPU may wait for what the same thread would launch next on another one. */
static bool feeds_several(void)
{
    return fed & (fed - 1);
}

/* Until when the launch of a function (null: none) is held behind what is pending. Once one has gone though that had not ended,
 * the next ones go so seldom that they take a small part of the GPU. */
static uint64_t patient_until(const struct psg_gate *gate, CUstream stream, const void *what, uint64_t begun)
{
    uint64_t length = what ? psg_length(what) : 0, expected = larger(begun, atomic_load(&gate->queued));
    if (gate->overdue && (length || !what))
        return begun + clamp(SELDOM * length, LESS_PATIENCE, MOST_PATIENCE);
    if (what && psg_is_only(&gate->streams, stream) && !feeds_several())
        return expected + PATIENCE_ON_STREAM;
    /* Beside work of a neighbour it takes twice as long, and a little more that slices cost; of what is not known (without a
     * slice) nobody can tell. A thread that feeds several GPUs may itself be what it waits for. */
    uint64_t length_of_all = expected - smaller(gate->from, expected);
    uint64_t beside = atomic_load(&gate->slice) ? length_of_all + length_of_all / 4 : PATIENCE_IN_ALL;
    if (feeds_several())
        beside = PATIENCE;
    return smaller(expected + larger(PATIENCE, beside), begun + PATIENCE_IN_ALL);
}

bool psg_drain(int gpu, struct psg_gate *gate, CUstream stream, const void *what)
{
    uint64_t begun = psg_now(), now = begun;
    bool waited = false;
    while (psg_pending(gate) && is_busy(gate, now)) {
        psg_works_on(gpu, gate->from, now);
        uint64_t expected = atomic_load(&gate->queued);
        if (now >= patient_until(gate, stream, what, begun)) {
            gate->overdue = true;
            read_measures(gpu, gate);
            return false;
        }
        if (now > expected + LATE)
            count_work(gpu, gate, now);
        uint64_t wait = now < expected ? (expected - now) / 4 : (now - expected) / 8;
        /* A neighbour's slices make it later than expected, and what comes after must not wait for us. */
        if (now < expected + LATE)
            wait = smaller(wait, MILLISECOND);
        psg_want(gpu, now);
        psg_sleep_unlocked(gate, now + clamp(wait, 20 * MICROSECOND, LONGEST_LOOK));
        now = psg_now();
        waited = true;
    }
    all_ended(gpu, gate, now, waited);
    return true;
}

uint64_t psg_admitted(int gpu)
{
    return gpu < 0 ? 0 : atomic_load(&psg_gates[gpu].admitted);
}

void psg_seen_some(int gpu, uint64_t admitted)
{
    struct psg_gate *gate = &psg_gates[gpu];
    if (psg_pending(gate) == 0)
        return;
    psg_lock(&gate->lock);
    uint64_t now = psg_now();
    if (atomic_load(&gate->admitted) == admitted && !is_busy(gate, now))
        all_ended(gpu, gate, now, true);
    psg_unlock(&gate->lock);
}

void psg_seen_idle(int gpu, CUstream stream, uint64_t context, uint64_t admitted)
{
    struct psg_gate *gate = &psg_gates[gpu];
    if (psg_pending(gate) == 0)
        return;
    if (!context && !psg_is_only(&gate->streams, stream)) {
        psg_seen_some(gpu, admitted);
        return;
    }
    psg_lock(&gate->lock);
    /* Of what another thread has launched meanwhile nobody knows anything. */
    if (atomic_load(&gate->admitted) == admitted && psg_all_are_of(&gate->streams, context))
        all_ended(gpu, gate, psg_now(), true);
    psg_unlock(&gate->lock);
}

static void stream_gone(int gpu, CUstream stream)
{
    struct psg_gate *gate = &psg_gates[gpu];
    psg_lock(&gate->lock);
    if (psg_is_watched(&gate->streams, stream) && !psg_drain(gpu, gate, stream, NULL)) {
        psg_unwatch(&gate->streams, stream);
        gate->gone = atomic_load(&gate->queued);
    }
    psg_unlock(&gate->lock);
}

void psg_stream_gone(int gpu, CUstream stream)
{
    for (int each = gpu < 0 ? 0 : gpu; each < (gpu < 0 ? (int)psg_gpus() : gpu + 1); each++)
        stream_gone(each, stream);
    psg_pools_stream_gone(stream);
}

void psg_context_gone(uint64_t context)
{
    for (int gpu = 0; gpu < (int)psg_gpus(); gpu++) {
        struct psg_gate *gate = &psg_gates[gpu];
        psg_lock(&gate->lock);
        if (psg_any_is_of(&gate->streams, context) && !psg_drain(gpu, gate, NULL, NULL)) {
            psg_unwatch_of(&gate->streams, context);
            gate->gone = atomic_load(&gate->queued);
        }
        psg_unlock(&gate->lock);
    }
    psg_measures_gone(context);
    psg_frees_finish(context);
    psg_pools_context_gone(context);
}
