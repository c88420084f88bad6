/* Admission of launches: inside of a window only, as many as end before it does by what is known of their length, and
 * followed to their end.
 *
 * What was launched is never waited for by a blocking call, nor with a lock held: it may itself wait for a launch that comes
 * later, and that must then go through, if late. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "account.h"
#include "compute.h"
#include "device.h"
#include "driver.h"
#include "fork.h"
#include "lengths.h"
#include "limits.h"
#include "lock.h"
#include "record.h"
#include "watched.h"
#include "window.h"

#define MICROSECOND UINT64_C(1000)
#define MILLISECOND UINT64_C(1000000)

/* Of launches that are shorter than this, so many go by without a look at the clock. */
#define SHORT (50 * MICROSECOND)
enum { UNTIMED = 16 };

/* The shortest slice between two looks at the GPU (a slice is half of what is left of the window). */
#define SLICE (5 * MILLISECOND)

/* How long beyond its expected end work may take before a launch goes that it may be waiting for; how much longer at least,
 * and how many lengths of the launch, where that has come once; and where the launch is on the very stream of all that work,
 * behind which it can hold up nothing but what the program itself does, by a thread that launches on this GPU alone. */
#define PATIENCE (1000 * MILLISECOND)
#define LESS_PATIENCE (PATIENCE / 16)
#define MOST_PATIENCE (30 * PATIENCE)
enum { SELDOM = 8 };

/* Work that ends so much later than expected is counted while it goes on. */
#define LATE (100 * MILLISECOND)

/* How long to sleep at most before the GPU, or the timetable, is looked at again. */
#define LONGEST_LOOK (PATIENCE / 4)
#define LONGEST_SLEEP (1000 * MILLISECOND)

/* So long after another process of the container has launched, a delay may be its doing and not a neighbour's. */
#define OTHERS (2000 * MILLISECOND)

/* What is atomic is read by launches that go by without the lock; all is changed with it, but `admitted`, `queued` and
 * `wanted`. */
struct gate {
    pthread_mutex_t lock;
    struct psg_window window;
    uint64_t used;               /* windows up to here are over */
    _Atomic(uint64_t) slice;     /* until when launches go without a look at the GPU; 0: not at all */
    _Atomic(uint64_t) queued;    /* when all that was launched is expected to have ended */
    _Atomic(uint64_t) admitted;  /* launches */
    _Atomic(uint64_t) ended;     /* so many of them have ended */
    struct psg_streams streams;  /* those of what is pending */
    _Atomic(uint64_t) wanted;    /* when the account last heard that launches are wanted */
    uint64_t from;               /* since when something may be running */
    uint64_t counted;            /* up to here it has been counted */
    uint64_t rests;              /* since when nothing is pending */
    _Atomic(const void *) what;  /* the only function that is pending; null: several */
    uint64_t others, others_at;  /* launches of other processes, and when there were new ones */
    uint64_t gone;               /* when work on streams that are no more has ended, as expected */
    bool fresh;                  /* the next launch is the first of its window */
    atomic_bool beside;          /* the window is an extra one, in which neighbours may work as well */
    bool overdue;                /* what is pending has not ended when it was waited for */
};

static struct gate gates[PSG_GPUS] = {[0 ... PSG_GPUS - 1] = {.lock = PTHREAD_MUTEX_INITIALIZER}};

/* The shared GPUs on which this thread has launched, a bit for each. */
static __thread uint32_t fed;

static void after_fork_in_child(void)
{
    fed = 0;
    for (int gpu = 0; gpu < PSG_GPUS; gpu++) {
        memset(&gates[gpu], 0, sizeof gates[gpu]);
        gates[gpu].lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    }
}

AT_FORK(.in_child = after_fork_in_child);

static uint64_t clamp(uint64_t value, uint64_t least, uint64_t most)
{
    return value < least ? least : value > most ? most : value;
}

static uint64_t pending(const struct gate *gate)
{
    return atomic_load_explicit(&gate->admitted, memory_order_relaxed) -
           atomic_load_explicit(&gate->ended, memory_order_relaxed);
}

/* Sleeps without the lock: others may launch, wait or destroy streams meanwhile. */
static void sleep_unlocked(struct gate *gate, uint64_t until)
{
    psg_unlock(&gate->lock);
    psg_sleep_until(until);
    psg_lock(&gate->lock);
}

