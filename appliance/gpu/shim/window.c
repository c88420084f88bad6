/* Windows of the agent's timetable, and the debt of those who computed beyond theirs.
 *
 * All processes of a container share its windows, its busy time and its debt; so each piece of time is counted by the one
 * that moves a mark in the account over it, and nobody has to hold a lock. */
#include <errno.h>
#include <time.h>

#include "account.h"
#include "intervals.h"
#include "window.h"
#include "limits.h"

#define SECOND UINT64_C(1000000000)

/* How long to go on where the agent has written no timetable. */
#define WITHOUT_PLAN (SECOND / 100)

/* The least time that is worth making up for, and the most that is remembered. */
#define LEAST_OWED (SECOND / 2000)
#define MOST_OWED (10 * SECOND)

/* Programs pause between two steps; a container that does so for longer has nothing to launch. */
#define PAUSE (SECOND / 5)

/* So often in a period it is asked what the agent has found out. */
enum { LOOKS = 8 };

uint64_t psg_now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * SECOND + (uint64_t)time.tv_nsec;
}

void psg_sleep_until(uint64_t time)
{
    struct timespec until = {.tv_sec = (time_t)(time / SECOND), .tv_nsec = (long)(time % SECOND)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
}

/* Moves a mark forward to `to`; returns the length of what lies behind it and after `from`, which is now the caller's. */
static uint64_t move_mark(uint64_t *mark, uint64_t from, uint64_t to)
{
    uint64_t old = __atomic_load_n(mark, __ATOMIC_ACQUIRE);
    while (old < to)
        if (__atomic_compare_exchange_n(mark, &old, to, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            return to - smaller(larger(from, old), to);
    return 0;
}

/* How much of the time between two moments lies in windows of a timetable. */
static uint64_t own_time(const struct psg_timetable *table, uint64_t from, uint64_t to)
{
    uint64_t epoch = table->epoch_ns + table->offset_ns, own = 0;
    if (to <= from || to <= epoch)
        return 0;
    from = larger(from, epoch);
    uint64_t first = (from - epoch) / table->period_ns, last = (to - epoch) / table->period_ns;
    uint64_t begins = epoch + first * table->period_ns, ends = epoch + last * table->period_ns;
    own = (last - first) * table->length_ns + smaller(to - ends, table->length_ns);
    return own - smaller(from - begins, table->length_ns);
}

/* The same for the windows of a container, whose timetables change meanwhile; before the first one that is still known it counts
 * as well. Where nobody has planned any, all of the time is its own. */
static uint64_t own_time_on(int gpu, uint64_t from, uint64_t to)
{
    struct psg_timetable table;
    uint64_t own = 0, changes, next;
    for (; from < to; from = changes) {
        bool planned = psg_timetable(gpu, from, &table, &changes);
        changes = smaller(changes, to);
        if (!planned)
            planned = psg_timetable(gpu, changes, &table, &next);
        own += planned ? own_time(&table, from, changes) : changes - from;
    }
    return own;
}

/* What is owed to the container goes down by so much, to nothing at least. */
static uint64_t take_owed(struct psg_total *total, uint64_t most)
{
    uint64_t owed = __atomic_load_n(&total->owed_ns, __ATOMIC_ACQUIRE), taken;
    do
        taken = smaller(owed, most);
    while (!__atomic_compare_exchange_n(&total->owed_ns, &owed, owed - taken, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
    return taken;
}

void psg_worked(int gpu, uint64_t from, uint64_t to, const struct psg_window *window)
{
    struct psg_total *total = psg_total(gpu);
    if (!total)
        return;
    psg_note_interval(gpu, from, to);
    uint64_t busy = move_mark(&total->until_ns, from, to);
    __atomic_fetch_add(&total->busy_ns, busy, __ATOMIC_RELAXED);
    if (window->extra && to - busy < window->until)
        take_owed(total, smaller(to, window->until) - (to - busy));
    if (to <= window->until)
        return;
    uint64_t after = larger(window->until, from), over = move_mark(&total->overrun_ns, after, to);
    over -= smaller(over, own_time_on(gpu, to - over, to));
    over -= take_owed(total, over);
    __atomic_fetch_add(&total->debt_ns, (int64_t)over, __ATOMIC_RELAXED);
}

void psg_works_on(int gpu, uint64_t from, uint64_t now)
{
    struct psg_total *total = now > from + PSG_ENDLESS ? psg_total(gpu) : NULL;
    if (total)
        __atomic_store_n(&total->endless_ns, now, __ATOMIC_RELAXED);
}

void psg_left_over(int gpu, uint64_t at, uint64_t end, uint64_t most)
{
    struct psg_total *total = psg_total(gpu);
    if (!total || at >= end)
        return;
    uint64_t left = smaller(move_mark(&total->overrun_ns, at, end), most);
    if (__atomic_load_n(&total->debt_ns, __ATOMIC_RELAXED) > -(int64_t)most)
        __atomic_fetch_sub(&total->debt_ns, (int64_t)left, __ATOMIC_RELAXED);
}

/* The agent has found out what the container lost to others of what it counted as its own: that is no debt, and what of it was
 * none is owed. What it has got back too much it owes again. */
static void settle(int gpu, struct psg_total *total)
{
    int64_t lost = psg_lost(gpu), settled = __atomic_load_n(&total->settled_ns, __ATOMIC_ACQUIRE);
    if (lost == settled ||
        !__atomic_compare_exchange_n(&total->settled_ns, &settled, lost, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        return;
    int64_t more = lost - settled, debt = __atomic_load_n(&total->debt_ns, __ATOMIC_RELAXED);
    int64_t paid = more < 0 ? more + (int64_t)take_owed(total, (uint64_t)-more) : debt > 0 ? debt < more ? debt : more : 0;
    uint64_t busy = __atomic_load_n(&total->busy_ns, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(&total->busy_ns, &busy, more > 0 ? busy - smaller(busy, (uint64_t)more) : busy + (uint64_t)-more,
                                        false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
    __atomic_fetch_sub(&total->debt_ns, paid, __ATOMIC_RELAXED);
    uint64_t owed = more > paid ? __atomic_add_fetch(&total->owed_ns, (uint64_t)(more - paid), __ATOMIC_ACQ_REL) : 0;
    if (owed > MOST_OWED)
        take_owed(total, owed - MOST_OWED);
}

/* Where all of the time is given away, the agent finds out what is owed and nobody owes, or the other way round. */
static void forget(int gpu, struct psg_total *total)
{
    int64_t forgotten = psg_forgotten(gpu), before = __atomic_load_n(&total->forgotten_ns, __ATOMIC_ACQUIRE);
    if (forgotten == before || !__atomic_compare_exchange_n(&total->forgotten_ns, &before, forgotten, false, __ATOMIC_ACQ_REL,
                                                            __ATOMIC_ACQUIRE))
        return;
    if (forgotten > before) {
        take_owed(total, (uint64_t)(forgotten - before));
        return;
    }
    int64_t debt = __atomic_load_n(&total->debt_ns, __ATOMIC_RELAXED), less = before - forgotten;
    if (debt > 0)
        __atomic_fetch_sub(&total->debt_ns, debt < less ? debt : less, __ATOMIC_RELAXED);
}

void psg_returned(int gpu, uint64_t now)
{
    struct psg_total *total = psg_total(gpu);
    if (!total || !__atomic_load_n(&total->owed_ns, __ATOMIC_RELAXED))
        return;
    uint64_t last = larger(__atomic_load_n(&total->until_ns, __ATOMIC_RELAXED),
                           __atomic_load_n(&total->wanted_ns, __ATOMIC_RELAXED));
    if (now > last + PAUSE)
        take_owed(total, now - last);
}

/* From when on a window may be used: later than its start, or than the end of work that reached into it, by the debt that it
 * pays. Windows that passed unused since the last work have paid as well. */
static uint64_t opening(struct psg_total *total, uint64_t start, uint64_t end, const struct psg_timetable *table)
{
    uint64_t opens = __atomic_load_n(&total->opens_ns, __ATOMIC_ACQUIRE);
    while (opens < start) {
        int64_t debt = __atomic_load_n(&total->debt_ns, __ATOMIC_ACQUIRE);
        uint64_t owed = debt > 0 ? (uint64_t)debt : 0;
        uint64_t until = __atomic_load_n(&total->until_ns, __ATOMIC_ACQUIRE), last = larger(until, opens);
        uint64_t passed = last && last < start ? (start - last) / table->period_ns : 0;
        uint64_t forgiven = passed > owed / table->length_ns ? owed : passed * table->length_ns;
        uint64_t free = smaller(larger(start, until), end), paid = smaller(owed - forgiven, end - free);
        if (__atomic_compare_exchange_n(&total->opens_ns, &opens, free + paid, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
            __atomic_fetch_sub(&total->debt_ns, (int64_t)(forgiven + paid), __ATOMIC_RELAXED);
            opens = free + paid;
        }
    }
    return opens;
}

/* A window outside of the container's own, where it is owed time enough for a launch; `early` where a quarter of it is enough. */
static bool extra_window(struct psg_total *total, bool early, uint64_t now, uint64_t usual, uint64_t before,
                         struct psg_window *window)
{
    uint64_t owed = __atomic_load_n(&total->owed_ns, __ATOMIC_ACQUIRE);
    if (owed < LEAST_OWED || owed < (early ? usual / 4 : usual))
        return false;
    *window = (struct psg_window){now, smaller(now + larger(owed, early ? usual : 0), before), .planned = true, .extra = true};
    return window->until > now;
}

bool psg_open_window(int gpu, uint64_t now, uint64_t used, uint64_t usual, struct psg_window *window, uint64_t *again)
{
    struct psg_timetable table;
    struct psg_total *total = psg_total(gpu);
    uint64_t changes;
    *again = UINT64_MAX;
    if (!total || !psg_timetable(gpu, now, &table, &changes)) {
        *window = (struct psg_window){.opened = now, .until = now + WITHOUT_PLAN};
        return true;
    }
    settle(gpu, total);
    forget(gpu, total);
    uint64_t number = now > table.epoch_ns ? (now - table.epoch_ns) / table.period_ns : 0;
    uint64_t boundary = smaller(table.epoch_ns + (number + 1) * table.period_ns, changes);
    uint64_t start = table.epoch_ns + number * table.period_ns + table.offset_ns;
    uint64_t end = smaller(start + table.length_ns, changes);
    if (table.length_ns == 0) {
        /* No window in this plan; the agent sees that one is wanted and gives one within a period. */
        *again = smaller(boundary, now + table.period_ns / 4);
        return false;
    }
    if (now >= start && now < end && end > used) {
        uint64_t opens = opening(total, start, end, &table);
        *again = smaller(smaller(opens, boundary), now + table.period_ns / LOOKS);
        if (opens <= now)
            *window = (struct psg_window){.opened = now, .until = end, .planned = true};
        return opens <= now;
    }
    *again = smaller(now < start ? smaller(start, boundary) : boundary, now + table.period_ns / LOOKS);
    /* what fits into the own windows waits for them, or small differences of many launches would go to who asks most often */
    bool early = psg_compute_mode(gpu) == PSG_COMPUTE_FAIR && usual > table.length_ns;
    return extra_window(total, early, now, usual, smaller(now < start ? start : start + table.period_ns, changes), window);
}
