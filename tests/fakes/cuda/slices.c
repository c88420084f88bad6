/* Time slices: processes with work share a GPU evenly, each in the order of its own launches, as cards without MPS do it (an H200 does).
 *
 * Slices are as short as can be, so n processes with work each get an n-th of every moment. When a launch ends is known only
 * as time passes: it ends when its process has been served as much as stood in its queue behind that launch. */
#define _GNU_SOURCE
#include "machine_state.h"

#define QUEUED (1ULL << 63)
#define LOOK 20000ULL /* ns between two looks at least */
#define REAPED_EVERY 5000000ULL

static machine_mark *last(machine_share *of)
{
    return &of->mark[(of->marks - 1) % MACHINE_MARKS];
}

/* Notes how far a process has been served at a time, with so many of them at work until then. */
static void note(machine_share *of, uint64_t at, unsigned sharing)
{
    if (of->marks == 0 || last(of)->sharing != sharing || sharing == 0)
        of->marks++;
    *last(of) = (machine_mark){at, of->served, sharing};
}

static machine_share *working(unsigned index, unsigned gpu)
{
    machine_process *slot = &machine_shared->processes[index];
    machine_share *of = &slot->on[gpu];
    return slot->pid != 0 && of->queued > of->served ? of : NULL;
}

/* What a process is served of so long a time, and how long that takes, with so many of them at work. */
static uint64_t served_in(uint64_t time, unsigned sharing)
{
    return time / sharing * (sharing > 1 ? 1000 - (unsigned)machine()->slices_cost : 1000) / 1000;
}

static uint64_t time_for(uint64_t served, unsigned sharing)
{
    unsigned rate = sharing > 1 ? 1000 - (unsigned)machine()->slices_cost : 1000;
    return (served * 1000 + rate - 1) / rate * sharing;
}

/* Lets time pass up to now; the caller has the lock. */
static void pass(unsigned gpu, uint64_t now)
{
    uint64_t *at = &machine_shared->gpus[gpu].passed;
    if (now > machine_shared->gpus[gpu].reaped + REAPED_EVERY) {
        machine_reap(); /* what was killed works no more */
        machine_shared->gpus[gpu].reaped = now;
    }
    while (*at < now) {
        unsigned sharing = 0;
        uint64_t least = UINT64_MAX;
        for (unsigned index = 0; index < machine_shared->slots; index++) {
            machine_share *of = working(index, gpu);
            if (of != NULL && ++sharing && of->queued - of->served < least)
                least = of->queued - of->served;
        }
        if (sharing == 0 || served_in(now - *at, sharing) == 0)
            break;
        uint64_t each = served_in(now - *at, sharing);
        each = each < least ? each : least;
        *at += time_for(each, sharing);
        for (unsigned index = 0; index < machine_shared->slots; index++) {
            machine_share *of = working(index, gpu);
            if (of != NULL) {
                of->served += each;
                note(of, *at, sharing);
            }
        }
    }
    *at = *at < now ? now : *at;
}

uint64_t machine_queue(unsigned gpu, uint64_t now, machine_share *mine, uint64_t duration)
{
    pass(gpu, now);
    if (mine->queued == mine->served)
        note(mine, now, 0);
    mine->queued += duration;
    return QUEUED | mine->queued;
}

static uint64_t time_of(const machine_share *of, uint64_t goal)
{
    unsigned oldest = of->marks > MACHINE_MARKS ? of->marks - MACHINE_MARKS : 0;
    for (unsigned number = oldest + 1; number < of->marks; number++) {
        machine_mark from = of->mark[(number - 1) % MACHINE_MARKS], to = of->mark[number % MACHINE_MARKS];
        if (goal <= from.served)
            return from.at;
        if (goal <= to.served)
            return to.at - time_for(to.served - goal, to.sharing ? to.sharing : 1);
    }
    return of->marks ? of->mark[(of->marks - 1) % MACHINE_MARKS].at : 0;
}

uint64_t machine_ends(unsigned gpu, uint64_t moment)
{
    uint64_t now = machine_now(), goal = moment & ~QUEUED, found;
    if (!(moment & QUEUED))
        return moment;
    machine_lock();
    machine_share *mine = machine_own(gpu);
    pass(gpu, now);
    if (mine->served >= goal)
        found = time_of(mine, goal);
    else
        found = now + (goal - mine->served > LOOK ? goal - mine->served : LOOK);
    machine_unlock();
    return found;
}
