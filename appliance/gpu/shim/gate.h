/* What a process has in flight on a GPU, and when that has ended. */
#ifndef PSG_GATE_H
#define PSG_GATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "driver.h"
#include "watched.h"
#include "window.h"

/* Launches of one GPU, one gate for each. */
struct psg_gate {
    pthread_mutex_t lock;

    /* Read by launches that go by without the lock (psg_admit), and by all others. These three are changed there, too: */
    _Atomic(uint64_t) queued;   /* when all that was launched is expected to have ended */
    _Atomic(uint64_t) admitted; /* launches */
    _Atomic(uint64_t) wanted;   /* when the account last heard that launches are wanted */
    /* … and these with the lock only, as is `streams.only`: */
    _Atomic(uint64_t) ended;    /* so many launches have ended */
    _Atomic(uint64_t) slice;    /* until when launches go without a look at the GPU; 0: not at all */
    _Atomic(const void *) what; /* the only function that is pending; null: several */

    /* Read and changed with the lock, where a launch waits for its turn (compute.c) … */
    uint64_t used; /* windows up to here are over */
    /* … where work is followed to its end (gate.c) … */
    uint64_t counted; /* up to here it has been counted */
    /* … and in both: */
    struct psg_streams streams; /* those of what is pending */
    struct psg_window window;
    uint64_t from;  /* since when something may be running */
    uint64_t gone;  /* when work on streams that are no more has ended, as expected */
    bool overdue;   /* what is pending has not ended when it was waited for */
};

extern struct psg_gate psg_gates[PSG_GPUS];

static inline uint64_t psg_pending(const struct psg_gate *gate)
{
    return atomic_load_explicit(&gate->admitted, memory_order_relaxed) -
           atomic_load_explicit(&gate->ended, memory_order_relaxed);
}

/* This thread launches on a GPU that is shared. */
void psg_feeds(int gpu);

/* With the gate's lock: tells the agent that launches are wanted; sleeps without the lock, for others may launch, wait or
 * destroy streams meanwhile. */
void psg_want(int gpu, uint64_t now);
void psg_sleep_unlocked(struct psg_gate *gate, uint64_t until);

/* With the gate's lock: waits until all that was launched has ended, before a launch of a function (null: none) on a stream;
 * false: it has not within our patience, and may wait for that launch. */
bool psg_drain(int gpu, struct psg_gate *gate, CUstream stream, const void *what);

/* How many launches have been admitted on a GPU; what this says before the program waits, psg_seen_idle is told after: all
 * of a context have ended, or those of a stream where that is 0. */
uint64_t psg_admitted(int gpu);
void psg_seen_idle(int gpu, CUstream stream, uint64_t context, uint64_t admitted);

/* The program has waited for some of it, by an event for example: looks whether that was the end of all. */
void psg_seen_some(int gpu, uint64_t admitted);

/* A stream of a GPU (-1: nobody can tell which), or a context (0: nobody can tell which), is about to be destroyed. */
void psg_stream_gone(int gpu, CUstream stream);
void psg_context_gone(uint64_t context);

#endif