/* What the GPU does; the caller has the lock, as of all that follows ---------------------------------------------- */

/* Whether something is still running; where nobody can ask, or a stream is no more, by what was expected. */
static bool is_busy(const struct gate *gate, uint64_t now)
{
    bool busy;
    if (!psg_ask_streams(&gate->streams, &busy))
        busy = now < atomic_load(&gate->queued);
    return busy || now < gate->gone;
}

static void want(int gpu, uint64_t now)
{
    struct psg_total *total = psg_total(gpu);
    if (total)
        __atomic_store_n(&total->wanted_ns, now, __ATOMIC_RELAXED);
}

/* Whether no other process of the container has launched for a while. */
static bool is_alone(int gpu, struct gate *gate, uint64_t now)
{
    struct psg_total *total = psg_total(gpu);
    uint64_t others = total ? __atomic_load_n(&total->launches, __ATOMIC_RELAXED) - atomic_load(&gate->admitted) : 0;
    if (others != gate->others)
        gate->others_at = now;
    gate->others = others;
    return now - gate->others_at > OTHERS;
}

static void count_work(int gpu, struct gate *gate, uint64_t to)
{
    uint64_t from = gate->counted > gate->from ? gate->counted : gate->from;
    if (to > from)
        psg_worked(gpu, from, to, &gate->window);
    gate->counted = to > from ? to : from;
}

/* Learns from launches that were measured; a delay is no work of ours, and what was counted of it counts no more. */
static void read_measures(int gpu, struct gate *gate, uint64_t now)
{
    bool alone = is_alone(gpu, gate, now);
    struct psg_delay delay = psg_measures_read(gpu);
    if (!delay.ns || !alone)
        return;
    uint64_t to = delay.from + delay.ns, began = larger(delay.from, gate->from);
    psg_delayed(gpu, delay.from, to);
    count_work(gpu, gate, began);
    if (gate->counted > began)
        psg_not_worked(gpu, began, smaller(gate->counted, to), &gate->window);
    gate->counted = larger(gate->counted, to);
}

/* All that was launched has ended at a time. */
static void all_ended(int gpu, struct gate *gate, uint64_t at)
{
    uint64_t launches = pending(gate);
    gate->overdue = false;
    if (!launches)
        return;
    read_measures(gpu, gate, at);
    count_work(gpu, gate, at);
    const void *what = atomic_load(&gate->what);
    if (what && at > gate->from)
        psg_learn_length(what, (at - gate->from) / launches);
    atomic_store(&gate->ended, atomic_load(&gate->admitted));
    atomic_store(&gate->slice, 0);
    gate->rests = at;
    psg_watch_none(&gate->streams);
}

/* What is pending on one GPU may wait for what the same thread would launch next on another one. */
static bool feeds_several(void)
{
    return fed & (fed - 1);
}

/* How long the launch of a function is held beyond the expected end of what is pending (null: none is). Once one has gone
 * though it had not ended, the next ones go so seldom that they take a small part of the GPU. */
static uint64_t patience_for(const struct gate *gate, CUstream stream, const void *what)
{
    uint64_t length = what ? psg_length(what) : 0;
    if (what && psg_is_only(&gate->streams, stream) && !feeds_several())
        return MOST_PATIENCE;
    return gate->overdue && (length || !what) ? clamp(SELDOM * length, LESS_PATIENCE, MOST_PATIENCE) : PATIENCE;
}

/* Waits until all that was launched has ended, before a launch on a stream; false: it has not within our patience, and may
 * wait for that launch. */
static bool drain(int gpu, struct gate *gate, CUstream stream, const void *what)
{
    uint64_t begun = psg_now(), now = begun;
    bool waited = false;
    while (pending(gate) && is_busy(gate, now)) {
        psg_works_on(gpu, gate->from, now);
        uint64_t expected = atomic_load(&gate->queued), due = expected > begun ? expected : begun;
        if (now >= due + patience_for(gate, stream, what)) {
            gate->overdue = true;
            read_measures(gpu, gate, now);
            return false;
        }
        if (now > expected + LATE)
            count_work(gpu, gate, now);
        uint64_t wait = now < expected ? (expected - now) / 4 : (now - expected) / 8;
        want(gpu, now);
        sleep_unlocked(gate, now + clamp(wait, 20 * MICROSECOND, LONGEST_LOOK));
        now = psg_now();
        waited = true;
    }
    /* It ended before we looked: nobody knows when, about when it was expected to. */
    uint64_t expected = atomic_load(&gate->queued);
    all_ended(gpu, gate, waited || expected > now ? now : expected);
    return true;
}

