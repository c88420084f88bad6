/* Admission of launches: inside of a window only, as many as end before it does by what is known of their length. */
#include "account.h"
#include "compute.h"
#include "gate.h"
#include "limits.h"
#include "lock.h"
#include "record.h"

#define MICROSECOND UINT64_C(1000)
#define MILLISECOND UINT64_C(1000000)

/* Of launches that are shorter than this, so many go by without a look at the clock. */
#define SHORT (50 * MICROSECOND)
enum { UNTIMED = 16 };

/* The shortest slice between two looks at the GPU (a slice is half of what is left of the window). */
#define SLICE (5 * MILLISECOND)

/* How long to sleep at most before the timetable is looked at again. */
#define LONGEST_SLEEP (1000 * MILLISECOND)

/* Whose work is running wants to launch again once that has ended, which takes twice as long beside a neighbour's. */
static void count_launch(int gpu, struct psg_gate *gate, uint64_t now)
{
    struct psg_total *total = psg_total(gpu);
    if (!total)
        return;
    __atomic_fetch_add(&total->launches, 1, __ATOMIC_RELAXED);
    uint64_t queued = atomic_load_explicit(&gate->queued, memory_order_relaxed);
    uint64_t until = now && queued > now ? now + smaller(2 * (queued - now), PSG_ENDLESS) : now;
    if (until > atomic_load_explicit(&gate->wanted, memory_order_relaxed) + MILLISECOND) {
        atomic_store_explicit(&gate->wanted, until, memory_order_relaxed);
        __atomic_store_n(&total->wanted_ns, until, __ATOMIC_RELAXED);
    }
}

/* A launch that ends after the window makes debt, one that is held back leaves credit; it goes where that comes out
 * nearer to none. What is longer than any window goes when its debt is paid. */
static bool fits(int gpu, const struct psg_gate *gate, uint64_t now, uint64_t length)
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
static void queue_launch(struct psg_gate *gate, uint64_t now, uint64_t length)
{
    uint64_t queued = atomic_load(&gate->queued);
    atomic_store(&gate->queued, (queued > now ? queued : now) + length);
    atomic_fetch_add(&gate->admitted, 1);
}

/* Nothing is pending: the launch begins a slice. */
static void start_slice(struct psg_gate *gate, uint64_t now, const void *what, uint64_t length)
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
static void next_window(int gpu, struct psg_gate *gate, uint64_t length)
{
    uint64_t again, now = psg_now();
    if (gate->window.until) {
        if (!gate->window.extra)
            gate->used = gate->window.until;
        if (gate->window.planned && !gate->window.extra)
            psg_left_over(gpu, now, gate->window.until, length);
        gate->window = (struct psg_window){0};
    }
    psg_want(gpu, now);
    if (psg_compute_mode(gpu) == PSG_COMPUTE_OFF)
        gate->window = (struct psg_window){.opened = now, .until = now + LONGEST_SLEEP};
    else if (!psg_open_window(gpu, now, gate->used, length, &gate->window, &again))
        psg_sleep_unlocked(gate, again - now < LONGEST_SLEEP ? again : now + LONGEST_SLEEP);
}

static bool has_place(const struct psg_gate *gate, CUstream stream, uint64_t now, uint64_t length)
{
    uint64_t queued = atomic_load_explicit(&gate->queued, memory_order_relaxed);
    return length && psg_has_room(&gate->streams, stream) &&
           (queued > now ? queued : now) + length <= atomic_load_explicit(&gate->slice, memory_order_relaxed);
}

static struct psg_measured wait_for_window(int gpu, struct psg_gate *gate, CUstream stream, const void *what)
{
    uint64_t now, length;
    psg_lock(&gate->lock);
    if (!psg_pending(gate))
        psg_returned(gpu, psg_now());
    for (;;) {
        now = psg_now();
        length = psg_length(what);
        if (!psg_pending(gate)) {
            if (fits(gpu, gate, now, length)) {
                start_slice(gate, now, what, length);
                break;
            }
            next_window(gpu, gate, length);
        } else if (has_place(gate, stream, now, length) || !psg_drain(gpu, gate, stream, what)) {
            /* What does not end may wait for this launch, which therefore goes, and is counted with it. */
            break;
        }
    }
    if (atomic_load(&gate->what) != what)
        atomic_store(&gate->what, NULL);
    psg_watch(&gate->streams, stream);
    queue_launch(gate, now, length);
    count_launch(gpu, gate, now);
    bool alone = psg_is_only(&gate->streams, stream);
    psg_unlock(&gate->lock);
    return psg_measure_begin(gpu, stream, what, alone);
}

struct psg_measured psg_admit(int gpu, CUstream stream, const void *what)
{
    struct psg_gate *gate = &psg_gates[gpu];
    struct psg_measured unmeasured = {.gpu = gpu, .pair = -1};
    if (psg_compute_mode(gpu) == PSG_COMPUTE_OFF) {
        count_launch(gpu, gate, 0);
        return unmeasured;
    }
    if (psg_recorded(stream))
        return unmeasured;
    psg_feeds(gpu);
    uint64_t waiting = psg_pending(gate), length = psg_length(what);
    bool in_slice = waiting > 0 && length && psg_is_only(&gate->streams, stream);
    /* Reading the time costs more than many short launches may. */
    uint64_t now = in_slice && waiting % UNTIMED && length < SHORT ? 0 : psg_now();
    const void *only = atomic_load_explicit(&gate->what, memory_order_relaxed);
    if (!in_slice || (only && only != what) || !has_place(gate, stream, now, length))
        return wait_for_window(gpu, gate, stream, what);
    if (now) {
        queue_launch(gate, now, length);
        count_launch(gpu, gate, now);
        return psg_measure_begin(gpu, stream, what, true);
    }
    atomic_fetch_add_explicit(&gate->queued, length, memory_order_relaxed);
    atomic_fetch_add_explicit(&gate->admitted, 1, memory_order_relaxed);
    count_launch(gpu, gate, 0);
    return unmeasured;
}

void psg_launched(struct psg_measured measured, CUstream stream)
{
    psg_measure_end(measured, stream);
}
