/* Windows of the agent's timetable, and the debt of those who computed beyond theirs.
 *
 * All processes of a container share its windows, its busy time and its debt; so each piece of time is counted by the one
 * that moves a mark in the account over it, and nobody has to hold a lock. */
#include <errno.h>
#include <time.h>

#include "account.h"
#include "window.h"
#include "limits.h"

#define SECOND UINT64_C(1000000000)

/* How long to go on where the agent has written no timetable. */
#define WITHOUT_PLAN (SECOND / 100)

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

void psg_worked(int gpu, uint64_t from, uint64_t to, uint64_t end)
{
    struct psg_total *total = psg_total(gpu);
    if (!total)
        return;
    uint64_t busy = move_mark(&total->until_ns, from, to);
    __atomic_fetch_add(&total->busy_ns, busy, __ATOMIC_RELAXED);
    if (end && to > end)
        __atomic_fetch_add(&total->debt_ns, (int64_t)move_mark(&total->overrun_ns, larger(end, from), to), __ATOMIC_RELAXED);
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

/* From when on a window may be used: later than its start by the debt that it pays, or not at all where one launch of the
 * usual length would then run far into the windows of others. Windows that passed unused since the last work have paid as
 * well. */
static uint64_t opening(struct psg_total *total, uint64_t start, const struct psg_timetable *table, uint64_t usual)
{
    uint64_t opens = __atomic_load_n(&total->opens_ns, __ATOMIC_ACQUIRE);
    while (opens < start) {
        int64_t debt = __atomic_load_n(&total->debt_ns, __ATOMIC_ACQUIRE);
        uint64_t owed = debt > 0 ? (uint64_t)debt : 0;
        uint64_t last = larger(__atomic_load_n(&total->until_ns, __ATOMIC_ACQUIRE), opens);
        uint64_t passed = last && last < start ? (start - last) / table->period_ns : 0;
        uint64_t forgiven = passed > owed / table->length_ns ? owed : passed * table->length_ns;
        uint64_t paid = smaller(owed - forgiven, table->length_ns);
        if (paid && table->length_ns - paid < smaller(usual, table->length_ns))
            paid = table->length_ns;
        if (__atomic_compare_exchange_n(&total->opens_ns, &opens, start + paid, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
            __atomic_fetch_sub(&total->debt_ns, (int64_t)(forgiven + paid), __ATOMIC_RELAXED);
            opens = start + paid;
        }
    }
    return opens;
}

uint64_t psg_open_window(int gpu, uint64_t now, uint64_t used, uint64_t usual, uint64_t *again)
{
    struct psg_timetable table;
    struct psg_total *total = psg_total(gpu);
    uint64_t changes;
    *again = UINT64_MAX;
    if (!total || !psg_timetable(gpu, now, &table, &changes))
        return now + WITHOUT_PLAN;
    uint64_t number = now > table.epoch_ns ? (now - table.epoch_ns) / table.period_ns : 0;
    uint64_t boundary = table.epoch_ns + (number + 1) * table.period_ns;
    uint64_t start = table.epoch_ns + number * table.period_ns + table.offset_ns;
    uint64_t end = smaller(start + table.length_ns, changes);
    *again = smaller(boundary, changes);
    if (table.length_ns == 0) {
        /* No window in this plan; the agent sees that one is wanted and gives one within a period. */
        *again = smaller(*again, now + table.period_ns / 4);
        return 0;
    }
    if (now < start) {
        *again = smaller(*again, start);
        return 0;
    }
    if (now >= end || end <= used)
        return 0;
    uint64_t opens = opening(total, start, &table, usual);
    if (opens <= now)
        return end;
    *again = smaller(*again, opens);
    return 0;
}