uint64_t psg_admitted(int gpu)
{
    return gpu < 0 ? 0 : atomic_load(&gates[gpu].admitted);
}

void psg_seen_idle(int gpu, CUstream stream, uint64_t context, uint64_t admitted)
{
    struct gate *gate = &gates[gpu];
    if (pending(gate) == 0 || (!context && !psg_is_only(&gate->streams, stream)))
        return;
    psg_lock(&gate->lock);
    /* Of what another thread has launched meanwhile nobody knows anything. */
    if (atomic_load(&gate->admitted) == admitted && psg_all_are_of(&gate->streams, context))
        all_ended(gpu, gate, psg_now());
    psg_unlock(&gate->lock);
}

static void stream_gone(int gpu, CUstream stream)
{
    struct gate *gate = &gates[gpu];
    psg_lock(&gate->lock);
    if (psg_is_watched(&gate->streams, stream) && !drain(gpu, gate, stream, NULL)) {
        psg_unwatch(&gate->streams, stream);
        gate->gone = atomic_load(&gate->queued);
    }
    psg_unlock(&gate->lock);
}

void psg_stream_gone(int gpu, CUstream stream)
{
    for (int each = gpu < 0 ? 0 : gpu; each < (gpu < 0 ? (int)psg_gpus() : gpu + 1); each++)
        stream_gone(each, stream);
}

void psg_context_gone(uint64_t context)
{
    for (int gpu = 0; gpu < (int)psg_gpus(); gpu++) {
        struct gate *gate = &gates[gpu];
        psg_lock(&gate->lock);
        if (psg_any_is_of(&gate->streams, context) && !drain(gpu, gate, NULL, NULL)) {
            psg_unwatch_of(&gate->streams, context);
            gate->gone = atomic_load(&gate->queued);
        }
        psg_unlock(&gate->lock);
    }
    psg_measures_gone(context);
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
 * nearer to none. What is longer than any window goes when its debt is paid. */
static bool fits(int gpu, const struct gate *gate, uint64_t now, uint64_t length)
{
    const struct psg_window *window = &gate->window;
    if (now >= window->until)
        return false;
    uint64_t left = window->until - now, half = smaller(length, window->until - window->opened) / 2;
    struct psg_total *total = left < length ? psg_total(gpu) : NULL;
    if (!total)
        return true;
    int64_t debt = __atomic_load_n(&total->debt_ns, __ATOMIC_RELAXED), most = (int64_t)half;
    debt = debt > most ? most : debt < -most ? -most : debt;
    return (int64_t)left >= most + debt;
}

/* The launch goes: it ends after what is queued already. */
static void go(struct gate *gate, uint64_t now, uint64_t length)
{
    uint64_t queued = atomic_load(&gate->queued);
    atomic_store(&gate->queued, (queued > now ? queued : now) + length);
    atomic_fetch_add(&gate->admitted, 1);
}

/* Nothing is pending: the launch begins a slice. */
static void start_slice(struct gate *gate, uint64_t now, const void *what, uint64_t length)
{
    uint64_t left = gate->window.until > now ? gate->window.until - now : 0;
    /* Behind what nobody knows the length of nothing goes. */
    atomic_store(&gate->slice, length ? now + smaller(left, larger(left / 2, SLICE)) : 0);
    atomic_store(&gate->queued, now);
    gate->from = now;
    gate->counted = gate->counted > now ? 0 : gate->counted;
    atomic_store(&gate->what, what);
    gate->gone = 0;
    psg_watch_none(&gate->streams);
}

/* Ends the window and waits for the next one, or for that which another thread has found. */
static void next_window(int gpu, struct gate *gate, uint64_t length)
{
    uint64_t again, now = psg_now();
    if (gate->window.until) {
        if (!gate->window.extra)
            gate->used = gate->window.until;
        if (gate->window.planned && !gate->window.extra)
            psg_left_over(gpu, now, gate->window.until, length);
        gate->window = (struct psg_window){0};
    }
    want(gpu, now);
    if (psg_compute_mode(gpu) == PSG_COMPUTE_OFF)
        gate->window = (struct psg_window){.opened = now, .until = now + LONGEST_SLEEP};
    else if (psg_open_window(gpu, now, gate->used, length, &gate->window, &again))
        gate->fresh = true, atomic_store(&gate->beside, gate->window.extra);
    else
        sleep_unlocked(gate, again - now < LONGEST_SLEEP ? again : now + LONGEST_SLEEP);
}

static bool has_place(const struct gate *gate, CUstream stream, uint64_t now, uint64_t length)
{
    uint64_t queued = atomic_load_explicit(&gate->queued, memory_order_relaxed);
    return length && psg_has_room(&gate->streams, stream) &&
           (queued > now ? queued : now) + length <= atomic_load_explicit(&gate->slice, memory_order_relaxed);
}

static struct psg_measured wait_for_window(int gpu, struct gate *gate, CUstream stream, const void *what)
{
    uint64_t now, length;
    psg_lock(&gate->lock);
    if (!pending(gate) && (now = psg_now()) > gate->rests + MILLISECOND && gate->rests)
        psg_rested(gpu, now - gate->rests);
    gate->rests = 0;
    for (;;) {
        now = psg_now();
        length = psg_length(what);
        if (!pending(gate)) {
            if (fits(gpu, gate, now, length)) {
                start_slice(gate, now, what, length);
                break;
            }
            next_window(gpu, gate, length);
        } else if (has_place(gate, stream, now, length) || !drain(gpu, gate, stream, what)) {
            /* What does not end may wait for this launch, which therefore goes, and is counted with it. */
            break;
        }
    }
    enum psg_turn turn = gate->window.extra ? PSG_BESIDE : gate->fresh ? PSG_FIRST : PSG_WITHIN;
    gate->fresh = false;
    if (atomic_load(&gate->what) != what)
        atomic_store(&gate->what, NULL);
    psg_watch(&gate->streams, stream);
    go(gate, now, length);
    count(gpu, gate, now);
    /* Beside work on other streams it may take longer; but that says more than nothing. */
    bool measurable = psg_is_only(&gate->streams, stream) || (gate->overdue && !length);
    psg_unlock(&gate->lock);
    return measurable ? psg_measure_begin(gpu, stream, what, now, turn)
                      : (struct psg_measured){.gpu = gpu, .pair = -1};
}

struct psg_measured psg_admit(int gpu, CUstream stream, const void *what)
{
    struct gate *gate = &gates[gpu];
    struct psg_measured unmeasured = {.gpu = gpu, .pair = -1};
    if (psg_compute_mode(gpu) == PSG_COMPUTE_OFF) {
        count(gpu, gate, 0);
        return unmeasured;
    }
    if (psg_recorded(stream))
        return unmeasured;
    fed |= 1u << gpu;
    uint64_t waiting = pending(gate), length = psg_length(what);
    bool in_slice = waiting > 0 && length && psg_is_only(&gate->streams, stream);
    /* Reading the time costs more than many short launches may. */
    bool beside = atomic_load_explicit(&gate->beside, memory_order_relaxed);
    uint64_t now = in_slice && waiting % UNTIMED && length < SHORT && !beside ? 0 : psg_now();
    const void *only = atomic_load_explicit(&gate->what, memory_order_relaxed);
    if (!in_slice || (only && only != what) || !has_place(gate, stream, now, length))
        return wait_for_window(gpu, gate, stream, what);
    if (now) {
        go(gate, now, length);
        count(gpu, gate, now);
        return psg_measure_begin(gpu, stream, what, now, beside ? PSG_BESIDE : PSG_WITHIN);
    }
    atomic_fetch_add_explicit(&gate->queued, length, memory_order_relaxed);
    atomic_fetch_add_explicit(&gate->admitted, 1, memory_order_relaxed);
    count(gpu, gate, 0);
    return unmeasured;
}

void psg_launched(struct psg_measured measured, CUstream stream)
{
    psg_measure_end(measured, stream);
}
